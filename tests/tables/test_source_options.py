"""Options of Spark's Kafka connector, as hands type them: each names what does the same here."""

from __future__ import annotations

import pytest

from lading.model.errors import SettingError
from lading.tables.plan.options import SinkOptions, SourceOptions


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("startingOffsetsByTimestamp", "here it is startingOffsets, as {"),
        ("kafka.security.protocol", "here it is transport.tls=true for SSL"),
        ("kafka.sasl.jaas.config", "here it is transport.username and transport.password_file"),
        ("groupIdPrefix", "partitions are read without a group"),
        ("minOffsetsPerTrigger", "a batch takes what is there; lengthen the interval"),
        ("maxTriggerDelay", "a batch takes what is there; lengthen the interval"),
        ("fetchOffset.numRetries", "here it is transport.retries"),
        ("fetchOffset.retryIntervalMs", "how long a retry waits is not set"),
        ("kafkaConsumer.pollTimeoutMs", "here it is transport.timeout_s"),
        ("maxRecordsPerPartition", "here it is maxRowsPerPartition"),
        ("startingOffsetsByTimestampStrategy", "is the end of its partition"),
        ("kafka.group.id", "partitions are read without a group"),
        ("kafka.fetch.max.bytes", "leave it out, or give the option of the connection that does the same"),
    ],
)
def test_an_option_of_sparks_kafka_connector_is_translated(option: str, remedy: str) -> None:
    with pytest.raises(SettingError, match="is an option of Spark's Kafka connector") as refused:
        SourceOptions.parse({"from": "lading://127.0.0.1:1", "topic": "t", option: "x"})
    assert remedy in str(refused.value) and "There are" not in str(refused.value)


@pytest.mark.parametrize("option", ["url", "server", "bootstrap.servers", "Brokers"])
def test_other_names_of_the_place_lead_to_from_and_to(option: str) -> None:
    with pytest.raises(SettingError, match=r"unknown option '.*'; did you mean from\? There are from, topic"):
        SourceOptions.parse({option: "lading://127.0.0.1:1", "topic": "t"})
    with pytest.raises(SettingError, match=r"unknown option '.*'; did you mean to\? There are to, topic"):
        SinkOptions.parse({option: "lading://127.0.0.1:1", "topic": "t"})
    with pytest.raises(SettingError, match="unknown option 'xyz'; there are from, topic"):
        SourceOptions.parse({"xyz": "1", "topic": "t"})


def test_options_that_spark_adds_to_a_stream_are_left_to_it() -> None:
    # writeStream.queryName("q"), and the flow of a declarative pipeline (Spark 4.3), give the name of the query
    given = {"to": "lading://h:1", "topic": "t", "queryName": "q", "checkpointLocation": "c", "path": "p"}
    assert SinkOptions.parse(given) == SinkOptions("lading://h:1", "t")
