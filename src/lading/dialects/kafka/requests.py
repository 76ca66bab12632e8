"""Requests to a server and its responses: own code for the heads, ``kafka.protocol`` for rare messages.

A frame is a length (int32, not counting itself), the head and the body. The head has tagged fields from an API's first
flexible version on; so has a response's head, but never that of ApiVersions (kafka.md 3.3).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from lading.model.errors import MalformedMessage

from .errors import UNSUPPORTED_VERSION
from .schemas import message
from .versions import SERVED

LENGTH_BYTES: Final = 4
HEAD: Final = struct.Struct(">hhih")
"""API key, version, correlation id, length of the client id (-1: null)."""
TAGS_MAX: Final = 64

_INT32: Final = struct.Struct(">i")
_prepared: Final[set[tuple[int, int]]] = set()
"""API keys and versions of rare messages whose codecs are prepared."""


class RequestHeader(NamedTuple):
    """The head of a request; the body begins at ``body_at``."""

    key: int
    version: int
    correlation: int
    client_id: str | None
    body_at: int


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Return the head of a frame without its length. Raises MalformedMessage if it is invalid."""
    if len(frame) < HEAD.size:
        raise MalformedMessage("the request ends inside its head", at=len(frame))
    key, version, correlation, size = HEAD.unpack_from(frame)
    at = HEAD.size + max(size, 0)
    if at > len(frame) or size < -1:
        raise MalformedMessage(f"the request claims a client id of {size} bytes", at=HEAD.size)
    client_id = None if size < 0 else str(frame[HEAD.size : at], "utf-8", "replace")
    served = SERVED.get(key)
    # the form of the head of a future version is unknown
    if served is not None and served.flexible <= version <= served.high:
        at = skip_tags(frame, at)
    return RequestHeader(key, version, correlation, client_id, at)


def skip_tags(frame: memoryview, at: int) -> int:
    """Return the end of the tagged fields at ``at``. Raises MalformedMessage if they are cut short or too many."""
    count, at = read_uvarint(frame, at)
    if count > TAGS_MAX:
        raise MalformedMessage(f"the request claims {count} tagged fields", at=at)
    for _ in range(count):
        _, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        at += size
        if at > len(frame):
            raise MalformedMessage("the request ends inside a tagged field", at=len(frame))
    return at


def read_uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 32 bits and the position after it. Raises MalformedMessage."""
    value, end = 0, len(frame)
    for shift in range(0, 35, 7):
        if at >= end:
            raise MalformedMessage("the request ends inside a number", at=at)
        byte = frame[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise MalformedMessage("a number of the request has more than 32 bits", at=at)


def is_prepared(key: int, version: int) -> bool:
    """Return whether a rare request can be decoded, and its response encoded, without compiling or
    importing anything.
    """
    return (key, version) in _prepared


def decode_request(key: int, version: int, body: memoryview) -> Any:
    """Return the body of a rare request, with attributes as ``kafka.protocol`` names them.

    Raises MalformedMessage and nothing else. The library's decoder checks lengths, as it reads from a bounded buffer.
    """
    kind = _message_class(key, "Request")
    try:
        decoded = kind.decode(body, version=version)
        _require_values(kind, version, decoded)
        return decoded
    except Exception as error:
        raise MalformedMessage(
            f"the request {SERVED[key].name} cannot be read: {error or type(error).__name__}"
        ) from None


def encode_answer(key: int, version: int, correlation: int, fields: Mapping[str, Any]) -> bytes:
    """Return the whole frame of a rare response.

    ``fields`` are named as in ``kafka.protocol``, with structs as mappings. Omitted fields, and fields that the version
    does not have, take their defaults.
    """
    answer = _build_container(_message_class(key, "Response"), version, fields)
    answer.with_header(correlation_id=correlation)
    return bytes(answer.encode(header=True, framed=True))


def encode_unsupported_versions(correlation: int, keys: Collection[int]) -> bytes:
    """Return the whole response to an ApiVersions of an unsupported version: version 0, with an error."""
    rows = b"".join(struct.pack(">hhh", key, SERVED[key].low, SERVED[key].high) for key in keys)
    body = _INT32.pack(correlation) + struct.pack(">hi", UNSUPPORTED_VERSION, len(keys)) + rows
    return _INT32.pack(len(body)) + body


def has_throttle_time(key: int) -> bool:
    """Return whether responses of a rare API have a field for the time that the client should wait."""
    return "throttle_time_ms" in _message_class(key, "Response").fields


def prepare_codec(key: int, version: int) -> None:
    """Import and compile the codec of one version of a rare message, in 5 to 20 ms; from any thread.

    A broker does this in a worker at the first request: of nearly 200 codecs a client uses a dozen, and compiling
    Python holds the interpreter, in any thread.
    """
    request, answer = _message_class(key, "Request"), _message_class(key, "Response")
    tagged = version >= SERVED[key].flexible
    request._struct.compiled_decode_from(version, compact=tagged, tagged=tagged, data_class=request[None])
    answer._struct.compiled_encode_into(version, compact=tagged, tagged=tagged)
    _prepared.add((key, version))


def prepare_codecs(keys: Iterable[int]) -> None:
    """Prepare all versions of rare messages, in just under a second; for processes without waiting clients."""
    for key in keys:
        served = SERVED[key]
        if served.module is not None:
            for version in range(served.low, served.high + 1):
                prepare_codec(key, version)


def _message_class(key: int, kind: str) -> Any:
    served = SERVED[key]
    assert served.module is not None, f"{served.name} is read and written by hand"
    return message(served.module, served.name + kind)


def _require_values(kind: Any, version: int, decoded: Any) -> None:
    """Refuse null if the version does not allow it, as the library accepts it; it decodes ids of zeros as None."""
    for name, field in kind.fields.items():
        if not field.for_version_q(version) or field.type_str == "uuid" or field._tag is not None:
            continue
        value = getattr(decoded, name)
        if value is None and not field.nullable_for_version_q(version):
            raise ValueError(f"{name} is null")
        if field.is_struct_array():
            for one in value or ():
                _require_values(getattr(kind, field.type_str), version, one)


def _build_container(kind: Any, version: int, fields: Mapping[str, Any]) -> Any:
    known = kind.fields
    values: dict[str, Any] = {}
    for name, value in fields.items():
        field = known[name]
        if not field.for_version_q(version):
            continue
        if field.is_struct_array() and value is not None:
            inner = getattr(kind, field.type_str)
            value = [_build_container(inner, version, one) for one in value]
        elif field.is_struct() and value is not None:
            value = _build_container(getattr(kind, field.type_str), version, value)
        values[name] = value
    return kind(version=version, **values)
