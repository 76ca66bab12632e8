"""SQLite's write-ahead log: SQLite takes the first damaged frame for its end, and reports no error.

Commits after that frame reveal the damage (https://www.sqlite.org/fileformat2.html#walformat).
"""

from __future__ import annotations

import sqlite3
import struct
from typing import Final

_WAL_HEADER: Final = struct.Struct(">8I")
_FRAME_HEADER: Final = struct.Struct(">6I")


def find_log_damage(db: sqlite3.Connection, wal: bytes) -> int | None:
    """Return the pages before the damage in SQLite's write-ahead log as it was before ``db`` opened it, or None."""
    try:
        frames = int(db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])
    except sqlite3.OperationalError:
        # count them here: on a full disk SQLite reports the number only if it can move them
        frames = count_committed_frames(wal)
    is_damaged = len(wal) > _WAL_HEADER.size and (not _is_header_whole(wal) or _last_commit(wal) > frames)
    return frames if is_damaged else None


def count_committed_frames(wal: bytes) -> int:
    """Return the number of frames up to the last intact one that ends a transaction, as SQLite reads its log.

    Each frame has a checksum over all before it (https://www.sqlite.org/fileformat2.html#walformat). In Python this
    takes a second for 10 MB, which only a start on a full disk spends.
    """
    if len(wal) < _WAL_HEADER.size or not _is_header_whole(wal):
        return 0
    magic, _, page_bytes, _, *salts, low, high = _WAL_HEADER.unpack_from(wal)
    committed = 0
    frame_bytes = _FRAME_HEADER.size + page_bytes
    for number, at in enumerate(range(_WAL_HEADER.size, len(wal) - frame_bytes + 1, frame_bytes), 1):
        _, pages_after_commit, *frame_salts, first, second = _FRAME_HEADER.unpack_from(wal, at)
        page = wal[at + _FRAME_HEADER.size : at + frame_bytes]
        low, high = _compute_checksum(magic, wal[at : at + 8] + page, low, high)
        if frame_salts != salts or (low, high) != (first, second):
            break
        if pages_after_commit:
            committed = number
    return committed


def _is_header_whole(wal: bytes) -> bool:
    """Return whether the checksum of SQLite's WAL header holds."""
    magic, *_, first, second = _WAL_HEADER.unpack_from(wal)
    return _compute_checksum(magic, wal[:24]) == (first, second)


def _compute_checksum(magic: int, data: bytes, low: int = 0, high: int = 0) -> tuple[int, int]:
    """Return SQLite's checksum of whole words, in the byte order that the magic number shows."""
    words = struct.unpack(f"{'>' if magic & 1 else '<'}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        low = (low + words[at] + high) & 0xFFFFFFFF
        high = (high + words[at + 1] + low) & 0xFFFFFFFF
    return low, high


def _last_commit(wal: bytes) -> int:
    """Return the number, from 1, of the last frame that ends a transaction, intact or not; 0 without such a frame."""
    _, _, page_bytes, _, *salts, _, _ = _WAL_HEADER.unpack_from(wal)
    last = 0
    frame_bytes = _FRAME_HEADER.size + page_bytes
    for number, at in enumerate(range(_WAL_HEADER.size, len(wal) - frame_bytes + 1, frame_bytes), 1):
        _, pages_after_commit, *frame_salts, _, _ = _FRAME_HEADER.unpack_from(wal, at)
        if frame_salts != salts:
            # of an earlier round through the file; a flipped salt would end the search, so look at all
            continue
        if pages_after_commit:
            last = number
    return last
