"""Reading a real Kafka topic in Spark: our source, the table path and the pipeline, beside Spark's own connector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count as count_up
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench._spark import FLIGHT_HEADERS, fill_kafka, read_typed, read_with_connector, spark_session, take_turns
from tests.interop import kafka_broker, maven
from tests.spark import connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUESTION = (
    "Spark reads a real Kafka topic (10 B key, 100 B payload, 3 headers, 4 partitions): "
    "ours / Spark's connector with SQL extraction of the same columns"
)
ROWS = 1_000_000
MANY = 10
"""So many times the rows are streamed too: starting a query costs as much as reading a million messages."""
ROUNDS = 5
SCHEMA = "partition int, offset bigint, carrier string, trace binary, delay int"
COLUMNS = "partition, offset, carrier string, trace binary, delay int be"


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: what is read how to where, rows/s, CPU seconds (driver, JVM, workers) a million, ratios; median of 5.

    The ways take turns, so that what else the machine does hits all of them.
    """
    rows, rounds = (ROWS // 10, 1) if quick else (ROWS, ROUNDS)
    with TemporaryDirectory() as directory:
        try:
            with kafka_broker.running(Path(directory, "kafka")) as broker, spark_session() as spark:
                connector.add(spark)
                few, many = ((fill_kafka(broker.address, count), count) for count in (rows, MANY * rows))
                scratch = (Path(directory, str(number)) for number in count_up())
                benches = [_Bench(spark, broker, *topic, rounds, scratch) for topic in (few, many)]
                return [*benches[0].batches(), *(row for bench in benches for row in bench.streams())]
        except (ImportError, maven.Unavailable) as missing:
            print(f"not measured: {missing}", file=sys.stderr)
            return []


class _Bench:
    def __init__(
        self,
        spark: SparkSession,
        broker: kafka_broker.RunningKafka,
        topic: str,
        rows: int,
        rounds: int,
        scratch: Iterator[Path],
    ) -> None:
        self._spark = spark
        self._broker = broker
        self._topic = topic
        self._rows = rows
        self._rounds = rounds
        self._fresh = scratch

    def batches(self) -> list[dict[str, Any]]:
        """Batch reads into both sinks; the connector's typed columns are what others are compared with."""
        typed, raw, ours = self._connector_typed, self._connector_raw, self._ours
        return [
            *self._compared("batch, no-op sink", {
                "connector, three typed columns": lambda: _noop(typed()),
                "connector, raw rows with the header array": lambda: _noop(raw()),
                "lading, three typed columns": lambda: _noop(ours()),
            }),
            *self._compared("batch, Parquet", {
                "connector, three typed columns": lambda: self._parquet(typed()),
                "lading, DataFrame path": lambda: self._parquet(ours()),
            }),
        ]  # fmt: skip

    def streams(self) -> list[dict[str, Any]]:
        """Streams with Trigger.AvailableNow, from start to end of the query, in the batches each makes by itself."""
        typed, ours = self._connector_typed, self._ours
        return self._compared("AvailableNow stream, Parquet", {
            "connector, three typed columns": lambda: self._stream(typed(stream=True)),
            "lading, DataFrame path": lambda: self._stream(ours(stream=True)),
            "lading, table path": self._table,
            "lading, pipeline with contract and one route": self._pipeline,
        })  # fmt: skip

    def _compared(self, what: str, ways: dict[str, Callable[[], None]]) -> list[dict[str, Any]]:
        figures = take_turns(self._spark, ways, self._rounds)
        base_wall, base_cpu = next(iter(figures.values()))
        return [
            {
                "what": what,
                "messages": self._rows,
                "way": name,
                "rows/s": round(self._rows / wall),
                "CPU s per million": round(cpu / self._rows * 1e6, 2),
                "/ connector typed": round(base_wall / wall, 2),
                "CPU / connector typed": round(cpu / base_cpu, 2),
            }
            for name, (wall, cpu) in figures.items()
        ]

    # frames

    def _ours(self, stream: bool = False) -> DataFrame:
        reader = self._spark.readStream if stream else self._spark.read
        made = reader.format("lading").schema(SCHEMA).option("from", self._broker.url).option("topic", self._topic)
        return made.option("encoding.delay", "be").load()

    def _connector_raw(self) -> DataFrame:
        return read_with_connector(self._spark.read, self._broker.address, self._topic)

    def _connector_typed(self, stream: bool = False) -> DataFrame:
        reader = self._spark.readStream if stream else self._spark.read
        return read_typed(read_with_connector(reader, self._broker.address, self._topic))

    # sinks

    def _parquet(self, frame: DataFrame) -> None:
        frame.write.parquet(str(next(self._fresh)))

    def _stream(self, frame: DataFrame) -> None:
        target = next(self._fresh)
        writer = frame.writeStream.format("parquet").option("path", str(target / "table"))
        query = writer.option("checkpointLocation", str(target / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    def _table(self) -> None:
        from lading.spark.tables import ingest

        target = next(self._fresh)
        report = ingest(self._spark, self._broker.url, self._topic, target, columns=COLUMNS)
        assert report.rows == self._rows

    def _pipeline(self) -> None:
        from lading.pipeline.run import run as run_pipeline
        from lading.pipeline.settings import PipelineSettings

        directory = next(self._fresh)
        directory.mkdir()
        document = {
            "source": {"from": self._broker.url, "topic": self._topic},
            "headers": FLIGHT_HEADERS,
            "good": {"to": "parquet:./good", "columns": ["partition", "offset", "carrier", "trace", "delay"]},
            "route": [{"where": "delay > 900", "to": "parquet:./late"}],
        }
        run_pipeline(lambda: self._spark, PipelineSettings(document, directory, "bench.toml"))


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
