"""Rows deleted by a condition, as ``lading table delete`` does it for one table without asking."""

from __future__ import annotations

from lading.tables.formats.interface import Table
from lading.tables.upkeep.deletion import Deletion, delete_rows, find_rows, parse_condition
from lading.tables.upkeep.optimize import UPKEEP


def delete_where(table: Table, where: str, *, dry_run: bool) -> Deletion:
    """Delete the rows for which a condition in DuckDB's SQL is true; returns them, with ``dry_run`` only that."""
    selects, want = parse_condition(table, where)
    return find_rows(table, selects, want) if dry_run else delete_rows(table, selects, want, {UPKEEP: "delete"})
