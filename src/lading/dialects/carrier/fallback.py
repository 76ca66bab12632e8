"""The readable form of ``kernels.py``, function by function: the same arguments, the same bytes.

Both work on messages all of whose headers a target shows, as raw, with names that need no escape. The headers are in
Arrow's form: ends of the lists, names, kinds, values, and one byte a value, 0 for null.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs

from ...model.errors import MalformedMessage
from ...model.headers import Header
from . import layout
from .encoding import Entry, Facts, PayloadWas, Typed, decode, encode, fingerprints, printable


def make(
    rows: Longs,
    list_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    kinds: Kinds,
    value_ends: Ints,
    values: Bytes,
    value_valid: Bytes,
    ids: Bytes,
    id_valid: Bytes,
    times_us: Longs,
    time_lost: Bytes,
    origins_us: Longs,
    origin_lost: Bytes,
    scratch: Bytes,
    target: Bytes,
    ends: Ints,
) -> None:
    """Write the carriers of ``rows``, printable, one after another into ``target``, and their ends into ``ends``.

    ``scratch`` has room for the largest header. ``id_valid`` and ``time_lost`` say by row what else is lost.
    """
    headers = _Headers(list_ends, name_ends, names, value_ends, values, value_valid)
    at = 0
    ends[0] = 0
    for index, row in enumerate(rows.tolist()):
        shown = headers.of(list_ends[row], list_ends[row + 1])
        own = kinds[list_ends[row] : list_ends[row + 1]].tolist()
        entries: list[Entry] = [
            mark if kind == layout.RAW else Typed(mark, kind)
            for mark, kind in zip(fingerprints(shown), own, strict=True)
        ]
        time_us = int(times_us[row]) if time_lost[row] else None
        id_ = ids[16 * row : 16 * row + 16].tobytes() if id_valid[row] else None
        origin_us = int(origins_us[row]) if origin_lost[row] else None
        data = printable(encode(Facts(None, PayloadWas.SHOWN, False, time_us, entries, id_, origin_us)))
        target[at : at + len(data)] = np.frombuffer(data, np.uint8)
        at += len(data)
        ends[index + 1] = at


def undo(
    rows: Longs,
    list_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    kinds: Kinds,
    value_ends: Ints,
    values: Bytes,
    value_valid: Bytes,
    scratch: Bytes,
    found_kinds: Kinds,
    ids: Bytes,
    times_us: Longs,
    origins_us: Longs,
    changed: Bytes,
    done: Bytes,
) -> None:
    """Undo the carriers that ``make`` writes, for each of ``rows`` whose last header is one.

    If its entries are exactly the headers before it, their kinds go to ``found_kinds``, id and times to ``ids``,
    ``times_us`` and ``origins_us`` with their flags in ``changed`` (by row), and ``done`` (by index) is 1; others are
    not changed.
    """
    headers = _Headers(list_ends, name_ends, names, value_ends, values, value_valid)
    for index, row in enumerate(rows.tolist()):
        first, carrier = int(list_ends[row]), int(list_ends[row + 1]) - 1
        if carrier - first > layout.HEADERS_MAX or not value_valid[carrier] or kinds[carrier] != layout.RAW:
            continue
        try:
            facts = decode(values[value_ends[carrier] : value_ends[carrier + 1]].tobytes())
        except MalformedMessage:
            continue
        entries = facts.entries
        if entries is None or facts != Facts(
            None, PayloadWas.SHOWN, False, facts.timestamp_us, entries, facts.id, facts.origin_us
        ):
            continue
        marks = [(each.mark if isinstance(each, Typed) else each) for each in entries]
        if marks != fingerprints(headers.of(first, carrier)):
            continue
        for header, entry in enumerate(entries, first):
            if isinstance(entry, Typed):
                found_kinds[header] = entry.kind
        if facts.timestamp_us is not None:
            times_us[row] = facts.timestamp_us
            changed[row] |= layout.TIME_FLAG
        if facts.id is not None:
            ids[16 * row : 16 * row + 16] = np.frombuffer(facts.id, np.uint8)
            changed[row] |= layout.ID_FLAG
        if facts.origin_us is not None:
            origins_us[row] = facts.origin_us
            changed[row] |= layout.ORIGIN_FLAG
        done[index] = 1


class _Headers:
    """Headers as a target shows them: raw."""

    def __init__(self, *columns: Any) -> None:
        self._columns = columns

    def of(self, first: int, last: int) -> list[Header]:
        _, name_ends, names, value_ends, values, valid = self._columns
        return [
            Header(
                names[name_ends[at] : name_ends[at + 1]].tobytes().decode(),
                layout.RAW,
                values[value_ends[at] : value_ends[at + 1]].tobytes() if valid[at] else None,
            )
            for at in range(first, last)
        ]
