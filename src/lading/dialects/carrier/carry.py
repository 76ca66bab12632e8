"""Making a Batch fit a target: what it cannot hold goes into reserved headers, or is reported row by row."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from ...model.errors import Reason
from ...model.headers import Header
from ...model.kinds import Kind
from .form import Entry, Facts, PayloadWas, encode, fingerprints, split
from .rows import Row, replaced, rows_at
from .targets import TARGETS, Target, lossy_rows, shows

STAND_IN: Final = b"\x00"
"""What a target that needs a payload gets for a null or empty one."""

STUB_KEY: Final = "lading-unholdable"
"""Header of the message that stands for one which cannot be brought across; its value tells why."""


@dataclass(frozen=True, slots=True)
class Unholdable:
    """A row that no carrier brings into the target: which, why, and a sentence that names part and limit."""

    row: int
    reason: Reason
    sentence: str


@dataclass(frozen=True, slots=True)
class Carried:
    """A Batch that the target can hold, row for row, with a stub in place of each unholdable row."""

    batch: pa.RecordBatch
    unholdable: Sequence[Unholdable] = ()


def carry(batch: pa.RecordBatch, target: str) -> Carried:
    """The Batch as ``target`` (a key of TARGETS) can hold it; ``restore`` gives the original back.

    The same object comes back when the target loses nothing, which is found without looking at single rows.
    What the target's server gives itself stays out of it: offset, state, timestamp, checksum, and an id where the
    message has none.
    """
    limits = TARGETS[target]
    lossy = np.flatnonzero(lossy_rows(batch, limits))
    if not len(lossy):
        return Carried(batch)
    rows: list[Row] = []
    unholdable = []
    for at, row in zip(lossy.tolist(), rows_at(batch, lossy), strict=True):
        fitted = _fit(row, limits)
        if isinstance(fitted, tuple):
            unholdable.append(Unholdable(at, *fitted))
            fitted = _stub(row, fitted[1])
        rows.append(fitted)
    return Carried(replaced(batch, lossy, rows), unholdable)


def _fit(row: Row, target: Target) -> Row | tuple[Reason, str]:
    """The row with its carrier, if it needs one, or why it cannot be."""
    if row.payload is not None and len(row.payload) > target.payload_bytes_max:
        sentence = f"the payload has {len(row.payload)} bytes; the target takes {target.payload_bytes_max}"
        return Reason.PAYLOAD_TOO_LARGE, sentence
    last = {header.key: at for at, header in enumerate(row.headers)}
    shown_at = [at for at, header in enumerate(row.headers) if last[header.key] == at and shows(header, target)]
    shown = [row.headers[at] for at in shown_at]
    entries: list[Entry] | None = None
    if len(shown) < len(row.headers) or (len(shown) > 1 and not target.keeps_order):
        entries = list(row.headers)
        for at, mark in zip(shown_at, fingerprints(shown), strict=True):
            entries[at] = mark
    payload_was = PayloadWas.SHOWN
    if not row.payload:
        payload_was = PayloadWas.NULL if row.payload is None else PayloadWas.EMPTY
    facts = Facts(row.key, payload_was, row.id == bytes(16), entries)
    if facts != Facts():
        shown += [Header(key, Kind.RAW, value) for key, value in split(encode(facts), target.value_bytes_max)]
    values_bytes = sum(len(header.value or b"") for header in shown)
    if values_bytes > target.values_sum_max:
        sentence = f"header values and carrier have {values_bytes} bytes; a request takes {target.values_sum_max}"
        return Reason.HEADERS_TOO_LARGE, sentence
    return Row(None, shown, row.payload or STAND_IN, None if facts.zero_id else row.id, _checksum(row))


def _checksum(row: Row) -> int | None:
    return row.checksum if row.payload or row.checksum is None else zlib.crc32(STAND_IN)


def _stub(row: Row, sentence: str) -> Row:
    header = Header(STUB_KEY, Kind.STRING, sentence.encode()[:255])
    checksum = None if row.checksum is None else zlib.crc32(STAND_IN)
    return Row(None, [header], STAND_IN, row.id if row.id and any(row.id) else None, checksum)
