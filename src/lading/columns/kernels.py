"""Header values to typed columns in bulk; ``fallback.py`` says the same in plain Python, ``rules.py`` value by value.

In bounds: nothing here looks at bytes outside ``data[start : start + length]`` of a row, which the caller has checked
(``typed.normalize_layout``), but for words of 8 bytes, which are tested against the end of ``data`` before.
"""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes, Floats, Ints, Kinds, Longs, Words
from lading.kernels.signature import (
    BOOLEAN,
    BYTES,
    KINDS,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_FLOATS,
    OUT_INTS,
    OUT_LONGS,
    OUT_WORDS,
    Address,
    inline,
    int64,
    kernel,
    routine,
    several,
    step,
    uint64,
)

from ..kernels.memory import base, load8, load64, memcpy, store64
from ..kernels.text import UTF8_GOOD, utf8_check
from ..model.kinds import FIXED_SIZE_BYTES, Kind
from .kernel_values import (
    read_boolean_text,
    read_decimal_text,
    read_float,
    read_float_text,
    read_instant_text,
    read_signed,
    read_whole,
    read_whole_text,
)
from .rules import ABSENT, ANY_WIDTH, BAD, LEFT, OK, Raw, Text

_STRING = int(Kind.STRING)
_FIXED_FIRST, _FIXED_LAST = int(min(FIXED_SIZE_BYTES)), int(max(FIXED_SIZE_BYTES))
"""Kinds of a fixed size, all of them numbers here: a new one is read by ``read_whole``."""
_FLOAT32, _FLOAT64 = int(Kind.FLOAT32), int(Kind.FLOAT64)
_BOOLEAN, _INSTANT = int(Text.BOOLEAN), int(Text.INSTANT)
_TEXT, _BE = int(Raw.TEXT), int(Raw.BE)
_HIGH_BITS = uint64(0x8080808080808080)
_MIX, _HALF = uint64(0x9E3779B97F4A7C15), uint64(32)
_SHORT_BYTES = 64
"""A value of up to this size is copied word by word."""
_STEPS_MAX = 64
"""Values made to meet in one place of a table cost this much each, not as much as there are of them."""


@kernel(several(2)(BYTES, LONGS, LONGS, KINDS, *[LONG] * 5, OUT_LONGS, OUT_BYTES))
def take_integers(
    data: Bytes,
    start: Longs,
    length: Longs,
    kind: Kinds,
    text: int,
    raw: int,
    width: int,
    low: int,
    high: int,
    values: Longs,
    status: Bytes,
) -> tuple[int, int]:
    """See ``fallback.take_integers``."""
    good = left = 0
    source = base(data)
    for row in range(length.size):
        at, size, code = start[row], length[row], int64(kind[row])
        verdict, value = ABSENT, int64(0)
        if size >= 0:
            if _FIXED_FIRST <= code <= _FIXED_LAST:
                verdict, value = read_whole(source, at, size, code)
            elif raw != _TEXT and code != _STRING:
                if size != width and (width != ANY_WIDTH or size < 1 or size > 16):
                    verdict = BAD
                elif size > 8:
                    verdict = LEFT
                else:
                    verdict, value = OK, read_signed(source, at, size, raw == _BE)
            elif text == _BOOLEAN:
                verdict, value = read_boolean_text(source, at, size)
            else:
                verdict, value = read_whole_text(source, at, size)
                if verdict == BAD and text == _INSTANT:
                    verdict, value = read_instant_text(source, at, size)
            if verdict == OK and (value < low or value > high):
                verdict, value = BAD, int64(0)
        values[row] = value
        status[row] = verdict
        good += verdict == OK
        left += verdict == LEFT
    return good, left


@kernel(several(2)(BYTES, LONGS, LONGS, KINDS, LONG, LONG, OUT_FLOATS, OUT_BYTES))
def take_floats(
    data: Bytes, start: Longs, length: Longs, kind: Kinds, raw: int, width: int, values: Floats, status: Bytes
) -> tuple[int, int]:
    """See ``fallback.take_floats``; this one leaves long and rare texts and integers above 64 bits."""
    good = left = 0
    source = base(data)
    for row in range(length.size):
        at, size, code = start[row], length[row], int64(kind[row])
        verdict, value = ABSENT, 0.0
        if size >= 0:
            if code == _FLOAT64:
                if size == 8:
                    verdict, value = OK, read_float(source, at, 8, False)
                else:
                    verdict = BAD
            elif code == _FLOAT32:
                if size == 4:
                    verdict, value = OK, read_float(source, at, 4, False)
                else:
                    verdict = BAD
            elif _FIXED_FIRST <= code <= _FIXED_LAST:
                verdict, integer = read_whole(source, at, size, code)
                value = np.float64(integer)
            elif raw != _TEXT and code != _STRING:
                verdict = OK if size == width else BAD
                if verdict == OK:
                    value = read_float(source, at, size, raw == _BE)
            else:
                verdict, value = read_float_text(source, at, size)
        values[row] = value
        status[row] = verdict
        good += verdict == OK
        left += verdict == LEFT
    return good, left


@kernel(several(2)(BYTES, LONGS, LONGS, KINDS, *[LONG] * 3, OUT_LONGS, OUT_BYTES))
def take_decimals(
    data: Bytes, start: Longs, length: Longs, kind: Kinds, raw: int, scale: int, limit: int, words: Longs, status: Bytes
) -> tuple[int, int]:
    """See ``fallback.take_decimals``; this one leaves all but short texts of digits."""
    good = left = 0
    source = base(data)
    for row in range(length.size):
        at, size, code = start[row], length[row], int64(kind[row])
        verdict, value = ABSENT, int64(0)
        if size >= 0:
            if _FIXED_FIRST <= code <= _FIXED_LAST or (raw != _TEXT and code != _STRING):
                verdict = LEFT
            else:
                verdict, value = read_decimal_text(source, at, size, scale, limit)
        words[2 * row], words[2 * row + 1] = value, value >> 63
        status[row] = verdict
        good += verdict == OK
        left += verdict == LEFT
    return good, left


@step
def _is_text(data: Address, at: int, size: int) -> bool:
    """Whether the bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    end = at + size
    while at + 8 <= end and load64(data, at) & _HIGH_BITS == 0:
        at += 8
    while at < end and load8(data, at) < 0x80:
        at += 1
    return at == end or utf8_check(data, at, end - at) == UTF8_GOOD


@kernel(several(2)(BYTES, LONGS, LONGS, KINDS, BOOLEAN, OUT_INTS, OUT_BYTES, OUT_BYTES))
def take_bytes(
    data: Bytes, start: Longs, length: Longs, kind: Kinds, text: bool, offsets: Ints, out: Bytes, status: Bytes
) -> tuple[int, int]:
    """See ``fallback.take_bytes``."""
    good = left = 0
    source, target = base(data), base(out)
    end = int64(0)
    offsets[0] = 0
    for row in range(length.size):
        at, size, code = start[row], length[row], int64(kind[row])
        verdict = ABSENT
        if size >= 0:
            if text and _FIXED_FIRST <= code <= _FIXED_LAST:
                verdict = LEFT
            elif size <= _SHORT_BYTES and at + size + 8 <= data.size and end + size + 8 <= out.size:
                # in bounds: words of eight bytes, of which the last one begins inside of the value, are tested on both
                # sides; a call costs more than these moves, and the next value overwrites what is too much
                high, place = uint64(0), int64(0)
                while place + 8 <= size:
                    word = load64(source, at + place)
                    store64(target, end + place, word)
                    high |= word
                    place += 8
                if place < size:
                    word = load64(source, at + place)
                    store64(target, end + place, word)
                    high |= word & ((uint64(1) << uint64(8 * (size - place))) - uint64(1))
                if text and high & _HIGH_BITS != 0 and utf8_check(source, at, size) != UTF8_GOOD:
                    verdict = BAD
                else:
                    verdict = OK
                    end += size
            elif text and not _is_text(source, at, size):
                verdict = BAD
            else:
                verdict = OK
                # in bounds: ``out`` has room for all values
                memcpy(out, end, data, at, size)
                end += size
        offsets[row + 1] = end
        status[row] = verdict
        good += verdict == OK
        left += verdict == LEFT
    return good, left


@kernel(several(2)(BYTES, LONGS, LONGS, KINDS, BOOLEAN, BYTES, OUT_BYTES, OUT_BYTES))
def match_bytes(
    data: Bytes, start: Longs, length: Longs, kind: Kinds, text: bool, wanted: Bytes, same: Bytes, valid: Bytes
) -> tuple[int, int]:
    """See ``fallback.match_bytes``."""
    good = left = 0
    source, sought, wanted_size = base(data), base(wanted), int64(wanted.size)
    same_bits, valid_bits = int64(0), int64(0)
    rows = length.size
    for row in range(rows):
        at, size = start[row], length[row]
        if size >= 0:
            bit = int64(1) << int64(row & 7)
            if text and _FIXED_FIRST <= int64(kind[row]) <= _FIXED_LAST:
                left += 1
            else:
                # in bounds: both have ``size`` bytes while they are compared
                equal = int64(0)
                if size == wanted_size:
                    while equal < size and load8(source, at + equal) == load8(sought, equal):
                        equal += 1
                if size == wanted_size and equal == size:
                    same_bits |= bit
                    valid_bits |= bit
                    good += 1
                elif not text or _is_text(source, at, size):
                    valid_bits |= bit
                    good += 1
        if row & 7 == 7 or row == rows - 1:
            same[row >> 3] = same_bits
            valid[row >> 3] = valid_bits
            same_bits, valid_bits = int64(0), int64(0)
    return good, left


@inline
def _last_word(data: Bytes, at: int, size: int) -> int:
    """Up to seven bytes as one number; no byte after the array is read."""
    if at + 8 <= data.size:
        return uint64(load64(data, at) & ((uint64(1) << uint64(8 * size)) - uint64(1)))
    word = uint64(0)
    for index in range(size):
        word |= uint64(load8(data, at + index)) << uint64(8 * index)
    return word


@routine
def _hash(data: Bytes, at: int, size: int) -> int:
    value = uint64(size) * _MIX
    rest = size
    while rest >= 8:
        value = (value ^ load64(data, at)) * _MIX
        value ^= value >> _HALF
        at += 8
        rest -= 8
    value = (value ^ _last_word(data, at, rest)) * _MIX
    return value ^ (value >> _HALF)


@routine
def _equal(data: Bytes, at: int, held: Bytes, place: int, size: int) -> bool:
    rest = size
    while rest >= 8:
        if load64(data, at) != load64(held, place):
            return False
        at += 8
        place += 8
        rest -= 8
    return _last_word(data, at, rest) == _last_word(held, place, rest)


@kernel(several(2)(BYTES, LONGS, LONGS, KINDS, BOOLEAN, OUT_INTS, OUT_WORDS, OUT_INTS, OUT_BYTES, OUT_INTS, OUT_BYTES))
def take_places(
    data: Bytes,
    start: Longs,
    length: Longs,
    kind: Kinds,
    text: bool,
    slots: Ints,
    hashes: Words,
    offsets: Ints,
    out: Bytes,
    places: Ints,
    status: Bytes,
) -> tuple[int, int]:
    """See ``fallback.take_places``; this one also gives up if many values meet in one place of its hash table."""
    good = 0
    distinct = int64(0)
    mask = int64(slots.size - 1)
    before, before_at, before_size = int64(0), int64(0), int64(-1)
    source = base(data)
    offsets[0] = 0
    for row in range(length.size):
        at, size = start[row], length[row]
        places[row] = 0
        if size < 0:
            status[row] = ABSENT
            continue
        if text and _FIXED_FIRST <= int64(kind[row]) <= _FIXED_LAST:
            return good, int64(-1)
        # the same value as in the row before
        if size == before_size and _equal(data, at, data, before_at, size):
            places[row] = before
            status[row] = OK
            good += 1
            continue
        # look the value up in the table
        # in bounds: slots are taken by mask, and an entry that is found is one of ``distinct``
        code = _hash(data, at, size)
        slot = int64(code) & mask
        found = int64(-1)
        steps = 0
        while True:
            entry = int64(slots[slot])
            if entry < 0:
                break
            end = int64(offsets[entry])
            if hashes[entry] == code and offsets[entry + 1] - end == size and _equal(data, at, out, end, size):
                found = entry
                break
            steps += 1
            if steps == _STEPS_MAX:
                return good, int64(-1)
            slot = (slot + 1) & mask
        # a new value: add it to the dictionary
        if found < 0:
            if text and not _is_text(source, at, size):
                status[row] = BAD
                continue
            end = int64(offsets[distinct])
            if distinct == hashes.size or size > out.size - end:
                return good, int64(-1)
            # in bounds: the line above has seen to ``out``
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
