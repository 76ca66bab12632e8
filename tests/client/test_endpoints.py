"""The client against a real broker, over every transport that can: filters, columns, groups at work, sizes, names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from lading import Consumer, Producer, read_arrow, testing, u16, write_arrow
from lading.model.errors import LadingError, LimitExceeded
from lading.model.message import Message
from lading.transports.open import open_transport

WAIT_S = 10.0
ROWS = 500
_numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    """A broker whose groups notice a dead member soon, with topic ``flights`` filled."""
    with testing.broker(tmp_path_factory.mktemp("data"), settings={"broker.session_timeout_ms": 500}) as running:
        with Producer(running.url, partitions=3, batch_count=50) as producer:
            for number in range(ROWS):
                headers = [("carrier", ("UA", "AA", "DL")[number % 3]), ("delay", u16(number)), ("via", None)]
                producer.send("flights", b"%d" % number, headers=headers, key=b"%d" % (number % 11))
        yield running


def url_of(broker: testing.BrokerProcess, scheme: str) -> str:
    urls = {"lading": broker.url, "iggy": f"iggy://{broker.endpoints['iggy_tcp']}", "file": str(broker.data_dir)}
    return urls[scheme]


@pytest.fixture(params=["lading", "iggy"])
def url(request: pytest.FixtureRequest, broker: testing.BrokerProcess) -> str:
    """Each server transport in turn."""
    return url_of(broker, request.param)


@pytest.fixture
def topic() -> str:
    """A topic name nobody used before."""
    return f"client-{next(_numbers)}"


@pytest.mark.parametrize("scheme", ["lading", "iggy", "file"])
@pytest.mark.parametrize(
    ("where", "states", "expected"),
    [
        (None, "available", range(ROWS)),
        ("carrier = 'UA' AND delay > 15", "available", [n for n in range(ROWS) if n % 3 == 0 and n > 15]),
        ("via IS NULL AND delay BETWEEN 7 AND 9", "all", [7, 8, 9]),
        ("payload = '12'", "available", [12]),
    ],
)
@pytest.mark.turns(3)
def test_columns_and_filters_mean_the_same_everywhere(
    broker: testing.BrokerProcess, scheme: str, where: str | None, states: str, expected: list[int]
) -> None:
    columns = "partition, key, carrier string, delay int, number bigint from delay"
    table = read_arrow(url_of(broker, scheme), "flights", columns, where=where, states=states)  # type: ignore[arg-type]
    assert table.schema.names == ["partition", "key", "carrier", "delay", "number"]
    rows = table.sort_by("delay").to_pylist()
    assert [row["delay"] for row in rows] == [row["number"] for row in rows] == list(expected)
    assert all(row["key"] == b"%d" % (row["delay"] % 11) for row in rows)
    assert all(row["carrier"] == ("UA", "AA", "DL")[row["delay"] % 3] for row in rows)


@pytest.mark.parametrize("scheme", ["lading", "iggy", "file"])
def test_iteration_batches_and_tables_agree(broker: testing.BrokerProcess, scheme: str) -> None:
    where, address = "delay < 100", url_of(broker, scheme)
    messages = list(Consumer(address, "flights", where=where, timeout_s=0))
    table = pa.Table.from_batches(Consumer(address, "flights", where=where, timeout_s=0).batches())
    whole = read_arrow(address, "flights", where=where)
    assert {message.payload for message in messages} == {b"%d" % number for number in range(100)}
    assert len(messages) == 100
    assert table.sort_by("payload") == whole.sort_by("payload")
    assert {message.topic for message in messages} == {"flights"}


@pytest.mark.parametrize("limit", [0, 1, 499, 500, 900])
def test_a_limit_bounds_rows(broker: testing.BrokerProcess, limit: int) -> None:
    assert read_arrow(broker.url, "flights", "offset", limit=limit).num_rows == min(limit, ROWS)


def test_tables_come_back_as_they_were_sent(url: str, topic: str) -> None:
    table = pa.table(
        {
            "carrier": ["UA", None, "DL"],
            "delay": pa.array([5, None, -3], pa.int16()),
            "ratio": pa.array([0.5, float("inf"), None]),
            "big": pa.array([1 << 100, None, -1], pa.decimal128(38, 0)),
            "body": [b"a", b"b", None],
        }
    )
    assert write_arrow(table, url, topic, headers=["carrier", "delay", "ratio", "big"], payload="body") == 3
    columns = "carrier string, delay smallint, ratio double, big decimal(38,0), payload"
    assert read_arrow(url, topic, columns).rename_columns(table.schema.names) == table


def test_a_batch_of_another_topic_can_be_sent_on(url: str, topic: str, broker: testing.BrokerProcess) -> None:
    whole = read_arrow(broker.url, "flights")
    assert write_arrow(whole, url, topic) == ROWS
    copied = read_arrow(url, topic)
    for column in ("key", "headers", "payload"):
        assert copied.column(column).to_pylist() == whole.column(column).to_pylist()


def test_a_waiting_consumer_hears_of_news(url: str, topic: str) -> None:
    with Producer(url, partitions=2) as producer:
        producer.send(topic, b"0", partition=0)
        producer.flush()
        consumer = Consumer(url, topic, timeout_s=WAIT_S)
        assert next(consumer).payload == b"0"
        for number in range(1, 5):
            producer.send(topic, b"%d" % number, partition=number % 2)
            producer.flush()
            begun = time.monotonic()
            assert next(consumer).payload == b"%d" % number
            assert time.monotonic() - begun < WAIT_S / 2
        consumer.close()


def test_a_waiting_filter_hears_of_what_matches(url: str, topic: str) -> None:
    with Producer(url) as producer:
        producer.send(topic, b"0", headers={"n": 0})
        producer.flush()
        consumer = Consumer(url, topic, where="n >= 2", timeout_s=WAIT_S)
        assert consumer.poll(timeout_s=0) == []
        for number in range(1, 4):
            producer.send(topic, b"%d" % number, headers={"n": number})
            producer.flush()
        assert [next(consumer).payload for _ in range(2)] == [b"2", b"3"]
        consumer.close()


def test_a_timeout_ends_the_iteration(url: str) -> None:
    consumer = Consumer(url, "flights", start="latest", timeout_s=0.2)
    begun = time.monotonic()
    assert list(consumer) == []
    assert 0.15 < time.monotonic() - begun < WAIT_S


# groups


def read_until(consumers: list[Consumer], enough: Callable[[list[Message]], bool]) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while not enough(found):
        assert time.monotonic() < deadline, f"{len(found)} messages"
        for consumer in consumers:
            found += consumer.poll(50, timeout_s=0.05)
    return found


def distinct(messages: list[Message]) -> int:
    return len({message.payload for message in messages})


@pytest.fixture(autouse=True)
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members look after their group often, so that tests need not wait."""
    monkeypatch.setattr("lading.client.consumer.HEARTBEAT_S", 0.05)


def test_members_share_and_take_over(url: str, topic: str) -> None:
    with Producer(url, partitions=4) as producer:
        for number in range(200):
            producer.send(topic, b"%d" % number)
    first = Consumer(url, topic, group="21")
    found = first.poll(10, timeout_s=WAIT_S)
    second = Consumer(url, topic, group="21")
    found += read_until(
        [first, second],
        lambda messages: distinct(found + messages) == 200 and {len(first.positions()), len(second.positions())} == {2},
    )
    first.close()
    with Producer(url) as producer:
        for number in range(200, 240):
            producer.send(topic, b"%d" % number)
    rest = read_until([second], lambda messages: distinct(found + messages) == 240)
    assert {message.partition for message in rest} == {0, 1, 2, 3}
    second.close()


def test_a_dead_member_is_replaced(broker: testing.BrokerProcess, topic: str) -> None:
    with Producer(broker.url, partitions=2) as producer:
        for number in range(40):
            producer.send(topic, b"%d" % number)
    dead = Consumer(broker.url, topic, group="dead")
    dead.poll(5, timeout_s=WAIT_S)
    alive = Consumer(broker.url, topic, group="dead")
    # nobody asks the dead one again: its partition and what it did not commit come to the other
    found = read_until([alive], lambda messages: distinct(messages) == 40)
    assert {message.partition for message in found} == {0, 1}
    alive.close()
    with Consumer(broker.url, topic, group="dead", timeout_s=0) as after:
        assert list(after) == []


# sizes and names


def test_large_messages(url: str, topic: str) -> None:
    large = bytes(range(256)) * (9 << 12)
    with Producer(url) as producer:
        producer.send(topic, b"small")
        producer.send(topic, large)
        producer.send(topic, b"small again")
    assert [message.payload for message in Consumer(url, topic, timeout_s=0)] == [b"small", large, b"small again"]


def test_larger_than_any_limit_is_refused_before_it_is_taken(url: str, topic: str) -> None:
    with Producer(url) as producer:
        with pytest.raises(LimitExceeded, match="payload has 67108864 bytes"):
            producer.send(topic, bytes(64 << 20))
        assert producer.unsent == 0
        producer.send(topic, b"fine")
    assert [message.payload for message in Consumer(url, topic, timeout_s=0)] == [b"fine"]


def test_headers_over_the_limit_are_named(broker: testing.BrokerProcess, topic: str) -> None:
    with Producer(url_of(broker, "iggy")) as producer:
        with pytest.raises(LimitExceeded, match=r"102401 bytes in sum; the target accepts 102400.*'b'"):
            producer.send(topic, b"x", headers=[("a", b"1"), ("b", b"x" * 102_400)])
        producer.send(topic, b"x", headers=[("b", b"x" * 50_000)])


def test_strict_refuses_what_would_need_a_carrier(broker: testing.BrokerProcess, topic: str) -> None:
    with Producer(url_of(broker, "iggy"), strict=True) as producer:
        with pytest.raises(LadingError, match=r"null headers \(header 'via'\)"):
            producer.send(topic, b"x", headers=[("via", None)])
        with pytest.raises(LimitExceeded, match=r"'long'.*256.*255"):
            producer.send(topic, b"x", headers=[("long", "x" * 256)])
        producer.send(topic, b"x", headers=[("via", "ORD")])
    (message,) = Consumer(broker.url, topic, timeout_s=0)
    assert message.headers.items() == [("via", "ORD")]


def test_strict_takes_a_name_that_begins_with_a_backslash(broker: testing.BrokerProcess, topic: str) -> None:
    """Such a row is looked at more closely; that alone is not a reason to refuse it."""
    name = "\\\\server"  # one backslash, doubled
    with Producer(f"kafka://{broker.endpoints['kafka']}", strict=True) as producer:
        producer.send(topic, b"x", headers=[(name, b"\xff")])
    (message,) = Consumer(broker.url, topic, timeout_s=0)
    assert message.headers.items() == [(name, b"\xff")]


@pytest.mark.parametrize("name", ["ünïcode", "with space", "per%cent", "a.b.c", "q?x=1&y", "plus+hash#"])
def test_names_with_any_character(broker: testing.BrokerProcess, name: str) -> None:
    with Producer(broker.url) as producer:
        producer.send(name, b"x")
    (message,) = Consumer(broker.url, name, timeout_s=0)
    assert message.payload == b"x"
    assert name in [meta.name for meta in open_transport(str(broker.data_dir)).topics()]


def test_compressed_blocks(broker: testing.BrokerProcess, topic: str) -> None:
    with Producer(broker.url, compression="lz4") as producer:
        for number in range(2000):
            producer.send(topic, b"0123456789" * 10, headers={"n": number})
    stored = open_transport(broker.url).topic(topic).partitions[0].size_bytes
    assert stored is not None
    assert stored < 100_000
    assert read_arrow(broker.url, topic, "n int").column("n").to_pylist() == list(range(2000))


def test_a_directory_beside_a_running_broker_is_the_same(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    whole = read_arrow(broker.url, "flights")
    assert read_arrow(str(broker.data_dir), "flights") == whole
