"""What the table path saves beside the DataFrame path: both write the same typed columns and payload to Parquet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench._spark import TOPIC, TYPED, iggy_log, measured, spark_session

QUESTION = "Topic to Parquet (100 B + 3 headers, checkpoint, snappy): table path / DataFrame path"
ROWS = 4_000_000
COLUMNS = "offset, carrier string, trace string, delay int, payload"
SCHEMA = f"{TYPED}, payload binary"


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: path, rows/s, CPU seconds per million rows, ratios to the DataFrame path."""
    from lading.spark.tables import ingest

    rows = ROWS // 10 if quick else ROWS
    rounds = 1 if quick else 3
    with iggy_log(rows) as broker, spark_session() as spark, TemporaryDirectory() as scratch:
        fresh = (Path(scratch, str(number)) for number in count())

        def frame_path(from_: str) -> Callable[[], None]:
            def work() -> None:
                target = next(fresh)
                stream = spark.readStream.format("lading").schema(SCHEMA).option("from", from_).option("topic", TOPIC)
                writer = stream.load().writeStream.format("parquet").option("path", str(target / "table"))
                query = writer.option("checkpointLocation", str(target / "checkpoint")).trigger(availableNow=True)
                query.start().awaitTermination()

            return work

        def table_path(from_: str, **options: Any) -> Callable[[], None]:
            def work() -> None:
                report = ingest(spark, from_, TOPIC, next(fresh), columns=COLUMNS, **options)
                assert report.rows == rows

            return work

        directory = str(broker.data_dir)
        ways = {
            "DataFrame path, directory": frame_path(directory),
            "table path, directory": table_path(directory, verify_checksum=False),
            "table path, directory, checksums verified": table_path(directory, verify_checksum=True),
            "DataFrame path, network": frame_path(broker.url),
            "table path, network": table_path(broker.url, verify_checksum=False),
        }
        found = {name: measured(spark, work, rows, rounds) for name, work in ways.items()}
    base = found["DataFrame path, directory"]
    return [
        {"path": name}
        | figures
        | {
            "times rows/s": round(figures["rows/s"] / base["rows/s"], 2),
            "times CPU": round(figures["CPU s per million"] / base["CPU s per million"], 3),
        }
        for name, figures in found.items()
    ]
