"""Making a Batch fit a target: facts that it cannot hold go into reserved headers, or are reported row by row."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...model.batch import ORIGIN_TIMESTAMP
from ...model.errors import Reason
from ...model.headers import Header
from ...model.kinds import Kind
from ...model.lazy_dataclass import lazy_dataclass
from ...model.protocol import Capabilities
from .encoding import (
    NAME,
    Entry,
    Facts,
    PayloadWas,
    Replaced,
    Typed,
    encode,
    fingerprints,
    is_reserved,
    printable,
    split,
)
from .rows import Items, Row, items_of, replace_rows, rows_at, with_columns, without_origins
from .targets import (
    Losses,
    carries_lone_origins,
    loses_kinds_only,
    losses,
    numpy_of,
    render_headers,
    size_bytes,
)
from .typed import with_typed_carriers

STAND_IN: Final = b"\x00"
"""The payload in place of a null or empty one, for targets that need one."""

STUB_KEY: Final = "lading-unholdable"
"""Header of a stub, which replaces a message that the target cannot hold; its value gives the reason."""


@lazy_dataclass(frozen=True, slots=True)
class Unholdable:
    """A row that not even a carrier brings into the target: its number, the reason, and a sentence that names part and
    limit.
    """

    row: int
    reason: Reason
    sentence: str


@lazy_dataclass(frozen=True, slots=True)
class Carried:
    """A Batch that the target can hold, row for row, with a stub in place of each unholdable row."""

    batch: pa.RecordBatch
    unholdable: Sequence[Unholdable] = ()


def carry(batch: pa.RecordBatch, target: Capabilities) -> Carried:
    """Return the Batch in a form that ``target`` can hold, from which ``restore`` makes the original.

    The same object is returned if the target loses nothing, which is found without reading single rows. Facts that the
    target's server sets itself stay out of the carrier: offset, state, checksum, and an id or a timestamp if the
    message has none.
    """
    items = items_of(batch)
    lost = losses(batch, items, target)
    if not lost.any.any():
        return Carried(batch if target.origin_time else without_origins(batch))
    if loses_kinds_only(target):
        batch, done = with_typed_carriers(batch, items, lost)
        if done.any():
            lost, items = lost.without(done), items_of(batch)
    fitted, rest = _with_facts(batch, items, lost, target)
    rows: list[Row] = []
    unholdable = []
    for at, row in zip(rest.tolist(), rows_at(batch, rest), strict=True):
        fit = _fit_row(row, target)
        if isinstance(fit, tuple):
            unholdable.append(Unholdable(at, *fit))
            fit = _make_stub(row, fit[1])
        rows.append(fit)
    fitted = replace_rows(fitted, rest, rows)
    return Carried(fitted if target.origin_time else without_origins(fitted), unholdable)


def without_carriers(carried: Carried) -> tuple[Carried, int]:
    """Return the messages reduced to the facts that the target shows, and how many of them lose something by that."""
    items = items_of(carried.batch)
    names = items.array.field("key")
    reserved = numpy_of(pc.starts_with(names, NAME)).astype(np.bool_)
    if not reserved.any():
        return carried, 0
    distinct = names.filter(pa.array(reserved)).unique().to_pylist()
    ours = pa.array([name for name in distinct if is_reserved(name)], pa.string())
    reserved = numpy_of(pc.is_in(names, value_set=ours)).astype(np.bool_)
    batch = with_columns(carried.batch, {"headers": items.select(~reserved).column()})
    return Carried(batch, carried.unholdable), len(np.unique(items.rows[reserved]))


def _with_facts(
    batch: pa.RecordBatch, items: Items, lost: Losses, target: Capabilities
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Return the Batch with carriers in rows whose headers stay unchanged, and the rows that are still to be done."""
    light = lost.facts_only
    if not light.any():
        return batch, np.flatnonzero(lost.any)
    rows: list[int] = []
    headers: list[Header] = []
    times_us = batch.column("timestamp").cast(pa.int64()).filter(pa.array(light)).to_pylist()
    null_payload = numpy_of(pc.is_null(batch.column("payload")))
    keys = batch.column("key").filter(pa.array(light)).to_pylist()
    ids = batch.column("id").filter(pa.array(light)).to_pylist()
    origins_us: list[int | None] = [None] * len(keys)
    if lost.origin.any():
        origins_us = batch.column(ORIGIN_TIMESTAMP).cast(pa.int64()).filter(pa.array(light)).to_pylist()
    facts_of_rows = zip(np.flatnonzero(light).tolist(), keys, ids, times_us, origins_us, strict=True)
    for at, key, id_, time_us, origin_us in facts_of_rows:
        was = PayloadWas.SHOWN
        if lost.payload[at]:
            was = PayloadWas.NULL if null_payload[at] else PayloadWas.EMPTY
        facts = Facts(
            None if target.key else key,
            was,
            bool(lost.id[at]) and target.id,
            time_us if lost.time[at] else None,
            id=None if target.id else id_,
            origin_us=origin_us,
        )
        parts = _carrier_headers(facts, target)
        values_bytes = int(lost.values_bytes[at]) + size_bytes(parts, target)
        payload_bytes = len(STAND_IN) if lost.payload[at] else int(lost.payload_bytes[at])
        if not _has_room(values_bytes, payload_bytes, target):
            # the size of headers is an upper bound here: such a row is checked by itself
            light[at] = False
            continue
        rows += [at] * len(parts)
        headers += parts
    columns: dict[str, Any] = {"headers": items.append(rows, headers).column()} if rows else {}
    nothing: Any = pa.scalar(None, pa.null())
    checksum = batch.column("checksum")
    if not target.key:
        columns["key"] = pc.if_else(pa.array(light), nothing, batch.column("key"))
    if (light & lost.payload).any():
        stand_in = pa.array(light & lost.payload)
        columns["payload"] = pc.if_else(stand_in, pa.scalar(STAND_IN), batch.column("payload"))
        changed = pc.and_(stand_in, pc.is_valid(checksum))
        columns["checksum"] = pc.if_else(changed, pa.scalar(zlib.crc32(STAND_IN), pa.uint32()), checksum)
    if (light & lost.id).any():
        columns["id"] = pc.if_else(pa.array(light & lost.id), nothing, batch.column("id"))
    return with_columns(batch, columns), np.flatnonzero(lost.any & ~light)


def _has_room(values_bytes: int, payload_bytes: int, target: Capabilities) -> bool:
    """Return whether header values and payload of these sizes fit into one message of the target."""
    whole_max = target.whole_bytes_max
    return values_bytes <= target.values_sum_max and (whole_max is None or values_bytes + payload_bytes <= whole_max)


def _carrier_headers(facts: Facts, target: Capabilities) -> list[Header]:
    """Return the reserved headers that hold these facts."""
    data = encode(facts)
    parts = split(printable(data) if target.text_carrier else data, target.value_bytes_max)
    return [Header(name, int(Kind.RAW), value) for name, value in parts]


def _fit_row(row: Row, target: Capabilities) -> Row | tuple[Reason, str]:
    """Return the row with its carrier, if it needs one, or the reason why it cannot have one."""
    if row.payload is not None and len(row.payload) > target.payload_bytes_max:
        sentence = f"the payload has {len(row.payload)} bytes; the target accepts {target.payload_bytes_max}"
        return Reason.PAYLOAD_TOO_LARGE, sentence
    forms = render_headers(row.headers, target)
    shown = list(forms.values())
    entries: list[Entry] | None = None
    if shown != list(row.headers) or (len(shown) > 1 and not target.order):
        entries = list(row.headers)
        for at, mark in zip(forms, fingerprints(shown), strict=True):
            entries[at] = _make_entry(row.headers[at], forms[at], mark)
    payload, payload_was, checksum = _fit_payload(row, target)
    zero_id = target.id and not target.zero_id and row.id == bytes(16)
    step_us = target.time_step_us
    kept_time = row.timestamp_us is None or (
        step_us is not None and row.timestamp_us >= target.time_us_min and row.timestamp_us % step_us == 0
    )
    facts = Facts(
        None if target.key else row.key,
        payload_was,
        zero_id,
        None if kept_time else row.timestamp_us,
        entries,
        None if target.id else row.id,
        None if target.origin_time else row.origin_us,
    )
    is_cut = step_us not in (None, 1)
    reasons = replace(
        facts,
        timestamp_us=None if is_cut else facts.timestamp_us,
        origin_us=facts.origin_us if carries_lone_origins(target) else None,
    )
    if reasons != Facts():
        shown += _carrier_headers(facts, target)
    values_bytes = size_bytes(shown, target)
    if values_bytes > target.values_sum_max:
        sentence = f"header values and carrier have {values_bytes} bytes; a request takes {target.values_sum_max}"
        return Reason.HEADERS_TOO_LARGE, sentence
    whole_bytes = values_bytes + len(payload or b"")
    if shown and target.whole_bytes_max is not None and whole_bytes > target.whole_bytes_max:
        sentence = f"payload and headers have {whole_bytes} bytes; a message takes {target.whole_bytes_max}"
        return Reason.PAYLOAD_TOO_LARGE, sentence
    id_ = row.id if target.id and not zero_id else None
    return Row(row.key if target.key else None, shown, payload, id_, checksum, row.timestamp_us, row.origin_us)


def _fit_payload(row: Row, target: Capabilities) -> tuple[bytes | None, PayloadWas, int | None]:
    """Return the payload as the target shows it, the original one, and its checksum, if the message has one."""
    if row.payload or (target.null_payload if row.payload is None else target.empty_payload):
        return row.payload, PayloadWas.SHOWN, row.checksum
    was = PayloadWas.NULL if row.payload is None else PayloadWas.EMPTY
    return STAND_IN, was, None if row.checksum is None else zlib.crc32(STAND_IN)


def _make_entry(header: Header, form: Header, mark: int) -> Entry:
    """Return the carrier's entry for a header that the target stores as ``form``."""
    if header == form:
        return mark
    return Typed(mark, header.kind) if header.value == form.value else Replaced(mark, header.kind, header.value)


def _make_stub(row: Row, sentence: str) -> Row:
    header = Header(STUB_KEY, Kind.STRING, sentence.encode()[:255])
    checksum = None if row.checksum is None else zlib.crc32(STAND_IN)
    id_ = row.id if row.id and any(row.id) else None
    return Row(None, [header], STAND_IN, id_, checksum, row.timestamp_us, row.origin_us)
