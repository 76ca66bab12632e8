"""Records of the catalog topic: the order of the log decides which gateway got an id."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace

import pytest

from lading.broker.core.siblings import SiblingAddress
from lading.kafka_log import catalog_records
from lading.kafka_log.catalog_records import (
    CatalogRecords,
    ChannelRecord,
    GatewayRecord,
    GroupRecord,
    QueueRecord,
    StreamRecord,
    TopicRecord,
)
from lading.model.names import DEFAULT_STREAM, DEFAULT_STREAM_ID


def apply(
    records: CatalogRecords, *written: StreamRecord | TopicRecord | ChannelRecord | QueueRecord | GatewayRecord
) -> None:
    for one in written:
        records.apply(one.key.encode(), one.pack())


def topic(name: str, ident: int, stream: str = "air") -> TopicRecord:
    return TopicRecord(stream, name, ident, 5, {"retention_bytes": 7})


def test_records_are_read_as_they_were_written() -> None:
    records = CatalogRecords()
    apply(records, StreamRecord("air", 3, 4), topic("legs", 1), topic("legs", 1, DEFAULT_STREAM))
    assert records.streams == {"air": StreamRecord("air", 3, 4)}
    assert records.topics == {"air.legs": topic("legs", 1), "legs": topic("legs", 1, DEFAULT_STREAM)}
    assert [records.stream_id(name) for name in ("air", DEFAULT_STREAM, "sea")] == [3, DEFAULT_STREAM_ID, None]


def test_the_first_of_two_gateways_gets_the_id_and_the_other_one_the_next() -> None:
    records = CatalogRecords()
    apply(records, topic("legs", 1), topic("hops", 1), StreamRecord("air", 1, 0), StreamRecord("sea", 1, 0))
    assert set(records.topics) == {"air.legs"} and set(records.streams) == {"air"}
    apply(records, topic("hops", 2), StreamRecord("sea", 2, 0))
    assert records.topics["air.hops"].id == 2 and records.streams["sea"].id == 2


def test_channels_are_names_of_a_topic(caplog: pytest.LogCaptureFixture) -> None:
    records = CatalogRecords()
    apply(records, ChannelRecord("air.legs", "a", 5), ChannelRecord("air.legs", "b", 5), ChannelRecord("hops", "a", 5))
    assert {topic: set(channels) for topic, channels in records.channels.items()} == {
        "air.legs": {"a", "b"},
        "hops": {"a"},
    }
    paused = ChannelRecord("hops", "a", 5, True, "aa", (7, 9))
    apply(records, paused, QueueRecord("hops", "aa", True, (3,)))
    assert records.channels["hops"]["a"] == paused
    assert records.copy().queues == {"hops": QueueRecord("hops", "aa", True, (3,))}
    # as an earlier gateway wrote it
    records.apply(b"channel:hops/a", b'{"version": 1, "created_us": 5}')
    assert records.channels["hops"]["a"] == ChannelRecord("hops", "a", 5)
    records.apply(ChannelRecord("air.legs", "a", 0).key.encode(), None)
    assert set(records.copy().channels["air.legs"]) == {"b"}
    with caplog.at_level(logging.WARNING, "lading.store"):
        records.apply(b"channel:hops", b"{}")
    assert "its key is not TOPIC/CHANNEL" in caplog.text


def test_gateways_that_run_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    records = CatalogRecords()
    one, other = SiblingAddress("m1", "10.0.0.1", 4150, 4151), SiblingAddress("m2", "10.0.0.2", 4150, 0)
    now_us = int(time.time() * 1e6)
    hour_us = 3_600_000_000
    apply(records, GatewayRecord("a", one, now_us), GatewayRecord("b", other, now_us - hour_us))
    assert records.list_gateways("x") == [one] and records.list_gateways("a") == []
    # a clock that is an hour late: it writes again, so it runs
    apply(records, GatewayRecord("b", other, now_us - hour_us + 5))
    assert set(records.copy().list_gateways("x")) == {one, other}
    records.apply(b"gateway:a", None)
    assert records.list_gateways("x") == [other]
    monkeypatch.setattr(catalog_records, "GATEWAY_S", -1.0)
    assert records.list_gateways("x") == []


def test_another_stream_may_have_the_same_topic_id() -> None:
    records = CatalogRecords()
    apply(records, topic("legs", 1), topic("legs", 1, "sea"))
    assert set(records.topics) == {"air.legs", "sea.legs"}


def test_a_tombstone_frees_the_id() -> None:
    records = CatalogRecords()
    apply(records, topic("legs", 1), StreamRecord("air", 1, 0))
    records.apply(topic("legs", 1).key.encode(), None)
    records.apply(b"stream:air", None)
    apply(records, topic("hops", 1), StreamRecord("sea", 1, 0))
    assert set(records.topics) == {"air.hops"} and set(records.streams) == {"sea"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff\xfe", b"{}"),
        (b"position:1", b"{}"),
        (b"stream:air", b"no JSON"),
        (b"stream:air", b"[]"),
        (b"stream:air", b'{"version": 2, "id": 1, "created_us": 0}'),
        (b"stream:air", b'{"version": 1, "created_us": 0}'),
        (b"topic:a.b", topic("legs", 1).pack()),
    ],
)
def test_a_foreign_record_is_logged_and_left_out(
    key: bytes | None, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    records = CatalogRecords()
    with caplog.at_level(logging.WARNING):
        records.apply(key, value)
    assert (records.streams, records.topics) == ({}, {})
    assert "is left out" in caplog.text


def test_groups_have_numbers_of_their_topic() -> None:
    records = CatalogRecords()
    first, second = (GroupRecord("air.legs", "aa", name, 1, 5) for name in ("g", "h"))
    for record in (first, second, replace(second, id=2)):
        records.apply(record.key.encode(), record.pack())
    # the second wrote a number that the first had by then, and then the next one
    assert records.groups == {"air.legs": {"g": first, "h": replace(second, id=2)}}
    deleted = replace(first, is_deleted=True)
    records.apply(deleted.key.encode(), deleted.pack())
    assert records.groups["air.legs"]["g"].is_deleted
    for record in (first, second):
        records.apply(record.key.encode(), None)
    assert records.groups == {}


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 200_000,
        b'{"version": 1, "a": ' * 50_000,
        b'{"version": 1, "id": 1e999, "created_us": 1}',
        b'{"version": 1, "id": 4294967296, "created_us": 1}',
        b'{"version": 1, "id": -1, "created_us": 1}',
        b'{"version": 1, "id": true, "created_us": 1}',
        b'{"version": 1, "id": "1", "created_us": 1}',
        b'{"version": 1, "id": 2, "created_us": 9223372036854775808}',
        b'{"version": 1, "id": 2, "created_us": null}',
        b'{"version": 1, "written_us": 1, "nsqd": ["a", "b", 65536, 1]}',
        b'{"version": 1, "written_us": 1, "nsqd": ["a", "b", 1]}',
        b'{"version": 1, "written_us": 1e999, "nsqd": ["a", "b", 1, 1]}',
        b'{"version": 1, "written_us": 1, "nsqd": null}',
        b'{"version": 1, "topic_id": "", "is_paused": 0, "emptied": [1e999]}',
        b'{"version": 1, "serial": 1e999, "document": {}}',
        b"\xff\xfe",
        b"null",
    ],
    ids=lambda value: value[:60].decode(errors="replace"),
)
@pytest.mark.parametrize("key", ["stream:sea", "topic:sea.hops", "group:legs/g", "gateway:g", "queue:legs", "access"])
def test_a_record_that_another_program_wrote_is_left_out(
    key: str, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A record of 200 kB of brackets, or an id of 1e999, ended the thread that follows the cluster, at each start."""
    records = CatalogRecords()
    apply(records, StreamRecord("air", 3, 4), topic("legs", 1))
    with caplog.at_level(logging.WARNING, "lading.store"):
        records.apply(key.encode(), value)
    assert "and is left out" in caplog.text
    assert records.streams == {"air": StreamRecord("air", 3, 4)} and set(records.topics) == {"air.legs"}
    assert not records.groups and not records.gateways and not records.queues and records.access is None


def test_a_clock_that_is_ahead_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    records = CatalogRecords()
    now_us = time.time_ns() // 1000
    address = SiblingAddress("h", "10.0.0.7", 4150, 4151)
    for ahead_s in (0, -60, 60, 61):
        apply(records, GatewayRecord("a", address, now_us + ahead_s * 1_000_000))
    (record,) = caplog.records
    assert re.search(r"gateway at 10\.0\.0\.7:4150 is (59|60) s ahead of this one's", record.message)
