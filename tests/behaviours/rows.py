"""The clients under test: one row each. A new client is a Session class and a row here.

``exceptions`` names the behaviours that a client or its protocol cannot have, ``cannot_write`` those it cannot have as
the one that sends, with the reason; they are expected to fail, and a pass is reported, so that no exception outlives
its reason. ``left_out`` names what is not run: what a writer draws by chance, what a queue has no words for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lading.dialects.protocols import ENDPOINTS
from lading.settings.endpoints import endpoint_key
from tests.behaviours.iggy_current_client import IggyCurrentSession
from tests.behaviours.iggy_http_client import IggyHttpSession
from tests.behaviours.iggy_http_release_client import HTTP_SHAPES, IggyHttpReleaseSession
from tests.behaviours.iggy_release_client import SHAPES, IggyReleaseSession
from tests.behaviours.kafka_sessions import AiokafkaSession, KafkaPythonSession, LibrdkafkaSession
from tests.behaviours.nsq_sessions import GoNsqSession, PythonNsqSession, YouzanNsqSession
from tests.behaviours.python_client import PythonSession
from tests.behaviours.relays import Carrier, QuicCarrier, TlsCarrier, WebSocketCarrier, relay

SECURE = "iggy_tcp.secure"
"""A listener with TLS."""

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
    open: Callable[[Mapping[str, str]], Session]
    """Takes the ``host:port`` of the server's endpoints by name."""
    exceptions: Mapping[str, str] = field(default_factory=dict)
    cannot_write: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    iggy: tuple[str, str] | None = None
    """The release and the transport of a client of Iggy: its row in docs/how-to/coming-from-iggy.md."""


GROUPS = ("a_group_goes_on_where_it_stopped", "groups_do_not_share_positions", "one_member_reads_every_partition")
"""What takes groups."""
_NO_GROUPS = "Iggy's HTTP face has no way to join a group"
_NO_KEY = "an Iggy message has no key; a messages key only chooses the partition"
_PLAIN_IGGY: Mapping[str, str] = {
    **dict.fromkeys(GROUPS, _NO_GROUPS),
    "duplicates_stay_in_order": "a plain Iggy client keeps one header a key",
    "null_and_empty_values_are_different": "a plain Iggy client has no null or empty header values",
    "long_values_are_exact": "a plain Iggy client has header values of at most 255 bytes",
    "null_and_empty_payloads_are_different": "a plain Iggy client has no null or empty payloads",
    "keys_are_exact": _NO_KEY,
    "equal_keys_share_a_partition": _NO_KEY,
    "hidden_messages_are_not_read": "Iggy shows messages with their state, unless the topic hides them",
}
"""What Iggy without a carrier cannot have: the client stands for everybody's curl."""

_IGGY_TCP: Mapping[str, str] = {name: reason for name, reason in _PLAIN_IGGY.items() if name not in GROUPS}
"""The same over TCP, where groups can be joined."""
CURRENT = "0.11"
"""The release of the crate in the package apache-iggy 0.9.0."""
_SORTS = "the client sorts headers by their keys"
_IGGY_STATELESS: Mapping[str, str] = {
    name: reason for name, reason in _IGGY_TCP.items() if name != "hidden_messages_are_not_read"
}
"""The same of generations whose messages have no state: what is hidden is not polled."""
_IGGY_CURRENT: Mapping[str, str] = {
    **_IGGY_STATELESS,
    "every_kind_is_exact": "the package takes and gives no floats that are not finite",
    "values_that_are_no_utf8_are_exact": _SORTS,
}
"""The same of the current generation."""
_TWICE: Mapping[str, str] = {
    "duplicates_stay_in_order": "zero-copy clients send a key twice, but what others sent has it once for them"
}
LISTENERS: Mapping[str, str] = {
    "endpoints.iggy_tcp.listeners.headers_only.address": "127.0.0.1:0",
    "endpoints.iggy_tcp.listeners.headers_only.release": "0.0.30",
    "endpoints.iggy_quic.listeners.headers_only.address": "127.0.0.1:0",
    "endpoints.iggy_quic.listeners.headers_only.release": "0.0.30",
    f"{endpoint_key(SECURE)}.address": "127.0.0.1:0",
    f"{endpoint_key(SECURE)}.tls.enabled": "true",
}
"""Settings of our broker for the suite: only where they connect tells clients of 0.0.30 from those of 0.0.40."""

_CHOOSES: Mapping[str, str] = {
    "messages_without_a_key_go_to_every_partition": "the client draws the partition of what has no key",
}

_QUEUE = "NSQ is a queue: "
_NSQ: Mapping[str, str] = {
    "two_writers_share_one_order": _QUEUE + "what a channel has read it does not get again",
    "groups_do_not_share_positions": _QUEUE + "only the first channel gets what was kept",
    "reading_begins_at_any_offset": _QUEUE + "there is no offset to begin at",
    "nothing_lies_behind_the_end": _QUEUE + "there is no offset to begin at",
    "a_count_bounds_what_is_read": _QUEUE + "there is no offset to begin at",
    "hidden_messages_are_not_read": _QUEUE + "what a channel has read it does not get again",
    "what_a_filter_marks_is_hidden_and_copied_as_a_dead_letter": _QUEUE + "offsets are not told",
    "equal_keys_share_a_partition": _QUEUE + "a reader is not told partitions",
    "a_named_partition_is_the_one_written": _QUEUE + "a reader is not told partitions",
    "messages_without_a_key_go_to_every_partition": _QUEUE + "a reader is not told partitions",
    "a_topic_is_created_once": "NSQ: creating a topic that is there is no error",
}
"""What NSQ itself has not."""

_GO_NSQ: Mapping[str, str] = {
    **_NSQ,
    "a_group_goes_on_where_it_stopped": "what go-nsq had in flight when it left comes again after nsqd's time-out",
}

_NO_HEADERS = "a plain NSQ message is bytes"
_PLAIN_NSQ: Mapping[str, str] = {
    "an_unknown_partition_is_an_error": "plain publishing names no partition",
    "every_kind_is_exact": _NO_HEADERS,
    "duplicates_stay_in_order": _NO_HEADERS,
    "order_is_kept": _NO_HEADERS,
    "null_and_empty_values_are_different": _NO_HEADERS,
    "long_values_are_exact": _NO_HEADERS,
    "values_that_are_no_utf8_are_exact": _NO_HEADERS,
    "header_keys_are_exact": _NO_HEADERS,
    "null_and_empty_payloads_are_different": "an NSQ body has at least one byte",
    "keys_are_exact": "an NSQ message has no key",
}
_JSON = "an ext header is a JSON object: "
_EXT_NSQ: Mapping[str, str] = {
    "an_unknown_partition_is_an_error": "the client does not wait for the answer that says so",
    "every_kind_is_exact": _JSON + "no bytes, no kinds but string, number and bool",
    "duplicates_stay_in_order": _JSON + "a key once",
    "null_and_empty_values_are_different": _JSON + "this client sends strings",
    "values_that_are_no_utf8_are_exact": _JSON + "text only",
    "null_and_empty_payloads_are_different": "an NSQ body has at least one byte",
    "keys_are_exact": "an NSQ message has no key",
}
_EXT_NSQ_WRITES: Mapping[str, str] = {"order_is_kept": _JSON + "Go writes its keys sorted"}

_TRANSPORTS: Mapping[str, tuple[str, type[Carrier] | None]] = {
    "TCP": ("iggy_tcp", None),
    "QUIC": ("iggy_quic", QuicCarrier),
    "WebSocket": ("iggy_websocket", WebSocketCarrier),
}
"""Endpoints that carry Iggy's frames, and what carries them there for a client that knows TCP only."""


def _release_client(release: str, transport: str) -> Client:
    """The row of a release over a transport."""
    endpoint, carrier = _TRANSPORTS[transport]
    listener = f"{endpoint}.headers_only" if release == "0.0.30" else endpoint

    def open_(at: Mapping[str, str]) -> Session:
        return IggyReleaseSession(release, at[listener] if carrier is None else relay(carrier, at[listener]))

    return Client(
        f"iggy-{release}" if carrier is None else f"iggy-{release}-{transport.lower()}",
        endpoint,
        open_,
        _IGGY_TCP if SHAPES[release].has_states else _IGGY_STATELESS,
        left_out=_TWICE if SHAPES[release].is_zero_copy else {},
        iggy=(release, transport),
    )


def _http_client(release: str) -> Client:
    """The row of a release over HTTP."""
    return Client(
        f"iggy-{release}-http",
        "iggy_http",
        lambda at: IggyHttpReleaseSession(release, at["iggy_http"]),
        {**(_IGGY_TCP if SHAPES[release].has_states else _IGGY_STATELESS), **dict.fromkeys(GROUPS, _NO_GROUPS)},
        iggy=(release, "HTTP"),
    )


CLIENTS: tuple[Client, ...] = (
    Client("python-lading", "admin", lambda at: PythonSession(f"lading://{at['admin']}")),
    Client("python-iggy", "iggy_tcp", lambda at: PythonSession(f"iggy://{at['iggy_tcp']}")),
    Client("python-kafka", "kafka", lambda at: PythonSession(f"kafka://{at['kafka']}")),
    Client("iggy-http", "iggy_http", lambda at: IggyHttpSession(at["iggy_http"]), _PLAIN_IGGY, iggy=("0.0.40", "HTTP")),
    *(
        _release_client(release, transport)
        for release in SHAPES
        for transport in _TRANSPORTS
        if transport != "WebSocket" or release in ("0.8", "0.9", "0.10")
    ),
    *(
        Client(
            name,
            endpoint,
            lambda at, scheme=scheme, endpoint=endpoint: IggyCurrentSession(  # type: ignore[misc]
                f"iggy+{scheme}://anyone:anything@{at[endpoint]}"
            ),
            _IGGY_CURRENT,
            left_out={"order_is_kept": _SORTS},
            iggy=(CURRENT, transport),
        )
        for name, endpoint, scheme, transport in (
            ("iggy-current", "iggy_tcp", "tcp", "TCP"),
            ("iggy-current-quic", "iggy_quic", "quic", "QUIC"),
            ("iggy-current-websocket", "iggy_websocket", "ws", "WebSocket"),
        )
    ),
    *map(_http_client, HTTP_SHAPES),
    Client(
        "iggy-current-http",
        "iggy_http",
        lambda at: IggyCurrentSession(f"iggy+http://anyone:anything@{at['iggy_http']}"),
        {**_IGGY_CURRENT, **dict.fromkeys(GROUPS, _NO_GROUPS)},
        left_out={"order_is_kept": _SORTS},
        iggy=(CURRENT, "HTTP"),
    ),
    Client(
        "iggy-quic",
        "iggy_quic",
        lambda at: PythonSession(f"iggy://{relay(QuicCarrier, at['iggy_quic'])}"),
    ),
    Client(
        "iggy-websocket",
        "iggy_websocket",
        lambda at: PythonSession(f"iggy://{relay(WebSocketCarrier, at['iggy_websocket'])}"),
    ),
    Client("iggy-tls", SECURE, lambda at: PythonSession(f"iggy://{relay(TlsCarrier, at[SECURE])}")),
    Client("librdkafka", "kafka", lambda at: LibrdkafkaSession(at["kafka"]), left_out=_CHOOSES),
    Client(
        "kafka-python",
        "kafka",
        lambda at: KafkaPythonSession(at["kafka"]),
        cannot_write={"null_and_empty_values_are_different": "kafka-python refuses to send a null header value"},
        left_out=_CHOOSES,
    ),
    Client("aiokafka", "kafka", lambda at: AiokafkaSession(at["kafka"]), left_out=_CHOOSES),
    Client("python-nsq", "nsqd_tcp", PythonNsqSession, left_out=_NSQ),
    Client("go-nsq", "nsqd_tcp", GoNsqSession, _PLAIN_NSQ, left_out=_GO_NSQ),
    Client("youzan-go-nsq", "nsqd_tcp", YouzanNsqSession, _EXT_NSQ, _EXT_NSQ_WRITES, _NSQ),
)


@dataclass(frozen=True)
class Server:
    """One broker of the suite: ours with all its endpoints, or a real one held to the same answers."""

    name: str
    endpoints: tuple[str, ...]
    but: tuple[str, ...] = ()
    """Clients that want more than this server has."""
    exceptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Behaviours that this server's clients cannot have, by endpoint, with the reason."""

    def clients(self) -> list[Client]:
        """Return the rows that can connect."""
        return [client for client in CLIENTS if client.endpoint in self.endpoints and client.name not in self.but]


GATEWAY = "gateway"
"""A broker over Apache Kafka."""
_NATIVE_GROUPS = "a gateway refuses groups of native clients"
_GATEWAY_EXCEPTIONS: Mapping[str, Mapping[str, str]] = {
    "admin": dict.fromkeys(GROUPS, _NATIVE_GROUPS),
}
SERVERS: tuple[Server, ...] = (
    Server("lading", (*ENDPOINTS, SECURE)),
    Server("apache-kafka", ("kafka",)),
    Server("nsqd", ("nsqd_tcp",), but=("python-nsq", "youzan-go-nsq")),
    # clients of Kafka and NSQ have tests of their own: what is sent to the cluster itself is there a moment later, and
    # the fork's topics with headers, which a gateway refuses, are most of NSQ's rows
    Server(GATEWAY, ("admin", "iggy_tcp"), exceptions=_GATEWAY_EXCEPTIONS),
)
