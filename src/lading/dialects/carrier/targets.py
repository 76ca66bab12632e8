"""What each target cannot hold, as a table, and which rows of a Batch it touches, found without looping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from ..nsq import limits as nsq
from . import json_form, json_mark
from .encoding import NAME, is_reserved
from .rows import Items

_JSON_NAMES: Final = (nsq.TRACE_NAME, nsq.CARRIER_NAME, json_mark.NAME)
_JSON_ESCAPE_BYTES: Final = 6
_JSON_HEADER_BYTES: Final = 30
_CELLS_MAX: Final = 1 << 22
"""Up to this many (row, key) pairs repeated keys are counted in a table, beyond by sorting."""


@dataclass(frozen=True, slots=True)
class TargetCapabilities:
    """What a dialect can hold of a message; sizes in bytes, times in steps of ``time_step_us``.

    ``keeps_kinds`` False: every header is shown as raw. ``keeps_shape``: headers may repeat and be null or empty, there
    is a message key, and a payload may be null or empty. ``json``: headers show as JSON does, which ``values_sum_max``
    then bounds; ``printable``: the carrier is ASCII text, because readers may take any header for text;
    ``whole_bytes_max`` is what headers and payload may have together.
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
    time_min_us: int = 0
    json: bool = False
    printable: bool = False
    whole_bytes_max: int | None = None

    def size_bytes(self, headers: Sequence[Header]) -> int:
        """What the headers, as they are shown, count towards ``values_sum_max``."""
        return json_form.size_bytes(headers) if self.json else sum(len(header.value or b"") for header in headers)


_IGGY: Final[dict[str, Any]] = {
    "key_bytes_max": iggy.KEY_BYTES_MAX,
    "value_bytes_max": iggy.VALUE_BYTES_MAX,
    "values_sum_max": iggy.REQUEST_HEADER_VALUES_BYTES_MAX,
    "payload_bytes_max": iggy.REQUEST_PAYLOADS_BYTES_MAX,
    "kind_max": iggy.KIND_MAX,
}
_ANY_BYTES: Final = (1 << 31) - 1
_NSQ: Final[dict[str, Any]] = {
    "key_bytes_max": nsq.EXT_BYTES_MAX,
    "value_bytes_max": nsq.EXT_BYTES_MAX,
    "payload_bytes_max": nsq.MESSAGE_BYTES_MAX,
    "whole_bytes_max": nsq.MESSAGE_BYTES_MAX - 2,
    "kind_max": 127,
    "keeps_order": True,
    "keeps_id": False,
    "json": True,
}
TARGETS: Final[Mapping[str, TargetCapabilities]] = {
    "kafka": TargetCapabilities(
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
        time_min_us=-(1 << 63),
        printable=True,
    ),
    "iggy": TargetCapabilities(**_IGGY, keeps_time=True, keeps_order=True),
    "iggy_sent": TargetCapabilities(**_IGGY, keeps_time=False, keeps_order=True),
    "iggy_unordered": TargetCapabilities(**_IGGY, keeps_time=False, keeps_order=False),
    "nsq": TargetCapabilities(**_NSQ, keeps_time=True, values_sum_max=nsq.EXT_BYTES_MAX),
    "nsq_sent": TargetCapabilities(**_NSQ, keeps_time=False, values_sum_max=nsq.SENT_EXT_BYTES_MAX),
}
"""Iggy holds each key once, with a kind of 1-15 and a value of 1-255 bytes, no message key and a payload that is there.

``iggy`` is what Lading lets Iggy clients poll. A sender gives ``iggy_sent``: the server stamps its own time on every
message. It is trusted to keep the order of headers, as Lading does; the real server of this generation shuffles them,
so that for ``iggy_unordered`` every message of two headers or more loses something.

Kafka holds everything but the kinds of headers, ids, and times finer than a millisecond; its limits are on whole
batches and a broker's own.

NSQ holds each name once, with a value of JSON, no message key, no id but its own, and a payload that is there. ``nsq``
is what Lading lets NSQ clients read, ``nsq_sent`` what a sender gives, whose time is the server's, and whose ext stays
below what the fork's server survives.
"""


def render_header(header: Header, target: TargetCapabilities) -> Header | None:
    """The header as the target shows it, if no later one has its key; None where it cannot."""
    if is_reserved(header.key) or not _wire_key_fits(header.key, target):
        return None
    if target.json:
        if header.key == json_mark.NAME:
            return header if header.kind == Kind.RAW else None
        return None if header.key == nsq.CARRIER_NAME else json_form.render_json_header(header)
    if target.keeps_shape:
        return header if target.keeps_kinds else header._replace(kind=int(Kind.RAW))
    value = header.value
    fits = value is not None and 1 <= len(value) <= target.value_bytes_max and 1 <= header.kind <= target.kind_max
    return header if fits else None


def _wire_key_fits(key: str, target: TargetCapabilities) -> bool:
    empty = target.keeps_shape or target.json
    if not key.startswith("\\"):
        return target.keeps_shape or int(not empty) <= len(key.encode()) <= target.key_bytes_max
    try:
        raw, kind = key_bytes(key)
        if not target.keeps_shape:
            raw.decode()
    except (MalformedMessage, UnicodeDecodeError):
        return False
    # an escape of what needs none would come back as another text
    return kind == 2 and len(raw) <= target.key_bytes_max and key_text(raw) == key and (empty or raw != b"")


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


def losses(batch: pa.RecordBatch, items: Items, target: TargetCapabilities) -> Losses:
    """What ``target`` loses of each row, found for the whole Batch at once."""
    payload: Any = batch.column("payload")
    sizes_bytes = numpy_of(pc.fill_null(pc.binary_length(payload), 0))
    values: Any = items.array.field("value")
    value_sizes = numpy_of(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
    if target.json:
        # what no escaping exceeds, names and syntax included: a row over the limit is looked at for itself
        value_sizes = _JSON_ESCAPE_BYTES * (value_sizes + _key_sizes(items)) + _JSON_HEADER_BYTES
    # bincount adds float64, exact far beyond any batch
    values_bytes = np.bincount(items.rows, value_sizes, items.rows_count).astype(np.int64)
    too_large = (sizes_bytes > target.payload_bytes_max) | (values_bytes > target.values_sum_max)
    if target.whole_bytes_max is not None:
        too_large |= (values_bytes > 0) & (sizes_bytes + values_bytes > target.whole_bytes_max)
    headers = _headers_lost(items, value_sizes, target)
    key = numpy_of(pc.is_valid(batch.column("key"))) & (not target.keeps_shape)
    was_empty = (sizes_bytes == 0) & (not target.keeps_shape)
    id_ = zero_ids(batch.column("id")) if target.keeps_id else numpy_of(pc.is_valid(batch.column("id")))
    time = _times_lost(batch.column("timestamp"), target)
    if target.time_step_us != 1:
        # a time that would only be cut is no reason for a carrier, and goes into one that is there anyway
        time &= headers | key | was_empty | id_
    return Losses(
        headers=headers,
        key=key,
        payload=was_empty,
        id=id_,
        time=time,
        values_bytes=values_bytes,
        too_large=too_large,
    )


def cuts_times(batch: pa.RecordBatch, target: TargetCapabilities) -> bool:
    """Whether the target cuts a time of the Batch to its own step, which alone is no reason for a carrier."""
    return target.time_step_us != 1 and bool(_times_lost(batch.column("timestamp"), target).any())


def _times_lost(times: Any, target: TargetCapabilities) -> NDArray[np.bool_]:
    given = numpy_of(pc.is_valid(times))
    if not target.keeps_time:
        return given
    times_us = numpy_of(times.cast(pa.int64()).fill_null(0))
    lost = times_us < target.time_min_us
    if target.time_step_us != 1:
        lost |= times_us % target.time_step_us != 0
    return np.asarray(given & lost, np.bool_)


def _headers_lost(items: Items, value_sizes: NDArray[np.int64], target: TargetCapabilities) -> NDArray[np.bool_]:
    lost = np.zeros(items.rows_count, np.bool_)
    if not len(items.rows):
        return lost
    keys = items.array.field("key")
    kind_codes = numpy_of(items.array.field("kind"))
    key_sizes = _key_sizes(items)
    if target.json:
        bad = ~_same_in_json(items, kind_codes) | (key_sizes > target.key_bytes_max)
    elif target.keeps_shape:
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
    odd = [key.startswith(("\\", NAME, *_JSON_NAMES)) for key in encoded.dictionary.to_pylist()]
    codes = numpy_of(encoded.indices).astype(np.int64)
    bad |= np.array(odd, np.bool_)[codes]
    lost[items.rows[bad]] = True
    if not target.keeps_shape:
        lost[_rows_with_repeats(items.rows, codes, len(odd), items.rows_count)] = True
    if not target.keeps_order:
        lost |= np.bincount(items.rows, minlength=items.rows_count) > 1
    return lost


def _key_sizes(items: Items) -> NDArray[np.int64]:
    return numpy_of(pc.binary_length(items.array.field("key"))).astype(np.int64)


def _same_in_json(items: Items, kind_codes: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Which headers JSON surely keeps as they are: text, and null of kind raw."""
    values: Any = items.array.field("value")
    null = numpy_of(values.is_null())
    text = (kind_codes == Kind.STRING) & ~null
    try:
        values.filter(pa.array(text)).cast(pa.string())
    except pa.ArrowInvalid:
        text = np.zeros(len(text), np.bool_)
    return np.asarray(text | (null & (kind_codes == Kind.RAW)), np.bool_)


def _rows_with_repeats(
    rows: NDArray[np.int64], codes: NDArray[np.int64], keys_count: int, rows_count: int
) -> NDArray[np.int64]:
    cells = rows * keys_count + codes
    if rows_count * keys_count <= _CELLS_MAX:
        return np.flatnonzero(np.bincount(cells, minlength=1) > 1) // keys_count
    distinct, counts = np.unique(cells, return_counts=True)
    repeated: NDArray[np.int64] = distinct[counts > 1] // keys_count
    return repeated


def zero_ids(ids: Any) -> NDArray[np.bool_]:
    """Which ids are 16 zero bytes."""
    if ids.null_count == len(ids):
        return np.zeros(len(ids), np.bool_)
    return numpy_of(pc.fill_null(pc.equal(ids, pa.scalar(bytes(16), ids.type)), False))


def numpy_of(array: Any) -> NDArray[Any]:
    """The values of an array without nulls."""
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
