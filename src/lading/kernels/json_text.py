"""JSON inside kernels: where values end, leniently as servers read it, and what they hold.

Strings may hold anything but a bare quote, numbers are runs of their characters; who wants a value asks ``unescape``,
``integer`` or ``decimal``, which are exact or say that they cannot tell. ``data`` is an address, positions are bytes
from it. Nothing beyond ``end`` is read.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from .big_endian import byte
from .memory import load64, store8

njit: Any = numba.njit

DEPTH_MAX = 62
"""Nested arrays and objects: as many as one word has bits for."""
QUOTE, BACKSLASH, COLON, COMMA, OBJECT, ARRAY, OBJECT_END = 34, 92, 58, 44, 123, 91, 125
NO_VALUE, PLAIN, ESCAPED, SCALAR, TRUE, FALSE, NULL, NESTED, WIDE = range(9)
"""What ``value_end`` finds. PLAIN strings are ASCII without escapes, WIDE ones have other bytes and no escapes."""

_LOW, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _SLASHES = np.uint64(0x2222222222222222), np.uint64(0x5C5C5C5C5C5C5C5C)
_ZERO = np.uint64(0)


@njit(inline="always")
def passed_space(data: Any, at: Any, end: Any) -> Any:
    """The next position that is no white space."""
    while at < end:
        space = byte(data, at)
        if space != 32 and space != 9 and space != 10 and space != 13:
            break
        at += 1
    return at


@njit(inline="always")
def _neither(word: Any) -> Any:
    """Whether none of 8 bytes is a quote or a backslash."""
    quotes = word ^ _QUOTES
    slashes = word ^ _SLASHES
    return (((quotes - _LOW) & ~quotes) | ((slashes - _LOW) & ~slashes)) & _HIGH == _ZERO


@njit(nogil=True)
def string_end(data: Any, at: Any, end: Any) -> Any:
    """Where the closing quote is of the string whose text begins here (-1: nowhere), and PLAIN, WIDE or ESCAPED."""
    escaped = False
    high = _ZERO
    while at < end:
        stop = at + 8
        if stop <= end:
            word = load64(data, at)
            if _neither(word):
                high |= word
                at = stop
                continue
        else:
            stop = end
        while at < stop:
            here = byte(data, at)
            if here == QUOTE:
                return at, ESCAPED if escaped else PLAIN if high & _HIGH == _ZERO else WIDE
            if here == BACKSLASH:
                escaped = True
                at += 1
            high |= np.uint64(here)
            at += 1
    return -1, NO_VALUE


@njit(nogil=True)
def _nested_end(data: Any, at: Any, end: Any) -> Any:
    """Behind the object or array that begins here, -1 where it is none."""
    depth = 0
    objects = 0
    while True:
        at = passed_space(data, at, end)
        if at >= end:
            return -1
        here = byte(data, at)
        if here in (OBJECT, ARRAY):
            depth += 1
            if depth > DEPTH_MAX:
                return -1
            is_object = 1 if here == OBJECT else 0
            objects = (objects & ~(1 << depth)) | (is_object << depth)
            at = passed_space(data, at + 1, end)
            if at >= end or byte(data, at) != here + 2:
                if is_object == 1:
                    at = _name_end(data, at, end)
                    if at < 0:
                        return -1
                continue
            at += 1
            depth -= 1
        elif here == QUOTE:
            at, _ = string_end(data, at + 1, end)
            if at < 0:
                return -1
            at += 1
        else:
            at, _ = _scalar_end(data, at, end)
            if at < 0:
                return -1
        more = False
        while depth > 0 and not more:
            at = passed_space(data, at, end)
            if at >= end:
                return -1
            here = byte(data, at)
            in_object = (objects >> depth) & 1
            at += 1
            if here == COMMA:
                if in_object == 1:
                    at = _name_end(data, at, end)
                    if at < 0:
                        return -1
                more = True
            elif here == (OBJECT_END if in_object == 1 else 93):
                depth -= 1
            else:
                return -1
        if depth == 0:
            return at


@njit(nogil=True)
def _name_end(data: Any, at: Any, end: Any) -> Any:
    """Behind the name and colon that come next, -1 where they do not."""
    at = passed_space(data, at, end)
    if at >= end or byte(data, at) != QUOTE:
        return -1
    at, _ = string_end(data, at + 1, end)
    if at < 0:
        return -1
    at = passed_space(data, at + 1, end)
    if at >= end or byte(data, at) != COLON:
        return -1
    return at + 1


@njit(nogil=True)
def _scalar_end(data: Any, at: Any, end: Any) -> Any:
    """Behind a number or word, and which; -1 where there is none."""
    here = byte(data, at)
    if end - at >= 4 and here == 116 and byte(data, at + 1) == 114 and byte(data, at + 2) == 117:
        return (at + 4, TRUE) if byte(data, at + 3) == 101 else (-1, NO_VALUE)
    if end - at >= 4 and here == 110 and byte(data, at + 1) == 117 and byte(data, at + 2) == 108:
        return (at + 4, NULL) if byte(data, at + 3) == 108 else (-1, NO_VALUE)
    if end - at >= 5 and here == 102 and byte(data, at + 1) == 97 and byte(data, at + 2) == 108:
        known = byte(data, at + 3) == 115 and byte(data, at + 4) == 101
        return (at + 5, FALSE) if known else (-1, NO_VALUE)
    start = at
    while at < end:
        here = byte(data, at)
        if not (48 <= here <= 57 or here == 46 or here == 45 or here == 43 or here == 101 or here == 69):
            break
        at += 1
    if at == start:
        return -1, NO_VALUE
    return at, SCALAR


@njit(nogil=True)
def value_end(data: Any, at: Any, end: Any) -> Any:
    """Behind the value that begins here (-1: none does), and which kind of one it is."""
    if at >= end:
        return -1, NO_VALUE
    here = byte(data, at)
    if here == QUOTE:
        at, found = string_end(data, at + 1, end)
        return (at + 1 if at >= 0 else -1), found
    if here in (OBJECT, ARRAY):
        return _nested_end(data, at, end), NESTED
    return _scalar_end(data, at, end)


@njit(inline="always")
def _hex(data: Any, at: Any) -> Any:
    """The number of four hexadecimal digits, -1 where they are none."""
    unit = 0
    for step in range(4):
        here = byte(data, at + step)
        if 48 <= here <= 57:
            unit = (unit << 4) | (here - 48)
        elif 97 <= (here | 32) <= 102:
            unit = (unit << 4) | ((here | 32) - 87)
        else:
            return -1
    return unit


@njit(nogil=True)
def unescape(target: Any, to: Any, data: Any, at: Any, end: Any) -> Any:
    """The bytes that a string with escapes has, written to ``target`` unless that is 0; -1 for a wrong escape."""
    size = 0
    while at < end:
        here = byte(data, at)
        if here != BACKSLASH:
            if target != 0:
                store8(target, to + size, here)
            size += 1
            at += 1
            continue
        if at + 1 >= end:
            return -1
        kind = byte(data, at + 1)
        at += 2
        code = -1
        if kind in (QUOTE, BACKSLASH, 47):
            code = kind
        elif kind == 98:
            code = 8
        elif kind == 102:
            code = 12
        elif kind == 110:
            code = 10
        elif kind == 114:
            code = 13
        elif kind == 116:
            code = 9
        elif kind == 117 and at + 4 <= end:
            code = _hex(data, at)
            at += 4
            if 0xD800 <= code < 0xE000:
                low = -1
                if code < 0xDC00 and at + 6 <= end and byte(data, at) == BACKSLASH and byte(data, at + 1) == 117:
                    low = _hex(data, at + 2)
                if low < 0xDC00 or low >= 0xE000:
                    return -1
                code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
                at += 6
        if code < 0:
            return -1
        size += _put_character(target, to + size, code)
    return size


@njit(inline="always")
def _put_character(target: Any, to: Any, code: Any) -> Any:
    """A character as UTF-8; its size."""
    if code < 0x80:
        if target != 0:
            store8(target, to, code)
        return 1
    if code < 0x800:
        if target != 0:
            store8(target, to, 0xC0 | (code >> 6))
            store8(target, to + 1, 0x80 | (code & 63))
        return 2
    if code < 0x10000:
        if target != 0:
            store8(target, to, 0xE0 | (code >> 12))
            store8(target, to + 1, 0x80 | ((code >> 6) & 63))
            store8(target, to + 2, 0x80 | (code & 63))
        return 3
    if target != 0:
        store8(target, to, 0xF0 | (code >> 18))
        store8(target, to + 1, 0x80 | ((code >> 12) & 63))
        store8(target, to + 2, 0x80 | ((code >> 6) & 63))
        store8(target, to + 3, 0x80 | (code & 63))
    return 4


@njit(nogil=True)
def integer(data: Any, at: Any, end: Any) -> Any:
    """The value of a proper JSON integer of up to 18 digits, and whether it is one."""
    start = at
    negative = byte(data, at) == 45
    if negative:
        at += 1
    digits = end - at
    if digits < 1 or digits > 18 or (digits > 1 and byte(data, at) == 48):
        return np.int64(start), False
    value = np.int64(0)
    while at < end:
        digit = byte(data, at) - 48
        if digit < 0 or digit > 9:
            return np.int64(start), False
        value = value * 10 + digit
        at += 1
    return -value if negative else value, True


_TENS = 10.0 ** np.arange(23)


@njit(nogil=True)
def decimal(data: Any, at: Any, end: Any) -> Any:
    """The float64 of a proper JSON number with a fraction or exponent, and whether it could be told exactly.

    Up to 15 digits and powers of ten up to 22 are exact in float64: one multiplication or division rounds right.
    """
    negative = byte(data, at) == 45
    if negative:
        at += 1
    value = np.int64(0)
    digits = 0
    power = 0
    first = at
    while at < end and 48 <= byte(data, at) <= 57:
        value = value * 10 + byte(data, at) - 48
        digits += 1
        at += 1
        if digits > 15:
            return 0.0, False
    if digits == 0 or (digits > 1 and byte(data, first) == 48):
        return 0.0, False
    if at < end and byte(data, at) == 46:
        at += 1
        fraction = at
        while at < end and 48 <= byte(data, at) <= 57:
            value = value * 10 + byte(data, at) - 48
            digits += 1
            at += 1
            if digits > 15:
                return 0.0, False
        if at == fraction:
            return 0.0, False
        power = fraction - at
    if at < end and (byte(data, at) | 32) == 101:
        at += 1
        sign = 1
        if at < end and (byte(data, at) == 43 or byte(data, at) == 45):
            sign = 44 - byte(data, at)
            at += 1
        exponent = 0
        start = at
        while at < end and 48 <= byte(data, at) <= 57 and at - start < 4:
            exponent = exponent * 10 + byte(data, at) - 48
            at += 1
        if at == start:
            return 0.0, False
        power += sign * exponent
    if at != end or power > 22 or power < -22:
        return 0.0, False
    number = np.float64(value)
    number = number * _TENS[power] if power >= 0 else number / _TENS[-power]
    return -number if negative else number, True
