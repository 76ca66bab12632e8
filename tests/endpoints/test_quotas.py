"""Quotas on every face: the second request waits until the first is paid for, and nothing is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from lading import testing
from tests.dialects.iggy_current import batch, frame
from tests.endpoints import current_frames as current
from tests.endpoints.frames import Frames, poll, to_partition
from tests.endpoints.frames import message as iggy_message
from tests.endpoints.kafka_frames import KafkaFrames, fetch, one_batch, produce
from tests.endpoints.nsq_client import NsqClient, pub
from tests.endpoints.test_iggy_current import Talk
from tests.endpoints.test_iggy_releases import named

RATE = 200_000.0
PAYLOAD = b"x" * 250_000
"""A quarter of a second more than a second of the rate."""
WAIT_S = 0.2
"""At least; the client's own clock and what comes around the payload take the rest."""
DEFAULT = [{"entity_type": "user", "entity_name": None}]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("quotas") / "data") as found:
        yield found


@pytest.fixture
def admin(running: testing.BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{running.endpoints['admin']}", timeout=20) as client:
        yield client
        # nobody has a quota in the next test, nor debts
        for row in client.get("/quotas").json():
            assert client.put(f"/quotas/{row['user']}", json={}).status_code == 200


def bound(admin: httpx.Client, **quota: float) -> None:
    answer = admin.put("/quotas/*", json=quota)
    assert answer.status_code == 200, answer.text


def seconds(ask: Callable[[], object]) -> float:
    begun = time.monotonic()
    ask()
    return time.monotonic() - begun


def make_topic(admin: httpx.Client, name: str) -> None:
    assert admin.post(f"/topics/default/{name}", json={}).status_code == 201


def kafka_sender(running: testing.BrokerProcess, admin: httpx.Client) -> Callable[[], Any]:
    make_topic(admin, "k")
    frames = KafkaFrames(running.endpoints["kafka"])
    return lambda: frames.ask("Produce", 9, **produce("k", one_batch(PAYLOAD)))


def iggy_sender(running: testing.BrokerProcess, admin: httpx.Client) -> Callable[[], Any]:
    make_topic(admin, "i")
    frames = Frames(running.endpoints["iggy_tcp"])
    request = named("default") + named("i") + to_partition(1) + iggy_message(PAYLOAD)

    def send() -> None:
        assert frames.ask(101, request)[0] == 0

    return send


def current_sender(running: testing.BrokerProcess, admin: httpx.Client) -> Callable[[], Any]:
    make_topic(admin, "c")
    talk = Talk(running.endpoints["iggy_tcp"])
    talk.ask(current.REGISTER, current.LOGIN)
    request = current.sent(b"\x02\x07default\x02\x01c", batch([frame(PAYLOAD)]))

    def send() -> None:
        assert talk.ask(current.SEND, request)[0] == 0

    return send


def nsq_sender(running: testing.BrokerProcess, admin: httpx.Client) -> Callable[[], Any]:
    client = NsqClient(running.endpoints["nsqd_tcp"])

    def send() -> None:
        assert client.ask(pub("n", PAYLOAD)) == b"OK"

    return send


def http_sender(running: testing.BrokerProcess, admin: httpx.Client) -> Callable[[], Any]:
    client = httpx.Client(base_url=f"http://{running.endpoints['nsqd_http']}", timeout=20)
    return lambda: client.post("/pub?topic=h", content=PAYLOAD).raise_for_status()


@pytest.mark.turns(3)
@pytest.mark.parametrize("make_sender", [kafka_sender, iggy_sender, current_sender, nsq_sender, http_sender])
def test_who_has_sent_too_much_waits(
    running: testing.BrokerProcess,
    admin: httpx.Client,
    make_sender: Callable[[testing.BrokerProcess, httpx.Client], Callable[[], Any]],
) -> None:
    send = make_sender(running, admin)
    send()
    bound(admin, producer_byte_rate=RATE)
    # http answers late, the others at once, and read on late
    assert seconds(send) + seconds(send) >= WAIT_S
    with ThreadPoolExecutor(1) as workers:
        waiting = workers.submit(seconds, send)
        time.sleep(0.05)
        # what is taken off counts at once for who comes next; others were never held up
        bound(admin)
        waiting.result(20)
    assert seconds(send) < WAIT_S


def iggy_poller(running: testing.BrokerProcess, admin: httpx.Client) -> Callable[[], Any]:
    frames = Frames(running.endpoints["iggy_tcp"])
    make_topic(admin, "p")
    topic = named("default") + named("p")
    assert frames.ask(101, topic + to_partition(1) + iggy_message(PAYLOAD))[0] == 0
    return lambda: frames.ask(100, poll(topic, count=1))


def kafka_fetcher(running: testing.BrokerProcess, admin: httpx.Client) -> Callable[[], Any]:
    frames = KafkaFrames(running.endpoints["kafka"])
    make_topic(admin, "f")
    frames.ask("Produce", 9, **produce("f", one_batch(PAYLOAD)))
    return lambda: frames.ask("Fetch", 11, **fetch("f"))


@pytest.mark.turns(2)
@pytest.mark.parametrize("make_reader", [kafka_fetcher, iggy_poller])
def test_who_has_read_too_much_waits(
    running: testing.BrokerProcess,
    admin: httpx.Client,
    make_reader: Callable[[testing.BrokerProcess, httpx.Client], Callable[[], Any]],
) -> None:
    read = make_reader(running, admin)
    bound(admin, consumer_byte_rate=RATE)
    read()
    assert seconds(read) >= WAIT_S


def test_nsq_delivers_later_and_reads_what_is_finished(running: testing.BrokerProcess, admin: httpx.Client) -> None:
    sender, reader = NsqClient(running.endpoints["nsqd_tcp"]), NsqClient(running.endpoints["nsqd_tcp"])
    for _ in range(2):
        assert sender.ask(pub("d", PAYLOAD)) == b"OK"
    bound(admin, consumer_byte_rate=RATE)
    assert reader.ask(b"SUB d c\n") == b"OK"
    reader.send(b"RDY 1\n")
    begun = time.monotonic()
    first = reader.message()
    reader.fin(first)
    second = reader.message()
    assert time.monotonic() - begun >= WAIT_S
    assert (first.attempts, second.attempts) == (1, 1) and first.id != second.id
    for each in (sender, reader):
        each.close()


@pytest.mark.turns(2, part=0)
def test_kafka_tells_how_long(running: testing.BrokerProcess, admin: httpx.Client) -> None:
    frames = KafkaFrames(running.endpoints["kafka"])
    make_topic(admin, "throttled")
    ops = [{"key": "producer_byte_rate", "value": RATE, "remove": False},
           {"key": "consumer_byte_rate", "value": RATE, "remove": False}]  # fmt: skip
    made = frames.ask("AlterClientQuotas", 1, entries=[{"entity": DEFAULT, "ops": ops}], validate_only=False)
    assert made.entries[0].error_code == 0
    small, whole = produce("throttled", one_batch(b"x")), produce("throttled", one_batch(PAYLOAD))
    assert frames.ask("Produce", 9, **small).throttle_time_ms == 0
    # a quarter of a second and what is around the payload, less the time that the append took
    assert 0 < frames.ask("Produce", 9, **whole).throttle_time_ms <= 260
    # the wait is over when the next one is taken; of a flexible version and of one that is not
    assert frames.ask("Produce", 8, **small).throttle_time_ms <= 5
    # the second in advance is used up
    assert 260 < frames.ask("Produce", 3, **whole).throttle_time_ms <= 1_300
    answer = frames.ask("Fetch", 11, **fetch("throttled"))
    assert 0 < answer.throttle_time_ms <= 1_600
    assert len(answer.responses[0].partitions[0].records) > len(PAYLOAD)
    # and rare requests that come while others of the user wait tell nothing of it: they were taken
    assert frames.ask("ListGroups", 3, states_filter=[]).throttle_time_ms <= 5


def test_the_share_of_time_slows_every_request(running: testing.BrokerProcess, admin: httpx.Client) -> None:
    frames = KafkaFrames(running.endpoints["kafka"])
    # 10 us of each second: no request takes less than twice that
    bound(admin, request_percentage=0.001)
    frames.ask("ListGroups", 3, states_filter=[])
    frames.send(frames.request("ListGroups", 3, states_filter=[]))
    frames.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        frames.answer()
    frames.close()


@pytest.mark.turns(2, part=1)
def test_kafka_describes_and_changes(running: testing.BrokerProcess, admin: httpx.Client) -> None:
    frames = KafkaFrames(running.endpoints["kafka"])

    def alter(entity: list[dict[str, Any]], *, remove: bool = False, validate: bool = False, **values: Any) -> Any:
        ops = [{"key": key, "value": value, "remove": remove} for key, value in values.items()]
        answer = frames.ask("AlterClientQuotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=validate)
        return answer.entries[0]

    def described(match_type: int, match: str | None = None, kind: str = "user") -> dict[str | None, dict[str, float]]:
        component = {"entity_type": kind, "match_type": match_type, "match": match}
        answer = frames.ask("DescribeClientQuotas", 1, components=[component], strict=False)
        return {one.entity[0].entity_name: {each.key: each.value for each in one.values} for one in answer.entries}

    ann = [{"entity_type": "user", "entity_name": "ann"}]
    assert alter(ann, validate=True, producer_byte_rate=5.0).error_code == 0
    assert described(2) == {}
    assert alter(ann, producer_byte_rate=5.0, request_percentage=50.0).error_code == 0
    assert alter(DEFAULT, consumer_byte_rate=1e9).error_code == 0
    assert described(0, "ann") == {"ann": {"producer_byte_rate": 5.0, "request_percentage": 50.0}}
    assert described(1) == {None: {"consumer_byte_rate": 1e9}}
    assert set(described(2)) == {"ann", None}
    assert described(2, kind="client-id") == {}
    assert admin.get("/quotas").json()[0] == {"user": "ann", "producer_byte_rate": 5.0, "request_percentage": 50.0}
    assert alter(ann, remove=True, producer_byte_rate=0.0, request_percentage=0.0).error_code == 0
    assert described(2) == {None: {"consumer_byte_rate": 1e9}}
    wrongs: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
        (ann, {"controller_mutation_rate": 5.0}), (ann, {"producer_byte_rate": -1.0}),
        ([{"entity_type": "client-id", "entity_name": "c"}], {"producer_byte_rate": 5.0}),
        ([*ann, {"entity_type": "client-id", "entity_name": "c"}], {"producer_byte_rate": 5.0}),
        ([], {"producer_byte_rate": 5.0}), ([{"entity_type": "user", "entity_name": "*"}], {"producer_byte_rate": 5.0}),
    ]  # fmt: skip
    for entity, wrong in wrongs:
        refused = alter(entity, **wrong)
        assert refused.error_code == 42 and refused.error_message
