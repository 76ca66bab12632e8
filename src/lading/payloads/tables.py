"""Memory for the results of walkers in a batch, used again once no value refers to it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..kernels.arena import Pool

_POOL: Final = Pool(4)
"""Buffers to use again: fresh memory for each batch costs page faults, about as much as walking small payloads."""


def make_tables(leaves: int, rows: int, *types: type[np.generic]) -> tuple[NDArray[Any], ...]:
    """Return a table of leaves and rows for each type, the widest type first; the content is undefined."""
    sizes = [leaves * rows * np.dtype(type_).itemsize for type_ in types]
    memory = _POOL.memory(sum(sizes))
    tables, begin = [], 0
    for type_, size in zip(types, sizes, strict=True):
        tables.append(memory[begin : begin + size].view(type_).reshape(leaves, rows))
        begin += size
    return tuple(tables)
