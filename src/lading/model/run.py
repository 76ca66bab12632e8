"""Messages in memory, and what a dialect decodes them into: the interface of dialects and columns.

A reader maps or receives whole chunks; consecutive chunks of one dialect form a Run. A dialect decodes a
Run into Decoded: Arrow columns for the message fields that were requested, and Located values for the
headers that will become typed columns, so that typing happens once, for all dialects, in ``columns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    import pyarrow as pa


@lazy_dataclass(frozen=True, slots=True)
class Run:
    """Bodies of consecutive chunks of one dialect inside one region of memory.

    ``region`` is uint8; ``chunks`` is int64 of shape (n, 8), one row a chunk; its columns are those of
    ``chunk_table``.
    """

    dialect: int
    region: NDArray[np.uint8]
    chunks: NDArray[np.int64]


@lazy_dataclass(frozen=True, slots=True)
class Located:
    """For each message the position of the last value of one header key: ``data[start : start + length]``.

    ``length`` is -1 if the header is absent and -2 if its value is null; ``kind`` is its code, 0 if absent.
    """

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    kind: NDArray[np.int8]


@lazy_dataclass(frozen=True, slots=True)
class Decoded:
    """Some messages of a Run: the requested Arrow columns by Batch field name, and the located headers by key."""

    count: int
    columns: Mapping[str, pa.Array[Any]]
    located: Mapping[str, Located]
