"""Ids of 16 zero bytes, by which Iggy says that a message has none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lading.model.run import Decoded

from .carrier.targets import zero_ids


def null_zero_ids(portion: Decoded) -> Decoded:
    """Return the portion with null for an id of 16 zero bytes.

    An id that really is zero bytes has a carrier, which puts it back.
    """
    ids: Any = portion.columns.get("id")
    if ids is None or not (none := zero_ids(ids)).any():
        return portion
    nothing: Any = pa.scalar(None, ids.type)
    columns = {**portion.columns, "id": pc.if_else(pa.array(none), nothing, ids)}
    return Decoded(portion.count, columns, portion.located)
