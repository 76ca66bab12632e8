"""Arrow columns of a Batch around buffers that a dialect's kernel fills: sizes first, one arena, then arrays.

A dialect says of each field in which buffers its kernel writes it. Fields that it does not store are constant: the
state of every message is available, everything else is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.kernels.arena import Arena
from lading.model.batch import HEADERS_TYPE, SCHEMA_WITH_ORIGIN
from lading.model.kinds import Kind
from lading.model.state import State

Buffers = Sequence[pa.Buffer | None]
_TYPES: Final = {field.name: field.type for field in SCHEMA_WITH_ORIGIN}
_from_buffers: Callable[..., pa.Array[Any]] = pa.Array.from_buffers


class StoredColumn(Protocol):
    """A column that a kernel writes: the sizes of its buffers, in the kernel's order, and the Arrow array of them."""

    @property
    def sizes_bytes(self) -> tuple[int, ...]: ...

    def array(self, type_: pa.DataType, buffers: Buffers) -> pa.Array[Any]: ...


@dataclass(slots=True)
class FixedColumn:
    """``count`` values of ``width_bytes`` each, none of them null."""

    count: int
    width_bytes: int

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Return the size of the column's one buffer."""
        return (self.count * self.width_bytes,)

    def array(self, type_: pa.DataType, buffers: Buffers) -> pa.Array[Any]:
        """Return the values as an Arrow array over ``buffers``."""
        return _from_buffers(type_, self.count, [None, *buffers])


@dataclass(slots=True)
class BinaryColumn:
    """``count`` values with ``size_bytes`` bytes in all, including spare ones that the kernel writes after them.

    ``nullable`` says whether some may be null; None if the kernel has no buffer for that.
    """

    count: int
    size_bytes: int
    nullable: bool | None = None

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Sizes of the buffers: the validity bitmap, if the kernel writes one, then ends and bytes of values."""
        ends_and_bytes = 4 * self.count + 4, self.size_bytes
        if self.nullable is None:
            return ends_and_bytes
        return -(-self.count // 8) if self.nullable else -1, *ends_and_bytes

    def array(self, type_: pa.DataType, buffers: Buffers) -> pa.Array[Any]:
        """Return the values as an Arrow array over ``buffers``."""
        return _from_buffers(type_, self.count, [*([None] if self.nullable is None else []), *buffers])


@dataclass(slots=True)
class HeadersColumn:
    """The headers of ``count`` messages; if the dialect declares no ``kinds``, every value is raw."""

    count: int
    names: BinaryColumn
    values: BinaryColumn
    kinds: FixedColumn | None = None

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Return the sizes of the ends of each message's headers, of names, kinds and values."""
        kinds_bytes = () if self.kinds is None else self.kinds.sizes_bytes
        return 4 * self.count + 4, *self.names.sizes_bytes, *kinds_bytes, *self.values.sizes_bytes

    def array(self, type_: pa.DataType, buffers: Buffers) -> pa.Array[Any]:
        """Return the lists of headers as an Arrow array over ``buffers``."""
        header_count = self.names.count
        entries = [
            self.names.array(pa.string(), buffers[1:3]),
            pa.array(np.full(header_count, int(Kind.RAW), np.int8))
            if self.kinds is None
            else self.kinds.array(pa.int8(), buffers[3:4]),
            self.values.array(pa.binary(), buffers[3 if self.kinds is None else 4 :]),
        ]
        structs = _from_buffers(HEADERS_TYPE.value_type, header_count, [None], children=entries)
        return _from_buffers(type_, self.count, [None, buffers[0]], children=[structs])


def assemble_columns(
    count: int,
    fields: frozenset[str],
    stored: Mapping[str, StoredColumn],
    fill: Callable[[NDArray[np.uint8], NDArray[np.int64]], None],
) -> dict[str, pa.Array[Any]]:
    """Return the columns ``fields`` of ``count`` messages, in the order of a Batch.

    ``stored`` has the fields that the dialect stores, in that order, which is also the one of the kernel's buffers.
    ``fill`` writes each buffer at its place in the memory it gets; a place of -1 means that the field was not
    requested.
    """
    sizes = {field: column.sizes_bytes for field, column in stored.items()}
    arena = Arena([size if field in fields else -1 for field, each in sizes.items() for size in each])
    fill(arena.memory, arena.places)
    buffers = arena.buffers()
    columns: dict[str, pa.Array[Any]] = {}
    at = 0
    for field in _TYPES:
        begin, at = at, at + len(sizes.get(field, ()))
        if field not in fields:
            continue
        if at > begin:
            columns[field] = stored[field].array(_TYPES[field], buffers[begin:at])
        elif field == "state":
            columns[field] = pa.array(np.full(count, int(State.AVAILABLE), np.int8))
        else:
            columns[field] = pa.nulls(count, _TYPES[field])
    return columns
