"""The kernels of Avro payloads as plain Python, same names and signatures: for reading, testing and small requests."""

from __future__ import annotations

from typing import Any, Final

from lading.kernels.arrays import Bytes, Ints, IntTable, Longs, Table

from .layout import (
    ABSENT,
    AVRO_DEPTH_MAX,
    EMPTY_ITEMS_MAX,
    NULL,
    OP_BLOCKS,
    OP_BOOLEAN,
    OP_BYTES,
    OP_CALL,
    OP_DOUBLE,
    OP_END,
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

_SIZES: Final = {OP_DOUBLE: 8, OP_FLOAT: 4}


class _MalformedError(Exception):
    """A verdict, and the position of the first invalid byte."""

    def __init__(self, verdict: int, position: int) -> None:
        self.verdict, self.position = verdict, position


def walk_avro(
    data: Bytes, begin: Longs, size: Longs, rows: Longs, code: Table, first_type: int,
    start: Table, length: Table, what: IntTable, verdict: Bytes, position: Longs, stack: Longs,
) -> int:  # fmt: skip
    """Run the program ``code`` on the payloads of some ``rows``, ``size`` bytes at ``begin`` (-1: null).

    For each leaf and row, ``start`` and ``length`` get the place of the value in ``data``, or ``start`` the number
    itself, and ``what`` the index of its type, counted from ``first_type``. The lengths ABSENT, NULL and BROKEN stand
    for missing values; the caller has filled ``length`` with ABSENT. ``verdict`` and ``position``, in bytes of the
    payload, get the error of each row. ``stack`` is working memory. Returns how many payloads are malformed.
    """
    bad = 0
    instructions = code.tolist()
    for row in rows.tolist():
        if size[row] < 0:
            verdict[row] = VERDICT_TOMBSTONE
            continue
        payload = data[begin[row] : begin[row] + size[row]].tobytes()
        reader = _Value(payload, 0, instructions)
        try:
            end = reader.read()
            if end != len(payload):
                raise _MalformedError(VERDICT_TRAILING, end)
        except _MalformedError as error:
            is_empty = error.verdict == VERDICT_CUT and not payload
            verdict[row], position[row] = VERDICT_EMPTY if is_empty else error.verdict, error.position
            length[:, row] = ABSENT
            bad += 1
            continue
        verdict[row] = VERDICT_GOOD
        reader.store(row, int(begin[row]), first_type, start, length, what)
    return bad


def list_avro_items(
    data: Bytes, start: Longs, length: Longs, rows: Longs, is_map: bool, code: Table, first_type: int, counts: Ints,
    name_start: Longs, name_length: Longs, item_start: Table, item_length: Table, item_what: IntTable, stack: Longs,
) -> int:  # fmt: skip
    """Locate the items of arrays, or the members of maps, in ``rows`` of validated values; ``code`` reads an item.

    ``counts`` are the items of each row; only members have names. Returns how many there are: if that is more than the
    arrays can hold, which is at least one, the output is not valid.
    """
    count, room = 0, item_start.shape[1]
    instructions = code.tolist()
    for row in rows.tolist():
        first, before = int(start[row]), count
        text = data[first : first + int(length[row])].tobytes()
        items, at = _read_varint(text, 0)
        while items:
            if items < 0:
                items, at = -items, _read_varint(text, at)[1]
            for _ in range(items):
                place = min(count, room - 1)
                if is_map:
                    size, at = _read_varint(text, at)
                    name_start[place], name_length[place] = first + at, size
                    at += size
                item_length[0, place] = ABSENT
                reader = _Value(text, at, instructions)
                at = reader.read()
                reader.store(place, first, first_type, item_start, item_length, item_what)
                count += 1
            items, at = _read_varint(text, at)
        counts[row] = count - before
    return count


def read_unscaled(data: Bytes, start: Longs, length: Longs, rows: Longs, values: Longs, wide: Bytes) -> int:
    """Read big-endian numbers of 1 to 8 bytes in ``rows``; longer ones are marked ``wide``. Returns the
    number of those.
    """
    for index, row in enumerate(rows.tolist()):
        text = data[start[row] : start[row] + length[row]].tobytes()
        wide[index] = not 1 <= len(text) <= 8
        values[index] = 0 if wide[index] else int.from_bytes(text, "big", signed=True)
    return int(wide[: len(rows)].sum())


class _Value:
    """One value, read by a program from ``at`` on, and its value for each leaf."""

    def __init__(self, text: bytes, at: int, code: list[list[int]]) -> None:
        self._text, self._at, self._code = text, at, code
        self._found: dict[int, tuple[int, int, int]] = {}
        """Position or number, length and type of each leaf."""
        self._numbers: set[int] = set()

    def store(self, row: int, begin: int, first_type: int, start: Table, length: Table, what: Any) -> None:
        for leaf, (at, size, type_) in self._found.items():
            start[leaf, row] = at if leaf in self._numbers else begin + at
            length[leaf, row], what[leaf, row] = size, first_type + type_

    def read(self) -> int:
        """Return the position after the value. Raises _MalformedError."""
        place, empty = 0, 0
        stack: list[list[int]] = []
        marks: dict[int, int] = {}
        while True:
            op, leaf, type_, one, two = self._code[place]
            place += 1
            if op in (OP_STRING, OP_BYTES):
                size = self._read_number()
                if size < 0:
                    raise _MalformedError(VERDICT_LENGTH, self._before)
                at = self._take(size)
                if op == OP_STRING:
                    _require_utf8(self._text, at, size)
                self._keep(leaf, at, size, type_)
            elif op in (OP_LONG, OP_INT, OP_ENUM):
                value = self._read_number()
                if op == OP_INT and not -(1 << 31) <= value < 1 << 31:
                    raise _MalformedError(VERDICT_NUMBER, self._before)
                if op == OP_ENUM and not 0 <= value < one:
                    raise _MalformedError(VERDICT_CHOICE, self._before)
                self._keep(leaf, value, 8, type_)
                self._numbers.add(leaf)
            elif op == OP_UNION:
                value = self._read_number()
                if not 0 <= value < one:
                    raise _MalformedError(VERDICT_CHOICE, self._before)
                place = two + value
            elif op == OP_JUMP:
                place = one
            elif op in (OP_DOUBLE, OP_FLOAT, OP_FIXED):
                size = _SIZES.get(op, one)
                self._keep(leaf, self._take(size), size, type_)
            elif op == OP_BOOLEAN:
                at = self._take(1)
                if self._text[at] > 1:
                    raise _MalformedError(VERDICT_BOOLEAN, at)
                self._keep(leaf, at, 1, type_)
            elif op == OP_NULL:
                self._keep(leaf, 0, NULL, 0)
            elif op == OP_LOST:
                self._found.update(dict.fromkeys(range(one, two), (0, type_, 0)))
            elif op == OP_BLOCKS:
                count, first = self._read_number(), self._before
                if count == 0:
                    place = two
                    continue
                end, size_at = -1, self._at
                if count < 0:
                    count = -count
                    if count == 1 << 63:
                        raise _MalformedError(VERDICT_LENGTH, first)
                    size = self._read_number()
                    if size < 0:
                        raise _MalformedError(VERDICT_LENGTH, size_at)
                    end = self._take(size) + size
                    self._at = end - size
                if one == 0:
                    if count > EMPTY_ITEMS_MAX - empty:
                        raise _MalformedError(VERDICT_ITEMS, first)
                    empty += count
                if len(stack) == AVRO_DEPTH_MAX:
                    raise _MalformedError(VERDICT_DEPTH, first)
                stack.append([count, end, size_at])
            elif op == OP_NEXT:
                stack[-1][0] -= 1
                if stack[-1][0]:
                    place = one + 1
                    continue
                _, end, size_at = stack.pop()
                if end >= 0 and end != self._at:
                    raise _MalformedError(VERDICT_LENGTH, size_at)
                place = one
            elif op == OP_MARK:
                marks[leaf] = self._at
            elif op == OP_SPAN:
                self._keep(leaf, marks[leaf], self._at - marks[leaf], type_)
            elif op == OP_CALL:
                if len(stack) == AVRO_DEPTH_MAX:
                    raise _MalformedError(VERDICT_DEPTH, self._at)
                stack.append([place])
                place = one
            elif op == OP_RETURN:
                place = stack.pop()[0]
            else:
                assert op == OP_END
                return self._at

    def _keep(self, leaf: int, at: int, size: int, type_: int) -> None:
        if leaf >= 0:
            self._found[leaf] = at, size, type_
            self._numbers.discard(leaf)

    def _read_number(self) -> int:
        self._before = self._at
        value, self._at = _read_varint(self._text, self._at)
        return value

    def _take(self, size: int) -> int:
        """Return the position, and advance it by ``size`` bytes, which must exist."""
        at = self._at
        if size > len(self._text) - at:
            raise _MalformedError(VERDICT_CUT, len(self._text))
        self._at += size
        return at


def _read_varint(text: bytes, at: int) -> tuple[int, int]:
    value, shift, first = 0, 0, at
    while at < len(text):
        byte = text[at]
        if shift == 63 and byte > 1:
            raise _MalformedError(VERDICT_VARINT, first)
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise _MalformedError(VERDICT_CUT, len(text))


def _require_utf8(text: bytes, at: int, size: int) -> None:
    try:
        text[at : at + size].decode()
    except UnicodeDecodeError as error:
        raise _MalformedError(VERDICT_UTF8, at + error.start) from None
