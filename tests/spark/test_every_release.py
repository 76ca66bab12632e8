"""What the data source does on every release of Spark that has its interface: batches, streams and their restarts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lading import read_arrow, testing
from lading.client.bulk import write_arrow
from lading.transports.open import open_transport

from .conftest import HEADERS, flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROWS = 3_000
COLUMNS = "partition int, offset long, carrier string, delay int, payload binary"


@pytest.mark.turns(6, part=1)
def test_a_topic_goes_through_streams_into_another_once(
    spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    """Typed columns are read as a batch, streamed into another topic, and after a restart so is what came meanwhile."""
    transport = open_transport(broker.url)
    for topic in ("every.release", "copied"):
        transport.create_topic(topic, 1)
    transport.close()

    def send(rows: int) -> None:
        write_arrow(flights(0, rows), broker.url, "every.release", headers=HEADERS, partition=0)

    def stream() -> None:
        read = spark.readStream.format("lading").option("from", broker.url).option("topic", "every.release")
        sent = read.schema(COLUMNS).load().select("carrier", "delay", "payload").writeStream.format("lading")
        sent = sent.option("to", broker.url).option("topic", "copied").option("headers", "carrier, delay")
        query = sent.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        assert query.awaitTermination(200)

    send(ROWS)
    read = spark.read.format("lading").option("from", broker.url).option("topic", "every.release")
    rows = read.schema(COLUMNS).load().orderBy("offset").collect()
    wanted = list(zip(*(flights(0, ROWS)[name].to_pylist() for name in ("carrier", "delay", "payload")), strict=True))
    assert [(row.carrier, row.delay, bytes(row.payload)) for row in rows] == wanted
    stream()
    send(100)
    stream()
    copied = read_arrow(broker.url, "copied", columns="carrier string, delay int, payload").to_pylist()
    assert sorted((row["carrier"], str(row["delay"]), row["payload"]) for row in copied) == sorted(
        (carrier, str(delay), payload) for carrier, delay, payload in wanted + wanted[:100]
    )
