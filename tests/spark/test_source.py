"""The data source in Spark: batch and streaming, from a directory and over the network, with typed header columns."""

from __future__ import annotations

import json
import re
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from lading import Producer, testing
from lading.client.bulk import read_arrow, write_arrow
from lading.model.errors import LadingError
from lading.model.state import State
from lading.spark.failures import cause
from lading.spark.source import LadingReader
from lading.spark.stream_limits import LimitedStreamReader
from lading.tables.plan.options import SourceOptions
from lading.transports.lading.transport import LadingTransport
from lading.transports.open import open_transport
from tests.endpoints.test_iggy_zero_copy import Client
from tests.endpoints.test_origin_times import SENT_US, send_zero_copy

from .conftest import HEADERS, IGGY_ROWS, NATIVE_ROWS, flights, settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
TOPIC = "air.flights"
ROWS = 2 * NATIVE_ROWS + IGGY_ROWS


def read(spark: SparkSession, from_: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("lading").option("from", from_).option("topic", TOPIC)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return (reader.schema(schema) if schema else reader).load()


@pytest.mark.turns(2)
def test_typed_columns_are_what_the_client_reads(spark: SparkSession, place: str) -> None:
    frame = read(spark, place, "partition int, offset bigint, carrier string, delay int, tail string")
    found = frame.orderBy("partition", "offset").toArrow()
    # the client decodes without Spark; values follow from the offset (conftest)
    expected = read_arrow(place, TOPIC, "partition, offset, carrier string, delay int, tail string")
    assert found.cast(expected.schema).equals(expected.sort_by([("partition", "ascending"), ("offset", "ascending")]))
    assert found.num_rows == ROWS
    rows = frame.where("partition = 1 AND offset = 12345").collect()
    assert [row.asDict() for row in rows] == [
        {"partition": 1, "offset": 12345, "carrier": "UA", "delay": 12245, "tail": "N112345"}
    ]


def test_all_fields_and_raw_headers(spark: SparkSession, place: str) -> None:
    frame = read(spark, place, startingOffsets='{"2": 5}', endingOffsets='{"0": 0, "1": 0, "2": 7}')
    first, second = frame.orderBy("offset").collect()
    assert (first.stream, first.topic, first.partition, first.offset) == ("air", "flights", 2, 5)
    assert first.payload == b'{"row": 5}'
    assert [(entry.key, entry.kind, bytes(entry.value)) for entry in first.headers] == [
        ("carrier", 2, b"DL"), ("delay", 6, (-95).to_bytes(4, "little", signed=True)), ("tail", 2, b"N25"),
    ]  # fmt: skip
    assert second.offset == 6
    assert first.checksum is not None
    assert len(first.id) == 16


@pytest.mark.turns(2)
def test_filters_in_the_source(spark: SparkSession, place: str) -> None:
    schema = "partition int, offset bigint, carrier string, delay int"
    expected = sum(1 for at in range(NATIVE_ROWS) if at % 3 == 0 and at % 10 != 9 and at - 100 > 29_000) * 2
    where = read(spark, place, schema, where="carrier = 'UA' AND delay > 29000")
    assert where.count() == expected
    pushed = read(spark, place, schema, pushdown="true").where("carrier = 'UA' AND delay > 29000")
    assert pushed.count() == expected
    plain = read(spark, place, schema)
    condition = "partition = 0 AND offset >= 100 AND offset < 110 AND (delay IS NULL OR carrier IN ('AA', 'DL'))"
    assert read(spark, place, schema, pushdown="true").where(condition).collect() == plain.where(condition).collect()
    untyped = read(spark, place, "offset bigint", where="carrier = 'AA' AND delay >= 29890")
    # 29,890 - 30,000 of each native partition: rows 29,990 to 29,999 without the null, of AA
    assert untyped.count() == 2 * sum(1 for at in range(29_990, 30_000) if at % 3 == 1 and at % 10 != 9)


@pytest.mark.turns(2)
def test_a_stream_takes_what_was_admitted(spark: SparkSession, place: str, tmp_path: Path) -> None:
    stream = (
        spark.readStream.format("lading").schema("partition int, offset bigint, delay int")
        .option("from", place).option("topic", TOPIC).option("maxRowsPerTrigger", 25_000).load()
    )  # fmt: skip

    def run() -> Any:
        query = (
            stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return query

    progress = [one for one in run().recentProgress if one["numInputRows"]]
    sizes = [one["numInputRows"] for one in progress]
    assert sum(sizes) == ROWS
    assert all(size <= 25_003 for size in sizes)
    assert json.loads(progress[-1]["sources"][0]["endOffset"])[TOPIC]["2"]["offset"] == IGGY_ROWS
    found = spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").toArrow()
    places = Counter(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))
    assert (len(places), set(places.values())) == (ROWS, {1})
    assert not [one for one in run().recentProgress if one["numInputRows"]]


def test_topics_that_match_a_pattern(spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    columns = "stream string, topic string, partition int, offset bigint, delay int"
    reader = spark.readStream.format("lading").schema(columns).option("from", broker.url)
    stream = reader.option("subscribePattern", r"pattern_\d").load()

    def run() -> int:
        query = (
            stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return sum(one["numInputRows"] for one in query.recentProgress)

    # nothing matches yet: a stream waits, a batch is an error with what exists
    assert run() == 0
    batch = spark.read.format("lading").schema(columns).option("from", broker.url)
    text = told(spark, lambda: batch.option("topic_pattern", "pattern_.").load().count())
    assert "topic_pattern 'pattern_.': matches no topic at" in text and "'air.flights'" in text
    batch = spark.read.format("lading").schema(columns).option("from", broker.url)
    for number in (1, 2):
        write_arrow(flights(0, 100 * number), broker.url, f"pattern_{number}", headers=HEADERS)
    assert run() == 300
    write_arrow(flights(0, 50), broker.url, "pattern_3", headers=HEADERS)
    write_arrow(flights(0, 10), broker.url, "pattern_1", headers=HEADERS)
    assert run() == 60
    written = spark.read.parquet(str(tmp_path / "out")).collect()
    assert len({(row.topic, row.partition, row.offset) for row in written}) == len(written)
    assert Counter(row.topic for row in written) == {"pattern_1": 110, "pattern_2": 200, "pattern_3": 50}
    assert batch.option("topics", "pattern_1, pattern_3").load().where("delay IS NOT NULL").count() > 0


def test_the_time_of_the_sender_is_a_column_where_it_is_named(
    spark: SparkSession, broker: testing.BrokerProcess
) -> None:
    Client(broker.endpoints["iggy_tcp"], "0.9.0").create("sent")
    send_zero_copy(broker, "sent", "0.9.0", SENT_US)
    for from_ in (broker.url, f"kafka://{broker.endpoints['kafka']}"):
        reader = spark.read.format("lading").option("from", from_).option("topic", "sent.topic")
        assert "origin_timestamp" not in reader.load().columns
        found = reader.schema("carrier string, origin_timestamp timestamp").load()
        assert found.selectExpr("carrier", "unix_micros(origin_timestamp)").collect() == [("UA", SENT_US)]


def test_states_and_a_schema_of_odd_names(spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    transport = open_transport(broker.url)
    assert isinstance(transport, LadingTransport)
    write_arrow(
        flights(0, 100).rename_columns(["Carrier", "id", "key", "payload"]), broker.url, "odd",
        headers=("Carrier", "id", "key"),
    )  # fmt: skip
    transport.set_state("odd", 0, 10, 20, State.POISONED)

    def odd(schema: str, **options: str) -> DataFrame:
        reader = spark.read.format("lading").schema(schema).option("from", broker.url).option("topic", "odd")
        return reader.options(**options).load()

    shown = odd("Carrier string, id int, key string, offset bigint", **{"column.id": "id", "column.key": "key"})
    assert shown.count() == 90
    first = shown.orderBy("offset").first()
    assert first is not None
    assert first.asDict() == {"Carrier": "UA", "id": -100, "key": "N00", "offset": 0}
    everything = odd("offset bigint, state tinyint", states="all")
    assert everything.where("state = 20").count() == 10
    transport.close()


def told(spark: SparkSession, run: Any) -> str:
    with pytest.raises(Exception) as failed:
        run()
    error = cause(failed.value)
    assert isinstance(error, LadingError), str(failed.value)
    # what a user sees: the error alone, no frames of workers and JVM around it
    shown = str(failed.value)
    assert shown.startswith("lading.") and "Traceback" not in shown and "\tat " not in shown, shown
    frames = [frame.filename for frame in traceback.extract_tb(failed.tb)]
    assert not [name for name in frames if name.endswith(("spark/source.py", "spark/stream.py", "spark/scan.py"))], (
        frames
    )
    return str(error)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        ("payload int", {}, r"'payload' is a field of every message and has the type binary, not int"),
        ("`key.x` int", {}, r"members of a JSON key are not columns.* by option column.key.x=key.x"),
        ("offset string", {}, r"column 'offset' is a field of every message and has the type bigint, not string"),
        ("tail string", {"where": "tail = N619AA"}, r"unknown header 'N619AA'.*in quotes: 'N619AA'"),
        ("delay array<int>", {}, r"cannot become array<int>; it can become string.*, decimal\(p,s\), array<string>"),
        ("delay int", {"encoding.dealy": "be"}, r"encoding.dealy names no column.*did you mean 'delay'"),
        ("delay int", {"maxRowsPerTriger": "5"}, r"unknown option 'maxRowsPerTriger'; did you mean maxRowsPerTrigger"),
        ("delay int", {"where": "dealy > 5"}, r"unknown header 'dealy'"),
        ("delay int", {"startingOffsets": "soon"}, r"startingOffsets is 'soon'"),
        ("delay int", {"topic": "air.flight"}, r"topic 'air.flight' does not exist.*did you mean 'air.flights'"),
        ("tail int", {"on_bad_value": "fail"}, r"partition \d, offset 0: header 'tail' has the value b'N.*is no int"),
        ("delay int", {"startingOffsets": '{"timestamp": "x"}'}, r"'x' is not a point in time"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_sentence(
    spark: SparkSession, broker: testing.BrokerProcess, schema: str, options: dict[str, str], sentence: str
) -> None:
    settings = {"from": str(broker.data_dir), "topic": TOPIC} | options
    text = told(spark, lambda: spark.read.format("lading").schema(schema).options(**settings).load().count())
    assert re.search(sentence, text, re.IGNORECASE), text


def schema(text: str) -> StructType:
    made = StructType.fromDDL(text)
    assert isinstance(made, StructType)
    return made


@pytest.mark.turns(2, part=0)
def test_keys_and_payloads_are_text_if_the_schema_says_so(spark: SparkSession, broker: testing.BrokerProcess) -> None:
    options = {"from": broker.url, "topic": "air.texts"}
    with Producer(broker.url) as producer:
        for key, payload in [(b"a", b"one"), (None, b"\xff"), (b"\xff", b"two")]:
            producer.send("air.texts", payload, key=key, partition=0)
    frame = spark.read.format("lading").schema("offset bigint, key string, payload string").options(**options).load()
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [
        (0, "a", "one"),
        (1, None, None),
        (2, None, "two"),
    ]
    assert [row.offset for row in frame.where("payload = 'two'").collect()] == [2]
    failing = spark.read.format("lading").schema("payload string").options(**options, on_bad_value="fail").load()
    assert "partition 0, offset 1: the payload of the message is not UTF-8" in told(spark, failing.count)


def test_a_header_that_no_message_has_is_told_once_by_the_driver(
    broker: testing.BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"from": broker.url, "topic": TOPIC}
    columns = schema("offset bigint, carier string, delay int")
    LadingReader(SourceOptions.parse(options), columns).partitions()
    (said,) = caplog.messages
    assert re.fullmatch(
        r"none of the first 10,000 messages of 'air.flights' has a header 'carier' \(did you mean 'carrier'\?\); the "
        "headers seen are 'carrier', 'delay', 'tail'",
        said,
    )
    stream = LimitedStreamReader(SourceOptions.parse(options), columns)
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, stream.getDefaultReadLimit())
    stream.partitions(begin, end)
    stream.partitions(begin, end)
    stream.stop()
    assert caplog.messages == [said, said]
    LadingReader(SourceOptions.parse(options), schema("carrier string, tail string")).partitions()
    LadingReader(SourceOptions.parse(options | {"where": "carrier = UA"}), StructType()).partitions()
    assert caplog.messages[2:] == [
        "none of the first 10,000 messages of 'air.flights' has a header 'UA'; for the text write it in single quotes: "
        "'UA'"
    ]


def test_an_error_while_writing_is_told_alone(spark: SparkSession) -> None:
    def send() -> None:
        frame = spark.createDataFrame([(b"x",)], "payload binary")
        options = {"to": "lading://127.0.0.1:1", "topic": "t", "transport.retries": "0"}
        frame.write.format("lading").options(**options).mode("append").save()

    assert "no broker is reachable at 127.0.0.1:1" in told(spark, send)


@pytest.mark.turns(2, part=1)
def test_a_loss_is_never_silent(spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    transport = open_transport(broker.url)
    assert isinstance(transport, LadingTransport)
    write_arrow(flights(0, 200), broker.url, "again", headers=HEADERS)

    def run(**options: str) -> int:
        query = (
            spark.readStream.format("lading").schema("offset bigint, delay int").option("from", broker.url)
            .option("topic", "again").options(**options).load().writeStream.format("parquet")
            .option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return sum(one["numInputRows"] for one in query.recentProgress)

    assert run() == 200
    transport.delete_topic("again")
    write_arrow(flights(0, 50), broker.url, "again", headers=HEADERS)
    text = told(spark, run)
    assert "topic 'again', partition 0: messages from offset 200 and later are lost: the topic was deleted" in text
    assert "failOnDataLoss=false" in text
    assert run(failOnDataLoss="false") == 50
    assert run() == 0
    write_arrow(flights(0, 7), broker.url, "again", headers=HEADERS)
    assert run() == 7
    settle(transport, "again", str(broker.data_dir))
    transport.close()
