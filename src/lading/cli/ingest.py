"""``lading ingest``: a topic into a Parquet table by the table path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..model.errors import LocalError
from .interruption import Interruption
from .options import DEFAULT_SERVER, AsOutput, From, Where
from .output import Output, document, json_line, meter, note, size

if TYPE_CHECKING:
    from ..columns.statistics import HeaderStatistics
    from ..spark.tables import Progress

SAMPLE_MESSAGES = 100_000


def ingest(
    topic: str,
    to: Annotated[Path, typer.Argument(help="Directory of the Parquet table; made when missing.")],
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help='What the table holds, e.g. "offset, carrier string, delay int"; found from messages unless given.',
        ),
    ] = None,
    where: Where = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on with what arrives, or stop at what is there now.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Directory of checkpoint and manifests; beside the table unless given."),
    ] = None,
    max_rows: Annotated[int | None, typer.Option("--max-rows", min=1, help="Rows a batch at most.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Begin a new checkpoint where the table's manifests end.")
    ] = False,
    from_: From = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Read a topic into Parquet with typed header columns, each message exactly once; run it again to go on.

    Examples:

        lading ingest flights ./tables/flights

        lading ingest flights ./tables/late --columns "offset, carrier string, dep_delay int" --where "dep_delay > 60"
    """
    from ..tables.files import check_directory, local_directory
    from .connection import absent_columns, absent_headers, header_statistics

    # before seconds go by in which Spark starts
    for what, directory in (("the table", to), ("the state directory", state)):
        if directory is not None:
            check_directory(what, local_directory(what, directory))
    if columns is None:
        columns = inferred_columns(header_statistics(from_, topic, limit=SAMPLE_MESSAGES))
        note(f"[dim]columns: {columns}[/]")
    else:
        for sentence in absent_columns(from_, topic, columns):
            note(sentence)
    if where is not None:
        for sentence in absent_headers(from_, topic, where):
            note(sentence)
    from ..spark.tables import ingest as ingest_topic

    with (
        Interruption().taken() as interruption,
        interruption.spark("lading ingest") as session,
        meter(f"{topic} to Parquet", None, "rows") as progress,
    ):

        def on_progress(now: Progress) -> None:
            progress.reach(now.rows, now.rows + now.lag)
            if output is Output.JSON:
                json_line({"event": "progress", "rows": now.rows, "lag": now.lag, "rows_per_s": round(now.rows_per_s)})

        report = ingest_topic(
            session(), from_, topic, to, columns=columns, where=where, state_dir=state, max_rows=max_rows,
            follow=follow, resume=resume, on_progress=on_progress, stopped=lambda: interruption.came,
        )  # fmt: skip
    if output is Output.JSON:
        document(
            {
                "rows": report.rows,
                "files": report.files,
                "bytes": report.size_bytes,
                "rows_per_s": round(report.rows_per_s),
                "table": str(to),
            }
        )
    else:
        written = f"{report.files} file(s), {size(report.size_bytes)}, {report.rows_per_s:,.0f} rows/s"
        note(f"[bold]{report.rows:,}[/] rows in {written}: {to}")


def inferred_columns(statistics: HeaderStatistics) -> str:
    """The columns that a topic's own headers suggest: offset, timestamp, each key with the type its kinds share."""
    if not statistics.messages:
        raise LocalError(
            "the topic holds no messages yet, so its columns cannot be found out; name them with --columns"
        )
    return ", ".join(["offset", "timestamp", *statistics.suggested_columns()])
