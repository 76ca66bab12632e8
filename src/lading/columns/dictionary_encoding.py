"""Columns with repeated values, as Arrow dictionaries, so that a writer of Parquet need not build them
value by value.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..model.run import Located
from .assemble import ColumnBuilders
from .contract import Encoding
from .rules import BAD
from .typed import buffer, convert_column, kernels, normalize_layout, valid_bits

ROWS_MIN: Final = 256
"""Smallest number of rows for which a dictionary is worth while."""
SHARE: Final = 4
"""A column counts as repeating if at most one in this many of its values is new."""
BYTES_MAX: Final = 1 << 20
"""Size limit of the values of a dictionary together: the size of a dictionary page of Parquet."""


def dictionary_encode(
    located: Located, type_: pa.DataType, encoding: Encoding = Encoding.AUTO
) -> tuple[pa.Array[Any], pa.BooleanArray | None]:
    """Convert header values as ``convert_column`` does, with few distinct strings or binaries as a dictionary.

    The dictionary's values are of ``type_``.
    """
    if type_ in (pa.string(), pa.binary()) and encoding is not Encoding.JSON and len(located.length) >= ROWS_MIN:
        found = _encode_dictionary(normalize_layout(located), type_)
        if found is not None:
            return found
    return convert_column(located, type_, encoding)


def _repeat_constant(text: str, rows: int) -> pa.Array[Any]:
    places: Any = np.zeros(rows, np.int32)
    return pa.DictionaryArray.from_arrays(places, pa.array([text], pa.string()))


REPEATING: Final = ColumnBuilders(dictionary_encode, _repeat_constant)
"""The form in which tables are written."""


def _encode_dictionary(located: Located, type_: pa.DataType) -> tuple[pa.Array[Any], pa.BooleanArray | None] | None:
    rows = len(located.length)
    most = rows // SHARE
    slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
    hashes, offsets = np.empty(most, np.uint64), np.empty(most + 1, np.int32)
    out, places, status = np.empty(BYTES_MAX, np.uint8), np.empty(rows, np.int32), np.empty(rows, np.uint8)
    good, distinct = kernels(rows).take_places(
        located.data, located.start, located.length, located.kind, type_ == pa.string(),
        slots, hashes, offsets, out, places, status,
    )  # fmt: skip
    if distinct < 0:
        return None
    # copied, as the buffer is reused for the next batch
    values = out[: offsets[distinct]].copy()
    held = pa.Array.from_buffers(type_, distinct, [None, buffer(offsets[: distinct + 1]), buffer(values)], null_count=0)
    valid = None if good == rows else valid_bits(status)
    made: pa.Array[Any] = pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int32(), type_), rows, [valid, buffer(places)], held, null_count=rows - good
    )
    wrong = status == BAD
    return made, pa.array(wrong) if wrong.any() else None
