"""``lading://`` against a real broker: topics, chunks, queries, states, transactions, and a network that fails."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lading import Consumer, Producer, read_arrow
from lading.client.outgoing import complete
from lading.dialects.native.messages import blocks
from lading.model.errors import LocalError, Reason, Refusal, RemoteError, Unreachable
from lading.model.scan_request import ScanRequest
from lading.model.state import State
from lading.testing import BrokerProcess
from lading.transports.interface import Filtering, Position, SendResult
from lading.transports.lading.blocks import BlockWriter, split_batch
from lading.transports.lading.transport import LadingTransport
from tests.transports.proxy import proxy


@pytest.fixture
def transport(broker: BrokerProcess) -> Iterator[LadingTransport]:
    made = LadingTransport(broker.url)
    yield made
    made.close()


def batch(*payloads: bytes) -> pa.RecordBatch:
    return complete(len(payloads), {"payload": pa.array(payloads, pa.binary())})


def payloads(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    return [message.payload for message in Consumer(broker.url, topic, timeout_s=0)]


def test_topics_are_created_described_and_deleted(transport: LadingTransport, topic: str) -> None:
    made = transport.create_topic(f"ships.{topic}", 3)
    assert (made.stream, made.topic, made.name) == ("ships", topic, f"ships.{topic}")
    assert [(part.number, part.first_offset, part.end_offset) for part in made.partitions] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert made.topic_id is not None
    assert len(made.topic_id) == 16
    assert made in transport.topics()
    assert any(row["name"] == "ships" for row in transport.streams())
    with pytest.raises(Refusal) as raised:
        transport.create_topic(f"ships.{topic}")
    assert raised.value.reason is Reason.TOPIC_NAME_EXISTS
    transport.delete_topic(f"ships.{topic}")
    with pytest.raises(LocalError, match="does not exist"):
        transport.topic(f"ships.{topic}")


def test_a_plain_name_is_in_default(transport: LadingTransport, topic: str) -> None:
    assert transport.create_topic(topic).stream == "default"
    assert transport.topic(topic).name == topic


def test_streams(transport: LadingTransport) -> None:
    transport.create_stream("harbour", 77)
    assert [row["id"] for row in transport.streams() if row["name"] == "harbour"] == [77]
    transport.delete_stream("harbour")
    assert all(row["name"] != "harbour" for row in transport.streams())


def test_unknown_topics_have_near_names(transport: LadingTransport, topic: str) -> None:
    transport.create_topic(topic)
    with pytest.raises(LocalError, match=f"did you mean .*'{topic}'"):
        transport.fetch(topic + "x", 0, 0)


def test_a_topic_that_was_deleted_is_named(transport: LadingTransport, topic: str) -> None:
    transport.create_topic(topic)
    transport.fetch(topic, 0, 0)
    transport.delete_topic(topic)
    with pytest.raises(LocalError, match=f"topic '{topic}' does not exist"):
        transport.fetch(topic, 0, 0)


def test_fetch_gives_whole_chunks_and_where_to_go_on(transport: LadingTransport, topic: str) -> None:
    transport.create_topic(topic)
    assert transport.send(topic, 0, batch(b"0", b"1")) == SendResult(2, 0, False)
    assert transport.send(topic, 0, batch(b"2")).base_offset == 2
    fetched = transport.fetch(topic, 0, 1)
    assert (fetched.end_offset, fetched.last_stable_offset, fetched.first_offset) == (3, 3, 0)
    assert fetched.topic_id == transport.topic(topic).topic_id
    parts = list(fetched.decode(ScanRequest(first=1, fields=frozenset({"payload"}))))
    assert [value for part in parts for value in part.columns["payload"].to_pylist()] == [b"1", b"2"]
    nothing = transport.fetch(topic, 0, 3)
    assert (nothing.runs, nothing.end_offset) == ([], 3)


def test_states_hide_and_are_listed(transport: LadingTransport, topic: str) -> None:
    assert isinstance(transport, Filtering)
    transport.create_topic(topic)
    transport.send(topic, 0, batch(*(b"%d" % number for number in range(5))))
    transport.set_state(topic, 0, 1, 3, State.POISONED)
    assert transport.states(topic, 0) == [(1, 3, State.POISONED)]
    shown = [value for part in transport.fetch(topic, 0, 0).decode() for value in part.columns["offset"].to_pylist()]
    assert shown == [0, 3, 4]
    everything = [part.columns["state"].to_pylist() for part in transport.fetch(topic, 0, 0).decode(states="all")]
    assert everything == [[1, 20, 20, 1, 1]]


def test_a_query_is_answered_by_the_broker(transport: LadingTransport, broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.url) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, headers={"n": number})
    batches, position = transport.query(topic, 0, 10, where="n >= 8 AND n < 13", columns="offset, n int")
    assert pa.Table.from_batches(batches).to_pydict() == {"offset": [10, 11, 12], "n": [10, 11, 12]}
    assert position == 100
    batches, _ = transport.query(topic, 0, 0, where="n = 5", headers_only=True)
    assert pa.Table.from_batches(batches).column("payload").to_pylist() == [None]
    batches, position = transport.query(topic, 0, 0, end=4, max_rows=2)
    assert (sum(part.num_rows for part in batches), position) == (2, 2)


def test_a_query_that_is_wrong_is_explained(transport: LadingTransport, topic: str) -> None:
    transport.create_topic(topic)
    with pytest.raises((Refusal, RemoteError), match="n >"):
        transport.query(topic, 0, 0, where="n >")


def test_offset_at(transport: LadingTransport, topic: str) -> None:
    transport.create_topic(topic)
    times = pa.array([1_000_000, 2_000_000, 3_000_000], pa.timestamp("us", tz="UTC"))
    transport.send(topic, 0, complete(3, {"timestamp": times}))
    assert [transport.offset_at(topic, 0, at) for at in (0, 1_000_001, 3_000_000, 3_000_001)] == [0, 1, 2, 3]


def test_transactions_are_read_when_committed_once(
    transport: LadingTransport, broker: BrokerProcess, topic: str
) -> None:
    transport.create_topic(topic)
    kept, dropped = transport.begin(), transport.begin()
    transport.writer(transaction_id=kept).send(topic, 0, batch(b"kept"))
    transport.writer(transaction_id=dropped).send(topic, 0, batch(b"dropped"))
    assert payloads(broker, topic) == []
    transport.abort([dropped])
    transport.commit("query-1 batch-1", [kept])
    transport.commit("query-1 batch-1", [kept])
    assert payloads(broker, topic) == [b"kept"]


# groups


def test_members_share_partitions_and_positions(transport: LadingTransport, topic: str) -> None:
    transport.create_topic(topic, 2)
    transport.send(topic, 0, batch(b"0", b"1", b"2"))
    first = transport.join(topic, [topic])
    assert list(first.partitions) == [(topic, 0), (topic, 1)]
    assert first.position(topic, 0) is None
    first.store(topic, 0, Position(2, 1))
    second = transport.join(topic, [topic])
    assert len(second.partitions) == 1
    with pytest.raises(Refusal) as raised:
        first.store(topic, 0, Position(3, 1))
    assert raised.value.reason is Reason.STALE_GENERATION
    assert first.heartbeat()
    assert not first.heartbeat()
    assert sorted([*first.partitions, *second.partitions]) == [(topic, 0), (topic, 1)]
    assert second.position(topic, 0) == Position(2, 1)
    first.leave()
    first.leave()
    assert second.heartbeat()
    assert len(second.partitions) == 2


# a network that fails


def test_a_lost_answer_doubles_nothing(broker: BrokerProcess, topic: str) -> None:
    with proxy(broker.endpoints["admin"]) as between:
        producer = Producer(f"lading://127.0.0.1:{between.port}")
        for number in range(6):
            producer.send(topic, b"%d" % number)
            if number % 2:
                between.lose_answers = 2
            producer.flush()
        assert between.lose_answers == 0
        producer.close()
    assert payloads(broker, topic) == [b"%d" % number for number in range(6)]


def test_a_batch_whose_outcome_is_unknown_is_sent_again_as_the_same(broker: BrokerProcess, topic: str) -> None:
    with proxy(broker.endpoints["admin"]) as between:
        # only flush sends here, so that it is flush that loses the answer
        producer = Producer(f"lading://127.0.0.1:{between.port}", retries=0, linger_ms=None)
        producer.send(topic, b"0")
        producer.flush()
        producer.send(topic, b"1")
        between.lose_answers = 1
        with pytest.raises(Unreachable, match="broke"):
            producer.flush()
        assert producer.unsent == 1
        producer.send(topic, b"2")
        producer.close()
    assert payloads(broker, topic) == [b"0", b"1", b"2"]


def test_reads_survive_lost_answers(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.url) as producer:
        for number in range(1000):
            producer.send(topic, b"x" * 1000, headers={"n": number})
    with proxy(broker.endpoints["admin"]) as between:
        url = f"lading://127.0.0.1:{between.port}"
        between_reads = Consumer(url, topic, timeout_s=0, max_bytes=100_000)
        assert next(between_reads).headers["n"] == 0
        between.lose_answers = 3
        assert [message.headers["n"] for message in between_reads] == list(range(1, 1000))
        assert between.lose_answers == 0


@pytest.mark.turns(3, part=2)
def test_a_broker_that_went_away_is_named(topic: str) -> None:
    from lading import testing

    with testing.broker() as short:
        transport = LadingTransport(short.url, retries=2)
        transport.create_topic(topic)
        place = short.endpoints["admin"]
    with pytest.raises(Unreachable, match=rf"broker at {place} broke and 2 retries"):
        transport.topics()


@pytest.mark.turns(3, part=1)
def test_a_restarted_broker_is_found_again(topic: str, tmp_path: object, same_endpoints: dict[str, str]) -> None:
    from pathlib import Path

    from lading import testing

    directory = Path(str(tmp_path))
    with testing.broker(directory, settings=same_endpoints) as first:
        producer = Producer(first.url)
        producer.send(topic, b"before")
        producer.flush()
        address = first.endpoints["admin"]
    with testing.broker(directory, settings=same_endpoints):
        producer.send(topic, b"after")
        producer.close()
        assert read_arrow(f"lading://{address}", topic, "payload").column("payload").to_pylist() == [
            b"before",
            b"after",
        ]


# blocks


def test_batches_are_cut_to_size() -> None:
    whole = batch(*(b"x" * (1000 + number) for number in range(100)))
    parts = list(split_batch(whole, 10_000))
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches([whole])
    assert all(part.nbytes <= 10_000 for part in parts)
    assert [part.num_rows for part in split_batch(batch(b"x" * 1000, b"y"), 10)] == [1, 1]
    assert list(split_batch(batch(), 10)) == []


def test_another_batch_after_an_unknown_outcome_has_another_writer() -> None:
    posted: list[bytes] = []

    def post(topic: str, partition: int, block: bytes) -> SendResult:
        posted.append(block)
        if len(posted) == 2:
            raise Unreachable("lost")
        return SendResult(1, len(posted), False)

    writer = BlockWriter(post)
    first_id = writer.writer_id
    writer.send("t", 0, batch(b"0"))
    unsure = batch(b"1")
    with pytest.raises(Unreachable):
        writer.send("t", 0, unsure)
    writer.send("t", 0, unsure)
    assert posted[1] == posted[2]
    assert writer.writer_id == first_id
    with pytest.raises(Unreachable):
        posted.clear()
        writer.send("t", 0, batch(b"2"))
        writer.send("t", 0, batch(b"3"))
    writer.send("t", 0, batch(b"4"))
    assert writer.writer_id != first_id


@pytest.mark.turns(3, part=0)
def test_a_forgotten_writer_begins_anew() -> None:
    posted: list[bytes] = []

    def post(topic: str, partition: int, block: bytes) -> SendResult:
        posted.append(block)
        if len(posted) == 2:
            raise Refusal(Reason.OUT_OF_SEQUENCE, "the writer is not known here")
        return SendResult(1, len(posted), False)

    writer = BlockWriter(post)
    old = writer.writer_id
    writer.send("t", 0, batch(b"0"))
    assert writer.send("t", 0, batch(b"1")).count == 1
    sequences = [next(blocks(block)).header.sequence for block in posted]
    assert sequences == [0, 1, 0]
    assert writer.writer_id != old
    posted.clear()
    named = BlockWriter(post, bytes(range(16)))
    named.send("t", 0, batch(b"0"))
    with pytest.raises(Refusal):
        named.send("t", 0, batch(b"1"))
