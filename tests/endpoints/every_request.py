"""A request of every command of every protocol and generation, each naming things that may exist or not.

``SECRET`` is in place of all names of topics, channels, users, transactions and groups, unless another is given. What a
protocol has is read from its own tables, so that a command that is added is walked over too.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final
from uuid import UUID

from lading.dialects.iggy.classic.permissions import Permissions
from lading.dialects.iggy.classic.primitives import (
    ConsumerIdentifier,
    ConsumerKind,
    Partitioning,
    PartitioningKind,
    PollingKind,
    Strategy,
)
from lading.dialects.iggy.classic.releases import Release
from lading.dialects.iggy.classic.snapshots import SnapshotCompression, SnapshotPart
from lading.dialects.iggy.current.codecs import Deferral, FetchTarget, PatchedResource
from lading.dialects.iggy.current.operations import CANCEL, LOGOUT, NON_REPLICATED, OPERATIONS, READS, WRITES
from lading.dialects.iggy.current.options import Option
from lading.dialects.iggy.current.releases import RELEASE_0_11
from lading.dialects.kafka.versions import FETCH, PRODUCE, PRODUCE_LOW, SASL_AUTHENTICATE, SASL_HANDSHAKE, SERVED
from lading.dialects.nsq import commands as nsq
from lading.endpoints.http_shared.routing import HttpRoute
from lading.model.kinds import Kind
from lading.model.state import State
from tests.endpoints.kafka_frames import message, one_batch, request_frame

SECRET: Final = "secret"
"""What exists in one of two worlds."""
SHARED: Final = "shared"
"""A group and a transaction that the walker may see, in which what is secret takes part."""
CORRELATION: Final = 7
HIDDEN: Final = "hidden"
"""A stream that exists in one of two worlds, with a topic ``SECRET``."""

EVERY_API: Final[Mapping[str, Any]] = {"endpoints.kafka.client_metrics": "*"}
"""Settings of a broker that offers all of Kafka's APIs: without them it refuses those of KIP-714, as Kafka does."""


# -- Kafka


_KAFKA_VALUES: Final[Mapping[str, Any]] = {
    "principal": "User:" + SECRET, "principal_filter": None, "host": "*", "host_filter": None, "member_id": "",
    "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range", "rack_id": "",
    "committed_metadata": "", "acks": -1, "num_partitions": 1, "replication_factor": 1, "count": 2, "iterations": 4096,
    "generation_id": -1, "generation_id_or_member_epoch": -1, "member_epoch": -1, "current_leader_epoch": -1,
    "committed_leader_epoch": -1, "leader_epoch": 0, "replica_id": -1, "session_epoch": -1,
    "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "timeout_ms": 100, "max_bytes": 1 << 20,
    "transaction_timeout_ms": 10_000,
    "partition_max_bytes": 1 << 20, "max_wait_ms": 0, "response_partition_limit": 100, "retention_time_ms": -1,
    "timestamp": -1, "duration_filter": -1, "operation": 3, "permission_type": 3, "resource_type": 2,
    "resource_type_filter": 1, "resource_pattern_type": 3, "pattern_type_filter": 1, "mechanism": 1, "match_type": 0,
    "allow_auto_topic_creation": True, "include_synonyms": True, "topic_id": None, "transactional_id_pattern": None,
    "entity_type": "user", "cluster_id": None, "resource_types": [2, 4, 32], "cursor": None, "replica_state": None,
    "broker_ids": None, "types_filter": [], "states_filter": [], "state_filters": [], "producer_id_filters": [],
    "assignments": [], "client_instance_id": UUID(int=7), "forgotten_topics_data": [], "configuration_keys": None,
}  # fmt: skip
"""By the name of a field; what is not here takes a value by its type."""
_KAFKA_TYPES: Final[Mapping[str, Any]] = {
    "string": SECRET, "bool": False, "bytes": b"", "records": None, "uuid": None, "[]int32": [0], "[]string": [SECRET],
    "[]int8": [1],
}  # fmt: skip


def kafka_fields(kind: Any, version: int, given: Mapping[str, Any], *, is_all: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, one in kind.fields.items():
        if not one.for_version_q(version):
            continue
        if name in given:
            values[name] = given[name]
        elif name in _KAFKA_VALUES:
            values[name] = _KAFKA_VALUES[name]
        elif one.is_struct_array():
            if is_all and name in ("topics", "groups", "users", "topic_partitions"):
                values[name] = None if one.nullable_for_version_q(version) else []
            else:
                values[name] = [kafka_fields(one, version, given, is_all=False)]
        else:
            values[name] = _KAFKA_TYPES.get(one.type_str, 0)
    return values


_KAFKA_VARIANTS: Final[tuple[tuple[str, bool, Mapping[str, Any]], ...]] = (
    ("", False, {}),
    ("all", True, {}),
    ("a group that one may see", False, {"group_id": SHARED, "transactional_id": SHARED, "key": SHARED,
                                        "groups": [SHARED], "groups_names": [SHARED], "transactional_ids": [SHARED]}),
    ("all of a group that one may see", True, {"group_id": SHARED}),
    ("configs of a broker", False, {"resource_type": 4, "resource_name": "1"}),
    ("configs of a group", False, {"resource_type": 32}),
    ("a transaction's coordinator", False, {"key_type": 1}),
)  # fmt: skip


def kafka_requests(topic_id: UUID, *, is_full: bool) -> Iterator[tuple[str, bytes]]:
    """A frame of every API, in all ways to name something; the login itself is left out.

    Not ``is_full``: only in its first and last version, and in those between which its fields differ.
    """
    for key, served in SERVED.items():
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            continue
        kind = message(served.name + "Request")
        low = PRODUCE_LOW if key == PRODUCE else served.low
        seen: set[bytes] = set()
        shapes: set[tuple[str, ...]] = set()
        for version in range(low, served.high + 1):
            shape = tuple(sorted(_shape(kind, version)))
            if not is_full and shape in shapes and version != served.high:
                continue
            shapes.add(shape)
            for words, is_all, given in _KAFKA_VARIANTS:
                # lists of names in one API are structs in another
                own = {name: value for name, value in given.items() if not _is_struct(kind, name)}
                if key == PRODUCE:
                    own = {"records": one_batch(b"x"), "topic_id": topic_id}
                if key == FETCH:
                    own = {"topic_id": topic_id}
                for by_id in (False, True):
                    if by_id:
                        own = {**own, "topic_id": topic_id, "name": None}
                    values = kafka_fields(kind, version, own, is_all=is_all)
                    try:
                        frame = request_frame(served.name, version, CORRELATION, **values)
                    except Exception:
                        # a name may be null only where there is an id
                        assert by_id, (served.name, version, words, values)
                        continue
                    if frame not in seen:
                        seen.add(frame)
                        yield f"{served.name} {version} {words}{' by id' if by_id else ''}", frame


def _shape(kind: Any, version: int) -> Iterator[str]:
    for name, one in kind.fields.items():
        if one.for_version_q(version):
            yield name
            if one.is_struct_array():
                yield from _shape(one, version)


def _is_struct(kind: Any, name: str) -> bool:
    one = kind.fields.get(name)
    return one is not None and one.is_struct_array()


# -- Iggy


_IGGY_VALUES: Final[Mapping[str, Any]] = {
    "auto_commit": False, "client_id": 1, "consumer": ConsumerIdentifier(ConsumerKind.CONSUMER, 1), "count": 1,
    "current": "current", "dry_run": True, "end": 1, "first": 0, "expiry_us": None, "fsync": False, "messages": b"x",
    "new": "new password", "offset": 0, "partition_id": 1, "partitioning": Partitioning(PartitioningKind.BALANCED),
    "partitions_count": 1, "password": "password", "permissions": Permissions(frozenset(), {}), "ranges": ((0, 1),),
    "reason": "", "size_bytes_max": None, "state": State.AVAILABLE, "status": 1,
    "strategy": Strategy(PollingKind.FIRST), "where": "offset = 0", "partition": None, "auto": False, "options": {},
    "batch": b"", "metadata_bytes": 0, "wanted": b"",
    "expiry": 0, "ack": 0, "segments_count": 1, "scope": 1, "rest": b"", "username": SECRET, "name": SECRET,
    "token": SECRET, "version": None, "user": SECRET, "stream_id": None, "topic_id": None,
    "compression": SnapshotCompression.STORED, "parts": (SnapshotPart.TEST,), "deferral": Deferral(0, 1, 1 << 20, 1),
    "wait_us": 0, "timeout_us": 1, "count_min": 1, "bytes_max": 1 << 20, "reset": (),
    "targets": (FetchTarget(0, Strategy(PollingKind.OFFSET, 0), 1 << 20, 0, 0),),
}  # fmt: skip
IGGY_LOGINS: Final = frozenset({38, 44})
"""Codes of logins, which are tested by themselves."""
IGGY_OWN: Final = frozenset({20, 42})
"""Codes whose answers differ from one time to the next, of whoever asks: the connection, and a new token."""
IGGY_LOGOUT: Final = 39
IggyPlace = tuple[int | str, int | str]
IGGY_PLACES: Final[tuple[IggyPlace, ...]] = (("default", SECRET), (HIDDEN, SECRET), (1, 1), (2, 1))
"""Streams and topics by name and by number."""


def iggy_classic_requests(release: Release) -> Iterator[tuple[str, int, bytes]]:
    """A payload of every command of a release, for every way to name a topic; the logout is the last."""
    for stream, topic in IGGY_PLACES:
        for row in sorted(release.commands.rows, key=lambda row: row.code == IGGY_LOGOUT):
            if row.code in IGGY_LOGINS or (row.code == IGGY_LOGOUT and (stream, topic) != IGGY_PLACES[-1]):
                continue
            # 0.1 and those before count groups, and the first two have clients choose the ids of what they create
            own = {"stream": stream, "topic": topic, "group_id": 1, "stream_id": 77, "topic_id": 77}
            names = [one.name for one in fields(row.request)]
            command = row.request(**{name: own.get(name, _IGGY_VALUES.get(name)) for name in names})
            frame = release.commands.encode_request(command)
            yield f"{release.name} {row.name} {stream}/{topic}", row.code, frame[8:]


def iggy_current_requests() -> Iterator[tuple[str, int, int, bytes]]:
    """Operation, command code and body of every operation; a logout is the last."""
    commands = RELEASE_0_11.commands
    # ids count from 1 in commands
    for stream, topic in (("default", SECRET), (HIDDEN, SECRET), (1, 1), (2, 1)):
        values = {
            **_IGGY_VALUES, "stream": stream, "topic": topic, "group_id": SECRET if stream == HIDDEN else 1,
            "user": SECRET if isinstance(stream, str) else 4,
            "resource": PatchedResource("topic", (stream, topic)),
        }  # fmt: skip
        for row in (*READS.values(), *WRITES.values()):
            if row.code == CANCEL or row.name in ("register", "logout"):
                # a cancel has no reply
                continue
            own = values
            if row.name == "update_resource":
                own = {**values, "options": {"name": Option(Kind.STRING, SECRET.encode())}}
            command = row.request(**{one.name: own.get(one.name) for one in fields(row.request)})
            body = commands.encode_request(command)[8:]
            if row.name == "send_messages":
                # no batch follows
                where = body[4:-1] + struct.pack("<I", 1)
                body = struct.pack("<I", len(where)) + where
            operation = OPERATIONS.get(row.code, NON_REPLICATED)
            code = row.code if operation == NON_REPLICATED else 0
            yield f"current {row.name} {wire_name(stream)}/{wire_name(topic)}", operation, code, body
    yield "current logout", LOGOUT, 0, b""


def wire_name(ident: int | str) -> int | str:
    """How clients of the current generation name what commands name so."""
    return ident - 1 if isinstance(ident, int) else ident


# -- NSQ


_NSQ_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "SUB": (SECRET, "channel"), "SUB_ADVANCED": (SECRET, "channel"), "SUB_ORDERED": (SECRET, "channel", "0"),
    "DPUB": (SECRET, "5"), "INTERNAL_CREATE_TOPIC": (SECRET, "0"), "RDY": ("1",), "REQ": ("0",),
}  # fmt: skip
_NSQ_NONE: Final = frozenset({"IDENTIFY", "AUTH", "NOP", "CLS", "FIN", "TOUCH"})


def nsq_commands() -> Iterator[tuple[str, bytes]]:
    """Every command of nsqd with what it takes."""
    for command in nsq.COMMANDS.values():
        parameters = _NSQ_PARAMETERS.get(command.name, () if command.name in _NSQ_NONE else (SECRET,))
        line = " ".join((command.name, *parameters)).encode()
        if command.body is nsq.Body.MESSAGE_ID:
            line = b" ".join((command.name.encode(), b"0" * nsq.ID_BYTES, *(one.encode() for one in parameters)))
        body = b"{}" if command.name == "IDENTIFY" else b"\0\0\0\1\0\0\0\1x" if command.batch else bytes(8) + b"x"
        sized = struct.pack(">i", len(body)) + body if command.body is nsq.Body.SIZED else b""
        yield command.name, line + b"\n" + sized


# -- HTTP


_PATH: Final[Mapping[str, str]] = {
    "topic": SECRET, "partition": "0", "partition_id": "0", "group": SECRET, "group_id": "1", "protocol": "kafka",
    "user": SECRET, "token": "own", "name": "own", "option": "log_level", "scope": "topic", "fsync": "true",
    "consumer": "1", "client_id": "1", "subject": SECRET, "version": "1", "id": "1", "guid": str(UUID(int=1)),
    "namespace": "-",
}  # fmt: skip
_QUERY: Final = f"topic={SECRET}&channel=channel&partition=0&node=127.0.0.1:1&trace_id=1&order=true&ext={{}}"
"""What the faces of NSQ look at."""
_MESSAGES: Final = {
    "partitioning": {"kind": "partition_id", "value": "AAAAAA=="},
    "messages": [{"id": 0, "payload": base64.b64encode(b"x").decode()}],
}
_BODIES: Final[Mapping[str, Any]] = {
    "user.alter": {"password": "password"}, "user.create": {"password": "password"}, "token.create": {"days": 1},
    "message.send": _MESSAGES,
}  # fmt: skip
"""By the name of a route; any other is sent an empty document."""
HTTP_OWN: Final = frozenset({"token.create", "personal_access_token.create"})


def http_requests(routes: list[HttpRoute], *, has_query: bool) -> Iterator[tuple[str, str, str, Any]]:
    """Name, method, path and body of every route, for a topic of each stream."""
    for stream in ("default", HIDDEN):
        for route in routes:
            parts = [
                {**_PATH, "stream": stream}[part[1:-1]] if part.startswith("{") else part
                for part in route.pattern.split("/")
            ]
            path = "/".join(parts) + (f"?{_QUERY}" if has_query else "")
            body = None if route.method == "GET" else _BODIES.get(route.name, {})
            yield f"{route.name} {stream}", route.method, path, body
