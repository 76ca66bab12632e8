"""The watermark file of a partition: the limits of readers, and the epochs of its log.

It has two parts of different durability. The **head** (topic id, epochs, first offset) is replaced as a whole and
synced. The **slots** (high watermark, last stable offset, time) are written in place alternately, at most 100 ms late
and without a sync of their own: a slot describes data that was on disk before the slot was written, and if a power cut
tears or loses a slot, the other one or the head is older, but still true.

Layout, little-endian. Head: ``magic "LDWM" · version u16 · reserved u16 · length u32 · crc32c u32`` (of the rest of
the head), then ``topic_id 16 bytes · first_offset u64 · synced_end u64 · stable_end u64 · clock_us u64 · epochs u32``
and per epoch ``epoch u64 · first offset u64``; ``length`` counts the head, a multiple of 512, filled with zeros. Two
slots of 512 bytes follow: ``crc32c u32 · flags u32 · sequence u64 · synced_end u64 · stable_end u64 · clock_us u64``,
the crc of what follows it in the slot; flag 1 = closed in order. A slot may continue with ``crc32c u32`` (of the 40
bytes before it and the 12 after it) ``· states_crc32c u32 · states_bytes u64``: the number of bytes of ``states.log``
on disk.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import google_crc32c

from .formats import WATERMARK

FILE_NAME: Final = "watermark"
MAGIC: Final = b"LDWM"
SECTOR: Final = 512
CLEAN: Final = 1

_PREFIX: Final = struct.Struct("<4sHHII")
_HEAD: Final = struct.Struct("<16sQQQQI")
_EPOCH: Final = struct.Struct("<QQ")
_SLOT: Final = struct.Struct("<IIQQQQ")
_STATES: Final = struct.Struct("<IQ")
_EPOCHS_MAX: Final = 1 << 20


class StatesMark(NamedTuple):
    """Durable part of ``states.log``: its first ``size_bytes`` have this CRC-32C."""

    crc: int
    size_bytes: int

    def holds(self, data: bytes) -> bool:
        """Return whether ``data``, the file as it is now, starts with the bytes that were marked."""
        return len(data) >= self.size_bytes and google_crc32c.value(data[: self.size_bytes]) == self.crc


class Watermark(NamedTuple):
    """The content of the file, with that of the newer slot; ``slot`` is the one to write next."""

    topic_id: bytes
    first_offset: int
    high_watermark: int
    last_stable_offset: int
    clock_us: int
    epochs: Sequence[tuple[int, int]]
    clean: bool
    slots_at: int
    sequence: int
    states: StatesMark | None = None
    """None if the file does not say."""


def pack(
    topic_id: bytes,
    first_offset: int,
    high_watermark: int,
    last_stable_offset: int,
    clock_us: int,
    epochs: Sequence[tuple[int, int]],
    *,
    clean: bool = False,
) -> bytes:
    """Return a new file: the head and two empty slots, or with ``clean`` one slot marked as cleanly closed."""
    body = _HEAD.pack(topic_id, first_offset, high_watermark, last_stable_offset, clock_us, len(epochs))
    body += b"".join(_EPOCH.pack(*epoch) for epoch in epochs)
    length = -(-(_PREFIX.size + len(body)) // SECTOR) * SECTOR
    body = body.ljust(length - _PREFIX.size, b"\0")
    slots = bytes(SECTOR) + (pack_slot(1, high_watermark, last_stable_offset, clock_us, clean=True) if clean else b"")
    slots = slots.ljust(2 * SECTOR, b"\0")
    return _PREFIX.pack(MAGIC, WATERMARK.written, 0, length, google_crc32c.value(body)) + body + slots


def pack_slot(
    sequence: int,
    high_watermark: int,
    last_stable_offset: int,
    clock_us: int,
    *,
    clean: bool,
    states: StatesMark | None = None,
) -> bytes:
    """Return a slot, for ``slots_at + 512 * (sequence % 2)``; without ``states`` it revokes those of earlier slots."""
    slot = _SLOT.pack(0, CLEAN if clean else 0, sequence, high_watermark, last_stable_offset, clock_us)[4:]
    slot = _with_crc(b"", slot)
    if states is None:
        return slot + bytes(4 + _STATES.size)
    return slot + _with_crc(slot, _STATES.pack(*states))


def _with_crc(before: bytes, data: bytes) -> bytes:
    crc: int = google_crc32c.value(before + data)
    return crc.to_bytes(4, "little") + data


def unpack(data: bytes) -> Watermark | None:
    """Parse the file; return None if the head is not intact."""
    if len(data) < _PREFIX.size:
        return None
    magic, version, reserved, length, crc = _PREFIX.unpack_from(data)
    known = magic == MAGIC and version in WATERMARK.reads and not reserved
    if not known or length % SECTOR or not _PREFIX.size + _HEAD.size <= length <= len(data):
        return None
    body = data[_PREFIX.size : length]
    topic_id, first, synced, stable, clock, count = _HEAD.unpack_from(body)
    if google_crc32c.value(body) != crc or count > _EPOCHS_MAX or _HEAD.size + count * _EPOCH.size > len(body):
        return None
    epochs = list(_EPOCH.iter_unpack(body[_HEAD.size : _HEAD.size + count * _EPOCH.size]))
    sequence, clean, states = 0, False, None
    for at in (length, length + SECTOR):
        if at + _SLOT.size > len(data):
            continue
        slot_crc, flags, number, slot_synced, slot_stable, slot_clock = _SLOT.unpack_from(data, at)
        if number > sequence and google_crc32c.value(data[at + 4 : at + _SLOT.size]) == slot_crc:
            sequence, synced, stable, clock = number, slot_synced, slot_stable, slot_clock
            clean = bool(flags & CLEAN)
            states = _read_states(data, at)
    return Watermark(topic_id, first, synced, stable, clock, epochs, clean, length, sequence, states)


def _read_states(data: bytes, at: int) -> StatesMark | None:
    """Return what the slot at ``at`` says about ``states.log``, or None if an older Lading wrote it, without that."""
    end = at + _SLOT.size
    rest = data[end + 4 : end + 4 + _STATES.size]
    if len(rest) < _STATES.size or data[end : end + 4] != _with_crc(data[at:end], rest)[:4]:
        return None
    return StatesMark(*_STATES.unpack(rest))


def next_epochs(epochs: Sequence[tuple[int, int]], epoch: int, first_offset: int) -> list[tuple[int, int]]:
    """Return ``epochs`` with a new one, which replaces one that starts at the same offset and so has no messages."""
    return [(number, first) for number, first in epochs if first < first_offset] + [(epoch, first_offset)]


def is_still_valid(epochs: Sequence[tuple[int, int]], epoch: int, offset: int) -> bool:
    """Return whether all that a reader saw up to a position (epoch, next offset) is unchanged (design.md Log)."""
    following = next((first for number, first in epochs if number > epoch), None)
    return following is None or offset <= following
