"""What requests become is weighed before it is made: by row, request and broker."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from lading.dialects.kafka import row_count
from lading.dialects.kafka.requests import parse_request_header
from lading.dialects.kafka.versions import FETCH, PRODUCE
from lading.endpoints.base.request_budget import ROW_BYTES, ROWS_MAX, MemoryReservation, RequestBudget
from lading.model.errors import MalformedMessage
from lading.runtime import turns
from tests.endpoints.every_request import kafka_requests
from tests.endpoints.http_parts import encode_request
from tests.endpoints.kafka_frames import fetch, message, one_batch, request_frame
from tests.endpoints.repeated_parts import LOGINS, kafka_parts
from tests.endpoints.request_cost import World, opened_world
from tests.endpoints.scripted_quic import ScriptedQuicConnection
from tests.endpoints.websocket_frames import BINARY, CONT, encode_frame
from tests.house.scripted import ScriptedConnection, ScriptedHttpConnection

MANY = 1_000


def limit_memory(budget: RequestBudget, bytes_max: int) -> None:
    """Have another bound count from now on; what is held stays."""
    budget.left_bytes += bytes_max - budget.bytes_max
    budget.bytes_max = bytes_max


def framed(name: str, version: int, **fields: Any) -> bytes:
    frame = request_frame(name, version, 7, **fields)
    return struct.pack(">i", len(frame)) + frame


def answer(client: ScriptedConnection, name: str, version: int) -> Any:
    data = client.transport.take()
    (size,) = struct.unpack_from(">i", data)
    assert size == len(data) - 4
    return message(name + "Response").decode(data[4:], version=version, header=True)


def log_in(world: World, role: str) -> ScriptedConnection:
    client = world.connect("kafka")
    assert isinstance(client, ScriptedConnection)
    LOGINS["kafka"](client, role)
    client.transport.take()
    return client


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened_world(tmp_path) as world:
        stream = world.broker.topology.ensure_stream("default", now_us=1)
        world.broker.at_once.create_topic(stream.id, None, "t", 2, now_us=1)
        yield world


# -- rows are counted from the heads of their lists


def test_the_rows_of_every_request_of_kafka_are_counted_up_to_its_last_byte() -> None:
    for name, frame in kafka_requests(uuid4(), is_full=True):
        head = parse_request_header(memoryview(frame))
        if head.key in (PRODUCE, FETCH):
            continue
        body = memoryview(frame)[head.body_at :]
        walk = row_count._Walk(body, 1_000)
        for step in row_count._find_steps(head.key, head.version):
            step(walk)
        assert walk.at == len(body), name


def test_rows_beyond_the_bound_are_found_before_they_are_read() -> None:
    for part in kafka_parts(is_full=False):
        frame = memoryview(part.request(MANY))[4:]
        head = parse_request_header(frame)
        if head.key in (PRODUCE, FETCH):
            continue
        body = frame[head.body_at :]
        assert row_count.count_rows(head.key, head.version, body, 10 * MANY) >= 100, part.name
        with pytest.raises(MalformedMessage, match="more than 99 rows"):
            row_count.count_rows(head.key, head.version, body, 99)


def list_offsets(rows_count: int) -> bytes:
    """A ListOffsets 2 of one topic, written by hand: kafka-python takes seconds for a million rows."""
    head = struct.pack(">hhih", 2, 2, 7, -1) + struct.pack(">ibi", -1, 0, 1) + struct.pack(">h", 1) + b"t"
    rows = b"".join(struct.pack(">iq", number, -1) for number in range(rows_count))
    frame = head + struct.pack(">i", rows_count) + rows
    return struct.pack(">i", len(frame)) + frame


def test_a_million_rows_close_the_connection_and_take_no_memory(world: World) -> None:
    # six of them, by a user without rights, took 1,576 MiB
    data = list_offsets(1_000_000)
    clients = [log_in(world, "ann") for _ in range(6)]
    tracemalloc.start()
    for client in clients:
        client.arrive(data)
    world.loop.turn()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [client.transport.events[-1] for client in clients] == ["close"] * 6
    # the frame of one and its copy, and what arrived of the others
    assert peak_bytes < 10 * len(data)
    assert world.services.requests.left_bytes == world.services.requests.bytes_max


def test_long_requests_wait_for_memory_and_are_all_answered(world: World) -> None:
    limit_memory(world.services.requests, 64 << 10)
    clients = [log_in(world, "root") for _ in range(6)]
    data = list_offsets(MANY)
    for client in clients:
        client.arrive(data)
    world.loop.turn()
    for client in clients:
        rows = answer(client, "ListOffsets", 2).topics[0].partitions
        assert len(rows) == MANY
    assert world.services.requests.left_bytes == 64 << 10


def test_memory_is_given_back_whatever_becomes_of_a_request(world: World) -> None:
    budget = world.services.requests
    for data in (
        list_offsets(MANY),
        list_offsets(MANY)[:-1],
        list_offsets(MANY)[:-8] + bytes(8),
        framed("Fetch", 11, **many_fetched(0)),
        framed("Fetch", 11, **many_fetched(60_000)),
        framed("Fetch", 11, **{**many_fetched(0), "session_id": 1, "session_epoch": 1}),
        framed("Produce", 7, **many_produced()),
        struct.pack(">i", 5_000) + struct.pack(">hhih", 2, 2, 7, -1) + b"\xff" * 4_990,
        struct.pack(">i", 5_000) + struct.pack(">hhih", 99, 2, 7, -1) + b"\xff" * 4_990,
    ):
        client = log_in(world, "root")
        client.send(data)
        client.close()
        world.loop.turn()
        assert budget.left_bytes == budget.bytes_max, data[:12]


def test_short_requests_with_long_responses_share_the_memory(world: World) -> None:
    """Metadata of all topics is a request of 25 bytes: each connection could have its response made at a time."""
    stream = world.broker.topology.ensure_stream("default", now_us=1)
    for number in range(150):
        world.broker.at_once.create_topic(stream.id, None, f"topic-{number}", 1, now_us=1)
    budget = world.services.requests
    # for one response, and a half
    limit_memory(budget, 450 * ROW_BYTES)
    asked = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    peaks = []
    # the first request prepares codecs
    for clients_count in (1, 1, 30):
        clients = [log_in(world, "root") for _ in range(clients_count)]
        tracemalloc.start()
        for client in clients:
            client.arrive(framed("Metadata", 12, **asked))
            client.transport.is_forgetting = client is not clients[-1]
        world.loop.turn()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(answer(clients[-1], "Metadata", 12).topics) == 151
        assert budget.left_bytes == budget.bytes_max
    # each has done one turn before it waits: 30 responses at a time took eight times as much as one
    assert peaks[2] < 4 * peaks[1]
    assert not budget._waiting


LISTS: Final = {
    "Iggy topics": ("iggy_tcp", struct.pack("<IIBB", 13, 301, 2, 7) + b"default"),
    "Iggy stream": ("iggy_tcp", struct.pack("<IIBB", 13, 200, 2, 7) + b"default"),
    "Iggy stats": ("iggy_tcp", struct.pack("<II", 4, 10)),
    "admin topics": ("admin", encode_request("GET", "/topics")),
}
"""Short requests of other protocols that list all topics."""


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_other_protocols_share_the_memory(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Kafka's waited for memory: each of many connections could have its list of all topics made at a time."""
    endpoint, request = LISTS[name]
    stream = world.broker.topology.ensure_stream("default", now_us=1)
    for number in range(50):
        world.broker.at_once.create_topic(stream.id, None, f"topic-{number}", 1, now_us=1)
    # a turn is as few rows as may be
    monkeypatch.setattr(turns, "TURN_S", 0)
    budget = world.services.requests
    rows_bytes = ROW_BYTES * sum(len(topic.partitions) + 1 for topic in world.broker.topology.topics())
    # for one list, and not for two
    limit_memory(budget, rows_bytes * 3 // 2)
    clients = [world.connect(endpoint) for _ in range(10)]
    for client in clients:
        LOGINS[endpoint](client, "root")
        client.transport.take()
    granted: list[int] = []
    reserve = budget.reserve

    def note(size_bytes: int, on_granted: Callable[[], None]) -> MemoryReservation:
        granted.append(size_bytes)
        return reserve(size_bytes, on_granted)

    monkeypatch.setattr(budget, "reserve", note)
    for client in clients:
        assert not isinstance(client, ScriptedQuicConnection)
        client.arrive(client.authorize(request) if isinstance(client, ScriptedHttpConnection) else request)
    world.loop.turn()
    assert len(granted) == len(clients)
    assert min(granted) >= ROW_BYTES * len(world.broker.topology.list_topics())
    assert budget.left_bytes == budget.bytes_max
    responses = {bytes(client.transport.take()) for client in clients}
    assert all(b"topic-49" in response or name == "Iggy stats" for response in responses)


# -- fetches


def many_fetched(wait_ms: int) -> dict[str, Any]:
    rows = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for number in (0, 1, *[0] * MANY)]
    fields = fetch("t", wait_ms=wait_ms)
    fields["topics"][0]["partitions"] = rows
    return fields


def test_a_partition_that_is_fetched_again_has_the_last_of_its_rows(world: World) -> None:
    # as Apache Kafka, whose FetchRequest.fetchData is a map
    fields = fetch("t")
    row = {"partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    fields["topics"] = [
        {"topic": "t", "partitions": [{**row, "partition": number, "fetch_offset": offset} for number, offset in rows]}
        for rows in ([(0, 5), (1, 0)], [(0, 0)])
    ]
    client = log_in(world, "root")
    client.send(framed("Fetch", 11, **fields))
    (topic,) = answer(client, "Fetch", 11).responses
    assert [(row.partition_index, row.error_code) for row in topic.partitions] == [(0, 0), (1, 0)]


def test_a_long_fetch_that_waits_is_answered_early_if_others_need_its_memory(world: World) -> None:
    waiting = log_in(world, "root")
    waiting.send(framed("Fetch", 11, **distinct_fetch(world, 60_000)))
    assert not waiting.transport.written
    limit_memory(world.services.requests, ROW_BYTES)
    other = log_in(world, "root")
    other.send(list_offsets(MANY))
    assert len(answer(waiting, "Fetch", 11).responses[0].partitions) == 500
    assert len(answer(other, "ListOffsets", 2).topics[0].partitions) == MANY


def distinct_fetch(world: World, wait_ms: int) -> dict[str, Any]:
    stream = world.broker.topology.ensure_stream("default", now_us=1)
    world.broker.at_once.create_topic(stream.id, None, "wide", 500, now_us=1)
    fields = fetch("wide", wait_ms=wait_ms)
    fields["topics"][0]["partitions"] = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        for number in range(500)
    ]
    return fields


# -- ListOffsets


def test_partitions_that_are_listed_twice_are_refused(world: World) -> None:
    # as Apache Kafka, which refuses all rows of such a partition
    client = log_in(world, "root")
    rows = [{"partition_index": number, "timestamp": -1, "current_leader_epoch": -1} for number in (0, 1, 0)]
    client.send(framed("ListOffsets", 5, replica_id=-1, isolation_level=0, topics=[{"name": "t", "partitions": rows}]))
    (topic,) = answer(client, "ListOffsets", 5).topics
    assert [(row.partition_index, row.error_code) for row in topic.partitions] == [(0, 42), (1, 0), (0, 42)]


# -- Produce


def many_produced() -> dict[str, Any]:
    rows = [{"index": number, "records": one_batch(b"x")} for number in range(MANY)]
    return {"acks": -1, "timeout_ms": 1_000, "topic_data": [{"name": "t", "partition_data": rows}]}


def test_a_produce_of_many_partitions_is_answered_row_by_row(world: World) -> None:
    client = log_in(world, "root")
    client.send(framed("Produce", 7, **many_produced()) + framed("ListOffsets", 5, **latest()))
    data = client.transport.take()
    (size,) = struct.unpack_from(">i", data)
    produced = message("ProduceResponse").decode(data[4 : 4 + size], version=7, header=True)
    rows = produced.responses[0].partition_responses
    assert [row.index for row in rows] == list(range(MANY))
    assert [row.error_code for row in rows] == [0, 0] + [3] * (MANY - 2)
    # what comes behind it sees what it appended
    listed = message("ListOffsetsResponse").decode(data[8 + size :], version=5, header=True)
    assert [row.offset for row in listed.topics[0].partitions] == [1, 1]


def latest() -> dict[str, Any]:
    rows = [{"partition_index": number, "timestamp": -1, "current_leader_epoch": -1} for number in (0, 1)]
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}


# -- the budget itself


class Calls:
    """Callbacks for the next pass of a loop."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def run(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


def test_reservations_are_granted_in_their_order() -> None:
    calls, granted = Calls(), []
    budget = RequestBudget(calls.call_soon, 100)
    first = budget.reserve(60, lambda: granted.append("first"))
    second = budget.reserve(60, lambda: granted.append("second"))
    third = budget.reserve(10, lambda: granted.append("third"))
    assert [one.is_granted for one in (first, second, third)] == [True, False, False]
    first.release()
    first.release()
    calls.run()
    assert granted == ["second", "third"]
    second.release()
    third.release()
    assert budget.left_bytes == 100


def test_a_request_larger_than_the_memory_waits_until_it_has_all_of_it() -> None:
    budget = RequestBudget(Calls().call_soon, 100)
    small = budget.reserve(1, lambda: None)
    large = budget.reserve(1_000, lambda: None)
    assert not large.is_granted
    small.release()
    assert large.is_granted


def test_the_oldest_of_those_that_wait_for_messages_end_for_others() -> None:
    calls, ended = Calls(), []
    budget = RequestBudget(calls.call_soon, 100)
    held = {name: budget.hold(40, lambda name=name: ended.append(name)) for name in ("a", "b")}  # type: ignore[misc]
    waiting = budget.reserve(50, lambda: ended.append("granted"))
    calls.run()
    assert ended == ["a"]
    held["a"].release()
    calls.run()
    assert ended == ["a", "granted"]
    # what is held beyond the bound is taken back from the oldest
    budget.hold(40, lambda: ended.append("c"))
    calls.run()
    assert ended == ["a", "granted", "b"]
    held["b"].release()
    waiting.release()
    assert budget.left_bytes == 60


def test_a_request_of_as_many_rows_as_may_be_fits() -> None:
    budget = RequestBudget(Calls().call_soon)
    assert budget.bytes_max > ROWS_MAX * ROW_BYTES


# -- what has arrived of a request is weighed

ARRIVED_BYTES: Final = 200_000
_KEY: Final = b"\x01\x02\x03\x04"
INCOMPLETE: Final[dict[str, tuple[str, bytes]]] = {
    "Kafka request": ("kafka", struct.pack(">i", 2 * ARRIVED_BYTES) + bytes(ARRIVED_BYTES)),
    "Iggy request": ("iggy_tcp", struct.pack("<II", 2 * ARRIVED_BYTES, 101) + bytes(ARRIVED_BYTES)),
    "WebSocket frame": ("iggy_websocket", encode_frame(BINARY, bytes(2 * ARRIVED_BYTES), _KEY)[:ARRIVED_BYTES]),
    "WebSocket message": (
        "iggy_websocket",
        encode_frame(BINARY, bytes(ARRIVED_BYTES // 8), _KEY, fin=False)
        + encode_frame(CONT, bytes(ARRIVED_BYTES // 8), _KEY, fin=False) * 7,
    ),
    "publication": ("nsqd_tcp", b"PUB t\n" + struct.pack(">i", 2 * ARRIVED_BYTES) + bytes(ARRIVED_BYTES)),
}  # fmt: skip
"""Endpoint, and the first bytes of a request of a logged-in client whose last bytes are still to come."""


@pytest.mark.parametrize("name", INCOMPLETE)
def test_bytes_of_a_request_that_is_incomplete_are_weighed(world: World, name: str) -> None:
    """Parts of a WebSocket message that were not weighed passed all tests."""
    endpoint, data = INCOMPLETE[name]
    client = world.connect(endpoint)
    LOGINS[endpoint](client, "root")
    before_bytes = world.services.receive.left_bytes
    world.send(client, data)
    world.loop.turn()
    assert ARRIVED_BYTES <= before_bytes - world.services.receive.left_bytes <= 3 * ARRIVED_BYTES
    client.close()
    world.loop.turn()
    assert world.services.receive.left_bytes >= before_bytes
