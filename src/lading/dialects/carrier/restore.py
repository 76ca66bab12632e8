"""Undoing a carrier: the Batch as it was before the target it came through."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...model.errors import MalformedMessage
from ...model.headers import Header
from ...model.kinds import Kind
from .carry import STAND_IN
from .form import NAME, Entry, Facts, PayloadWas, decode, fingerprints, part_name
from .rows import Row, replaced, rows_at

_STAND_IN_CHECKSUMS = (None, zlib.crc32(STAND_IN))


def restore(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The Batch with every carrier undone and gone; the same object when no message has one.

    Headers that others added or changed on the way stay as they are, behind those that are rebuilt. A reserved
    header that is no carrier, whole and of a known version, is left alone as the header it is.
    """
    headers: Any = batch.column("headers")
    keys = headers.flatten().field("key")
    marked = pc.equal(keys, pa.scalar(NAME))
    if not pc.any(marked, min_count=0).as_py():
        return batch
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False)
    of_row = np.repeat(np.arange(len(counts)), counts)
    at = np.unique(of_row[marked.to_numpy(zero_copy_only=False)])
    return replaced(batch, at, [restored(row) for row in rows_at(batch, at)])


def restored(row: Row) -> Row:
    """One row with its carrier undone; the same row when it has none that can be read."""
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
    payload, checksum = _payload(row, facts)
    return Row(
        facts.key,
        others if facts.entries is None else _in_order(facts.entries, others),
        payload,
        bytes(16) if facts.zero_id else row.id,
        checksum,
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
        elif places.get(entry):
            headers.append(left.pop(places[entry].pop(0)))
    return headers + list(left.values())


def _payload(row: Row, facts: Facts) -> tuple[bytes | None, int | None]:
    if facts.payload == PayloadWas.SHOWN or row.payload != STAND_IN or row.checksum not in _STAND_IN_CHECKSUMS:
        return row.payload, row.checksum
    if facts.payload == PayloadWas.NULL:
        return None, None
    return b"", None if row.checksum is None else zlib.crc32(b"")
