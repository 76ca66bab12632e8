"""Spark's own Kafka connector, whose jars PySpark does not bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import maven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""Each by itself: not every release of the connector names what can be fetched."""


def jars() -> list[Path]:
    """The jars; maven.Unavailable where they cannot be had."""
    return sorted(maven.fetched("spark-kafka-4.2.0", JARS, alone=True).glob("*.jar"))


def add(spark: SparkSession) -> None:
    """Give a running session the format ``kafka``."""
    for jar in jars():
        spark.sql(f"ADD JAR '{jar}'")
