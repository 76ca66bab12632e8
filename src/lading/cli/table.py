"""``lading table``: tables that Lading writes, kept in shape, and rows taken out of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .interruption import Interruption
from .options import AsOutput
from .output import Output, format_count, format_size, json_line, literal, meter, print_note, print_table
from .storage_option import Storage, parse_storage

if TYPE_CHECKING:
    from ..tables.formats.interface import Table
    from ..tables.upkeep.rewrite import RowSelection

app = typer.Typer(
    name="table", help="Show tables and keep them in shape: their files, snapshots and rows.", no_args_is_help=True
)  # fmt: skip
Place = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="Directory or URL of a table that Lading writes; its form need not be named, but may be."
    ),
]
Places = Annotated[
    list[str],
    typer.Argument(metavar="TABLE...", help="Directories or URLs of tables that Lading writes."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Age = Annotated[str, typer.Option("--older-than", metavar="DURATION", help="Only what is older, e.g. 7d or 36h.")]
TargetSize = Annotated[str, typer.Option("--target-size", metavar="SIZE", help="Size of a file, about, e.g. 256MB.")]
SHOWN = {
    "table": "table", "form": "form", "files": "files", "bytes": "bytes", "partitions": "partitions",
    "small_files": "below 16 MiB", "snapshots": "snapshots", "files_after": "files after optimize",
    "rewritten_bytes": "bytes that optimize writes",
}  # fmt: skip


@app.command()
def show(
    tables: Places, target_size: TargetSize = "256MB", storage: Storage = None, output: AsOutput = Output.TEXT
) -> None:
    """Show files, sizes and snapshots of tables, and what an optimize would do.

    Example:

        lading table show ./tables/flights ./tables/quarantine
    """
    from ..client.units import parse_size_bytes
    from ..tables.upkeep.shape import measure_shape

    rows = []
    for text in tables:
        table = _open(text, storage)
        shape = asdict(measure_shape(table, parse_size_bytes(target_size)))
        sizes = ("size_bytes", "rewritten_bytes")
        size, rewritten = (shape[name] if output is Output.JSON else format_size(shape[name]) for name in sizes)
        rows.append(
            {**shape, "table": str(table.directory), "bytes": size, "rewritten_bytes": rewritten,
             "snapshots": table.count_snapshots()}
        )  # fmt: skip
    print_table([{name: row[name] for name in SHOWN} for row in rows], SHOWN, output=output)


@app.command()
def optimize(
    table: Place,
    sort_by: Annotated[
        list[str] | None,
        typer.Option(
            "--sort-by",
            metavar="COLUMN",
            help="Order rows within a file by this column; may be repeated. Default: topic, partition and offset.",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="NAME", help="Only this partition, e.g. timestamp_day=2026-01-31."),
    ] = None,
    target_size: TargetSize = "256MB",
    dry_run: DryRun = False,
    storage: Storage = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Write small files of a table as larger ones, in the order of some columns. Its rows stay the same.

    Safe next to a running ingest or pipeline, and next to another optimize: each commit is tried again if another
    writer was faster. Memory is bounded, whatever the size of the table. The files of before stay until `lading table
    vacuum`, for readers that are at work.

    Examples:

        lading table optimize ./tables/flights

        lading table optimize ./tables/flights --partition timestamp_day=2026-01-31 --sort-by carrier
    """
    from ..client.units import parse_size_bytes
    from ..tables.failures import translate_disk_errors
    from ..tables.upkeep.optimize import ORDER, OptimizeReport, optimize_table
    from ..tables.upkeep.shape import measure_shape

    opened, target_bytes = _open(table, storage), parse_size_bytes(target_size)
    if dry_run:
        shape = measure_shape(opened, target_bytes)
        if output is Output.JSON:
            json_line(asdict(shape))
        else:
            print_note(
                f"{literal(str(opened.directory))}: {format_count(shape.files, 'file')} would become "
                f"{shape.files_after:,}, {format_size(shape.rewritten_bytes)} would be written"
            )
        return
    with (
        Interruption().install() as interruption,
        meter(f"optimize {opened.directory}", None, "rows") as progress,
        translate_disk_errors(f"optimizing the table {opened.directory}"),
    ):

        def on_progress(now: OptimizeReport) -> None:
            progress.reach(now.rows, now.rows)

        done = optimize_table(
            opened, target_bytes=target_bytes, sort_by=sort_by or ORDER, partition=partition, on_progress=on_progress,
            check=interruption.check,
        )  # fmt: skip
    if output is Output.JSON:
        json_line(asdict(done))
        return
    print_note(
        f"[bold]{format_count(done.removed_files, 'file')}[/] replaced by {done.added_files:,}: "
        f"{format_count(done.rows, 'row')}, {format_size(done.size_bytes)}, {format_count(done.commits, 'commit')}"
    )


@app.command()
def expire(
    table: Place, older_than: Age = "7d", dry_run: DryRun = False, storage: Storage = None,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Delete old snapshots of a table. The files that only they have are deleted by `lading table vacuum`.

    A Delta table keeps its log as long as its own properties say (delta.logRetentionDuration); a directory of Parquet
    files has no snapshots.

    Example:

        lading table expire ./tables/flights --older-than 30d
    """
    from ..client.units import duration_us

    opened = _open(table, storage)
    count = opened.expire_snapshots(time.time() - duration_us(older_than) / 1e6, dry_run=dry_run)
    if output is Output.JSON:
        json_line({"table": str(opened.directory), "expired": count, "dry_run": dry_run})
    else:
        would = "would be " if dry_run else ""
        print_note(f"[bold]{format_count(count, 'snapshot')}[/] {would}expired")


@app.command()
def vacuum(
    table: Place,
    older_than: Age = "7d",
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Allow an age below a day, at which a reader at work can miss its files."),
    ] = False,
    dry_run: DryRun = False,
    storage: Storage = None,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Delete files that no snapshot of a table needs and that are old enough.

    Examples:

        lading table vacuum ./tables/flights --dry-run

        lading table vacuum ./tables/flights --older-than 36h
    """
    from ..client.units import duration_us
    from ..tables.upkeep.vacuum import vacuum_table

    opened = _open(table, storage)
    found = vacuum_table(opened, duration_us(older_than) / 1e6, is_forced=unsafe, dry_run=dry_run)
    size_bytes = sum(file.size_bytes for file in found)
    if output is Output.JSON:
        json_line({"table": str(opened.directory), "files": len(found), "bytes": size_bytes, "dry_run": dry_run})
    else:
        would = "would be " if dry_run else ""
        size = f" ({format_size(size_bytes)})" if size_bytes else ""
        print_note(f"[bold]{format_count(len(found), 'file')}[/]{size} {would}deleted")


@app.command()
def delete(
    tables: Places,
    where: Annotated[
        str,
        typer.Option(
            "--where", "-w", metavar="CONDITION",
            help="Delete rows for which this is true, e.g. \"customer = 'x'\": a condition on columns in DuckDB's SQL, "
            "as in `lading sql`; in a quarantine table a filter on messages.",
        ),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    storage: Storage = None,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Delete rows by a condition, in one commit for each table; shows their number and asks first.

    Older snapshots, and files kept for readers, have the rows until they are expired and vacuumed. The topic has the
    messages still: a replaced range brings them back.

    Examples:

        lading table delete ./tables/flights ./tables/quarantine --where "customer = 'x'" --dry-run

        lading table delete ./tables/flights ./tables/quarantine --where "customer = 'x'" --yes
    """
    from ..tables.failures import translate_disk_errors
    from ..tables.formats.interface import ALL
    from ..tables.upkeep.deletion import delete_rows, find_rows, parse_condition
    from ..tables.upkeep.optimize import UPKEEP
    from .connection import confirm

    opened = [_open(text, storage) for text in tables]
    with Interruption().install() as interruption:
        plans = []
        for table in opened:
            of_quarantine = _select_in_quarantine(table, where)
            selects, want = parse_condition(table, where) if of_quarantine is None else (of_quarantine, ALL)
            plans.append((table, selects, want, find_rows(table, selects, want, check=interruption.check)))
        rows = sum(found.rows for *_, found in plans)
        if not dry_run and rows and not yes:
            _print_deletions(
                [(table, found.rows, len(found.files)) for table, _, _, found in plans], "would be", Output.TEXT
            )
            confirm(f"Delete {format_count(rows, 'row')}?", yes)
        done = []
        for table, selects, want, found in plans:
            if not dry_run and found.rows:
                with translate_disk_errors(f"deleting rows of the table {table.directory}"):
                    found = delete_rows(table, selects, want, {UPKEEP: "delete"}, check=interruption.check)
            done.append((table, found.rows, len(found.files)))
    _print_deletions(done, "would be" if dry_run else "", output)


def _print_deletions(done: Sequence[tuple[Table, int, int]], would: str, output: Output) -> None:
    for table, rows, files in done:
        if output is Output.JSON:
            json_line({"table": str(table.directory), "rows": rows, "files": files, "dry_run": bool(would)})
        else:
            print_note(
                f"{literal(str(table.directory))}: [bold]{format_count(rows, 'row')}[/] in "
                f"{format_count(files, 'file')} {would}{' ' if would else ''}deleted"
            )


def _select_in_quarantine(table: Table, where: str) -> RowSelection | None:
    """Return what evaluates a filter on the messages of a quarantine table; None for any other table."""
    from ..pipeline.quarantine import is_quarantine, select_messages

    listing = table.list_files()
    for file in listing.files[:1]:
        for batch in table.read_file(listing, file):
            return select_messages(where) if is_quarantine(batch.schema.names) else None
    return None


def _open(text: str, storage: list[str] | None) -> Table:
    """Return a table that Lading writes. Raises LocalError for any other directory."""
    from ..model.errors import LocalError
    from ..tables.formats.directory import OWNER
    from ..tables.formats.registry import open_table, split_target
    from ..tables.storage.files import OWN, table_location

    form, place = split_target(text)
    directory = table_location("table", place)
    references = parse_storage(storage)
    if references is not None:
        references.bind([directory])
    if not (directory / OWN / OWNER).exists():
        raise LocalError(
            f"{directory} is not a table that Lading writes: it has no {OWN}/{OWNER}; name the directory of one"
        )
    table = open_table(directory)
    if ":" in text and text.startswith(f"{form.partition(':')[0]}:") and form.partition(":")[0] != table.form:
        raise LocalError(f"the table {directory} is of the form {table.form}, not {form}; name that, or leave it out")
    return table
