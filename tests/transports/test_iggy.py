"""``iggy://`` against Lading's own Iggy face: topics, messages there and back, groups, positions."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from lading.dialects.iggy.classic.group_keeper import group_number
from lading.dialects.iggy.classic.limits import REQUEST_HEADER_VALUES_BYTES_MAX
from lading.model.batch import SCHEMA
from lading.model.errors import LimitExceeded, LocalError, Reason, Refusal, SettingError, Unreachable
from lading.testing import BrokerProcess
from lading.transports.fetched import FetchResult
from lading.transports.fitting import fill_missing_columns
from lading.transports.iggy.sending import REQUEST_MESSAGES_MAX, requests
from lading.transports.iggy.transport import IggyTransport
from lading.transports.interface import Position, Transport
from tests.transports.proxy import proxy

Header = tuple[str, int, bytes | None]


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    return f"iggy://{broker.endpoints['iggy_tcp']}"


@pytest.fixture
def transport(url: str) -> Iterator[IggyTransport]:
    made = IggyTransport(url, timeout_s=10)
    yield made
    made.close()


def batch_of(*rows: tuple[bytes | None, Sequence[Header], bytes | None]) -> pa.RecordBatch:
    """Rows of (key, headers, payload)."""
    headers = [[{"key": key, "kind": kind, "value": value} for key, kind, value in row[1]] for row in rows]
    columns = {
        "key": pa.array([row[0] for row in rows], pa.binary()),
        "headers": pa.array(headers, SCHEMA.field("headers").type),
        "payload": pa.array([row[2] for row in rows], pa.binary()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def rows_of(fetched: FetchResult) -> list[dict[str, Any]]:
    return [
        row
        for part in fetched.decode()
        for row in pa.RecordBatch.from_arrays([part.columns[name] for name in SCHEMA.names], schema=SCHEMA).to_pylist()
    ]


def messages(transport: Transport, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    offset = 0
    while (fetched := transport.fetch(topic, partition, offset)).runs:
        found += rows_of(fetched)
        offset = fetched.end_offset
    return found


def triples(row: dict[str, Any]) -> list[Header]:
    return [(header["key"], header["kind"], header["value"]) for header in row["headers"]]


# topics


def test_topics_are_created_described_and_deleted(transport: IggyTransport, topic: str) -> None:
    made = transport.create_topic(f"ships.{topic}", 3)
    assert (made.stream, made.topic, made.name, made.topic_id) == ("ships", topic, f"ships.{topic}", None)
    found = [(part.number, part.first_offset, part.end_offset) for part in made.partitions]
    assert found == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert made in transport.topics()
    assert any(row["name"] == "ships" for row in transport.streams())
    with pytest.raises(Refusal) as raised:
        transport.create_topic(f"ships.{topic}")
    assert raised.value.reason is Reason.TOPIC_NAME_EXISTS
    transport.delete_topic(f"ships.{topic}")
    with pytest.raises(LocalError, match="does not exist"):
        transport.topic(f"ships.{topic}")


def test_a_topic_that_is_deleted_while_it_is_listed_is_left_out(
    transport: IggyTransport, url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        transport.create_topic(f"{topic}.{name}")
    described = IggyTransport._describe_topic

    def deleting(self: IggyTransport, place: tuple[str, str]) -> object:
        if place == (topic, "first"):
            with contextlib.closing(IggyTransport(url)) as other:
                other.delete_topic(f"{topic}.second")
        return described(self, place)

    with contextlib.closing(IggyTransport(url)) as lister:
        monkeypatch.setattr(lister, "_describe_topic", deleting.__get__(lister))
        assert [meta.name for meta in lister.topics() if meta.stream == topic] == [f"{topic}.first"]


def test_a_stream_in_the_url_is_where_plain_names_are(url: str, topic: str) -> None:
    inside = IggyTransport(f"{url}/harbour")
    made = inside.create_topic(topic)
    assert (made.stream, made.name) == ("harbour", f"harbour.{topic}")
    assert inside.topic(topic) == inside.topic(f"harbour.{topic}") == made
    assert [meta.name for meta in inside.topics()] == [f"harbour.{topic}"]
    inside.delete_stream("harbour")
    with pytest.raises(SettingError, match="more than a stream"):
        IggyTransport(f"{url}/harbour/topic")


def test_a_wrong_name_gets_the_nearest(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(f"flights-{topic}")
    with pytest.raises(LocalError, match=f"did you mean .*flights-{topic}"):
        transport.topic(f"flight-{topic}")


@pytest.mark.parametrize(
    ("name", "said"), [("Flights", "use that"), ("a!", "not 'a!'"), ("my flights", "'my.flights'")]
)
def test_names_that_iggy_would_change_are_refused(transport: IggyTransport, name: str, said: str) -> None:
    with pytest.raises(LocalError, match=said):
        transport.create_topic(name)


# messages


def test_headers_come_back_as_they_went(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(topic)
    headers: list[Header] = [("carrier", 2, b"UA"), ("delay", 10, b"\x0c\x00"), ("Ünïcode", 1, b"\xff")]
    assert transport.send(topic, 0, batch_of((None, headers, b"one"), (None, [], b"two"))).count == 2
    one, two = messages(transport, topic)
    assert (one["payload"], triples(one), one["offset"], one["state"]) == (b"one", headers, 0, 1)
    assert (two["payload"], triples(two), two["offset"]) == (b"two", [], 1)
    assert uuid.UUID(bytes_le=one["id"])
    assert one["timestamp"] < two["timestamp"]
    assert transport.topic(topic).partitions[0].end_offset == 2


def test_what_iggy_cannot_hold_travels_by_carrier(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(topic)
    headers: list[Header] = [("a", 2, b"1"), ("via", 1, None), ("a", 2, b"2"), ("", 2, b"x"), ("big", 1, b"v" * 9_000)]
    batch = batch_of((b"key", headers, None), (b"", [], b""), (None, headers[:1], b"p"))
    transport.send(topic, 0, batch)
    one, two, three = messages(transport, topic)
    assert (one["key"], triples(one), one["payload"]) == (b"key", headers, None)
    assert (two["key"], triples(two), two["payload"]) == (b"", [], b"")
    assert (three["key"], triples(three), three["payload"]) == (None, headers[:1], b"p")
    with pytest.raises(LocalError, match="carrier"):
        transport.send(topic, 0, batch, strict=True)


def test_a_timestamp_of_its_own_travels_too(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(topic)
    batch = batch_of((None, [], b"p"))
    stamped = batch.append_column("timestamp", pa.array([1_692_643_862_990_111], SCHEMA.field("timestamp").type))
    transport.send(topic, 0, stamped)
    assert int(messages(transport, topic)[0]["timestamp"].timestamp() * 1_000_000) == 1_692_643_862_990_111


def test_more_than_a_request_holds_is_cut_in_order(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(topic)
    rows = [(None, [("n", 1, b"%250d" % n)], b"p%d" % n) for n in range(1_000)]
    transport.send(topic, 0, batch_of(*rows))
    found = messages(transport, topic)
    assert [row["payload"] for row in found] == [row[2] for row in rows]
    assert [row["offset"] for row in found] == list(range(1_000))


def test_a_message_beyond_all_limits_is_refused_before_anything_is_sent(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(topic)
    huge: list[Header] = [("blob", 1, b"v" * REQUEST_HEADER_VALUES_BYTES_MAX)]
    with pytest.raises(LimitExceeded, match="message 1 of the batch"):
        transport.send(topic, 0, batch_of((None, [], b"p"), (None, huge, b"p")))
    assert messages(transport, topic) == []


def test_the_server_chooses_where_no_partition_is_given(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(topic, 2)
    for n in range(4):
        transport.send(topic, None, batch_of((None, [], b"p%d" % n)))
    assert [len(messages(transport, topic, partition)) for partition in (0, 1)] == [2, 2]


def test_fetch_obeys_sizes_and_waits(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(topic)
    transport.send(topic, 0, batch_of(*[(None, [], b"x" * 955)] * 100))
    transport.fetch(topic, 0, 0, max_bytes=1)
    assert transport.fetch(topic, 0, 0, max_bytes=10_000).end_offset == 10
    assert transport.fetch(topic, 0, 95, max_bytes=1 << 20).end_offset == 100
    assert transport.fetch(topic, 0, 20, max_messages=7).end_offset == 27
    empty = transport.fetch(topic, 0, 100, wait_ms=30)
    assert (empty.runs, empty.end_offset) == ([], 100)


def test_offset_at(transport: IggyTransport, topic: str) -> None:
    transport.create_topic(topic)
    assert transport.offset_at(topic, 0, 5) == 0
    transport.send(topic, 0, batch_of(*[(None, [], b"x")] * 5))
    times_us = [int(row["timestamp"].timestamp() * 1_000_000 + 0.5) for row in messages(transport, topic)]
    assert transport.offset_at(topic, 0, 0) == 0
    assert [transport.offset_at(topic, 0, time_us) for time_us in times_us] == [0, 1, 2, 3, 4]
    assert transport.offset_at(topic, 0, times_us[-1] + 1) == 5


def test_a_send_whose_answer_is_lost_goes_on_behind_what_was_confirmed(broker: BrokerProcess, topic: str) -> None:
    rows = batch_of(*[(None, [("k", 1, b"v" * 200)], b"%d" % n) for n in range(1_500)])  # three requests
    with proxy(broker.endpoints["iggy_tcp"]) as network:
        sender = IggyTransport(f"iggy://127.0.0.1:{network.port}", timeout_s=5)
        sender.create_topic(topic)
        sender.send(topic, 0, batch_of((None, [], b"first")))
        network.lose_answers = 1
        with pytest.raises(Unreachable, match="broke before the answer") as raised:
            sender.send(topic, 0, rows)
        assert raised.value.__notes__ == [f"0 of 1500 messages for topic {topic!r} were confirmed before"]
        sender.send(topic, 0, rows)
        found = [row["payload"] for row in messages(sender, topic)]
        assert found == [b"first", *(b"%d" % n for n in range(512)), *(b"%d" % n for n in range(1_500))]
        sender.close()


def test_requests_are_cut_by_every_limit() -> None:
    small = fill_missing_columns(batch_of(*[(None, [], b"x")] * (REQUEST_MESSAGES_MAX + 1)))
    assert [part.num_rows for part in requests(small)] == [REQUEST_MESSAGES_MAX, 1]
    values = fill_missing_columns(batch_of(*[(None, [("k", 1, b"v" * 200)], b"x")] * 1_024)).slice(512)
    assert [part.num_rows for part in requests(values)] == [512]
    more = fill_missing_columns(batch_of(*[(None, [("k", 1, b"v" * 200)], b"x")] * 1_025)).slice(512)
    assert [part.num_rows for part in requests(more)] == [512, 1]
    payloads = fill_missing_columns(batch_of(*[(None, [], b"x" * (2 << 20))] * 3))
    assert [part.num_rows for part in requests(payloads)] == [1, 1, 1]
    assert list(requests(small.slice(0, 0))) == []


# groups


@pytest.mark.parametrize(("group", "number"), [("1", 1), ("4294967295", 4294967295), ("0", 4108050209), ("ops", 0)])
def test_a_group_has_a_number(group: str, number: int) -> None:
    assert group_number(group) == (number or group_number(group))
    assert 1 <= group_number(group) <= 4294967295


def test_members_share_partitions_and_positions_survive_them(transport: IggyTransport, topic: str) -> None:
    name = transport.create_topic(topic, 2).name
    transport.send(topic, 0, batch_of(*[(None, [], b"x")] * 5))
    one = transport.join("ops", [topic])
    assert one.partitions == [(name, 0), (name, 1)]
    assert one.position(name, 0) is None
    one.store(name, 0, Position(0))
    assert one.position(name, 0) is None
    one.store(name, 0, Position(1))
    assert one.position(name, 0) == Position(1)
    one.store(name, 0, Position(3))
    assert one.position(name, 0) == Position(3)
    assert one.position(name, 1) is None
    two = transport.join("ops", [topic])
    assert one.heartbeat()
    assert not one.heartbeat()
    assert sorted(one.partitions + two.partitions) == [(name, 0), (name, 1)]
    assert two.position(name, 0) == Position(3)
    lost = two.partitions[0]
    with pytest.raises(Refusal) as raised:
        one.store(*lost, Position(1))
    assert raised.value.reason is Reason.STALE_GENERATION
    one.leave()
    one.leave()
    assert two.heartbeat()
    assert two.partitions == [(name, 0), (name, 1)]
    two.leave()


def test_a_single_message_at_offset_0_counts_as_consumed(transport: IggyTransport, topic: str) -> None:
    name = transport.create_topic(topic).name
    transport.send(topic, 0, batch_of((None, [], b"x")))
    member = transport.join("7", [topic])
    assert member.position(name, 0) is None
    member.store(name, 0, Position(1))
    assert member.position(name, 0) == Position(1)
    member.leave()


def test_polling_as_the_group_takes_turns(transport: IggyTransport, topic: str) -> None:
    name = transport.create_topic(topic, 2).name
    for partition in (0, 1):
        transport.send(topic, partition, batch_of(*[(None, [], b"%d" % partition)] * 3))
    member = transport.join("8", [topic])
    counts = [member.poll_next(name, 2, auto_commit=True).count for _ in range(6)]
    assert counts == [2, 2, 1, 1, 0, 0]
    assert [member.position(name, partition) for partition in (0, 1)] == [Position(3), Position(3)]
    member.leave()


def test_a_member_whose_connection_broke_joins_again(broker: BrokerProcess, topic: str) -> None:
    with proxy(broker.endpoints["iggy_tcp"]) as network:
        far = IggyTransport(f"iggy://127.0.0.1:{network.port}", timeout_s=5)
        name = far.create_topic(topic).name
        member = far.join("9", [topic])
        network.lose_answers = 1
        member.heartbeat()
        assert member.partitions == [(name, 0)]
        member.store(name, 0, Position(0))
        member.leave()
        far.close()
