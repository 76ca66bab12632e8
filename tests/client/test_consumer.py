"""Consumer: where it begins and ends, filters, groups, positions, checksums, deserialisers, interceptors."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from lading import Consumer, Headers, Producer, testing
from lading.client.interceptors import ConsumerInterceptor
from lading.client.serdes import from_json
from lading.model.errors import ChecksumMismatch, CorruptError, DataLoss, FilterError, LocalError, SettingError
from lading.model.message import Message
from lading.model.state import State
from lading.transports.interface import Position
from tests.client.memory import MemoryTransport, Partition, sealed


@pytest.fixture
def transport() -> MemoryTransport:
    """Topic ``t``: two partitions with ten messages each, in chunks of four."""
    made = MemoryTransport(t=2)
    with Producer(made, batch_count=4, linger_ms=None) as producer:
        for number in range(20):
            producer.send("t", b"%d" % number, headers={"n": number}, partition=number % 2)
    return made


def payloads(consumer: Consumer) -> list[Any]:
    return [message.payload for message in consumer]


def values(messages: Iterable[Any]) -> list[Any]:
    """Payload and key after deserialisers, which make them anything."""
    return [(message.payload, message.key) for message in messages]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", list(range(20))),
        ("latest", []),
        (8, [16, 17, 18, 19]),
        ("8", [16, 17, 18, 19]),
        (-1, [18, 19]),
        ({1: 7}, [15, 17, 19]),
        ({("t", 0): -2}, [16, 18]),
        (datetime.now(UTC) + timedelta(days=1), []),
    ],
)
def test_start(transport: MemoryTransport, start: Any, expected: list[int]) -> None:
    found = payloads(Consumer(transport, "t", start=start, timeout_s=0))
    assert sorted(int(payload) for payload in found) == expected


@pytest.mark.parametrize(("end", "count"), [(3, 6), ({0: 1, 1: 2}, 3), ("latest", 20)])
def test_end_stops_without_a_timeout(transport: MemoryTransport, end: Any, count: int) -> None:
    assert len(payloads(Consumer(transport, "t", end=end))) == count


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start": "begin"}, "'begin'.*earliest"),
        ({"start": {9: 0}}, "partition 9 does not exist"),
        ({"states": "some"}, "states"),
        ({"where": "n >"}, "n >"),
        ({"on_loss": "cry"}, "on_loss"),
        ({"start": datetime(2024, 1, 1)}, "time zone"),
    ],
)
def test_impossible_arguments_are_refused(transport: MemoryTransport, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((SettingError, LocalError, FilterError), match=words):
        Consumer(transport, "t", **arguments)


def test_an_unknown_topic_has_near_names(transport: MemoryTransport) -> None:
    transport.held["flights"] = [Partition()]
    with pytest.raises(LocalError, match=r"topic 'fligths' does not exist.*did you mean 'flights'"):
        Consumer(transport, "fligths")
    assert transport.closed


def test_where_keeps_what_is_true_and_moves_on(transport: MemoryTransport) -> None:
    consumer = Consumer(transport, "t", where="n >= 5 AND n < 8", timeout_s=0)
    assert sorted(payloads(consumer)) == [b"5", b"6", b"7"]
    assert consumer.lag() == {("t", 0): 0, ("t", 1): 0}


def test_hidden_and_aborted_messages(transport: MemoryTransport) -> None:
    transport.held["t"][0].hidden = [(2, 4, int(State.POISONED))]
    transport.held["t"][0].aborted = [(5, 7)]
    shown = [message.offset for message in Consumer(transport, "t", start={0: 0}, timeout_s=0)]
    assert shown == [0, 1, 4, 7, 8, 9]
    everything = list(Consumer(transport, "t", start={0: 0}, timeout_s=0, states="all"))
    assert [message.offset for message in everything] == [0, 1, 2, 3, 4, 7, 8, 9]
    assert [message.state for message in everything][1:4] == [State.AVAILABLE, State.POISONED, State.POISONED]


def test_poll_and_positions(transport: MemoryTransport) -> None:
    consumer = Consumer(transport, "t", start={0: 0})
    assert [message.offset for message in consumer.poll(3, timeout_s=0)] == [0, 1, 2]
    assert consumer.positions() == {("t", 0): 3}
    assert consumer.lag() == {("t", 0): 7}
    assert [message.offset for message in consumer.poll(3, timeout_s=0)] == [3]
    consumer.seek(0, 8)
    assert [message.offset for message in consumer.poll(9, timeout_s=0)] == [8, 9]
    assert consumer.poll(timeout_s=0) == []
    with pytest.raises(LocalError, match="partition 1"):
        consumer.seek(1, 0)


def test_batches_are_the_same_messages(transport: MemoryTransport) -> None:
    table = pa.Table.from_batches(Consumer(transport, "t", timeout_s=0).batches())
    assert set(table.column("payload").to_pylist()) == {b"%d" % number for number in range(20)}
    assert table.num_rows == 20
    batches = list(Consumer(transport, "t", where="n > 17", timeout_s=0).batches("offset, n int, partition"))
    assert pa.Table.from_batches(batches).sort_by("n").to_pydict() == {
        "offset": [9, 9],
        "n": [18, 19],
        "partition": [0, 1],
    }


def test_batches_go_on_where_iteration_stopped(transport: MemoryTransport) -> None:
    consumer = Consumer(transport, "t", start={0: 0}, timeout_s=0)
    assert next(consumer).offset == 0
    rest = pa.Table.from_batches(consumer.batches())
    assert rest.column("offset").to_pylist() == list(range(1, 10))


# groups


def test_a_group_goes_on_behind_what_was_done(transport: MemoryTransport) -> None:
    with Consumer(transport, "t", group="g", timeout_s=0) as consumer:
        first = [message.payload for message in islice(consumer, 7)]
    with Consumer(transport, "t", group="g", timeout_s=0) as consumer:
        second = payloads(consumer)
    assert sorted(int(payload or b"") for payload in first + second) == list(range(20))


def test_a_message_that_failed_is_read_again(transport: MemoryTransport) -> None:
    with pytest.raises(ValueError, match="mine"), Consumer(transport, "t", group="g", timeout_s=0) as consumer:
        for message in consumer:
            if message.partition == 0 and message.offset == 2:
                raise ValueError("mine")
    assert transport.groups["g"].positions["t", 0] == Position(2, 1)


def test_without_auto_commit_only_commit_stores(transport: MemoryTransport) -> None:
    with Consumer(transport, "t", group="g", timeout_s=0, auto_commit=False) as consumer:
        list(islice(consumer, 3))
        assert transport.groups["g"].positions == {}
        consumer.commit()
        stored = dict(transport.groups["g"].positions)
        assert sum(position.offset for position in stored.values()) == 3
        next(consumer)
    assert transport.groups["g"].positions == stored


def test_commit_needs_a_group(transport: MemoryTransport) -> None:
    with pytest.raises(LocalError, match="group"):
        Consumer(transport, "t").commit()


def test_a_partition_that_went_away_is_left_to_its_new_owner(transport: MemoryTransport) -> None:
    consumer = Consumer(transport, "t", group="g", timeout_s=0)
    first = next(consumer)
    group = transport.groups["g"]
    group.partitions = [("t", 1 - first.partition)]
    group.changed = True
    assert consumer._member is not None
    consumer._member._heartbeat_at = 0.0
    rest = list(consumer)
    consumer.close()
    # what was read before it went away is for the new owner
    assert [message for message in rest if message.partition == first.partition] == []
    assert group.positions == {("t", 1 - first.partition): Position(10, 1)}


def test_a_new_generation_does_not_lose_the_positions_of_what_stays(transport: MemoryTransport) -> None:
    consumer = Consumer(transport, "t", group="g", timeout_s=0)
    found = list(consumer)
    group = transport.groups["g"]
    group.partitions = [("t", 1)]
    group.changed = True
    consumer.close()
    assert len(found) == 20
    assert group.positions == {("t", 1): Position(10, 1)}


# damage and loss


def with_checksums(payload: bytes, checksum: int) -> pa.RecordBatch:
    rows = [b"good", payload, b"after"]
    sums = [zlib.crc32(b"good"), checksum, zlib.crc32(b"after")]
    from lading.client.outgoing import complete

    return complete(3, {"payload": pa.array(rows, pa.binary()), "checksum": pa.array(sums, pa.uint32())})


@pytest.fixture
def checked() -> MemoryTransport:
    made = MemoryTransport(t=1)
    right = with_checksums(b"right", zlib.crc32(b"right"))
    made.held["t"][0].chunks.append((0, 3, sealed(right, 0)))
    return made


def test_a_wrong_payload_is_asked_for_once_more(checked: MemoryTransport) -> None:
    checked.lies.append(with_checksums(b"wrong", zlib.crc32(b"right")))
    assert payloads(Consumer(checked, "t", timeout_s=0)) == [b"good", b"right", b"after"]
    assert checked.fetches == 3


def test_a_payload_that_stays_wrong_is_named(checked: MemoryTransport) -> None:
    checked.lies += [with_checksums(b"wrong", zlib.crc32(b"right"))] * 2
    consumer = Consumer(checked, "t", timeout_s=0)
    assert next(consumer).payload == b"good"
    with pytest.raises(ChecksumMismatch, match=r"topic 't', partition 0, offset 1 .*seek\(0, 2\)"):
        next(consumer)
    consumer.seek(0, 2)
    assert payloads(consumer) == [b"after"]


def test_checksums_may_be_left_alone(checked: MemoryTransport) -> None:
    checked.lies.append(with_checksums(b"wrong", zlib.crc32(b"right")))
    found = payloads(Consumer(checked, "t", timeout_s=0, verify_checksum=False))
    assert found == [b"good", b"wrong", b"after"]


def test_messages_that_are_gone_are_a_loss(transport: MemoryTransport, caplog: pytest.LogCaptureFixture) -> None:
    part = transport.held["t"][0]
    part.first, part.chunks = 4, [chunk for chunk in part.chunks if chunk[0] >= 4]
    with pytest.raises(DataLoss, match="topic 't', partition 0: offsets 1 to 3 were deleted"):
        payloads(Consumer(transport, "t", start={0: 1}, timeout_s=0))
    with caplog.at_level(logging.WARNING):
        found = payloads(Consumer(transport, "t", start={0: 1}, timeout_s=0, on_loss="skip"))
    assert len(found) == 6
    assert "offsets 1 to 3 were deleted" in caplog.text
    assert len(payloads(Consumer(transport, "t", start={0: "earliest"}, timeout_s=0))) == 6


def again(transport: MemoryTransport, count: int) -> None:
    """Partition 0 as another broker's life left it: ``count`` other messages."""
    other = MemoryTransport(t=1)
    with Producer(other) as producer:
        for number in range(count):
            producer.send("t", b"new %d" % number)
    transport.held["t"][0] = other.held["t"][0]


def test_a_topic_that_was_made_again_is_a_loss(transport: MemoryTransport) -> None:
    consumers = [Consumer(transport, "t", start={0: 0}, timeout_s=0, on_loss=on_loss) for on_loss in ("fail", "skip")]
    for consumer in consumers:
        assert len(consumer.poll(4, timeout_s=0)) == 4
    again(transport, 2)
    transport.held["t"][0].topic_id = b"j" * 16
    with pytest.raises(DataLoss, match="deleted and created again"):
        next(consumers[0])
    assert payloads(consumers[1]) == [b"new 0", b"new 1"]


def test_offsets_that_a_recovery_cut_are_a_loss(transport: MemoryTransport) -> None:
    consumers = [Consumer(transport, "t", start={0: 0}, timeout_s=0, on_loss=on_loss) for on_loss in ("fail", "skip")]
    for consumer in consumers:
        assert len(payloads(consumer)) == 10
    again(transport, 12)
    transport.held["t"][0].epochs = ((1, 0), (2, 8))
    with pytest.raises(DataLoss, match="offsets 8 to 9 were lost when the broker recovered"):
        next(consumers[0])
    assert payloads(consumers[1]) == [b"new %d" % number for number in range(8, 12)]


def test_a_new_epoch_alone_is_no_loss(transport: MemoryTransport) -> None:
    consumer = Consumer(transport, "t", start={0: 0}, timeout_s=0)
    assert len(payloads(consumer)) == 10
    transport.held["t"][0].epochs = ((1, 0), (2, 10))
    assert payloads(consumer) == []


# deserialisers and interceptors


def test_deserialisers_see_headers() -> None:
    transport = MemoryTransport(t=1)
    with Producer(transport) as producer:
        producer.send("t", b'{"a": 1}', key=b"1", headers={"type": "json"})

    def value(topic: str, headers: Headers, data: bytes | None) -> Any:
        return (topic, headers["type"], from_json(topic, headers, data))

    consumer = Consumer(transport, "t", timeout_s=0, value_deserializer=value, key_deserializer=from_json)
    assert values(consumer) == [(("t", "json", {"a": 1}), 1)]


def test_what_cannot_be_deserialised_comes_after_what_can() -> None:
    transport = MemoryTransport(t=1)
    with Producer(transport) as producer:
        for payload in (b"1", b"{", b"3"):
            producer.send("t", payload)
    consumer = Consumer(transport, "t", timeout_s=0, value_deserializer=from_json)
    assert values([next(consumer)]) == [(1, None)]
    with pytest.raises(CorruptError, match="not valid JSON") as raised:
        next(consumer)
    assert "offset 1" in raised.value.__notes__[0]
    consumer.seek(0, 2)
    assert values(consumer) == [(3, None)]


class Marker(ConsumerInterceptor):
    """Adds a header to every message; hears of commits."""

    def __init__(self) -> None:
        self.commits: list[Mapping[tuple[str, int], int]] = []

    def on_consume(self, messages: Sequence[Message]) -> Sequence[Message]:
        for message in messages:
            message.headers.add("seen", True)
        return messages

    def on_commit(self, positions: Mapping[tuple[str, int], int]) -> None:
        self.commits.append(positions)


class Broken(ConsumerInterceptor):
    """Fails."""

    def on_consume(self, messages: Sequence[Message]) -> Sequence[Message]:
        raise RuntimeError("broken interceptor")


def test_interceptors(transport: MemoryTransport, caplog: pytest.LogCaptureFixture) -> None:
    marker = Marker()
    with Consumer(transport, "t", group="g", timeout_s=0, interceptors=[Broken(), marker]) as consumer:
        assert all(message.headers["seen"] is True for message in consumer)
    told = {place: offset for commit in marker.commits for place, offset in commit.items()}
    assert told == {("t", 0): 10, ("t", 1): 10}
    assert "Broken.on_consume" in caplog.text


def test_a_closed_consumer_says_so(transport: MemoryTransport) -> None:
    consumer = Consumer(transport, "t")
    consumer.close()
    consumer.close()
    with pytest.raises(LocalError, match="closed"):
        next(consumer)


def test_an_iteration_over_batches_that_is_left_loses_none() -> None:
    """Also where one read gave several batches, and where the next iteration asks for something else."""
    with testing.broker() as broker:
        with Producer(broker.url, batch_count=5) as producer:
            for number in range(40):
                producer.send("left", b"%d" % number, headers={"n": number})
        with Consumer(broker.url, "left", timeout_s=0) as consumer:
            found: list[int] = []
            for columns in ("n int", "n int", "offset, n int"):
                batch = next(consumer.batches(columns), None)
                if batch is not None:
                    found += [value.as_py() for value in batch.column("n")]
            found += [int(message.payload or b"") for message in consumer]
    assert sorted(set(found)) == list(range(40))
