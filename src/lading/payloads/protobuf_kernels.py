"""Protobuf payloads in bulk, by the tables of ``protobuf_program.py``; see ``protobuf_fallback.py``.

In bounds: payloads are inside ``data``, which the caller has checked. Each load of a byte comes after a test that it is
before ``end``, the end of its message; words are tested against the same, or against the end of ``data``. Tables refer
only to their own rows and leaves, ``seen`` has a number for each slot, and ``stack`` has room for PROTOBUF_DEPTH_MAX
frames.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Ints, Longs, Table
from lading.kernels.signature import (
    BYTES,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_INTS,
    OUT_LONGS,
    OUT_TABLE,
    TABLE,
    Address,
    int64,
    kernel,
    routine,
    step,
    uint64,
)

from ..kernels.memory import base, load8, load32, load64, loadi64
from ..kernels.text import find_bad_utf8
from .layout import (
    ABSENT,
    DEFAULT_LEAF,
    DEFAULT_LENGTH,
    DEFAULT_START,
    DENSE_NUMBERS,
    FIELD_CLEARS,
    FIELD_CLEARS_END,
    FIELD_KIND,
    FIELD_LEAF,
    FIELD_NODE,
    FIELD_NUMBERS,
    FIELD_NUMBERS_END,
    FIELD_REPEATED,
    FIELD_TAG,
    FRAME_WORDS,
    KIND_BOOL,
    KIND_ENUM,
    KIND_FIXED64,
    KIND_GROUP,
    KIND_INT32,
    KIND_MESSAGE,
    KIND_SFIXED32,
    KIND_SINT32,
    KIND_SINT64,
    KIND_STRING,
    KIND_UINT32,
    MESSAGE_DEFAULTS,
    MESSAGE_DEFAULTS_END,
    MESSAGE_FIELDS,
    MESSAGE_FIELDS_END,
    MESSAGE_SLOT,
    PROTOBUF_DEPTH_MAX,
    SIZE_BYTES_MAX,
    SIZE_MAX,
    VERDICT_CUT,
    VERDICT_DEPTH,
    VERDICT_GOOD,
    VERDICT_LENGTH,
    VERDICT_TAG,
    VERDICT_TOMBSTONE,
    VERDICT_UTF8,
    VERDICT_VARINT,
    WIRE_FIXED32,
    WIRE_FIXED64,
    WIRE_GROUP,
    WIRE_GROUP_END,
    WIRE_SIZED,
    WIRE_VARINT,
)

_7F, _80, _ONE, _SEVEN, _ZERO = uint64(0x7F), uint64(0x80), uint64(1), uint64(7), uint64(0)
_LOW_32, _SIGN_32 = uint64(0xFFFF_FFFF), 1 << 31
_HIGH = uint64(0x8080808080808080)
_LAST_SHIFT = uint64(63)
_TAG_MAX = (1 << 32) - 1


@routine
def _long_varint(data: Address, at: int, end: int) -> tuple[int, int, int]:
    """Return 64 bits, the position after them and GOOD; or 0, the position of an error and its verdict."""
    value, shift, first = _ZERO, _ZERO, at
    while at < end:
        byte = uint64(load8(data, at))
        if shift == _LAST_SHIFT and byte >= _80:
            return _ZERO, first, VERDICT_VARINT
        value |= (byte & _7F) << shift
        at += 1
        if byte < _80:
            return value, at, VERDICT_GOOD
        shift += _SEVEN
    return _ZERO, end, VERDICT_CUT


@step
def _varint(data: Address, at: int, end: int) -> tuple[int, int, int]:
    if at < end:
        byte = uint64(load8(data, at))
        if byte < _80:
            return byte, at + 1, VERDICT_GOOD
    return _long_varint(data, at, end)


@routine
def _long_tag(data: Address, at: int, end: int) -> tuple[int, int, int]:
    first = at
    value, at, verdict = _long_varint(data, at, end)
    if verdict == VERDICT_CUT:
        return int64(0), at, verdict
    if verdict != VERDICT_GOOD or at - first > SIZE_BYTES_MAX or value > uint64(_TAG_MAX):
        return int64(0), first, VERDICT_TAG
    return int64(value), at, VERDICT_GOOD


@step
def _tag(data: Address, at: int, end: int) -> tuple[int, int, int]:
    """Return the number and wire type of a field; ``at`` is before ``end``."""
    byte = int64(load8(data, at))
    if byte < 0x80:
        return byte, at + 1, VERDICT_GOOD
    return _long_tag(data, at, end)


@step
def _size(data: Address, at: int, end: int) -> tuple[int, int, int]:
    """Return a length that stays inside ``end``, and the position after it."""
    first = at
    value, at, verdict = _varint(data, at, end)
    if verdict == VERDICT_CUT:
        return int64(0), at, verdict
    if verdict != VERDICT_GOOD or at - first > SIZE_BYTES_MAX or value > uint64(SIZE_MAX):
        return int64(0), first, VERDICT_LENGTH
    if int64(value) > end - at:
        return int64(0), end, VERDICT_CUT
    return int64(value), at, VERDICT_GOOD


@routine
def _skip_field(
    data: Address, first: int, at: int, end: int, tag: int, stack: Longs, depth: int
) -> tuple[int, int, int]:
    """Skip an unknown field after its tag: return GOOD and the position after it, or a verdict.

    The third number is the position of the last tag, at the end of a group.
    """
    level = int64(depth)
    while True:
        wire, number = tag & 7, tag >> 3
        if number == 0:
            return VERDICT_TAG, first, first
        if wire == WIRE_VARINT:
            _, at, verdict = _varint(data, at, end)
            if verdict != VERDICT_GOOD:
                return verdict, at, first
        elif wire in (WIRE_FIXED64, WIRE_FIXED32):
            size = int64(8) if wire == WIRE_FIXED64 else int64(4)
            if size > end - at:
                return VERDICT_CUT, end, first
            at += size
        elif wire == WIRE_SIZED:
            size, at, verdict = _size(data, at, end)
            if verdict != VERDICT_GOOD:
                return verdict, at, first
            at += size
        elif wire == WIRE_GROUP:
            if level == PROTOBUF_DEPTH_MAX:
                return VERDICT_DEPTH, first, first
            stack[FRAME_WORDS * level] = number
            level += 1
        elif wire == WIRE_GROUP_END and level > depth and stack[FRAME_WORDS * (level - 1)] == number:
            level -= 1
        else:
            return VERDICT_TAG, first, first
        if level == depth:
            return VERDICT_GOOD, at, first
        if at >= end:
            return VERDICT_CUT, end, first
        first = at
        tag, at, verdict = _tag(data, at, end)
        if verdict != VERDICT_GOOD:
            return verdict, at, first


@step
def _find_bad_text(data: Address, at: int, size: int, limit: int) -> int:
    """Return the position of the first character that is not UTF-8, or -1."""
    here, end = at, at + size
    while here + 8 <= end:
        if load64(data, here) & _HIGH != _ZERO:
            return find_bad_utf8(data, at, size)
        here += 8
    if here < end:
        if here + 8 <= limit:
            if (load64(data, here) & _HIGH) << uint64(64 - 8 * (end - here)) != _ZERO:
                return find_bad_utf8(data, at, size)
        else:
            while here < end:
                if load8(data, here) >= 0x80:
                    return find_bad_utf8(data, at, size)
                here += 1
    return -1


@step
def _convert(value: int, kind: int) -> int:
    """Return the number that the 64 bits of a varint mean in a field of a kind."""
    if kind in (KIND_INT32, KIND_ENUM):
        return (int64(value & _LOW_32) ^ _SIGN_32) - _SIGN_32
    if kind == KIND_UINT32:
        return int64(value & _LOW_32)
    if kind == KIND_SINT32:
        low = int64(value & _LOW_32)
        return (low >> 1) ^ -(low & 1)
    if kind == KIND_SINT64:
        return int64((value >> _ONE) ^ (~(value & _ONE) + _ONE))
    if kind == KIND_BOOL:
        return 1 if value != _ZERO else 0
    return int64(value)


@step
def _read_fixed(data: Address, at: int, kind: int) -> int:
    if kind == KIND_FIXED64:
        return int64(loadi64(data, at))
    low = int64(load32(data, at))
    return (low ^ _SIGN_32) - _SIGN_32 if kind == KIND_SFIXED32 else low


@step
def _is_known(number: int, numbers: Longs, first: int, end: int) -> bool:
    """Return whether an enum has a number; an open enum has all numbers."""
    is_known = first == end
    for place in range(first, end):
        if numbers[place] == number:
            is_known = True
    return is_known


@step
def _find_field(number: int, node: int, messages: Table, fields: Table, dense: Longs) -> int:
    """Return the row of a field, or -1 if its message does not have it."""
    if number < DENSE_NUMBERS:
        return int64(dense[node * DENSE_NUMBERS + number])
    low, high = messages[node, MESSAGE_FIELDS], messages[node, MESSAGE_FIELDS_END]
    while low < high:
        middle = (low + high) >> 1
        found = fields[middle, FIELD_TAG] >> 3
        if found == number:
            return int64(middle)
        if found < number:
            low = middle + 1
        else:
            high = middle
    return int64(-1)


@routine
def _check_packed(data: Address, at: int, end: int, kind: int) -> tuple[int, int]:
    if kind <= KIND_ENUM:
        while at < end:
            _, at, verdict = _varint(data, at, end)
            if verdict != VERDICT_GOOD:
                return VERDICT_LENGTH if verdict == VERDICT_CUT else verdict, at
        return VERDICT_GOOD, at
    width = 8 if kind == KIND_FIXED64 else 4
    if (end - at) % width:
        return VERDICT_LENGTH, end
    return VERDICT_GOOD, end


@routine
def _walk_message(
    data: Address, at: int, end: int, limit: int, row: int, messages: Table, fields: Table, dense: Longs,
    defaults: Table, clears: Longs, numbers: Longs, start: Table, length: Table, split: Bytes, seen: Longs,
    stack: Longs,
) -> tuple[int, int]:  # fmt: skip
    """Read one payload: return GOOD and the position after it, or the verdict and the position of the error."""
    depth, node = int64(0), int64(0)
    guess = messages[node, MESSAGE_FIELDS]
    fields_end = messages[node, MESSAGE_FIELDS_END]
    while True:
        if at == end:
            if depth == 0:
                return VERDICT_GOOD, at
            depth -= 1
            if stack[FRAME_WORDS * depth + 3] >= 0:
                return VERDICT_CUT, end
            end = stack[FRAME_WORDS * depth]
            node = stack[FRAME_WORDS * depth + 1]
            guess = stack[FRAME_WORDS * depth + 2]
            fields_end = messages[node, MESSAGE_FIELDS_END]
            continue
        first = at
        tag, at, verdict = _tag(data, at, end)
        if verdict != VERDICT_GOOD:
            return verdict, at
        if guess < fields_end and fields[guess, FIELD_TAG] == tag:
            field = guess
        else:
            field = _find_field(tag >> 3, node, messages, fields, dense)
            if field >= 0 and fields[field, FIELD_TAG] != tag:
                is_packed = fields[field, FIELD_REPEATED] == 1 and fields[field, FIELD_KIND] < KIND_STRING
                if is_packed and tag & 7 == WIRE_SIZED:
                    size, at, verdict = _size(data, at, end)
                    if verdict != VERDICT_GOOD:
                        return verdict, at
                    verdict, at = _check_packed(data, at, at + size, fields[field, FIELD_KIND])
                    if verdict != VERDICT_GOOD:
                        return verdict, at
                    leaf = fields[field, FIELD_LEAF]
                    if leaf >= 0:
                        if length[leaf, row] == 0:
                            start[leaf, row] = first
                        length[leaf, row] = at - start[leaf, row]
                    guess = field + 1
                    continue
                # with another wire type it is not this field
                field = int64(-1)
            if field < 0 and tag & 7 == WIRE_GROUP_END and depth > 0:
                group = stack[FRAME_WORDS * (depth - 1) + 3]
                if group >= 0 and fields[group, FIELD_TAG] >> 3 == tag >> 3:
                    leaf = fields[group, FIELD_LEAF]
                    if leaf >= 0:
                        is_repeated = fields[group, FIELD_REPEATED] == 1
                        length[leaf, row] = (at if is_repeated else first) - start[leaf, row]
                    depth -= 1
                    node = stack[FRAME_WORDS * depth + 1]
                    guess = stack[FRAME_WORDS * depth + 2]
                    fields_end = messages[node, MESSAGE_FIELDS_END]
                    continue
            if field < 0:
                verdict, at, _ = _skip_field(data, first, at, end, tag, stack, depth)
                if verdict != VERDICT_GOOD:
                    return verdict, at
                continue
        kind, leaf = fields[field, FIELD_KIND], fields[field, FIELD_LEAF]
        is_repeated = fields[field, FIELD_REPEATED] == 1
        guess = field if is_repeated else field + 1
        word, size = int64(0), int64(8)
        if kind <= KIND_ENUM:
            value, at, verdict = _varint(data, at, end)
            if verdict != VERDICT_GOOD:
                return verdict, at
            word = _convert(value, kind)
            if kind == KIND_ENUM and not _is_known(
                word, numbers, fields[field, FIELD_NUMBERS], fields[field, FIELD_NUMBERS_END]
            ):
                continue
        elif kind < KIND_STRING:
            width = int64(8) if kind == KIND_FIXED64 else int64(4)
            if width > end - at:
                return VERDICT_CUT, end
            word = _read_fixed(data, at, kind)
            at += width
        elif kind == KIND_GROUP:
            # the length of a group is known at its end
            word, size = at, int64(0)
        else:
            size, at, verdict = _size(data, at, end)
            if verdict != VERDICT_GOOD:
                return verdict, at
            word = at
            if kind == KIND_STRING:
                wrong = _find_bad_text(data, at, size, limit)
                if wrong >= 0:
                    return VERDICT_UTF8, wrong
            at += size
        for place in range(fields[field, FIELD_CLEARS], fields[field, FIELD_CLEARS_END]):
            cleared = clears[place]
            if cleared >= 0:
                length[cleared, row] = ABSENT
            else:
                seen[-cleared - 1] = -1
        if leaf >= 0:
            if is_repeated:
                if length[leaf, row] == 0:
                    start[leaf, row] = first
                length[leaf, row] = at - start[leaf, row]
            else:
                if kind >= KIND_MESSAGE and length[leaf, row] >= 0 and start[leaf, row] >= 0:
                    split[row] = 1
                start[leaf, row], length[leaf, row] = word, size
        if kind >= KIND_MESSAGE:
            if depth == PROTOBUF_DEPTH_MAX:
                return VERDICT_DEPTH, first
            stack[FRAME_WORDS * depth] = end
            stack[FRAME_WORDS * depth + 1] = node
            stack[FRAME_WORDS * depth + 2] = guess
            stack[FRAME_WORDS * depth + 3] = field if kind == KIND_GROUP else int64(-1)
            depth += 1
            if kind == KIND_MESSAGE:
                end = at
            node, at = fields[field, FIELD_NODE], word
            slot = messages[node, MESSAGE_SLOT]
            if slot >= 0:
                if seen[slot] == row:
                    split[row] = 1
                else:
                    seen[slot] = row
                    for place in range(messages[node, MESSAGE_DEFAULTS], messages[node, MESSAGE_DEFAULTS_END]):
                        target = defaults[place, DEFAULT_LEAF]
                        start[target, row] = defaults[place, DEFAULT_START]
                        length[target, row] = defaults[place, DEFAULT_LENGTH]
            guess = messages[node, MESSAGE_FIELDS]
            fields_end = messages[node, MESSAGE_FIELDS_END]


@kernel(
    LONG(
        BYTES, LONGS, LONGS, TABLE, TABLE, LONGS, TABLE, LONGS, LONGS, OUT_TABLE, OUT_TABLE, OUT_BYTES, OUT_LONGS,
        OUT_BYTES, OUT_LONGS, OUT_LONGS,
    )
)  # fmt: skip
def walk_protobuf(
    data: Bytes,
    begin: Longs,
    size: Longs,
    messages: Table,
    fields: Table,
    dense: Longs,
    defaults: Table,
    clears: Longs,
    numbers: Longs,
    start: Table,
    length: Table,
    verdict: Bytes,
    position: Longs,
    split: Bytes,
    seen: Longs,
    stack: Longs,
) -> int:
    """See ``protobuf_fallback.walk_protobuf``."""
    source, limit, leaves = base(data), data.size, length.shape[0]
    bad = 0
    for row in range(size.size):
        for leaf in range(leaves):
            start[leaf, row], length[leaf, row] = 0, ABSENT
        split[row], position[row] = 0, 0
        if size[row] < 0:
            verdict[row] = VERDICT_TOMBSTONE
            continue
        for place in range(messages[0, MESSAGE_DEFAULTS], messages[0, MESSAGE_DEFAULTS_END]):
            target = defaults[place, DEFAULT_LEAF]
            start[target, row] = defaults[place, DEFAULT_START]
            length[target, row] = defaults[place, DEFAULT_LENGTH]
        at = begin[row]
        end = at + size[row]
        found, stop = _walk_message(
            source, at, end, limit, row, messages, fields, dense, defaults, clears, numbers, start, length, split,
            seen, stack,
        )  # fmt: skip
        if found == VERDICT_CUT and stop != end:
            found = VERDICT_LENGTH
        verdict[row] = found
        if found != VERDICT_GOOD:
            position[row] = stop - at
            split[row] = 0
            bad += 1
            for leaf in range(leaves):
                length[leaf, row] = ABSENT
    return bad


@kernel(LONG(BYTES, LONGS, LONGS, LONG, LONG, LONGS, OUT_INTS, OUT_LONGS, OUT_LONGS, OUT_LONGS))
def list_protobuf_items(
    data: Bytes,
    start: Longs,
    length: Longs,
    tag: int,
    kind: int,
    numbers: Longs,
    counts: Ints,
    item_start: Longs,
    item_length: Longs,
    stack: Longs,
) -> int:
    """See ``protobuf_fallback.list_protobuf_items``."""
    source, room = base(data), item_start.size
    count = int64(0)
    packed = (tag >> 3 << 3) | WIRE_SIZED
    for row in range(start.size):
        # in bounds: values were validated by ``walk_protobuf``, so that each of these positions is inside of one
        before = count
        at = start[row]
        end = at + max(length[row], 0)
        while at < end:
            first = at
            found, at, _ = _tag(source, at, end)
            if found != tag and (found != packed or kind == KIND_GROUP):
                _, at, _ = _skip_field(source, first, at, end, found, stack, int64(0))
                continue
            stop = at
            if kind == KIND_GROUP:
                begin = at
                _, at, stop = _skip_field(source, first, at, end, found, stack, int64(0))
                place = min(count, room - 1)
                item_start[place], item_length[place] = begin, stop - begin
                count += 1
                continue
            if found == packed:
                size, at, _ = _size(source, at, end)
                stop = at + size
            if kind >= KIND_STRING:
                place = min(count, room - 1)
                item_start[place], item_length[place] = at, stop - at
                at = stop
                count += 1
                continue
            while True:
                if found == packed and at >= stop:
                    break
                word = int64(0)
                if kind <= KIND_ENUM:
                    value, at, _ = _varint(source, at, end)
                    word = _convert(value, kind)
                else:
                    word = _read_fixed(source, at, kind)
                    at += 8 if kind == KIND_FIXED64 else 4
                if kind != KIND_ENUM or _is_known(word, numbers, 0, numbers.size):
                    place = min(count, room - 1)
                    item_start[place], item_length[place] = word, 8
                    count += 1
                if found != packed:
                    break
        counts[row] = count - before
    return count
