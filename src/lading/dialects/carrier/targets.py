"""What each target cannot hold, as a table, and which rows of a Batch it touches, found without looping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...model.errors import MalformedMessage
from ...model.headers import Header
from ...model.names import key_bytes
from ..iggy_classic import limits as iggy
from .form import NAME, is_reserved

_CELLS_MAX: Final = 1 << 22
"""Up to this many (row, key) pairs repeated keys are counted in a table, beyond by sorting."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a dialect can hold of a message; sizes in bytes."""

    key_bytes_max: int
    value_bytes_max: int
    values_sum_max: int
    payload_bytes_max: int
    kind_max: int
    keeps_order: bool


_IGGY: Final[dict[str, Any]] = {
    "key_bytes_max": iggy.KEY_BYTES_MAX,
    "value_bytes_max": iggy.VALUE_BYTES_MAX,
    "values_sum_max": iggy.REQUEST_HEADER_VALUES_BYTES_MAX,
    "payload_bytes_max": iggy.REQUEST_PAYLOADS_BYTES_MAX,
    "kind_max": iggy.KIND_MAX,
}
TARGETS: Final[Mapping[str, Target]] = {
    "iggy": Target(**_IGGY, keeps_order=True),
    "iggy_unordered": Target(**_IGGY, keeps_order=False),
}
"""Iggy holds each key once, with a kind of 1-15 and a value of 1-255 bytes, no message key and a payload that is there.

``iggy`` trusts the server to keep the order of headers, as Lading does; the real server of this generation shuffles
them, so for ``iggy_unordered`` every message of two headers or more gets a carrier.
"""


def shows(header: Header, target: Target) -> bool:
    """Whether the target can show this header, if no later one has its key."""
    return (
        header.value is not None
        and 1 <= len(header.value) <= target.value_bytes_max
        and 1 <= header.kind <= target.kind_max
        and not is_reserved(header.key)
        and _wire_key_fits(header.key, target)
    )


def _wire_key_fits(key: str, target: Target) -> bool:
    if not key.startswith("\\"):
        return 1 <= len(key.encode()) <= target.key_bytes_max
    try:
        raw, kind = key_bytes(key)
        raw.decode()
    except (MalformedMessage, UnicodeDecodeError):
        return False
    return kind == 2 and 1 <= len(raw) <= target.key_bytes_max


def lossy_rows(batch: pa.RecordBatch, target: Target) -> NDArray[np.bool_]:
    """Per row, whether the target may lose something of it; wrong only by asking for a closer look."""
    payload: Any = batch.column("payload")
    key = batch.column("key")
    sizes_bytes = _numpy(pc.fill_null(pc.binary_length(payload), 0))
    lossy: NDArray[np.bool_] = (sizes_bytes == 0) | (sizes_bytes > target.payload_bytes_max)
    if key.null_count < len(key):
        lossy |= _numpy(pc.is_valid(key))
    lossy |= _zero_ids(batch.column("id"))
    headers: Any = batch.column("headers")
    counts = _numpy(pc.list_value_length(headers))
    if counts.sum():
        lossy |= _headers_lossy(headers.flatten(), counts, target)
    return lossy


def _headers_lossy(items: Any, counts: NDArray[np.int64], target: Target) -> NDArray[np.bool_]:
    keys, kinds, values = items.field("key"), items.field("kind"), items.field("value")
    rows = np.repeat(np.arange(len(counts)), counts)
    key_sizes = _numpy(pc.binary_length(keys))
    value_sizes = _numpy(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
    kind_codes = _numpy(kinds)
    bad = (key_sizes == 0) | (key_sizes > target.key_bytes_max) | (value_sizes == 0)
    bad |= (value_sizes > target.value_bytes_max) | (kind_codes < 1) | (kind_codes > target.kind_max)
    encoded = keys.dictionary_encode()
    odd = [key.startswith(("\\", NAME)) for key in encoded.dictionary.to_pylist()]
    codes = _numpy(encoded.indices).astype(np.int64)
    bad |= np.array(odd, np.bool_)[codes]
    lossy = np.zeros(len(counts), np.bool_)
    lossy[rows[bad]] = True
    lossy[_rows_with_repeats(rows, codes, len(odd), len(counts))] = True
    # bincount adds float64, exact far beyond any batch
    lossy |= np.bincount(rows, value_sizes, len(counts)) > target.values_sum_max
    if not target.keeps_order:
        lossy |= counts > 1
    return lossy


def _rows_with_repeats(
    rows: NDArray[np.int64], codes: NDArray[np.int64], keys_count: int, rows_count: int
) -> NDArray[np.int64]:
    cells = rows * keys_count + codes
    if rows_count * keys_count <= _CELLS_MAX:
        return np.flatnonzero(np.bincount(cells, minlength=1) > 1) // keys_count
    distinct, counts = np.unique(cells, return_counts=True)
    repeated: NDArray[np.int64] = distinct[counts > 1] // keys_count
    return repeated


def _zero_ids(ids: Any) -> NDArray[np.bool_]:
    if ids.null_count == len(ids):
        return np.zeros(len(ids), np.bool_)
    return _numpy(pc.fill_null(pc.equal(ids, pa.scalar(bytes(16), ids.type)), False))


def _numpy(array: Any) -> NDArray[Any]:
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
