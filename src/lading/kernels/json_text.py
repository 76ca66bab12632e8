"""JSON inside kernels: find the ends of values, as leniently as servers do, and read them.

Strings may hold anything but a bare quote, numbers are runs of their characters. Callers that want a value use
``unescape``, ``integer`` or ``decimal``, which are exact or report that they cannot decide. ``data`` is an address,
positions are bytes from it. In bounds: each load comes after a test that it is before ``end``, or after one of this
text that found a value there; callers keep ``end`` inside their array.
"""

from __future__ import annotations

import numpy as np

from .big_endian import byte
from .memory import load64, store8
from .signature import Data, inline, int64, routine, step, uint64

DEPTH_MAX = 62
"""Nested arrays and objects: as many as one word has bits for."""
QUOTE, BACKSLASH, COLON, COMMA, OBJECT, ARRAY, OBJECT_END, _ARRAY_END = b'"\\:,{[}]'
_SPACE, _TAB, _LINE_FEED, _RETURN = b" \t\n\r"
_0, _9, _DOT, _MINUS, _PLUS, _SLASH = b"09.-+/"
_A, _B, _E, _F, _L, _N, _R, _S, _T, _U = b"abeflnrstu"
_LOWER = 32
"""The bit that makes a capital letter small."""
NO_VALUE, PLAIN, ESCAPED, SCALAR, TRUE, FALSE, NULL, NESTED, WIDE = range(9)
"""Kinds of values that ``value_end`` finds.

PLAIN strings are ASCII without escapes, WIDE ones have other bytes and no escapes.
"""

_LOW, _HIGH = uint64(0x0101010101010101), uint64(0x8080808080808080)
_QUOTES, _SLASHES = uint64(0x2222222222222222), uint64(0x5C5C5C5C5C5C5C5C)
_ZERO = uint64(0)


@inline
def skip_space(data: Data, at: int, end: int) -> int:
    """Return the next position that is not white space."""
    while at < end:
        space = byte(data, at)
        if space != _SPACE and space != _TAB and space != _LINE_FEED and space != _RETURN:
            break
        at += 1
    return at


@inline
def _neither(word: int) -> bool:
    """Whether none of 8 bytes is a quote or a backslash."""
    quotes = word ^ _QUOTES
    slashes = word ^ _SLASHES
    return (((quotes - _LOW) & ~quotes) | ((slashes - _LOW) & ~slashes)) & _HIGH == _ZERO


@routine
def string_end(data: Data, at: int, end: int) -> tuple[int, int]:
    """Return the end of the string whose text begins here (-1: it is not closed), and PLAIN, WIDE or ESCAPED."""
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
            high |= uint64(here)
            at += 1
    return -1, NO_VALUE


@routine
def _find_nested_end(data: Data, at: int, end: int) -> int:
    """The position after the object or array that begins here, -1 if it is invalid."""
    depth = 0
    objects = 0
    while True:
        at = skip_space(data, at, end)
        if at >= end:
            return -1
        here = byte(data, at)
        if here in (OBJECT, ARRAY):
            depth += 1
            if depth > DEPTH_MAX:
                return -1
            is_object = 1 if here == OBJECT else 0
            objects = (objects & ~(1 << depth)) | (is_object << depth)
            at = skip_space(data, at + 1, end)
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
            at = skip_space(data, at, end)
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
            elif here == (OBJECT_END if in_object == 1 else _ARRAY_END):
                depth -= 1
            else:
                return -1
        if depth == 0:
            return at


@routine
def _name_end(data: Data, at: int, end: int) -> int:
    """The position after the name and colon that come next, -1 if they are missing."""
    at = skip_space(data, at, end)
    if at >= end or byte(data, at) != QUOTE:
        return -1
    at, _ = string_end(data, at + 1, end)
    if at < 0:
        return -1
    at = skip_space(data, at + 1, end)
    if at >= end or byte(data, at) != COLON:
        return -1
    return at + 1


@routine
def _scalar_end(data: Data, at: int, end: int) -> tuple[int, int]:
    """The position after a number or word, and which; -1 if it is neither."""
    here = byte(data, at)
    if end - at >= 4 and here == _T and byte(data, at + 1) == _R and byte(data, at + 2) == _U:
        return (at + 4, TRUE) if byte(data, at + 3) == _E else (-1, NO_VALUE)
    if end - at >= 4 and here == _N and byte(data, at + 1) == _U and byte(data, at + 2) == _L:
        return (at + 4, NULL) if byte(data, at + 3) == _L else (-1, NO_VALUE)
    if end - at >= 5 and here == _F and byte(data, at + 1) == _A and byte(data, at + 2) == _L:
        known = byte(data, at + 3) == _S and byte(data, at + 4) == _E
        return (at + 5, FALSE) if known else (-1, NO_VALUE)
    start = at
    while at < end:
        here = byte(data, at)
        # compiled code makes a loop of a tuple
        if not (_0 <= here <= _9 or here == _DOT or here == _MINUS or here == _PLUS or here | _LOWER == _E):  # noqa: SIM109
            break
        at += 1
    if at == start:
        return -1, NO_VALUE
    return at, SCALAR


@routine
def value_end(data: Data, at: int, end: int) -> tuple[int, int]:
    """Behind the value that begins here (-1: none does), and which kind of one it is."""
    if at >= end:
        return -1, NO_VALUE
    here = byte(data, at)
    if here == QUOTE:
        at, found = string_end(data, at + 1, end)
        return (at + 1 if at >= 0 else -1), found
    if here in (OBJECT, ARRAY):
        return _find_nested_end(data, at, end), NESTED
    return _scalar_end(data, at, end)


@step
def read_member(data: Data, at: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Read a name and its value in an object.

    Returns start and end of the name and the result of ``string_end`` for it; start and end of the value (-1: this is
    not a member), and the kind of the value.
    """
    if at >= end or byte(data, at) != QUOTE:
        return at, at, NO_VALUE, at, -1, NO_VALUE
    name = at + 1
    name_end, name_found = string_end(data, name, end)
    if name_end < 0:
        return name, name, NO_VALUE, at, -1, NO_VALUE
    at = skip_space(data, name_end + 1, end)
    if at >= end or byte(data, at) != COLON:
        return name, name_end, name_found, at, -1, NO_VALUE
    at = skip_space(data, at + 1, end)
    stop, found = value_end(data, at, end)
    return name, name_end, name_found, at, stop, found


@step
def pass_member(data: Data, at: int, end: int) -> tuple[int, int]:
    """Return the sign after a value in an object, COMMA or OBJECT_END (-1: neither), and the position after it."""
    at = skip_space(data, at, end)
    if at >= end:
        return -1, at
    here = byte(data, at)
    return here if here in (COMMA, OBJECT_END) else -1, skip_space(data, at + 1, end)


@inline
def _hex(data: Data, at: int) -> int:
    """The number of four hexadecimal digits, -1 if they are not digits."""
    unit = 0
    for digit in range(4):
        here = byte(data, at + digit)
        if _0 <= here <= _9:
            unit = (unit << 4) | (here - _0)
        elif _A <= (here | _LOWER) <= _F:
            unit = (unit << 4) | ((here | _LOWER) - _A + 10)
        else:
            return -1
    return unit


@routine
def unescape(target: Data, to: int, data: Data, at: int, end: int) -> int:
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
        if kind in (QUOTE, BACKSLASH, _SLASH):
            code = kind
        elif kind == _B:
            code = 8
        elif kind == _F:
            code = 12
        elif kind == _N:
            code = _LINE_FEED
        elif kind == _R:
            code = _RETURN
        elif kind == _T:
            code = _TAB
        elif kind == _U and at + 4 <= end:
            code = _hex(data, at)
            at += 4
            if 0xD800 <= code < 0xE000:
                low = -1
                if code < 0xDC00 and at + 6 <= end and byte(data, at) == BACKSLASH and byte(data, at + 1) == _U:
                    low = _hex(data, at + 2)
                if low < 0xDC00 or low >= 0xE000:
                    return -1
                code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
                at += 6
        if code < 0:
            return -1
        size += _put_character(target, to + size, code)
    return size


@inline
def _put_character(target: Data, to: int, code: int) -> int:
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


@routine
def integer(data: Data, at: int, end: int) -> tuple[int, bool]:
    """The value of a proper JSON integer of up to 18 digits, and whether it is one."""
    start = at
    negative = byte(data, at) == _MINUS
    if negative:
        at += 1
    digits = end - at
    if digits < 1 or digits > 18 or (digits > 1 and byte(data, at) == _0):
        return int64(start), False
    value = int64(0)
    while at < end:
        digit = byte(data, at) - _0
        if digit < 0 or digit > 9:
            return int64(start), False
        value = value * 10 + digit
        at += 1
    return -value if negative else value, True


_TENS = 10.0 ** np.arange(23)


@routine
def decimal(data: Data, at: int, end: int) -> tuple[float, bool]:
    """Return the float64 of a proper JSON number with a fraction or exponent, and whether it is exact.

    Up to 15 digits and powers of ten up to 22 are exact in float64: one multiplication or division rounds right.
    """
    negative = byte(data, at) == _MINUS
    if negative:
        at += 1
    value = int64(0)
    digits = 0
    power = 0
    first = at
    while at < end and _0 <= byte(data, at) <= _9:
        value = value * 10 + byte(data, at) - _0
        digits += 1
        at += 1
        if digits > 15:
            return 0.0, False
    if digits == 0 or (digits > 1 and byte(data, first) == _0):
        return 0.0, False
    if at < end and byte(data, at) == _DOT:
        at += 1
        fraction = at
        while at < end and _0 <= byte(data, at) <= _9:
            value = value * 10 + byte(data, at) - _0
            digits += 1
            at += 1
            if digits > 15:
                return 0.0, False
        if at == fraction:
            return 0.0, False
        power = fraction - at
    if at < end and (byte(data, at) | _LOWER) == _E:
        at += 1
        sign = 1
        if at < end and (byte(data, at) == _PLUS or byte(data, at) == _MINUS):
            sign = 1 if byte(data, at) == _PLUS else -1
            at += 1
        exponent = 0
        start = at
        while at < end and _0 <= byte(data, at) <= _9 and at - start < 4:
            exponent = exponent * 10 + byte(data, at) - _0
            at += 1
        if at == start:
            return 0.0, False
        power += sign * exponent
    if at != end or power > 22 or power < -22:
        return 0.0, False
    number = np.float64(value)
    number = number * _TENS[power] if power >= 0 else number / _TENS[-power]
    return -number if negative else number, True
