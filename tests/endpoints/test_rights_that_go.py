"""Rights, users and tokens that go while their owner is connected, and waits for something, on every face."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx
import pytest

from lading.testing import BrokerProcess
from tests.endpoints.frames import Frames
from tests.endpoints.identity import broker_with_users
from tests.endpoints.kafka_frames import KafkaFrames, fetch
from tests.endpoints.nsq_client import NsqClient, pub, sized
from tests.endpoints.test_http_users import client as http_client
from tests.endpoints.test_iggy_releases import named, short
from tests.endpoints.test_kafka_users import log_in

Started = tuple[BrokerProcess, httpx.Client]
TOPIC: Final = "orders"
WAIT_MS: Final = 20_000
SHORT_DAYS: Final = 1.0 / 86_400
"""A second, as the days of a token."""
NAMES: Final = [f"reader-{number}" for number in range(20)]
_names = iter(NAMES)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with broker_with_users(tmp_path_factory.mktemp("rights") / "data", others=[*NAMES, "second"]) as (running, _):
        root = http_client(running, basic="root")
        assert root.post(f"/topics/default/{TOPIC}", json={}).status_code == 201
        yield running, root


class Reader:
    """A user who may read the topic, and be in the group ``g``."""

    def __init__(self, root: httpx.Client, days: float | None = None) -> None:
        # each test has its own, added before the broker began: the hashes of passwords are slow
        self.root, self.name = root, next(_names)
        self.rows = [
            {"user": self.name, "kind": kind, "pattern": "literal", "name": name, "operation": "read"}
            for kind, name in (("topic", TOPIC), ("group", "g"))
        ]
        self.change_rules(add=self.rows)
        self.token = root.post(f"/users/{self.name}/tokens/own", json={"days": days} if days else {}).json()["token"]

    def change_rules(self, **changes: Any) -> None:
        assert self.root.post("/rules", json=changes).status_code == 204

    def take_rights(self) -> None:
        self.change_rules(delete=self.rows)

    def delete(self) -> None:
        assert self.root.delete(f"/users/{self.name}").status_code == 204

    def delete_token(self) -> None:
        assert self.root.delete(f"/users/{self.name}/tokens/own").status_code == 204


def publish(started: Started) -> None:
    """A message, after which what waits is woken."""
    nsqd = http_client(started[0], "nsqd_http", basic="root")
    assert nsqd.post(f"/pub?topic={TOPIC}", content=b"after").text == "OK"


# -- a right that is taken away


def kafka_of(started: Started, reader: Reader) -> KafkaFrames:
    kafka = KafkaFrames(started[0].endpoints["kafka"])
    assert log_in(kafka, reader.name, reader.token).error_code == 0
    return kafka


def end_of(kafka: KafkaFrames) -> int:
    asked = [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    return int(kafka.ask("ListOffsets", 1, replica_id=-1, topics=asked).topics[0].partitions[0].offset)


@pytest.mark.turns(2)
@pytest.mark.parametrize("partitions_count", [1, 400], ids=["short", "long"])
def test_a_fetch_that_waits_gives_nothing_without_the_right(started: Started, partitions_count: int) -> None:
    reader = Reader(started[1])
    kafka = kafka_of(started, reader)
    fields = fetch(TOPIC, end_of(kafka), wait_ms=WAIT_MS)
    (part,) = fields["topics"][0]["partitions"]
    fields["topics"][0]["partitions"] = [part] * partitions_count
    kafka.send(kafka.request("Fetch", 4, **fields))
    # behind the fetch, so that it waits by then
    assert kafka_of(started, reader).ask("Heartbeat", 0, group_id="g", generation_id=1, member_id="m").error_code == 25
    reader.take_rights()
    publish(started)
    answer = kafka.answer()
    assert b"after" not in answer
    assert struct.pack(">ih", 0, 29) in answer


def test_a_member_that_waits_for_others_is_refused_without_the_right(started: Started) -> None:
    reader, other = Reader(started[1]), Reader(started[1])
    first, second = kafka_of(started, reader), kafka_of(started, other)
    join = {
        "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"secret subscription"}],
    }  # fmt: skip
    told = first.ask("JoinGroup", 2, member_id="", **join)
    assert told.error_code == 0
    # the group waits for the first member to join again
    second.send(second.request("JoinGroup", 2, member_id="", **join))
    beat = {"group_id": "g", "generation_id": told.generation_id, "member_id": told.member_id}
    assert any(first.ask("Heartbeat", 0, **beat).error_code == 27 for _ in range(1000))
    other.take_rights()
    first.send(first.request("JoinGroup", 2, member_id=told.member_id, **join))
    answer = second.answer()
    assert struct.unpack_from(">h", answer, 8) == (30,) and b"secret subscription" not in answer


def test_a_subscription_ends_with_the_right(started: Started) -> None:
    reader = Reader(started[1])
    nsqd = subscribed(started, reader)
    reader.take_rights()
    assert nsqd.frame() == (1, f'E_UNAUTHORIZED AUTH failed for SUB on "{TOPIC}"'.encode())
    publish(started)
    assert nsqd.closed()


def test_a_chunk_that_is_waited_for_is_refused_without_the_right(started: Started) -> None:
    reader = Reader(started[1])
    admin = http_client(started[0], bearer=reader.token)
    end = end_of(kafka_of(started, reader))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(admin.get, f"/topics/default/{TOPIC}/0/chunks?offset={end}&wait_ms={WAIT_MS}")
        # whether it waits already or not, it is refused
        reader.take_rights()
        publish(started)
        answer = waiting.result(30)
    assert answer.status_code == 403 and b"after" not in answer.content


def test_who_is_no_administrator_any_more_publishes_nothing(started: Started) -> None:
    running, root = started
    assert root.put("/users/second", json={"administrator": True}).status_code == 200
    nsqd = NsqClient(running.endpoints["nsqd_tcp"])
    nsqd.send(sized(b"AUTH\n", b"second:password"))
    assert nsqd.frame()[0] == 0
    for _ in range(3):
        nsqd.send(sized(f"PUB {TOPIC}\n".encode(), b"x"))
        assert nsqd.frame() == (0, b"OK")
    assert root.put("/users/second", json={"administrator": False}).status_code == 200
    nsqd.send(sized(f"PUB {TOPIC}\n".encode(), b"x"))
    assert nsqd.frame()[1].startswith(b"E_UNAUTHORIZED")
    nsqd.close()


# -- a user or a token that goes


def subscribed(started: Started, reader: Reader) -> NsqClient:
    nsqd = NsqClient(started[0].endpoints["nsqd_tcp"])
    nsqd.send(sized(b"AUTH\n", reader.token.encode()))
    assert nsqd.frame()[0] == 0
    nsqd.send(f"SUB {TOPIC} {reader.name}\n".encode())
    assert nsqd.frame() == (0, b"OK")
    return nsqd


def fetching(started: Started, reader: Reader) -> KafkaFrames:
    kafka = kafka_of(started, reader)
    kafka.send(kafka.request("Fetch", 4, **fetch(TOPIC, end_of(kafka), wait_ms=WAIT_MS)))
    return kafka


def polling(started: Started, reader: Reader) -> Frames:
    iggy = Frames(started[0].endpoints["iggy_tcp"])
    assert iggy.ask(44, short(reader.token))[0] == 0
    topic = named("default") + named(TOPIC)
    asked = b"\1\1\4\1\0\0\0" + topic + struct.pack("<IBQIB", 1, 1, 0, 1, 0)
    assert iggy.ask(100, asked)[0] == 0
    return iggy


@pytest.mark.parametrize("connect", [subscribed, fetching, polling])
@pytest.mark.parametrize("how", ["delete", "delete_token", "expiry"])
@pytest.mark.turns(3)
def test_connections_end_with_the_user_and_with_the_token(
    started: Started, connect: Callable[[Started, Reader], Any], how: str
) -> None:
    reader = Reader(started[1], SHORT_DAYS if how == "expiry" else None)
    connection = connect(started, reader)
    if how != "expiry":
        getattr(reader, how)()
    assert connection.closed()
    connection.close()


def test_a_token_that_ends_while_its_request_waits(started: Started) -> None:
    reader = Reader(started[1], SHORT_DAYS)
    admin = http_client(started[0], bearer=reader.token)
    end = end_of(kafka_of(started, reader))
    path = f"/topics/default/{TOPIC}/0/chunks?offset={end}&wait_ms="
    assert admin.get(f"{path}0").status_code == 200
    assert admin.get(f"{path}1500").status_code == 403
    assert admin.get(f"{path}0").status_code == 401


@pytest.mark.parametrize("goes", ["right", "topic"])
def test_a_line_that_was_published_by_before_is_looked_up_again(started: Started, goes: str) -> None:
    """What a publishing line means is remembered; not beyond the right to it, or the topic."""
    address, root = started[0].endpoints["nsqd_tcp"], started[1]
    reader, topic = Reader(root), f"line-{goes}"
    rows = [
        {"user": reader.name, "kind": "topic", "pattern": "literal", "name": topic, "operation": operation}
        for operation in ("write", "create")
    ]
    reader.change_rules(add=rows)
    assert root.post(f"/topics/default/{topic}", json={}).status_code == 201
    nsqd = NsqClient(address)
    nsqd.send(sized(b"AUTH\n", reader.token.encode()))
    assert nsqd.frame()[0] == 0
    for _ in range(3):
        assert nsqd.ask(pub(topic, b"before")) == b"OK"
    if goes == "right":
        reader.change_rules(delete=rows)
        nsqd.send(pub(topic, b"after"))
        assert nsqd.frame() == (1, f'E_UNAUTHORIZED AUTH failed for PUB on "{topic}"'.encode())
        kept = 3
    else:
        assert root.delete(f"/topics/default/{topic}").status_code == 204
        assert root.post(f"/topics/default/{topic}", json={}).status_code == 201
        assert nsqd.ask(pub(topic, b"after")) == b"OK"
        kept = 1
    partitions = root.get(f"/topics/default/{topic}").json()["partitions"]
    assert [part["next_offset"] for part in partitions] == [kept]
    nsqd.close()
