"""What reading a log into typed Spark columns costs, beside native Parquet and beside a source of tuples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench._spark import TOPIC, TYPED, iggy_log, measured, spark_session

QUESTION = (
    "Spark source (typed header columns from the log, 100 B + 3 headers) / native Parquet, and / tuples; noop sink"
)
ROWS = 2_000_000
TUPLE_SHARE = 10
"""Tuples read one message in so many: they are slow."""


class TupleSource(DataSource):
    """How a source is usually written: one Python object a message."""

    @classmethod
    def name(cls) -> str:
        return "lading_tuples"

    def schema(self) -> str:
        return TYPED

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(self.options["from"], int(self.options["rows"]))


class TupleReader(DataSourceReader):
    def __init__(self, from_: str, rows: int) -> None:
        self.from_ = from_
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in (0, 1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from lading.client.consumer import Consumer

        start = {partition.value: "earliest"}
        with Consumer(self.from_, TOPIC, start=start, timeout_s=0, verify_checksum=False) as consumer:
            for count, message in enumerate(consumer):
                if count == self.rows:
                    break
                headers = message.headers
                yield message.offset, headers["carrier"], headers["trace"], headers["delay"]


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: way of reading, rows/s, CPU seconds per million rows, ratios to native Parquet and to tuples."""
    rows = ROWS // 10 if quick else ROWS
    rounds = 1 if quick else 5
    with iggy_log(rows) as broker, spark_session() as spark, TemporaryDirectory() as scratch:
        spark.dataSource.register(TupleSource)
        directory, parquet = str(broker.data_dir), str(Path(scratch, "parquet"))

        def ours(from_: str, schema: str | None) -> Any:
            reader = spark.read.format("lading").option("from", from_).option("topic", TOPIC)
            return (reader.schema(schema) if schema else reader).load()

        def noop(frame: Any) -> None:
            frame.write.format("noop").mode("overwrite").save()

        ours(directory, TYPED).write.option("compression", "none").parquet(parquet)
        few = rows // TUPLE_SHARE
        tuples = spark.read.format("lading_tuples").option("from", directory).option("rows", few // 2)
        ways = {
            "native Parquet, the same columns": (lambda: noop(spark.read.parquet(parquet)), rows),
            "lading, directory": (lambda: noop(ours(directory, TYPED)), rows),
            "lading, network": (lambda: noop(ours(broker.url, TYPED)), rows),
            "lading, directory, all fields and raw headers": (lambda: noop(ours(directory, None)), rows),
            "tuples, directory": (lambda: noop(tuples.load()), few),
        }
        found = {name: measured(spark, work, count, rounds) for name, (work, count) in ways.items()}
    native, slow = found["native Parquet, the same columns"], found["tuples, directory"]
    return [
        {"way": name}
        | figures
        | {
            "/ Parquet": round(figures["rows/s"] / native["rows/s"], 2),
            "/ tuples": round(figures["rows/s"] / slow["rows/s"], 1),
        }
        for name, figures in found.items()
    ]
