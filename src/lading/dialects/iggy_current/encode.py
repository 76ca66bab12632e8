"""Batch -> batches of the current Iggy, as a producer sends them and as the server stores and hands them out."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.kernels import engine
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.names import key_bytes

from . import layout, limits, send_fallback

KERNEL_MODULE: Final = "lading.dialects.iggy_current.send_kernels"


def encode_sent(batch: pa.RecordBatch) -> bytes:
    """The one batch in which a send request carries these messages; a null id is sent as 0.

    Its origin time is the first message's, others add what they are later. LimitExceeded, naming message and header,
    for what no message can hold: see ``limits.py``.
    """
    return _encode(batch, sent=True)


def encode_stored(batch: pa.RecordBatch, partition: int = 0) -> bytes:
    """The messages of a Batch as they are stored and polled, with its offsets and times; a null id becomes 0.

    Messages of one batch have one time and follow each other: where either ends, another batch begins. LimitExceeded as
    in ``encode_sent``.
    """
    return _encode(batch, sent=False, partition=partition)


def _encode(batch: pa.RecordBatch, *, sent: bool, partition: int = 0) -> bytes:
    rows = batch.num_rows
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
    stored_keys, key_kinds = _wire_keys(texts, lists)
    key_ends, keys = _binary(stored_keys)
    value_ends, value_data = _binary(values)
    payload_ends, payload_data = _binary(payload)
    offsets, timestamps, firsts = _places(batch, sent)
    sizes = (key_ends[-1] - key_ends[0], value_ends[-1] - value_ends[0], payload_ends[-1] - payload_ends[0])
    heads = layout.BATCH_HEAD_BYTES * (len(firsts) - 1) + layout.FRAME_HEAD_BYTES * rows
    size_bytes = heads + len(texts) * layout.HEADER_BYTES_MIN + sum(map(int, sizes))
    target = np.empty(size_bytes, np.uint8)
    where = np.zeros(2, np.int64)
    kernels = engine.select(KERNEL_MODULE, send_fallback, size_bytes)
    reason = kernels.write(
        sent,
        partition,
        firsts,
        offsets,
        timestamps,
        _ids(batch),
        lists - lists[0],
        key_ends,
        keys,
        key_kinds,
        kinds.to_numpy(zero_copy_only=False),
        value_ends,
        value_data,
        payload_ends,
        payload_data,
        target,
        where,
    )
    if reason:
        raise LimitExceeded(_sentence(reason, int(where[0]), texts, kinds, values, int(where[1])))
    return target.tobytes()


def _places(batch: pa.RecordBatch, sent: bool) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and times of the rows, and the rows with which batches begin, the end behind them."""
    rows = batch.num_rows
    offsets: NDArray[np.int64] = np.arange(rows, dtype=np.int64)
    times: NDArray[np.int64] = np.zeros(rows, np.int64)
    names = batch.schema.names
    if "timestamp" in names:
        # Iggy has no times before 1970; the carrier has them
        stamps: Any = batch.column("timestamp").cast(pa.int64()).fill_null(0)
        times = np.maximum(stamps.to_numpy(zero_copy_only=False), 0)
    if sent:
        # what is earlier than the first, or an hour and more later, has no form as a delta
        times = np.clip(times, times[:1], times[:1] + layout.DELTA_MAX) if rows else times
        return offsets, times, np.array([0, rows][: 2 if rows else 1], np.int64)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    apart = (np.diff(offsets) != 1) | (np.diff(times) != 0)
    begins = [0, *(np.flatnonzero(apart) + 1).tolist()] if rows else []
    return offsets, times, np.array([*begins, rows], np.int64)


def _ids(batch: pa.RecordBatch) -> NDArray[np.uint8]:
    rows = batch.num_rows
    if "id" not in batch.schema.names or not rows:
        return np.zeros(16 * rows, np.uint8)
    column: Any = batch.column("id")
    if column.null_count:
        column = column.fill_null(bytes(16))
    return np.frombuffer(column.buffers()[1], np.uint8, 16 * rows, 16 * column.offset)


def _wire_keys(texts: Any, lists: NDArray[np.int32]) -> tuple[Any, NDArray[np.uint8]]:
    """Header keys as bytes and kinds: escapes (names.key_text) undone; LimitExceeded for one that is none."""
    kinds = np.full(len(texts), layout.STRING_KEY, np.uint8)
    if not pc.any(pc.starts_with(texts, "\\"), min_count=0).as_py():
        return texts, kinds
    keys = []
    for header, text in enumerate(texts.to_pylist()):
        try:
            key, kinds[header] = key_bytes(text)
        except MalformedMessage as error:
            raise LimitExceeded(f"{_message_of(lists, header)}: {error}") from None
        keys.append(key)
    return pa.array(keys, pa.binary()), kinds


def _binary(array: Any) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Ends (one more than values) and bytes of a string or binary array, which may be a slice."""
    _, ends, data = array.buffers()
    if ends is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.empty(0, np.uint8)
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return np.frombuffer(ends, np.int32, len(array) + 1, 4 * array.offset), octets


def _message_of(lists: NDArray[np.int32], header: int) -> str:
    return f"message {int(np.searchsorted(lists - lists[0], header, side='right')) - 1}"


def _sentence(reason: int, row: int, texts: Any, kinds: Any, values: Any, header: int) -> str:
    if reason == layout.NO_PAYLOAD:
        return f"message {row} has an empty payload; Iggy takes 1 byte or more"
    if reason == layout.PAYLOAD_SIZE:
        return f"the payload of message {row} has more than {limits.PAYLOAD_BYTES_MAX} bytes"
    if reason == layout.HEADERS_SIZE:
        return f"the headers of message {row} have more than {limits.HEADERS_BYTES_MAX} bytes together"
    key = texts[header].as_py()
    if reason == layout.KEY_SIZE:
        return f"header key {key[:40]!r} of message {row} has not 1 to {limits.KEY_BYTES_MAX} bytes"
    if reason == layout.VALUE_SIZE:
        size_bytes = len(values[header].as_py())
        return f"header {key!r} of message {row} has {size_bytes} bytes; Iggy takes 1 to {limits.VALUE_BYTES_MAX}"
    return f"header {key!r} of message {row} has kind {kinds[header]}; Iggy knows 1 to {limits.KIND_MAX}"
