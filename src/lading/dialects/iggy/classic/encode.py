"""Batch -> messages of Iggy classic, as a producer sends them and as the server stores and hands them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.kernels import engine

from ..messages.encoding import COMPUTE, MessageArrays, message_ids, message_times_us, refuse_message
from ..messages.layout import UNTYPED
from . import layout, send_fallback

KERNEL_MODULE = "lading.dialects.iggy.classic.send_kernels"


def encode_sent(batch: pa.RecordBatch) -> bytes:
    """Encode the messages of a Batch as a send request carries them: id, headers and payload; a null id becomes 0.

    Raises LimitExceeded, naming message and header, for what no message can hold: see ``limits.py``. The sums over a
    request are not checked here: the sender splits requests, the server refuses them.
    """
    return _encode(batch, sent=True)


def encode_stored(batch: pa.RecordBatch) -> bytes:
    """Encode the messages of a Batch as they are stored and polled, with the Batch's offsets, states and timestamps.

    A null checksum is computed, a null id becomes 0. Raises LimitExceeded as ``encode_sent`` does.
    """
    return _encode(batch, sent=False)


def _encode(batch: pa.RecordBatch, *, sent: bool) -> bytes:
    parts = MessageArrays.of(batch, UNTYPED)
    size_bytes = parts.size_bytes(layout.SENT_BYTES_MIN if sent else layout.STORED_BYTES_MIN, UNTYPED)
    target = np.empty(size_bytes, np.uint8)
    where = np.zeros(2, np.int64)
    kernels = engine.select(KERNEL_MODULE, send_fallback, size_bytes)
    reason = kernels.write(
        sent,
        *_read_facts(batch, sent),
        parts.list_ends,
        parts.key_ends,
        parts.keys,
        parts.key_kinds,
        parts.kinds,
        parts.value_ends,
        parts.values,
        parts.payload_ends,
        parts.payloads,
        target,
        where,
    )
    if reason:
        raise refuse_message(batch, reason, int(where[0]), int(where[1]))
    return target.tobytes()


def _read_facts(batch: pa.RecordBatch, sent: bool) -> tuple[NDArray[Any], ...]:
    """Return offsets, states, timestamps, ids and checksums; columns that a sent message does not have are not read."""
    nothing = np.zeros(batch.num_rows, np.int64)
    if sent:
        return nothing, np.zeros(batch.num_rows, np.int8), nothing, message_ids(batch), nothing
    checksums: Any = batch.column("checksum")
    return (
        batch.column("offset").to_numpy(zero_copy_only=False),
        batch.column("state").to_numpy(zero_copy_only=False),
        message_times_us(batch),
        message_ids(batch),
        checksums.cast(pa.int64()).fill_null(COMPUTE).to_numpy(zero_copy_only=False),
    )
