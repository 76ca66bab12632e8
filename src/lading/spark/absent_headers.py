"""The driver's warning about headers that a query names and no message has, whose columns would be all null."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from ..columns.seen_headers import SeenHeaders
from ..filter.filter import select_keys
from ..model.errors import LadingError
from ..model.scan_request import ScanRequest
from ..tables.plan.ranges import OffsetRange
from ..tables.scan.scan_spec import ScanSpec
from ..transports.fetched import FetchResult
from ..transports.interface import Transport

LOG = logging.getLogger("lading.spark")
MESSAGES_MAX: Final = 10_000
"""Number of messages of a batch that are searched before its tasks start, unless all headers are found earlier."""
FETCH_BYTES: Final = 1 << 18

_checked: set[str] = set()
"""The DataFrames whose headers were looked at in this process, which plans one action after the other."""


def warn_once_of_absent_headers(
    frame: str, transport: Transport, reading: ScanSpec, ranges: Sequence[OffsetRange]
) -> None:
    """Warn of absent headers as ``warn_of_absent_headers`` does, but once for all actions on one DataFrame.

    Spark ends a process that has planned nothing for a minute; the next one looks again.
    """
    if frame not in _checked and warn_of_absent_headers(transport, reading, ranges) and frame:
        _checked.add(frame)


def warn_of_absent_headers(transport: Transport, reading: ScanSpec, ranges: Sequence[OffsetRange]) -> bool:
    """Log a warning for each header of ``reading`` that the first messages of ``ranges`` do not have.

    Returns whether there were messages. Errors of reading are ignored here: the tasks report them.
    """
    condition = reading.condition()
    if not ranges:
        return False
    seen = SeenHeaders(select_keys(reading.projection, condition))
    if not seen.declared:
        return True
    try:
        for headers in _sample_headers(transport, reading, ranges):
            seen.add_headers(headers.slice(0, MESSAGES_MAX - seen.messages))
            if not seen.unseen or seen.messages >= MESSAGES_MAX:
                break
    except LadingError:
        return False
    if seen.messages:
        first = "first " if seen.messages >= MESSAGES_MAX else ""
        among = f"the {first}{seen.messages:,} messages of {ranges[0].topic!r}"
        for sentence in seen.sentences(among, condition.unquoted if condition else ()):
            LOG.warning("%s", sentence)
    return seen.messages > 0


def _sample_headers(transport: Transport, reading: ScanSpec, ranges: Sequence[OffsetRange]) -> Iterator[pa.Array[Any]]:
    """Yield headers of messages: first of the start of each range, then of the rest."""
    positions = {piece: piece.start for piece in ranges}
    while positions:
        for piece, position in list(positions.items()):
            fetched = transport.fetch(piece.topic, piece.partition, position, max_bytes=FETCH_BYTES, wait_ms=0)
            yield from _read_headers(fetched, position, piece.end, reading)
            positions[piece] = fetched.end_offset
            if not position < fetched.end_offset < piece.end:
                del positions[piece]


def _read_headers(fetched: FetchResult, first: int, end: int, reading: ScanSpec) -> Iterator[pa.Array[Any]]:
    for part in fetched.decode(ScanRequest(first, end, frozenset({"headers"})), states=reading.states):
        yield part.columns["headers"]
