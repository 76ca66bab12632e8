"""Spark with Iceberg's own runtime, as a user starts it: SQL over the tables, then a stream into files.

    python spark_reader.py JARS CATALOG DIRECTORY

Prints one JSON document: the mean of each carrier, rows before a snapshot, and what the stream has written so far.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def open_session(jars: str, address: str, more: Mapping[str, str]) -> SparkSession:
    """Start Spark with the catalog ``t``."""
    settings = {
        "spark.jars": ",".join(map(str, Path(jars).glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.catalog.t": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.t.type": "rest",
        "spark.sql.catalog.t.uri": address,
        "spark.sql.catalog.t.cache-enabled": "false",
        **more,
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Read the table ``t.default.flights`` in each way."""
    jars, address, directory = sys.argv[1:4]
    spark = open_session(jars, address, {})
    means = spark.sql("select carrier, avg(delay) from t.default.flights group by carrier").collect()
    first = spark.sql("select snapshot_id from t.default.flights.snapshots order by committed_at limit 1").collect()[0][
        0
    ]
    earlier = spark.sql(f"select count(*) from t.default.flights version as of {first}").collect()[0][0]
    stream = spark.readStream.format("iceberg").load("t.default.flights").writeStream.format("parquet")
    stream = stream.option("path", f"{directory}/out").option("checkpointLocation", f"{directory}/checkpoint")
    stream.trigger(availableNow=True).start().awaitTermination()
    written = spark.read.parquet(f"{directory}/out").select("offset").collect()
    found = {
        "means": {row[0]: row[1] for row in means},
        "first": first,
        "earlier": earlier,
        "offsets": sorted(row[0] for row in written),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
