"""A directory of Parquet files."""

from __future__ import annotations

from io import RawIOBase
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...columns.contract import TIMESTAMP
from .directory import DEFAULT_FORM, DirectoryTable
from .interface import FileLayout

CONSTANT = ("stream", "topic", "partition", "state")
"""Fields that are the same, or nearly, in a whole file."""
RISING = ("offset", "timestamp")
ROW_GROUP_ROWS_MAX: Final = 262_144
"""More than a task hands over at a time, but for a single batch that is larger."""
RISING_TYPES = (pa.int64(), TIMESTAMP)
"""Fields whose values rise from message to message, or nearly: as differences they take a byte or less."""


class ParquetTable(DirectoryTable):
    """Parquet files, with dictionaries for headers that repeat and differences for offsets and times."""

    form = DEFAULT_FORM

    def open_file(self, sink: RawIOBase, layout: FileLayout) -> ParquetFile:
        """Begin a file; each ``write`` makes a row group."""
        return ParquetFile(sink, layout)


class ParquetFile:
    """A Parquet file that is being written."""

    def __init__(self, sink: RawIOBase, layout: FileLayout) -> None:
        options: Any = _choose_options(layout)
        file: Any = sink
        self._writer = pq.ParquetWriter(file, layout.schema, **options, store_schema=False)

    def write(self, rows: pa.Table) -> None:
        """Add a row group."""
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS_MAX)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()

    def abandon(self) -> None:
        """Write nothing more."""
        # an open writer would write a footer when it is collected, or raise because the file was deleted
        self._writer.is_open = False


def _choose_options(layout: FileLayout) -> dict[str, Any]:
    """Return how each column is written."""
    types = layout.types
    repeating = [*layout.repeating, *(name for name in CONSTANT if name in types)]
    rising = [name for name in RISING if types.get(name) in RISING_TYPES and name not in repeating]
    return {
        "compression": layout.compression,
        # promoted headers repeat, payloads and keys do not
        "use_dictionary": repeating,
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        # readers do not skip row groups by the least bytes in them
        "write_statistics": [
            name for name, type_ in types.items() if not (pa.types.is_nested(type_) or pa.types.is_binary(type_))
        ],
    }
