"""Protocols as data: one row for each, which the rest of the code reads instead of branching on its name.

A row is in ``dialects/<name>/protocol.py`` and is listed in ``dialects/protocols.py``. Rows import limits and nothing
else, so that looking up a port or a rule loads no codec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from socket import SocketKind
from typing import TYPE_CHECKING, Any, Final, NamedTuple, runtime_checkable
from typing import Protocol as Interface

from .lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .headers import Header

BYTES_MAX: Final = (1 << 31) - 1
"""Means no limit: no batch holds a longer value."""
KIND_MAX: Final = 127


class AbortedRecords(Enum):
    """Treatment of aborted and control records for a reader."""

    SKIPPED = "skipped"
    LISTED = "listed"
    """The reader gets them with their list, as Kafka does."""


class UnavailableMessages(Enum):
    """Treatment of messages whose state is not ``available``, for a reader."""

    SHOWN = "shown with their state"
    HIDDEN = "hidden"
    CHOSEN = "shown with their state, those of other states than the reader asks for left out"


@lazy_dataclass(frozen=True, slots=True)
class VisibilityRule:
    """Messages that one kind of reader sees. No reader sees what is not synced (docs/reference/visibility.md)."""

    name: str
    """The reader, as the docs call it."""
    open_transactions: bool
    aborted: AbortedRecords
    states: UnavailableMessages
    chosen_states: frozenset[int] = frozenset()
    """The states that a reader requests, if ``states`` is CHOSEN; they may or may not include available."""


@runtime_checkable
class HeaderForm(Interface):
    """Another encoding of headers than bytes with a kind, such as JSON; a carrier keeps what it changes."""

    names: tuple[str, ...]
    """Names of headers that the form itself uses, or that cannot have every value."""

    def render(self, headers: Mapping[int, Header]) -> dict[int, Header]:
        """Return the headers of one message as readers get them, by index, without those that have no form."""
        ...

    def size_bytes(self, headers: Iterable[Header]) -> int:
        """Return an upper bound of the bytes that rendered headers take, a carrier among them."""
        ...

    def limit_sizes(self, name_sizes: NDArray[np.int64], value_sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each of many headers an upper bound of its rendered bytes, name included."""
        ...

    def is_exact(self, kinds: NDArray[np.int8], values: Any) -> NDArray[np.bool_]:
        """Return a mask of the headers that are certainly read back unchanged; ``values`` is an Arrow array."""
        ...


class MessageBound(NamedTuple):
    """The most bytes that one topic lets a message take, as its server counts them, and the setting that says so."""

    bytes_max: int
    setting: str
    is_compressed: bool = True
    """Whether the server counts the bytes as they are sent: compressed, if that is smaller."""
    is_told: bool = True
    """Whether the server reported the bound; otherwise it is one byte less than a message that was refused."""


@lazy_dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts that a message keeps in a protocol's own form; a carrier has the rest, or ``strict`` refuses it."""

    duplicate_keys: bool = True
    order: bool = True
    """Whether headers keep their order. Without it duplicates are lost too, as only their order distinguishes them."""
    nulls: bool = True
    empties: bool = True
    """Header values that are null or empty."""
    key: bool = True
    null_payload: bool = True
    empty_payload: bool = True
    kind_max: int | None = KIND_MAX
    """Kinds with codes from 1 to this are kept; None: readers get raw bytes, or what ``form`` makes of a value."""
    id: bool = True
    zero_id: bool = True
    """Whether 16 zero bytes are an id; otherwise they mean that a message has no id."""
    time_step_us: int | None = 1
    """None: the server stamps its own time."""
    time_us_min: int = -(1 << 63)
    origin_time: bool = False
    """Whether a message has a second time, by the clock of the client that sent it."""
    binary_names: bool = True
    """Whether header names may be bytes that are not UTF-8."""
    typed_names: bool = False
    """Whether header names may have other kinds than text."""
    name_bytes_min: int = 0
    name_bytes_max: int = BYTES_MAX
    value_bytes_max: int = BYTES_MAX
    values_sum_max: int = BYTES_MAX
    """The sum of the header values of one message, or of all its headers in ``form``."""
    payload_bytes_max: int = BYTES_MAX
    whole_bytes_max: int | None = None
    """Headers and payload of one message together."""
    bound: MessageBound | None = None
    """The bound of the topic in question, in addition to the protocol's."""
    measure: str | None = None
    """``module:function`` that finds the messages of a batch above a ``bound``: called with both, it returns the row
    and the size in bytes of each."""
    form: str | None = None
    """``module:object`` of a HeaderForm."""
    text_carrier: bool = False
    """Whether carriers are printable, because readers may assume that every header is text."""

    @property
    def keeps_shape(self) -> bool:
        """Whether nothing is lost but kinds, ids, the order of headers, and parts of a time."""
        headers = self.duplicate_keys and self.nulls and self.empties
        return headers and self.key and self.null_payload and self.empty_payload and self.time_step_us is not None

    def with_carrier(self) -> Capabilities:
        """Return the capabilities together with a carrier, which transports all other facts: only sizes are bounded."""
        return Capabilities(
            values_sum_max=self.values_sum_max,
            payload_bytes_max=self.payload_bytes_max,
            whole_bytes_max=self.whole_bytes_max,
        )


class Scheme(NamedTuple):
    """One URL scheme: its transport, the port it means by default, and an example for messages to people."""

    transport: str
    """``module:class``, called with the URL and the transport's options."""
    port: int | None
    example: str
    is_queue: bool = False
    """Whether reading consumes messages, so that nothing can be sought or read twice."""


class EndpointSpec(NamedTuple):
    """A listening endpoint: its key in the settings, and ``module:function`` that creates it.

    The function is called with the services and the name of the endpoint, or of one of its listeners: ``iggy_tcp.old``.
    """

    name: str
    factory: str
    socket_kind: SocketKind = SocketKind.SOCK_STREAM


class DialectSpec(NamedTuple):
    """A byte format in the log: its code in chunk envelopes, its name, and ``module:object`` of its Dialect."""

    code: int
    name: str
    dialect: str


@lazy_dataclass(frozen=True, slots=True)
class Protocol:
    """One protocol: its name, the dialects of its bytes, its endpoints, and what it cannot express."""

    name: str
    """The name that stored positions and groups have; it never changes."""
    title: str
    """The name for people."""
    dialects: tuple[DialectSpec, ...]
    """The dialects of its generations; its readers get the first."""
    endpoints: tuple[EndpointSpec, ...]
    schemes: Mapping[str, Scheme]
    visibility: tuple[VisibilityRule, ...]
    capabilities: Mapping[str, Capabilities]
    """Kept facts by use: ``""`` for its readers, ``"sent"`` for senders, and others if servers differ."""
    topic_error: Callable[[str, int], str | None]
    """Return why clients cannot see a topic of this flat name and number of partitions whole; None if they can."""


def accept_any_topic(name: str, partitions: int) -> None:
    """Return None: clients of the protocol can see every topic."""
