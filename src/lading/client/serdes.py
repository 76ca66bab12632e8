"""Serialisers and deserialisers: values to bytes and back, with access to the headers (kafka.md 1.1, 1.3).

A serialiser is ``(topic, headers, value) -> bytes | None`` and may add headers, since they are the message's own;
a deserialiser is ``(topic, headers, data) -> value``. Clients take the shorter forms of other clients too: ``(topic,
value)``, ``(value)`` as kafka-python and aiokafka have it, and objects with a method ``serialize`` or ``deserialize``.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from ..model.errors import CorruptError, LocalError, SettingError
from ..model.headers import Headers

AnySerializer = Any
"""A value for ``key_serializer`` or ``value_serializer``: one of the forms above."""
AnyDeserializer = Any
"""A value for ``key_deserializer`` or ``value_deserializer``: one of the forms above, or None."""
Serializer = Callable[[str, Headers, Any], bytes | None]
Deserializer = Callable[[str, Headers, bytes | None], Any]


def accept_serializer(option: str, given: Any) -> Serializer:
    """Return the serialiser of a producer's option in the long form. Raises SettingError if it cannot be called so."""
    return _in_long_form(option, given, "serialize")


def accept_deserializer(option: str, given: Any) -> Deserializer | None:
    """Return the deserialiser of a consumer's option in the long form. Raises SettingError for another form."""
    return None if given is None else _in_long_form(option, given, "deserialize")


def _in_long_form(option: str, given: Any, method: str) -> Callable[[str, Headers, Any], Any]:
    call = getattr(given, method, given)
    match _count_arguments(call):
        case 1:
            return lambda topic, headers, value: call(value)
        case 2:
            return lambda topic, headers, value: call(topic, value)
        case 3:
            return call  # type: ignore[no-any-return]
    raise SettingError(
        f"{option} {given!r} cannot be called with (value), (topic, value) or (topic, headers, value); "
        f"give a function of that form, or an object with a method {method}"
    )


def _count_arguments(call: Any) -> int | None:
    """Return with how many values to call: as many as have no default, at least one, three for ``*args``."""
    if not callable(call):
        return None
    try:
        parameters = inspect.signature(call).parameters.values()
    except ValueError:
        # some functions in C do not say; they are converters such as int
        return 1
    kinds = inspect.Parameter
    positional = [each for each in parameters if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    required = sum(each.default is kinds.empty for each in positional)
    if any(each.kind is kinds.KEYWORD_ONLY and each.default is kinds.empty for each in parameters):
        return None
    if any(each.kind is kinds.VAR_POSITIONAL for each in parameters):
        return 3 if required <= 3 else None
    count = max(required, 1)
    return count if count <= min(len(positional), 3) else None


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
        raise LocalError(
            f"the value for topic {topic!r} cannot be JSON: {error}; give the producer a value_serializer"
        ) from None


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
