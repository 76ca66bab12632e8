"""Find the last value of header keys in the ``headers`` column of any Batch, without decoding the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..kernels import engine, entries, entry_fallback
from ..kernels.entries import view_binary
from ..model.batch import HEADERS_TYPE
from ..model.kinds import FIXED_SIZE_BYTES, Kind
from ..model.run import Located
from .contract import INTEGER_DECIMAL


def locate(headers: pa.Array[Any], keys: Sequence[str]) -> dict[str, Located]:
    """Find the last value of each key in each list of headers.

    The result has one row a list; an absent key has length -1, a null value -2.
    """
    return entries.locate(_as_headers(headers), keys)


KIND_BY_TYPE: dict[pa.DataType, Kind] = {
    pa.binary(): Kind.RAW,
    pa.string(): Kind.STRING,
    pa.bool_(): Kind.BOOL,
    pa.int8(): Kind.INT8,
    pa.int16(): Kind.INT16,
    pa.int32(): Kind.INT32,
    pa.int64(): Kind.INT64,
    pa.uint32(): Kind.UINT32,
    INTEGER_DECIMAL: Kind.INT128,
    pa.float32(): Kind.FLOAT32,
    pa.float64(): Kind.FLOAT64,
}
"""The header kind whose value bytes are what Arrow keeps for a value of the type."""


def to_located(array: pa.Array[Any]) -> Located:
    """Return the rows of a column as header values, so that keys, payloads and casts are converted like headers."""
    if array.type not in KIND_BY_TYPE:
        # decimals with a scale, and dates
        array = array.cast(pa.string())
    kind = KIND_BY_TYPE[array.type]
    rows = len(array)
    if kind in (Kind.RAW, Kind.STRING):
        offsets, data = view_binary(array)
        start, length = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    else:
        # a boolean is a bit in Arrow and a byte in a header
        column: Any = array.cast(pa.uint8()) if kind == Kind.BOOL else array
        width = FIXED_SIZE_BYTES[kind]
        held = column.buffers()[1]
        data = np.frombuffer(memoryview(held), np.uint8) if held is not None else np.empty(0, np.uint8)
        start = (np.arange(rows, dtype=np.int64) + column.offset) * width
        length = np.full(rows, width, np.int64)
    if array.null_count:
        length[array.is_null().to_numpy(zero_copy_only=False)] = -2
    return Located(data, start, length, np.full(rows, kind, np.int8))


class Entries:
    """The flat headers of a batch: list ends, keys, kinds and values as NumPy views of the Arrow buffers."""

    def __init__(
        self, lists: NDArray[np.int32], keys: pa.Array[Any], kinds: pa.Array[Any], values: pa.Array[Any]
    ) -> None:
        self.lists = lists
        self.key_array = keys
        self._key_offsets, self._keys = view_binary(keys)
        self.kinds: NDArray[np.int8] = kinds.to_numpy(zero_copy_only=False)
        self.value_array = values
        self._value_offsets, self._values = view_binary(values)
        self.null: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)

    @classmethod
    def of(cls, headers: pa.Array[Any]) -> Entries:
        """Return the entries of a ``headers`` column, sliced or not, also as other writers of Arrow spell its type."""
        column: Any = _as_headers(headers)
        lists: NDArray[np.int32] = column.offsets.to_numpy()
        inside = column.values.slice(lists[0], lists[-1] - lists[0])
        return cls(lists - lists[0], inside.field(0), inside.field(1), inside.field(2))

    @property
    def rows(self) -> int:
        """The number of messages."""
        return len(self.lists) - 1

    def last(self, key: str) -> NDArray[np.int64]:
        """Return for each message the entry that holds the key last, or -1."""
        found = np.empty(self.rows, np.int64)
        wanted = np.frombuffer(key.encode(), np.uint8)
        kernels = engine.select(entries.KERNEL_MODULE, entry_fallback, len(self.kinds) * entries.ENTRY_BYTES)
        kernels.find_last(self.lists, self._keys, self._key_offsets, wanted, found)
        return found

    def every(self, key: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all entries that hold the key, and the message of each."""
        same: pa.Array[Any] = pc.equal(self.key_array, pa.scalar(key))
        entries = np.flatnonzero(same.to_numpy(zero_copy_only=False))
        return entries, np.searchsorted(self.lists, entries, side="right") - 1

    def locate(self, entries: NDArray[np.int64]) -> Located:
        """Return the values of some entries, one row each; a row of -1 is absent."""
        if not len(self.kinds):
            entries_count = len(entries)
            nowhere = np.zeros(entries_count, np.int64)
            return Located(self._values, nowhere, nowhere - 1, np.zeros(entries_count, np.int8))
        absent = entries < 0
        start = self._value_offsets[entries].astype(np.int64)
        length = self._value_offsets[entries + 1] - start
        length[self.null[entries]] = -2
        kind = self.kinds[entries]
        if absent.any():
            start[absent], length[absent], kind[absent] = 0, -1, 0
        return Located(self._values, start, length, kind)


def _as_headers(column: pa.Array[Any]) -> pa.Array[Any]:
    return column if column.type == HEADERS_TYPE else column.cast(HEADERS_TYPE)
