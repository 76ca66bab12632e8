"""Rows taken out of a table by a condition, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...model.errors import LocalError
from ...model.extras import describe_install
from ..formats.interface import ALL, AddedFile, Listing, LiveFile, Overtaken, Replacement, Table, Wanted
from .optimize import ROUNDS
from .rewrite import RowSelection, StagedRewrite


@dataclass(frozen=True, slots=True)
class Deletion:
    """The rows of a table that a condition selects, and the files that contain them."""

    listing: Listing
    files: Sequence[LiveFile]
    rows: int


def find_rows(
    table: Table,
    selects: RowSelection,
    want: Wanted = ALL,
    *,
    without: frozenset[str] = frozenset(),
    check: Callable[[], None] = lambda: None,
) -> Deletion:
    """Return the rows that ``selects`` selects from the columns ``want``; files named in ``without`` are left out."""
    listing = table.list_files()
    files, rows = [], 0
    for file in listing.files:
        if file.name.rpartition("/")[2] in without:
            continue
        check()
        selected = 0
        for batch in table.read_file(listing, file, want):
            selected += selects(with_partition(table, file, batch)).true_count
        if selected:
            files.append(file)
            rows += selected
    return Deletion(listing, files, rows)


def delete_rows(
    table: Table,
    selects: RowSelection,
    want: Wanted,
    notes: Mapping[str, str],
    *,
    instead: Sequence[AddedFile] = (),
    key: tuple[str, int] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Deletion:
    """Delete rows of the table, and add the files ``instead`` of them, in one commit; return what was deleted.

    Files that also have other rows are rewritten without the deleted ones. ``key`` is as in ``Replacement``.
    """
    added = frozenset(one.name.rpartition("/")[2] for one in instead)
    for left in reversed(range(ROUNDS)):
        try:
            found = find_rows(table, selects, want, without=added, check=check)
            if not found.files and not instead and key is None:
                return found
            with StagedRewrite(table) as rewrite:
                for file in found.files:
                    check()
                    rewrite.write(found.listing, [file], drop=_on_file(table, file, selects))
                change = Replacement(found.files, [*rewrite.files, *instead], {**notes}, key)
                rewrite.replace(found.listing, change)
                return found
        except Overtaken:
            if not left:
                raise
    raise AssertionError("the last round returns or raises")


def _on_file(table: Table, file: LiveFile, selects: RowSelection) -> RowSelection:
    return lambda batch: selects(with_partition(table, file, batch))


def with_partition(table: Table, file: LiveFile, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the partition columns, whose values are not in the file."""
    native = file.native if isinstance(file.native, Mapping) else {}
    for name, text in table.read_partition(file).items():
        if name not in batch.schema.names:
            # a log that types the values of partitions has them as its readers see them: 10 is more than 9; and a
            # null without a type compares with any constant
            scalar: Any = pa.scalar(native[name]) if name in native else pa.scalar(text, pa.string())
            batch = batch.append_column(name, pa.repeat(scalar, batch.num_rows))
    return batch


def parse_condition(table: Table, where: str) -> tuple[RowSelection, Wanted]:
    """Return a function that evaluates a condition, and the columns that it reads."""
    duckdb: Any
    try:
        import duckdb
    except ImportError:
        raise LocalError(f"--where needs the package duckdb; {describe_install('sql')}") from None
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    connection = duckdb.connect(
        ":memory:", config={"python_enable_replacements": False, "enable_external_access": False}
    )
    connection.execute("SET TimeZone = 'UTC'")
    try:
        tree: Any = parse_one(where, dialect="duckdb")
        names = tuple(dict.fromkeys(column.parts[0].name for column in tree.find_all(exp.Column)))
        if tree.find(exp.Query) or not isinstance(tree, exp.Condition | exp.Predicate):
            raise LocalError(f"--where {where!r}: it is not a condition; write one as after WHERE in SQL")
        if tree.find(exp.Window, exp.AggFunc, exp.Explode):
            raise LocalError(
                f"--where {where!r}: aggregates, windows and unnest see more than one row, and each row is decided by "
                "itself; write a condition on the columns of one row"
            )
    except SqlglotError as error:
        raise LocalError(
            f"--where {where!r}: it cannot be read as a condition: {str(error).partition('.')[0]}; "
            "write one as after WHERE in SQL"
        ) from None
    if not names:
        raise LocalError(
            f"--where {where!r}: it names no column, so that it is true for every row or for none; name one, as in "
            "\"customer = 'x'\""
        )

    types = dict[str, Any]()

    def selects(batch: pa.RecordBatch) -> pa.BooleanArray:
        known = {name.lower() for name in batch.schema.names}
        for name in names:
            if name.lower() not in known:
                # the column came later, and readers see null in the rows of before
                type_ = types.get(name) or types.setdefault(name, _find_type(table, name, where))
                batch = batch.append_column(name, pa.nulls(batch.num_rows, type_))
        try:
            rows = connection.from_arrow(pa.Table.from_batches([batch]))
            found = rows.select(duckdb.SQLExpression(where).cast(duckdb.type("BOOLEAN"))).to_arrow_table()
        except duckdb.Error as error:
            raise LocalError(
                f"--where {where!r}: {str(error).partition(chr(10))[0]}; write a condition that these columns can have"
            ) from None
        mask: Any = found.column(0).combine_chunks()
        if len(mask) != batch.num_rows:
            raise LocalError(
                f"--where {where!r}: it has {len(mask)} results for {batch.num_rows} rows; write a condition on the "
                "columns of one row"
            )
        return mask  # type: ignore[no-any-return]

    return selects, Wanted(names)


def _find_type(table: Table, name: str, where: str) -> Any:
    """Return the type of a column that some files do not have. Raises LocalError if no file of the table has it."""
    listing, known = table.list_files(), dict[str, None]()
    for file in listing.files:
        for batch in table.read_file(listing, file):
            for field in batch.schema:
                if field.name.lower() == name.lower():
                    return field.type
            known |= dict.fromkeys([*batch.schema.names, *table.read_partition(file)])
            break
    raise LocalError(
        f"--where {where!r}: the table {table.directory} has no column {name!r}; its files have {', '.join(known)}"
    )
