"""Avro payloads in bulk: a program of ``avro_program.py`` is run on each; see ``avro_fallback.py``.

In bounds: payloads are inside ``data``, which the caller has checked. Each load of a byte comes after a test that it is
before ``end``, the end of its payload; words of 8 bytes are tested against the end of ``data``. Programs refer only to
their own instructions and leaves, and ``stack`` has room for AVRO_DEPTH_MAX frames.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Ints, IntTable, Longs, Table
from lading.kernels.signature import (
    BOOLEAN,
    BYTES,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_INT_TABLE,
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

from ..kernels.memory import base, load8, load64
from ..kernels.text import find_bad_utf8
from .layout import (
    ABSENT,
    AVRO_DEPTH_MAX,
    CODE_LEAF,
    CODE_ONE,
    CODE_OP,
    CODE_TWO,
    CODE_TYPE,
    EMPTY_ITEMS_MAX,
    FRAME_WORDS,
    NULL,
    OP_BLOCKS,
    OP_BOOLEAN,
    OP_BYTES,
    OP_CALL,
    OP_DOUBLE,
    OP_ENUM,
    OP_FIXED,
    OP_FLOAT,
    OP_INT,
    OP_JUMP,
    OP_LONG,
    OP_LOST,
    OP_MARK,
    OP_NEXT,
    OP_NULL,
    OP_RETURN,
    OP_SPAN,
    OP_STRING,
    OP_UNION,
    VERDICT_BOOLEAN,
    VERDICT_CHOICE,
    VERDICT_CUT,
    VERDICT_DEPTH,
    VERDICT_EMPTY,
    VERDICT_GOOD,
    VERDICT_ITEMS,
    VERDICT_LENGTH,
    VERDICT_NUMBER,
    VERDICT_TOMBSTONE,
    VERDICT_TRAILING,
    VERDICT_UTF8,
    VERDICT_VARINT,
)

_7F, _80, _ONE, _SEVEN, _ZERO = uint64(0x7F), uint64(0x80), uint64(1), uint64(7), uint64(0)
_HIGH = uint64(0x8080808080808080)
_INT_MAX = (1 << 31) - 1
_LAST_SHIFT = uint64(63)


@routine
def _long_varint(data: Address, at: int, end: int) -> tuple[int, int, int]:
    """Return a number, the position after it and GOOD; or 0, the position of an error and its verdict."""
    value, shift, first = _ZERO, _ZERO, at
    while at < end:
        byte = uint64(load8(data, at))
        if shift == _LAST_SHIFT and byte > _ONE:
            return 0, first, VERDICT_VARINT
        value |= (byte & _7F) << shift
        at += 1
        if byte < _80:
            return int64((value >> _ONE) ^ (~(value & _ONE) + _ONE)), at, VERDICT_GOOD
        shift += _SEVEN
    return 0, end, VERDICT_CUT


@step
def _varint(data: Address, at: int, end: int) -> tuple[int, int, int]:
    if at < end:
        byte = int64(load8(data, at))
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1, VERDICT_GOOD
    return _long_varint(data, at, end)


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


@routine
def _run_program(
    data: Address, at: int, end: int, limit: int, code: Table, row: int, first_type: int,
    start: Table, length: Table, what: IntTable, stack: Longs,
) -> tuple[int, int]:  # fmt: skip
    """Read one value: return GOOD and the position after it, or the verdict and the position of the error."""
    place, depth, empty = int64(0), int64(0), int64(0)
    while True:
        op, leaf = code[place, CODE_OP], code[place, CODE_LEAF]
        if op in (OP_STRING, OP_BYTES):
            first = at
            size, at, verdict = _varint(data, at, end)
            if verdict != VERDICT_GOOD:
                return verdict, at
            if size < 0:
                return VERDICT_LENGTH, first
            if size > end - at:
                return VERDICT_CUT, end
            if op == OP_STRING:
                wrong = _find_bad_text(data, at, size, limit)
                if wrong >= 0:
                    return VERDICT_UTF8, wrong
            if leaf >= 0:
                start[leaf, row], length[leaf, row] = at, size
                what[leaf, row] = first_type + code[place, CODE_TYPE]
            at += size
        elif op in (OP_LONG, OP_INT, OP_ENUM):
            first = at
            value, at, verdict = _varint(data, at, end)
            if verdict != VERDICT_GOOD:
                return verdict, at
            if op == OP_INT and not -_INT_MAX - 1 <= value <= _INT_MAX:
                return VERDICT_NUMBER, first
            if op == OP_ENUM and not 0 <= value < code[place, CODE_ONE]:
                return VERDICT_CHOICE, first
            if leaf >= 0:
                start[leaf, row], length[leaf, row] = value, 8
                what[leaf, row] = first_type + code[place, CODE_TYPE]
        elif op == OP_UNION:
            first = at
            value, at, verdict = _varint(data, at, end)
            if verdict != VERDICT_GOOD:
                return verdict, at
            if not 0 <= value < code[place, CODE_ONE]:
                return VERDICT_CHOICE, first
            place = code[code[place, CODE_TWO] + value, CODE_ONE]
            continue
        elif op == OP_JUMP:
            place = code[place, CODE_ONE]
            continue
        elif op in (OP_DOUBLE, OP_FLOAT, OP_FIXED):
            size = int64(8) if op == OP_DOUBLE else int64(4) if op == OP_FLOAT else code[place, CODE_ONE]
            if size > end - at:
                return VERDICT_CUT, end
            if leaf >= 0:
                start[leaf, row], length[leaf, row] = at, size
                what[leaf, row] = first_type + code[place, CODE_TYPE]
            at += size
        elif op == OP_BOOLEAN:
            if at >= end:
                return VERDICT_CUT, end
            if load8(data, at) > 1:
                return VERDICT_BOOLEAN, at
            if leaf >= 0:
                start[leaf, row], length[leaf, row] = at, 1
                what[leaf, row] = first_type + code[place, CODE_TYPE]
            at += 1
        elif op == OP_NULL:
            if leaf >= 0:
                length[leaf, row] = NULL
        elif op == OP_LOST:
            for below in range(code[place, CODE_ONE], code[place, CODE_TWO]):
                length[below, row] = code[place, CODE_TYPE]
        elif op == OP_BLOCKS:
            first = at
            count, at, verdict = _varint(data, at, end)
            if verdict != VERDICT_GOOD:
                return verdict, at
            if count == 0:
                place = code[place, CODE_TWO]
                continue
            block_end, size_at = int64(-1), at
            if count < 0:
                count = -count
                if count < 0:
                    return VERDICT_LENGTH, first
                size, at, verdict = _varint(data, at, end)
                if verdict != VERDICT_GOOD:
                    return verdict, at
                if size < 0:
                    return VERDICT_LENGTH, size_at
                if size > end - at:
                    return VERDICT_CUT, end
                block_end = at + size
            if code[place, CODE_ONE] == 0:
                if count > EMPTY_ITEMS_MAX - empty:
                    return VERDICT_ITEMS, first
                empty += count
            if depth == AVRO_DEPTH_MAX:
                return VERDICT_DEPTH, first
            stack[FRAME_WORDS * depth] = count
            stack[FRAME_WORDS * depth + 1] = block_end
            stack[FRAME_WORDS * depth + 2] = size_at
            depth += 1
        elif op == OP_NEXT:
            frame = FRAME_WORDS * (depth - 1)
            stack[frame] -= 1
            place = code[place, CODE_ONE]
            if stack[frame] == 0:
                if stack[frame + 1] >= 0 and stack[frame + 1] != at:
                    return VERDICT_LENGTH, stack[frame + 2]
                depth -= 1
                continue
        elif op == OP_MARK:
            start[leaf, row] = at
        elif op == OP_SPAN:
            length[leaf, row] = at - start[leaf, row]
            what[leaf, row] = first_type + code[place, CODE_TYPE]
        elif op == OP_CALL:
            if depth == AVRO_DEPTH_MAX:
                return VERDICT_DEPTH, at
            stack[FRAME_WORDS * depth] = place + 1
            depth += 1
            place = code[place, CODE_ONE]
            continue
        elif op == OP_RETURN:
            depth -= 1
            place = stack[FRAME_WORDS * depth]
            continue
        else:
            # OP_END
            return VERDICT_GOOD, at
        place += 1


@kernel(
    LONG(
        BYTES, LONGS, LONGS, LONGS, TABLE, LONG, OUT_TABLE, OUT_TABLE, OUT_INT_TABLE, OUT_BYTES, OUT_LONGS, OUT_LONGS,
    )
)  # fmt: skip
def walk_avro(
    data: Bytes,
    begin: Longs,
    size: Longs,
    rows: Longs,
    code: Table,
    first_type: int,
    start: Table,
    length: Table,
    what: IntTable,
    verdict: Bytes,
    position: Longs,
    stack: Longs,
) -> int:
    """See ``avro_fallback.walk_avro``."""
    source, limit, leaves = base(data), data.size, length.shape[0]
    bad = 0
    for index in range(rows.size):
        row = rows[index]
        if size[row] < 0:
            verdict[row] = VERDICT_TOMBSTONE
            continue
        at = begin[row]
        end = at + size[row]
        found, stop = _run_program(source, at, end, limit, code, row, first_type, start, length, what, stack)
        if found == VERDICT_GOOD and stop != end:
            found = VERDICT_TRAILING
        elif found == VERDICT_CUT and at == end:
            found = VERDICT_EMPTY
        verdict[row] = found
        if found != VERDICT_GOOD:
            position[row] = stop - at
            bad += 1
            for leaf in range(leaves):
                length[leaf, row] = ABSENT
    return bad


@kernel(
    LONG(
        BYTES, LONGS, LONGS, LONGS, BOOLEAN, TABLE, LONG, OUT_INTS, OUT_LONGS, OUT_LONGS,
        OUT_TABLE, OUT_TABLE, OUT_INT_TABLE, OUT_LONGS,
    )
)  # fmt: skip
def list_avro_items(
    data: Bytes,
    start: Longs,
    length: Longs,
    rows: Longs,
    is_map: bool,
    code: Table,
    first_type: int,
    counts: Ints,
    name_start: Longs,
    name_length: Longs,
    item_start: Table,
    item_length: Table,
    item_what: IntTable,
    stack: Longs,
) -> int:
    """See ``avro_fallback.list_avro_items``."""
    source, limit, room = base(data), data.size, item_start.shape[1]
    count = int64(0)
    for index in range(rows.size):
        row = rows[index]
        # in bounds: values were validated by ``walk_avro``, so that each of these positions is inside of one
        at = start[row]
        end = at + length[row]
        before = count
        items, at, _ = _varint(source, at, end)
        while items != 0:
            if items < 0:
                items = -items
                _, at, _ = _varint(source, at, end)
            for _ in range(items):
                place = min(count, room - 1)
                if is_map:
                    size, at, _ = _varint(source, at, end)
                    name_start[place], name_length[place] = at, size
                    at += size
                item_length[0, place] = ABSENT
                _, at = _run_program(
                    source, at, end, limit, code, place, first_type, item_start, item_length, item_what, stack
                )
                count += 1
            items, at, _ = _varint(source, at, end)
        counts[row] = count - before
    return count


@kernel(LONG(BYTES, LONGS, LONGS, LONGS, OUT_LONGS, OUT_BYTES))
def read_unscaled(data: Bytes, start: Longs, length: Longs, rows: Longs, values: Longs, wide: Bytes) -> int:
    """See ``avro_fallback.read_unscaled``."""
    source, left = base(data), 0
    for index in range(rows.size):
        row = rows[index]
        # in bounds: values were validated by a walker
        at, size = start[row], length[row]
        value = int64(0)
        wide[index] = 1 if size > 8 or size < 1 else 0
        left += int64(wide[index])
        if wide[index] == 0:
            value = int64(load8(source, at))
            value = value - 256 if value > 127 else value
            for step_ in range(1, size):
                value = (value << 8) | int64(load8(source, at + step_))
        values[index] = value
    return left
