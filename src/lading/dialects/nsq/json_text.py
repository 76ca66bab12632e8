"""A lenient reader of JSON: the members of an object, and the meaning of a value's text (nsq.md 3.2)."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from lading.model.kinds import Kind

from .limits import EXT_DEPTH_MAX

_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*+)((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
"""A JSON number; the group has the part that makes it a float, and is empty for an integer."""
_STRING_KIND, _RAW_KIND, _INT64_KIND, _FLOAT64_KIND = Kind.STRING, Kind.RAW, Kind.INT64, Kind.FLOAT64
_WORDS: Final[dict[bytes, tuple[int, bytes | None]]] = {
    b"true": (Kind.BOOL, b"\x01"),
    b"false": (Kind.BOOL, b"\x00"),
    b"null": (Kind.RAW, None),
}
_ESCAPES: Final = {0x22: b'"', 0x5C: b"\\", 0x2F: b"/", 0x62: b"\b", 0x66: b"\f", 0x6E: b"\n", 0x72: b"\r", 0x74: b"\t"}
_OPENERS: Final = {0x7B: 0x7D, 0x5B: 0x5D}
_SPACES: Final = re.compile(rb"[ \t\n\r]*")
_STRING_PATTERN: Final = rb'"(?:[^"\\]++|\\.)*+"'
_SCALAR_PATTERN: Final = rb"true|false|null|[0-9.+eE-]++"
_STRING: Final = re.compile(_STRING_PATTERN, re.DOTALL)
_SCALAR: Final = re.compile(_SCALAR_PATTERN)
_SPACE_PATTERN: Final = rb"[ \t\n\r]*+"
_PLAIN_PATTERN: Final = rb"(?:%s|%s)" % (_STRING_PATTERN, _SCALAR_PATTERN)
_PARTS: Final = {b"space": _SPACE_PATTERN, b"string": _STRING_PATTERN, b"plain": _PLAIN_PATTERN}
_FLAT_OBJECT_PATTERN: Final = rb"\{(?:%(member)s(?:,%(member)s)*+)?+%(space)s\}" % {
    b"member": rb"%(space)s%(string)s%(space)s:%(space)s%(plain)s%(space)s" % _PARTS,
    b"space": _SPACE_PATTERN,
}
_FLAT_ARRAY_PATTERN: Final = rb"\[(?:%(item)s(?:,%(item)s)*+)?+%(space)s\]" % {
    b"item": rb"%(space)s%(plain)s%(space)s" % _PARTS,
    b"space": _SPACE_PATTERN,
}
_FLAT_NESTED: Final = re.compile(rb"%s|%s" % (_FLAT_OBJECT_PATTERN, _FLAT_ARRAY_PATTERN), re.DOTALL)
"""An object or array without objects or arrays inside."""
_MEMBER_PATTERN: Final = rb'%(space)s"((?:[^"\\]++|\\.)*+)"%(space)s:%(space)s(%(plain)s|%(nested)s)%(space)s' % (
    _PARTS | {b"nested": _FLAT_NESTED.pattern}
)
_FLAT_MEMBER: Final = re.compile(_MEMBER_PATTERN + rb"([,}])", re.DOTALL)
"""A member whose value has at most one level of objects or arrays, and its comma or brace.

No input makes it backtrack. Reading each part of a member by a call of its own took 30 ms for an ext of 3,000 headers.
"""
_FLAT_MEMBERS: Final = re.compile(_MEMBER_PATTERN + rb"[,}]", re.DOTALL)
_FLAT_OBJECT: Final = re.compile(
    rb"%(space)s\{(?:%(member)s(?:,%(member)s)*+)?+%(space)s\}%(space)s"
    % {b"space": _SPACE_PATTERN, b"member": _MEMBER_PATTERN},
    re.DOTALL,
)
"""A whole object whose values have at most one level of objects or arrays."""
_ESCAPED: Final = re.compile(rb'["\\\x00-\x1f]')
_STEPS: Final = {0x7B: 1, 0x5B: 1, 0x7D: -1, 0x5D: -1}
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _STEPS)
_INT64_MAX: Final = (1 << 63) - 1
_FLOAT64: Final = struct.Struct("<d")
_INFINITY: Final = float("inf")


class NotJson(Exception):
    """The bytes are not JSON, not even by the lenient rules."""


class JsonMember(NamedTuple):
    """A name and the text of its value, both as in the JSON; names without their quotes."""

    name: bytes
    value: bytes


_to_member: Final[Callable[[tuple[bytes, bytes]], JsonMember]] = partial(tuple.__new__, JsonMember)


def read_value(text: bytes) -> tuple[int, bytes | None, bool]:
    """Return kind and bytes of a JSON value, and whether it is a number that only text can hold."""
    if text[:1] == b'"':
        return *text_of(unescape(text[1:-1]) if b"\\" in text else text[1:-1]), False
    if text in _WORDS:
        return *_WORDS[text], False
    number = _NUMBER.fullmatch(text)
    if number is None:
        return *text_of(text), False
    if number[1]:
        if abs(value := float(text)) != _INFINITY:
            return _FLOAT64_KIND, _FLOAT64.pack(value), False
    # Python refuses to parse numbers with very many digits
    elif len(text) <= 20 and -_INT64_MAX - 1 <= (integer := int(text)) <= _INT64_MAX:
        return _INT64_KIND, integer.to_bytes(8, "little", signed=True), False
    return _STRING_KIND, text, True


def is_beyond(text: bytes) -> bool:
    """Return whether this is a whole JSON value that only text can hold: an object, an array, or a number too large."""
    if text[:1] not in (b"{", b"["):
        return read_value(text)[2]
    if text[-1:] not in (b"}", b"]"):
        return False
    try:
        members(text)
    except NotJson:
        return False
    return True


def text_of(data: bytes) -> tuple[int, bytes]:
    """Return bytes with their kind: string, or raw if they are not UTF-8."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return _RAW_KIND, data
    return _STRING_KIND, data


def quote(text: bytes) -> bytes:
    """Return a text as a JSON string: only the characters that JSON requires are escaped."""
    return b'"' + _ESCAPED.sub(_escape, text) + b'"'


def _escape(found: re.Match[bytes]) -> bytes:
    byte = found[0]
    return b"\\" + byte if byte in (b'"', b"\\") else b"\\u%04x" % byte[0]


def unescape(text: bytes) -> bytes:
    """Replace the escapes of a JSON string; an invalid escape stays unchanged."""
    if b"\\" not in text:
        return text
    try:
        whole: str = _LENIENT.decode(f'"{text.decode()}"')
        return whole.encode()
    except ValueError:
        pass
    out = bytearray()
    at = 0
    while at < len(text):
        byte = text[at]
        after = text[at + 1] if byte == 0x5C and at + 1 < len(text) else -1
        if after in _ESCAPES:
            out += _ESCAPES[after]
            at += 2
        elif after == 0x75 and (unit := _read_unit(text, at)) is not None:
            low = _read_unit(text, at + 6) if 0xD800 <= unit < 0xDC00 else None
            if low is not None and 0xDC00 <= low < 0xE000:
                out += chr(0x10000 + ((unit - 0xD800) << 10) + low - 0xDC00).encode()
                at += 12
            elif 0xD800 <= unit < 0xE000:
                out += text[at : at + 6]
                at += 6
            else:
                out += chr(unit).encode()
                at += 6
        else:
            out.append(byte)
            at += 1
    return bytes(out)


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


_LENIENT: Final = json.JSONDecoder(strict=False)
_EXTENTS: Final = json.JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=_no_constant, object_pairs_hook=len, strict=False
)
"""Finds the end of valid JSON, much faster than reading byte by byte; the parsed values are discarded."""


def _read_unit(text: bytes, at: int) -> int | None:
    r"""Return the number of ``\uXXXX`` at this place, if it is one."""
    digits = text[at + 2 : at + 6]
    if text[at : at + 2] != b"\\u" or re.fullmatch(rb"[0-9a-fA-F]{4}", digits) is None:
        return None
    return int(digits, 16)


def members(ext: bytes) -> list[JsonMember] | None:
    """Return the members of a JSON object in order, or None if it is another JSON value. Raises NotJson if invalid."""
    if _FLAT_OBJECT.fullmatch(ext) is not None:
        return list(map(_to_member, _FLAT_MEMBERS.findall(ext)))
    reader = _Reader(ext)
    found = list(reader.members()) if reader.peek() == 0x7B else None
    if found is None:
        reader.value()
    if reader.peek() >= 0:
        raise NotJson
    return found


def is_json(text: bytes) -> bool:
    """Return whether a server accepts this as JSON; the flat objects of most messages are not parsed."""
    if _FLAT_OBJECT.fullmatch(text) is not None:
        return True
    try:
        members(text)
    except NotJson:
        return False
    return True


class _Reader:
    """Reads JSON text without recursion."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._text: str | None = None
        self._is_improper = False

    def peek(self) -> int:
        """Return the next byte that is not white space, or -1 at the end, without reading past it."""
        data = self._data
        if self._at < len(data) and data[self._at] > 0x20:
            return data[self._at]
        found = _SPACES.match(data, self._at)
        assert found is not None
        self._at = found.end()
        return data[self._at] if self._at < len(data) else -1

    def members(self) -> Iterator[JsonMember]:
        """Return the members of the object that begins here."""
        self._at += 1
        if self.peek() == 0x7D:
            self._at += 1
            return
        while True:
            flat = _FLAT_MEMBER.match(self._data, self._at)
            if flat is not None:
                name, value, follower = flat.groups()
                self._at = flat.end()
                yield JsonMember(name, value)
                if follower == b"}":
                    return
                continue
            name = self._read_string()
            self._expect(b":")
            yield JsonMember(name, self.value())
            if self._expect(b",}") == 0x7D:
                return

    def value(self) -> bytes:
        """Return the text of the value that begins here."""
        opener = self.peek()
        start = self._at
        if opener in _OPENERS:
            self._pass_nested()
        elif opener == 0x22:
            self._read_string()
        else:
            self._skip_scalar()
        return self._data[start : self._at]

    def _expect(self, wanted: bytes) -> int:
        byte = self.peek()
        if byte < 0 or byte not in wanted:
            raise NotJson
        self._at += 1
        return byte

    def _read_string(self) -> bytes:
        """Return the text between the quotes."""
        self.peek()
        found = _STRING.match(self._data, self._at)
        if found is None:
            raise NotJson
        start, self._at = self._at + 1, found.end()
        return self._data[start : self._at - 1]

    def _skip_scalar(self) -> None:
        found = _SCALAR.match(self._data, self._at)
        if found is None:
            raise NotJson
        self._at = found.end()

    def _pass_nested(self) -> None:
        """Skip an object or array without recursion; its depth is limited."""
        if self._skip_proper():
            return
        closers = bytearray()
        while True:
            byte = self.peek()
            if byte in _OPENERS and len(closers) < EXT_DEPTH_MAX and (flat := _FLAT_NESTED.match(self._data, self._at)):
                self._at = flat.end()
            elif byte in _OPENERS:
                closers.append(_OPENERS[byte])
                if len(closers) > EXT_DEPTH_MAX:
                    raise NotJson
                self._at += 1
                if self.peek() != closers[-1]:
                    self._name(closers)
                    continue
                self._at += 1
                closers.pop()
            elif byte == 0x22:
                self._read_string()
            else:
                self._skip_scalar()
            while closers:
                if self._expect(b"," + closers[-1:]) == 0x2C:
                    self._name(closers)
                    break
                closers.pop()
            if not closers:
                return

    def _skip_proper(self) -> bool:
        """Skip an object or array if it is valid JSON and not too deep; return False otherwise.

        After the first invalid one, all others are read by parts: an error of the decoder counts the lines before it,
        which took 0.4 s for 8,000 values.
        """
        if self._is_improper:
            return False
        # one byte becomes one character, so positions stay the same; all of JSON's syntax is ASCII
        if self._text is None:
            self._text = self._data.decode("latin-1")
        try:
            _, end = _EXTENTS.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            self._is_improper = True
            return False
        found = self._data[self._at : end]
        if found.count(b"[") + found.count(b"{") > EXT_DEPTH_MAX:
            brackets = _STRING.sub(b"", found).translate(None, _NO_BRACKETS)
            if max(accumulate(map(_STEPS.__getitem__, brackets))) > EXT_DEPTH_MAX:
                raise NotJson
        self._at = end
        return True

    def _name(self, closers: bytearray) -> None:
        if closers[-1] == 0x7D:
            self._read_string()
            self._expect(b":")
