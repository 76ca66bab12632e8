"""Header values laid out in memory for the tests of this room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lading.model.batch import HEADERS_TYPE
from lading.model.headers import Header
from lading.model.run import Located

Value = tuple[int, bytes | None] | None
"""(kind, bytes), bytes None for null; None for an absent header."""


def located(values: Sequence[Value]) -> Located:
    """The values one after the other, with a byte of noise between them."""
    pieces, start, length, kind = [b"\x99"], [], [], []
    at = 1
    for value in values:
        data = value[1] if value else None
        start.append(at if data is not None else 0)
        length.append(-1 if value is None else -2 if data is None else len(data))
        kind.append(value[0] if value else 0)
        if data is not None:
            pieces += [data, b"\x99"]
            at += len(data) + 1
    region = np.frombuffer(b"".join(pieces), np.uint8)
    return Located(
        region, np.array(start, np.int64), np.array(length, np.int64), np.array(kind, np.uint8).astype(np.int8)
    )


def headers_array(rows: Sequence[Sequence[Header] | None]) -> pa.Array[Any]:
    """A ``headers`` column."""
    return pa.array([None if row is None else [one._asdict() for one in row] for row in rows], HEADERS_TYPE)
