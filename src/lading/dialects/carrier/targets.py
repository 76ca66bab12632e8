"""Losses of a Batch in a target: the affected rows, found without looping, and how headers appear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pkgutil import resolve_name
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...model.batch import ORIGIN_TIMESTAMP
from ...model.errors import MalformedMessage
from ...model.headers import Header
from ...model.kinds import Kind
from ...model.lazy_dataclass import lazy_dataclass
from ...model.names import key_bytes, key_text
from ...model.protocol import BYTES_MAX, Capabilities, HeaderForm
from .encoding import NAME, is_reserved
from .rows import Items

_TEXT: Final = int(Kind.STRING)
_CELLS_MAX: Final = 1 << 22
"""Up to this many (row, key) pairs, repeated keys are counted in a table; beyond that by sorting."""


@cache
def _load_form(name: str) -> HeaderForm:
    form: HeaderForm = resolve_name(name)
    return form


def form_of(target: Capabilities) -> HeaderForm | None:
    """Return the other form in which the target shows headers, if it has one."""
    return None if target.form is None else _load_form(target.form)


def loses_kinds_only(target: Capabilities) -> bool:
    """Return whether headers lose nothing but their kinds, as in Kafka; such carriers are created in bulk."""
    names = target.order and target.binary_names
    kinds = target.kind_max is None and target.form is None
    return target.keeps_shape and names and kinds and not target.id and target.text_carrier


def size_bytes(headers: Sequence[Header], target: Capabilities) -> int:
    """Return how many bytes the headers, as they are shown, count towards ``values_sum_max``."""
    form = form_of(target)
    return sum(len(header.value or b"") for header in headers) if form is None else form.size_bytes(headers)


def render_headers(headers: Sequence[Header], target: Capabilities) -> dict[int, Header]:
    """Return the headers of one message as the target shows them, by place, without those that it cannot show."""
    fitting = {at: header for at, header in enumerate(headers) if _has_name(header.key, target)}
    if not target.duplicate_keys:
        # only the last header of a name is shown, or none of that name
        last = {header.key: at for at, header in enumerate(headers)}
        fitting = {at: header for at, header in fitting.items() if last[header.key] == at}
    form = form_of(target)
    if form is not None:
        return form.render(fitting)
    shown = ((at, _render_header(header, target)) for at, header in fitting.items())
    return {at: header for at, header in shown if header is not None}


def _render_header(header: Header, target: Capabilities) -> Header | None:
    value = header.value
    if value is None or value == b"":
        fits = target.nulls if value is None else target.empties
    else:
        fits = len(value) <= target.value_bytes_max
    if target.kind_max is None:
        return header._replace(kind=int(Kind.RAW)) if fits else None
    return header if fits and 1 <= header.kind <= target.kind_max else None


def _has_name(key: str, target: Capabilities) -> bool:
    """Return whether the target can show a header with this key."""
    if is_reserved(key):
        return False
    if not key.startswith("\\"):
        return target.name_bytes_min <= len(key.encode()) <= target.name_bytes_max
    try:
        raw, kind = key_bytes(key)
        if kind == _TEXT and not target.binary_names:
            raw.decode()
    except (MalformedMessage, UnicodeDecodeError):
        return False
    # an unneeded escape would come back as another text
    is_known = kind == _TEXT or (target.typed_names and kind <= (target.kind_max or 0))
    return is_known and target.name_bytes_min <= len(raw) <= target.name_bytes_max and key_text(raw, kind) == key


@lazy_dataclass(frozen=True, slots=True)
class Losses:
    """Losses of each row of a Batch.

    They are whether the target loses a header (perhaps: the check may be true too often, never too seldom), the message
    key, the payload's null or emptiness, the id of zero bytes, or the timestamp. Further, whether the row is too large
    for the target, and the size of its header values and its payload in bytes.
    """

    headers: NDArray[np.bool_]
    key: NDArray[np.bool_]
    payload: NDArray[np.bool_]
    id: NDArray[np.bool_]
    time: NDArray[np.bool_]
    values_bytes: NDArray[np.int64]
    payload_bytes: NDArray[np.int64]
    too_large: NDArray[np.bool_]
    origin: NDArray[np.bool_]
    """The time by the clock of the sender."""

    def without(self, rows: NDArray[np.bool_]) -> Losses:
        """Return the losses with nothing lost in these rows."""
        return replace(
            self,
            headers=self.headers & ~rows,
            key=self.key & ~rows,
            payload=self.payload & ~rows,
            id=self.id & ~rows,
            time=self.time & ~rows,
            origin=self.origin & ~rows,
        )

    @property
    def facts_only(self) -> NDArray[np.bool_]:
        """Rows whose headers stay unchanged, but which need a carrier."""
        return (self.key | self.payload | self.id | self.time | self.origin) & ~self.headers & ~self.too_large

    @property
    def any(self) -> NDArray[np.bool_]:
        """Rows that have to be changed."""
        return self.headers | self.key | self.payload | self.id | self.time | self.origin | self.too_large


def losses(batch: pa.RecordBatch, items: Items, target: Capabilities) -> Losses:
    """Return the losses of each row in ``target``, found for the whole Batch at once."""
    payload: Any = batch.column("payload")
    sizes_bytes = numpy_of(pc.fill_null(pc.binary_length(payload), 0)).astype(np.int64)
    values: Any = items.array.field("value")
    value_sizes = numpy_of(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
    form = form_of(target)
    # for another form a size that it never exceeds: a row over the limit is checked by itself
    shown_sizes = value_sizes if form is None else form.limit_sizes(_key_sizes(items), value_sizes)
    # bincount adds float64, exact far beyond any batch
    values_bytes = np.bincount(items.rows, shown_sizes, items.rows_count).astype(np.int64)
    too_large = (sizes_bytes > target.payload_bytes_max) | (values_bytes > target.values_sum_max)
    if target.whole_bytes_max is not None:
        too_large |= (values_bytes > 0) & (sizes_bytes + values_bytes > target.whole_bytes_max)
    headers = _headers_lost(items, value_sizes, target)
    key = numpy_of(pc.is_valid(batch.column("key"))) & (not target.key)
    was_lost = _payloads_lost(payload, sizes_bytes, target)
    id_ = _ids_lost(batch.column("id"), target)
    time = _times_lost(batch.column("timestamp"), target)
    # a time that would only be cut does not require a carrier, nor, in most targets, does the sender's clock: all
    # messages of Iggy have one, and plain readers would see one header more in each. Both go into a carrier that exists
    # anyway
    reasons = headers | key | was_lost | id_
    if target.time_step_us in (None, 1):
        reasons = reasons | time
    else:
        time &= reasons
    origin = _origins_lost(batch, target)
    if not carries_lone_origins(target):
        origin &= reasons
    return Losses(
        headers=headers,
        key=key,
        payload=was_lost,
        id=id_,
        time=time,
        values_bytes=values_bytes,
        payload_bytes=sizes_bytes,
        too_large=too_large,
        origin=origin,
    )


def carries_lone_origins(target: Capabilities) -> bool:
    """Return whether the time by a sender's clock needs a carrier even if nothing else does.

    This is so if the server sets its own time and has no field for another one (NSQ, Iggy before 0.7).
    """
    return target.time_step_us is None and not target.origin_time


def cuts_times(batch: pa.RecordBatch, target: Capabilities) -> bool:
    """Return whether the target cuts a time of the Batch to its own precision, which alone does not require
    a carrier.
    """
    return target.time_step_us not in (None, 1) and bool(_times_lost(batch.column("timestamp"), target).any())


def _payloads_lost(payload: Any, sizes_bytes: NDArray[np.int64], target: Capabilities) -> NDArray[np.bool_]:
    if target.null_payload and target.empty_payload:
        return np.zeros(len(payload), np.bool_)
    none = sizes_bytes == 0
    if not (target.null_payload or target.empty_payload):
        return np.asarray(none, np.bool_)
    null = numpy_of(payload.is_null())
    return np.asarray(none & ~null if target.null_payload else null, np.bool_)


def _ids_lost(ids: Any, target: Capabilities) -> NDArray[np.bool_]:
    if not target.id:
        return np.asarray(numpy_of(pc.is_valid(ids)), np.bool_)
    return np.zeros(len(ids), np.bool_) if target.zero_id else zero_ids(ids)


def _times_lost(times: Any, target: Capabilities) -> NDArray[np.bool_]:
    given = numpy_of(pc.is_valid(times))
    if target.time_step_us is None:
        return np.asarray(given, np.bool_)
    times_us = numpy_of(times.cast(pa.int64()).fill_null(0))
    lost = times_us < target.time_us_min
    if target.time_step_us != 1:
        lost |= times_us % target.time_step_us != 0
    return np.asarray(given & lost, np.bool_)


def _origins_lost(batch: pa.RecordBatch, target: Capabilities) -> NDArray[np.bool_]:
    if target.origin_time or ORIGIN_TIMESTAMP not in batch.schema.names:
        return np.zeros(batch.num_rows, np.bool_)
    return np.asarray(numpy_of(pc.is_valid(batch.column(ORIGIN_TIMESTAMP))), np.bool_)


def _headers_lost(items: Items, value_sizes: NDArray[np.int64], target: Capabilities) -> NDArray[np.bool_]:
    lost = np.zeros(items.rows_count, np.bool_)
    if not len(items.rows):
        return lost
    keys = items.array.field("key")
    form = form_of(target)
    bad = _names_lost(items, target) | _values_lost(items, value_sizes, target, form)
    if target.duplicate_keys and form is None:
        bad |= numpy_of(pc.or_(pc.starts_with(keys, "\\"), pc.starts_with(keys, NAME)))
    else:
        encoded = keys.dictionary_encode()
        prefixes = ("\\", NAME, *(() if form is None else form.names))
        odd = [key.startswith(prefixes) for key in encoded.dictionary.to_pylist()]
        codes = numpy_of(encoded.indices).astype(np.int64)
        bad |= np.array(odd, np.bool_)[codes]
        if not target.duplicate_keys:
            lost[_rows_with_repeats(items.rows, codes, len(odd), items.rows_count)] = True
    lost[items.rows[bad]] = True
    if not target.order:
        lost |= np.bincount(items.rows, minlength=items.rows_count) > 1
    return lost


def _names_lost(items: Items, target: Capabilities) -> NDArray[np.bool_]:
    if target.name_bytes_min == 0 and target.name_bytes_max == BYTES_MAX:
        return np.zeros(len(items.rows), np.bool_)
    sizes = _key_sizes(items)
    return np.asarray((sizes < target.name_bytes_min) | (sizes > target.name_bytes_max), np.bool_)


def _values_lost(
    items: Items, value_sizes: NDArray[np.int64], target: Capabilities, form: HeaderForm | None
) -> NDArray[np.bool_]:
    kinds = numpy_of(items.array.field("kind"))
    values: Any = items.array.field("value")
    if form is not None:
        return ~form.is_exact(kinds, values)
    bad = kinds != Kind.RAW if target.kind_max is None else (kinds < 1) | (kinds > target.kind_max)
    bad |= value_sizes > target.value_bytes_max
    if not (target.nulls and target.empties):
        null = numpy_of(values.is_null())
        if not target.nulls:
            bad |= null
        if not target.empties:
            bad |= (value_sizes == 0) & ~null
    return np.asarray(bad, np.bool_)


def _key_sizes(items: Items) -> NDArray[np.int64]:
    return numpy_of(pc.binary_length(items.array.field("key"))).astype(np.int64)


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
    """Return which ids are 16 zero bytes."""
    if ids.null_count == len(ids):
        return np.zeros(len(ids), np.bool_)
    return numpy_of(pc.fill_null(pc.equal(ids, pa.scalar(bytes(16), ids.type)), False))


def numpy_of(array: Any) -> NDArray[Any]:
    """Return the values of an array without nulls."""
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
