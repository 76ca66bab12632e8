"""Requests of n rows: each repeated part of every API, command and frame of every protocol, as a table.

What has no repeated part is listed with the reason: ``test_request_cost.py`` checks that nothing is missing. A row is
a function from n to the bytes that a client sends. Kafka's rows are read from its schemas, so that an API that is added
is measured too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from lading.dialects.iggy_classic.releases import RELEASES
from lading.dialects.kafka.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE, SERVED
from tests.endpoints.every_request import CORRELATION, iggy_classic_requests, kafka_fields, nsq_commands
from tests.endpoints.identity import PASSWORDS
from tests.endpoints.kafka_frames import fetch, message, one_batch, produce, request_frame
from tests.endpoints.nsq_client import mpub, sized
from tests.endpoints.request_cost import World
from tests.house.scripted import ScriptedConnection


class RepeatedPart(NamedTuple):
    """A part of a request that a client may repeat."""

    name: str
    endpoint: str
    request: Callable[[int], bytes]
    """Return what a client sends for n rows."""


# -- Kafka

KAFKA_WITHOUT_ROWS: Final[Mapping[str, str]] = dict.fromkeys(
    (
        "InitProducerId", "AddOffsetsToTxn", "EndTxn", "Heartbeat", "SaslHandshake", "SaslAuthenticate", "ApiVersions",
        "DescribeAcls", "DescribeCluster",
    ),
    "it has no list",
)  # fmt: skip
"""APIs that are not measured, each with the reason."""


def kafka_parts(*, is_full: bool) -> Iterator[RepeatedPart]:
    """Every list of every API in its last version, and in the first if ``is_full``."""
    for key, served in SERVED.items():
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            continue
        kind = message(served.name + "Request")
        versions = [max(served.low, kind.min_version), served.high] if is_full else [served.high]
        for version in dict.fromkeys(versions):
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


# -- frames that follow each other without waiting for responses


def nsq_parts() -> Iterator[RepeatedPart]:
    """Every command of nsqd, sent again and again, and the messages of one MPUB; registrations at nsqlookupd."""
    for name, frame in nsq_commands():
        yield RepeatedPart(f"nsqd {name} frames", "nsqd_tcp", partial(_repeat, frame))
    yield RepeatedPart("nsqd MPUB messages", "nsqd_tcp", lambda count: mpub("t", *[b"x"] * count))
    yield RepeatedPart("nsqlookupd PING frames", "nsqlookupd_tcp", partial(_repeat, b"PING\n"))
    yield RepeatedPart(
        "nsqlookupd REGISTER frames",
        "nsqlookupd_tcp",
        lambda count: b"".join(b"REGISTER t%d c\n" % number for number in range(count)),
    )


def iggy_parts(*, is_full: bool) -> Iterator[RepeatedPart]:
    """Every command of the last release that frames by length, and of each if ``is_full``, sent again and again."""
    for release in RELEASES if is_full else RELEASES[-1:]:
        seen = set()
        for name, code, payload in iggy_classic_requests(release):
            if code not in seen:
                seen.add(code)
                frame = struct.pack("<II", 4 + len(payload), code) + payload
                yield RepeatedPart(f"Iggy {name} frames", "iggy_tcp", partial(_repeat, frame))


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


def wait_for_kafka_fetches(world: World, count: int, requests_each: int = REQUESTS_EACH) -> list[ScriptedConnection]:
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


def _wake_kafka_fetches(world: World, count: int) -> Callable[[], None]:
    clients = wait_for_kafka_fetches(world, count)
    producer = world.connect("kafka")
    LOGINS["kafka"](producer, "root")
    frame = request_frame("Produce", 7, CORRELATION, **produce("t", one_batch(b"x")))

    def wake() -> None:
        assert len(clients) == count // REQUESTS_EACH
        world.send(producer, struct.pack(">i", len(frame)) + frame)

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


def _log_in_to_kafka(client: ScriptedConnection, role: str) -> None:
    if role != "stranger":
        auth = f"\0{role}\0{PASSWORDS[role]}".encode()
        for name, version, fields in (
            ("SaslHandshake", 1, {"mechanism": "PLAIN"}), ("SaslAuthenticate", 2, {"auth_bytes": auth}),
        ):  # fmt: skip
            frame = request_frame(name, version, CORRELATION, **fields)
            assert client.ask(struct.pack(">i", len(frame)) + frame)


def _log_in_to_nsqd(client: ScriptedConnection, role: str) -> None:
    client.send(b"  V2")
    if role != "stranger":
        assert client.ask(sized(b"IDENTIFY\n", b"{}") + sized(b"AUTH\n", f"{role}:{PASSWORDS[role]}".encode()))


def _begin_at_nsqlookupd(client: ScriptedConnection, role: str) -> None:
    identity = {"version": "1", "tcp_port": 1, "http_port": 2, "broadcast_address": "127.0.0.1"}
    client.send(b"  V1" + sized(b"IDENTIFY\n", json.dumps(identity).encode()))


def _log_in_to_iggy(client: ScriptedConnection, role: str) -> None:
    if role != "stranger":
        words = [role.encode(), PASSWORDS[role].encode()]
        payload = b"".join(struct.pack("<B", len(word)) + word for word in words) + bytes(8)
        assert client.ask(struct.pack("<II", 4 + len(payload), 38) + payload)[:4] == bytes(4)


LOGINS: Final[Mapping[str, Callable[[ScriptedConnection, str], None]]] = {
    "kafka": _log_in_to_kafka,
    "nsqd_tcp": _log_in_to_nsqd,
    "nsqlookupd_tcp": _begin_at_nsqlookupd,
    "iggy_tcp": _log_in_to_iggy,
}
"""By endpoint: what makes a new connection one of a role."""
