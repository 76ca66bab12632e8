"""Spark's Java classes in an archive that Java maps into memory, instead of reading, checking and laying out each.

A session of the tests loads 14,000 classes. With the archive its start and its first queries take 20 s of CPU instead
of 35. ``make install`` has Java write it once, 190 MB in the virtual environment, by ``python -m
tests.spark.class_archive``; without it, or with another Java, sessions of tests start as those of users do.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Environment variable with options for the Java of a session, and no other."""
QUIET: Final = "-Xlog:disable"
"""Another Java than the one that wrote the archive would warn."""


def find_archive() -> Path | None:
    """Return the path of the archive for this Spark and the Java in PATH, existing or not; None if one is missing."""
    spark, java = find_spec("pyspark"), shutil.which("java")
    if spark is None or spark.origin is None or java is None:
        return None
    programs = (Path(spark.origin).resolve(), Path(java).resolve())
    text = "".join(f"{program} {program.stat().st_mtime_ns} " for program in programs)
    return Path(sys.prefix, "lading-tests", f"spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsa")


def use_archive() -> None:
    """Have the sessions of this process and its children use the archive if it exists."""
    archive = find_archive()
    if archive is not None and archive.exists():
        os.environ.setdefault(OPTIONS, f"-XX:SharedArchiveFile={archive} {QUIET}")


def run_session(directory: Path) -> None:
    """Do what loads most of the classes that tests need: plan, aggregate, write and read tables, stream."""
    from lading.spark import session

    spark: Any = session("classes", "local[2]", **{"spark.sql.shuffle.partitions": 2})
    rows = spark.createDataFrame([(1, "a", b"x"), (2, "b", b"y")], "number int, text string, data binary")
    rows.write.parquet(str(directory / "rows"))
    stored = spark.read.parquet(str(directory / "rows"))
    stored.createOrReplaceTempView("rows")
    spark.sql("SELECT number, count(*) FROM rows WHERE text <> 'c' GROUP BY number ORDER BY number").collect()
    stored.join(rows, "number").toArrow()
    writer = spark.readStream.schema(stored.schema).parquet(str(directory / "rows")).writeStream
    query = (
        writer.trigger(availableNow=True).option("checkpointLocation", str(directory / "checkpoint"))
        .format("parquet").start(str(directory / "copy"))
    )  # fmt: skip
    query.awaitTermination()
    spark.stop()


def main() -> None:
    """Write the archive if it does not exist."""
    archive = find_archive()
    if archive is None or archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    draft = archive.with_name(f"{archive.name}.{os.getpid()}")
    os.environ[OPTIONS] = f"-XX:ArchiveClassesAtExit={draft} {QUIET}"
    with tempfile.TemporaryDirectory() as directory:
        run_session(Path(directory))
        from pyspark import SparkContext

        # Java writes when it exits, which this process would not wait for
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    if draft.exists():
        draft.rename(archive)
    else:
        sys.exit(f"{archive}: Java wrote no archive of classes; sessions of tests start without one")


if __name__ == "__main__":
    main()
