"""``lading backup`` and ``lading restore``: a data directory kept elsewhere, and put back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer

from .options import AsOutput, local_path
from .output import Meter, Output, format_date, format_size, json_line, meter, print_note, print_table

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


def backup(data: Data, to: Store, output: AsOutput = Output.TEXT) -> None:
    """Back up a data directory while its broker runs, or after it ended.

    Everything that was acknowledged before is in the backup. Segments that an earlier backup in DEST has are not
    copied again. An interrupted backup is no backup; the next run continues it.

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
        f"backup [bold]{point.name}[/]: {point.messages:,} messages, partitions: {point.partitions:,}, "
        f"{format_size(point.size_bytes)}; {format_size(report.copied_bytes)} copied, "
        f"{format_size(report.kept_bytes)} were there"
    )
    for line in report.notes:
        print_note(f"[yellow]{line}[/]")
    for line in point.damage:
        print_note(f"[red]damaged in the data directory[/] {line}")


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
            f"{did} backup [bold]{report.point.name}[/]: {report.point.messages:,} messages, "
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
