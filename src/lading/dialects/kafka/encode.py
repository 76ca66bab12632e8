"""Batch -> record batches of Kafka, as a producer sends them and as a broker stores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.kernels import engine
from lading.model.batch import ORIGIN_TIMESTAMP
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.names import key_bytes

from ...model.lazy_dataclass import lazy_dataclass
from ..carrier.typed import MARKED_BYTES, ids_of
from . import send_fallback
from .compression import LZ4, compress_lz4
from .layout import BATCH_HEADER, BATCH_HEADER_BYTES, CRC_AT, FRAME_BYTES, MAGIC, TRANSACTIONAL
from .limits import BATCH_BYTES_WANTED, BATCH_RECORDS_MAX

KERNEL_MODULE = "lading.dialects.kafka.send_kernels"

_STRING: Final = 2


@lazy_dataclass(frozen=True, slots=True)
class ProducerSequence:
    """Identity of a producer, by which a broker drops repetitions.

    It is the producer id, its epoch, and the sequence of the first record.
    """

    id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False


class RecordEncoder:
    """Encoder of the messages of a Batch as record batches.

    ``times_us`` (int64, one a row) replaces the Batch's timestamps, which are cut to milliseconds. ``offsets`` are
    those of stored messages; without them every batch begins at 0, as a producer sends it. Raises LimitExceeded, naming
    the message, for header keys that Kafka cannot express. Kinds, ids and parts of a millisecond are lost; see
    ``carrying``.
    """

    def __init__(
        self, batch: pa.RecordBatch, times_us: NDArray[np.int64], offsets: NDArray[np.int64] | None = None
    ) -> None:
        headers = _Headers.of(batch)
        flags, ids = np.zeros(batch.num_rows, np.uint8), np.empty(0, np.uint8)
        names = _view_binary(_wire_keys(headers.names, headers.lists))
        self._fill(batch, headers, names, flags, ids, times_us, offsets)

    @classmethod
    def carrying(cls, batch: pa.RecordBatch, times_us: NDArray[np.int64]) -> RecordEncoder | None:
        """Return an encoder that adds a carrier to each message that needs one, in one pass.

        ``carry`` has the same result, but is slower. Returns None if it is needed: for names that need an escape or are
        reserved, very many headers, and origin times.
        """
        if ORIGIN_TIMESTAMP in batch.schema.names:
            return None
        headers = _Headers.of(batch)
        names = _view_binary(headers.names)
        ids, id_valid = ids_of(batch.column("id"))
        flags = np.empty(batch.num_rows, np.uint8)
        kernels = engine.select(KERNEL_MODULE, send_fallback, batch.nbytes)
        if kernels.classify_messages(headers.lists, *names[:2], headers.kinds, id_valid, times_us, flags) >= 0:
            return None
        self = cls.__new__(cls)
        self._fill(batch, headers, names, flags, ids, times_us, None)
        return self

    def _fill(
        self,
        batch: pa.RecordBatch,
        headers: _Headers,
        names: _Binary,
        flags: NDArray[np.uint8],
        ids: NDArray[np.uint8],
        times_us: NDArray[np.int64],
        offsets: NDArray[np.int64] | None,
    ) -> None:
        self.rows = batch.num_rows
        self._times_us = times_us
        self._stored = offsets is not None
        self._offsets = np.arange(self.rows) if offsets is None else offsets
        values = _view_binary(headers.values)
        key, payload = _view_binary(batch.column("key")), _view_binary(batch.column("payload"))
        self._columns = (*key, *payload, headers.lists, *names[:2], *values, headers.kinds, flags)
        self._facts = (ids, times_us)
        self.sizes = np.empty(self.rows, np.int64)
        self._kernels = engine.select(KERNEL_MODULE, send_fallback, batch.nbytes)
        self._kernels.weigh(*self._columns, self.sizes)
        self._sums = np.concatenate(([0], np.cumsum(self.sizes)))
        largest = np.diff(names[0]).max(initial=0) + np.diff(values[0]).max(initial=0) if flags.any() else 0
        self._scratch = np.empty(int(largest) + MARKED_BYTES, np.uint8)

    def split_batches(self, low: int = 0, bytes_max: int = BATCH_BYTES_WANTED) -> Iterator[tuple[int, int]]:
        """Yield (first, end) of batches below ``bytes_max`` from row ``low`` on; a larger row is a batch by itself."""
        while low < self.rows:
            fits = int(np.searchsorted(self._sums, self._sums[low] + bytes_max - BATCH_HEADER_BYTES, "right")) - 1
            high = min(max(fits, low + 1), low + BATCH_RECORDS_MAX, self.rows)
            yield low, high
            low = high

    def encode(
        self,
        low: int,
        high: int,
        producer: ProducerSequence = ProducerSequence(),
        compression: Literal["lz4"] | None = None,
    ) -> memoryview:
        """Return the rows ``low`` up to, not including, ``high`` as one batch, compressed if that makes it smaller."""
        room = int(self._sums[high] - self._sums[low])
        made = np.empty(BATCH_HEADER_BYTES + room, np.uint8)
        span = (self.sizes, self._offsets, low, high, self._scratch, made, BATCH_HEADER_BYTES)
        end = self._kernels.write(*self._columns, *self._facts, *span)
        attributes = TRANSACTIONAL if producer.transactional else 0
        if compression is not None:
            packed = compress_lz4(made[BATCH_HEADER_BYTES:end], BATCH_HEADER_BYTES)
            if packed.size < end:
                made, end, attributes = packed, packed.size, attributes | LZ4
        times_us = self._times_us[low:high]
        delta = int(self._offsets[high - 1] - self._offsets[low])
        base_offset = int(self._offsets[low]) if self._stored else 0
        batch = made[:end].data
        BATCH_HEADER.pack_into(
            batch, 0, base_offset, end - FRAME_BYTES, -1, MAGIC, 0, attributes, delta, int(times_us[0]) // 1000,
            int(times_us.max()) // 1000, producer.id, producer.epoch, producer.sequence, high - low,
        )  # fmt: skip
        crc = self._kernels.checksum(made, CRC_AT + 4, end)
        batch[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")
        return batch


def encode_batches(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """Return the record batches of a Batch with its own offsets, uncompressed. The offsets must rise."""
    if not batch.num_rows:
        return
    times: Any = batch.column("timestamp").cast(pa.int64())
    offsets: Any = batch.column("offset")
    records = RecordEncoder(batch, times.to_numpy(zero_copy_only=False), offsets.to_numpy().astype(np.int64))
    for low, high in records.split_batches():
        yield records.encode(low, high)


def _wire_keys(texts: Any, lists: NDArray[np.int32]) -> Any:
    """Return header keys as bytes with escapes (names.key_text) undone.

    Raises LimitExceeded for a key that Kafka cannot express.
    """
    if not pc.any(pc.starts_with(texts, "\\"), min_count=0).as_py():
        return texts
    keys = []
    for header, text in enumerate(texts.to_pylist()):
        message = f"message {int(np.searchsorted(lists, header, side='right')) - 1}"
        try:
            key, kind = key_bytes(text)
        except MalformedMessage as error:
            raise LimitExceeded(f"{message}: {error}") from None
        if kind != _STRING:
            raise LimitExceeded(f"header key {text!r} of {message} is typed; Kafka's are text or bytes")
        keys.append(key)
    return pa.array(keys, pa.binary())


class _Headers(NamedTuple):
    """The headers of a Batch or a slice of one: ends of the lists from 0 on, names, kinds, values."""

    lists: NDArray[np.int32]
    names: Any
    kinds: NDArray[np.int8]
    values: Any

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Headers:
        headers: Any = batch.column("headers")
        lists: NDArray[np.int32] = headers.offsets.to_numpy()
        entries = headers.values.slice(lists[0], lists[-1] - lists[0])
        names, kinds, values = (entries.field(part) for part in range(3))
        return cls(np.ascontiguousarray(lists - lists[0]), names, np.ascontiguousarray(kinds.to_numpy()), values)


_Binary = tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]


def _view_binary(array: Any) -> _Binary:
    """Return ends (one more than values), bytes, and which values are present (1 or 0), of an array or a slice."""
    _, ends, data = array.buffers()
    present = np.ones(len(array), np.uint8)
    if array.null_count:
        present = array.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False)
    if ends is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.empty(0, np.uint8), present
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return np.frombuffer(ends, np.int32, len(array) + 1, 4 * array.offset), octets, present
