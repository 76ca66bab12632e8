"""Records as the fork's server keeps them on disk: old ones, and those with ext bits in the attempts field (the seed).

A record is ``length i32 · timestamp i64 · attempts u16 · internal id u64 · trace id u64 · [ext version u8 · [length u16
· ext]] · body``, big-endian. Of attempts above 4000 the high 4 bits are a mark: 0xA says that an ext block follows.
Topics that were upgraded have both kinds one after the other; records from before the upgrade have no block (nsq.md
2.2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from lading.model.errors import LimitExceeded, MalformedMessage

from . import encode
from .layout import NO_EXT
from .limits import ATTEMPTS_MAX, EXT_BYTES_MAX

EXT_MARK: Final = 0xA
RECORD_BYTES_MIN: Final = 26
RECORD_BYTES_MAX: Final = 1 << 28
_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">qH16s")
_U16: Final = struct.Struct(">H")


class DiskMessage(NamedTuple):
    """One record; ``marked`` is whether it has an ext block, even an empty one."""

    time_ns: int
    attempts: int
    id: bytes
    marked: bool
    version: int
    ext: bytes
    body: bytes


def read(data: bytes | memoryview, *, extended: bool = True) -> Iterator[DiskMessage]:
    """Return the records of a segment. ``extended``: the topic takes exts (or did when the last record was written).

    Raises MalformedMessage, with the position, for bytes that are not a record, and for an ext block in a topic without
    them.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        if len(view) - at < _LENGTH.size:
            raise MalformedMessage("a record is truncated", at=at)
        (size,) = _LENGTH.unpack_from(view, at)
        stop = at + _LENGTH.size + size
        if not RECORD_BYTES_MIN <= size <= RECORD_BYTES_MAX or stop > len(view):
            raise MalformedMessage(f"a record claims {size} bytes", at=at)
        yield _record(view[at + _LENGTH.size : stop], extended, at)
        at = stop


class RecordIndex(NamedTuple):
    """The starts of the records of a segment, the position at which reading stopped, and why ("" at its end)."""

    starts: list[int]
    stop: int
    problem: str
    is_torn: bool
    """Whether the last record is incomplete, as one that is being written."""


def find_records(data: bytes | memoryview, at: int = 0) -> RecordIndex:
    """Find the records of a segment from a position on, by their lengths."""
    starts: list[int] = []
    end = len(data)
    while at < end:
        if end - at < _LENGTH.size:
            return RecordIndex(starts, at, "a record is truncated", True)
        (size,) = _LENGTH.unpack_from(data, at)
        if not RECORD_BYTES_MIN <= size <= RECORD_BYTES_MAX:
            return RecordIndex(starts, at, f"a record claims {size} bytes", False)
        if at + _LENGTH.size + size > end:
            return RecordIndex(starts, at, "a record is truncated", True)
        starts.append(at)
        at += _LENGTH.size + size
    return RecordIndex(starts, at, "", False)


def read_record(data: memoryview, at: int, *, forked: bool) -> DiskMessage:
    """Return the whole record at a position. Raises MalformedMessage if its ext block is invalid.

    ``forked``: the fork wrote it. Upstream's nsqd has no marks, and uses all 16 bits of attempts.
    """
    (size,) = _LENGTH.unpack_from(data, at)
    record = data[at + _LENGTH.size : at + _LENGTH.size + size]
    if forked:
        return _record(record, True, at)
    time_ns, attempts, message_id = _HEAD.unpack_from(record)
    return DiskMessage(time_ns, attempts, message_id, False, NO_EXT, b"", bytes(record[RECORD_BYTES_MIN:]))


def _record(data: memoryview, extended: bool, at: int) -> DiskMessage:
    time_ns, field, message_id = _HEAD.unpack_from(data)
    mark, attempts = (field >> 12, field & 0xFFF) if field > ATTEMPTS_MAX else (0, field)
    version, ext, body = NO_EXT, b"", RECORD_BYTES_MIN
    if mark == EXT_MARK:
        if not extended:
            raise MalformedMessage("a record has an ext, and its topic does not allow any", at=at)
        if len(data) <= body:
            raise MalformedMessage("a record ends before its ext", at=at)
        version, body = data[body], body + 1
        if version != NO_EXT:
            if len(data) < body + _U16.size:
                raise MalformedMessage("a record ends inside its ext", at=at)
            start = body + _U16.size
            body = start + _U16.unpack_from(data, body)[0]
            if body > len(data):
                raise MalformedMessage("an ext is longer than its record", at=at)
            ext = bytes(data[start:body])
    return DiskMessage(time_ns, attempts, message_id, mark == EXT_MARK, version, ext, bytes(data[body:]))


def write(message: DiskMessage) -> bytes:
    """Return the bytes of a record.

    Raises LimitExceeded for an ext without a block to hold it, or attempts above 4000.
    """
    if not 0 <= message.attempts <= ATTEMPTS_MAX or len(message.ext) > EXT_BYTES_MAX:
        raise LimitExceeded(f"a record holds {ATTEMPTS_MAX} attempts and {EXT_BYTES_MAX} bytes of ext at most")
    block = b""
    if message.marked:
        block = bytes((message.version,))
        if message.version != NO_EXT:
            block += _U16.pack(len(message.ext)) + message.ext
    elif message.version != NO_EXT or message.ext:
        raise LimitExceeded("a record without an ext block cannot hold an ext; upgrade it first")
    field = message.attempts + (EXT_MARK << 12 if message.marked else 0)
    data = _HEAD.pack(message.time_ns, field, message.id) + block + message.body
    return _LENGTH.pack(len(data)) + data


def upgrade_record(message: DiskMessage) -> DiskMessage:
    """Return the record as a topic that takes exts would have written it."""
    return message._replace(marked=True)


def to_record(message: DiskMessage) -> bytes:
    """Return the message as a record of our log, with its id and attempts."""
    return encode.record(
        message.time_ns, message.id, message.version, message.ext, message.body, attempts=message.attempts
    )
