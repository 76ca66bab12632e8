"""``lading backup`` and ``lading restore``: a data directory kept elsewhere, and put back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer

from .options import AsOutput, local_path
from .output import Meter, Output, format_count, format_date, format_size, json_line, meter, print_note, print_table

if TYPE_CHECKING:
    from ..backup.prune import PrunePlan

KILOBYTE = 1_000


def _data_path(text: str | Path) -> Path:
    """Parse a data directory: a path, or a ``file://`` URL."""
    if isinstance(text, str) and text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    if isinstance(text, str) and "://" in text:
        raise typer.BadParameter(
            f"{text!r} is a broker; name its data directory, on the machine where it runs (`lading serve --data`)"
        )
    return local_path(text)


Data = Annotated[Path, typer.Argument(parser=_data_path, metavar="DATA", help="Data directory; its broker may run.")]
Store = Annotated[
    str, typer.Argument(metavar="DEST", help="Directory of backups, or s3://, gs:// or abfs:// as pyarrow knows them.")
]


app = typer.Typer(help="Back up a data directory, and delete old backups.")


@app.command()
def create(data: Data, to: Store, output: AsOutput = Output.TEXT) -> None:
    """Back up a data directory while its broker runs, or after it ended.

    Everything that was acknowledged before is in the backup. Segments that an earlier backup in DEST has are not copied
    again. An interrupted backup cannot be restored; the next run continues it. The word `create` may be left out.

    Examples:

        lading backup ./data /backups/lading

        lading backup ./data s3://backups/lading --output json
    """
    from ..backup.back_up import back_up
    from ..backup.store import open_store

    began_s = time.monotonic()
    with meter("backing up", None, "kB") as shown:
        report = back_up(data, open_store(to), _in_kilobytes(shown))
    point = report.point
    if output is Output.JSON:
        json_line(
            {
                "point": point.name,
                "at_us": point.at_us,
                "topics": point.topics,
                "partitions": point.partitions,
                "messages": point.messages,
                "size_bytes": point.size_bytes,
                "copied_bytes": report.copied_bytes,
                "kept_bytes": report.kept_bytes,
                "seconds": round(time.monotonic() - began_s, 3),
                "damage": point.damage,
                "notes": report.notes,
            }
        )
        return
    print_note(
        f"backup [bold]{point.name}[/]: {format_count(point.messages, 'message')}, "
        f"{format_count(point.partitions, 'partition')}, {format_size(point.size_bytes)}; "
        f"{format_size(report.copied_bytes)} copied, {format_size(report.kept_bytes)} were there"
    )
    for line in report.notes:
        print_note(f"[yellow]{line}[/]")
    for line in point.damage:
        print_note(f"[red]damaged in the data directory[/] {line}")


@app.command()
def prune(
    to: Store,
    keep: Annotated[int | None, typer.Option("--keep", min=1, metavar="N", help="Keep the newest N backups.")] = None,
    newer_than: Annotated[
        str | None, typer.Option("--newer-than", metavar="DURATION", help="Keep backups newer than this, e.g. 30d.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: AsOutput = Output.TEXT,
) -> None:
    """Delete old backups, and segments that no other backup needs; shows what would go, then asks.

    With both --keep and --newer-than a backup stays if one of them keeps it. The newest backup always stays.

    Examples:

        lading backup prune /backups/lading --keep 7 --dry-run

        lading backup prune s3://backups/lading --newer-than 30d --yes --output json
    """
    from ..backup.prune import plan_prune
    from ..backup.prune import prune as prune_backups
    from ..backup.store import open_store
    from ..client.units import duration_us
    from ..model.errors import LocalError
    from ..runtime.clock import now_us
    from .connection import confirm

    if keep is None and newer_than is None:
        raise LocalError("backup prune: nothing says what stays; give --keep N, --newer-than DURATION, or both")
    age_us = None if newer_than is None else duration_us(newer_than)
    store = open_store(to)

    def agree(plan: PrunePlan) -> None:
        if plan.files and not yes:
            _print_plan(plan, "would be deleted")
            confirm(f"Delete {format_count(len(plan.files), 'file')} of {to}?", yes)

    if dry_run:
        plan = plan_prune(store, keep=keep, newer_than_us=age_us, now_us=now_us())
    else:
        plan = prune_backups(store, keep=keep, newer_than_us=age_us, now_us=now_us(), agree=agree)
    if output is Output.JSON:
        json_line(
            {
                "removed": plan.removed,
                "kept": plan.kept,
                "segments": plan.segments,
                "freed_bytes": plan.freed_bytes,
                "dry_run": dry_run,
            }
        )
    else:
        _print_plan(plan, "would be deleted" if dry_run else "deleted")


def _print_plan(plan: PrunePlan, done: str) -> None:
    for name in plan.removed:
        print_note(f"backup [bold]{name}[/] {done}")
    print_note(
        f"{format_count(len(plan.removed), 'backup')} and {format_count(plan.segments, 'segment')} {done}, "
        f"{format_size(plan.freed_bytes)}; {format_count(len(plan.kept), 'backup')} kept"
    )


def restore(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What `lading backup` wrote to.")],
    data: Annotated[
        Path | None, typer.Argument(parser=local_path, metavar="DATA", help="Data directory to make; must not exist.")
    ] = None,
    point: Annotated[
        str | None, typer.Option("--point", "-p", metavar="TIME", help="Which backup. Default: the newest.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check every byte; exit 1 if one is damaged.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Only list the existing backups.")] = False,
    keep_damaged: Annotated[
        bool, typer.Option("--keep-damaged", help="Restore what is intact if messages are damaged.")
    ] = False,
    output: AsOutput = Output.TEXT,
) -> None:
    """Make a data directory from a backup; every byte is checked, and nothing is overwritten.

    Examples:

        lading restore /backups/lading ./data

        lading restore /backups/lading --check --output json
    """
    from ..backup.point import list_points, read_point
    from ..backup.restore import check_backup
    from ..backup.restore import restore as restore_to
    from ..backup.store import open_store
    from ..model.errors import LocalError

    store = open_store(source)
    if list_all:
        rows = [
            {
                "point": one.name, "at": format_date(one.at_us), "messages": one.messages,
                "size_bytes": one.size_bytes, "damage": len(one.damage), "lading": one.lading,
            }
            for one in (read_point(store, name) for name in list_points(store))
        ]  # fmt: skip
        columns = {"point": "point", "at": "taken", "messages": "messages", "size_bytes": "bytes", "damage": "damaged"}
        print_table(rows, columns, output=output)
        return
    if data is None and not check:
        raise LocalError("restore: no data directory is given; name one that does not exist, or give --check")
    with meter("checking" if check else "restoring", None, "kB") as shown:
        if check or data is None:
            report = check_backup(store, point, _in_kilobytes(shown))
        else:
            report = restore_to(store, data, point, keep_damaged=keep_damaged, on_progress=_in_kilobytes(shown))
    if output is Output.JSON:
        json_line(
            {
                "point": report.point.name,
                "data": None if check else str(data),
                "messages": report.point.messages,
                "read_bytes": report.read_bytes,
                "damage": report.damage,
                "damage_at_backup": report.point.damage,
            }
        )
    else:
        did = "checked" if check else f"restored {data} from"
        print_note(
            f"{did} backup [bold]{report.point.name}[/]: {format_count(report.point.messages, 'message')}, "
            f"{format_size(report.read_bytes)}"
        )
        for line in report.damage:
            print_note(f"[red]damaged[/] {line}")
        for line in report.point.damage:
            print_note(f"[yellow]was damaged when it was backed up[/] {line}")
    raise typer.Exit(1 if check and report.damage else 0)


def _in_kilobytes(shown: Meter) -> Callable[[int, int], None]:
    def reach(done: int, total: int) -> None:
        shown.reach(done // KILOBYTE, max(total // KILOBYTE, 1))

    return reach
