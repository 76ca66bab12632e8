"""A queue as a streaming source: a spool between it and Spark, nothing lost over a restart of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from lading import Producer, read_arrow, testing
from lading.model.errors import SettingError
from lading.pipeline.check import check
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.run import run, source_options
from lading.pipeline.settings import PipelineSettings
from lading.tables.plan.options import SourceOptions
from lading.tables.plan.spooling import Spooled, refuse_queue, resolve_spool
from tests.interop.go_programs import RunningNsq, Unavailable, running

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


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
    with pytest.raises(SettingError, match="messages are removed from it when they are read"):
        resolve_spool(options())
    with pytest.raises(SettingError, match="a batch read could not be repeated"):
        refuse_queue(options(spool="/x"))
    with pytest.raises(SettingError, match="spool is for queues"):
        resolve_spool(SourceOptions.parse({"from": "lading://h:1", "topic": "t", "spool": "/x"}))
    made = resolve_spool(options(spool="/x", channel="c", **{"transport.tag": "A"}))
    assert isinstance(made, Spooled)
    assert (made.from_, made.queue, made.channel) == ("/x", "nsq://127.0.0.1:4161", "c")
    assert (dict(made.transport), dict(made.queue_options)) == ({}, {"tag": "A"})
    with pytest.raises(SettingError, match="spoolKeepS is '0'"):
        options(spool="/x", spoolKeepS="0")


@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.turns(6, part=2)
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


@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.turns(6, part=5)
def test_headers_go_out_as_ext_and_come_back_as_typed_columns(
    spark: SparkSession, broker: testing.BrokerProcess, real: RunningNsq, tmp_path: Path
) -> None:
    """Sinks, batch and streaming, and streams as sources: at our servers and at upstream's, which know no ext."""
    rows = 600
    flights = spark.range(rows).selectExpr(
        "cast(id as string) as payload", "concat('U', id % 3) as carrier", "cast(id % 100 as int) as delay"
    )
    (tmp_path / "in").mkdir()
    flights.write.parquet(str(tmp_path / "in" / "table"))
    out = {"topic": "out", "headers": "carrier,delay"}
    to = f"nsq://{broker.endpoints['nsqd_tcp']}"
    flights.write.format("lading").options(to=to, **out).mode("append").save()
    stream = spark.readStream.schema(flights.schema).parquet(str(tmp_path / "in" / "table"))
    query = stream.writeStream.format("lading").options(to=to, **out)
    query = query.option("checkpointLocation", str(tmp_path / "out")).trigger(availableNow=True)
    query.start().awaitTermination(90)
    plain = flights.select("payload")
    plain.write.format("lading").options(to=f"nsq://{real.nsqd_tcp}", topic="out").mode("append").save()

    def read(lookup: str, name: str) -> list[Row]:
        (
            spark.readStream.format("lading")
            .schema("offset long, payload binary, carrier string, delay int")
            .options(**{"from": f"nsq://{lookup}"}, topic="out", spool=str(tmp_path / name))
            .load()
            .writeStream.format("memory")
            .queryName(name)
            .trigger(availableNow=True)
            .start()
            .awaitTermination(90)
        )
        return spark.table(name).orderBy("offset").collect()

    found = read(broker.endpoints["nsqlookupd_http"], "typed")
    expected = sorted((str(id_), f"U{id_ % 3}", id_ % 100) for id_ in range(rows) for _ in range(2))
    assert sorted((row.payload.decode(), row.carrier, row.delay) for row in found) == expected
    found = read(real.nsqlookupd_http, "plain")
    assert sorted(int(row.payload) for row in found) == list(range(rows))
    assert {(row.carrier, row.delay) for row in found} == {(None, None)}


def queue_settings(from_: str, directory: Path, **headers: str) -> PipelineSettings:
    """A pipeline from the topic ``queue``, with a contract and a quarantine topic."""
    document = {
        "source": {"from": f"nsq://{from_}", "topic": "queue"},
        "headers": headers,
        "good": {"to": "parquet:good"},
        "route": [{"where": "delay > 60", "to": "parquet:late"}],
        "quality": {"max_failure_ratio": 1.0},
        "quarantine": {"topic": "queue-quarantine"},
    }
    return PipelineSettings(document, directory, "queue.toml")


@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.turns(6, part=4)
def test_a_pipeline_takes_from_a_queue_by_itself(
    spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    lookup = broker.endpoints["nsqlookupd_http"]
    settings = queue_settings(lookup, tmp_path, carrier="string required", delay="int")
    assert check(settings, lambda: spark) == []

    def publish(first: int, end: int) -> None:
        with Producer(f"nsq://{broker.endpoints['nsqd_tcp']}") as producer:
            for number in range(first, end):
                carrier = [("carrier", "UA")] if number % 10 else []
                producer.send("queue", b"%d" % number, headers=[*carrier, ("delay", number)])

    publish(0, 100)
    assert run(lambda: spark, settings)["read"] == 100
    publish(100, 130)
    assert run(lambda: spark, settings)["read"] == 30
    tables = [spark.read.parquet(str(tmp_path / name)) for name in ("good", "late", "good_quarantine")]
    counts = [table.count() for table in tables]
    assert counts == [54, 63, 13]
    # what was read is the pipeline's channel's, and another pipeline would get all of it again
    told = httpx.get(f"http://{broker.endpoints['nsqd_http']}/stats?format=json&topic=queue").json()
    assert [(one["channel_name"], one["depth"]) for one in told["topics"][0]["channels"]] == [("queue", 0)]
    # copies went to the quarantine topic, each with its reason; sent again under another contract they are good
    copies = read_arrow(broker.url, "queue-quarantine", "payload, reason string from lading-reason").to_pylist()
    failed = sorted(b"%d" % number for number in range(0, 130, 10))
    assert sorted(one["payload"] for one in copies) == failed
    assert {one["reason"] for one in copies} == {"missing_header"}
    settings = queue_settings(lookup, tmp_path, carrier="string", delay="int")
    assert Quarantine(settings).redrive(where="delay > 0", limit=5).sent == 5
    assert Quarantine(settings).redrive().sent == 8
    assert run(lambda: spark, settings)["read"] == 13
    tables = [spark.read.parquet(str(tmp_path / name)) for name in ("good", "late", "good_quarantine")]
    assert [table.count() for table in tables] == [61, 69, 13]
    again = read_arrow(broker.url, "queue", "payload, replays int from lading-replays", where="offset >= 130")
    assert {value.as_py() for value in again["payload"]} == set(failed)
    assert set(again["replays"].to_pylist()) == {1}
    assert Quarantine(settings).redrive().sent == 0


@pytest.mark.interop
def test_copies_are_not_promised_to_an_nsqd_that_knows_no_headers(real: RunningNsq, tmp_path: Path) -> None:
    settings = queue_settings(real.nsqlookupd_http, tmp_path, delay="int required")
    (problem,) = check(settings, lambda: pytest.fail("no session is needed"))
    assert (problem.part, "accepts no headers" in problem.sentence) == ("quarantine", True)
    # an nsqd by its own address is asked the same, though it lists no topics
    (problem,) = check(queue_settings(real.nsqd_tcp, tmp_path, delay="int"), lambda: pytest.fail("none"))
    assert (problem.part, "accepts no headers" in problem.sentence) == ("quarantine", True)


def test_only_queues_have_spools(tmp_path: Path) -> None:
    document = {"source": {"from": "./data", "topic": "t", "spool": "x"}, "good": {"to": "parquet:good"}}
    settings = PipelineSettings(document, tmp_path, "p.toml")
    with pytest.raises(SettingError, match="spool and channel are for queues"):
        source_options(settings, settings.document.source[0])
