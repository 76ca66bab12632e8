"""The readable form of ``carrier_kernels.py``: the same arguments, the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Longs

from ...kernels.varint_fallback import varint32
from ...model.errors import MalformedMessage
from ...model.headers import Header
from ..carrier import layout as carrier
from ..carrier.encoding import Facts, PayloadWas, Typed, decode, fingerprints
from . import layout


def undo(
    region: Bytes,
    rows: Longs,
    carrier_starts: Longs,
    carrier_lengths: Longs,
    value_starts: Longs,
    reserved: Bytes,
    kinds: NDArray[np.int8],
    times_us: Longs,
    ids: Bytes,
    changed: Bytes,
) -> int:
    """Undo the carriers of messages that ``scan`` noted in ``rows``; return -1, or the first row for which it cannot be
    done here.

    Only carriers of kinds, id and time, as ``carrier.typed`` makes them, are undone, if all headers are shown; a length
    of -1 means that the message has no carrier. ``value_starts`` has the position of a value by asked key and row,
    whose kind goes to ``kinds``; id and time go to ``ids`` and ``times_us`` with their flags in ``changed``; an origin
    time is ignored. Rows with names that need an escape, or that begin as ``reserved`` (with spare bytes after it)
    does, cannot be done here.
    """
    name = reserved[: -layout.SPARE_BYTES].tobytes()
    for row, (at, count) in enumerate(rows[:, (layout.HEADERS_AT, layout.HEADERS_COUNT)].tolist()):
        size, start = int(carrier_lengths[row]), int(carrier_starts[row])
        if size == -1:
            continue
        shown = _list_shown_headers(region.data, at, count, start, name)
        if size < 0 or shown is None or len(shown) > carrier.HEADERS_MAX:
            return row
        try:
            facts = decode(region[start : start + size].tobytes())
        except MalformedMessage:
            return row
        entries = facts.entries
        if entries is None or facts != Facts(
            None, PayloadWas.SHOWN, False, facts.timestamp_us, entries, facts.id, facts.origin_us
        ):
            return row
        marks = [(each.mark if isinstance(each, Typed) else each) for each in entries]
        if marks != fingerprints(header for header, _ in shown):
            return row
        for entry, (_, place) in zip(entries, shown, strict=True):
            if isinstance(entry, Typed):
                kinds[value_starts[:, row] == place, row] = entry.kind
        changed[row] = carrier.ENTRIES_FLAG
        if facts.timestamp_us is not None:
            times_us[row] = facts.timestamp_us
            changed[row] |= carrier.TIME_FLAG
        if facts.id is not None:
            ids[16 * row : 16 * row + 16] = np.frombuffer(facts.id, np.uint8)
            changed[row] |= carrier.ID_FLAG
        if facts.origin_us is not None:
            changed[row] |= carrier.ORIGIN_FLAG
    return -1


def _list_shown_headers(
    data: Any, at: int, count: int, carrier_at: int, reserved: bytes
) -> list[tuple[Header, int]] | None:
    """Return the headers before the carrier, and the positions of their values; None if this row cannot be
    done here.
    """
    headers = []
    place = at
    for number in range(count):
        size, at = varint32(data, at, layout.POSITION_MAX)
        name = bytes(data[at : at + size])
        size, place = varint32(data, at + size, layout.POSITION_MAX)
        at = place + max(size, 0)
        if number == count - 1:
            break
        odd = not name.isascii() or name.startswith((b"\\", reserved))
        if odd or len(name) + size > layout.CARRIER_HEADER_BYTES_MAX:
            return None
        value = None if size < 0 else bytes(data[place:at])
        headers.append((Header(name.decode(), carrier.RAW, value), place))
    return headers if place == carrier_at else None
