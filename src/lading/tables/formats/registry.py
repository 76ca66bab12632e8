"""Every form of tables. To add one, add its row; settings, ingest, pipelines and the crash tests read them here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .interface import Table, TableFormat
from .parquet import ParquetFormat

DEFAULT: Final = ParquetFormat()
"""The form of a target without a prefix."""
FORMATS: Final[Mapping[str, TableFormat]] = {one.name: one for one in (DEFAULT,)}


def split_target(text: str) -> tuple[TableFormat, str]:
    """Return the form and the place of a target such as ``parquet:./tables/flights``."""
    for one in FORMATS.values():
        if text.startswith(f"{one.name}:"):
            return one, text.removeprefix(f"{one.name}:")
    return DEFAULT, text


def open_table(directory: Path) -> Table:
    """Return the table at ``directory``."""
    return DEFAULT.open(directory)
