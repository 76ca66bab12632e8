"""Every form of tables. To add one, add its class; settings, ingest, pipelines and the crash tests read them here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ...model.errors import LocalError
from ..files import OWN, read_document
from .delta import DeltaTable
from .directory import DEFAULT_FORM, OWNER, form_of
from .interface import Table
from .parquet import ParquetTable

FORMATS: Final[Mapping[str, Callable[[Path], Table]]] = {one.form: one for one in (ParquetTable, DeltaTable)}
"""Tables by the word before the colon of a target."""


def split_target(text: str) -> tuple[str, str]:
    """Return the form and the place of a target such as ``parquet:./tables/flights``."""
    form, colon, place = text.partition(":")
    return (form, place) if colon and form in FORMATS else (DEFAULT_FORM, text)


def open_table(directory: Path) -> Table:
    """Return the table at ``directory``, of the form that it was claimed with. Raises LocalError for an unknown one."""
    owner = read_document(directory / OWN / OWNER)
    form = DEFAULT_FORM if owner is None else form_of(owner)
    if form not in FORMATS:
        raise LocalError(f"table {directory}: the form {form!r} is not supported; this Lading has {', '.join(FORMATS)}")
    return FORMATS[form](directory)
