"""Batch -> zero-copy messages, as clients send them, and as servers store them and hand them out."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from lading.kernels import engine

from ..messages.encoding import MessageArrays, message_ids, message_times_us, origin_times_us, refuse_message
from . import layout, send_fallback
from .layout import FORM_0_9, NO_CHECKSUM, WireForm

KERNEL_MODULE = "lading.dialects.iggy.zero_copy.send_kernels"
_INDEX = struct.Struct("<IIQ")


def encode_stored(batch: pa.RecordBatch, form: WireForm = FORM_0_9) -> bytes:
    """Encode the messages of a Batch as they are stored, or as the releases of ``form`` poll them.

    A null id becomes 0; the time of sending is that of receipt if the Batch has no other. Raises LimitExceeded, naming
    message and header, for values that no message can hold.
    """
    times = message_times_us(batch)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    return _write(batch, form, offsets, times, origin_times_us(batch, times))


def encode_sent(batch: pa.RecordBatch, form: WireForm, now_us: int) -> bytes:
    """Encode index and messages of a Batch as a send request carries them after its head.

    The time of sending is the message's own if the Batch has it, else its timestamp, else ``now_us``. Raises
    LimitExceeded as ``encode_stored`` does.
    """
    nothing = np.zeros(batch.num_rows, np.int64)
    origins = origin_times_us(batch, message_times_us(batch, now_us))
    messages = _write(batch, form._replace(checksum=NO_CHECKSUM), nothing, nothing, origins)
    at, index = 0, bytearray()
    for _ in range(batch.num_rows):
        headers_size, payload_size = struct.unpack_from("<II", messages, at + layout.HEADERS_LENGTH)
        at += form.head_bytes + headers_size + payload_size
        index += _INDEX.pack(0, at, 0)
    return bytes(index) + messages


def _write(batch: pa.RecordBatch, form: WireForm, offsets: object, times: object, origins: object) -> bytes:
    parts = MessageArrays.of(batch, form.typed)
    size_bytes = parts.size_bytes(form.head_bytes, form.typed)
    target = np.empty(size_bytes, np.uint8)
    where = np.zeros(2, np.int64)
    kernels = engine.select(KERNEL_MODULE, send_fallback, size_bytes)
    reason = kernels.write(
        *form,
        offsets,
        times,
        origins,
        message_ids(batch),
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
