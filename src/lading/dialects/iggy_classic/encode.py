"""Batch -> messages of Iggy classic, as a producer sends them and as the server stores and hands them out."""

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

KERNEL_MODULE = "lading.dialects.iggy_classic.send_kernels"

_STRING: Final = 2
_COMPUTE: Final = -1


def encode_sent(batch: pa.RecordBatch) -> bytes:
    """The messages of a Batch as a send request carries them: id, headers and payload; a null id is sent as 0.

    LimitExceeded, naming message and header, for what no message can hold: see ``limits.py``. The sums over a request
    are not checked here: splitting is the sender's, refusing the server's.
    """
    return _encode(batch, sent=True)


def encode_stored(batch: pa.RecordBatch) -> bytes:
    """The messages of a Batch as they are stored and polled, with the Batch's offsets, states and timestamps.

    A null checksum is computed, a null id becomes 0. LimitExceeded as in ``encode_sent``.
    """
    return _encode(batch, sent=False)


def _encode(batch: pa.RecordBatch, *, sent: bool) -> bytes:
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
    key_ends, keys = _binary(_wire_keys(texts, lists))
    value_ends, value_data = _binary(values)
    payload_ends, payload_data = _binary(payload)
    sizes = (key_ends[-1] - key_ends[0], value_ends[-1] - value_ends[0], payload_ends[-1] - payload_ends[0])
    fixed = layout.SENT_BYTES_MIN if sent else layout.STORED_BYTES_MIN
    size_bytes = rows * fixed + len(texts) * layout.HEADER_BYTES_MIN + sum(map(int, sizes))
    target = np.empty(size_bytes, np.uint8)
    where = np.zeros(2, np.int64)
    kernels = engine.select(KERNEL_MODULE, send_fallback, size_bytes)
    reason = kernels.write(
        sent,
        *_facts(batch, sent),
        lists - lists[0],
        key_ends,
        keys,
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


def _facts(batch: pa.RecordBatch, sent: bool) -> tuple[NDArray[Any], ...]:
    """Offsets, states, timestamps, ids and checksums; what a sent message does not have is not looked at."""
    rows = batch.num_rows
    names = batch.schema.names
    ids = np.zeros(16 * rows, np.uint8)
    if "id" in names and rows:
        column: Any = batch.column("id")
        if column.null_count:
            column = column.fill_null(bytes(16))
        ids = np.frombuffer(column.buffers()[1], np.uint8, 16 * rows, 16 * column.offset)
    nothing = np.zeros(rows, np.int64)
    if sent:
        return nothing, np.zeros(rows, np.int8), nothing, ids, nothing
    checksums: Any = batch.column("checksum")
    return (
        batch.column("offset").to_numpy(zero_copy_only=False),
        batch.column("state").to_numpy(zero_copy_only=False),
        # Iggy has no times before 1970; the carrier has them
        np.maximum(batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False), 0),
        ids,
        checksums.cast(pa.int64()).fill_null(_COMPUTE).to_numpy(zero_copy_only=False),
    )


def _wire_keys(texts: Any, lists: NDArray[np.int32]) -> Any:
    """Header keys as bytes: escapes (names.key_text) undone; LimitExceeded for a key that is no string here."""
    if not pc.any(pc.starts_with(texts, "\\"), min_count=0).as_py():
        return texts
    keys = []
    for header, text in enumerate(texts.to_pylist()):
        try:
            key, kind = key_bytes(text)
        except MalformedMessage as error:
            raise LimitExceeded(f"{_message_of(lists, header)}: {error}") from None
        if kind != _STRING:
            raise LimitExceeded(f"header key {text!r} of {_message_of(lists, header)} is typed; Iggy takes text")
        keys.append(key)
    return pa.array(keys, pa.binary())


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
    key = texts[header].as_py()
    if reason == layout.KEY_SIZE:
        return f"header key {key[:40]!r} of message {row} has not 1 to {limits.KEY_BYTES_MAX} bytes"
    if reason == layout.VALUE_SIZE:
        size_bytes = len(values[header].as_py())
        return f"header {key!r} of message {row} has {size_bytes} bytes; Iggy takes 1 to {limits.VALUE_BYTES_MAX}"
    return f"header {key!r} of message {row} has kind {kinds[header]}; Iggy knows 1 to {limits.KIND_MAX}"
