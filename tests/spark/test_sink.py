"""The sink: a batch is in the topic once, whatever fails and is tried again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from lading import testing
from lading.client.bulk import read_arrow
from lading.client.outgoing import as_field
from lading.model.errors import SettingError
from lading.spark.sink import ColumnMapping, TaskCommit
from lading.spark.source import LadingSource
from lading.spark.stream_sink import ArrowStreamWriter, StreamWriter
from lading.tables.plan.options import SinkOptions
from lading.transports.lading.transport import LadingTransport
from lading.transports.open import open_transport
from lading.transports.topics import UnknownTopic

from .conftest import IGGY_ROWS, NATIVE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROWS = 2 * NATIVE_ROWS + IGGY_ROWS


class FaultySource(LadingSource):
    """The source with a sink that fails once in a task, once before and once after the commit of a batch."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        options = {name: value for name, value in self.options.items() if name != "token.faults"}
        return FaultyWriter(SinkOptions.parse(options), schema, Path(self.options["token.faults"]))


class FaultyWriter(ArrowStreamWriter):
    def __init__(self, options: SinkOptions, schema: StructType, faults: Path) -> None:
        super().__init__(options, schema)
        self.faults = faults

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:  # type: ignore[override]
        sent = self.send_batch(iterator)
        self.strike("task")
        return sent

    def commit(self, messages: Any, batchId: int) -> None:
        self.strike("before")
        super().commit(messages, batchId)
        self.strike("after")

    def strike(self, phase: str) -> None:
        try:
            (self.faults / phase).unlink()
        except FileNotFoundError:
            return
        raise RuntimeError(f"injected: {phase}")


@pytest.mark.turns(6, part=4)
def test_a_stream_into_the_broker_is_exactly_once(
    spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    transport = open_transport(broker.url)
    assert isinstance(transport, LadingTransport)
    transport.create_topic("copy", 2)
    spark.dataSource.register(FaultySource)
    try:
        failures = []
        for phase in ("task", "before", "after"):
            (tmp_path / phase).touch()
        for _ in range(4):
            query = (
                spark.readStream.format("lading").schema("offset bigint, partition int, delay int, payload binary")
                .option("from", str(broker.data_dir)).option("topic", "air.flights")
                .option("maxRowsPerTrigger", 30_000).load().withColumnsRenamed({"offset": "at", "partition": "part"})
                .writeStream.format("lading").option("to", broker.url).option("topic", "copy")
                .option("headers", "part,at,delay").option("token.faults", str(tmp_path))
                .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            )  # fmt: skip
            try:
                query.awaitTermination()
                break
            except Exception as error:
                failures += re.findall(r"injected: (\w+)", str(error))[:1]
        # the failed task was tried again by Spark, the failed commits by the next run
        assert failures == ["before", "after"]
    finally:
        spark.dataSource.register(LadingSource)
    copied = read_arrow(broker.url, "copy", "part int, at bigint, delay int, payload")
    assert copied.num_rows == ROWS
    assert copied.select(["part", "at"]).group_by(["part", "at"]).aggregate([]).num_rows == ROWS
    original = read_arrow(broker.url, "air.flights", "partition, offset, delay int, payload")
    keys: Any = [("part", "ascending"), ("at", "ascending")]
    renamed = original.rename_columns(["part", "at", "delay", "payload"])
    assert copied.sort_by(keys).equals(renamed.sort_by(keys).cast(copied.schema))
    # nothing is held back by a transaction that nobody decides
    metas = transport.topic("copy").partitions
    transport.close()
    assert sum(part.end_offset for part in metas) >= ROWS
    print(f"sink: failures in a task, before and after a commit: {ROWS:,} of {ROWS:,} rows, each once")


def test_a_batch_write_keeps_headers_and_keys(spark: SparkSession, broker: testing.BrokerProcess) -> None:
    frame = (
        spark.read.format("lading").option("from", broker.url).option("topic", "air.flights")
        .option("endingOffsets", '{"0": 500, "1": 500, "2": 500}').load()
    )  # fmt: skip
    with _closing(broker.url) as transport:
        transport.create_topic("again.batch", 3)
    frame.write.format("lading").mode("append").option("to", broker.url).option("topic", "again.batch").save()
    columns = "partition, offset, headers, key, payload"
    before = read_arrow(broker.url, "air.flights", columns, end={0: 500, 1: 500, 2: 500})
    after = read_arrow(broker.url, "again.batch", columns)
    assert after.drop(["offset"]).equals(before.drop(["offset"]))


class _closing:
    def __init__(self, url: str) -> None:
        self._transport = open_transport(url)

    def __enter__(self) -> Any:
        return self._transport

    def __exit__(self, *error: object) -> None:
        self._transport.close()


def test_the_option_headers_writes_unsigned_kinds_under_other_names() -> None:
    schema = StructType().add("payload", BinaryType()).add("delay", IntegerType()).add("tenant_id", LongType())
    made = ColumnMapping.of(schema, ("delay:uint16", "tenant:uint64 from tenant_id"))
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"x"]), pa.array([65_535], pa.int32()), pa.array([7])], ["payload", "delay", "tenant_id"]
    )
    messages: Any = made.batch(rows).column("headers").to_pylist()
    assert [(one["key"], one["kind"], one["value"]) for one in messages[0]] == [
        ("delay", 10, b"\xff\xff"), ("tenant", 12, (7).to_bytes(8, "little")),
    ]  # fmt: skip
    with pytest.raises(SettingError, match="names the header 'a' twice"):
        ColumnMapping.of(schema, ("a from delay", "a:uint8 from delay", "tenant_id"))


def mapping(schema: str, *headers: str) -> ColumnMapping:
    made = StructType.fromDDL(schema)
    assert isinstance(made, StructType)
    return ColumnMapping.of(made, headers)


def test_a_column_of_origin_times_is_part_of_the_messages() -> None:
    origins = pa.array([1_700_000_000_000_000, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    rows = pa.RecordBatch.from_pydict({"payload": pa.array([b"a", b"b"]), "origin_timestamp": origins})
    schema = StructType().add("payload", BinaryType()).add("origin_timestamp", TimestampType())
    batch = ColumnMapping.of(schema, ()).batch(rows)
    assert batch.column("origin_timestamp").equals(origins)


def test_a_map_is_written_as_headers_in_order_of_key(caplog: pytest.LogCaptureFixture) -> None:
    maps = pa.array(
        [[("b", "2"), ("a", "1")], None, [], [("z", None), ("ä", "x"), ("c", "3")]], pa.map_(pa.string(), pa.string())
    )
    expected = [
        [("a", 2, b"1"), ("b", 2, b"2")], [], [], [("c", 2, b"3"), ("z", 2, None), ("ä", 2, b"x")]
    ]  # fmt: skip
    schema = StructType().add("payload", BinaryType()).add("headers", MapType(StringType(), StringType()))
    written = ColumnMapping.of(schema, ())
    assert "headers are written in order of key" in caplog.text
    for low, high in ((0, 4), (1, 4), (3, 4), (0, 0)):
        rows = pa.RecordBatch.from_pydict({"payload": pa.array([b"x"] * (high - low)), "headers": maps[low:high]})
        found = written.batch(rows).column("headers").to_pylist()
        assert [[tuple(header.values()) for header in headers or ()] for headers in found] == expected[low:high]
    binary = pa.array([[("k", b"\xff")]], pa.map_(pa.string(), pa.binary()))
    assert as_field(binary, "headers", "headers").to_pylist() == [[{"key": "k", "kind": 1, "value": b"\xff"}]]


@pytest.mark.parametrize(
    ("schema", "headers", "sentence"),
    [
        ("payload binary, carrier string", (), r"column 'carrier' is not a part of a message"),
        ("value binary", (), r"column 'value' is not a part of a message; call it payload: value AS payload"),
        (
            "payload binary, headers map<string,int>",
            (),
            r"column 'headers' is map.*or a map<string,string> in order of",
        ),
        ("payload binary, headers array<string>", (), r"column 'headers' is list.*or a map<string,string> in order of"),
        ("payload int", (), r"column 'payload' is int32 and cannot be the payload of a message"),
        ("payload binary", ("carrier",), r"headers names the column 'carrier'"),
        ("payload binary, x array<int>", ("x",), r"column 'x' is list"),
        ("offset bigint", (), r"nothing in offset is a part of a message"),
    ],
)
def test_a_frame_that_is_no_message_is_refused(schema: str, headers: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        mapping(schema, *headers)


def test_columns_become_json_payloads_at_their_places() -> None:
    frame = StructType().add("tenant", StringType()).add("key", BinaryType()).add("order_id", StringType())
    frame = frame.add("amount", DecimalType(10, 2)).add("n", LongType()).add("a.b", IntegerType())
    made = ColumnMapping.of(frame, ("tenant",), {"amount": "payload.order.amount"})
    rows = pa.RecordBatch.from_pydict(
        {
            "tenant": ["acme", "b"], "key": [b"k", None], "order_id": ["A", None],
            "amount": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), "n": [9007199254740993, 2],
            "a.b": pa.array([1, 2], pa.int32()),
        }
    )  # fmt: skip
    batch = made.batch(rows)
    assert batch.column("payload").to_pylist() == [
        b'{"order_id":"A","order":{"amount":1.50},"n":9007199254740993,"a.b":1}',
        b'{"order_id":null,"order":{"amount":null},"n":2,"a.b":2}',
    ]
    assert [len(one or []) for one in batch.column("headers").to_pylist()] == [1, 1]
    for places, sentence in (
        ({"tenant": "payload.t"}, "option column.tenant: the column is a header or a field"),
        ({"nowhere": "payload.t"}, "option column.nowhere: the column does not exist"),
        ({"amount": "payload.n.x"}, r"payload\.n\.x is inside of it"),
    ):
        with pytest.raises(SettingError, match=sentence):
            ColumnMapping.of(frame, ("tenant",), places)
    with pytest.raises(SettingError, match=r"columns 'order_id' and 'amount' both go to payload\.x; name another"):
        ColumnMapping.of(frame, ("tenant",), {"order_id": "payload.x", "amount": "payload.x"})
    with pytest.raises(SettingError, match=r"a column payload, and payload.format makes another"):
        ColumnMapping.of(StructType().add("payload", BinaryType()).add("n", LongType()), (), {})


def test_a_topic_that_does_not_exist_is_refused_by_the_driver(broker: testing.BrokerProcess) -> None:
    """Each task said so before, and Spark aborted the job with a page of Java's frames."""
    source = LadingSource({"to": broker.url, "topic": "nowhere_to_write"})
    frame = StructType().add("payload", BinaryType())
    for make_writer in (source.writer, source.streamWriter):
        with pytest.raises(UnknownTopic, match="topic 'nowhere_to_write' does not exist"):
            make_writer(frame, False)


def test_places_of_columns_with_capital_letters() -> None:
    options = {
        "to": "lading://h:1",
        "topic": "t",
        "payload.format": "json",
        "column.orderAmount": "payload.order.amount",
    }
    places = SinkOptions.parse(options).payload_places
    made = ColumnMapping.of(StructType().add("orderAmount", LongType()).add("nextOne", LongType()), (), places)
    assert made.members == {("order", "amount"): "orderAmount", ("nextOne",): "nextOne"}


def test_sink_options() -> None:
    with pytest.raises(SettingError, match="option 'to' is missing"):
        SinkOptions.parse({"topic": "t"})
    with pytest.raises(SettingError, match=r"column.amount: needs payload.format; add payload.format = json"):
        SinkOptions.parse({"to": "lading://h:1", "topic": "t", "column.amount": "payload.x"})
    written = SinkOptions.parse({"to": "lading://h:1", "topic": "t", "payload.format": "json", "column.a": "payload.x"})
    assert written.payload_places == {"a": "payload.x"}
    assert SinkOptions.parse({"TO": "lading://h:1", "Topic": "t", "headers": "a, b"}).headers == ("a", "b")
