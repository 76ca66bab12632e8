"""Messages as Iggy 0.0.30 polled them: those of 0.0.40 without state and checksum (iggy.md A4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels import engine
from ...model.errors import MalformedMessage
from ...model.run import Run
from ...model.scan_request import MAX_OFFSET
from ..iggy_messages.layout import ARROW_BYTES_MAX, COUNT, REASONS, SPARE_BYTES, TOTALS, WHERE
from . import fallback, layout
from .messages import KERNEL_MODULE, parse_polled_run


def strip(polled: bytes) -> bytes:
    """Return polled messages of 0.0.40, without the count in front, as 0.0.30 has them; MalformedMessage."""
    starts = _locate(parse_polled_run(polled, 0))
    kept = np.ones(len(polled), np.bool_)
    kept[starts + layout.STATE] = False
    for byte in range(layout.CHECKSUM, layout.HEADERS_LENGTH):
        kept[starts + byte] = False
    return np.frombuffer(polled, np.uint8)[kept].tobytes()


def _locate(run: Run) -> NDArray[np.int64]:
    """Where each message begins in the region of a Run of one chunk."""
    room = run.region.size // layout.STORED_BYTES_MIN + 1
    rows, totals = np.empty(room, np.int64), np.zeros(TOTALS, np.int64)
    no_keys = np.zeros(SPARE_BYTES, np.uint8), np.empty(0, np.int64)
    no_places = np.empty((0, room), np.int64), np.empty((0, room), np.int64), np.empty((0, room), np.int8)
    span = (np.array([0, -1], np.int64), 0, MAX_OFFSET, room, ARROW_BYTES_MAX, 0)
    kernels = engine.select(KERNEL_MODULE, fallback, run.region.size)
    reason = kernels.scan(run.region, run.chunks, *span, *no_keys, rows, *no_places, totals)
    if reason:
        raise MalformedMessage(f"the message {REASONS[reason]}", at=int(totals[WHERE]))
    return rows[: int(totals[COUNT])]
