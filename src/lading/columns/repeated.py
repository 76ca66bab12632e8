"""Headers that occur more than once, as columns of lists: every value of a message, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .contract import ARRAY, Encoding
from .locate import Entries
from .typed import convert_column


def convert_repeated(
    headers: pa.Array[Any], key: str, encoding: Encoding
) -> tuple[pa.Array[Any], pa.BooleanArray | None]:
    """Return all values of header ``key`` as a column of type ``array<string>``, with a mask of unreadable messages.

    A message without the header is null; a null value is null in its list. If one value is not text, the message's
    whole list is null and unreadable, so that no list is shorter than what was sent.
    """
    entries = Entries.of(headers)
    held, parents = entries.every(key)
    texts, bad = convert_column(entries.locate(held), pa.string(), encoding)
    counts = np.bincount(parents, minlength=entries.rows)
    wrong = np.zeros(entries.rows, np.bool_)
    if bad is not None:
        wrong[parents[bad.to_numpy(zero_copy_only=False)]] = True
        # a null list may hold no values
        kept = ~wrong[parents]
        texts, counts = texts.filter(pa.array(kept)), np.where(wrong, 0, counts)
    offsets = np.zeros(entries.rows + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    nothing = pa.array(counts == 0)
    ends: Any = pa.array(offsets)
    lists: pa.Array[Any] = pa.ListArray.from_arrays(ends, texts, type=ARRAY, mask=nothing)
    return lists, pa.array(wrong) if bad is not None else None
