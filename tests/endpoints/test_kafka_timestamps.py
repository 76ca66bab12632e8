"""``message.timestamp.before.max.ms`` and ``…after.max.ms``: which times a topic takes, as Apache Kafka 4 does."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading.dialects.kafka.produce import WITH_IDS
from lading.dialects.kafka.validation import RECORD_ERRORS_MAX
from lading.dialects.kafka.versions import PRODUCE_LOW
from tests.endpoints.kafka_frames import NOW_MS, batch, message, produce, record, request_frame
from tests.house.scripted import ScriptedConnection
from tests.house.test_hot_path import connected

VERSIONS = range(PRODUCE_LOW, WITH_IDS)
"""Those that name topics; later ones have the same rows."""
HOUR_MS, NEVER = 3_600_000, str((1 << 63) - 1)
INVALID_TIMESTAMP, INVALID_CONFIG = 32, 40
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedConnection]:
    monkeypatch.setattr("lading.endpoints.kafka.produce.now_us", lambda: NOW_MS * 1000)
    with connected(tmp_path, "kafka", "os") as client:
        yield client


def ask(client: ScriptedConnection, name: str, version: int, **fields: Any) -> Any:
    frame = request_frame(name, version, 7, **fields)
    return message(f"{name}Response").decode(
        client.ask(struct.pack(">i", len(frame)) + frame)[4:], version=version, header=True
    )


def create(client: ScriptedConnection, topic: str, **configs: str) -> int:
    rows = [{"name": name, "value": value} for name, value in configs.items()]
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": rows}
    (row,) = ask(client, "CreateTopics", 4, topics=[wanted], timeout_ms=1000, validate_only=False).topics
    return int(row.error_code)


def timed(*times_ms: int, packed: bool = False, base_ms: int = NOW_MS) -> bytes:
    records = b"".join(record(delta, b"x", ms=ms - base_ms) for delta, ms in enumerate(times_ms))
    return batch(gzip.compress(records) if packed else records, len(times_ms), attributes=int(packed), base_ms=base_ms)


def send(client: ScriptedConnection, topic: str, data: bytes, version: int = 9) -> Any:
    answer = ask(client, "Produce", version, **produce(topic, data))
    (row,) = answer.responses[0].partition_responses
    return row


def described(client: ScriptedConnection, topic: str, name: str) -> tuple[str, int]:
    resources = [{"resource_type": 2, "resource_name": topic, "configuration_keys": [name]}]
    rows = ask(client, "DescribeConfigs", 1, resources=resources, include_synonyms=False).results[0].configs
    return rows[0].value, rows[0].config_source


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("ms", "word"), [(-(1 << 63), "earlier"), ((1 << 63) // 1000 + 1, "later")])
def test_a_time_whose_microseconds_do_not_fit_is_refused(
    client: ScriptedConnection, ms: int, word: str, packed: bool
) -> None:
    """Kept in microseconds, -2^63 ms would come back as another number. Apache Kafka refuses it as 32, too."""
    assert create(client, "topic", **{AFTER: NEVER, BEFORE: NEVER}) == 0
    refused = send(client, "topic", timed(ms, packed=packed, base_ms=ms))
    assert refused.error_code == INVALID_TIMESTAMP
    assert f"of a record is {word} than any that can be kept" in refused.error_message
    assert send(client, "topic", timed(-(1 << 63) // 1000 + 2, packed=packed)).error_code == 0


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_records_beyond_the_bounds_are_refused_and_named(
    client: ScriptedConnection, version: int, packed: bool
) -> None:
    assert create(client, "topic", **{AFTER: str(HOUR_MS), BEFORE: "1000"}) == 0
    edges = timed(NOW_MS - 1000, NOW_MS, NOW_MS + HOUR_MS, packed=packed)
    assert send(client, "topic", edges, version).error_code == 0
    refused = send(client, "topic", timed(NOW_MS, NOW_MS * 1000, NOW_MS, NOW_MS - 1001, packed=packed), version)
    assert (refused.error_code, refused.base_offset) == (INVALID_TIMESTAMP, -1)
    if version >= 8:
        assert refused.error_message == "One or more records have been rejected due to invalid timestamp"
        assert [row.batch_index for row in refused.record_errors] == [1, 3]
        bounds = f"[{NOW_MS - 1000}, {NOW_MS + HOUR_MS}]"
        assert refused.record_errors[0].batch_index_error_message == (
            f"Timestamp {NOW_MS * 1000} of message with offset 1 is out of range. "
            f"The timestamp should be within {bounds}"
        )
    # what comes next is taken
    assert send(client, "topic", timed(NOW_MS), version).base_offset == 3


def test_the_response_for_many_records_has_a_bound(client: ScriptedConnection) -> None:
    assert create(client, "topic", **{AFTER: "0"}) == 0
    refused = send(client, "topic", timed(*[NOW_MS + 1] * 500))
    assert (refused.error_code, len(refused.record_errors)) == (INVALID_TIMESTAMP, RECORD_ERRORS_MAX)


def test_no_bound_unless_a_topic_has_one(client: ScriptedConnection) -> None:
    """Apache Kafka's own default is an hour ahead; a topic that wants that says so."""
    assert create(client, "topic") == 0
    assert described(client, "topic", AFTER) == described(client, "topic", BEFORE) == (NEVER, 5)
    assert send(client, "topic", timed(NOW_MS * 1000, 0)).error_code == 0
    assert create(client, "bounded", **{AFTER: str(HOUR_MS), BEFORE: NEVER}) == 0
    assert (described(client, "bounded", AFTER), described(client, "bounded", BEFORE)) == (
        (str(HOUR_MS), 1), (NEVER, 1),
    )  # fmt: skip
    for wrong in ("-1", "soon", str(1 << 63)):
        assert create(client, "wrong", **{AFTER: wrong}) == INVALID_CONFIG


def test_a_topic_with_the_time_of_the_append_takes_any(client: ScriptedConnection) -> None:
    assert create(client, "topic", **{AFTER: "1", "message.timestamp.type": "LogAppendTime"}) == 0
    assert send(client, "topic", timed(NOW_MS * 1000)).error_code == 0
