"""Pipelines from a real Kafka topic to the lakehouse, beside Spark's connector, Spark SQL and each format's own writer.

Both sides read the same topic in one session of Spark, in turns, and sort it out alike: a contract of three typed
headers, of which one is required, one route, and with ``expect`` one expectation that 0.9 % of the messages violate.
Ours is ``lading pipeline run --once``: tables for good and the route, and a quarantine with all of a message. Spark's
is one pass over typed rows, as a stream that is exactly once: one CASE in SQL, and one table partitioned by its result,
of what goes to quarantine the typed columns. It is given what makes that fast: no sort before the files, none of
Iceberg's shuffle. Spark 4.0.1 has writers of both formats that are released; it runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench._spark import FLIGHT_HEADERS, fill_kafka, read_typed, read_with_connector, spark_session, take_turns
from tests.interop import kafka_broker, maven
from tests.spark import releases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUESTION = (
    "Pipeline from a real Kafka topic (contract, one route, with or without an expectation) to Parquet, Delta, "
    "Iceberg / Spark's connector, Spark SQL and the format's own writer, Spark 4.0.1 on two cores"
)
ROWS = 4_000_000
ROUNDS = 3
SPARK = "4.0.1"
JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
    "io.delta:delta-spark_2.13:4.0.0",
    "io.delta:delta-storage:4.0.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
)
FORMS = ("parquet", "delta", "iceberg")
COLUMNS = ("partition", "offset", "carrier", "trace", "delay")
SCHEMA = "partition int, offset bigint, carrier string, trace binary, delay int, destination string"
LATE, EXPECTED = "delay > 900", "delay <= 990"
DELAYS = 1000
"""The topic's delays count from 0 to one less, again and again."""


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: format, expectation, rows/s and CPU seconds (driver, JVM, workers) a million of both sides, ratios."""
    try:
        packages = releases.install(SPARK)
        maven.fetched(f"spark-lakehouse-{SPARK}", JARS, alone=True)
        kafka_broker.jars()
    except maven.Unavailable as missing:
        print(f"not measured: {missing}", file=sys.stderr)
        return []
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "bench.lakehouse", *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def measure(rows: int, rounds: int) -> list[dict[str, Any]]:
    """Return the figures of every format, with and without an expectation, in a process that has this Spark."""
    with TemporaryDirectory() as base, kafka_broker.running(Path(base, "kafka")) as broker:
        topic = fill_kafka(broker.address, rows)
        settings = {
            "spark.jars": ",".join(map(str, sorted(maven.fetched(f"spark-lakehouse-{SPARK}", JARS).glob("*.jar")))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": f"{base}/warehouse",
            "spark.sql.maxConcurrentOutputFileWriters": "8",
        }
        fresh = (Path(base, str(number)) for number in count())
        with spark_session(**settings) as spark:
            assert spark.version == SPARK
            cases = [Case(spark, broker, topic, rows, fresh, form, expect) for expect in (0, 1) for form in FORMS]
            ways = {way: work for case in cases for way, work in case.ways().items()}
            figures = take_turns(spark, ways, rounds)
            return [case.compare(figures) for case in cases]


@dataclass(frozen=True)
class Case:
    """One format with so many expectations, and the topic that goes there."""

    spark: SparkSession
    broker: kafka_broker.RunningKafka
    topic: str
    rows: int
    fresh: Iterator[Path]
    form: str
    expect: int

    def ways(self) -> dict[str, Callable[[], None]]:
        return {self._way("pipeline"): self._run_pipeline, self._way("Spark"): self._run_spark}

    def compare(self, figures: dict[str, tuple[float, float]]) -> dict[str, Any]:
        (ours_s, ours_cpu_s), (spark_s, spark_cpu_s) = (figures[way] for way in self.ways())
        per_million = 1e6 / self.rows
        return {
            "to": self.form, "expect": self.expect,
            "pipeline rows/s": round(self.rows / ours_s), "Spark rows/s": round(self.rows / spark_s),
            "times rows/s": round(spark_s / ours_s, 2),
            "pipeline CPU s per M": round(ours_cpu_s * per_million, 2),
            "Spark CPU s per M": round(spark_cpu_s * per_million, 2),
            "times CPU": round(ours_cpu_s / spark_cpu_s, 3),
        }  # fmt: skip

    def _way(self, side: str) -> str:
        return f"{side}, {self.form}, {self.expect}"

    def _expected(self) -> dict[str, int]:
        """Return how many messages go where."""
        quarantined = self.rows // DELAYS * (DELAYS - 991) * self.expect
        late = self.rows // DELAYS * (DELAYS - 901) - quarantined
        return {"good": self.rows - late - quarantined, "late": late, "quarantine": quarantined}

    def _run_pipeline(self) -> None:
        from lading.pipeline.run import run as run_pipeline
        from lading.pipeline.settings import PipelineSettings

        directory = next(self.fresh)
        directory.mkdir()
        expectation = {"name": "plausible", "condition": EXPECTED, "else": "quarantine"}
        document = {
            "source": {"from": self.broker.url, "topic": self.topic},
            "headers": FLIGHT_HEADERS,
            "good": {"to": f"{self.form}:./good", "columns": [*COLUMNS]},
            "route": [{"name": "late", "where": LATE, "to": f"{self.form}:./late", "columns": [*COLUMNS]}],
            **({"expect": [expectation]} if self.expect else {}),
        }
        report = run_pipeline(lambda: self.spark, PipelineSettings(document, directory, "bench.toml"))
        expected = self._expected()
        assert (report["good"], report["routed"], report["quarantined"]) == tuple(expected.values()), report.counts

    def _run_spark(self) -> None:
        target = next(self.fresh)
        typed = read_typed(read_with_connector(self.spark.readStream, self.broker.address, self.topic))
        bad = ["carrier IS NULL", *([f"({EXPECTED}) IS NOT TRUE"] if self.expect else [])]
        case = f"CASE WHEN {' OR '.join(bad)} THEN 'quarantine' WHEN {LATE} THEN 'late' ELSE 'good' END"
        writer = typed.selectExpr(*COLUMNS, f"{case} AS destination").writeStream.format(self.form)
        writer = writer.option("checkpointLocation", f"{target}-checkpoint").trigger(availableNow=True)
        if self.form == "iceberg":
            self.spark.sql(
                f"CREATE TABLE lake.bench.t{target.name} ({SCHEMA}) USING iceberg PARTITIONED BY (destination) "
                "TBLPROPERTIES ('write.distribution-mode' = 'none')"
            )
            query = writer.option("fanout-enabled", "true").toTable(f"lake.bench.t{target.name}")
        else:
            query = writer.partitionBy("destination").start(str(target))
        query.awaitTermination()


if __name__ == "__main__":
    print(json.dumps(measure(ROWS // 10, 1) if "--quick" in sys.argv[1:] else measure(ROWS, ROUNDS)))
