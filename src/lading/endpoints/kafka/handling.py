"""Arguments and results of handlers of rare requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

from ...broker.core.access.rights import Right, flat_topic_resource, topic_resource
from ...dialects.kafka.requests import encode_answer
from ...dialects.kafka.scram import ScramExchange
from ...model.errors import Reason, Refusal
from ...runtime.turns import ROWS_AT_ONCE, TurnCounter, Turns
from ...settings.endpoints import KafkaListener
from ...settings.settings import Address
from ..base.services import Services

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.access.principal import Principal
    from ...broker.core.topology import Topic
    from ...broker.kafka.internal_topics import KafkaTopicView

NAME: Final = "kafka"
"""Name of the endpoint in settings; also in metrics and log lines, unless a listener has a name of its own."""
NODE_ID: Final = 1
"""The id of the cluster's only broker: leader of every partition, controller and coordinator."""
CLUSTER_ID: Final = "lading"


class Request(NamedTuple):
    """A rare request; ``body`` has attributes by the names of ``kafka.protocol``."""

    key: int
    version: int
    client_id: str | None
    body: Any


@dataclass(slots=True, eq=False)
class SaslState:
    """State of the login of a connection."""

    mechanism: str
    scram: ScramExchange | None = None
    """The SCRAM exchange, set after the response to the client's first message."""
    refusal: str = ""
    """Why a token was refused, once the client was sent it: its next message ends the login (RFC 7628 3.2.3)."""


@dataclass(slots=True, eq=False)
class Session:
    """One connection: its identity, and the callbacks for its end."""

    id: int
    host: str
    """The client's address without its port."""
    here: Address
    """The address at which the client reached this broker."""
    log_in: Callable[[Principal], None] = lambda principal: None
    """Gives the connection the rights of a user."""
    end: Callable[[], None] = lambda: None
    """Closes the connection after the responses to earlier requests."""
    principal: Principal | None = None
    """The user whose rights the connection has; None before its login."""
    sasl: SaslState | None = None
    """The login in progress."""
    sasl_name: str | None = None
    """The name of its SASL login, which takes precedence over a certificate."""
    on_lost: list[Callable[[], None]] = field(default_factory=list)
    """Called once when the connection has ended."""


Fields = Mapping[str, Any]
"""Fields of a response by the names of ``kafka.protocol``; omitted fields have their defaults.

A list of rows may be a generator: it is read once, by the worker that encodes the response.
"""


T = TypeVar("T")

ROWS_FREED_AT_ONCE: Final = 1_000
"""Rows of a response that are freed in one pass of the loop, in a fifth of a millisecond."""


class ConstantFields(dict[str, Any]):
    """Fields that are the same in each response, which is encoded once for each version."""

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        self._frames: dict[int, bytes] = {}

    def encode(self, key: int, version: int, correlation: int) -> bytes:
        """Return the frame of a response."""
        frame = self._frames.get(version)
        if frame is None:
            frame = self._frames[version] = encode_answer(key, version, 0, self)
        # the position after the size
        return frame[:4] + correlation.to_bytes(4, "big", signed=True) + frame[8:]


class Framed(NamedTuple):
    """A response that is encoded without the library: the error to count, and the function that encodes it for a
    correlation id.
    """

    error: int
    frame: Callable[[int], bytes]
    rows_count: int = 0
    """About how many rows it encodes."""


Answer = Fields | Framed | Awaitable[Fields | Framed]
"""The result of a handler.

After a coroutine (work in turns or a change) later requests wait until it ends; after a future, which waits for other
clients or for the disk, they continue.
"""

Handler = Callable[[Session, Request], Answer]
"""A handler runs on the event loop for at most 2 ms; longer work and waits are awaited.

Errors are codes in the fields; an exception closes the connection, and is logged unless it is a MalformedMessage.
"""


@dataclass(slots=True, eq=False)
class Context:
    """State shared by all handlers of one endpoint."""

    services: Services
    settings: KafkaListener
    name: str = NAME
    """The name of the endpoint, or of its listener, in metrics and log lines."""

    @property
    def broker(self) -> Broker:
        """The broker."""
        return self.services.broker

    @property
    def topics(self) -> KafkaTopicView:
        """Topics as clients see them, with Kafka's internal ones."""
        return self.services.broker.kafka_topics

    def resolve_to_change(self, principal: Principal | None, name: str, right: Right) -> Topic:
        """Return a topic by its flat name, in order to change it. Raises Refusal without the right, or if clients may
        not change it.
        """
        broker = self.services.broker
        broker.access.require(principal, right, flat_topic_resource(broker.topology, name))
        return self.topics.find_to_change(name)

    def find_by_id(self, principal: Principal | None, topic_id: bytes, right: Right) -> Topic:
        """Return a topic by its 16 bytes. Raises Refusal if it does not exist, or the client lacks the right.

        A topic that the client may not see is reported as missing.
        """
        access, topic = self.services.broker.access, self.topics.find_by_uuid(topic_id)
        resource = None if topic is None else topic_resource(topic.stream.name, topic.name)
        if topic is None or resource is None or not access.allows(principal, Right.DESCRIBE, resource):
            raise Refusal(
                Reason.TOPIC_ID_NOT_FOUND, f"topic id {UUID(bytes=topic_id)}: does not exist; look it up again"
            )
        access.require(principal, right, resource)
        return topic

    def may_describe(self, principal: Principal | None, name: str) -> bool:
        """Return whether the client may see the topic of this flat name, whether or not it exists."""
        broker = self.services.broker
        return broker.access.allows(principal, Right.DESCRIBE, flat_topic_resource(broker.topology, name))

    def choose_address(self, session: Session) -> Address:
        """Return the address that clients are to connect to: the setting, or else the one that this client reached."""
        return self.settings.advertised or session.here


def free_in_worker(rows: list[T]) -> list[T] | Iterator[T]:
    """Return the rows of a response; if they are many, the worker that encodes it frees each of them.

    Freeing 100,000 at once, when the response is sent, keeps the loop for 20 ms. Nothing else may use the list.
    """
    return rows if len(rows) <= ROWS_FREED_AT_ONCE else _take_rows(rows)


def _take_rows(rows: list[T]) -> Iterator[T]:
    rows.reverse()
    while rows:
        yield rows.pop()


def rows_by_topic(
    topics: Iterable[Any],
    name: str,
    row: Callable[[str, Any], Fields],
    partitions: str = "partitions",
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Turns[Fields]:
    """Return a response with a row for each requested partition, in turns.

    ``name`` is the field with the name of a topic, ``partitions`` the one with its partitions.
    """
    turn = TurnCounter(rows_at_once)
    found = []
    for topic in topics:
        rows = []
        for one in getattr(topic, partitions):
            rows.append(row(getattr(topic, name), one))
            if turn.is_over():
                yield
        found.append({name: getattr(topic, name), "partitions": free_in_worker(rows)})
        # also a topic without partitions takes time
        if turn.is_over():
            yield
    return {"topics": found}


def has_more_rows(fields: Fields, rows_max: int) -> bool:
    """Return whether a response has more than this many rows, in lists of any depth.

    A generator counts as more: its rows, of which there may be many, are only made when it is encoded.
    """
    left: list[Iterable[Any]] = [fields.values()]
    rows_count = 0
    for values in left:
        for rows in values:
            if isinstance(rows, GeneratorType):
                return True
            if isinstance(rows, list):
                rows_count += len(rows)
                if rows_count > rows_max:
                    return True
                left += [row.values() for row in rows if isinstance(row, Mapping)]
    return False
