"""Routines of ``kernels.py``: one header value as a number or an instant. ``rules.py`` says the same readably.

Each returns a status of ``rules`` and the value. ``data`` is an address: Numba would count references to an array
around each call. In bounds throughout: all loads are at ``at`` to ``at + size``, which callers guarantee, and a load of
a known width comes after a test that ``size`` is that width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.big_endian import swapped64
from ..kernels.memory import load8, load16, load32, load64
from ..kernels.signature import Address, int64, routine, uint32, uint64
from ..model.kinds import Kind
from .rules import BAD, LEFT, OK

_BOOL, _FLOAT32, _FLOAT64 = int(Kind.BOOL), int(Kind.FLOAT32), int(Kind.FLOAT64)
_INT8, _INT16, _INT32, _INT64, _INT128 = map(int, (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.INT128))
_UINT8, _UINT16, _UINT32 = int(Kind.UINT8), int(Kind.UINT16), int(Kind.UINT32)
_UINT64, _UINT128 = int(Kind.UINT64), int(Kind.UINT128)
_PLUS, _MINUS, _DOT, _ZERO, _COLON, _T, _Z, _SPACE = b"+-.0:TZ "
_LOWER = uint32(0x20202020)
_TRUE, _FALS = uint32(int.from_bytes(b"true", "little")), uint32(int.from_bytes(b"fals", "little"))
_LOWER_E = ord("e")
_DIGITS_EXACT = 18
"""This many decimal digits always fit an int64."""
_MANTISSA_MAX = 1 << 53
_POWERS = np.array([10.0**exponent for exponent in range(23)])
"""Powers of ten that a double holds exactly: one operation on exact operands rounds once (Clinger's fast path)."""
_DAY_S, _HOUR_S, _SECOND_US = 86_400, 3600, 1_000_000


@routine
def read_float(data: Address, at: int, size: int, big_endian: bool) -> Any:
    """Return a float of 8 or else 4 bytes as a float64."""
    if size == 8:
        word = uint64(load64(data, at))
        return np.uint64(swapped64(word) if big_endian else word).view(np.float64)
    short = uint64(load32(data, at))
    return np.float64(np.uint32(swapped64(short) >> uint64(32) if big_endian else short).view(np.float32))


@routine
def read_signed(data: Address, at: int, size: int, big_endian: bool) -> int:
    """Return the two's complement number of 1 to 8 bytes."""
    value = uint64(0)
    for index in range(size):
        position = at + index if big_endian else at + size - 1 - index
        value = (value << uint64(8)) | uint64(load8(data, position))
    spare = int64(64 - 8 * size)
    return (int64(value) << spare) >> spare


@routine
def _whole_of_float(value: float) -> tuple[int, int]:
    """Take a double as a whole number, which it must be."""
    if not np.isfinite(value) or np.floor(value) != value:
        return BAD, int64(0)
    if value < -9223372036854775808.0 or value >= 9223372036854775808.0:
        return LEFT, int64(0)
    return OK, int64(value)


@routine
def read_whole(data: Address, at: int, size: int, kind: int) -> tuple[int, int]:
    """Read a value of a number kind (bool to float64) as a whole number."""
    if kind == _INT64 and size == 8:
        return OK, int64(load64(data, at))
    if kind == _INT32 and size == 4:
        return OK, int64(np.int32(load32(data, at)))
    if kind == _INT16 and size == 2:
        return OK, int64(np.int16(load16(data, at)))
    if kind == _INT8 and size == 1:
        return OK, int64(np.int8(load8(data, at)))
    if kind == _UINT64 and size == 8:
        value = int64(load64(data, at))
        return (OK, value) if value >= 0 else (LEFT, int64(0))
    if kind == _UINT32 and size == 4:
        return OK, int64(load32(data, at))
    if kind == _UINT16 and size == 2:
        return OK, int64(load16(data, at))
    if kind == _UINT8 and size == 1:
        return OK, int64(load8(data, at))
    if kind == _BOOL and size == 1 and load8(data, at) <= 1:
        return OK, int64(load8(data, at))
    if kind in (_INT128, _UINT128) and size == 16:
        low, high = int64(load64(data, at)), int64(load64(data, at + 8))
        fits = (high == 0 and low >= 0) or (high == -1 and low < 0 and kind == _INT128)
        return (OK, low) if fits else (LEFT, int64(0))
    if kind == _FLOAT64 and size == 8:
        return _whole_of_float(read_float(data, at, 8, False))
    if kind == _FLOAT32 and size == 4:
        return _whole_of_float(read_float(data, at, 4, False))
    return BAD, int64(0)


@routine
def _read_digits(data: Address, at: int, count: int) -> int:
    """Return the number of ``count`` decimal digits, or -1."""
    value: Any = 0
    for position in range(at, at + count):
        digit = int64(load8(data, position)) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return int64(value)


@routine
def read_whole_text(data: Address, at: int, size: int) -> tuple[int, int]:
    """Read decimal digits with or without a sign."""
    end = at + size
    negative = False
    if size > 0:
        first = load8(data, at)
        if first in (_MINUS, _PLUS):
            negative = first == _MINUS
            at += 1
    if at == end:
        return BAD, int64(0)
    value = int64(0)
    for position in range(at, end):
        digit = int64(load8(data, position)) - _ZERO
        if digit < 0 or digit > 9:
            return BAD, int64(0)
        if position - at < _DIGITS_EXACT:
            value = value * 10 + digit
    if end - at > _DIGITS_EXACT:
        return LEFT, int64(0)
    return OK, -value if negative else value


@routine
def read_boolean_text(data: Address, at: int, size: int) -> tuple[int, int]:
    """Read true or false (any case), 1 or 0."""
    if size == 1:
        digit = int64(load8(data, at)) - _ZERO
        if digit == 0 or digit == 1:
            return OK, digit
    elif size == 4:
        if load32(data, at) | _LOWER == _TRUE:
            return OK, int64(1)
    elif size == 5 and load32(data, at) | _LOWER == _FALS and load8(data, at + 4) | 0x20 == _LOWER_E:
        return OK, int64(0)
    return BAD, int64(0)


@routine
def read_float_text(data: Address, at: int, size: int) -> tuple[int, float]:
    """Read a short decimal text; LEFT for what needs more care, good or bad."""
    end = at + size
    negative = False
    if size > 0:
        first = load8(data, at)
        if first in (_MINUS, _PLUS):
            negative = first == _MINUS
            at += 1
    mantissa: Any = 0
    digits, places, dots = 0, 0, 0
    while at < end:
        byte = int64(load8(data, at))
        if byte == _DOT and dots == 0:
            dots = 1
        elif _ZERO <= byte <= _ZERO + 9 and digits < _DIGITS_EXACT:
            mantissa = mantissa * 10 + byte - _ZERO
            digits += 1
            places += dots
        else:
            return LEFT, 0.0
        at += 1
    if digits == 0 or mantissa > _MANTISSA_MAX:
        return LEFT, 0.0
    value = np.float64(mantissa) / _POWERS[places]
    return OK, -value if negative else value


@routine
def read_decimal_text(data: Address, at: int, size: int, scale: int, limit: int) -> tuple[int, int]:
    """Read digits, with a point inside maybe, as a number times 10 ** ``scale`` below ``limit``; others are LEFT."""
    left = LEFT, int64(0)
    end = at + size
    negative = False
    if at < end and (load8(data, at) == _PLUS or load8(data, at) == _MINUS):
        negative = load8(data, at) == _MINUS
        at += 1
    first = at
    value = int64(0)
    while at < end and at - first <= _DIGITS_EXACT and 0 <= int64(load8(data, at)) - _ZERO <= 9:
        value = value * 10 + int64(load8(data, at)) - _ZERO
        at += 1
    if at == first or at - first + scale > _DIGITS_EXACT:
        return left
    places = int64(0)
    if at < end and load8(data, at) == _DOT:
        at += 1
        while at < end and places < scale and 0 <= int64(load8(data, at)) - _ZERO <= 9:
            value = value * 10 + int64(load8(data, at)) - _ZERO
            places += 1
            at += 1
        if places == 0:
            return left
    if at != end:
        return left
    for _ in range(places, scale):
        value *= 10
    if value >= limit:
        return left
    return OK, -value if negative else value


@routine
def _count_days(year: int, month: int, day: int) -> int:
    """Count the days since 1970 of a Gregorian date, with years that begin in March."""
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719469


@routine
def _month_days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@routine
def _read_clock(data: Address, at: int, end: int) -> tuple[int, int]:
    """Read ``(T| )hh:mm[:ss[.f]]``: microseconds of the day and the position after it (-1: invalid)."""
    wrong = int64(0), int64(-1)
    if end - at < 6 or (load8(data, at) != _T and load8(data, at) != _SPACE) or load8(data, at + 3) != _COLON:
        return wrong
    hour, minute, second = _read_digits(data, at + 1, 2), _read_digits(data, at + 4, 2), 0
    micros: Any = 0
    at += 6
    if at < end and load8(data, at) == _COLON:
        if end - at < 3:
            return wrong
        second = _read_digits(data, at + 1, 2)
        at += 3
        if at < end and load8(data, at) == _DOT:
            at += 1
            places = 0
            while at < end and 0 <= int64(load8(data, at)) - _ZERO <= 9:
                if places < 6:
                    micros = micros * 10 + int64(load8(data, at)) - _ZERO
                places += 1
                at += 1
            if places == 0 or places > 9:
                return wrong
            for _ in range(places, 6):
                micros *= 10
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return wrong
    return (hour * _HOUR_S + minute * 60 + second) * _SECOND_US + micros, at


@routine
def _read_zone(data: Address, at: int, end: int) -> tuple[int, int]:
    """Read ``Z`` or ``±hh[[:]mm]``: seconds east of UTC and the position after it (-1: invalid)."""
    wrong = int64(0), int64(-1)
    sign = load8(data, at)
    if sign == _Z:
        return int64(0), at + 1
    if (sign != _PLUS and sign != _MINUS) or end - at < 3:
        return wrong
    hours, minutes = _read_digits(data, at + 1, 2), 0
    at += 3
    if at < end:
        if load8(data, at) == _COLON:
            at += 1
        if end - at < 2:
            return wrong
        minutes = _read_digits(data, at, 2)
        at += 2
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return wrong
    zone = hours * _HOUR_S + minutes * 60
    return zone if sign == _PLUS else -zone, at


@routine
def read_instant_text(data: Address, at: int, size: int) -> tuple[int, int]:
    """Read ``YYYY-MM-DD[(T| )hh:mm[:ss[.f]][Z|±hh[[:]mm]]]`` as microseconds since 1970 UTC."""
    end = at + size
    wrong = BAD, int64(0)
    if size < 10 or load8(data, at + 4) != _MINUS or load8(data, at + 7) != _MINUS:
        return wrong
    year, month, day = _read_digits(data, at, 4), _read_digits(data, at + 5, 2), _read_digits(data, at + 8, 2)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > _month_days(year, month):
        return wrong
    micros = _count_days(year, month, day) * _DAY_S * _SECOND_US
    at += 10
    if at == end:
        return OK, micros
    clock, at = _read_clock(data, at, end)
    if at < 0:
        return wrong
    zone = int64(0)
    if at < end:
        zone, at = _read_zone(data, at, end)
    if at != end:
        return wrong
    return OK, micros + clock - zone * _SECOND_US
