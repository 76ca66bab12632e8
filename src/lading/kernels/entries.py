"""The last value of header keys in a ``headers`` column, for dialects whose messages are Arrow and for columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..model.run import Located
from . import engine, entry_fallback

KERNEL_MODULE: Final = f"{__package__}.entry_kernels"
SCANS_MAX: Final = 8
"""Up to this many keys are each searched in all entries; after that, one pass over the entries makes a dictionary."""
ENTRY_BYTES: Final = 32
"""Weight of one header when the engine chooses between kernel and fallback."""


def locate(headers: pa.Array[Any], keys: Sequence[str]) -> dict[str, Located]:
    """Locate the last value of each key in every message.

    ``headers`` is of HEADERS_TYPE and may be a slice. An absent key has length -1, a null value -2.
    """
    column: Any = headers
    rows = len(column)
    lists: NDArray[np.int32] = column.offsets.to_numpy()
    # not a slice: what it holds is never copied, and ``lists`` count from its beginning
    texts, kinds, values = (column.values.field(part) for part in range(3))
    key_ends, key_data = view_binary(texts)
    value_ends, data = view_binary(values)
    bits = values.buffers()[0] if values.null_count else None
    valid = np.empty(0, np.uint8) if bits is None else np.frombuffer(memoryview(bits), np.uint8)
    kind_codes = kinds.to_numpy(zero_copy_only=False)
    if len(keys) > SCANS_MAX and rows:
        last = _find_by_dictionary(texts, lists, tuple(dict.fromkeys(keys)))
        sides = kind_codes, value_ends, valid, values.offset
        return {key: Located(data, *_read_entries(entries, *sides)) for key, entries in last.items()}
    kernels = engine.select(KERNEL_MODULE, entry_fallback, (int(lists[-1]) - int(lists[0])) * ENTRY_BYTES)
    found: dict[str, Located] = {}
    for key in dict.fromkeys(keys):
        places = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int8)
        wanted = np.frombuffer(key.encode(), np.uint8)
        entries = (lists, key_data, key_ends, wanted, kind_codes, value_ends, valid)
        kernels.locate_last(*entries, values.offset, *places)
        found[key] = Located(data, *places)
    return found


def _find_by_dictionary(texts: Any, lists: NDArray[np.int32], keys: tuple[str, ...]) -> dict[str, NDArray[np.int64]]:
    """Return by key the last entry of each list that has it, or -1: each entry is looked at once, for all keys."""
    first, end = int(lists[0]), int(lists[-1])
    encoded: Any = texts.slice(first, end - first).dictionary_encode()
    number_of = {name: number for number, name in enumerate(encoded.dictionary.to_pylist())}
    wanted = np.full(len(number_of) + 1, -1, np.int64)
    for at, key in enumerate(keys):
        if key in number_of:
            wanted[number_of[key]] = at
    asked = wanted[encoded.indices.to_numpy(zero_copy_only=False)]
    entries = np.flatnonzero(asked >= 0)
    messages = np.repeat(np.arange(len(lists) - 1), np.diff(lists))[entries]
    last = np.full((len(keys), len(lists) - 1), -1, np.int64)
    # assignment in the order of entries: the last one stays
    last[asked[entries], messages] = entries + first
    return dict(zip(keys, last, strict=True))


def _read_entries(
    entries: NDArray[np.int64], kinds: Any, value_ends: NDArray[np.int32], valid: NDArray[np.uint8], valid_at: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Return start, length and kind of the value of each entry, as ``locate`` does; -1 stands for an absent one."""
    places = np.zeros(len(entries), np.int64), np.full(len(entries), -1, np.int64), np.zeros(len(entries), np.int8)
    entry_fallback.read_values(entries, kinds, value_ends, valid, valid_at, *places)
    return places


def view_binary(array: pa.Array[Any]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the ends (one more than values) and bytes of a string or binary array, sliced or not, without a copy."""
    _, ends, data = array.buffers()
    if ends is None or not len(array):
        positions = np.zeros(len(array) + 1, np.int32)
    else:
        positions = np.frombuffer(memoryview(ends), np.int32, len(array) + 1, 4 * array.offset)
    if data is None or not data.size:
        return positions, np.empty(0, np.uint8)
    return positions, np.frombuffer(memoryview(data), np.uint8)
