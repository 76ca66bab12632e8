"""Reading a real Kafka topic in Spark: our source, the table path and the pipeline, beside Spark's own connector."""

from __future__ import annotations

import secrets
import struct
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count as count_up
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench._spark import spark_session, tree_cpu_s
from bench.measure import median
from lading.transports.open import open_transport
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
PARTITIONS = 4
ROUNDS = 5
SCHEMA = "partition int, offset bigint, carrier string, trace binary, delay int"
COLUMNS = "partition, offset, carrier string, trace binary, delay int be"
FIRST_VALUE = "try_element_at(headers.value, CAST(array_position(headers.key, '{}') AS INT))"
"""The fastest way that Spark SQL has to one value of the header array."""


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: what is read how to where, rows/s, CPU seconds (driver, JVM, workers) a million, ratios; median of 5.

    The ways take turns, so that what else the machine does hits all of them.
    """
    rows, rounds = (ROWS // 10, 1) if quick else (ROWS, ROUNDS)
    with TemporaryDirectory() as directory:
        try:
            with kafka_broker.running(Path(directory, "kafka")) as broker, spark_session() as spark:
                connector.add(spark)
                few, many = (_filled(broker.address, count) for count in (rows, MANY * rows))
                scratch = (Path(directory, str(number)) for number in count_up())
                benches = [_Bench(spark, broker, *topic, rounds, scratch) for topic in (few, many)]
                return [*benches[0].batches(), *(row for bench in benches for row in bench.streams())]
        except (ImportError, maven.Unavailable) as missing:
            print(f"not measured: {missing}", file=sys.stderr)
            return []


def _filled(address: str, rows: int) -> tuple[str, int]:
    """A topic of so many messages, as librdkafka writes it."""
    from confluent_kafka import Producer

    maker = open_transport(f"kafka://{address}")
    topic = f"flights-{rows}"
    maker.create_topic(topic, PARTITIONS)
    maker.close()
    sender = Producer({"bootstrap.servers": address, "linger.ms": 20, "batch.size": 1_000_000, "acks": "all"})
    payloads = [b'{"flight": %6d, "note": "%s"}' % (number, b"x" * 74) for number in range(4096)]
    noise = secrets.token_bytes(4096 + 16)
    for row in range(rows):
        headers: Any = [
            ("carrier", b"UA"),
            ("trace", noise[row % 4096 : row % 4096 + 16]),
            ("delay", struct.pack(">i", row % 1000)),
        ]
        while True:
            try:
                sender.produce(
                    topic, payloads[row % 4096], key=b"%010d" % row, headers=headers, partition=row % PARTITIONS
                )
                break
            except BufferError:
                sender.poll(0.1)
    assert sender.flush(60) == 0
    return topic, rows


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
        pid = self._spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        held: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(self._rounds + 1):
            for name, work in ways.items():
                begun, cpu = time.perf_counter(), tree_cpu_s(pid) + time.process_time()
                work()
                held[name].append((time.perf_counter() - begun, tree_cpu_s(pid) + time.process_time() - cpu))
        figures = {
            name: (median(wall for wall, _ in runs[1:]), median(cpu for _, cpu in runs[1:]))
            for name, runs in held.items()
        }
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

    def _connector_raw(self, stream: bool = False) -> DataFrame:
        reader = self._spark.readStream if stream else self._spark.read
        made = (
            reader.format("kafka")
            .option("kafka.bootstrap.servers", self._broker.address)
            .option("subscribe", self._topic)
        )
        return made.option("startingOffsets", "earliest").option("includeHeaders", True).load()

    def _connector_typed(self, stream: bool = False) -> DataFrame:
        return self._connector_raw(stream).selectExpr(
            "partition", "offset", f"CAST({FIRST_VALUE.format('carrier')} AS STRING) AS carrier",
            f"{FIRST_VALUE.format('trace')} AS trace",
            f"CAST(conv(hex({FIRST_VALUE.format('delay')}), 16, 10) AS INT) AS delay",
        )  # fmt: skip

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
            "headers": {
                "carrier": "string required",
                "trace": "binary",
                "delay": {"type": "int", "encoding": "be"},
            },
            "good": {"to": "parquet:./good", "columns": ["partition", "offset", "carrier", "trace", "delay"]},
            "route": [{"where": "delay > 900", "to": "parquet:./late"}],
        }
        run_pipeline(lambda: self._spark, PipelineSettings(document, directory, "bench.toml"))


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
