"""Every form of tables. To add one, add its class; settings, ingest, pipelines and the crash tests read them here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...model.errors import LocalError
from ..storage.files import OWN, read_document
from ..storage.object_path import TablePath
from .delta import DeltaTable
from .directory import DEFAULT_FORM, OWNER, form_of
from .iceberg import IcebergTable
from .interface import Table
from .parquet import ParquetTable
from .partitions import Partitions

FORMATS: Final[Mapping[str, Callable[..., Table]]] = {
    one.form: one for one in (ParquetTable, DeltaTable, IcebergTable)
}  # fmt: skip
"""Tables by the word before the colon of a target."""


def split_target(text: str) -> tuple[str, str]:
    """Return the form and the place of a target such as ``parquet:./tables/flights``.

    The form includes the catalog that a target names: ``iceberg:prod:./tables/flights`` is of ``iceberg:prod``.
    """
    form, colon, place = text.partition(":")
    if not colon or form not in FORMATS:
        return DEFAULT_FORM, text
    split = getattr(FORMATS[form], "split_place", None)
    catalog, place = ("", place) if split is None else split(place)
    return f"{form}:{catalog}" if catalog else form, place


def new_table(form: str, directory: TablePath, partition_by: Partitions | None = None) -> Table:
    """Return a table at ``directory`` that is to be claimed in a form as ``split_target`` gives it.

    Without ``partition_by`` a table that is there keeps the partitions that it has.
    """
    name, _, catalog = form.partition(":")
    if hasattr(FORMATS[name], "split_place"):
        return FORMATS[name](directory, partition_by, catalog)
    return FORMATS[name](directory, partition_by)


def open_table(directory: TablePath) -> Table:
    """Return the table at ``directory``, of the form that it was claimed with. Raises LocalError for an unknown one."""
    owner = read_document(directory / OWN / OWNER)
    form = DEFAULT_FORM if owner is None else form_of(owner)
    if form not in FORMATS:
        raise LocalError(f"table {directory}: the form {form!r} is not supported; this Lading has {', '.join(FORMATS)}")
    return FORMATS[form](directory)
