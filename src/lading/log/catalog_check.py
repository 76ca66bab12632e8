"""Damage of a catalog that SQLite does not notice: in the names of columns, in texts and in documents of rows.

SQLite has no checksums. Its own check finds pages that are linked wrongly, and rows that differ from their indexes:
names and ids of streams and topics, which a start compares and writes. The damage that this check finds would otherwise
end the start in the middle. Neither check finds a flipped bit that makes another valid number, such as a position.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import Final

from .catalog_schema import LATER_SCHEMAS, SCHEMA

_DOCUMENTS: Final = (
    ("topics", "settings", dict),
    ("commit_keys", "winners", list),
    ("markings", "ranges", list),
    ("registry_settings", "document", dict),
    ("kafka_configs", "document", dict),
    ("group_filters", "document", dict),
)
"""Table, column, and the type of the JSON in it."""
_STATES: Final = {
    "transactions": frozenset({"open", "committed", "aborted"}),
    "producers": frozenset({"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}),
}
"""The values of the column ``state``, by table."""


def find_damage(db: sqlite3.Connection) -> str | None:
    """Return what is damaged in a catalog of a known version, or None; an empty file is not damaged."""
    try:
        return _find_damage(db)
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
        return "it has a text that is not UTF-8"


def _find_damage(db: sqlite3.Connection) -> str | None:
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = _find_wrong_pages(db, tables)
    if found is not None:
        return found
    if not tables:
        return None
    if not db.execute("PRAGMA user_version").fetchone()[0]:
        return "it has tables, but no version"
    return _find_other_columns(db, tables) or _find_unreadable_rows(db, tables)


def _find_wrong_pages(db: sqlite3.Connection, tables: list[str]) -> str | None:
    """Return what SQLite's own check finds.

    It compares rows with their indexes, except those of schemas: 100,000 of them would take most of a second of each
    start. One that differs is found when it is used.
    """
    checks = ["integrity_check(1)"]
    if "registry_schemas" in tables and db.execute("SELECT 1 FROM registry_schemas LIMIT 1").fetchone():
        others = [name for name in tables if not name.startswith(("registry_", "sqlite_"))]
        checks = ["quick_check(1)", *(f"integrity_check({name})" for name in others)]
    for check in checks:
        found = db.execute(f"PRAGMA {check}").fetchone()[0]
        if found != "ok":
            return " ".join(found.split())
    return None


def _find_other_columns(db: sqlite3.Connection, tables: list[str]) -> str | None:
    with contextlib.closing(sqlite3.connect(":memory:")) as expected:
        expected.executescript(SCHEMA)
        needed = {name for (name,) in expected.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for statement in LATER_SCHEMAS:
            expected.execute(statement)
        known = {name for (name,) in expected.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for name in sorted(known):
            is_there = name in tables
            if is_there and _list_columns(db, name) != _list_columns(expected, name):
                return f"table {name} has other columns"
            if not is_there and name in needed:
                return f"table {name} is missing"
    return None


def _list_columns(db: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    return db.execute(f"PRAGMA table_info({table})").fetchall()


def _find_unreadable_rows(db: sqlite3.Connection, tables: list[str]) -> str | None:
    for table in tables:
        # Python decodes each text, which the check of SQLite does not; texts of schemas are bytes
        columns = "kind, details" if table == "registry_schemas" else "*"
        for _ in db.execute(f'SELECT {columns} FROM "{table}"'):
            pass
    for table, column, type_ in _DOCUMENTS:
        if table in tables:
            for (text,) in db.execute(f"SELECT {column} FROM {table}"):
                if not _is_document(text, type_):
                    return f"table {table} has an invalid document in column {column}"
    for table, states in _STATES.items():
        if table in tables:
            for (state,) in db.execute(f"SELECT DISTINCT state FROM {table}"):
                if state not in states:
                    return f"table {table} has an invalid state {state!r}"
    if db.execute("PRAGMA foreign_key_check").fetchone():
        return "a topic is of a stream that does not exist"
    return None


def _is_document(text: str, type_: type) -> bool:
    try:
        return isinstance(json.loads(text), type_)
    except (TypeError, ValueError):
        return False
