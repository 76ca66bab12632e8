"""``lading ingest``: a topic copied into a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..model.errors import LocalError
from ..model.extras import require_spark
from ..model.printable import escape_unseen, quote_for_shell
from .interruption import Interruption
from .options import DEFAULT_SERVER, AsOutput, Ending, From, Resume, Where
from .output import Output, format_count, format_rate, format_size, json_line, meter, print_note
from .payload_options import PayloadFormat, PayloadMessage, PayloadRegistry, PayloadSchema, gather_payload
from .storage_option import Storage, parse_storage

if TYPE_CHECKING:
    from ..columns.statistics import HeaderStatistics
    from ..spark.session import SparkSession
    from ..tables.executor import Executor
    from ..tables.ingest import IngestProgress

SAMPLE_MESSAGES = 100_000


def ingest(
    topic: Annotated[
        str,
        typer.Argument(
            help="Topic, STREAM.TOPIC in another stream than default; several are separated by commas, and with "
            "--pattern it is a regular expression."
        ),
    ],
    # a str: a Path would turn s3:// into the directory "s3:"
    to: Annotated[
        str,
        typer.Argument(
            metavar="DIRECTORY",
            help="Directory of the Parquet table; delta: or iceberg: before it for such a table, {topic} in it for a "
            "table of each topic. Created if missing.",
        ),
    ],
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help='Columns of the table, e.g. "offset, carrier string, delay int". Default: all fields but the raw '
            "headers, and each header with the type that its values suggest.",
        ),
    ] = None,
    pattern: Annotated[
        bool,
        typer.Option(
            "--pattern", help="Read all topics whose whole names match TOPIC, with --follow also those created later."
        ),
    ] = False,
    where: Where = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            metavar="COLUMN",
            help="Divide the table by a column, or by year(…), month(…), day(…) or hour(…) of a time. May be repeated.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--once", help="Keep running (--follow), or stop at the current end of the topic (--once)."
        ),
    ] = False,
    starting: Annotated[
        str,
        typer.Option(
            "--starting",
            metavar="PLACE",
            help="Where a new table begins: earliest, latest, an offset, a time like 2026-01-31T12:00 (UTC), or "
            "offsets by partition like '{\"0\": 4711}'. A table that exists continues where it ends.",
        ),
    ] = "earliest",
    ending: Ending = "latest",
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="DIRECTORY",
            help="Directory for the checkpoint and manifests; needed for object stores. Default: next to the table.",
        ),
    ] = None,
    max_rows: Annotated[int | None, typer.Option("--max-rows", min=1, help="Maximum rows per batch.")] = None,
    verify_checksum: Annotated[
        bool,
        typer.Option(
            "--verify-checksum/--no-verify-checksum", help="End at a payload that is not what its checksum says."
        ),
    ] = True,
    payload_format: PayloadFormat = None,
    payload_schema: PayloadSchema = None,
    payload_message: PayloadMessage = None,
    registry: PayloadRegistry = None,
    resume: Resume = False,
    local: Annotated[
        bool, typer.Option("--local", help="Work in processes of this machine, without Spark and Java.")
    ] = False,
    from_: From = DEFAULT_SERVER,
    storage: Storage = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Copy a topic, or several, into a table with typed header columns, exactly once. Rerun to continue.

    Without --columns the inferred columns are printed as a proposal, with what was found as comments.

    Examples:

        lading ingest flights ./tables/flights

        lading ingest flights ./tables/late --columns "offset, carrier string, dep_delay int" --where "dep_delay > 60"

        lading ingest flights delta:./tables/flights --local

        lading ingest flights ./tables/today --starting 2026-01-31 --ending 2026-02-01

        lading ingest 'flights[.].*' ./tables/all --pattern --local --follow
    """
    from ..tables.formats.registry import split_target
    from ..tables.plan.offset_options import parse_offsets
    from ..tables.storage.files import check_directory, local_directory, table_location
    from ..tables.topic_tables import has_topic, parent_of_topic_tables
    from ..transports.topic_selection import TopicSelection
    from .connection import absent_columns, absent_headers, find_topics, header_statistics

    if not local:
        require_spark("add --local to work without it")
    # checked before Spark starts, which takes seconds
    parse_offsets("--starting", starting)
    parse_offsets("--ending", ending)
    payload = gather_payload(payload_format, payload_schema, payload_message, registry)
    place = table_location("table", split_target(to)[1])
    around = parent_of_topic_tables(str(place)) if has_topic(place) else str(place)
    references = parse_storage(storage)
    if references is not None:
        references.bind([around])
    check_directory("the table", place if not has_topic(place) or "://" in around else Path(around))
    check_directory("the state directory", local_directory("the state directory (--state)", state or around))
    names = [] if pattern else [name.strip() for name in topic.split(",") if name.strip()]
    selection = TopicSelection.parse(names or [topic], topic if pattern else None, "--pattern")
    looked_at = find_topics(from_, selection)
    if columns is None:
        statistics = header_statistics(from_, looked_at, limit=SAMPLE_MESSAGES)
        columns = infer_columns(statistics)
        if output is Output.TEXT:
            for text in proposal(statistics, columns):
                print_note(f"[dim]{text}[/]")
    else:
        for sentence in absent_columns(from_, looked_at, columns):
            print_note(sentence)
    if where is not None:
        for sentence in absent_headers(from_, looked_at, where, reads_json=payload is None):
            print_note(sentence)
    from ..columns.instants import unreadable_times_sentence
    from ..tables.formats.partitions import long_values_sentence
    from ..tables.ingest import IngestSettings
    from ..tables.ingest import ingest as ingest_topic
    from ..tables.local import LocalExecutor

    with (
        Interruption().install() as interruption,
        interruption.spark("lading ingest") as session,
        meter(f"{topic} to {split_target(to)[0].partition(':')[0].capitalize()}", None, "rows") as progress,
    ):

        def on_progress(now: IngestProgress) -> None:
            progress.reach(now.rows, now.rows + now.lag)
            if output is Output.JSON:
                facts = {"rows": now.rows, "lag": now.lag, "rows_per_s": round(now.rows_per_s)}
                json_line({"event": "progress", **facts, "lag_by_topic": now.lag_by_topic})

        with closing(LocalExecutor() if local else spark_executor(session(), topic, to)) as executor:
            report = ingest_topic(
                executor, from_, topic if len(selection.names) == 1 else None, to,
                IngestSettings(
                    columns=columns, where=where, state_dir=state, max_rows=max_rows, follow=follow, resume=resume,
                    verify_checksum=None if verify_checksum else False, partition_by=partition_by or (),
                    storage=references, starting=starting, ending=ending, payload=payload,
                    topics=selection.names if len(selection.names) > 1 else (), topic_pattern=selection.pattern,
                ),
                on_progress=on_progress, stopped=lambda: interruption.is_requested,
            )  # fmt: skip
    if output is Output.JSON:
        json_line(
            {
                "rows": report.rows,
                "files": report.files,
                "bytes": report.size_bytes,
                "rows_per_s": round(report.rows_per_s),
                "bad_values": report.bad_values,
                "unreadable_times": report.unreadable_times,
                "long_values": report.long_values,
                "table": str(to),
            }
        )
    else:
        rate = format_rate(report.rows_per_s, "row")
        written = f"{format_count(report.files, 'file')}, {format_size(report.size_bytes)}, {rate}"
        print_note(f"[bold]{format_count(report.rows, 'row')}[/] in {written}: {to}")
        if report.bad_values:
            print_note(f"{report.bad_values:,} values do not fit the type of their column and are null in the table")
        if report.long_values:
            print_note(long_values_sentence(report.long_values))
        if report.unreadable_times:
            print_note(unreadable_times_sentence(report.unreadable_times, "the table"))


def spark_executor(spark: SparkSession, topic: str, to: str) -> Executor:
    """Return the executor that runs tasks on Spark."""
    from ..spark.connect_executor import make_executor

    return make_executor(spark, f"lading ingest {topic}", f"the table {to}")


def infer_columns(statistics: HeaderStatistics) -> str:
    """Return columns for the message fields and for each header key, with the common type of its kinds."""
    if not statistics.messages:
        raise LocalError("the topic holds no messages yet, so its columns cannot be inferred; name them with --columns")
    from ..tables.query import AFTER, BEFORE

    return ", ".join([*BEFORE, *statistics.suggest_columns(), *AFTER])


def proposal(statistics: HeaderStatistics, columns: str) -> Iterator[str]:
    """Yield the columns as comment lines, with the statistics of each header, and how to choose others.

    A line end in a header key is escaped: it would begin a line after the comment.
    """
    from ..tables.query import AFTER, BEFORE

    messages = format_count(statistics.messages, "message")
    among = f"the first {messages}" if statistics.messages >= SAMPLE_MESSAGES else f"the values of {messages}"
    yield f"# columns, with types by {among}; what does not fit a type becomes null"
    yield f"#   {', '.join(BEFORE)}"
    found = {row["key"]: row for row in statistics.rows()}
    for key, column in zip(statistics.keys, statistics.suggest_columns(), strict=True):
        row = found[key]
        examples = f": {row['examples']}" if row["examples"] else ""
        yield f"#   {escape_unseen(column):<24} # {row['share']:.1f} % have it, {row['kinds']}{examples}"
    yield f"#   {', '.join(AFTER)}"
    if "\0" in columns:
        # arguments of a program cannot contain NUL: it marks columns that were not chosen
        kept = [column for column in statistics.suggest_columns() if "\0" not in column]
        columns = ", ".join([*BEFORE, *kept, *AFTER])
    yield f"# to choose others: --columns {quote_for_shell(columns)}"
