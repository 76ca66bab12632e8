"""Delta and Iceberg tables of ours, read by Spark with the packages of Delta Lake and Apache Iceberg, from Maven."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lading import Producer, testing
from lading.tables.ingest import IngestSettings, ingest
from tests.interop import maven
from tests.tables.direct import DirectExecutor

PROGRAM = Path(__file__).with_name("spark_java") / "ReadTable.java"
SPARK = "org.apache.spark:spark-sql_2.13:4.0.1"
COLUMNS = "offset, timestamp, carrier string, delay int, share double, headers, payload"
ROWS, LATER = 1000, 500
OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
    "sun.util.calendar",
)  # fmt: skip
"""Packages of java.base that Spark reaches into, as its own launcher opens them."""


class TableReader(NamedTuple):
    """A package that reads one format: its jars, Spark's settings for it, and what of a table it is given."""

    form: str
    name: str
    jars: tuple[str, ...]
    settings: tuple[str, ...]
    place: Callable[[Path], Path]


def newest_metadata(table: Path) -> Path:
    """Return the metadata of an Iceberg table's newest version."""
    return max((table / "metadata").glob("*.metadata.json"), key=lambda path: path.stat().st_mtime_ns)


READERS = [
    TableReader(
        "delta", "spark-delta-4.0.0", (SPARK, "io.delta:delta-spark_2.13:4.0.0"),
        (
            "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        ),
        lambda table: table,
    ),
    TableReader(
        "iceberg", "spark-iceberg-4.0-1.10.0",
        (SPARK, "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"),
        (
            "spark.sql.catalog.default_iceberg=org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.default_iceberg.type=hadoop",
            "spark.sql.catalog.default_iceberg.warehouse=none",
        ),
        newest_metadata,
    ),
]  # fmt: skip


def read(reader: TableReader, place: Path, order: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the schema and the rows that Spark gives."""
    try:
        jars = maven.fetched(reader.name, reader.jars)
    except maven.Unavailable as reason:
        pytest.skip(str(reason))
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command = ["java", "-Xmx512m", *opened, "-cp", f"{jars}/*", str(PROGRAM), reader.form, str(place), order]
    done = subprocess.run([*command, *reader.settings], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("schema ", "row "))]
    (schema,) = (json.loads(text) for kind, text in told if kind == "schema")
    return schema, [json.loads(text) for kind, text in told if kind == "row"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.form)
def test_spark_reads_what_was_written_in_two_runs(reader: TableReader, tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("fetches Spark from Maven; LADING_TEST_FULL=1 does")
    table = tmp_path / "flights"
    with testing.broker(tmp_path / "data") as broker:
        for rows in (range(ROWS), range(ROWS, ROWS + LATER)):
            with Producer(broker.url) as producer:
                for row in rows:
                    carrier = {} if row % 50 == 1 else {"carrier": "UA"}
                    producer.send("flights", b"%d" % row, headers={**carrier, "delay": row - 100, "share": row / 8})
            target = f"{reader.form}:{table}"
            ingest(DirectExecutor(), broker.url, "flights", target, IngestSettings(columns=COLUMNS, max_rows=300))
    schema, read_rows = read(reader, reader.place(table), "offset")
    types = {field["name"]: field["type"] for field in schema["fields"]}
    assert {name: types[name] for name in ("offset", "timestamp", "carrier", "delay", "share", "payload")} == {
        "offset": "long", "timestamp": "timestamp", "carrier": "string", "delay": "integer", "share": "double",
        "payload": "binary",
    }  # fmt: skip
    assert [found["offset"] for found in read_rows] == list(range(ROWS + LATER))
    assert [found["delay"] for found in read_rows] == [number - 100 for number in range(ROWS + LATER)]
    assert [found["share"] for found in read_rows] == [number / 8 for number in range(ROWS + LATER)]
    # toJSON leaves nulls out
    assert [found["offset"] for found in read_rows if "carrier" not in found] == list(range(1, ROWS + LATER, 50))
    assert all(len(found["headers"]) == 3 - ("carrier" not in found) for found in read_rows)
    print(f"\n{reader.name}: {len(read_rows):,} rows, lost 0, doubled 0")
