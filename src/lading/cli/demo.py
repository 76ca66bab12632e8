"""``lading demo``: the flights of 2013, from messages with typed headers to tables of good and of bad flights."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..model.errors import LocalError
from ..model.extras import describe_install
from .interruption import Interruption
from .options import local_path
from .output import format_rate, meter, print_note

if TYPE_CHECKING:
    import pyarrow as pa

    from ..spark.session import SparkSession

TOPIC = "flights"
SCHEMA = "carrier string, dest string, dep_delay int, tail string, distance int"
MEMBER = ("column.distance", "payload.distance")
"""The option by which a column of SCHEMA is a member of the JSON payload."""
MARK = ".lading-demo"
SECOND_PART = {"pyspark": "Spark", "deltalake": "Delta"}
"""Packages that the part after the first screen needs, and what they bring."""
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""JVM option: a JVM that lives for half a minute spends more on optimising code than it saves."""


def demo(
    directory: Annotated[
        Path,
        typer.Option("--dir", parser=local_path, metavar="DIR", help="Working directory of the demo; emptied first."),
    ] = Path("demo-data"),
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Continue with the Spark part.")] = True,
    limit: Annotated[int | None, typer.Option("--limit", min=2, help="Send at most this many flights.")] = None,
) -> None:
    """Run a guided demo: send 336,776 flights over three protocols and read them back as a typed table.

    Some flights are damaged on the way, on purpose. The first screen needs no Java. Then Spark reads the same log,
    and a pipeline sorts it into tables of good (Delta), late and broken flights. One of its runs is ended with kill -9
    and another one continues; what can be repaired is redriven, and the demo checks that the counts add up.

    Examples:

        lading demo

        lading demo --no-spark --limit 10000
    """
    from .. import testing
    from ..transports.secrets import forget_environment
    from .flights import read_table

    # the demo's broker uses plain connections, even if this shell is set up for another server
    forget_environment()
    # checked before anything is emptied or started
    flights = read_table()
    _clear(directory)
    missing = [name for package, name in SECOND_PART.items() if find_spec(package) is None]
    if spark and missing:
        print_note(
            f"[yellow]{' and '.join(missing)} not installed, so the demo ends after the first screen:[/] "
            + describe_install("demo")
        )
        spark = False
    begun = time.monotonic()
    with testing.broker(data_dir=directory / "log") as broker:
        _print_title("1  The broker")
        width = max(map(len, broker.endpoints))
        for name, address in broker.endpoints.items():
            print_note(f"   {name:<{width}} {address}")
        print_note(f"   [dim]one process, data in {directory / 'log'}, every acknowledged message is synced to disk[/]")
        sent = _send(flights.slice(0, limit) if limit else flights, broker.endpoints)
        _print_title("3  What the messages carry")
        _header_table(broker.url, sent)
        print_note(f"   [dim]first screen after {time.monotonic() - begun:.1f} s[/]")
        if spark:
            _run_spark(broker.url, directory, sent)
    _next_steps(directory, spark)


def _clear(directory: Path) -> None:
    """Empty the demo's own directory, never any other."""
    from ..tables.storage.files import make_directory

    if directory.is_dir() and any(directory.iterdir()):
        if not (directory / MARK).exists():
            raise LocalError(f"{directory} exists and is not a demo directory; name another one with --dir")
        shutil.rmtree(directory)
    make_directory("--dir", directory)
    (directory / MARK).touch()


def _send(flights: pa.Table, endpoints: dict[str, str]) -> int:
    """Send half over Iggy TCP, a few by a Kafka client, the rest natively; return how many."""
    from ..client.producer import Producer
    from . import demo_kafka
    from .flights import batches

    _print_title("2  Messages with typed headers")
    half, few = flights.num_rows // 2, demo_kafka.share(flights.num_rows)
    iggy, native, kafka = (
        flights.slice(0, half),
        flights.slice(half, flights.num_rows - half - few),
        flights.slice(flights.num_rows - few),
    )
    with Producer(f"lading://{endpoints['admin']}") as admin:
        admin.transport.create_topic(f"airlines.{TOPIC}", 4)
    routes = (
        ("Iggy TCP", _through_producer(f"iggy://{endpoints['iggy_tcp']}", batches(iggy)), half),
        ("native", _through_producer(f"lading://{endpoints['admin']}", _send_carelessly(native)), native.num_rows),
        ("Kafka", _through_kafka(endpoints["kafka"], batches(kafka)), few),
    )
    for label, sending, count in routes:
        begun = time.monotonic()
        with meter(f"   {label}", count) as progress:
            for rows in sending:
                progress.advance(rows)
        took = time.monotonic() - begun
        rate = f"{format_rate(count / took, 'message')}, acknowledged after sync"
        print_note(f"   {label:<10} [bold]{count:>9,}[/] flights in {took:.1f} s, {rate}")
    print_note(
        "   [dim]a null delay cannot travel in an Iggy header: it rides in the carrier and is rebuilt on reading[/]"
    )
    seen = demo_kafka.first(endpoints["kafka"], f"airlines.{TOPIC}")
    headers = ", ".join(f"{key}={value!r}" for key, value in seen[:5])
    print_note(f"   kafka-python reads what the Iggy client sent: [bold]{headers}, …[/]")
    return int(flights.num_rows)


def _through_producer(url: str, parts: Iterable[pa.RecordBatch]) -> Iterator[int]:
    from ..client.producer import Producer

    with Producer(url) as producer:
        for batch in parts:
            producer.send_batch(f"airlines.{TOPIC}", batch)
            yield batch.num_rows


def _through_kafka(address: str, parts: Iterable[pa.RecordBatch]) -> Iterator[int]:
    from . import demo_kafka

    for batch in parts:
        demo_kafka.send(address, f"airlines.{TOPIC}", batch)
        yield batch.num_rows


def _send_carelessly(flights: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the flights as a careless sender would: some payloads damaged, some delays written as words."""
    from .demo_faults import with_faults
    from .flights import batches

    first = 0
    for batch in batches(flights):
        yield from with_faults(batch, first)
        first += batch.num_rows


def _header_table(url: str, sent: int) -> None:
    from .connection import header_statistics
    from .headers import COLUMNS as HEADER_COLUMNS
    from .output import Output, print_table

    statistics = header_statistics(url, f"airlines.{TOPIC}")
    print_table(statistics.rows(), HEADER_COLUMNS, output=Output.TEXT)
    _adds_up("messages read back", statistics.messages, sent)


def _adds_up(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise LocalError(f"{what}: {found:,}, but {expected:,} were sent; please report this")
    print_note(f"   [green]✓[/] {what}: {found:,} of {expected:,}")


@contextmanager
def _show_step(label: str) -> Iterator[None]:
    from rich.console import Console

    with Console(stderr=True).status(f"   {label}"):
        yield


def _run_spark(url: str, directory: Path, sent: int) -> None:
    from ..pipeline.run import SESSION
    from . import demo_pipeline

    _print_title("4  The same messages in Spark")
    begun = time.monotonic()
    options = {"spark.driver.extraJavaOptions": QUICK_COMPILER, **SESSION}
    with (
        Interruption().install() as interruption,
        interruption.spark("lading demo", starts=lambda: None, **options) as session,
    ):
        with _show_step("starting Spark …"):
            spark = session()
        print_note(f"   session up after {time.monotonic() - begun:.1f} s [dim](Spark's own start, once)[/]")
        print_note(f'   spark.read.format("lading").schema("{SCHEMA}").option("{MEMBER[0]}", "{MEMBER[1]}")')
        begun = time.monotonic()
        with _show_step("aggregating …"):
            rows = interruption.run_interruptibly(lambda: _by_carrier(spark, url))
        took = time.monotonic() - begun
        _aggregate(rows[:6])
        _adds_up(
            f"flights in the DataFrame, {format_rate(sent / took, 'row')} with start-up",
            sum(row["flights"] for row in rows),
            sent,
        )
        demo_pipeline.pipeline(
            spark, url, f"airlines.{TOPIC}", directory, sent, _adds_up, lambda: interruption.is_requested
        )
        interruption.check()


def _by_carrier(spark: SparkSession, url: str) -> list[dict[str, Any]]:
    source = spark.read.format("lading").schema(SCHEMA).option(*MEMBER)
    frame = source.option("from", url).option("topic", f"airlines.{TOPIC}").load()
    frame.createOrReplaceTempView("flights")
    rows = spark.sql(
        "SELECT carrier, count(*) AS flights, count(dep_delay) AS left_ground,"
        " round(avg(dep_delay), 1) AS delay_min, count_if(dep_delay > 60) AS late,"
        " round(avg(distance)) AS miles"
        " FROM flights GROUP BY carrier ORDER BY flights DESC"
    ).collect()
    return [row.asDict() for row in rows]


def _aggregate(rows: list[dict[str, Any]]) -> None:
    from .output import Output, print_table

    columns = {
        "carrier": "carrier",
        "flights": "flights",
        "left_ground": "left",
        "delay_min": "mean delay, min",
        "late": "over 1 h late",
        "miles": "mean distance, miles (payload)",
    }
    print_table(rows, columns, output=Output.TEXT)


def _print_title(text: str) -> None:
    print_note(f"\n[bold]{text}[/]")


def _next_steps(directory: Path, spark: bool) -> None:
    from . import demo_pipeline

    _print_title("Try next")
    log = directory / "log"
    for command, what in (
        (
            f"lading message poll airlines.{TOPIC} --from {log} -n 3 "
            "--where \"carrier = 'UA' AND payload.distance > 2500\"",
            "a filter over headers and JSON payloads",
        ),
        (f"lading headers airlines.{TOPIC} --from {log} --output json", "the header table for programs"),
        (
            f"lading serve --data {log}",
            "the same broker for your own clients; lading doctor names ports that are taken",
        ),
        *(
            [(f"lading pipeline run {directory}/{demo_pipeline.FILE}", "the pipeline, with that broker up")]
            if spark
            else []
        ),
    ):
        print_note(f"   {command}\n      [dim]{what}[/]")
