"""Pipelines from a real Kafka topic to the lakehouse, beside Spark's connector, Spark SQL and each format's own writer.

Both sides read the same topic in one session of Spark, in turns, and sort it out alike: a contract of three typed
headers, of which one is required, one route, and with ``expect`` one expectation that 0.9 % of the messages violate.
Ours is ``lading pipeline run --once``: tables for good and the route, and a quarantine with all of a message. Spark's
is one pass over typed rows, as a stream that is exactly once: one CASE in SQL, and one table partitioned by its result,
of what goes to quarantine the typed columns. It is given what makes that fast: no sort before the files, none of
Iceberg's shuffle. Spark 4.0.1 has writers of both formats that are released; it runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench._lakehouse_stores import STORES, Store
from bench._spark import FLIGHT_HEADERS, fill_kafka, read_typed, read_with_connector, spark_session, take_turns
from tests.interop import go_programs, kafka_broker, maven
from tests.spark import releases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUESTION = (
    "Pipeline from a real Kafka topic (contract, one route, with or without an expectation) to Parquet, Delta, "
    "Iceberg, local and S3 / Spark's connector, Spark SQL and the format's own writer, Spark 4.0.1 on two cores"
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
    """Rows: store, format, expectation, rows/s and CPU seconds (driver, JVM, workers) a million of both sides, ratios.

    A side that cannot run here has no figures.
    """
    try:
        packages = releases.install(SPARK)
        maven.fetched(f"spark-lakehouse-{SPARK}", JARS, alone=True)
        kafka_broker.jars()
    except maven.Unavailable as missing:
        print(f"not measured: {missing}", file=sys.stderr)
        return []
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    rows: list[dict[str, Any]] = []
    for store in STORES:
        command = [sys.executable, "-m", "bench.lakehouse", store, *(["--quick"] if quick else [])]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
        rows += json.loads(done.stdout.splitlines()[-1])
    return rows


def measure(store: str, rows: int, rounds: int) -> list[dict[str, Any]]:
    """Return the figures of every format in a store, with and without an expectation, in a process of this Spark."""
    with TemporaryDirectory() as base, STORES[store](Path(base)) as place:
        if place.spark_lacks:
            print(f"not measured: Spark to {store}: {place.spark_lacks}", file=sys.stderr)
        with kafka_broker.running(Path(base, "kafka")) as broker:
            topic = fill_kafka(broker.address, rows)
            libraries = (maven.fetched(f"spark-lakehouse-{SPARK}", JARS, alone=True), *place.spark_jars)
            settings = {
                "spark.jars": ",".join(str(jar) for library in libraries for jar in sorted(library.glob("*.jar"))),
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.maxConcurrentOutputFileWriters": "8",
                **place.settings,
            }
            source = Source(broker, topic, rows)
            states = (Path(base, f"run{number}") for number in count())
            with spark_session(**settings) as spark:
                assert spark.version == SPARK
                if not place.spark_lacks:
                    spark.sql("CREATE NAMESPACE lake.bench")
                cases = [Case(spark, source, place, states, form, expect) for expect in (0, 1) for form in FORMS]
                ways = {way: work for case in cases for way, work in case.ways().items()}
                figures = take_turns(spark, ways, rounds)
            for case in cases:
                case.check_tables()
            return [{"store": store, **case.compare(figures)} for case in cases]


@dataclass(frozen=True)
class Source:
    """A topic of so many messages."""

    broker: kafka_broker.RunningKafka
    topic: str
    rows: int


@dataclass(frozen=True)
class Case:
    """One format in a store with so many expectations, and the topic that goes there."""

    spark: SparkSession
    source: Source
    store: Store
    states: Iterator[Path]
    """Directories that there are not yet, for a state or a checkpoint; the tables have their names."""
    form: str
    expect: int
    written: dict[str, list[str]] = field(default_factory=lambda: {"pipeline": [], "Spark": []})
    """The names of the tables of each side."""

    def ways(self) -> dict[str, Callable[[], None]]:
        """Return what each side does that can run."""
        ways = {self._way("pipeline"): self._run_pipeline}
        return ways if self.store.spark_lacks else {**ways, self._way("Spark"): self._run_spark}

    def compare(self, figures: dict[str, tuple[float, float]]) -> dict[str, Any]:
        """Return the case's row; of a side that did not run there is None."""
        rows = self.source.rows
        ours_s, ours_cpu_s = figures[self._way("pipeline")]
        spark_s, spark_cpu_s = figures.get(self._way("Spark"), (None, None))
        return {
            "to": self.form, "expect": self.expect,
            "pipeline rows/s": round(rows / ours_s), "Spark rows/s": spark_s and round(rows / spark_s),
            "times rows/s": spark_s and round(spark_s / ours_s, 2),
            "pipeline CPU s per M": round(ours_cpu_s / rows * 1e6, 2),
            "Spark CPU s per M": spark_cpu_s and round(spark_cpu_s / rows * 1e6, 2),
            "times CPU": spark_cpu_s and round(ours_cpu_s / spark_cpu_s, 3),
        }  # fmt: skip

    def check_tables(self) -> None:
        """Assert of every table of both sides that its files, in the store, have the rows that belong there."""
        expected = {kind: rows for kind, rows in self._expected().items() if rows}
        for side, names in self.written.items():
            for name in names:
                in_warehouse = side == "Spark" and self.form == "iceberg"
                held = self.store.count_rows(f"warehouse/bench/{name}" if in_warehouse else name)
                assert held == expected, f"{side}, {self.form}, {name}: {held}, not {expected}"

    def _way(self, side: str) -> str:
        return f"{side}, {self.form}, {self.expect}"

    def _expected(self) -> dict[str, int]:
        """Return how many messages go where."""
        rows = self.source.rows
        quarantined = rows // DELAYS * (DELAYS - 991) * self.expect
        late = rows // DELAYS * (DELAYS - 901) - quarantined
        return {"good": rows - late - quarantined, "late": late, "quarantine": quarantined}

    def _next(self, side: str) -> Path:
        state = next(self.states)
        self.written[side].append(state.name)
        return state

    def _run_pipeline(self) -> None:
        from lading.pipeline.run import run as run_pipeline
        from lading.pipeline.settings import PipelineSettings

        directory = self._next("pipeline")
        directory.mkdir()
        good, late = (self.store.target(self.form, f"{directory.name}/{kind}") for kind in ("good", "late"))
        expectation = {"name": "plausible", "condition": EXPECTED, "else": "quarantine"}
        document = {
            "source": {"from": self.source.broker.url, "topic": self.source.topic},
            "headers": FLIGHT_HEADERS,
            "good": {"to": good, "columns": [*COLUMNS]},
            "route": [{"name": "late", "where": LATE, "to": late, "columns": [*COLUMNS]}],
            "quarantine": {"to": self.store.target("parquet", f"{directory.name}/quarantine")},
            **({"expect": [expectation]} if self.expect else {}),
            **self.store.sections,
        }
        report = run_pipeline(lambda: self.spark, PipelineSettings(document, directory, "bench.toml"))
        expected = self._expected()
        assert (report["good"], report["routed"], report["quarantined"]) == tuple(expected.values()), report.counts

    def _run_spark(self) -> None:
        checkpoint = self._next("Spark")
        name, source = checkpoint.name, self.source
        typed = read_typed(read_with_connector(self.spark.readStream, source.broker.address, source.topic))
        bad = ["carrier IS NULL", *([f"({EXPECTED}) IS NOT TRUE"] if self.expect else [])]
        case = f"CASE WHEN {' OR '.join(bad)} THEN 'quarantine' WHEN {LATE} THEN 'late' ELSE 'good' END"
        writer = typed.selectExpr(*COLUMNS, f"{case} AS destination").writeStream.format(self.form)
        writer = writer.option("checkpointLocation", f"file://{checkpoint}").trigger(availableNow=True)
        if self.form == "iceberg":
            self.spark.sql(
                f"CREATE TABLE lake.bench.{name} ({SCHEMA}) USING iceberg PARTITIONED BY (destination) "
                "TBLPROPERTIES ('write.distribution-mode' = 'none')"
            )
            query = writer.option("fanout-enabled", "true").toTable(f"lake.bench.{name}")
        else:
            query = writer.partitionBy("destination").start(f"{self.store.for_spark}/{name}")
        query.awaitTermination()


def main() -> int:
    """Measure one store and print its rows as a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.lakehouse", description=main.__doc__)
    parser.add_argument("store", choices=STORES)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    try:
        rows = measure(asked.store, ROWS // 10, 1) if asked.quick else measure(asked.store, ROWS, ROUNDS)
    except (go_programs.Unavailable, maven.Unavailable) as missing:
        print(f"not measured: {asked.store}: {missing}", file=sys.stderr)
        rows = []
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
