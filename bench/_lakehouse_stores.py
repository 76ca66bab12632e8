"""Where the tables of ``bench.lakehouse`` lie: a directory, or a bucket of an S3 server, as each side is told.

The server is versitygw on the same machine. It keeps objects as files, so that what either side wrote is counted by the
footers of its Parquet files. The pipeline reaches it by ``[storage]``, Spark by s3a of Hadoop 3.4.1, which is that of
Spark 4.0.1; Delta Lake takes its log store for one driver there, Iceberg its files of S3 and a catalog in SQLite, as
the pipeline has one. Checkpoints and states are in directories on both sides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import parquet

from tests.interop import go_programs, maven
from tests.tables.object_server import KEY, REGION, SECRET, VERSITYGW, run_object_server

HADOOP, AWS_SDK = "3.4.1", "2.36.2"
S3A = (f"org.apache.hadoop:hadoop-aws:{HADOOP}", "org.xerial:sqlite-jdbc:3.50.3.0")
"""Without what they need, which is all of Amazon's services in one jar; the modules of ``SDK`` do."""
SDK = tuple(f"software.amazon.awssdk:{module}:{AWS_SDK}" for module in ("s3", "s3-transfer-manager", "sts", "kms"))
BUCKET = "lake"
VARIABLES = {"LAKE_KEY": KEY, "LAKE_SECRET": SECRET}
"""What ``[storage]`` refers to."""


@dataclass(frozen=True)
class Store:
    """A place for tables."""

    files: Path
    """The directory that has all objects as files."""
    for_pipeline: str
    """The address of all tables, as the pipeline is told."""
    for_spark: str
    settings: dict[str, str]
    """Of Spark's session."""
    sections: dict[str, Any] = field(default_factory=dict)
    """Of the pipeline's file."""
    catalog: str = ""
    """Catalog and namespace of the pipeline's Iceberg tables; empty if each is to have a catalog of its own."""
    spark_jars: tuple[Path, ...] = ()
    """Directories of what Spark needs besides the formats."""
    spark_lacks: str = ""
    """Why Spark's side cannot run; empty if it can."""

    def target(self, form: str, table: str) -> str:
        """Return what the pipeline's file says for a table."""
        catalog = f"{self.catalog}.{table.replace('/', '_')}:" if self.catalog and form == "iceberg" else ""
        return f"{form}:{catalog}{self.for_pipeline}/{table}"

    def count_rows(self, table: str) -> dict[str, int]:
        """Return the rows of a table's Parquet files by the directory that each lies in, without the column's name."""
        counts: dict[str, int] = {}
        for file in (self.files / table).rglob("*.parquet"):
            if not any(name.startswith("_") for name in file.relative_to(self.files).parts):
                place = file.parent.name.rpartition("=")[2]
                counts[place] = counts.get(place, 0) + parquet.read_metadata(file).num_rows
        return counts


@contextmanager
def local_store(base: Path) -> Iterator[Store]:
    """A directory."""
    place = base / "tables"
    place.mkdir()
    catalog = {"type": "hadoop", "warehouse": f"{place}/warehouse"}
    yield Store(place, str(place), str(place), _catalog(catalog))


@contextmanager
def s3_store(base: Path) -> Iterator[Store]:
    """A bucket; Unavailable without the server, and without the jars for Spark a store that Spark lacks."""
    go_programs.program(*VERSITYGW)
    jars: tuple[Path, ...] = ()
    lacks = ""
    try:
        jars = (maven.fetched(f"s3a-{HADOOP}", S3A, alone=True), maven.fetched(f"aws-sdk-{AWS_SDK}", SDK))
    except maven.Unavailable as missing:
        lacks = str(missing)
    with run_object_server(base / "objects") as server:
        bucket = server.create_bucket(BUCKET)
        # before Spark starts: its workers have the environment of its driver
        os.environ.update(VARIABLES)
        os.environ["PYICEBERG_CATALOG__LAKE__URI"] = f"sqlite:///{base}/catalog.db"
        storage = {
            "endpoint": server.url, "region": REGION, "access_key_id": "${LAKE_KEY}",
            "secret_access_key": "${LAKE_SECRET}",
        }  # fmt: skip
        sections = {"pipeline": {"state": "./state"}, "storage": storage}
        settings = {**_s3a(server.url), **_iceberg(server.url, base)}
        files = server.buckets / BUCKET
        yield Store(files, bucket, f"s3a://{BUCKET}", settings, sections, "lake/bench", jars, lacks)


def _s3a(url: str) -> dict[str, str]:
    """Return what Hadoop needs to reach the server, and what makes it fast: no looking before it writes, no audit."""
    options = {
        "endpoint": url, "endpoint.region": REGION, "access.key": KEY, "secret.key": SECRET,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true", "connection.ssl.enabled": "false", "bucket.probe": "0", "audit.enabled": "false",
        "performance.flags": "*", "fast.upload.buffer": "bytebuffer",
    }  # fmt: skip
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items()}


def _iceberg(url: str, base: Path) -> dict[str, str]:
    options = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "uri": f"jdbc:sqlite:{base}/spark-catalog.db",
        "jdbc.schema-version": "V1", "warehouse": f"s3://{BUCKET}/warehouse",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": url, "client.region": REGION,
        "s3.path-style-access": "true", "s3.access-key-id": KEY, "s3.secret-access-key": SECRET,
    }  # fmt: skip
    return _catalog(options)


def _catalog(options: dict[str, str]) -> dict[str, str]:
    return {f"spark.sql.catalog.lake.{name}": value for name, value in options.items()}


STORES: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {"local": local_store, "s3": s3_store}
