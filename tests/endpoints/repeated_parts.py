"""Requests of n rows: each repeated part of every API, command and frame of every protocol, as a table.

What has no repeated part is listed with the reason: ``test_request_cost.py`` checks that nothing is missing. A row is
a function from n to the bytes that a client sends. Kafka's rows are read from its schemas, so that an API that is added
is measured too.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from lading.dialects.iggy.classic.commands import CreateStream, CreateTopic
from lading.dialects.iggy.classic.later_commands import GetSnapshot, UpdatePermissions
from lading.dialects.iggy.classic.permissions import Permissions, StreamPermissions
from lading.dialects.iggy.classic.primitives import ConsumerIdentifier, ConsumerKind, PollingKind, Strategy
from lading.dialects.iggy.classic.releases import RELEASES
from lading.dialects.iggy.classic.snapshots import SnapshotCompression, SnapshotPart
from lading.dialects.iggy.current.codecs import FetchTarget, PatchedResource
from lading.dialects.iggy.current.commands import FetchMessages, UpdateResource
from lading.dialects.iggy.current.operations import NON_REPLICATED, OPERATIONS, REGISTER, SECRET_BYTES, SEND_MESSAGES
from lading.dialects.iggy.current.options import Option
from lading.dialects.iggy.current.releases import RELEASE_0_11
from lading.dialects.kafka.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE, SERVED
from lading.endpoints.http_shared.routing import HttpRoute
from lading.model.kinds import Kind
from tests.dialects.iggy_current import batch
from tests.dialects.iggy_current import frame as message_frame
from tests.endpoints import current_frames as current
from tests.endpoints import frames as iggy
from tests.endpoints.every_request import (
    CORRELATION,
    SECRET,
    iggy_classic_requests,
    iggy_current_requests,
    kafka_fields,
    nsq_commands,
)
from tests.endpoints.http_parts import encode_request, http_rows, route_rows
from tests.endpoints.identity import PASSWORDS
from tests.endpoints.kafka_frames import fetch, message, one_batch, produce, request_frame
from tests.endpoints.nsq_client import mpub, sized
from tests.endpoints.request_cost import Client, World
from tests.endpoints.scripted_quic import join_streams
from tests.endpoints.websocket_frames import BINARY, CLOSE, CONT, HANDSHAKE, PING, PONG, TEXT, encode_frame
from tests.house.scripted import ScriptedHttpConnection


class RepeatedPart(NamedTuple):
    """A part of a request that a client may repeat."""

    name: str
    endpoint: str
    request: Callable[[int], bytes]
    """Return what a client sends for n rows."""
    login: str = ""
    """How its client logs in, a key of ``LOGINS``; as all of the endpoint if it is empty."""

    @property
    def is_pipelined(self) -> bool:
        """Whether each row is a request of its own, the same one again and again."""
        return isinstance(self.request, partial) and self.request.func is _repeat


# -- Kafka

KAFKA_WITHOUT_ROWS: Final[Mapping[str, str]] = dict.fromkeys(
    (
        "InitProducerId", "AddOffsetsToTxn", "EndTxn", "Heartbeat", "SaslHandshake", "SaslAuthenticate", "ApiVersions",
        "DescribeAcls", "DescribeCluster", "GetTelemetrySubscriptions", "PushTelemetry",
    ),
    "it has no list",
)  # fmt: skip
"""APIs that are not measured, each with the reason."""


LAST_OF_CLIENTS: Final[Mapping[str, int]] = {"AddPartitionsToTxn": 3}
"""Last versions that clients send, if those after them are between brokers (KIP-890)."""


def kafka_parts(*, is_full: bool) -> Iterator[RepeatedPart]:
    """Every list of every API in the last version, and in the last of clients; in the first too if ``is_full``."""
    for key, served in SERVED.items():
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            continue
        kind = message(served.name + "Request")
        versions = [max(served.low, kind.min_version)] if is_full else []
        for version in dict.fromkeys([*versions, LAST_OF_CLIENTS.get(served.name, served.high), served.high]):
            for path in _list_paths(kind, version):
                yield RepeatedPart(
                    f"Kafka {served.name} {version} {'.'.join(path)}",
                    "kafka",
                    partial(_kafka_request, served.name, version, path),
                )


def _list_paths(kind: Any, version: int) -> Iterator[tuple[str, ...]]:
    for name, field in kind.fields.items():
        if not field.for_version_q(version):
            continue
        if field.is_array():
            yield (name,)
        if field.is_struct_array():
            for rest in _list_paths(field, version):
                yield (name, *rest)


def _kafka_request(name: str, version: int, path: tuple[str, ...], rows_count: int) -> bytes:
    kind = message(name + "Request")
    given = {"records": one_batch(b"x"), "topic_id": None, "session_id": 0, "session_epoch": -1}
    fields = kafka_fields(kind, version, given, is_all=False)
    place: Any = fields
    for step in path[:-1]:
        if not place[step]:
            place[step] = [kafka_fields(_field(kind, path, step), version, given, is_all=False)]
        place = place[step][0]
    last = path[-1]
    field = _field(kind, path, last)
    if field.is_struct_array():
        row = kafka_fields(field, version, given, is_all=False)
        place[last] = [_numbered(row, number) for number in range(rows_count)]
    elif field.type_str == "[]string":
        place[last] = [f"row-{number}" for number in range(rows_count)]
    else:
        # numbers of one byte begin again
        numbers_count = 100 if field.type_str == "[]int8" else rows_count
        place[last] = [number % numbers_count for number in range(rows_count)]
    frame = request_frame(name, version, CORRELATION, **fields)
    return struct.pack(">i", len(frame)) + frame


def _field(kind: Any, path: tuple[str, ...], last: str) -> Any:
    field = kind
    for step in path:
        field = field.fields[step]
        if step == last:
            break
    return field


def _numbered(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a row with the name, or the number, that tells it from the others."""
    numbered = dict(row)
    for name, value in row.items():
        if name in ("partition_index", "partition", "index"):
            numbered[name] = number
        elif name in _NAMES and isinstance(value, str):
            numbered[name] = f"row-{number}"
    return numbered


_NAMES: Final = frozenset(
    {"name", "topic", "group_id", "resource_name", "member_id", "entity_name", "transactional_id"}
)


def alter_scram(rows_count: int) -> bytes:
    """Return a request that gives users passwords, as Kafka's tools do: each by a salted password."""
    upsertions = [
        {"name": f"user-{row}", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
        for row in range(rows_count)
    ]
    frame = request_frame("AlterUserScramCredentials", 0, CORRELATION, deletions=[], upsertions=upsertions)
    return struct.pack(">i", len(frame)) + frame


# -- HTTP


def http_parts(routes: Mapping[str, Sequence[HttpRoute]]) -> Iterator[RepeatedPart]:
    """Every part of HTTP, and of every route of its endpoints; Iggy's in its newest and its oldest form."""
    for row in (*http_rows(), *route_rows(routes)):
        yield RepeatedPart(*row)
        if row.endpoint == "iggy_http":
            yield RepeatedPart(f"{row.name}, oldest", row.endpoint, row.request, "iggy_http, oldest")


# -- frames that follow each other without waiting for responses


def nsq_parts() -> Iterator[RepeatedPart]:
    """Every command of nsqd, sent again and again, and the messages of one MPUB; registrations at nsqlookupd."""
    for name, frame in nsq_commands():
        yield RepeatedPart(f"nsqd {name} frames", "nsqd_tcp", partial(_repeat, frame))
    yield RepeatedPart("nsqd MPUB messages", "nsqd_tcp", lambda count: mpub("t", *[b"x"] * count))


_IDENTITY: Final = {"version": "1", "tcp_port": 1, "http_port": 2, "broadcast_address": "127.0.0.1"}
_IDENTIFY: Final = sized(b"IDENTIFY\n", json.dumps(_IDENTITY).encode())
NSQLOOKUPD: Final[Mapping[str, Callable[[int], bytes]]] = {
    "IDENTIFY frames": lambda count: _IDENTIFY * count,
    "IDENTIFY tens of members": lambda count: sized(
        b"IDENTIFY\n", json.dumps({**_IDENTITY, **{f"member-{number}": 0 for number in range(10 * count)}}).encode()
    ),
    "REGISTER topics": lambda count: b"".join(b"REGISTER t%d c\n" % number for number in range(count)),
    "REGISTER channels": lambda count: b"".join(b"REGISTER t c%d\n" % number for number in range(count)),
    "REGISTER words": lambda count: b"REGISTER t" + b" c" * count + b"\n",
    "UNREGISTER frames": lambda count: b"REGISTER t c\n" + b"UNREGISTER t c\n" * count,
    "PING frames": lambda count: b"PING\n" * count,
    "unknown frames": lambda count: b"NOTHING\n" * count,
    "empty frames": lambda count: b"\n" * count,
    "bytes of a line": lambda count: b"x" * count,
}
"""What a node may repeat; the command is the first word."""


def nsqlookupd_parts() -> Iterator[RepeatedPart]:
    """Every command of nsqlookupd, sent again and again, and what one of them may hold."""
    for name, request in NSQLOOKUPD.items():
        # a node identifies itself once
        login = "a node without a name" if name.startswith("IDENTIFY") else ""
        yield RepeatedPart(f"nsqlookupd {name}", "nsqlookupd_tcp", request, login)


def iggy_parts(*, is_full: bool) -> Iterator[RepeatedPart]:
    """Every command of the last release that frames by length, and of each if ``is_full``, sent again and again."""
    for release in RELEASES if is_full else RELEASES[-1:]:
        seen = set()
        for name, code, payload in iggy_classic_requests(release):
            if code not in seen:
                seen.add(code)
                frame = struct.pack("<II", 4 + len(payload), code) + payload
                yield RepeatedPart(f"Iggy {name} frames", "iggy_tcp", partial(_repeat, frame))


def current_parts(*, is_full: bool) -> Iterator[RepeatedPart]:
    """Every operation of the current generation, sent again and again, and what one of them may hold.

    Requests name a topic that exists; if ``is_full``, also one that does not.
    """
    seen = set()
    for name, operation, code, body in iggy_current_requests():
        known_as = name if is_full else name.split()[1]
        if known_as in seen:
            continue
        seen.add(known_as)
        frame = current.request(operation, body, code=code)
        yield RepeatedPart(f"Iggy {name} frames", "iggy_tcp", partial(_repeat, frame), "current")
    for name, make in CURRENT.items():
        yield RepeatedPart(f"Iggy current {name}", "iggy_tcp", make, "current")


def _options(count: int) -> dict[str, Option]:
    return {f"option-{number}": Option(Kind.STRING, b"x") for number in range(count)}


def _current_request(command: object) -> bytes:
    frame = RELEASE_0_11.commands.encode_request(command)
    (code,) = struct.unpack_from("<I", frame, 4)
    operation = OPERATIONS.get(code, NON_REPLICATED)
    return current.request(operation, frame[8:], code=code if operation == NON_REPLICATED else 0)


_NAMED_TOPIC: Final = b"\x02\x07default\x02" + bytes((len(SECRET),)) + SECRET.encode()
_TARGET: Final = FetchTarget(0, Strategy(PollingKind.OFFSET, 0), 1 << 20, 0, 0)
_PATCHED: Final = PatchedResource("topic", ("default", SECRET))
_PERMISSIONS_OF_STREAM: Final = StreamPermissions(frozenset(), {})
CURRENT: Final[Mapping[str, Callable[[int], bytes]]] = {
    "create_stream options": lambda count: _current_request(CreateStream(None, "new", _options(count))),
    "create_topic options": lambda count: _current_request(
        CreateTopic("default", None, 1, "new", options=_options(count))
    ),
    "update_resource options": lambda count: _current_request(UpdateResource(_PATCHED, (), _options(count))),
    "update_resource names": lambda count: _current_request(
        UpdateResource(_PATCHED, tuple(f"name-{number}" for number in range(min(count, 255))), {})
    ),
    "update_permissions streams": lambda count: _current_request(
        UpdatePermissions(
            "ann", Permissions(frozenset(), dict.fromkeys(range(1, count + 1), _PERMISSIONS_OF_STREAM))
        )
    ),
    "fetch_messages targets": lambda count: _current_request(
        FetchMessages(
            ConsumerIdentifier(ConsumerKind.CONSUMER, 1), "default", SECRET, 0, 1, 1, 1, 1 << 20, False,
            (_TARGET,) * count,
        )
    ),
    "get_snapshot parts": lambda count: _current_request(
        GetSnapshot(SnapshotCompression.STORED, (SnapshotPart.TEST,) * min(count, 255))
    ),
    "send_messages messages": lambda count: current.request(
        SEND_MESSAGES,
        current.sent(_NAMED_TOPIC, batch([message_frame(b"x")] * count), count),
    ),
    "send_messages headers": lambda count: current.request(
        SEND_MESSAGES,
        current.sent(
            _NAMED_TOPIC, batch([message_frame(b"x", [(2, b"key-%d" % number, 2, b"v") for number in range(count)])])
        ),
    ),
    "get_metadata_changes bytes": lambda count: current.request(NON_REPLICATED, bytes(count), code=17),
    "bytes of no request": lambda count: b"\xff" * count,
}  # fmt: skip
"""Parts of one request, by operation."""


def websocket_parts() -> Iterator[RepeatedPart]:
    """Every kind of frame of a WebSocket, again and again, and the parts and bytes of one message."""
    for name, make in WEBSOCKET.items():
        yield RepeatedPart(f"WebSocket {name}", "iggy_websocket", make)


_KEY: Final = b"\x01\x02\x03\x04"
_PING_OF_IGGY: Final = struct.pack("<II", 4, 1)


def _encode_send(payload: bytes) -> bytes:
    """Return a send to the topic of every world."""
    body = b"\x02\x07default\x02" + bytes((len(SECRET),)) + SECRET.encode() + iggy.to_partition(1)
    body += iggy.message(payload)
    return struct.pack("<II", 4 + len(body), 101) + body


def _parts_of_message(count: int) -> bytes:
    first = encode_frame(BINARY, _PING_OF_IGGY[:1], _KEY, fin=False)
    return first + encode_frame(CONT, b"", _KEY, fin=False) * count + encode_frame(CONT, _PING_OF_IGGY[1:], _KEY)


WEBSOCKET: Final[Mapping[str, Callable[[int], bytes]]] = {
    "requests": lambda count: encode_frame(BINARY, _PING_OF_IGGY, _KEY) * count,
    "sends": lambda count: encode_frame(BINARY, _encode_send(b"x"), _KEY) * count,
    "bytes of a message": lambda count: encode_frame(BINARY, _encode_send(bytes(count)), _KEY),
    "parts of a message": _parts_of_message,
    "empty parts": lambda count: (
        encode_frame(BINARY, b"", _KEY, fin=False) + encode_frame(CONT, b"", _KEY, fin=False) * count
    ),
    "empty messages": lambda count: encode_frame(BINARY, b"", _KEY) * count,
    "texts": lambda count: encode_frame(TEXT, b"x", _KEY) * count,
    "pings": lambda count: encode_frame(PING, b"", _KEY) * count,
    "pings with data": lambda count: encode_frame(PING, bytes(125), _KEY) * count,
    "pongs": lambda count: encode_frame(PONG, b"", _KEY) * count,
    "closes": lambda count: encode_frame(CLOSE, b"", _KEY) * count,
    "bytes of no frame": lambda count: b"\xff" * count,
}
"""Names of what follows the handshake."""
OPCODES: Final[Mapping[int, str]] = {
    BINARY: "requests", CONT: "parts", TEXT: "texts", PING: "pings", PONG: "pongs", CLOSE: "closes",
}  # fmt: skip
"""Rows by opcode (RFC 6455, 5.2)."""


def quic_parts() -> Iterator[RepeatedPart]:
    """Streams of QUIC, each with a request or with none, and the bytes of one stream."""
    for name, make in QUIC.items():
        yield RepeatedPart(f"QUIC {name}", "iggy_quic", make)


QUIC: Final[Mapping[str, Callable[[int], bytes]]] = {
    "requests": lambda count: join_streams([_PING_OF_IGGY] * count),
    "sends": lambda count: join_streams([_encode_send(b"x")] * count),
    "bytes of a message": lambda count: join_streams([_encode_send(bytes(count))]),
    "streams of no request": lambda count: join_streams([b"\xff"] * count),
    "bytes of no request": lambda count: join_streams([b"\xff" * count]),
}
"""Names of what follows the handshake, as ``ScriptedQuicConnection`` sends it."""


def _repeat(frame: bytes, count: int) -> bytes:
    return frame * count


# -- what waits


class Waiting(NamedTuple):
    """Requests of many clients that wait, and what happens to all of them at once."""

    name: str
    prepare: Callable[[World, int], Callable[[], None]]
    """Have so many requests wait; return what happens to them, which is measured."""


REQUESTS_EACH: Final = 100
"""A client has so many that wait."""


def wait_for_kafka_fetches(world: World, count: int, requests_each: int = REQUESTS_EACH) -> list[Client]:
    """Return clients of which each has so many fetches that wait."""
    world.broker.at_once.create_topic(
        world.broker.topology.ensure_stream("default", now_us=1).id, None, "t", 1, now_us=1
    )
    clients = []
    for _ in range(count // requests_each):
        client = world.connect("kafka")
        LOGINS["kafka"](client, "root")
        client.transport.take()
        frame = request_frame("Fetch", 11, CORRELATION, **fetch("t", wait_ms=60_000))
        client.send((struct.pack(">i", len(frame)) + frame) * requests_each)
        assert not client.transport.written
        clients.append(client)
    return clients


def produce_one() -> bytes:
    """Return a Produce of one message into the topic that the fetches wait for."""
    frame = request_frame("Produce", 7, CORRELATION, **produce("t", one_batch(b"to many")))
    return struct.pack(">i", len(frame)) + frame


def _wake_kafka_fetches(world: World, count: int) -> Callable[[], None]:
    clients = wait_for_kafka_fetches(world, count)
    producer = world.connect("kafka")
    LOGINS["kafka"](producer, "root")
    data = produce_one()

    def wake() -> None:
        assert len(clients) == count // REQUESTS_EACH
        world.send(producer, data)

    return wake


def _lose_kafka_fetches(world: World, count: int) -> Callable[[], None]:
    clients = wait_for_kafka_fetches(world, count)

    def lose() -> None:
        # the last to come is the first to leave: its requests are at the end of a list of all
        for client in reversed(clients):
            world.loop.call_soon(client.close)

    return lose


WAITING: Final = (
    Waiting("Kafka fetches that one message wakes", _wake_kafka_fetches),
    Waiting("Kafka fetches whose clients leave together", _lose_kafka_fetches),
)


# -- logins


def _log_in_to_kafka(client: Client, role: str) -> None:
    if role != "stranger":
        auth = f"\0{role}\0{PASSWORDS[role]}".encode()
        for name, version, fields in (
            ("SaslHandshake", 1, {"mechanism": "PLAIN"}), ("SaslAuthenticate", 2, {"auth_bytes": auth}),
        ):  # fmt: skip
            frame = request_frame(name, version, CORRELATION, **fields)
            assert client.ask(struct.pack(">i", len(frame)) + frame)


def _log_in_to_nsqd(client: Client, role: str) -> None:
    client.send(b"  V2")
    if role != "stranger":
        assert client.ask(sized(b"IDENTIFY\n", b"{}") + sized(b"AUTH\n", f"{role}:{PASSWORDS[role]}".encode()))


def _begin_at_nsqlookupd(client: Client, role: str) -> None:
    client.send(b"  V1" + _IDENTIFY)


def _encode_iggy_login(role: str) -> bytes:
    words = [role.encode(), PASSWORDS[role].encode()]
    payload = b"".join(struct.pack("<B", len(word)) + word for word in words) + bytes(8)
    return struct.pack("<II", 4 + len(payload), 38) + payload


def _log_in_to_iggy(client: Client, role: str) -> None:
    if role != "stranger":
        assert client.ask(_encode_iggy_login(role))[:4] == bytes(4)


def _log_in_as_current(client: Client, role: str) -> None:
    if role != "stranger":
        words = b"".join(struct.pack("<B", len(word)) + word for word in (role.encode(), PASSWORDS[role].encode()))
        login = struct.pack("<I", 12 << 10) + b"\x04test\x050.0.0" + bytes(SECRET_BYTES) + words + bytes(4)
        client.send(current.request(REGISTER, login))
        (status,) = struct.unpack_from("<I", client.transport.take(), 216)
        assert status == 0


def _open_websocket(client: Client, role: str) -> None:
    client.send(HANDSHAKE.encode() + b"\r\n")
    if role != "stranger":
        client.transport.take()
        # a frame of the server has two bytes of a head, then the status
        assert client.ask(encode_frame(BINARY, _encode_iggy_login(role), _KEY))[2:6] == bytes(4)


def _show_password(client: Client, role: str) -> None:
    if role != "stranger":
        assert isinstance(client, ScriptedHttpConnection)
        client.authorization = b"Basic " + base64.b64encode(f"{role}:{PASSWORDS[role]}".encode())


def _log_in_over_http(version: str, client: Client, role: str) -> None:
    if role != "stranger":
        body = json.dumps({"username": role, "password": PASSWORDS[role], "version": version}).encode()
        assert isinstance(client, ScriptedHttpConnection)
        told = client.ask(encode_request("POST", "/users/login", body))
        client.authorization = b"Bearer " + json.loads(told.partition(b"\r\n\r\n")[2])["access_token"]["token"].encode()


LOGINS: Final[Mapping[str, Callable[[Client, str], None]]] = {
    "kafka": _log_in_to_kafka,
    "nsqd_tcp": _log_in_to_nsqd,
    "nsqlookupd_tcp": _begin_at_nsqlookupd,
    "a node without a name": lambda client, role: client.send(b"  V1"),
    "iggy_tcp": _log_in_to_iggy,
    "iggy_quic": _log_in_to_iggy,
    "current": _log_in_as_current,
    "iggy_websocket": _open_websocket,
    "admin": _show_password,
    "nsqd_http": _show_password,
    "schema_registry": _show_password,
    "nsqlookupd_http": _show_password,
    "iggy_http": partial(_log_in_over_http, "0.11.0"),
    "iggy_http, oldest": partial(_log_in_over_http, "0.3.0"),
}
"""By endpoint, or by name: what makes a new connection one of a role."""
