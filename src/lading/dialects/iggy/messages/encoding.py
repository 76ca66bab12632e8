"""A Batch as the arrays that kernels write messages of Iggy from, and why a message cannot be written."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.model.batch import ORIGIN_TIMESTAMP
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.names import key_bytes

from ....model.lazy_dataclass import lazy_dataclass
from . import layout, limits
from .layout import HEADER_BYTES_MIN, STRING_KEY, TYPED

COMPUTE: Final = -1
"""Stands for a checksum that is not known."""


@lazy_dataclass(frozen=True, slots=True)
class MessageArrays:
    """Headers and payloads of a Batch as Arrow has them, in the order in which kernels take them."""

    list_ends: NDArray[np.int32]
    key_ends: NDArray[np.int32]
    keys: NDArray[np.uint8]
    key_kinds: NDArray[np.int8]
    kinds: NDArray[np.int8]
    value_ends: NDArray[np.int32]
    values: NDArray[np.uint8]
    payload_ends: NDArray[np.int32]
    payloads: NDArray[np.uint8]

    @classmethod
    def of(cls, batch: pa.RecordBatch, typed: int) -> MessageArrays:
        """Return the arrays of a Batch.

        Raises LimitExceeded, naming message and header, for what no message of Iggy can hold.
        """
        headers: Any = batch.column("headers")
        payload: Any = batch.column("payload")
        lists: NDArray[np.int32] = headers.offsets.to_numpy()
        entries = headers.values.slice(lists[0], lists[-1] - lists[0])
        texts, kinds, values = (entries.field(part) for part in range(3))
        if payload.null_count:
            row = int(np.flatnonzero(payload.is_null().to_numpy(zero_copy_only=False))[0])
            raise LimitExceeded(f"message {row} has a null payload; Iggy takes 1 byte or more")
        if values.null_count:
            header = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            key = texts[header].as_py()
            raise LimitExceeded(f"header {key!r} of {_message_of(lists, header)} is null; Iggy takes 1 to 255 bytes")
        keys, key_kinds = _wire_keys(texts, lists, typed)
        kind_codes: NDArray[np.int8] = kinds.to_numpy(zero_copy_only=False)
        return cls(
            lists - lists[0], *_view_binary(keys), key_kinds, kind_codes, *_view_binary(values), *_view_binary(payload)
        )

    def size_bytes(self, fixed_bytes: int, typed: int) -> int:
        """Return how many bytes the messages take if each has ``fixed_bytes`` besides headers and payload."""
        sizes = sum(int(ends[-1]) - int(ends[0]) for ends in (self.key_ends, self.value_ends, self.payload_ends))
        headers = len(self.kinds) * (HEADER_BYTES_MIN + typed)
        return (len(self.list_ends) - 1) * fixed_bytes + headers + sizes


def message_ids(batch: pa.RecordBatch) -> NDArray[np.uint8]:
    """Return the ids of a Batch, 16 bytes each; a missing id is zeros."""
    rows = batch.num_rows
    if "id" not in batch.schema.names or not rows:
        return np.zeros(16 * rows, np.uint8)
    column: Any = batch.column("id")
    if column.null_count:
        column = column.fill_null(bytes(16))
    return np.frombuffer(column.buffers()[1], np.uint8, 16 * rows, 16 * column.offset)


def message_times_us(batch: pa.RecordBatch, absent_us: int = 0) -> NDArray[np.int64]:
    """Return the timestamps of a Batch, with ``absent_us`` for a null.

    Iggy has no times before 1970: they become 0, and the carrier keeps them.
    """
    column: Any = batch.column("timestamp").cast(pa.int64())
    times: NDArray[np.int64] = column.fill_null(absent_us).to_numpy(zero_copy_only=False)
    return np.maximum(times, 0)


def origin_times_us(batch: pa.RecordBatch, otherwise_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the origin times of a Batch, with the time of ``otherwise_us`` for messages that have none."""
    if ORIGIN_TIMESTAMP not in batch.schema.names:
        return otherwise_us
    column: Any = batch.column(ORIGIN_TIMESTAMP).cast(pa.int64())
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), np.maximum(values, 0), otherwise_us)


def refuse_message(batch: pa.RecordBatch, reason: int, row: int, header: int) -> LimitExceeded:
    """Return the error for a message of the Batch that cannot be written; ``reason`` is the kernel's."""
    if reason == layout.NO_PAYLOAD:
        return LimitExceeded(f"message {row} has an empty payload; Iggy takes 1 byte or more")
    headers: Any = batch.column("headers")
    entry = headers.flatten()[header].as_py()
    key, kind, size_bytes = entry["key"], entry["kind"], len(entry["value"] or b"")
    if reason == layout.TYPED_KEY:
        return LimitExceeded(f"header key {key!r} of message {row} is typed; this release of Iggy takes text")
    if reason == layout.KEY_SIZE:
        return LimitExceeded(f"header key {key[:40]!r} of message {row} has not 1 to {limits.KEY_BYTES_MAX} bytes")
    if reason == layout.VALUE_SIZE:
        return LimitExceeded(
            f"header {key!r} of message {row} has {size_bytes} bytes; Iggy takes 1 to {limits.VALUE_BYTES_MAX}"
        )
    return LimitExceeded(f"header {key!r} of message {row} has kind {kind}; Iggy knows 1 to {limits.KIND_MAX}")


def _wire_keys(texts: Any, lists: NDArray[np.int32], typed: int) -> tuple[Any, NDArray[np.int8]]:
    """Return header keys as bytes, with escapes (names.key_text) undone, and their kinds.

    Raises LimitExceeded for a text that cannot be a key here.
    """
    kinds = np.full(len(texts), STRING_KEY, np.int8)
    if not pc.any(pc.starts_with(texts, "\\"), min_count=0).as_py():
        return texts, kinds
    keys = []
    for header, text in enumerate(texts.to_pylist()):
        try:
            key, kind = key_bytes(text)
        except MalformedMessage as error:
            raise LimitExceeded(f"{_message_of(lists, header)}: {error}") from None
        if kind != STRING_KEY and (typed != TYPED or kind > limits.KIND_MAX):
            raise LimitExceeded(f"header key {text!r} of {_message_of(lists, header)} is typed; Iggy takes text")
        keys.append(key)
        kinds[header] = kind
    return pa.array(keys, pa.binary()), kinds


def _view_binary(array: Any) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return ends (one more than values) and bytes of a string or binary array, which may be a slice."""
    _, ends, data = array.buffers()
    if ends is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.empty(0, np.uint8)
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return np.frombuffer(ends, np.int32, len(array) + 1, 4 * array.offset), octets


def _message_of(lists: NDArray[np.int32], header: int) -> str:
    return f"message {int(np.searchsorted(lists - lists[0], header, side='right')) - 1}"
