"""The clients under test: one row each. A new client is a Session class and a row here.

``exceptions`` names the behaviours that a client or its protocol cannot have, ``cannot_write`` those it cannot have as
the one that sends, with the reason; they are expected to fail, and a pass is reported, so that no exception outlives
its reason. ``by_chance`` names what a writer does differently each time: it is not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

from tests.behaviours.iggy_http_client import IggyHttpSession
from tests.behaviours.kafka_sessions import AiokafkaSession, KafkaPythonSession, LibrdkafkaSession
from tests.behaviours.python_client import PythonSession

HeaderRow = tuple[str, int, bytes | None]
"""Key, kind code, value bytes."""


@dataclass(frozen=True)
class Sending:
    """A message to send."""

    payload: bytes | None = b"payload"
    headers: Sequence[HeaderRow] = ()
    key: bytes | None = None


@dataclass(frozen=True)
class Seen:
    """A message as a client saw it."""

    partition: int
    offset: int
    payload: bytes | None
    headers: Sequence[HeaderRow]
    key: bytes | None
    state: str = "available"


class Session(Protocol):
    """What a client must be able to do to be held to the behaviours; names are flat, partitions from 0."""

    @property
    def holds_kinds(self) -> bool:
        """Whether headers have kinds for this client; without, a value is its bytes."""
        ...

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        """Send in order; acknowledged when it returns."""
        ...

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        """What can be read now of a partition from ``offset`` on, at most ``count``."""
        ...

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset behind the last readable message."""
        ...

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        """Join, read ``count`` messages, store the positions behind them, leave."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Client:
    """One row: the endpoint it connects to, how to open a session there, and what this client is excused from."""

    name: str
    endpoint: str
    open: Callable[[str], Session]
    """Takes the ``host:port`` of the endpoint."""
    exceptions: Mapping[str, str] = field(default_factory=dict)
    cannot_write: Mapping[str, str] = field(default_factory=dict)
    by_chance: Mapping[str, str] = field(default_factory=dict)


_NO_GROUPS = "Iggy's HTTP face has no way to join a group"
_NO_KEY = "an Iggy message has no key; a messages key only chooses the partition"
_PLAIN_IGGY: Mapping[str, str] = {
    "a_group_goes_on_where_it_stopped": _NO_GROUPS,
    "groups_do_not_share_positions": _NO_GROUPS,
    "one_member_reads_every_partition": _NO_GROUPS,
    "duplicates_stay_in_order": "a plain Iggy client keeps one header a key",
    "null_and_empty_values_are_different": "a plain Iggy client has no null or empty header values",
    "long_values_are_exact": "a plain Iggy client has header values of at most 255 bytes",
    "null_and_empty_payloads_are_different": "a plain Iggy client has no null or empty payloads",
    "keys_are_exact": _NO_KEY,
    "equal_keys_share_a_partition": _NO_KEY,
    "hidden_messages_are_not_read": "Iggy shows messages with their state, unless the topic hides them",
}
"""What Iggy without a carrier cannot have: the client stands for everybody's curl."""

_CHOOSES: Mapping[str, str] = {
    "messages_without_a_key_go_to_every_partition": "the client draws the partition of what has no key",
}

CLIENTS: tuple[Client, ...] = (
    Client("python-lading", "admin", lambda address: PythonSession(f"lading://{address}")),
    Client("python-iggy", "iggy_tcp", lambda address: PythonSession(f"iggy://{address}")),
    Client("python-kafka", "kafka", lambda address: PythonSession(f"kafka://{address}")),
    Client("iggy-http", "iggy_http", IggyHttpSession, _PLAIN_IGGY),
    Client("librdkafka", "kafka", LibrdkafkaSession, by_chance=_CHOOSES),
    Client(
        "kafka-python",
        "kafka",
        KafkaPythonSession,
        cannot_write={"null_and_empty_values_are_different": "kafka-python refuses to send a null header value"},
        by_chance=_CHOOSES,
    ),
    Client("aiokafka", "kafka", AiokafkaSession, by_chance=_CHOOSES),
)


@dataclass(frozen=True)
class Server:
    """One broker of the suite: ours with all its endpoints, or a real one held to the same answers."""

    name: str
    endpoints: tuple[str, ...]

    def clients(self) -> list[Client]:
        """The rows that can connect."""
        return [client for client in CLIENTS if client.endpoint in self.endpoints]

    def routes(self, *, whole: bool) -> list[tuple[Client, Client]]:
        """Who writes for whom: every pair, or as a sample each client with itself and with our own first one."""
        clients = self.clients()
        hub = clients[0]
        return [pair for pair in product(clients, clients) if whole or pair[0] is pair[1] or hub in pair]


SERVERS: tuple[Server, ...] = (
    Server("lading", ("admin", "iggy_tcp", "iggy_http", "kafka")),
    Server("apache-kafka", ("kafka",)),
)
