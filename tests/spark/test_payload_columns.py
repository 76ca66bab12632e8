"""Payload columns in Spark: by option and by name, nested types, batch and stream, conditions of both sides."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lading import Admin, Producer, testing
from lading.registry.client import RegistryAddress, RegistryClient
from lading.registry.payload_encoder import find_writer_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAYLOADS = [
    b'{"order_id":"A","order":{"amount":12.5,"tags":["x","y"],"by":{"k":1}},"at":"2026-01-01T00:00:00Z"}',
    b'{"order_id":"B","order":{"amount":"1.25","tags":[],"lines":[{"sku":"s","n":2}]}}',
    b'{"order_id":',
    b'{"order_id":7,"order":null}',
]
SCHEMA = (
    "offset bigint, tenant string, order_id string, amount decimal(10,2), tags array<string>, by map<string,int>, "
    "lines array<struct<sku:string,n:int>>, at timestamp, `payload.order.amount` double"
)
OPTIONS = {
    "column.order_id": "payload.order_id", "column.amount": "payload.order.amount", "column.at": "payload",
    "column.tags": "payload.order.tags", "column.by": "payload.order.by", "column.lines": "payload.order.lines",
    "payload.format": "json",
}  # fmt: skip


def test_a_batch_and_a_stream_have_columns_of_the_payload(
    spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    with Producer(broker.url) as producer:
        for payload in PAYLOADS:
            producer.send("spark_orders", payload, partition=0, headers={"tenant": "acme"})
    options = {"from": broker.url, "topic": "spark_orders", **OPTIONS}
    frame = spark.read.format("lading").schema(SCHEMA).options(**options).load()
    rows: list[Any] = frame.orderBy("offset").collect()
    assert [row.order_id for row in rows] == ["A", "B", None, "7"]
    assert [row.amount for row in rows] == [Decimal("12.50"), Decimal("1.25"), None, None]
    assert [row.tags for row in rows] == [["x", "y"], [], None, None]
    assert rows[0].by == {"k": 1}
    assert [(line.sku, line.n) for line in rows[1].lines] == [("s", 2)]
    assert [row["payload.order.amount"] for row in rows] == [12.5, 1.25, None, None]
    assert rows[0].at is not None and {row.tenant for row in rows} == {"acme"}
    assert frame.where("amount > 2").select("order_id").collect()[0].order_id == "A"
    filtered = spark.read.format("lading").schema("offset bigint").options(
        **{"from": broker.url, "topic": "spark_orders", "where": "tenant = 'acme' AND payload.order.amount < 2"}
    )  # fmt: skip
    assert [row.offset for row in filtered.load().collect()] == [1]
    query = (
        spark.readStream.format("lading").schema(SCHEMA).options(**options).load()
        .writeStream.format("parquet").option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    streamed = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [row.order_id for row in streamed] == ["A", "B", None, "7"]
    assert rows == streamed


def test_a_frame_is_written_as_json_and_read_back(spark: SparkSession, broker: testing.BrokerProcess) -> None:
    with Admin(broker.url) as admin:
        admin.create_topic("spark_written", 1)
    sql = (
        "select 'acme' as tenant, cast(12.50 as decimal(10,2)) as amount, 9007199254740993 as big, "
        "array('x', null) as tags, named_struct('sku', 's', 'n', 2) as line, "
        "timestamp'2026-01-01 00:00:00 UTC' as at, cast(null as string) as note"
    )
    target = {"to": broker.url, "topic": "spark_written", "headers": "tenant", "payload.format": "json"}
    target["column.amount"] = "payload.order.amount"
    frame = spark.sql(sql)
    frame.write.format("lading").mode("append").options(**target).save()
    source = {"from": broker.url, "topic": "spark_written", "column.amount": "payload.order.amount"}
    source |= {f"column.{name}": f"payload.{name}" for name in ("big", "tags", "line", "at", "note")}
    schema = "tenant string, amount decimal(10,2), big bigint, tags array<string>, line struct<sku:string,n:int>, "
    read = spark.read.format("lading").schema(schema + "at timestamp, note string").options(**source).load()
    assert read.collect() == frame.collect()


def test_a_frame_is_written_by_a_schema_of_protobuf_and_avro(
    spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    registry = f"http://{broker.endpoints['schema_registry']}"
    (tmp_path / "o.proto").write_text(
        'syntax = "proto3"; message O { int64 n = 1; In in = 2; } message In { string s = 1; }'
    )
    (tmp_path / "o.avsc").write_text(
        '{"type":"record","name":"O","fields":[{"name":"n","type":"long"},{"name":"in","type":'
        '{"type":"record","name":"In","fields":[{"name":"s","type":"string"}]}}]}'
    )
    frame = spark.sql("select cast(7 as bigint) as n, 'x' as s")
    for form, file in (("protobuf", "o.proto"), ("avro", "o.avsc")):
        with Admin(broker.url) as admin:
            admin.create_topic(f"new_{form}", 1)
        target = {
            "to": broker.url, "topic": f"new_{form}", "payload.format": form, "payload.schema": str(tmp_path / file),
            "payload.registry": registry, "payload.subject": f"of-{form}", "column.s": "payload.in.s",
        }  # fmt: skip
        frame.write.format("lading").mode("append").options(**target).save()
        source = {
            "from": broker.url, "topic": f"new_{form}", "payload.format": "schema", "payload.registry": registry,
            "payload.registry_cache": str(tmp_path), "column.n": "payload.n", "column.s": "payload.in.s",
        }  # fmt: skip
        assert (
            spark.read.format("lading").schema("n bigint, s string").options(**source).load().collect()
            == frame.collect()
        )


def test_keys_of_avro_and_protobuf_are_columns_and_subjects_have_a_strategy(
    spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    registry = f"http://{broker.endpoints['schema_registry']}"
    texts = {
        "avro": '{"type":"record","name":"K","namespace":"shop","fields":[{"name":"n","type":"long"}]}',
        "protobuf": 'syntax = "proto3"; package shop; message K { int64 n = 1; }',
    }
    for form, suffix in (("avro", "avsc"), ("protobuf", "proto")):
        topic, file = f"spark_keys_{form}", tmp_path / f"k.{suffix}"
        file.write_text(texts[form])
        by_file = find_writer_schema(str(file), topic).make_encoder()
        by_id = find_writer_schema(str(file), topic, registry=registry, subject=f"{topic}-key").make_encoder()
        with Producer(broker.url) as producer:
            for row in range(3):
                producer.send(topic, b'{"v":%d}' % row, key=by_file(b'{"n":%d}' % row), partition=0)
                producer.send(f"{topic}_id", b'{"v":%d}' % row, key=by_id(b'{"n":%d}' % row), partition=0)
        of_key = {"payload.key.format": form, "payload.key.schema": str(file)}
        cases = [(topic, of_key), (f"{topic}_id", {"payload.key.format": "schema", "payload.key.registry": registry})]
        for name, options in cases:
            options |= {"from": broker.url, "topic": name, "payload.format": "json", "column.n": "key.n"}
            frame = (
                spark.read.format("lading").schema("n bigint, v int").options(**options, **{"column.v": "payload.v"})
            )
            assert [tuple(row) for row in frame.load().orderBy("v").collect()] == [(0, 0), (1, 1), (2, 2)]
        target = {
            "to": broker.url, "topic": f"{topic}_written", "payload.format": form, "payload.schema": str(file),
            "payload.registry": registry, "payload.subject_strategy": "TOPIC_RECORD",
        }  # fmt: skip
        with Admin(broker.url) as admin:
            admin.create_topic(f"{topic}_written", 1)
        spark.sql("select cast(7 as bigint) as n").write.format("lading").mode("append").options(**target).save()
        with closing(RegistryClient(RegistryAddress(registry))) as client:
            assert client.versions(f"{topic}_written-shop.K") == [1]


def test_an_option_that_cannot_be_is_refused(spark: SparkSession, broker: testing.BrokerProcess) -> None:
    options = {"from": broker.url, "topic": "spark_orders", "payload.format": "arvo"}
    with pytest.raises(Exception, match=r"payload.format is 'arvo' \(did you mean 'avro'"):
        spark.read.format("lading").schema("offset bigint").options(**options).load().collect()


def test_avro_is_read_by_a_schema_file_and_by_the_ids_of_schemas(
    spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(
        '{"type":"record","name":"O","fields":[{"name":"n","type":"long"},'
        '{"name":"tags","type":{"type":"array","items":"string"}}]}'
    )
    registry = f"http://{broker.endpoints['schema_registry']}"
    schema_id = RegistryClient(RegistryAddress(registry)).register("spark-value", "AVRO", file.read_text())
    with Producer(broker.url) as producer:
        # a prefix with the id, then 7 and ["a"]; one that is cut off
        for payload in (b"\x0e\x02\x02a\x00", b"\x0e\x02"):
            producer.send("spark_avro", b"\x00" + schema_id.to_bytes(4, "big") + payload, partition=0)
    for settings in (
        {"payload.format": "avro", "payload.schema": str(file)},
        {"payload.format": "schema", "payload.registry": registry, "payload.registry_cache": str(tmp_path)},
    ):
        frame = (
            spark.read.format("lading").schema("offset bigint, n int, tags array<string>")
            .option("from", broker.url).option("topic", "spark_avro").options(**settings)
            .option("column.n", "payload").option("column.tags", "payload").load()
        )  # fmt: skip
        found: list[Any] = frame.orderBy("offset").collect()
        assert [(row.n, row.tags) for row in found] == [(7, ["a"]), (None, None)], settings
        kept = spark.read.format("lading").schema("offset bigint").options(
            **{"from": broker.url, "topic": "spark_avro", "where": "payload.n = 7", **settings}
        )  # fmt: skip
        assert [row.offset for row in kept.load().collect()] == [0]
