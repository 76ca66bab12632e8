"""The open chunk of a log, in memory: messages that were appended and not written yet."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..chunk.envelope import ENVELOPE_BYTES, seal
from ..model.limits import CHUNK_BODY_BYTES_MAX
from ..model.run import Run
from .buffers import Buffer, BufferPool

RUN_BYTES_MAX: Final = 64 << 10
"""Larger chunks are read from the file: a copy of each would cost more memory than it saves reads."""
_BYTES_MAX: Final = ENVELOPE_BYTES + CHUNK_BODY_BYTES_MAX
_POOL: Final = BufferPool()


class OpenChunk:
    """Messages of one dialect and flags, starting at ``base_offset``; it grows up to the limit of a chunk."""

    __slots__ = ("_key", "_max_us", "_min_us", "_start", "_used", "base_offset", "buffer", "count")

    def __init__(self, key: int, base_offset: int, buffer: Buffer, start: int = 0) -> None:
        """``key`` is the dialect and, in the lower 16 bits, the flags; the envelope starts at ``start``."""
        self.base_offset = base_offset
        self.count = 0
        self.buffer = buffer
        self._key = key
        self._start = start
        self._used = start + ENVELOPE_BYTES
        self._min_us = self._max_us = 0

    @classmethod
    def with_room(cls, key: int, base_offset: int, room_bytes: int) -> OpenChunk:
        """Return a chunk in memory of the pool, held until ``release``."""
        return cls(key, base_offset, _POOL.take(ENVELOPE_BYTES + room_bytes))

    @property
    def max_timestamp_us(self) -> int:
        """The latest time of its messages."""
        return self._max_us

    def room(self, key: int, room_bytes: int) -> int | None:
        """Return the place of the next messages in ``buffer``, or None if they must go to another chunk."""
        at = self._used
        if key != self._key or at + room_bytes > _BYTES_MAX:
            return None
        if at + room_bytes > self.buffer.size:
            self._enlarge_buffer(at + room_bytes)
        return at

    def add(self, size_bytes: int, count: int, min_timestamp_us: int, max_timestamp_us: int) -> None:
        """Add the messages written into the reserved space to the chunk."""
        if self.count == 0:
            self._min_us, self._max_us = min_timestamp_us, max_timestamp_us
        else:
            self._min_us = min(self._min_us, min_timestamp_us)
            self._max_us = max(self._max_us, max_timestamp_us)
        self._used += size_bytes
        self.count += count

    def seal(self) -> memoryview:
        """Complete the envelope and return the bytes of the chunk, which stay valid until ``release``."""
        seal(
            self.buffer.array,
            self._start,
            self._used,
            dialect=self._key >> 16,
            flags=self._key & 0xFFFF,
            base_offset=self.base_offset,
            count=self.count,
            last_offset_delta=self.count - 1,
            min_timestamp_us=self._min_us,
            max_timestamp_us=self._max_us,
        )
        return self.buffer.view[self._start : self._used]

    def run(self) -> Run | None:
        """Return a copy of the sealed chunk as a Run for readers, or None if it is too large to be kept in memory."""
        size_bytes = self._used - self._start
        if size_bytes > RUN_BYTES_MAX:
            return None
        last = self.base_offset + self.count - 1
        row = (ENVELOPE_BYTES, size_bytes, self.base_offset, self.count, last, self._min_us, self._max_us)
        chunks = np.array([(*row, self._key & 0xFFFF)], np.int64)
        return Run(self._key >> 16, self.buffer.array[self._start : self._used].copy(), chunks)

    def release(self) -> None:
        """Return memory to the pool; the chunk cannot be used afterwards. Not for a chunk in other memory."""
        _POOL.give(self.buffer)

    def _enlarge_buffer(self, size: int) -> None:
        old = self.buffer
        # a chunk that grows once will grow again: double its space, up to the limit of a chunk
        new = _POOL.take(max(size, min(2 * old.size, _BYTES_MAX)))
        new.array[: self._used] = old.array[: self._used]
        _POOL.give(old)
        self.buffer = new
