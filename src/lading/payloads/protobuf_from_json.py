"""JSON texts as messages of Protobuf by its JSON mapping, one by one; errors give the path of the value that does not
fit.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from ..model.errors import LocalError
from ..model.limits import INSTANT_MAX_US, INSTANT_MIN_US
from ..schemas.protobuf_types import FieldType, MessageType
from .protobuf_json import WELL_KNOWN, write_duration, write_message, write_tag, write_varint

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(1 << 31), (1 << 31) - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(1 << 63), (1 << 63) - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, (1 << 32) - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, (1 << 64) - 1)),
}
_FIXED: Final = {"fixed32": "<I", "sfixed32": "<i", "fixed64": "<Q", "sfixed64": "<q", "float": "<f", "double": "<d"}
_FLOAT_WORDS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_FLOAT_END: Final = (1 << 128) - (1 << 103)
"""The smallest number that rounds to an infinite float."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")
_MOMENT: Final = re.compile(r"(.*T\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_SPAN: Final = re.compile(r"(-?)(\d{1,12})(?:\.(\d{1,9}))?s")
_CAPITAL: Final = re.compile(r"[A-Z]")
_ENUM_MAX: Final = 1 << 31


class _Misfit(Exception):
    """A value does not fit its field: the path to it, and a sentence."""

    def __init__(self, path: str, sentence: str) -> None:
        # half a surrogate pair cannot be encoded in UTF-8
        super().__init__(f"{path or 'the payload'} {sentence}".encode(errors="backslashreplace").decode())


def encode_json(message: MessageType, text: bytes) -> bytes:
    """Return a JSON text as a message. Raises LocalError with the path of a value that does not fit.

    Fields have their names in the schema, or those of JSON; a null is an absent field. Bytes are Base64, enums names or
    numbers, a Timestamp an ISO text, a Duration ``1.5s``, a wrapper its value, a FieldMask its paths
    with commas; numbers of 64 bits may be texts.
    """
    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except InvalidOperation:
        raise LocalError("payload: a number has an exponent that is too large; write it with fewer digits") from None
    except (ValueError, RecursionError) as error:
        raise LocalError(f"payload: not JSON: {error}; write it as JSON, as the schema is applied to that") from None
    try:
        return _encode_message(message, value, "")
    except _Misfit as misfit:
        raise LocalError(f"payload: {misfit}; correct the value, or name another schema") from None
    except RecursionError:
        raise LocalError("payload: nested too deep for its schema; send it with fewer levels") from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _encode_message(message: MessageType, value: Any, path: str) -> bytes:
    convert = _CONVERTED.get(message.name)
    if convert is not None:
        return convert(message, value, path)
    if not isinstance(value, dict):
        raise _Misfit(path, f"is {_show(value)}, which is not an object ({message.name})")
    by_name = {one.json_name or _write_json_name(one.name): one for one in message.fields} | message.by_name
    parts: dict[int, bytes] = {}
    chosen: dict[str, str] = {}
    for name, item in value.items():
        field = by_name.get(name)
        if field is None:
            raise _Misfit(_join(path, name), f"is not a field of {message.name}; it has {', '.join(message.by_name)}")
        if item is None and not _has_null(field):
            continue
        if field.number in parts:
            raise _Misfit(_join(path, name), "is there twice, by its name in the schema and that of JSON")
        if field.oneof is not None:
            if field.oneof in chosen:
                raise _Misfit(_join(path, name), f"and {chosen[field.oneof]} are of one oneof, {field.oneof}")
            chosen[field.oneof] = name
        parts[field.number] = _encode_field(field, item, _join(path, name))
    if lacking := next((one for one in message.fields if one.is_required and one.number not in parts), None):
        raise _Misfit(_join(path, lacking.name), "is missing, and required")
    return b"".join(parts[number] for number in sorted(parts))


def _has_null(field: FieldType) -> bool:
    """Return whether a null is a value of a field."""
    return not field.is_repeated and (
        (field.message is not None and field.message.name == f"{WELL_KNOWN}Value")
        or (field.enum is not None and field.enum.name == f"{WELL_KNOWN}NullValue")
    )


def _encode_field(field: FieldType, value: Any, path: str) -> bytes:
    if field.is_map:
        assert field.message is not None
        if not isinstance(value, dict):
            raise _Misfit(path, f"is {_show(value)}, which is not an object")
        key, item = field.message.by_number[1], field.message.by_number[2]
        entries = (
            _encode_single(key, _read_key(key, name), _join(path, name)) + _encode_single(item, one, _join(path, name))
            for name, one in value.items()
        )
        return b"".join(write_tag(field) + _write_sized(entry) for entry in entries)
    if not field.is_repeated:
        # a field without presence is not written if it has its default
        return _encode_single(field, value, path, is_implicit=not field.has_presence)
    if not isinstance(value, list):
        raise _Misfit(path, f"is {_show(value)}, which is not an array")
    if not field.is_packed:
        return b"".join(_encode_single(field, one, f"{path}[{at}]") for at, one in enumerate(value))
    packed = b"".join(_encode_value(field, one, f"{path}[{at}]") for at, one in enumerate(value))
    return write_varint(field.number << 3 | 2) + _write_sized(packed) if packed else b""


def _read_key(field: FieldType, name: str) -> Any:
    return {"true": True, "false": False}.get(name, name) if field.kind == "bool" else name


def _encode_single(field: FieldType, value: Any, path: str, *, is_implicit: bool = False) -> bytes:
    held = _encode_value(field, value, path)
    is_sized = field.kind in ("string", "bytes", "message")
    if is_implicit and field.message is None and not (held if is_sized else held.strip(b"\0")):
        return b""
    if field.message is not None:
        return write_message(field, held)
    return write_tag(field) + (_write_sized(held) if is_sized else held)


def _write_sized(held: bytes) -> bytes:
    return write_varint(len(held)) + held


def _encode_value(field: FieldType, value: Any, path: str) -> bytes:
    """Return a value without its tag and length."""
    if field.message is not None:
        return _encode_message(field.message, value, path)
    if field.enum is not None:
        return write_varint(_read_enum(field, value, path))
    if field.kind in _RANGES:
        number = _read_whole(field, value, path)
        if field.kind in _FIXED:
            return struct.pack(_FIXED[field.kind], number)
        if field.kind.startswith("sint"):
            number = (number << 1) ^ (number >> 63)
        return write_varint(number)
    if field.kind in _FIXED:
        return struct.pack(_FIXED[field.kind], _read_float(field, value, path))
    if field.kind == "bool" and isinstance(value, bool):
        return write_varint(int(value))
    if field.kind == "string" and isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise _Misfit(path, "is not a text of Unicode") from None
    if field.kind == "bytes" and isinstance(value, str):
        try:
            return base64.b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise _Misfit(path, f"is {_show(value)}, which is not Base64") from None
    raise _Misfit(path, f"is {_show(value)}, which is not a {field.kind}")


def _read_enum(field: FieldType, value: Any, path: str) -> int:
    enum = field.enum
    assert enum is not None
    if value is None and _has_null(field):
        return 0
    if isinstance(value, str) and value in enum.numbers:
        return enum.numbers[value]
    is_number = isinstance(value, int) and not isinstance(value, bool) and -_ENUM_MAX <= value < _ENUM_MAX
    if is_number and (value in enum.names or not enum.is_closed):
        return int(value)
    raise _Misfit(path, f"is {_show(value)}, which is not one of {', '.join(enum.numbers)}")


def _read_whole(field: FieldType, value: Any, path: str) -> int:
    low, high = _RANGES[field.kind]
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    is_number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or value != int(value):
        raise _Misfit(path, f"is {_show(value)}, which is not a {field.kind}")
    return int(value)


def _read_float(field: FieldType, value: Any, path: str) -> float:
    if isinstance(value, str) and value in _FLOAT_WORDS:
        return _FLOAT_WORDS[value]
    is_number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if is_number:
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        # the number as a double: a little below the limit may round to it
        if abs(number) < (_FLOAT_END if field.kind == "float" else float("inf")):
            return number
    raise _Misfit(path, f"is {_show(value)}, which is not a {field.kind}")


def _encode_timestamp(message: MessageType, value: Any, path: str) -> bytes:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    try:
        if found is None:
            raise ValueError
        moment = datetime.fromisoformat(found[1] + (found[3] or "Z"))
        since = moment - _EPOCH
        if not INSTANT_MIN_US <= since // _MICROSECOND <= INSTANT_MAX_US:
            raise ValueError
    except (ValueError, OverflowError):
        raise _Misfit(path, f"is {_show(value)}, which is not a time such as 2026-01-31T12:00:00Z") from None
    return _write_time(message, since.days * 86_400 + since.seconds, int((found[2] or "").ljust(9, "0")))


def _encode_duration(message: MessageType, value: Any, path: str) -> bytes:
    found = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        sign = -1 if found[1] else 1
        seconds, nanos = sign * int(found[2]), sign * int((found[3] or "").ljust(9, "0"))
        if write_duration(seconds, nanos) is not None:
            return _write_time(message, seconds, nanos)
    raise _Misfit(path, f"is {_show(value)}, which is not a duration such as 1.5s")


def _write_time(message: MessageType, seconds: int, nanos: int) -> bytes:
    pairs = zip((1, 2), (seconds, nanos), strict=True)
    return b"".join(write_tag(message.by_number[number]) + write_varint(value) for number, value in pairs if value)


def _encode_wrapped(message: MessageType, value: Any, path: str) -> bytes:
    return _encode_field(message.by_number[1], value, path)


def _encode_struct(message: MessageType, value: Any, path: str) -> bytes:
    return _encode_field(message.by_name["fields"], value, path)


def _encode_list(message: MessageType, value: Any, path: str) -> bytes:
    return _encode_field(message.by_name["values"], value, path)


def _encode_mask(message: MessageType, value: Any, path: str) -> bytes:
    if not isinstance(value, str):
        raise _Misfit(path, f"is {_show(value)}, which is not a text of paths such as a,b.c")
    # the names in JSON are lowerCamelCase
    paths = _CAPITAL.sub(lambda found: f"_{found[0].lower()}", value).split(",") if value else []
    return _encode_field(message.by_name["paths"], paths, path)


def _encode_any_value(message: MessageType, value: Any, path: str) -> bytes:
    names = (
        (bool, "bool_value"), (str, "string_value"), ((int, Decimal), "number_value"), (dict, "struct_value"),
        (list, "list_value"),
    )  # fmt: skip
    name = next((name for type_, name in names if isinstance(value, type_)), "null_value")
    return _encode_field(message.by_name[name], value, path)


_CONVERTED: Final[Mapping[str, Callable[[MessageType, Any, str], bytes]]] = {
    f"{WELL_KNOWN}Timestamp": _encode_timestamp,
    f"{WELL_KNOWN}Duration": _encode_duration,
    f"{WELL_KNOWN}Struct": _encode_struct,
    f"{WELL_KNOWN}ListValue": _encode_list,
    f"{WELL_KNOWN}Value": _encode_any_value,
    f"{WELL_KNOWN}FieldMask": _encode_mask,
    **{
        f"{WELL_KNOWN}{name}Value": _encode_wrapped
        for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    },
}
"""Functions that encode the JSON form of special messages, by name."""


def _write_json_name(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in tail)


def _show(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
