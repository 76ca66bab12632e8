"""The typing rules, one value at a time: what a header value is as a number, an instant or text.

This is the readable statement of docs/reference/contract; kernels do the same in bulk and hand over what is rare
(128-bit integers, long texts). None means that the value cannot be read as asked.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Final

from ..model.errors import CorruptError
from ..model.kinds import FIXED_SIZE_BYTES, Kind, decode_value


class Text(IntEnum):
    """The form that a text is read as on its way to a whole number."""

    NUMBER = 0
    BOOLEAN = 1
    INSTANT = 2


class Raw(IntEnum):
    """Readings of the bytes of a value that declares no type."""

    TEXT = 0
    LE = 1
    BE = 2


ABSENT, OK, BAD, LEFT = range(4)
"""Status of a row: no value; converted; a value that cannot be; one that the caller converts by the rules."""

DECIMAL_MAX: Final = 10**38 - 1
ANY_WIDTH: Final = 0
"""``width`` of a binary number of 1 to 16 bytes, as Java's BigInteger writes them."""

_BOOLEAN_WORDS: Final = {b"true": 1, b"1": 1, b"false": 0, b"0": 0}
_WHOLE: Final = re.compile(rb"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_INSTANT: Final = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d\d)(?::?(\d\d))?)?)?"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_BYTES_MAX: Final = 4096
"""A longer text is not read as a number: int() takes quadratic time over it."""


def read_integer(kind: int, data: bytes, text: Text, raw: Raw, width: int) -> int | None:
    """The value as a whole number; microseconds since 1970 if ``text`` is INSTANT; True is 1.

    Floats count if they are whole. ``width`` is the size in bytes that a raw binary number must have.
    """
    if kind in FIXED_SIZE_BYTES:
        try:
            value = decode_value(kind, data)
        except CorruptError:
            return None
        assert isinstance(value, int | float)
        return int(value) if isinstance(value, int) or value.is_integer() else None
    if raw is not Raw.TEXT and kind != Kind.STRING:
        if len(data) == width or (width == ANY_WIDTH and 1 <= len(data) <= 16):
            return int.from_bytes(data, "little" if raw is Raw.LE else "big", signed=True)
        return None
    if text is Text.BOOLEAN:
        return _BOOLEAN_WORDS.get(data.lower())
    if _WHOLE.fullmatch(data):
        return int(data) if len(data) <= _TEXT_BYTES_MAX else None
    return read_instant(data) if text is Text.INSTANT else None


def read_float(kind: int, data: bytes, raw: Raw, width: int) -> float | None:
    """The value as a double, rounded to nearest; NaN and infinities are kept, a text beyond the range is None."""
    if kind in FIXED_SIZE_BYTES:
        try:
            value = decode_value(kind, data)
        except CorruptError:
            return None
        assert isinstance(value, int | float)
        return float(value)
    if raw is not Raw.TEXT and kind != Kind.STRING:
        number = Kind.FLOAT32 if width == 4 else Kind.FLOAT64
        ordered = data if raw is Raw.LE else data[::-1]
        return read_float(number, ordered, raw, width)
    if _DECIMAL.fullmatch(data) and len(data) <= _TEXT_BYTES_MAX:
        number_value = float(data)
        return None if number_value in (float("inf"), float("-inf")) else number_value
    return float(data) if _NOT_FINITE.fullmatch(data) else None


def read_instant(data: bytes) -> int | None:
    """Microseconds since 1970 UTC of an ISO 8601 text; without an offset it is UTC, finer digits are cut."""
    match = _INSTANT.fullmatch(data)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = match.groups()
    offset = timedelta(hours=int(zone_hours or 0), minutes=int(zone_minutes or 0))
    if int(zone_hours or 0) > 23 or int(zone_minutes or 0) > 59:
        return None
    try:
        zone = timezone(-offset if sign == b"-" else offset)
        local = datetime(*(int(part or 0) for part in (year, month, day, hour, minute, second)), tzinfo=zone)  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    since: timedelta = local.replace(tzinfo=UTC) - _EPOCH - offset * (-1 if sign == b"-" else 1)
    return since // timedelta(microseconds=1) + int((fraction or b"0").ljust(6, b"0")[:6])
