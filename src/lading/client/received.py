"""Messages as they were read: rows of a Batch, whose headers become Python objects on first access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..model.headers import Header, Headers
from ..model.message import Message
from ..model.state import State
from .serdes import Deserializer

if TYPE_CHECKING:
    import pyarrow as pa

_header: Callable[[tuple[str, int, bytes | None]], Header] = partial(tuple.__new__, Header)
"""Creates a Header in half the time that calling the class takes."""
STATES = {int(state): state for state in State}


class LazyHeaderColumn:
    """The headers of a batch, converted to Python for all rows on the first access to any of them."""

    __slots__ = ("_column", "_ends", "_entries")

    def __init__(self, column: Any) -> None:
        self._column = column
        self._entries: list[Header] | None = None
        self._ends: list[int] = []

    def row(self, row: int) -> Headers:
        """Return the headers of one row, writable and not shared."""
        if self._entries is None:
            self._entries = self._load()
        return Headers.of(self._entries[self._ends[row] : self._ends[row + 1]])

    def _load(self) -> list[Header]:
        first = self._column.offsets[0].as_py()
        self._ends = [end - first for end in self._column.offsets.to_pylist()]
        keys, kinds, values = self._column.flatten().flatten()
        # the same few keys come again and again: one str each
        encoded: Any = keys.dictionary_encode()
        texts = map(encoded.dictionary.to_pylist().__getitem__, encoded.indices.to_pylist())
        return list(map(_header, zip(texts, kinds.to_pylist(), values.to_pylist(), strict=True)))


class ReceivedMessage(Message):
    """A Message whose ``headers`` are decoded on first access, so that a consumer that ignores them pays nothing."""

    __slots__ = ("_column", "_headers", "_row")

    def __init__(
        self, payload: bytes | None, key: bytes | None, offset: int, state: State, timestamp_us: int, id: bytes | None,
        checksum: int | None, stream: str, topic: str, partition: int, column: LazyHeaderColumn, row: int,
    ) -> None:  # fmt: skip
        self.payload = payload
        self.key = key
        self.offset = offset
        self.state = state
        self.timestamp_us = timestamp_us
        self.id = id
        self.checksum = checksum
        self.stream = stream
        self.topic = topic
        self.partition = partition
        self.attempts = None
        self._column = column
        self._row = row
        self._headers: Headers | None = None

    @property
    def headers(self) -> Headers:
        """The message's headers, in order; writable."""
        if self._headers is None:
            self._headers = self._column.row(self._row)
        return self._headers

    @headers.setter
    def headers(self, headers: Headers) -> None:
        self._headers = headers


def to_messages(batch: pa.RecordBatch, stream: str, topic: str, partition: int) -> list[Message]:
    """Return the rows of a batch in the Batch schema as messages; ``topic`` is the name within ``stream``."""
    import pyarrow as pa

    column = LazyHeaderColumn(batch.column("headers"))
    lists: list[Any] = [
        batch.column("payload").to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("offset").to_pylist(),
        batch.column("state").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("id").to_pylist(),
        batch.column("checksum").to_pylist(),
    ]
    return [
        ReceivedMessage(payload, key, offset, STATES[state], us, id, checksum, stream, topic, partition, column, row)
        for row, (payload, key, offset, state, us, id, checksum) in enumerate(zip(*lists, strict=True))
    ]


def deserialize(
    topic: str, messages: Sequence[Message], key: Deserializer | None, value: Deserializer | None
) -> tuple[int, Exception | None]:
    """Deserialise keys and payloads in place; return how many messages that were, and the error of the next one."""
    for at, message in enumerate(messages):
        try:
            if key is not None:
                message.key = key(topic, message.headers, message.key)
            if value is not None:
                message.payload = value(topic, message.headers, message.payload)
        except Exception as error:
            error.add_note(
                f"at topic {message.topic!r}, partition {message.partition}, offset {message.offset}; "
                f"to continue after it: seek({message.partition}, {message.offset + 1})"
            )
            return at, error
    return len(messages), None
