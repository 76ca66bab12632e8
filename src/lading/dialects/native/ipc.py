"""The part of Arrow's IPC stream framing that is needed to check a block before anything is decompressed.

Arrow's own reader takes memory for what compressed buffers claim to become; this page reads the claims first. Source:
the columnar format's "IPC streaming format" and its flatbuffers ``Message`` and ``RecordBatch``.
"""

from __future__ import annotations

import struct
from typing import Final

from lading.model.errors import MalformedMessage

from ...model.lazy_dataclass import lazy_dataclass

CONTINUATION: Final = 0xFFFFFFFF
END_OF_STREAM: Final = struct.pack("<Ii", CONTINUATION, 0)
_PREFIX: Final = struct.Struct("<Ii")
_SCHEMA_MESSAGE, _BATCH_MESSAGE = 1, 3
_BUFFER: Final = struct.Struct("<qq")
_FIELDS_MAX: Final = 64


@lazy_dataclass(frozen=True, slots=True)
class StreamShape:
    """One schema and one record batch: its rows, and the bytes its buffers take once decompressed."""

    rows: int
    plain_bytes: int


def shape(data: memoryview) -> StreamShape:
    """Return the shape that a stream of exactly one record batch claims. Raises MalformedMessage for wrong framing."""
    try:
        schema, at = _read_message(data, 0)
        if schema.kind != _SCHEMA_MESSAGE or schema.body_bytes:
            raise MalformedMessage("a native block does not start with an Arrow schema", at=0)
        batch, at = _read_message(data, at)
        if batch.kind != _BATCH_MESSAGE:
            raise MalformedMessage("a native block holds no Arrow record batch after its schema", at=at)
        if data[at:] != END_OF_STREAM:
            raise MalformedMessage("a native block continues after its only record batch", at=at)
        return _batch_shape(data, batch)
    except (struct.error, IndexError):
        raise MalformedMessage("the Arrow metadata of a native block points outside itself") from None


@lazy_dataclass(frozen=True, slots=True)
class _Message:
    table: _Table
    kind: int
    body_at: int
    body_bytes: int


class _Table:
    """One flatbuffer table inside ``data``; positions are checked by the reads themselves."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data = data
        self.at = at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        if self._fields < 0:
            raise IndexError
        self._size = struct.unpack_from("<H", data, self._fields)[0]

    def field(self, index: int) -> int:
        """Return the position of a field's value, or 0 if the table leaves it out."""
        entry = 4 + 2 * index
        if entry + 2 > self._size:
            return 0
        offset: int = struct.unpack_from("<H", self.data, self._fields + entry)[0]
        return self.at + offset if offset else 0

    def number(self, index: int, form: str) -> int:
        """Return a number of one ``struct`` letter; 0 if left out."""
        at = self.field(index)
        return int(struct.unpack_from("<" + form, self.data, at)[0]) if at else 0

    def follow(self, index: int) -> int:
        """Return the position that an offset field points to, or 0 if it is left out."""
        at = self.field(index)
        return at + int(struct.unpack_from("<I", self.data, at)[0]) if at else 0


def _read_message(data: memoryview, at: int) -> tuple[_Message, int]:
    mark, size = _PREFIX.unpack_from(data, at)
    start = at + _PREFIX.size
    if mark != CONTINUATION or size <= 0 or start + size > len(data):
        raise MalformedMessage("a native block is not an Arrow stream", at=at)
    metadata = data[start : start + size]
    table = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
    body_bytes = table.number(3, "q")
    body_at = start + size
    if not 0 <= body_bytes <= len(data) - body_at:
        raise MalformedMessage("an Arrow message of a native block is truncated", at=at)
    return _Message(table, table.number(1, "B"), body_at, body_bytes), body_at + body_bytes


def _batch_shape(data: memoryview, message: _Message) -> StreamShape:
    batch = _Table(message.table.data, message.table.follow(2))
    vector = batch.follow(2)
    count = struct.unpack_from("<I", batch.data, vector)[0] if vector else 0
    if count > _FIELDS_MAX:
        raise MalformedMessage(f"the record batch of a native block has {count} buffers")
    compressed = bool(batch.field(3))
    plain_bytes = 0
    for index in range(count):
        start, size = _BUFFER.unpack_from(batch.data, vector + 4 + _BUFFER.size * index)
        if start < 0 or size < 0 or start + size > message.body_bytes:
            raise MalformedMessage("a buffer of a native block is outside its body")
        claimed = size
        if compressed and size:
            if size < 8:
                raise MalformedMessage("a compressed buffer of a native block has no length in front")
            claimed = struct.unpack_from("<q", data, message.body_at + start)[0]
            # -1 says that this buffer was left as it is
            claimed = size - 8 if claimed == -1 else claimed
        if claimed < 0:
            raise MalformedMessage("a compressed buffer of a native block has a negative length")
        plain_bytes += claimed
    rows = batch.number(0, "q")
    if rows < 0:
        raise MalformedMessage("the record batch of a native block has a negative length")
    return StreamShape(rows, plain_bytes)
