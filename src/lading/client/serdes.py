"""Serialisers and deserialisers: values to bytes and back, with access to the headers (kafka.md 1.1, 1.3).

A serialiser is any ``(topic, headers, value) -> bytes | None`` and may add headers; a deserialiser is any
``(topic, headers, data) -> value``. Headers are the message's own object.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..model.errors import CorruptError, LocalError
from ..model.headers import Headers

Serializer = Callable[[str, Headers, Any], bytes | None]
Deserializer = Callable[[str, Headers, bytes | None], Any]


def to_bytes(topic: str, headers: Headers, value: Any) -> bytes | None:
    """Return bytes unchanged, str as UTF-8, None as null: the default. Raises LocalError for any other type."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise LocalError(
        f"a {type(value).__name__} cannot be sent to topic {topic!r} as it is: "
        "pass bytes, str or None, or give the producer a serializer"
    )


def to_json(topic: str, headers: Headers, value: Any) -> bytes | None:
    """Return compact JSON in UTF-8; None stays null."""
    if value is None:
        return None
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise LocalError(f"the value for topic {topic!r} cannot be JSON: {error}") from None


def from_json(topic: str, headers: Headers, data: bytes | None) -> Any:
    """Return the value of JSON; null stays None. Raises CorruptError for bytes that are not JSON."""
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError as error:
        raise CorruptError(f"message in topic {topic!r} is not valid JSON: {error}") from None


def from_text(topic: str, headers: Headers, data: bytes | None) -> str | None:
    """Return UTF-8 text; null stays None. Raises CorruptError for other bytes."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        raise CorruptError(
            f"a message of topic {topic!r} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from None


def require_bytes(what: str, value: object) -> None:
    """Raise LocalError unless ``value`` is bytes or None."""
    if value is not None and type(value) is not bytes:
        raise LocalError(f"the {what} serializer gave a {type(value).__name__}; it must give bytes or None")
