"""ScanRequest: which messages of stored bytes a reader wants, and which parts of each."""

from __future__ import annotations

from typing import Final, NamedTuple

from .batch import FIELDS
from .limits import BATCH_BYTES, BATCH_ROWS

MAX_OFFSET: Final = (1 << 63) - 1
ALL_FIELDS: Final = frozenset(FIELDS)


class ScanRequest(NamedTuple):
    """A request for messages with ``first`` <= offset < ``end``: ``fields`` as columns, the headers ``keys`` located.

    Results are batches of at most ``max_rows`` rows and about ``max_bytes`` bytes, at least one row each. Headers
    inside of a carrier header are restored, unless ``carrier`` is False.
    """

    first: int = 0
    end: int = MAX_OFFSET
    fields: frozenset[str] = ALL_FIELDS
    keys: tuple[str, ...] = ()
    max_rows: int = BATCH_ROWS
    max_bytes: int = BATCH_BYTES
    carrier: bool = True
