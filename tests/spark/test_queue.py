"""A queue as a streaming source: a spool between it and Spark, nothing lost over a restart of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lading import Producer
from lading.model.errors import SettingError
from lading.spark.options import SourceOptions
from lading.spark.spooling import Spooled, refuse_queue, spooled
from tests.interop.go_programs import RunningNsq, Unavailable, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNsq]:
    """Upstream's servers."""
    try:
        with running(tmp_path_factory.mktemp("nsq")) as servers:
            yield servers
    except Unavailable as reason:
        pytest.skip(str(reason))


def options(**given: str) -> SourceOptions:
    """Options of a stream from a queue."""
    return SourceOptions.parse({"from": "nsq://127.0.0.1:4161", "topic": "t", **given})


def test_a_queue_needs_a_spool_and_takes_no_batch_read() -> None:
    with pytest.raises(SettingError, match="messages are gone from it when they are read"):
        spooled(options())
    with pytest.raises(SettingError, match="a batch read could not be repeated"):
        refuse_queue(options(spool="/x"))
    with pytest.raises(SettingError, match="spool is for queues"):
        spooled(SourceOptions.parse({"from": "lading://h:1", "topic": "t", "spool": "/x"}))
    made = spooled(options(spool="/x", channel="c", **{"transport.tag": "A"}))
    assert isinstance(made, Spooled)
    assert (made.from_, made.queue, made.channel) == ("/x", "nsq://127.0.0.1:4161", "c")
    assert (dict(made.transport), dict(made.queue_options)) == ({}, {"tag": "A"})


@pytest.mark.spark
@pytest.mark.interop
def test_a_stream_from_nsqd_reads_everything_once_over_a_restart(
    spark: SparkSession, real: RunningNsq, tmp_path: Path
) -> None:
    def publish(first: int, end: int) -> None:
        with Producer(f"nsq://{real.nsqd_tcp}") as producer:
            for number in range(first, end):
                producer.send("flights", b"%d" % number)

    def run() -> None:
        stream = (
            spark.readStream.format("lading")
            .option("from", f"nsq://{real.nsqlookupd_http}")
            .option("topic", "flights")
            .option("spool", str(tmp_path / "spool"))
            .load()
            .selectExpr("offset", "cast(payload as string) as number")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "table"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        stream.awaitTermination(90)

    publish(0, 1000)
    run()
    publish(1000, 1500)
    run()
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row["offset"] for row in rows) == list(range(1500))
    assert sorted(int(row["number"]) for row in rows) == list(range(1500))
