"""Header values to typed columns in bulk; ``fallback.py`` says the same in plain Python, ``rules.py`` value by value.

Nothing here looks at bytes outside ``data[start : start + length]`` of a row; the caller has checked these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from ..kernels.memory import load8, load16, load32, load64, memcpy

ABSENT, OK, BAD, LEFT = range(4)
_NUMBER, _BOOLEAN, _INSTANT = range(3)
_AS_TEXT, _AS_LE, _AS_BE = range(3)
_STRING, _BOOL, _INT8, _INT16, _INT32, _INT64, _INT128 = range(2, 9)
_UINT8, _UINT16, _UINT32, _UINT64, _UINT128, _FLOAT32, _FLOAT64 = range(9, 16)
_PLUS, _MINUS, _DOT, _ZERO, _COLON, _T, _Z, _SPACE = 43, 45, 46, 48, 58, 84, 90, 32
_DIGITS_EXACT = 18
_MANTISSA_MAX = 1 << 53
_POWERS = np.array([10.0**exponent for exponent in range(23)])
"""Powers of ten that a double holds exactly: one operation on exact operands rounds once (Clinger's fast path)."""

_MIX, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_STEPS_MAX = 64
"""Values made to meet in one place of a table cost this much each, not as much as there are of them."""

_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_ints = types.Array(types.int32, 1, "C", readonly=True)
_tiny = types.Array(types.int8, 1, "C", readonly=True)
_counts = types.UniTuple(types.int64, 2)


@njit(nogil=True)
def _float32(data: Any, at: Any) -> Any:
    return np.float64(np.uint32(load32(data, at)).view(np.float32))


@njit(nogil=True)
def _float64(data: Any, at: Any) -> Any:
    return np.uint64(load64(data, at)).view(np.float64)


@njit(nogil=True)
def _digits(data: Any, at: Any, count: Any) -> Any:
    """The number of ``count`` decimal digits, or -1."""
    value: Any = 0
    for position in range(at, at + count):
        digit = np.int64(load8(data, position)) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@njit(nogil=True)
def _whole_text(data: Any, at: Any, size: Any) -> Any:
    """(status, value) of a text of decimal digits with or without a sign."""
    end = at + size
    negative = False
    if size > 0:
        first = load8(data, at)
        if first in (_MINUS, _PLUS):
            negative = first == _MINUS
            at += 1
    if at == end:
        return BAD, np.int64(0)
    value = np.int64(0)
    for position in range(at, end):
        digit = np.int64(load8(data, position)) - _ZERO
        if digit < 0 or digit > 9:
            return BAD, np.int64(0)
        if position - at < _DIGITS_EXACT:
            value = value * 10 + digit
    if end - at > _DIGITS_EXACT:
        return LEFT, np.int64(0)
    return OK, -value if negative else value


@njit(nogil=True)
def _boolean_text(data: Any, at: Any, size: Any) -> Any:
    """(status, value) of true, false (any case), 1 and 0."""
    lower = np.uint32(0x20202020)
    if size == 1:
        digit = np.int64(load8(data, at)) - _ZERO
        if digit == 0 or digit == 1:
            return OK, digit
    elif size == 4:
        if load32(data, at) | lower == np.uint32(0x65757274):
            return OK, np.int64(1)
    elif size == 5 and load32(data, at) | lower == np.uint32(0x736C6166) and load8(data, at + 4) | 0x20 == 0x65:
        return OK, np.int64(0)
    return BAD, np.int64(0)


@njit(nogil=True)
def _days(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970 of a Gregorian date, with years that begin in March."""
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719469


@njit(nogil=True)
def _month_days(year: Any, month: Any) -> Any:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@njit(nogil=True)
def _instant_text(data: Any, at: Any, size: Any) -> Any:
    """(status, microseconds since 1970 UTC) of ``YYYY-MM-DD[(T| )hh:mm[:ss[.f]][Z|±hh[[:]mm]]]``."""
    end = at + size
    wrong = BAD, np.int64(0)
    if size < 10 or load8(data, at + 4) != _MINUS or load8(data, at + 7) != _MINUS:
        return wrong
    year, month, day = _digits(data, at, 4), _digits(data, at + 5, 2), _digits(data, at + 8, 2)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > _month_days(year, month):
        return wrong
    seconds = _days(year, month, day) * 86400
    micros: Any = 0
    at += 10
    if at == end:
        return OK, seconds * 1000000
    if end - at < 6 or (load8(data, at) != _T and load8(data, at) != _SPACE) or load8(data, at + 3) != _COLON:
        return wrong
    hour, minute, second = _digits(data, at + 1, 2), _digits(data, at + 4, 2), 0
    at += 6
    if at < end and load8(data, at) == _COLON:
        if end - at < 3:
            return wrong
        second = _digits(data, at + 1, 2)
        at += 3
        if at < end and load8(data, at) == _DOT:
            at += 1
            places = 0
            while at < end and 0 <= np.int64(load8(data, at)) - _ZERO <= 9:
                if places < 6:
                    micros = micros * 10 + np.int64(load8(data, at)) - _ZERO
                places += 1
                at += 1
            if places == 0 or places > 9:
                return wrong
            for _ in range(places, 6):
                micros *= 10
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return wrong
    seconds += hour * 3600 + minute * 60 + second
    if at < end and load8(data, at) == _Z:
        at += 1
    elif at < end:
        sign = load8(data, at)
        if (sign != _PLUS and sign != _MINUS) or end - at < 3:
            return wrong
        zone_hours, zone_minutes = _digits(data, at + 1, 2), 0
        at += 3
        if at < end:
            if load8(data, at) == _COLON:
                at += 1
            if end - at < 2:
                return wrong
            zone_minutes = _digits(data, at, 2)
            at += 2
        if zone_hours < 0 or zone_hours > 23 or zone_minutes < 0 or zone_minutes > 59:
            return wrong
        zone = zone_hours * 3600 + zone_minutes * 60
        seconds -= zone if sign == _PLUS else -zone
    if at != end:
        return wrong
    return OK, seconds * 1000000 + micros


@njit(nogil=True)
def _whole_float(value: Any) -> Any:
    """(status, value) of a double that must be whole."""
    if not np.isfinite(value) or np.floor(value) != value:
        return BAD, np.int64(0)
    if value < -9223372036854775808.0 or value >= 9223372036854775808.0:
        return LEFT, np.int64(0)
    return OK, np.int64(value)


@njit(nogil=True)
def _signed(data: Any, at: Any, size: Any, big_endian: Any) -> Any:
    """The two's complement number of 1 to 8 bytes."""
    value = np.uint64(0)
    for index in range(size):
        position = at + index if big_endian else at + size - 1 - index
        value = (value << np.uint64(8)) | np.uint64(load8(data, position))
    spare = np.int64(64 - 8 * size)
    return (np.int64(value) << spare) >> spare


@njit(nogil=True)
def _whole_kind(data: Any, at: Any, size: Any, kind: Any) -> Any:
    """(status, value) of a value of a number kind (bool to float64)."""
    if kind == _INT64 and size == 8:
        return OK, np.int64(load64(data, at))
    if kind == _INT32 and size == 4:
        return OK, np.int64(np.int32(load32(data, at)))
    if kind == _INT16 and size == 2:
        return OK, np.int64(np.int16(load16(data, at)))
    if kind == _INT8 and size == 1:
        return OK, np.int64(np.int8(load8(data, at)))
    if kind == _UINT64 and size == 8:
        value = np.int64(load64(data, at))
        return (OK, value) if value >= 0 else (LEFT, np.int64(0))
    if kind == _UINT32 and size == 4:
        return OK, np.int64(load32(data, at))
    if kind == _UINT16 and size == 2:
        return OK, np.int64(load16(data, at))
    if kind == _UINT8 and size == 1:
        return OK, np.int64(load8(data, at))
    if kind == _BOOL and size == 1 and load8(data, at) <= 1:
        return OK, np.int64(load8(data, at))
    if kind in (_INT128, _UINT128) and size == 16:
        low, high = np.int64(load64(data, at)), np.int64(load64(data, at + 8))
        fits = (high == 0 and low >= 0) or (high == -1 and low < 0 and kind == _INT128)
        return (OK, low) if fits else (LEFT, np.int64(0))
    if kind == _FLOAT64 and size == 8:
        return _whole_float(_float64(data, at))
    if kind == _FLOAT32 and size == 4:
        return _whole_float(_float32(data, at))
    return BAD, np.int64(0)


@njit(
    _counts(
        _bytes, _longs, _longs, _tiny, types.int64, types.int64, types.int64, types.int64, types.int64,
        types.int64[::1], types.uint8[::1],
    ),
    nogil=True, cache=True,
)  # fmt: skip
def take_integers(
    data: Any, start: Any, length: Any, kind: Any, text: Any, raw: Any, width: Any, low: Any, high: Any,
    values: Any, status: Any,
) -> Any:  # fmt: skip
    """See twin.take_integers."""
    good = left = 0
    for row in range(length.size):
        at, size, code = start[row], length[row], np.int64(kind[row])
        verdict, value = ABSENT, np.int64(0)
        if size >= 0:
            if _BOOL <= code <= _FLOAT64:
                verdict, value = _whole_kind(data, at, size, code)
            elif raw != _AS_TEXT and code != _STRING:
                if size != width and (width != 0 or size < 1 or size > 16):
                    verdict = BAD
                elif size > 8:
                    verdict = LEFT
                else:
                    verdict, value = OK, _signed(data, at, size, raw == _AS_BE)
            elif text == _BOOLEAN:
                verdict, value = _boolean_text(data, at, size)
            else:
                verdict, value = _whole_text(data, at, size)
                if verdict == BAD and text == _INSTANT:
                    verdict, value = _instant_text(data, at, size)
            if verdict == OK and (value < low or value > high):
                verdict, value = BAD, np.int64(0)
        values[row] = value
        status[row] = verdict
        good += verdict == OK
        left += verdict == LEFT
    return good, left


@njit(nogil=True)
def _float_text(data: Any, at: Any, size: Any) -> Any:
    """(status, value) of a short decimal text; LEFT for what needs more care, good or bad."""
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
        byte = np.int64(load8(data, at))
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


@njit(
    _counts(
        _bytes, _longs, _longs, _tiny, types.int64, types.int64, types.float64[::1], types.uint8[::1]
    ),
    nogil=True, cache=True,
)  # fmt: skip
def take_floats(data: Any, start: Any, length: Any, kind: Any, raw: Any, width: Any, values: Any, status: Any) -> Any:
    """See twin.take_floats; this one leaves long and rare texts and integers above 64 bits."""
    good = left = 0
    for row in range(length.size):
        at, size, code = start[row], length[row], np.int64(kind[row])
        verdict, value = ABSENT, 0.0
        if size >= 0:
            if code == _FLOAT64:
                if size == 8:
                    verdict, value = OK, _float64(data, at)
                else:
                    verdict = BAD
            elif code == _FLOAT32:
                if size == 4:
                    verdict, value = OK, _float32(data, at)
                else:
                    verdict = BAD
            elif _BOOL <= code <= _UINT128:
                verdict, integer = _whole_kind(data, at, size, code)
                value = np.float64(integer)
            elif raw != _AS_TEXT and code != _STRING:
                verdict = OK if size == width else BAD
                if verdict == OK and raw == _AS_LE:
                    value = _float64(data, at) if size == 8 else _float32(data, at)
                elif verdict == OK:
                    turned = np.empty(8, np.uint8)
                    for index in range(size):
                        turned[size - 1 - index] = load8(data, at + index)
                    value = _float64(turned, 0) if size == 8 else _float32(turned, 0)
            else:
                verdict, value = _float_text(data, at, size)
        values[row] = value
        status[row] = verdict
        good += verdict == OK
        left += verdict == LEFT
    return good, left


@njit(nogil=True)
def _is_text(data: Any, at: Any, size: Any) -> Any:
    """Whether the bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    end = at + size
    while at + 8 <= end and load64(data, at) & np.uint64(0x8080808080808080) == 0:
        at += 8
    while at < end:
        byte = np.int64(load8(data, at))
        at += 1
        if byte < 0x80:
            continue
        more, low, high = 1, 0x80, 0xBF
        if 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        elif byte < 0xC2 or byte > 0xF4:
            return False
        if end - at < more:
            return False
        for index in range(more):
            follower = np.int64(load8(data, at + index))
            if follower < low or follower > high:
                return False
            low, high = 0x80, 0xBF
        at += more
    return True


@njit(
    _counts(_bytes, _longs, _longs, _tiny, types.boolean, types.int32[::1], types.uint8[::1], types.uint8[::1]),
    nogil=True, cache=True,
)  # fmt: skip
def take_bytes(data: Any, start: Any, length: Any, kind: Any, text: Any, offsets: Any, out: Any, status: Any) -> Any:
    """See twin.take_bytes."""
    good = left = 0
    end = np.int64(0)
    offsets[0] = 0
    for row in range(length.size):
        at, size, code = start[row], length[row], np.int64(kind[row])
        verdict = ABSENT
        if size >= 0:
            if text and _BOOL <= code <= _FLOAT64:
                verdict = LEFT
            elif text and not _is_text(data, at, size):
                verdict = BAD
            else:
                verdict = OK
                if size <= 8 and at + 8 <= data.size and end + 8 <= out.size:
                    # one move of eight bytes beats a call for a short copy; the next value overwrites the rest
                    memcpy(out, end, data, at, 8)
                else:
                    memcpy(out, end, data, at, size)
                end += size
        offsets[row + 1] = end
        status[row] = verdict
        good += verdict == OK
        left += verdict == LEFT
    return good, left


@njit(inline="always")
def _last_word(data: Any, at: Any, size: Any) -> Any:
    """Up to seven bytes as one number; nothing behind the array is looked at."""
    if at + 8 <= data.size:
        return load64(data, at) & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))
    word = np.uint64(0)
    for index in range(size):
        word |= np.uint64(load8(data, at + index)) << np.uint64(8 * index)
    return word


@njit(nogil=True)
def _hash(data: Any, at: Any, size: Any) -> Any:
    value = np.uint64(size) * _MIX
    rest = size
    while rest >= 8:
        value = (value ^ load64(data, at)) * _MIX
        value ^= value >> _HALF
        at += 8
        rest -= 8
    value = (value ^ _last_word(data, at, rest)) * _MIX
    return value ^ (value >> _HALF)


@njit(nogil=True)
def _equal(data: Any, at: Any, held: Any, place: Any, size: Any) -> Any:
    rest = size
    while rest >= 8:
        if load64(data, at) != load64(held, place):
            return False
        at += 8
        place += 8
        rest -= 8
    return _last_word(data, at, rest) == _last_word(held, place, rest)


@njit(
    _counts(
        _bytes, _longs, _longs, _tiny, types.boolean, types.int32[::1], types.uint64[::1], types.int32[::1],
        types.uint8[::1], types.int32[::1], types.uint8[::1],
    ),
    nogil=True, cache=True,
)  # fmt: skip
def take_places(
    data: Any, start: Any, length: Any, kind: Any, text: Any, slots: Any, hashes: Any, offsets: Any, out: Any,
    places: Any, status: Any,
) -> Any:  # fmt: skip
    """See twin.take_places; this one also gives up where many values meet in one place of its table."""
    good = 0
    distinct = np.int64(0)
    mask = np.int64(slots.size - 1)
    before, before_at, before_size = np.int64(0), np.int64(0), np.int64(-1)
    offsets[0] = 0
    for row in range(length.size):
        at, size = start[row], length[row]
        places[row] = 0
        if size < 0:
            status[row] = ABSENT
            continue
        if text and _BOOL <= np.int64(kind[row]) <= _FLOAT64:
            return good, np.int64(-1)
        if size == before_size and _equal(data, at, data, before_at, size):
            places[row] = before
            status[row] = OK
            good += 1
            continue
        code = _hash(data, at, size)
        slot = np.int64(code) & mask
        found = np.int64(-1)
        steps = 0
        while True:
            entry = np.int64(slots[slot])
            if entry < 0:
                break
            end = np.int64(offsets[entry])
            if hashes[entry] == code and offsets[entry + 1] - end == size and _equal(data, at, out, end, size):
                found = entry
                break
            steps += 1
            if steps == _STEPS_MAX:
                return good, np.int64(-1)
            slot = (slot + 1) & mask
        if found < 0:
            if text and not _is_text(data, at, size):
                status[row] = BAD
                continue
            end = np.int64(offsets[distinct])
            if distinct == hashes.size or size > out.size - end:
                return good, np.int64(-1)
            memcpy(out, end, data, at, size)
            found = distinct
            slots[slot] = found
            hashes[found] = code
            distinct += 1
            offsets[distinct] = end + size
        before, before_at, before_size = found, at, size
        places[row] = found
        status[row] = OK
        good += 1
    return good, distinct


@njit(types.void(_ints, _bytes, _ints, _bytes, types.int64[::1]), nogil=True, cache=True)
def find_last(lists: Any, keys: Any, key_offsets: Any, key: Any, found: Any) -> None:
    """See twin.find_last."""
    size = np.int64(key.size)
    for row in range(found.size):
        found[row] = -1
        for entry in range(lists[row + 1] - 1, lists[row] - 1, -1):
            at = np.int64(key_offsets[entry])
            if key_offsets[entry + 1] - at != size:
                continue
            same = True
            for index in range(size):
                if load8(keys, at + index) != load8(key, index):
                    same = False
                    break
            if same:
                found[row] = entry
                break
