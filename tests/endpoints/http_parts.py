"""HTTP requests of n rows: each repeated part of every route of the HTTP endpoints, and of HTTP itself.

A route that takes nothing which repeats is named with the reason: ``test_request_cost.py`` compares this table with the
routes that the endpoints have.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from lading.dialects.native import messages as native
from lading.endpoints.http_shared.routing import HttpRoute
from tests.dialects.test_native import batch_of, row
from tests.endpoints.every_request import SECRET

Document = Callable[[int], Any]
"""Returns the body with n rows: a document, or bytes."""

NO_BODY: Final = "it takes no body, and a query and a path are bounded by HTTP's own rows"


class HttpPart(NamedTuple):
    """A part of the body of a route that a client may repeat."""

    label: str
    document: Document


def _block(count: int) -> bytes:
    return native.encode_block(batch_of([row(0)] * count))


def _members(count: int) -> dict[str, int]:
    return {f"member-{number}": 0 for number in range(count)}


def _repeat_last_member(count: int) -> bytes:
    return b"{" + b"".join(b'"member-%d":0,' % number for number in range(count)) + b'"member-%d":0}' % (count - 1)


def _list(count: int) -> list[int]:
    return [0] * count


def _text(name: str, **others: Any) -> Document:
    return lambda count: {**others, name: "x" * count}


def _rows(name: str, make_row: Callable[[int], Any], **others: Any) -> Document:
    return lambda count: {**others, name: [make_row(number) for number in range(count)]}


UNKNOWN: Final = (HttpPart("unknown members", _members), HttpPart("a list instead", _list))
"""What any route that reads a document may be sent."""


def _rule(number: int) -> dict[str, Any]:
    return {"user": "ann", "kind": "topic", "pattern": "literal", "name": f"row-{number}", "operation": "read"}


def _position(number: int) -> dict[str, Any]:
    return {"topic": f"row-{number}", "partition": number, "offset": 0}


def _terms(count: int) -> dict[str, str]:
    return {"state": "poisoned", "where": " or ".join(["offset = 0"] * count)}


def _conditions(count: int) -> dict[str, str]:
    return {"where": _terms(count)["where"]}


def _headers(count: int) -> dict[str, Any]:
    return {f"key-{number}": {"kind": "string", "value": "eA=="} for number in range(count)}


_TO_PARTITION: Final = {"kind": "partition_id", "value": base64.b64encode(struct.pack("<I", 1)).decode()}


def _message(number: int) -> dict[str, Any]:
    return {"id": number, "payload": "eA=="}


ADMIN: Final[Mapping[str, tuple[HttpPart, ...] | str]] = {
    **dict.fromkeys(
        (
            "root", "health", "live", "ready", "metrics", "overview", "me", "users.list", "tokens.list", "rules.list",
            "quotas.list",
            "group.list", "group.show", "position.get", "streams.list", "topics.list", "topic.get", "topic.states.get",
            "topic.retention", "states.get", "chunks.get", "batches.get", "offset.at", "stream.delete", "topic.delete",
            "topic.empty", "user.delete", "token.delete", "group.delete", "group.filter.remove",
            "group.filter.show",
        ),
        NO_BODY,
    ),
    "user.create": (HttpPart("bytes of a password", _text("password")), *UNKNOWN),
    "user.alter": (HttpPart("bytes of a password", _text("password")), *UNKNOWN),
    "token.create": UNKNOWN,
    "rules.change": (
        HttpPart("rules to add", _rows("add", _rule)), HttpPart("rules to delete", _rows("delete", _rule)), *UNKNOWN,
    ),
    "quota.set": UNKNOWN,
    "stream.create": UNKNOWN,
    "topic.create": (HttpPart("settings", lambda count: {"settings": _members(count)}), *UNKNOWN),
    "topic.alter": (
        HttpPart("settings", _members), HttpPart("bytes of a topic's name", _text("dead_letter_topic")), UNKNOWN[1],
    ),
    "topic.states.set": (
        HttpPart(
            "ranges",
            lambda count: {
                "state": "poisoned", "where": "offset = 0", "ranges": {str(number): [0, 1] for number in range(count)},
            },
        ),
        HttpPart("terms of a filter", _terms),
        *UNKNOWN,
    ),
    "states.set": (
        HttpPart("offsets", lambda count: {"state": "poisoned", "offsets": list(range(0, 2 * count, 2))}),
        HttpPart("terms of a filter", _terms),
        HttpPart("bytes of a reason", _text("reason", state="poisoned", first=0, end=1)),
        *UNKNOWN,
    ),
    "chunks.append": (
        HttpPart("messages", _block),
        HttpPart("blocks", lambda count: _block(1) * count),
        HttpPart("bytes that are no block", bytes),
    ),
    "group.reset": (HttpPart("positions", _rows("positions", _position)), *UNKNOWN),
    "group.join": (HttpPart("topics", _rows("topics", lambda number: f"row-{number}", member="m")), *UNKNOWN),
    "group.filter": (
        HttpPart("client ids", _rows("client_ids", lambda number: f"row-{number}", where="offset = 0")),
        HttpPart("terms of a filter", _conditions), *UNKNOWN,
    ),
    "group.filter.preview": (
        HttpPart("topics", _rows("topics", lambda number: f"row-{number}", where="offset = 0")),
        HttpPart("terms of a filter", _conditions), *UNKNOWN,
    ),
    "group.heartbeat": UNKNOWN,
    "group.leave": UNKNOWN,
    "position.store": UNKNOWN,
    "transaction.begin": (HttpPart("bytes of a scope", _text("scope")), *UNKNOWN),
    "transaction.commit": (HttpPart("transactions", _rows("transactions", int, key="k")), *UNKNOWN),
    "transaction.abort": (
        HttpPart("transactions", _rows("transactions", int)),
        HttpPart("wrong transactions", _rows("transactions", lambda number: -1)),
        *UNKNOWN,
    ),
}  # fmt: skip

_TOPIC: Final = {"compression_algorithm": "none", "message_expiry": 0, "max_topic_size": 0}
_GLOBAL: Final = dict.fromkeys(
    ("manage_servers", "read_servers", "manage_users", "read_users", "manage_streams", "read_streams", "manage_topics",
     "read_topics", "poll_messages", "send_messages"), False,
)  # fmt: skip
_STREAM: Final = {
    **dict.fromkeys(
        ("manage_stream", "read_stream", "manage_topics", "read_topics", "poll_messages", "send_messages"), True
    ),
    "topics": None,
}
_OF_TOPIC: Final = dict.fromkeys(("manage_topic", "read_topic", "poll_messages", "send_messages"), True)


def _permissions(streams: dict[str, Any]) -> dict[str, Any]:
    return {"permissions": {"global": _GLOBAL, "streams": streams}}


IGGY_HTTP: Final[Mapping[str, tuple[HttpPart, ...] | str]] = {
    **dict.fromkeys(
        (
            "root", "ping", "stats", "user.list", "user.get", "user.delete", "user.logout",
            "personal_access_token.list", "personal_access_token.delete", "client.list", "client.get", "stream.list",
            "stream.get", "stream.delete", "stream.purge", "topic.list", "topic.get", "topic.delete", "topic.purge",
            "partitions.delete", "segment.delete", "consumer_offset.get", "consumer_offset.delete", "group.list",
            "group.get", "group.delete", "message.poll", "message.poll_deferred", "message.flush", "states.get",
            "options.describe", "cluster.metadata",
        ),
        NO_BODY,
    ),
    "user.login": (
        HttpPart("bytes of a name", _text("username", password="password")),
        HttpPart("members, the last twice", _repeat_last_member),
        *UNKNOWN,
    ),
    "user.refresh": (HttpPart("bytes of a token", _text("token")), *UNKNOWN),
    "personal_access_token.login": (HttpPart("bytes of a token", _text("token")), *UNKNOWN),
    "user.create": (
        HttpPart(
            "streams of permissions",
            lambda count: {
                "username": "new", "password": "password", "status": "active",
                **_permissions({str(number): _STREAM for number in range(1, count + 1)}),
            },
        ),
        *UNKNOWN,
    ),
    "user.update": (HttpPart("bytes of a name", _text("username", status="active")), *UNKNOWN),
    "user.permissions": (
        HttpPart("streams", lambda count: _permissions({str(number): _STREAM for number in range(1, count + 1)})),
        HttpPart(
            "topics",
            lambda count: _permissions(
                {"1": {**_STREAM, "topics": {str(number): _OF_TOPIC for number in range(1, count + 1)}}}
            ),
        ),
        *UNKNOWN,
    ),
    "user.password": (
        HttpPart("bytes of a password", _text("current_password", new_password="password")), *UNKNOWN,
    ),
    "personal_access_token.create": (HttpPart("bytes of a name", _text("name", expiry=0)), *UNKNOWN),
    "stream.create": (HttpPart("bytes of a name", _text("name")), *UNKNOWN),
    "stream.update": (HttpPart("bytes of a name", _text("name")), *UNKNOWN),
    "topic.create": (HttpPart("bytes of a name", _text("name", **_TOPIC, partitions_count=1)), *UNKNOWN),
    "topic.update": (HttpPart("bytes of a name", _text("name", **_TOPIC)), *UNKNOWN),
    "partitions.create": UNKNOWN,
    "consumer_offset.store": UNKNOWN,
    "group.create": (HttpPart("bytes of a name", _text("name")), *UNKNOWN),
    "message.send": (
        HttpPart("messages", _rows("messages", _message, partitioning=_TO_PARTITION)),
        HttpPart(
            "headers of a message",
            lambda count: {"partitioning": _TO_PARTITION, "messages": [{**_message(0), "headers": _headers(count)}]},
        ),
        HttpPart(
            "messages with a header",
            _rows("messages", lambda number: {**_message(number), "headers": _headers(1)}, partitioning=_TO_PARTITION),
        ),
        *UNKNOWN,
    ),
    "snapshot": (HttpPart("parts", _rows("snapshot_types", lambda number: "Test", compression="Stored")), *UNKNOWN),
    "states.set": ADMIN["states.set"],
}  # fmt: skip

NSQD_HTTP: Final[Mapping[str, tuple[HttpPart, ...] | str]] = {
    **dict.fromkeys(
        (
            "root", "ping", "info", "stats", "channel/create", "channel/delete", "channel/setorder", "channel/empty",
            "channel/pause", "channel/unpause", "channel/skip", "channel/unskip", "topic/create", "topic/delete",
            "topic/empty", "topic/pause", "topic/unpause", "config/{option}",
        ),
        NO_BODY,
    ),
    "pub": (HttpPart("bytes", bytes),),
    "pub_ext": (HttpPart("bytes", bytes),),
    "pubtrace": (HttpPart("bytes", bytes),),
    "mpub": (HttpPart("lines", lambda count: b"x\n" * count), HttpPart("empty lines", lambda count: b"\n" * count)),
    "channel/setoffset": (HttpPart("bytes", lambda count: b"1" * count),),
}  # fmt: skip

NSQLOOKUPD_HTTP: Final[Mapping[str, tuple[HttpPart, ...] | str]] = dict.fromkeys(
    (
        "root", "ping", "info", "lookup", "topics", "channels", "nodes", "listlookup", "topic/create", "topic/creat",
        "topic/meta/update", "topic/delete", "topic/tombstone", "channel/create", "channel/delete",
    ),
    NO_BODY,
)  # fmt: skip

_SCHEMA: Final = (
    HttpPart("characters of a schema", _text("schema")),
    HttpPart(
        "references",
        _rows("references", lambda number: {"name": f"n{number}", "subject": SECRET, "version": 1}, schema='"int"'),
    ),
    *UNKNOWN,
)
SCHEMA_REGISTRY: Final[Mapping[str, tuple[HttpPart, ...] | str]] = {
    **dict.fromkeys(
        (
            "registry", "subjects", "versions", "subject.delete", "schema.metadata", "version", "version.delete",
            "version.schema", "version.referencedby", "schemas", "schemas.types", "schema", "schema.text",
            "schema.subjects", "schema.versions", "schema.guid", "schema.guid.ids", "config", "config.delete", "mode",
            "mode.delete", "contexts", "associations",
        ),
        NO_BODY,
    ),
    **dict.fromkeys(("version.register", "schema.find", "compatibility.all", "compatibility"), _SCHEMA),
    "config.change": UNKNOWN,
    "mode.change": UNKNOWN,
}  # fmt: skip

ROUTES: Final[Mapping[str, Mapping[str, tuple[HttpPart, ...] | str]]] = {
    "admin": ADMIN,
    "iggy_http": IGGY_HTTP,
    "nsqd_http": NSQD_HTTP,
    "nsqlookupd_http": NSQLOOKUPD_HTTP,
    "schema_registry": SCHEMA_REGISTRY,
}
"""By endpoint and name of a route: what repeats in its body, or why nothing does."""

_PATH: Final[Mapping[str, str]] = {
    "stream": "default", "topic": SECRET, "partition": "0", "partition_id": "0", "group": SECRET, "group_id": "1",
    "protocol": "kafka", "user": "ann", "token": "new", "name": "own", "option": "log_level", "scope": "topic",
    "fsync": "true", "consumer": "1", "client_id": "1", "subject": f"{SECRET}-value", "version": "1",
}  # fmt: skip
_QUERY: Final = f"?topic={SECRET}&channel=channel&partition=0&trace_id=1&ext={{}}"
HOST: Final = b"host: 127.0.0.1\r\n"


def encode_request(method: str, path: str, body: bytes = b"", head: bytes = b"") -> bytes:
    """Return a request as bytes; ``head`` is further lines of its head."""
    size = b"content-length: %d\r\n" % len(body)
    return f"{method} {path} HTTP/1.1\r\n".encode() + HOST + head + size + b"\r\n" + body


class HttpRows(NamedTuple):
    """A part of a request of an endpoint, as ``RepeatedPart`` has it."""

    name: str
    endpoint: str
    request: Callable[[int], bytes]


def route_rows(routes: Mapping[str, Sequence[HttpRoute]]) -> Iterator[HttpRows]:
    """Every part of every route that takes a body; ``routes`` are those that the endpoints have."""
    for endpoint, parts_by_name in ROUTES.items():
        query = _QUERY if endpoint.startswith("nsq") else ""
        for name, parts in parts_by_name.items():
            if isinstance(parts, str):
                continue
            route = next(route for route in routes[endpoint] if route.name == name and route.method != "GET")
            path = "/".join(_PATH[part[1:-1]] if part.startswith("{") else part for part in route.pattern.split("/"))
            for part in parts:
                yield HttpRows(
                    f"{endpoint} {name} {part.label}", endpoint,
                    partial(_encode_rows, route.method, path + query, part.document),
                )  # fmt: skip


def _encode_rows(method: str, path: str, document: Document, count: int) -> bytes:
    body = document(count)
    return encode_request(method, path, body if isinstance(body, bytes) else json.dumps(body).encode())


def _chunked(count: int) -> bytes:
    head = f"POST /pub?topic={SECRET} HTTP/1.1\r\n".encode() + HOST + b"transfer-encoding: chunked\r\n\r\n"
    return head + b"1\r\nx\r\n" * count + b"0\r\n\r\n"


def _trailers(count: int) -> bytes:
    head = f"POST /pub?topic={SECRET} HTTP/1.1\r\n".encode() + HOST + b"transfer-encoding: chunked\r\n\r\n"
    return head + b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * count + b"\r\n"


_LINE: Final = encode_request("GET", "/ping")
HTTP: Final[Mapping[str, Callable[[int], bytes]]] = {
    "header lines": lambda count: encode_request("GET", "/ping", head=b"a: b\r\n" * count),
    "bytes of a header": lambda count: encode_request("GET", "/ping", head=b"a: " + b"b" * count + b"\r\n"),
    "bytes of a header's name": lambda count: encode_request("GET", "/ping", head=b"a" * count + b": b\r\n"),
    "bytes of a path": lambda count: encode_request("GET", "/" + "a" * count),
    "parts of a path": lambda count: encode_request("GET", "/a" * count),
    "bytes of a query": lambda count: encode_request("GET", "/ping?a=" + "b" * count),
    "fields of a query": lambda count: encode_request("GET", "/ping?" + "a=b&" * count),
    "requests without waiting": lambda count: _LINE * count,
    "requests that are written": lambda count: encode_request("POST", f"/pub?topic={SECRET}", b"x") * count,
    "empty lines": lambda count: b"\r\n" * count + _LINE,
    "chunks of a body": _chunked,
    "trailers": _trailers,
    "bytes of no protocol": lambda count: b"\xff" * count,
}
"""What HTTP itself lets a client repeat: one connection serves all four endpoints."""


def http_rows() -> Iterator[HttpRows]:
    """Every part of a request before any route sees it."""
    for name, request in HTTP.items():
        yield HttpRows(f"HTTP {name}", "nsqd_http", request)
