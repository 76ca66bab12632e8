"""The kernels of Protobuf payloads as plain Python, same names and signatures: for reading, testing, small requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lading.kernels.arrays import Bytes, Ints, Longs, Table

from .layout import (
    ABSENT,
    DENSE_NUMBERS,
    KIND_BOOL,
    KIND_ENUM,
    KIND_FIXED32,
    KIND_FIXED64,
    KIND_GROUP,
    KIND_INT32,
    KIND_MESSAGE,
    KIND_SFIXED32,
    KIND_SINT32,
    KIND_SINT64,
    KIND_STRING,
    KIND_UINT32,
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

_WIDTHS: Final = {KIND_FIXED32: 4, KIND_SFIXED32: 4, KIND_FIXED64: 8}
_WIRE_WIDTHS: Final = {WIRE_FIXED32: 4, WIRE_FIXED64: 8}
_VARINT_BYTES_MAX: Final = 10
_TAG_MAX: Final = (1 << 32) - 1
_WORD_BYTES: Final = 8


class _MalformedError(Exception):
    """A verdict, and the position of the first invalid byte."""

    def __init__(self, verdict: int, position: int) -> None:
        self.verdict, self.position = verdict, position


def walk_protobuf(
    data: Bytes, begin: Longs, size: Longs, messages: Table, fields: Table, dense: Longs, defaults: Table,
    clears: Longs, numbers: Longs, start: Table, length: Table, verdict: Bytes, position: Longs, split: Bytes,
    seen: Longs, stack: Longs,
) -> int:  # fmt: skip
    """Find the leaves of the tables of a program in payloads, ``size`` bytes at ``begin`` each (below 0: null).

    For each leaf and row, ``start`` and ``length`` get the place of the value in ``data``; for a number ``start`` gets
    its value, for a float its bits. Absent values have the length ABSENT. A repeated field is the part of its message
    from the first tag to the end of the last item. ``verdict`` and ``position``, in bytes of the payload, get the error
    of each row; ``split`` is 1 if a message on a path, or one that is a leaf, occurs more than once and still has to be
    merged. ``seen``, filled with -1, and ``stack`` are working memory. Returns how many payloads are malformed.
    """
    bad = 0
    tables = _Tables(messages, fields, dense, defaults, clears, numbers)
    for row in range(len(size)):
        start[:, row], length[:, row], split[row], position[row] = 0, ABSENT, 0, 0
        if size[row] < 0:
            verdict[row] = VERDICT_TOMBSTONE
            continue
        first = int(begin[row])
        text = data[first : first + int(size[row])].tobytes()
        reader = _Payload(text, tables)
        try:
            reader.read(0, 0, len(text), 0)
        except _MalformedError as error:
            is_inside = error.verdict == VERDICT_CUT and error.position != len(text)
            verdict[row], position[row] = VERDICT_LENGTH if is_inside else error.verdict, error.position
            bad += 1
            continue
        verdict[row], split[row] = VERDICT_GOOD, reader.is_split
        for leaf, (at, held, is_place) in reader.found.items():
            start[leaf, row], length[leaf, row] = first + at if is_place else at, held
    return bad


def list_protobuf_items(
    data: Bytes, start: Longs, length: Longs, tag: int, kind: int, numbers: Longs, counts: Ints, item_start: Longs,
    item_length: Longs, stack: Longs,
) -> int:  # fmt: skip
    """Locate the items of a repeated field, whose single items have ``tag``, in parts of validated messages.

    ``numbers`` are those of a closed enum. ``counts`` are the items of each row. Returns how many there are: if that is
    more than the arrays can hold, which is at least one, the output is not valid.
    """
    count, room = 0, len(item_start)
    for row in range(len(start)):
        first, before = int(start[row]), count
        text = data[first : first + max(int(length[row]), 0)].tobytes()
        for at, size, is_place in _list_items(text, tag, kind, numbers.tolist()):
            place = min(count, room - 1)
            item_start[place], item_length[place] = first + at if is_place else at, size
            count += 1
        counts[row] = count - before
    return count


def _list_items(text: bytes, tag: int, kind: int, numbers: list[int]) -> Iterator[tuple[int, int, bool]]:
    at = 0
    while at < len(text):
        first = at
        found, at = read_tag(text, at, len(text))
        is_item = found == tag or (found == tag >> 3 << 3 | WIRE_SIZED and kind != KIND_GROUP)
        if not is_item or kind == KIND_GROUP:
            begin, (at, last) = at, find_field_end(text, first, at, len(text), found, 0)
            if is_item:
                yield begin, last - begin, True
        elif kind >= KIND_STRING:
            size, at = read_size(text, at, len(text))
            yield at, size, True
            at += size
        else:
            end = len(text)
            if found != tag:
                size, at = read_size(text, at, len(text))
                end = at + size
            while at < end:
                word, at = read_number(text, at, end, kind)
                if kind != KIND_ENUM or not numbers or word in numbers:
                    yield word, _WORD_BYTES, False
                if found == tag:
                    break


class _Tables:
    """The tables of a program as lists."""

    def __init__(
        self, messages: Table, fields: Table, dense: Longs, defaults: Table, clears: Longs, numbers: Longs
    ) -> None:
        self.messages, self.fields, self.dense = messages.tolist(), fields.tolist(), dense.tolist()
        self.defaults, self.clears, self.numbers = defaults.tolist(), clears.tolist(), numbers.tolist()

    def find_field(self, node: int, number: int) -> list[int] | None:
        if number < DENSE_NUMBERS:
            place = self.dense[node * DENSE_NUMBERS + number]
            return None if place < 0 else self.fields[place]
        first, end = self.messages[node][:2]
        return next((field for field in self.fields[first:end] if field[0] >> 3 == number), None)


class _Payload:
    """One payload: for each leaf the position or number, the length, and whether it is a position."""

    def __init__(self, text: bytes, tables: _Tables) -> None:
        self._text, self._tables = text, tables
        self.found: dict[int, tuple[int, int, bool]] = {}
        self.is_split = False
        self._seen: set[int] = set()

    def read(self, node: int, at: int, end: int, depth: int) -> None:
        """Read a message. Raises _MalformedError."""
        # a loop over a stack, as there may be more levels than Python can follow
        self._enter(node)
        stack: list[tuple[int, int, list[int] | None]] = []
        while True:
            if at == end:
                if not stack:
                    return
                node, end, group = stack.pop()
                if group is not None:
                    raise _MalformedError(VERDICT_CUT, len(self._text) if not stack else at)
                continue
            first = at
            tag, at = read_tag(self._text, at, end)
            field = self._tables.find_field(node, tag >> 3)
            if field is not None and field[0] != tag:
                if field[4] and field[1] < KIND_STRING and tag & 7 == WIRE_SIZED:
                    at = self._read_packed(field, first, at, end)
                    continue
                field = None
            if field is None and tag & 7 == WIRE_GROUP_END and stack:
                group = stack[-1][2]
                if group is not None and group[0] >> 3 == tag >> 3:
                    node = stack.pop()[0]
                    self._end_group(group, first, at)
                    continue
            if field is None:
                at = skip_field(self._text, first, at, end, tag, len(stack))
                continue
            _, kind, below, leaf, is_repeated = field[:5]
            if kind < KIND_STRING:
                word, at = read_number(self._text, at, end, kind)
                known = self._tables.numbers[field[7] : field[8]]
                if kind == KIND_ENUM and known and word not in known:
                    continue
                value = word, _WORD_BYTES, False
            elif kind == KIND_GROUP:
                # the length of a group is known at its end
                value = at, 0, True
            else:
                size, at = read_size(self._text, at, end)
                if kind == KIND_STRING:
                    _require_utf8(self._text, at, size)
                value = at, size, True
                at += size
            self._clear(field)
            if leaf >= 0 and is_repeated:
                self._extend(leaf, first, at)
            elif leaf >= 0:
                held = self.found.get(leaf)
                self.is_split |= kind >= KIND_MESSAGE and held is not None and held[2]
                self.found[leaf] = value
            if kind >= KIND_MESSAGE:
                if len(stack) == PROTOBUF_DEPTH_MAX:
                    raise _MalformedError(VERDICT_DEPTH, first)
                stack.append((node, end, field if kind == KIND_GROUP else None))
                node, at, end = below, value[0], end if kind == KIND_GROUP else at
                self._enter(node)

    def _end_group(self, group: list[int], first: int, end: int) -> None:
        """Set the length of a group: ``first`` is the position of its last tag, ``end`` the position after it."""
        leaf, is_repeated = group[3:5]
        if leaf >= 0:
            begin = self.found[leaf][0]
            self.found[leaf] = begin, (end if is_repeated else first) - begin, True

    def _enter(self, node: int) -> None:
        _, _, slot, first, end = self._tables.messages[node]
        if slot < 0:
            return
        if slot in self._seen:
            self.is_split = True
            return
        self._seen.add(slot)
        for leaf, word, size in self._tables.defaults[first:end]:
            self.found[leaf] = word, size, False

    def _clear(self, field: list[int]) -> None:
        for cleared in self._tables.clears[field[5] : field[6]]:
            if cleared >= 0:
                self.found.pop(cleared, None)
            else:
                self._seen.discard(-cleared - 1)

    def _extend(self, leaf: int, first: int, end: int) -> None:
        """Extend a repeated field from its first tag to ``end``."""
        begin, size, _ = self.found.get(leaf, (0, 0, False))
        begin = begin if size else first
        self.found[leaf] = begin, end - begin, True

    def _read_packed(self, field: list[int], first: int, at: int, end: int) -> int:
        size, at = read_size(self._text, at, end)
        end = at + size
        width = _WIDTHS.get(field[1])
        if width is not None and size % width:
            raise _MalformedError(VERDICT_LENGTH, end)
        while width is None and at < end:
            try:
                _, at = read_varint(self._text, at, end)
            except _MalformedError as error:
                raise _MalformedError(
                    VERDICT_LENGTH if error.verdict == VERDICT_CUT else error.verdict, error.position
                ) from None
        if field[3] >= 0:
            self._extend(field[3], first, end)
        return end


def read_varint(text: bytes, at: int, end: int) -> tuple[int, int]:
    """Return 64 bits, and the position after them. Raises _MalformedError."""
    value, first = 0, at
    while at < end:
        byte = text[at]
        if at - first == _VARINT_BYTES_MAX - 1 and byte >= 0x80:
            raise _MalformedError(VERDICT_VARINT, first)
        value |= (byte & 0x7F) << 7 * (at - first)
        at += 1
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise _MalformedError(VERDICT_CUT, end)


def read_tag(text: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the tag of a field, and the position after it. Raises _MalformedError."""
    first = at
    value, at = _read_short(text, at, end, VERDICT_TAG)
    if value > _TAG_MAX:
        raise _MalformedError(VERDICT_TAG, first)
    return value, at


def read_size(text: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a length that stays inside ``end``, and the position after it. Raises _MalformedError."""
    first = at
    value, at = _read_short(text, at, end, VERDICT_LENGTH)
    if value > SIZE_MAX:
        raise _MalformedError(VERDICT_LENGTH, first)
    if value > end - at:
        raise _MalformedError(VERDICT_CUT, end)
    return value, at


def _read_short(text: bytes, at: int, end: int, verdict: int) -> tuple[int, int]:
    first = at
    try:
        value, at = read_varint(text, at, end)
    except _MalformedError as error:
        if error.verdict == VERDICT_CUT:
            raise
        raise _MalformedError(verdict, first) from None
    if at - first > SIZE_BYTES_MAX:
        raise _MalformedError(verdict, first)
    return value, at


def read_number(text: bytes, at: int, end: int, kind: int) -> tuple[int, int]:
    """Return the number of a field of a kind, and the position after it. Raises _MalformedError."""
    width = _WIDTHS.get(kind)
    if width is not None:
        if width > end - at:
            raise _MalformedError(VERDICT_CUT, end)
        return int.from_bytes(text[at : at + width], "little", signed=kind != KIND_FIXED32), at + width
    value, at = read_varint(text, at, end)
    low = value & 0xFFFF_FFFF
    match kind:
        case _ if kind in (KIND_INT32, KIND_ENUM):
            return (low ^ 1 << 31) - (1 << 31), at
        case _ if kind == KIND_UINT32:
            return low, at
        case _ if kind == KIND_SINT32:
            return (low >> 1) ^ -(low & 1), at
        case _ if kind == KIND_SINT64:
            return (value >> 1) ^ -(value & 1), at
        case _ if kind == KIND_BOOL:
            return int(value != 0), at
    return (value ^ 1 << 63) - (1 << 63), at


def skip_field(text: bytes, first: int, at: int, end: int, tag: int, depth: int) -> int:
    """Return the position after an unknown field, whose tag at ``first`` was read."""
    return find_field_end(text, first, at, end, tag, depth)[0]


def find_field_end(text: bytes, first: int, at: int, end: int, tag: int, depth: int) -> tuple[int, int]:
    """Return the position after a field whose tag at ``first`` was read, and for a group that of its last tag."""
    groups: list[int] = []
    while True:
        wire, number = tag & 7, tag >> 3
        if number == 0:
            raise _MalformedError(VERDICT_TAG, first)
        if wire == WIRE_VARINT:
            _, at = read_varint(text, at, end)
        elif wire in _WIRE_WIDTHS:
            if _WIRE_WIDTHS[wire] > end - at:
                raise _MalformedError(VERDICT_CUT, end)
            at += _WIRE_WIDTHS[wire]
        elif wire == WIRE_SIZED:
            size, at = read_size(text, at, end)
            at += size
        elif wire == WIRE_GROUP:
            if depth + len(groups) == PROTOBUF_DEPTH_MAX:
                raise _MalformedError(VERDICT_DEPTH, first)
            groups.append(number)
        elif wire == WIRE_GROUP_END and groups and groups[-1] == number:
            groups.pop()
        else:
            raise _MalformedError(VERDICT_TAG, first)
        if not groups:
            return at, first
        if at >= end:
            raise _MalformedError(VERDICT_CUT, end)
        first = at
        tag, at = read_tag(text, at, end)


def _require_utf8(text: bytes, at: int, size: int) -> None:
    try:
        text[at : at + size].decode()
    except UnicodeDecodeError as error:
        raise _MalformedError(VERDICT_UTF8, at + error.start) from None
