"""Batch -> batches of the current Iggy, as a producer sends them and as the server stores and hands them out."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.kernels import engine
from lading.model.errors import LimitExceeded

from ..messages.encoding import MessageArrays, message_ids, message_times_us, origin_times_us, refuse_message
from ..messages.layout import TYPED
from . import layout, limits, send_fallback

KERNEL_MODULE: Final = "lading.dialects.iggy.current.send_kernels"
_DELTA_BITS: Final = 31


def encode_sent(batch: pa.RecordBatch, now_us: int = 0) -> bytes:
    """Encode these messages as the one batch of a send request; a null id becomes 0.

    The batch's origin time is the first message's: its timestamp if it has no other, else ``now_us``; later messages
    store the difference. Raises LimitExceeded, naming message and header, for what no message can hold: see
    ``limits.py``.
    """
    return _encode(batch, sent=True, now_us=now_us)


def encode_stored(batch: pa.RecordBatch, partition: int = 0) -> bytes:
    """Encode the messages of a Batch as they are stored and polled, with its offsets and times; a null id becomes 0.

    Messages of one batch have the same time and consecutive offsets: another batch begins wherever either changes,
    or an origin time is earlier than the one before.
    Raises LimitExceeded as ``encode_sent`` does.
    """
    return _encode(batch, sent=False, partition=partition)


def _encode(batch: pa.RecordBatch, *, sent: bool, partition: int = 0, now_us: int = 0) -> bytes:
    arrays = MessageArrays.of(batch, TYPED)
    offsets, timestamps, origins, firsts = _find_places(batch, sent, now_us)
    heads = layout.BATCH_HEAD_BYTES * (len(firsts) - 1)
    size_bytes = heads + arrays.size_bytes(layout.FRAME_HEAD_BYTES, TYPED)
    target = np.empty(size_bytes, np.uint8)
    where = np.zeros(2, np.int64)
    kernels = engine.select(KERNEL_MODULE, send_fallback, size_bytes)
    reason = kernels.write(
        sent,
        partition,
        firsts,
        offsets,
        timestamps,
        origins,
        message_ids(batch),
        arrays.list_ends,
        arrays.key_ends,
        arrays.keys,
        arrays.key_kinds,
        arrays.kinds,
        arrays.value_ends,
        arrays.values,
        arrays.payload_ends,
        arrays.payloads,
        target,
        where,
    )
    if reason == layout.PAYLOAD_SIZE:
        raise LimitExceeded(f"the payload of message {where[0]} has more than {limits.PAYLOAD_BYTES_MAX} bytes")
    if reason == layout.HEADERS_SIZE:
        raise LimitExceeded(
            f"the headers of message {where[0]} have more than {limits.HEADERS_BYTES_MAX} bytes together"
        )
    if reason:
        raise refuse_message(batch, reason, int(where[0]), int(where[1]))
    return target.tobytes()


def _find_places(batch: pa.RecordBatch, sent: bool, now_us: int) -> tuple[NDArray[np.int64], ...]:
    """Return offsets, times and origin times of the rows, and the rows at which batches begin, followed by the end."""
    rows = batch.num_rows
    offsets: NDArray[np.int64] = np.arange(rows, dtype=np.int64)
    times: NDArray[np.int64] = np.full(rows, now_us, np.int64)
    names = batch.schema.names
    if "timestamp" in names:
        times = message_times_us(batch, now_us)
    if sent:
        # what is earlier than the first, or an hour and more later, has no form as a delta
        origins = origin_times_us(batch, times)
        origins = np.clip(origins, origins[:1], origins[:1] + layout.DELTA_MAX) if rows else origins
        return offsets, times, origins, np.array([0, rows][: 2 if rows else 1], np.int64)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    apart = (np.diff(offsets) != 1) | (np.diff(times) != 0)
    origins = origin_times_us(batch, times)
    if origins is not times:
        # a frame holds its origin time as a difference to the first of its batch: never negative, and at most 32 bits
        apart |= (np.diff(origins) < 0) | (np.diff(origins >> _DELTA_BITS) != 0)
    begins = [0, *(np.flatnonzero(apart) + 1).tolist()] if rows else []
    return offsets, times, origins, np.array([*begins, rows], np.int64)
