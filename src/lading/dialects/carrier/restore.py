"""Undoing a carrier: the Batch as it was before the target that it came through."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...model.errors import MalformedMessage
from ...model.headers import Header
from ...model.kinds import Kind
from .carry import STAND_IN
from .encoding import NAME, Entry, Facts, PayloadWas, Replaced, Typed, decode, fingerprints, part_name
from .rows import Row, items_of, patch_column, replace_rows, rows_at, with_columns
from .typed import without_typed_carriers

_STAND_IN_CHECKSUMS = (None, zlib.crc32(STAND_IN))


def restore(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the Batch with every carrier undone and removed; the same object if no message has one.

    Headers that others added or changed on the way stay unchanged, after the rebuilt ones. A reserved header that is
    not a carrier, or incomplete, or of an unknown version, stays an ordinary header.
    """
    items = items_of(batch)
    keys = items.array.field("key")
    marked = pc.equal(keys, pa.scalar(NAME))
    if not pc.any(marked, min_count=0).as_py():
        return batch
    first = marked.to_numpy(zero_copy_only=False)
    # most carriers from Kafka are the last header of their message, alone, and undone in bulk
    last = np.append(items.rows[1:] != items.rows[:-1], True) & first
    alone = np.bincount(items.rows[first], minlength=items.rows_count) == 1
    batch, done_in_bulk = without_typed_carriers(batch, items, items.rows[last & alone[items.rows]])
    if done_in_bulk.any():
        return batch if done_in_bulk.sum() == first.sum() else restore(batch)
    family = pc.starts_with(keys, pattern=NAME).to_numpy(zero_copy_only=False)
    rows = np.unique(items.rows[first])
    # rows whose whole carrier is one header with only message key and time
    single = first & (np.bincount(items.rows[family], minlength=items.rows_count) == 1)[items.rows]
    done, found = [], []
    drop = np.zeros(len(items.rows), np.bool_)
    places = np.flatnonzero(single)
    candidates = items.array.take(pa.array(places))
    kinds, values = candidates.field("kind").to_pylist(), candidates.field("value").to_pylist()
    for at, kind, value in zip(places.tolist(), kinds, values, strict=True):
        facts = _key_and_time(kind, value)
        if facts is not None:
            drop[at] = True
            done.append(int(items.rows[at]))
            found.append(facts)
    if done:
        columns = {"headers": items.select(~drop).column()}
        keyed = [(at, facts.key) for at, facts in zip(done, found, strict=True) if facts.key is not None]
        if keyed:
            columns["key"] = patch_column(batch, "key", *zip(*keyed, strict=True))
        timed = [
            (at, facts.timestamp_us) for at, facts in zip(done, found, strict=True) if facts.timestamp_us is not None
        ]
        if timed:
            columns["timestamp"] = patch_column(batch, "timestamp", *zip(*timed, strict=True))
        batch = with_columns(batch, columns)
        rows = np.setdiff1d(rows, done)
    return replace_rows(batch, rows, [restore_row(row) for row in rows_at(batch, rows)])


def _key_and_time(kind: int, value: bytes | None) -> Facts | None:
    """Return the facts of a carrier with only message key and time; None for any other header."""
    if kind != Kind.RAW:
        return None
    try:
        facts = decode(value or b"")
    except MalformedMessage:
        return None
    return facts if facts == Facts(facts.key, timestamp_us=facts.timestamp_us) else None


def restore_row(row: Row) -> Row:
    """Undo the carrier of one row. Returns the same row if it has no carrier that can be read."""
    parts = {header.key: header for header in row.headers if header.kind == Kind.RAW and header.key.startswith(NAME)}
    data = bytearray()
    used: set[str] = set()
    while (name := part_name(len(used))) in parts:
        data += parts[name].value or b""
        used.add(name)
    try:
        facts = decode(bytes(data))
    except MalformedMessage:
        return row
    others = [header for header in row.headers if header.key not in used]
    payload, checksum = _restore_payload(row, facts)
    return Row(
        row.key if facts.key is None else facts.key,
        others if facts.entries is None else _in_order(facts.entries, others),
        payload,
        bytes(16) if facts.zero_id else row.id if facts.id is None else facts.id,
        checksum,
        row.timestamp_us if facts.timestamp_us is None else facts.timestamp_us,
        row.origin_us if facts.origin_us is None else facts.origin_us,
    )


def _in_order(entries: Sequence[Entry], others: Sequence[Header]) -> list[Header]:
    places: dict[int, list[int]] = {}
    for at, mark in enumerate(fingerprints(others)):
        places.setdefault(mark, []).append(at)
    left = dict(enumerate(others))
    headers = []
    for entry in entries:
        if isinstance(entry, Header):
            headers.append(entry)
            continue
        mark = entry if isinstance(entry, int) else entry.mark
        if places.get(mark):
            header = left.pop(places[mark].pop(0))
            if isinstance(entry, Typed):
                header = header._replace(kind=entry.kind)
            elif isinstance(entry, Replaced):
                header = header._replace(kind=entry.kind, value=entry.value)
            headers.append(header)
    return headers + list(left.values())


def _restore_payload(row: Row, facts: Facts) -> tuple[bytes | None, int | None]:
    if facts.payload == PayloadWas.SHOWN or row.payload != STAND_IN or row.checksum not in _STAND_IN_CHECKSUMS:
        return row.payload, row.checksum
    if facts.payload == PayloadWas.NULL:
        return None, None
    return b"", None if row.checksum is None else zlib.crc32(b"")
