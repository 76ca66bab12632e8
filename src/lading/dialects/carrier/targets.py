"""What each target cannot hold, as a table, and which rows of a Batch it touches, found without looping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...model.errors import MalformedMessage
from ...model.headers import Header
from ...model.kinds import Kind
from ...model.names import key_bytes, key_text
from ..iggy_classic import limits as iggy
from .form import NAME, is_reserved
from .rows import Items

_CELLS_MAX: Final = 1 << 22
"""Up to this many (row, key) pairs repeated keys are counted in a table, beyond by sorting."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a dialect can hold of a message; sizes in bytes, times in steps of ``time_step_us``.

    ``keeps_kinds`` False: every header is shown as raw. ``keeps_shape``: headers may repeat and be null or empty, there
    is a message key, and a payload may be null or empty.
    """

    key_bytes_max: int
    value_bytes_max: int
    values_sum_max: int
    payload_bytes_max: int
    kind_max: int
    keeps_time: bool
    keeps_order: bool
    keeps_kinds: bool = True
    keeps_shape: bool = False
    keeps_id: bool = True
    time_step_us: int = 1


_IGGY: Final[dict[str, Any]] = {
    "key_bytes_max": iggy.KEY_BYTES_MAX,
    "value_bytes_max": iggy.VALUE_BYTES_MAX,
    "values_sum_max": iggy.REQUEST_HEADER_VALUES_BYTES_MAX,
    "payload_bytes_max": iggy.REQUEST_PAYLOADS_BYTES_MAX,
    "kind_max": iggy.KIND_MAX,
}
_ANY_BYTES: Final = (1 << 31) - 1
TARGETS: Final[Mapping[str, Target]] = {
    "kafka": Target(
        key_bytes_max=_ANY_BYTES,
        value_bytes_max=_ANY_BYTES,
        values_sum_max=_ANY_BYTES,
        payload_bytes_max=_ANY_BYTES,
        kind_max=127,
        keeps_time=True,
        keeps_order=True,
        keeps_kinds=False,
        keeps_shape=True,
        keeps_id=False,
        time_step_us=1000,
    ),
    "iggy": Target(**_IGGY, keeps_time=True, keeps_order=True),
    "iggy_sent": Target(**_IGGY, keeps_time=False, keeps_order=True),
    "iggy_unordered": Target(**_IGGY, keeps_time=False, keeps_order=False),
}
"""Iggy holds each key once, with a kind of 1-15 and a value of 1-255 bytes, no message key and a payload that is there.

``iggy`` is what Lading lets Iggy clients poll. A sender gives ``iggy_sent``: the server stamps its own time on every
message. It is trusted to keep the order of headers, as Lading does; the real server of this generation shuffles them,
so that for ``iggy_unordered`` every message of two headers or more loses something.

Kafka holds everything but the kinds of headers, ids, and times finer than a millisecond; its limits are on whole
batches and a broker's own.
"""


def shows(header: Header, target: Target) -> bool:
    """Whether the target can show this header, if no later one has its key."""
    if is_reserved(header.key) or not _wire_key_fits(header.key, target):
        return False
    if target.keeps_shape:
        return True
    value = header.value
    return value is not None and 1 <= len(value) <= target.value_bytes_max and 1 <= header.kind <= target.kind_max


def _wire_key_fits(key: str, target: Target) -> bool:
    if not key.startswith("\\"):
        return target.keeps_shape or 1 <= len(key.encode()) <= target.key_bytes_max
    try:
        raw, kind = key_bytes(key)
        if not target.keeps_shape:
            raw.decode()
    except (MalformedMessage, UnicodeDecodeError):
        return False
    # an escape of what needs none would come back as another text
    return (
        kind == 2 and len(raw) <= target.key_bytes_max and key_text(raw) == key and (target.keeps_shape or raw != b"")
    )


@dataclass(frozen=True, slots=True)
class Losses:
    """Per row of a Batch: whether the target loses a header (or may: it is asked too often, never too seldom), the
    message key, the payload's null or emptiness, the id of zero bytes, the timestamp; whether it is larger than the
    target takes; and how many bytes its header values have."""

    headers: NDArray[np.bool_]
    key: NDArray[np.bool_]
    payload: NDArray[np.bool_]
    id: NDArray[np.bool_]
    time: NDArray[np.bool_]
    values_bytes: NDArray[np.int64]
    too_large: NDArray[np.bool_]

    def without(self, rows: NDArray[np.bool_]) -> Losses:
        """The same with nothing lost in these rows."""
        return replace(
            self,
            headers=self.headers & ~rows,
            key=self.key & ~rows,
            payload=self.payload & ~rows,
            id=self.id & ~rows,
            time=self.time & ~rows,
        )

    @property
    def facts_only(self) -> NDArray[np.bool_]:
        """Rows whose headers stay as they are and which yet need a carrier."""
        return (self.key | self.payload | self.id | self.time) & ~self.headers & ~self.too_large

    @property
    def any(self) -> NDArray[np.bool_]:
        """Rows that cannot stay as they are."""
        return self.headers | self.key | self.payload | self.id | self.time | self.too_large


def losses(batch: pa.RecordBatch, items: Items, target: Target) -> Losses:
    """What ``target`` loses of each row, found for the whole Batch at once."""
    payload: Any = batch.column("payload")
    sizes_bytes = numpy_of(pc.fill_null(pc.binary_length(payload), 0))
    values: Any = items.array.field("value")
    value_sizes = numpy_of(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
    # bincount adds float64, exact far beyond any batch
    values_bytes = np.bincount(items.rows, value_sizes, items.rows_count).astype(np.int64)
    return Losses(
        headers=_headers_lost(items, value_sizes, target),
        key=numpy_of(pc.is_valid(batch.column("key"))) & (not target.keeps_shape),
        payload=(sizes_bytes == 0) & (not target.keeps_shape),
        id=_zero_ids(batch.column("id")) if target.keeps_id else numpy_of(pc.is_valid(batch.column("id"))),
        time=_times_lost(batch.column("timestamp"), target),
        values_bytes=values_bytes,
        too_large=(sizes_bytes > target.payload_bytes_max) | (values_bytes > target.values_sum_max),
    )


def _times_lost(times: Any, target: Target) -> NDArray[np.bool_]:
    given = numpy_of(pc.is_valid(times))
    if not target.keeps_time:
        return given
    if target.time_step_us == 1:
        return np.zeros(len(times), np.bool_)
    return np.asarray(given & (numpy_of(times.cast(pa.int64()).fill_null(0)) % target.time_step_us != 0), np.bool_)


def _headers_lost(items: Items, value_sizes: NDArray[np.int64], target: Target) -> NDArray[np.bool_]:
    lost = np.zeros(items.rows_count, np.bool_)
    if not len(items.rows):
        return lost
    keys = items.array.field("key")
    kind_codes = numpy_of(items.array.field("kind"))
    key_sizes = numpy_of(pc.binary_length(keys))
    if target.keeps_shape:
        bad = np.zeros(len(key_sizes), np.bool_)
    else:
        bad = (key_sizes == 0) | (key_sizes > target.key_bytes_max) | (value_sizes == 0)
        bad |= (value_sizes > target.value_bytes_max) | (kind_codes < 1) | (kind_codes > target.kind_max)
    if not target.keeps_kinds:
        bad |= kind_codes != Kind.RAW
    if target.keeps_shape and target.keeps_order:
        bad |= numpy_of(pc.or_(pc.starts_with(keys, "\\"), pc.starts_with(keys, NAME)))
        lost[items.rows[bad]] = True
        return lost
    encoded = keys.dictionary_encode()
    odd = [key.startswith(("\\", NAME)) for key in encoded.dictionary.to_pylist()]
    codes = numpy_of(encoded.indices).astype(np.int64)
    bad |= np.array(odd, np.bool_)[codes]
    lost[items.rows[bad]] = True
    if not target.keeps_shape:
        lost[_rows_with_repeats(items.rows, codes, len(odd), items.rows_count)] = True
    if not target.keeps_order:
        lost |= np.bincount(items.rows, minlength=items.rows_count) > 1
    return lost


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
    return numpy_of(pc.fill_null(pc.equal(ids, pa.scalar(bytes(16), ids.type)), False))


def numpy_of(array: Any) -> NDArray[Any]:
    """The values of an array without nulls."""
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
