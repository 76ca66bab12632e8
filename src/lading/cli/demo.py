"""``lading demo``: the flights of 2013, from messages with typed headers to a Spark table."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..model.errors import LocalError
from .output import meter, note, size

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC = "flights"
COLUMNS = (
    "offset, timestamp, carrier string, flight int, origin string, dest string, "
    "dep_delay int, arr_delay int, scheduled timestamp, tail string"
)
MARK = ".lading-demo"


def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="Where the demo keeps its log and tables; emptied at start.")
    ] = Path("demo-data"),
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Go on with Spark after the first screen.")] = True,
    limit: Annotated[int | None, typer.Option("--limit", min=2, help="Send this many flights only.")] = None,
) -> None:
    """Send 336,776 flights with typed headers over two protocols, then read them as a typed table.

    The first screen needs no Java. Then Spark reads the same log: a typed DataFrame, an aggregate, and a
    Parquet table by the table path.

    Examples:

        lading demo

        lading demo --no-spark --limit 10000
    """
    from .. import testing
    from .flights import read_table

    _clear(directory)
    begun = time.monotonic()
    with testing.broker(data_dir=directory / "log") as broker:
        _title("1  The broker")
        for name, address in broker.endpoints.items():
            note(f"   {name:<10} {address}")
        note(f"   [dim]one process, data in {directory / 'log'}, every acknowledged message is synced to disk[/]")
        flights = read_table()
        sent = _send(flights.slice(0, limit) if limit else flights, broker.endpoints)
        _title("3  What the messages carry")
        _header_table(broker.url, sent)
        note(f"   [dim]first screen after {time.monotonic() - begun:.1f} s[/]")
        if spark:
            _spark(broker.url, directory, sent)
    _next_steps(directory, spark)


def _clear(directory: Path) -> None:
    """Empty the demo's own directory; never anybody else's."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).exists():
            raise LocalError(f"{directory} exists and is no demo directory; name another one with --dir")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()


def _send(flights: pa.Table, endpoints: dict[str, str]) -> int:
    """Half over Iggy TCP, half natively; returns how many were sent."""
    from ..client.producer import Producer
    from .flights import batches

    _title("2  Messages with typed headers")
    half = flights.num_rows // 2
    routes = (
        ("Iggy TCP", f"iggy://{endpoints['iggy_tcp']}", f"airlines.{TOPIC}", flights.slice(0, half)),
        ("native", f"lading://{endpoints['admin']}", f"airlines.{TOPIC}", flights.slice(half)),
    )
    with Producer(f"lading://{endpoints['admin']}") as admin:
        admin.transport.create_topic(f"airlines.{TOPIC}", 4)
    for label, url, topic, part in routes:
        begun = time.monotonic()
        with Producer(url) as producer, meter(f"   {label}", part.num_rows) as progress:
            for batch in batches(part):
                producer.send_batch(topic, batch)
                progress.advance(batch.num_rows)
        took = time.monotonic() - begun
        rate = f"{part.num_rows / took:,.0f} messages/s, acknowledged after sync"
        note(f"   {label:<10} [bold]{part.num_rows:>9,}[/] flights in {took:.1f} s, {rate}")
    note("   [dim]a null delay cannot travel in an Iggy header: it rides in the carrier and is rebuilt on reading[/]")
    return int(flights.num_rows)


def _header_table(url: str, sent: int) -> None:
    from .connection import header_statistics
    from .headers import COLUMNS as HEADER_COLUMNS
    from .output import Output, table

    statistics = header_statistics(url, f"airlines.{TOPIC}")
    table(statistics.rows(), HEADER_COLUMNS, output=Output.TEXT)
    _adds_up("messages read back", statistics.messages, sent)


def _adds_up(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise LocalError(f"{what}: {found:,}, but {expected:,} were sent; please report this")
    note(f"   [green]✓[/] {what}: {found:,} of {expected:,}")


@contextmanager
def _step(label: str) -> Iterator[None]:
    from rich.console import Console

    with Console(stderr=True).status(f"   {label}"):
        yield


def _spark(url: str, directory: Path, sent: int) -> None:
    from ..spark import tables
    from ..spark.session import session

    _title("4  The same messages in Spark")
    begun = time.monotonic()
    with _step("starting Spark …"):
        spark = session("lading demo")
    note(f"   session up after {time.monotonic() - begun:.1f} s")
    try:
        schema = "carrier string, dest string, dep_delay int, tail string"
        frame = (
            spark.read.format("lading").schema(schema).option("from", url).option("topic", f"airlines.{TOPIC}").load()
        )
        note(f'   spark.read.format("lading").schema("{schema}")')
        begun = time.monotonic()
        with _step("aggregating …"):
            frame.createOrReplaceTempView("flights")
            rows = spark.sql(
                "SELECT carrier, count(*) AS flights, count(dep_delay) AS left_ground,"
                " round(avg(dep_delay), 1) AS delay_min, count_if(dep_delay > 60) AS late"
                " FROM flights GROUP BY carrier ORDER BY flights DESC"
            ).collect()
        took = time.monotonic() - begun
        _aggregate([row.asDict() for row in rows][:6])
        _adds_up(
            f"flights in the DataFrame, {sent / took:,.0f} rows/s with start-up",
            sum(row["flights"] for row in rows),
            sent,
        )

        _title("5  Into Parquet by the table path")
        target = directory / "tables" / TOPIC
        with meter("   ingest", sent, "rows") as progress:
            report = tables.ingest(
                spark,
                url,
                f"airlines.{TOPIC}",
                target,
                columns=COLUMNS,
                on_progress=lambda now: progress.reach(now.rows, sent),
            )
        rate = f"{report.rows_per_s:,.0f} rows/s"
        note(f"   [bold]{report.rows:,}[/] rows, {report.files} files, {size(report.size_bytes)}, {rate}")
        import pyarrow.parquet as pq

        _adds_up(
            "rows in the Parquet table", sum(pq.read_metadata(file).num_rows for file in target.glob("*.parquet")), sent
        )
        manifests = sorted((directory / "tables").rglob("manifests/*.json"))
        note(
            f"   [dim]table {target}, {len(manifests)} manifest(s) in {manifests[0].parent if manifests else target}[/]"
        )
    finally:
        spark.stop()


def _aggregate(rows: list[dict[str, object]]) -> None:
    from .output import Output, table

    columns = {
        "carrier": "carrier",
        "flights": "flights",
        "left_ground": "left",
        "delay_min": "mean delay, min",
        "late": "over 1 h late",
    }
    table(rows, columns, output=Output.TEXT)


def _title(text: str) -> None:
    note(f"\n[bold]{text}[/]")


def _next_steps(directory: Path, spark: bool) -> None:
    _title("Try next")
    log = directory / "log"
    for command, what in (
        (
            f"lading message poll airlines.{TOPIC} --from {log} -n 3 --where \"carrier = 'UA' AND dep_delay > 300\"",
            "a filter over headers",
        ),
        (f"lading headers airlines.{TOPIC} --from {log} --output json", "the header table for programs"),
        (f"lading serve --data {log}", "the same broker for your own clients"),
        *(
            [
                (
                    f'lading ingest airlines.{TOPIC} {directory}/tables/late --from {log} --where "dep_delay > 60"',
                    "another table",
                )
            ]
            if spark
            else []
        ),
    ):
        note(f"   {command}\n      [dim]{what}[/]")
