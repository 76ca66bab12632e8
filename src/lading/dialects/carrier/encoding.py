"""The bytes of a carrier (docs/reference/carrier.md): the facts that the target could not hold, and their places."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ...model.errors import MalformedMessage
from ...model.headers import Header
from .layout import (
    CARRIED_TAG,
    CRC_BYTES,
    EMPTY_PAYLOAD_FLAG,
    ENTRIES_FLAG,
    HEAD_BYTES,
    ID_BYTES,
    ID_FLAG,
    KEY_FLAG,
    KNOWN_FLAGS,
    NULL_PAYLOAD_FLAG,
    ORIGIN_FLAG,
    REPLACED_TAG,
    SHOWN_TAG,
    TEXT_PREFIX,
    TIME_BYTES,
    TIME_FLAG,
    TYPED_TAG,
    VERSION_BYTE,
    ZERO_ID_FLAG,
)

NAME: Final = "lading-carrier"
"""The reserved header key; the parts after the first are called ``lading-carrier.1``, ``lading-carrier.2``, …"""

_CRC: Final = struct.Struct("<I")
_TIME_US: Final = struct.Struct("<q")
_DIGITS: Final = re.compile(rb"[A-Za-z0-9_-]*")
_FAMILY: Final = re.compile(re.escape(NAME) + r"(\.[1-9][0-9]{0,3})?")


class PayloadWas(IntEnum):
    """The payload that the one shown by the target stands for."""

    SHOWN = 0
    NULL = NULL_PAYLOAD_FLAG
    EMPTY = EMPTY_PAYLOAD_FLAG


class Typed(NamedTuple):
    """A header that the target shows as raw bytes: the fingerprint of that, and the kind it has."""

    mark: int
    kind: int


class Replaced(NamedTuple):
    """A header that the target shows in another form: the fingerprint of that, and the kind and value it has."""

    mark: int
    kind: int
    value: bytes | None


Entry = int | Typed | Replaced | Header
"""One header of the message: the fingerprint of one that the target shows, the same with the kind that the target has
no form for, or with kind and value, or one that only the carrier holds."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The contents of a carrier: ``entries`` are all headers in order, None if the target shows all of them."""

    key: bytes | None = None
    payload: PayloadWas = PayloadWas.SHOWN
    zero_id: bool = False
    timestamp_us: int | None = None
    entries: Sequence[Entry] | None = None
    id: bytes | None = None
    origin_us: int | None = None


def is_reserved(key: str) -> bool:
    """Return whether a header of this key could be part of a carrier; a user's own travels inside the carrier."""
    return key.startswith(NAME) and _FAMILY.fullmatch(key) is not None


def part_name(number: int) -> str:
    """Return the key of the part counted from 0."""
    return f"{NAME}.{number}" if number else NAME


def split(data: bytes, part_bytes_max: int) -> list[tuple[str, bytes]]:
    """Return the reserved headers, key and value, that hold a carrier."""
    return [
        (part_name(at // part_bytes_max), data[at : at + part_bytes_max]) for at in range(0, len(data), part_bytes_max)
    ]


def fingerprint(header: Header, occurrence: int) -> int:
    """CRC-32 of a header as the target shows it, and which of the headers of its key it is, counted from 0."""
    return zlib.crc32(_header_bytes(header) + _encode_varint(occurrence))


def fingerprints(headers: Iterable[Header]) -> list[int]:
    """Return the fingerprint of each header of a message."""
    seen: dict[str, int] = {}
    marks = []
    for header in headers:
        occurrence = seen.get(header.key, 0)
        seen[header.key] = occurrence + 1
        marks.append(fingerprint(header, occurrence))
    return marks


def encode(facts: Facts) -> bytes:
    """Return the bytes of a carrier, not yet split."""
    flags = (
        (KEY_FLAG if facts.key is not None else 0)
        | facts.payload
        | (ZERO_ID_FLAG if facts.zero_id else 0)
        | (ENTRIES_FLAG if facts.entries is not None else 0)
        | (TIME_FLAG if facts.timestamp_us is not None else 0)
        | (ID_FLAG if facts.id is not None else 0)
        | (ORIGIN_FLAG if facts.origin_us is not None else 0)
    )
    parts = [bytes((VERSION_BYTE, flags))]
    if facts.key is not None:
        parts += (_encode_varint(len(facts.key)), facts.key)
    if facts.timestamp_us is not None:
        parts.append(_TIME_US.pack(facts.timestamp_us))
    if facts.id is not None:
        parts.append(facts.id)
    if facts.origin_us is not None:
        parts.append(_TIME_US.pack(facts.origin_us))
    if facts.entries is not None:
        parts.append(_encode_varint(len(facts.entries)))
        parts += map(_entry_bytes, facts.entries)
    body = b"".join(parts)
    return body + _CRC.pack(zlib.crc32(body))


def printable(data: bytes) -> bytes:
    """Return the bytes of a carrier as printable ASCII, for targets whose readers may take headers for text."""
    return TEXT_PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=")


def _decode_printable(text: bytes) -> bytes:
    digits = text[len(TEXT_PREFIX) :]
    if len(digits) % 4 == 1 or _DIGITS.fullmatch(digits) is None:
        raise MalformedMessage("a printable carrier is not base64url")
    data = base64.urlsafe_b64decode(digits + b"=" * (-len(digits) % 4))
    if printable(data) != text:
        raise MalformedMessage("a printable carrier has bits after its last byte")
    return data


def decode(data: bytes) -> Facts:
    """Decode the bytes of a carrier, printable or not.

    Raises MalformedMessage if they are not a carrier, or one of a later version.
    """
    if data.startswith(TEXT_PREFIX):
        data = _decode_printable(data)
    if (
        len(data) < HEAD_BYTES + CRC_BYTES
        or zlib.crc32(data[:-CRC_BYTES]) != _CRC.unpack_from(data, len(data) - CRC_BYTES)[0]
    ):
        raise MalformedMessage("a carrier is cut short or changed")
    version, flags = data[0], data[1]
    if version != VERSION_BYTE or flags & ~KNOWN_FLAGS or _are_contradictory(flags):
        raise MalformedMessage(f"a carrier of version {version} with flags {flags:#x} is not known here")
    reader = _Reader(data, HEAD_BYTES, len(data) - CRC_BYTES)
    key = reader.take(reader.varint()) if flags & KEY_FLAG else None
    timestamp_us = _TIME_US.unpack(reader.take(TIME_BYTES))[0] if flags & TIME_FLAG else None
    id_ = reader.take(ID_BYTES) if flags & ID_FLAG else None
    origin_us = _TIME_US.unpack(reader.take(TIME_BYTES))[0] if flags & ORIGIN_FLAG else None
    entries = [reader.entry() for _ in range(reader.count())] if flags & ENTRIES_FLAG else None
    if reader.at != reader.end:
        raise MalformedMessage("a carrier has bytes after its last entry", at=reader.at)
    was = PayloadWas(flags & (NULL_PAYLOAD_FLAG | EMPTY_PAYLOAD_FLAG))
    return Facts(key, was, bool(flags & ZERO_ID_FLAG), timestamp_us, entries, id_, origin_us)


def _are_contradictory(flags: int) -> bool:
    return any(flags & pair == pair for pair in (NULL_PAYLOAD_FLAG | EMPTY_PAYLOAD_FLAG, ZERO_ID_FLAG | ID_FLAG))


def _encode_varint(value: int) -> bytes:
    if value <= 0x7F:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _header_bytes(header: Header) -> bytes:
    key, value = header.key.encode(), header.value or b""
    size_bytes = 0 if header.value is None else len(value) + 1
    if len(key) <= 0x7F and size_bytes <= 0x7F:
        # each length is one byte
        return b"%c%b%c%c%b" % (len(key), key, header.kind & 0xFF, size_bytes, value)
    return _encode_varint(len(key)) + key + bytes((header.kind & 0xFF,)) + _encode_varint(size_bytes) + value


def _entry_bytes(entry: Entry) -> bytes:
    if isinstance(entry, int):
        return bytes((SHOWN_TAG,)) + _CRC.pack(entry)
    if isinstance(entry, Typed):
        return bytes((TYPED_TAG,)) + _CRC.pack(entry.mark) + bytes((entry.kind & 0xFF,))
    if isinstance(entry, Replaced):
        size = _encode_varint(0 if entry.value is None else len(entry.value) + 1)
        return (
            bytes((REPLACED_TAG,)) + _CRC.pack(entry.mark) + bytes((entry.kind & 0xFF,)) + size + (entry.value or b"")
        )
    return bytes((CARRIED_TAG,)) + _header_bytes(entry)


def _to_signed(kind: int) -> int:
    return kind - 256 if kind > 127 else kind


class _Reader:
    """Reads the fields of a carrier one after the other. Raises MalformedMessage at the first invalid one."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def take(self, size_bytes: int) -> bytes:
        if size_bytes > self.end - self.at:
            raise MalformedMessage(f"a carrier field claims {size_bytes} bytes", at=self.at)
        self.at += size_bytes
        return self.data[self.at - size_bytes : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 28:
                raise MalformedMessage("a carrier number has more than five bytes", at=self.at)

    def count(self) -> int:
        count = self.varint()
        if count > self.end - self.at:
            raise MalformedMessage(f"a carrier claims {count} entries", at=self.at)
        return count

    def entry(self) -> Entry:
        tag = self.take(1)[0]
        if tag in (SHOWN_TAG, TYPED_TAG):
            mark: int = _CRC.unpack(self.take(CRC_BYTES))[0]
            return mark if tag == SHOWN_TAG else Typed(mark, _to_signed(self.take(1)[0]))
        if tag == REPLACED_TAG:
            mark = _CRC.unpack(self.take(CRC_BYTES))[0]
            kind = _to_signed(self.take(1)[0])
            return Replaced(mark, kind, self.value())
        if tag != CARRIED_TAG:
            raise MalformedMessage(f"a carrier entry has the unknown tag {tag}", at=self.at - 1)
        try:
            key = self.take(self.varint()).decode()
        except UnicodeDecodeError:
            raise MalformedMessage("a carrier holds a header key that is not UTF-8", at=self.at) from None
        kind = self.take(1)[0]
        return Header(key, _to_signed(kind), self.value())

    def value(self) -> bytes | None:
        size = self.varint()
        return self.take(size - 1) if size else None
