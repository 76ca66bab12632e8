"""Requests that name two things: by a parameter twice, by path and body, or in rows of one list.

The first name of each pair is ``MINE``, which the caller has all rights on, and the other one ``SECRET``; both orders.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from lading.dialects.kafka.versions import FETCH, PRODUCE, PRODUCE_LOW, SASL_AUTHENTICATE, SASL_HANDSHAKE, SERVED
from lading.endpoints.http_shared.routing import HttpRoute
from tests.endpoints.every_request import CORRELATION, SECRET, http_requests, kafka_fields
from tests.endpoints.kafka_frames import message, one_batch, request_frame

MINE: Final = "mine"
NAMES: Final = ("topic", "stream", "name", "channel", "group", "user", "username", "topic_id", "stream_id", "group_id")
"""Parameters by which a request could name something, whether its route knows them or not."""


def replace_names(value: Any, names: Mapping[Any, Any]) -> Any:
    """Return a document with other names in place of those of ``names``, at any depth."""
    if isinstance(value, dict):
        return {key: replace_names(member, names) for key, member in value.items()}
    if isinstance(value, list):
        return [replace_names(row, names) for row in value]
    return names.get(value, value) if isinstance(value, (str, UUID)) else value


# -- Kafka: rows of a list


def kafka_rows_twice(own_id: UUID, secret_id: UUID, *, is_full: bool) -> Iterator[tuple[str, int, str, bytes]]:
    """API, version, the list, and a frame whose list has an allowed row, a forbidden one twice, and the allowed again.

    Everything outside of the list is the caller's own. Every version if ``is_full``, else the last.
    """
    own = {SECRET: MINE, secret_id: own_id}
    for key, served in SERVED.items():
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            continue
        kind = message(served.name + "Request")
        low = PRODUCE_LOW if key == PRODUCE else served.low
        for version in range(low, served.high + 1) if is_full else (served.high,):
            given = {"records": one_batch(b"x"), "topic_id": secret_id if key == FETCH else None}
            secret = kafka_fields(kind, version, given, is_all=False)
            for path in _paths_to_names(secret, {SECRET, secret_id}):
                fields = replace_names(secret, own)
                rows = fields
                forbidden: Any = secret
                for step in path:
                    # the row that a list further out has
                    rows = rows[0] if isinstance(rows, list) else rows
                    forbidden = forbidden[0] if isinstance(forbidden, list) else forbidden
                    rows, forbidden = rows[step], forbidden[step]
                rows += [*forbidden, *forbidden, *rows]
                frame = request_frame(served.name, version, CORRELATION, **fields)
                yield served.name, version, ".".join(path), frame


def _paths_to_names(fields: Mapping[str, Any], names: set[Any]) -> Iterator[tuple[str, ...]]:
    """Return the way to each list whose rows have one of the names themselves."""
    for name, value in fields.items():
        if not isinstance(value, list) or not value:
            continue
        row = value[0]
        if isinstance(row, dict):
            if any(member in names for member in row.values() if isinstance(member, (str, UUID))):
                yield (name,)
            for rest in _paths_to_names(row, names):
                yield (name, *rest)
        elif row in names:
            yield (name,)


def shows_secret(document: Any, secrets: Collection[Any]) -> bool:
    """Return whether a part of a response names what is secret and reports no error for it."""
    if isinstance(document, list):
        return any(shows_secret(row, secrets) for row in document)
    if not isinstance(document, dict):
        return False
    is_named = any(member in secrets for member in document.values() if isinstance(member, (str, UUID)))
    if is_named and _has_success(document):
        return True
    return any(shows_secret(member, secrets) for member in document.values())


def _has_success(document: Any) -> bool:
    if isinstance(document, list):
        return any(map(_has_success, document))
    if not isinstance(document, dict):
        return False
    if "error_code" in document:
        return bool(document["error_code"] == 0)
    return any(map(_has_success, document.values()))


# -- HTTP: parameters of a query, members of a body


def http_names_twice(
    routes: list[HttpRoute], bodies: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, bytes | None]]:
    """Label, method, path and body: what is named is the caller's by one half, and secret by the other."""
    for label, method, path, body in http_requests(routes, has_query=True):
        name, stream = label.split(" ")
        if stream != "default":
            continue
        place, _, query = path.partition("?")
        own_place, own_query = (text.replace(SECRET, MINE) for text in (place, query))
        if name in bodies or isinstance(body, dict):
            body = bodies.get(name, body)
        own_body = replace_names(body, {SECRET: MINE})
        secret_names = "&".join(f"{parameter}={quote(SECRET)}" for parameter in NAMES)
        own_names = "&".join(f"{parameter}={quote(MINE)}" for parameter in NAMES)
        queries = {
            "own, secret": f"{own_query}&{query}&{secret_names}",
            "secret, own": f"{secret_names}&{query}&{own_query}&{own_names}",
        }
        for order, text in queries.items():
            yield f"{name} {order}", method, f"{own_place}?{text}", _encode_body(own_body)
        if isinstance(body, dict):
            secrets = {**dict.fromkeys(NAMES, SECRET), **body}
            for order, halves in {"own, secret": (own_body, secrets), "secret, own": (secrets, own_body)}.items():
                yield f"{name} body {order}", method, own_place, _join_members(*halves)
            if body != own_body:
                pairs = {"own, secret": (own_body, body), "secret, own": (body, own_body)}
                for order, halves in pairs.items():
                    yield f"{name} members {order}", method, own_place, _join_members(*halves)


def _encode_body(body: Any) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()


def _join_members(first: Mapping[str, Any], second: Mapping[str, Any]) -> bytes:
    """Return a JSON object with the members of both, so that those with one name are there twice."""
    members = [f"{json.dumps(name)}:{json.dumps(value)}" for half in (first, second) for name, value in half.items()]
    return f"{{{','.join(members)}}}".encode()
