"""Real Kafka topics in Spark: places, losses and what nobody may see; beside Spark's own connector; the sink."""

from __future__ import annotations

import json
import re
import struct
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lading.client.bulk import read_arrow
from lading.columns.contract import parse_columns
from lading.model.errors import DataLoss, SettingError
from lading.spark.source import LadingReader, LadingSource
from lading.spark.stream_limits import LimitedStreamReader
from lading.spark.types import schema_of
from lading.tables.plan.options import SourceOptions
from lading.tables.plan.source_planner import SourcePlanner
from lading.transports.kafka.socket import KafkaSocket
from tests.interop import kafka_broker, maven
from tests.interop.kafka_clients import (
    admin_of,
    confluent,
    fresh_name,
    made,
    producer,
    wait_until_known,
    wait_until_stable,
)

from . import connector
from .test_sink import FaultySource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CONTRACT = "partition, offset, key, carrier string, delay int be, trace binary"
HEADERS = "array<struct<key string, kind tinyint, value binary>>"
ROWS = 4000


@pytest.fixture(scope="module")
def flights(kafka: kafka_broker.RunningKafka) -> str:
    """Two partitions of messages with duplicates, nulls, odd bytes, and without headers, by librdkafka."""
    # its times are long ago
    topic = made(kafka, 2, retention_ms="-1")
    sender = producer(kafka, **{"compression.type": "lz4"})
    for number in range(ROWS):
        headers: Any = [
            ("carrier", [b"UA", b"AA", b"\xff\xfe"][number % 3]), ("delay", struct.pack(">i", number - 500)),
            ("trace", None if number % 5 == 0 else b"%d" % number), ("carrier", b"DL" if number % 7 == 0 else b"B6"),
        ]  # fmt: skip
        sender.produce(
            topic, value=b"payload %d" % number, key=b"k%d" % number if number % 2 else None,
            headers=headers if number % 11 else None, partition=number % 2, timestamp=1_700_000_000_000 + number * 1000,
        )  # fmt: skip
    assert sender.flush(30) == 0
    return topic


def options(kafka: kafka_broker.RunningKafka, topic: str, **more: Any) -> SourceOptions:
    return SourceOptions.parse(
        {"from": kafka.url, "topic": topic, **{name: str(value) for name, value in more.items()}}
    )


def schema(columns: str) -> StructType:
    return schema_of(parse_columns(columns))


def read(kafka: kafka_broker.RunningKafka, topic: str, **more: Any) -> dict[int, list[int]]:
    """Offsets by partition that a batch read gives, through the source's own classes."""
    reader = LadingReader(options(kafka, topic, **more), schema("partition, offset"))
    found: dict[int, list[int]] = {}
    for piece in reader.partitions():
        for batch in reader.read(piece):
            for row in batch.to_pylist():
                found.setdefault(row["partition"], []).append(row["offset"])
    return found


def micro_batches(kafka: kafka_broker.RunningKafka, topic: str, **more: Any) -> list[list[tuple[int, int]]]:
    """What each micro-batch of an AvailableNow stream reads, as Spark would ask for it."""
    reader = LimitedStreamReader(options(kafka, topic, **more), schema("partition, offset"))
    reader.prepareForTriggerAvailableNow()
    at = json.loads(json.dumps(reader.initialOffset()))
    found = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        end = json.loads(json.dumps(end))
        rows = [
            row for piece in reader.partitions(at, end) for batch in reader.read(piece) for row in batch.to_pylist()
        ]
        found.append([(row["partition"], row["offset"]) for row in rows])
        at = end
    reader.stop()
    return found


def test_places_to_begin_and_end(kafka: kafka_broker.RunningKafka, flights: str) -> None:
    half = ROWS // 2
    assert read(kafka, flights) == {0: list(range(half)), 1: list(range(half))}
    assert read(kafka, flights, startingOffsets="latest") == {}
    by_topic = json.dumps({flights: {"0": half - 3, "1": -1}})
    assert read(kafka, flights, startingOffsets=by_topic) == {0: [half - 3, half - 2, half - 1]}
    assert read(kafka, flights, endingOffsets='{"0": 2, "1": 1}', startingOffsets='{"1": -2}') == {0: [0, 1], 1: [0]}
    # messages have a second each, by turns in the two partitions
    moment = json.dumps({"timestamp": (1_700_000_000_000 + (ROWS - 4) * 1000) * 1000})
    assert read(kafka, flights, startingOffsets=moment) == {0: [half - 2, half - 1], 1: [half - 2, half - 1]}
    with pytest.raises(SettingError, match="names partition 7"):
        read(kafka, flights, startingOffsets='{"7": 0}')
    with pytest.raises(DataLoss, match="ends at offset"):
        read(kafka, flights, startingOffsets=f'{{"0": {ROWS}}}')
    with pytest.raises(SettingError, match="option of Spark's Kafka connector; here it is topic, and startingOffsets"):
        SourceOptions.parse({"from": kafka.url, "assign": "t"})


def test_a_stream_takes_what_was_admitted_in_pieces(kafka: kafka_broker.RunningKafka, flights: str) -> None:
    found = micro_batches(kafka, flights, maxOffsetsPerTrigger=1500, maxRowsPerPartition=400)
    assert [len(batch) for batch in found] == [1500, 1500, 1000]
    assert sorted(chain(*found)) == [(part, offset) for part in (0, 1) for offset in range(ROWS // 2)]
    reader = LadingReader(options(kafka, flights, maxRowsPerPartition=400), schema("offset"))
    pieces = [piece.value for piece in reader.partitions()]
    assert [(piece.partition, piece.start, piece.end) for piece in pieces] == [
        (part, low, low + 400) for part in (0, 1) for low in range(0, ROWS // 2, 400)
    ]


def test_topics_that_match_a_pattern_with_few_requests(kafka: kafka_broker.RunningKafka) -> None:
    sender = producer(kafka)
    prefix = fresh_name()
    topics = sorted(f"{prefix}-{number}" for number in range(20))
    admin = admin_of.AdminClient({"bootstrap.servers": kafka.address})
    for created in admin.create_topics([admin_of.NewTopic(topic, 3, 1) for topic in topics]).values():
        created.result(20)
    for topic in topics:
        wait_until_known(admin, topic)
    for number, topic in enumerate(topics):
        for partition in range(3):
            sender.produce(topic, value=b"%d" % number, partition=partition)
    assert sender.flush(30) == 0
    planner = SourcePlanner(
        SourceOptions.parse({"from": kafka.url, "subscribePattern": f"{prefix}-.*|__consumer_offsets"})
    )
    planner.transport.topics(lambda name: False)
    asked: list[str] = []
    ask = KafkaSocket.ask

    def count(socket: KafkaSocket, api: str, **fields: Any) -> Any:
        asked.append(api)
        return ask(socket, api, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaSocket, "ask", count)
        ranges = planner.batch()
        assert asked == ["Metadata", "ListOffsets", "ListOffsets"]
        assert Counter(piece.topic for piece in ranges) == dict.fromkeys(topics, 3)
        assert len(planner.end_offsets()) == 20
    planner.close()
    reader = LadingReader(
        SourceOptions.parse({"from": kafka.url, "subscribe": ",".join(topics[:2])}), schema("topic, partition")
    )
    found = [row["topic"] for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()]
    assert Counter(found) == dict.fromkeys(topics[:2], 3)


def test_what_nobody_may_see_is_left_out(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka)
    sender = producer(kafka, **{"transactional.id": topic})
    sender.init_transactions(30)
    committed: list[tuple[int, int]] = []
    at = 0
    for number in range(8):
        sender.begin_transaction()
        for _ in range(5):
            sender.produce(topic, value=b"x")
        sender.flush(30)
        (sender.abort_transaction if number % 2 else sender.commit_transaction)(30)
        committed += [] if number % 2 else [(0, offset) for offset in range(at, at + 5)]
        # the control record takes an offset
        at += 6
    sender.begin_transaction()
    sender.produce(topic, value=b"open")
    sender.flush(30)
    batches = micro_batches(kafka, topic, maxRowsPerTrigger=7, maxRowsPerPartition=2)
    assert list(chain(*batches)) == committed
    sender.commit_transaction(30)
    wait_until_stable(kafka, topic, at + 2)
    assert list(chain(*micro_batches(kafka, topic))) == [*committed, (0, at)]


def test_losses_fail_or_are_jumped_over(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka)
    sender = producer(kafka)
    for _ in range(20):
        sender.produce(topic, value=b"x")
    sender.flush(30)
    reader = LimitedStreamReader(options(kafka, topic, maxRowsPerTrigger=4), schema("partition, offset"))
    start = json.loads(json.dumps(reader.initialOffset()))
    planned = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
    admin = admin_of.AdminClient({"bootstrap.servers": kafka.address})
    admin.delete_records([confluent.TopicPartition(topic, 0, 10)])[confluent.TopicPartition(topic, 0)].result(20)
    # planned before, read after the deletion; and planned after it
    (piece,) = reader.partitions(start, planned)
    with pytest.raises(DataLoss, match="offset 0 and later are lost"):
        list(reader.read(piece))
    with pytest.raises(DataLoss, match="failOnDataLoss=false"):
        reader.latestOffset(planned, reader.getDefaultReadLimit())
    easy = LimitedStreamReader(
        options(kafka, topic, maxRowsPerTrigger=4, failOnDataLoss=False), schema("partition, offset")
    )
    (piece,) = easy.partitions(start, planned)
    assert list(easy.read(piece)) == []
    end = json.loads(json.dumps(easy.latestOffset(planned, easy.getDefaultReadLimit())))
    (piece,) = easy.partitions(planned, end)
    assert [row["offset"] for batch in easy.read(piece) for row in batch.to_pylist()] == [10, 11, 12, 13]
    for each in (reader, easy):
        each.stop()
    # made again: another topic, whatever its offsets
    admin.delete_topics([topic])[topic].result(20)
    _make_again(admin, topic)
    sender.produce(topic, value=b"y")
    sender.flush(30)
    with pytest.raises(DataLoss, match="deleted and created again"):
        reader.latestOffset(planned, reader.getDefaultReadLimit())
    reader.stop()


def _make_again(admin: Any, topic: str) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            admin.create_topics([admin_of.NewTopic(topic, 1, 1)])[topic].result(20)
            wait_until_known(admin, topic)
            return
        except confluent.KafkaException:
            # the deletion is not over
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.turns(6, part=1)
def test_typed_is_the_same_from_spark_s_connector(
    spark: SparkSession, kafka: kafka_broker.RunningKafka, flights: str
) -> None:
    from lading.spark.functions import typed

    try:
        connector.add(spark)
    except maven.Unavailable as reason:
        pytest.skip(str(reason))
    theirs = (
        spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.address).option("subscribe", flights)
        .option("startingOffsets", "earliest").option("includeHeaders", True).load()
    )  # fmt: skip
    ours = (
        spark.read.format("lading").option("from", kafka.url).option("topic", flights)
        .schema("partition int, offset bigint, key binary, carrier string, delay int, trace binary")
        .option("encoding.delay", "be").load()
    )  # fmt: skip
    places = ["partition", "offset"]
    found = typed(theirs, CONTRACT).orderBy(*places).toArrow()
    wanted = ours.orderBy(*places).toArrow()
    assert found.num_rows == ROWS
    assert found.to_pylist() == wanted.to_pylist()
    # not for want of anything: all of it is there somewhere
    assert {None, "DL", "B6"} == set(found["carrier"].to_pylist())
    assert found["delay"].null_count == found["carrier"].null_count == len(range(0, ROWS, 11))


@pytest.mark.turns(6, part=0)
def test_the_sink_is_exactly_once_with_a_transactional_id(
    spark: SparkSession, kafka: kafka_broker.RunningKafka, flights: str, tmp_path: Path
) -> None:
    copy = made(kafka, 3)
    spark.dataSource.register(FaultySource)
    failures: list[str] = []
    try:
        for phase in ("task", "before", "after"):
            (tmp_path / phase).touch()
        for _ in range(4):
            query = (
                spark.readStream.format("lading").schema("partition int, offset bigint, payload binary, carrier string")
                .option("from", kafka.url).option("topic", flights).option("maxRowsPerTrigger", 1500)
                .option("maxRowsPerPartition", 500).load()
                .withColumnsRenamed({"offset": "at", "partition": "part"})
                .writeStream.format("lading").option("to", kafka.url).option("topic", copy)
                .option("headers", "part,at,carrier").option("token.faults", str(tmp_path))
                .option("transactionalId", f"copy-{copy}")
                .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            )  # fmt: skip
            try:
                query.awaitTermination()
                break
            except Exception as error:
                failures += re.findall(r"injected: (\w+)", str(error))[:1]
    finally:
        spark.dataSource.register(LadingSource)
    assert failures == ["before", "after"]
    copied = read_arrow(kafka.url, copy, "part int, at bigint, carrier string, payload")
    original = read_arrow(kafka.url, flights, "partition, offset, carrier string, payload")
    keys: Any = [("part", "ascending"), ("at", "ascending")]
    wanted = original.rename_columns(["part", "at", "carrier", "payload"]).sort_by(keys)
    assert copied.sort_by(keys).to_pylist() == wanted.to_pylist()
    assert copied.num_rows == ROWS
    print(f"sink: failures in a task, before and after a commit: {ROWS:,} of {ROWS:,} rows in Kafka, each once")


@pytest.mark.turns(6, part=2)
def test_without_one_repetitions_can_be_found(
    spark: SparkSession, kafka: kafka_broker.RunningKafka, flights: str, tmp_path: Path
) -> None:
    copy = made(kafka, 2)
    spark.dataSource.register(FaultySource)
    try:
        (tmp_path / "before").touch()
        for _ in range(2):
            query = (
                spark.readStream.format("lading").schema(f"payload binary, headers {HEADERS}")
                .option("from", kafka.url).option("topic", flights).load()
                .writeStream.format("lading").option("to", kafka.url).option("topic", copy)
                .option("token.faults", str(tmp_path))
                .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            )  # fmt: skip
            try:
                query.awaitTermination()
            except Exception as error:
                assert "injected: before" in str(error)
    finally:
        spark.dataSource.register(LadingSource)
    table = read_arrow(kafka.url, copy, 'payload, dedupe string from "lading-dedupe"')
    assert table.num_rows == 2 * ROWS
    marks = table.group_by(["payload", "dedupe"]).aggregate([([], "count_all")])
    assert marks.num_rows == ROWS and set(marks["count_all"].to_pylist()) == {2}
    assert isinstance(table, pa.Table)
