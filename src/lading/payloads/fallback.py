"""The kernels of ``payloads`` as plain Python, same names and signatures: for reading, testing and small requests."""

from __future__ import annotations

import json
import re
from typing import Final

import numpy as np

from lading.kernels.arrays import Bytes, Ints, Kinds, KindTable, Longs, Table

from .layout import (
    ABSENT,
    BROKEN,
    JSON_DEPTH_MAX,
    JSON_ESCAPED,
    JSON_FALSE,
    JSON_INTEGER,
    JSON_NESTED,
    JSON_NOTHING,
    JSON_PLAIN,
    JSON_REAL,
    JSON_TRUE,
    JSON_WIDE,
    KEY_LEAF,
    KEY_NODE,
    KEY_SIZE,
    KEY_START,
    NODE_KEYS,
    NODE_KEYS_END,
    NODE_LEAVES,
    NODE_LEAVES_END,
    NULL,
    SEEN_BROKEN,
    VERDICT_CONTROL,
    VERDICT_CUT,
    VERDICT_DEPTH,
    VERDICT_EMPTY,
    VERDICT_ESCAPE,
    VERDICT_GOOD,
    VERDICT_NOT_OBJECT,
    VERDICT_NUMBER,
    VERDICT_SYNTAX,
    VERDICT_TOMBSTONE,
    VERDICT_TRAILING,
    VERDICT_UTF8,
)

_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_DIGITS: Final = re.compile(rb"[0-9]*")
_HEX: Final = re.compile(rb"[0-9a-fA-F]*")
_WORDS: Final = ((b"true", JSON_TRUE), (b"false", JSON_FALSE), (b"null", JSON_NOTHING))
_STRINGS: Final = (JSON_PLAIN, JSON_WIDE, JSON_ESCAPED)


class _MalformedError(Exception):
    """A verdict, and the position of the first invalid byte."""

    def __init__(self, verdict: int, position: int) -> None:
        self.verdict, self.position = verdict, position


def walk_json(
    data: Bytes, begin: Longs, size: Longs, nodes: Table, keys: Table, names: Bytes, stack: Bytes, name_room: Bytes,
    start: Table, length: Table, kind: KindTable, verdict: Bytes, position: Longs, after: Longs, seen: Longs,
) -> int:  # fmt: skip
    """Validate each payload, ``size`` bytes at ``begin`` (-1: null), and locate the values of all leaves.

    ``nodes``, ``keys`` and ``names`` are the tables of the paths, by ``paths.py``. For each leaf and row, ``start`` and
    ``length`` get the place of the value in ``data``, of a string without its quotes, and ``kind`` its kind. The
    lengths ABSENT, NULL and BROKEN stand for missing values. ``verdict`` and ``position``, in bytes of the payload, get
    the error of each row. ``stack`` and ``name_room`` are working memory: JSON_DEPTH_MAX bytes, and as many as
    ``names`` has. ``after``, filled with -1, has a number for each node and key, in which the kernel keeps the next
    key. ``seen`` gets the bits of ``layout`` for each leaf, possibly more than those of its values. Returns how many
    payloads are malformed.
    """
    start[:], length[:], kind[:], position[:] = 0, ABSENT, JSON_NOTHING, 0
    for row in range(len(size)):
        if size[row] < 0:
            verdict[row] = VERDICT_TOMBSTONE
            continue
        text = data[begin[row] : begin[row] + size[row]].tobytes()
        try:
            found = _Payload(text, nodes, keys, names.tobytes()).find_leaves()
        except _MalformedError as error:
            verdict[row], position[row] = error.verdict, error.position
            continue
        verdict[row] = VERDICT_GOOD
        for leaf, (at, length_bytes, which) in found.items():
            length[leaf, row] = length_bytes
            start[leaf, row], kind[leaf, row] = begin[row] + at, which
            seen[leaf] |= SEEN_BROKEN if length_bytes == BROKEN else 1 << which
    return int((verdict > VERDICT_TOMBSTONE).sum())


def list_items(
    data: Bytes, start: Longs, length: Longs, kind: Kinds, opener: int, stack: Bytes, ends: Ints,
    name_start: Longs, name_length: Longs, name_kind: Kinds, item_start: Longs, item_length: Longs, item_kind: Kinds,
) -> int:  # fmt: skip
    """Locate the items of every array, or the members of every object if ``opener`` is the brace, of located values.

    ``ends`` gets, for each row, the number of items up to its last one; only members have names. Returns how many items
    there are. If that is more than the arrays can hold, which is at least one, the output is not valid.
    """
    count = 0
    ends[0] = 0
    for row in range(len(length)):
        if length[row] > 0 and kind[row] == JSON_NESTED and data[start[row]] == opener:
            first = int(start[row])
            text = data[first : first + length[row]].tobytes()
            at = _skip_space(text, 1)
            while text[at] != opener + 2:
                place = min(count, len(item_start) - 1)
                if opener == ord("{"):
                    stop, which = _string_end(text, at + 1)
                    name_start[place], name_length[place], name_kind[place] = first + at + 1, stop - at - 1, which
                    at = _skip_space(text, _skip_space(text, stop + 1) + 1)
                stop, which = _value_end(text, at, 0)
                quotes = 1 if which in _STRINGS else 0
                item_start[place], item_kind[place] = first + at + quotes, which
                item_length[place] = NULL if which == JSON_NOTHING else stop - at - 2 * quotes
                count += 1
                at = _skip_space(text, stop)
                if text[at] == ord(","):
                    at = _skip_space(text, at + 1)
        ends[row + 1] = count
    return count


def unescape_strings(data: Bytes, start: Longs, length: Longs, kind: Kinds, out: Bytes, to: Longs, size: Longs) -> int:
    """Copy all values to ``out``, strings without their escapes; their places get into ``to`` and ``size``.

    A value with a lone surrogate is BROKEN. Returns how many bytes were written.
    """
    end = 0
    for row in range(len(length)):
        to[row], size[row] = end, length[row]
        if length[row] > 0:
            text = data[start[row] : start[row] + length[row]].tobytes()
            value = _unescape(text) if kind[row] == JSON_ESCAPED else text
            if value is None:
                size[row] = BROKEN
                continue
            out[end : end + len(value)] = np.frombuffer(value, np.uint8)
            size[row] = len(value)
            end += len(value)
    return end


class _Payload:
    """One payload, and the values of its leaves."""

    def __init__(self, text: bytes, nodes: Table, keys: Table, names: bytes) -> None:
        self.text = text
        self.nodes, self.keys, self.names = nodes, keys, names
        self.found: dict[int, tuple[int, int, int]] = {}

    def find_leaves(self) -> dict[int, tuple[int, int, int]]:
        at = _skip_space(self.text, 0)
        if at == len(self.text):
            raise _MalformedError(VERDICT_EMPTY, at)
        is_object = self.text[at] == ord("{")
        end = _skip_space(self.text, self._object_end(at, 0, 0) if is_object else _value_end(self.text, at, 0)[0])
        if end != len(self.text):
            raise _MalformedError(VERDICT_TRAILING, end)
        if not is_object:
            raise _MalformedError(VERDICT_NOT_OBJECT, at)
        return self.found

    def _object_end(self, at: int, node: int, depth: int) -> int:
        """Return the end of the object that begins here; ``node`` has its requested members."""
        text = self.text
        at = _skip_space(text, at + 1)
        if text[at : at + 1] == b"}":
            return at + 1
        while True:
            name, at = _read_name(text, at)
            at = _require(text, _skip_space(text, at))
            key = self._find_key(node, name)
            at = _value_end(text, at, depth + 1)[0] if key is None else self._member_end(at, key, depth)
            at = _require(text, _skip_space(text, at))
            if text[at] not in b",}":
                raise _MalformedError(VERDICT_SYNTAX, at)
            if text[at] == ord("}"):
                return at + 1
            at = _skip_space(text, at + 1)

    def _member_end(self, at: int, key: int, depth: int) -> int:
        leaf, inner = int(self.keys[key, KEY_LEAF]), int(self.keys[key, KEY_NODE])
        below = range(self.nodes[inner, NODE_LEAVES], self.nodes[inner, NODE_LEAVES_END]) if inner >= 0 else ()
        # of several members with one name the last one counts, with everything in it
        self.found.update(dict.fromkeys(below, (0, ABSENT, JSON_NOTHING)))
        if inner >= 0 and self.text[at] == ord("{"):
            end, which = self._object_end(at, inner, depth + 1), JSON_NESTED
        else:
            end, which = _value_end(self.text, at, depth + 1)
            lost = NULL if which == JSON_NOTHING else BROKEN
            self.found.update(dict.fromkeys(below, (0, lost, JSON_NOTHING)))
        if leaf >= 0:
            quotes = 1 if which in _STRINGS else 0
            length = NULL if which == JSON_NOTHING else end - at - 2 * quotes
            self.found[leaf] = at + quotes, length, which
        return end

    def _find_key(self, node: int, name: bytes | None) -> int | None:
        for key in range(self.nodes[node, NODE_KEYS], self.nodes[node, NODE_KEYS_END]):
            start = self.keys[key, KEY_START]
            if self.names[start : start + self.keys[key, KEY_SIZE]] == name:
                return key
        return None


def _read_name(text: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the name of the member that begins here (None if it is not text) and the position after its colon."""
    _require(text, at)
    if text[at] != ord('"'):
        raise _MalformedError(VERDICT_SYNTAX, at)
    end, which = _string_end(text, at + 1)
    name = text[at + 1 : end]
    colon = _require(text, _skip_space(text, end + 1))
    if text[colon] != ord(":"):
        raise _MalformedError(VERDICT_SYNTAX, colon)
    return _unescape(name) if which == JSON_ESCAPED else name, colon + 1


def _value_end(text: bytes, at: int, depth: int) -> tuple[int, int]:
    """Return the end of the value that begins here, at nesting level ``depth``, and its kind."""
    _require(text, at)
    if text[at] == ord('"'):
        end, which = _string_end(text, at + 1)
        return end + 1, which
    if text[at] not in b"{[":
        return _scalar_end(text, at)
    opened: list[int] = []
    while True:
        at = _require(text, _skip_space(text, at))
        here = text[at]
        if here in b"{[":
            if depth + len(opened) == JSON_DEPTH_MAX:
                raise _MalformedError(VERDICT_DEPTH, at)
            opened.append(here)
            at = _require(text, _skip_space(text, at + 1))
            if text[at] != here + 2:
                at = _read_name(text, at)[1] if here == ord("{") else at
                continue
            opened.pop()
            at += 1
        else:
            at = _value_end(text, at, depth)[0]
        while opened:
            at = _require(text, _skip_space(text, at))
            if text[at] == ord(","):
                at += 1
                if opened[-1] == ord("{"):
                    at = _read_name(text, _skip_space(text, at))[1]
                break
            if text[at] != opened.pop() + 2:
                raise _MalformedError(VERDICT_SYNTAX, at)
            at += 1
        else:
            return at, JSON_NESTED


def _string_end(text: bytes, at: int) -> tuple[int, int]:
    """Return the position of the closing quote of the string whose text begins here, and its kind."""
    start, which = at, JSON_PLAIN
    while True:
        at = _end(_PLAIN, text, at)
        _require(text, at)
        if text[at] == ord('"'):
            try:
                plain = text[start:at].decode().isascii()
            except UnicodeDecodeError as error:
                raise _MalformedError(VERDICT_UTF8, start + error.start) from None
            return at, which if plain or which == JSON_ESCAPED else JSON_WIDE
        if text[at] != ord("\\"):
            raise _MalformedError(VERDICT_CONTROL, at)
        _require(text, at + 1)
        which = JSON_ESCAPED
        if text[at + 1] == ord("u"):
            digits = _end(_HEX, text[: at + 6], at + 2)
            if digits < at + 6:
                raise _MalformedError(*((VERDICT_CUT, digits) if digits == len(text) else (VERDICT_ESCAPE, at)))
            at += 6
        elif text[at + 1] in b'"\\/bfnrt':
            at += 2
        else:
            raise _MalformedError(VERDICT_ESCAPE, at)


def _scalar_end(text: bytes, at: int) -> tuple[int, int]:
    for word, which in _WORDS:
        if text[at] == word[0]:
            for place, letter in enumerate(word):
                if _require(text, at + place) and text[at + place] != letter:
                    raise _MalformedError(VERDICT_SYNTAX, at + place)
            return at + len(word), which
    if text[at] not in b"-0123456789":
        raise _MalformedError(VERDICT_SYNTAX, at)
    first = at + 1 if text[at] == ord("-") else at
    at, which = _read_digits(text, first), JSON_INTEGER
    if at > first + 1 and text[first] == ord("0"):
        raise _MalformedError(VERDICT_NUMBER, first + 1)
    if text[first - 1 : first + 1] == b"-0":
        which = JSON_REAL
    if text[at : at + 1] == b".":
        at, which = _read_digits(text, at + 1), JSON_REAL
    if text[at : at + 1] in (b"e", b"E"):
        at += 2 if text[at + 1 : at + 2] in (b"+", b"-") else 1
        at, which = _read_digits(text, at), JSON_REAL
    return at, which


def _read_digits(text: bytes, at: int) -> int:
    """Return the end of the digits that begin here; there must be at least one."""
    end = _end(_DIGITS, text, at)
    if end == at:
        raise _MalformedError(VERDICT_CUT if end == len(text) else VERDICT_NUMBER, at)
    return end


def _skip_space(text: bytes, at: int) -> int:
    return _end(_SPACE, text, at)


def _end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    match = pattern.match(text, at)
    assert match is not None
    return match.end()


def _require(text: bytes, at: int) -> int:
    """Return ``at`` if a byte exists there. Raises _MalformedError otherwise."""
    if at >= len(text):
        raise _MalformedError(VERDICT_CUT, len(text))
    return at


def _unescape(text: bytes) -> bytes | None:
    """Return a valid JSON string without its escapes; None if it has half of a surrogate pair."""
    value: str = json.loads(b'"' + text + b'"')
    try:
        return value.encode()
    except UnicodeEncodeError:
        return None
