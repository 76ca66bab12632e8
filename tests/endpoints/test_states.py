"""States by filter over HTTP, dead letters of a running broker, settings of a topic, retention's look-ahead."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from lading import Consumer, Producer, State, set_state, testing, u16
from lading.broker.core.states import RANGES_AT_ONCE, list_states
from lading.broker.core.topology import Partition
from lading.endpoints.base.fair_runner import FairRunner
from lading.endpoints.base.services import Services
from lading.endpoints.http_shared import states
from lading.endpoints.http_shared.states import StateRequests, StatesDocument
from lading.model.errors import Refusal
from lading.runtime.metrics import Metrics
from lading.runtime.turns import finish
from lading.settings.settings import Settings
from lading.testing import BrokerProcess
from lading.transports.lading.transport import LadingTransport
from tests.broker.room import NOW, fill, opened, topic_of
from tests.endpoints.frames import Frames, payloads, poll

_numbers = count(1)


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{broker.endpoints['admin']}", timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def transport(broker: BrokerProcess) -> Iterator[LadingTransport]:
    opened = LadingTransport(broker.url)
    yield opened
    opened.close()


def send(broker: BrokerProcess, topic: str, delays: range, *, partitions: int = 1, **settings: Any) -> str:
    """A topic with messages whose header ``delay`` counts up, in turn over its partitions."""
    transport = LadingTransport(broker.url)
    transport.create_topic(topic, partitions, settings)
    transport.close()
    with Producer(broker.url) as producer:
        for delay in delays:
            producer.send(topic, b"%d" % delay, headers=[("delay", u16(delay))], partition=delay % partitions)
    return f"/topics/default/{topic}"


@pytest.fixture
def name() -> str:
    return f"states{next(_numbers)}"


def counted(transport: LadingTransport, name: str) -> list[dict[str, int]]:
    return [row["states"] for row in transport.state_counts(name)]


def waited(found: Callable[[], Any], wanted: Any, seconds: float = 10) -> Any:
    """What ``found`` says as soon as it is ``resolve_schema``."""
    deadline = time.monotonic() + seconds
    while (got := found()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return got


def test_a_filter_sets_states_in_a_partition(http: httpx.Client, broker: BrokerProcess, name: str) -> None:
    path = send(broker, name, range(100))
    ask: dict[str, Any] = {"where": "delay >= 90 OR delay = 3", "state": "poisoned"}
    assert http.put(f"{path}/0/states", json=ask | {"dry_run": True}).json() == {
        "seen": 100, "matched": 11, "changed": 11, "first": 100, "end": 100, "done": True,
    }  # fmt: skip
    assert http.get(f"{path}/0/states").json() == []
    assert http.put(f"{path}/0/states", json=ask).json()["changed"] == 11
    assert http.put(f"{path}/0/states", json=ask).json()["changed"] == 0
    assert http.get(f"{path}/0/states").json() == [
        {"first": 3, "end": 4, "state": "poisoned"},
        {"first": 90, "end": 100, "state": "poisoned"},
    ]
    # from one state to another by the filter itself, within a range
    ask = {"where": "state = 'poisoned'", "state": "available", "first": 50, "end": 95}
    assert http.put(f"{path}/0/states", json=ask).json() == {
        "seen": 45, "matched": 5, "changed": 5, "first": 95, "end": 95, "done": True,
    }  # fmt: skip
    assert http.get(f"{path}/0/states").json()[-1] == {"first": 95, "end": 100, "state": "poisoned"}


def test_a_filter_sets_states_in_a_topic(
    http: httpx.Client, broker: BrokerProcess, transport: LadingTransport, name: str
) -> None:
    path = send(broker, name, range(60), partitions=3)
    done = http.put(f"{path}/states", json={"where": "delay < 20", "state": "unavailable"}).json()
    assert done == {"seen": 60, "matched": 20, "changed": 20, "ranges": {}, "done": True}
    assert [row["unavailable"] for row in counted(transport, name)] == [7, 7, 6]
    # an interrupted request goes on where it was
    rest = {"1": [5, 20], "2": [0, 3]}
    done = http.put(f"{path}/states", json={"where": "delay >= 0", "state": "poisoned", "ranges": rest}).json()
    assert (done["seen"], done["changed"]) == (18, 18)
    assert [row["poisoned"] for row in counted(transport, name)] == [0, 15, 3]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"where": "delay >", "state": "poisoned"}, "malformed"),
        ({"where": "delay > 3", "state": "ill"}, "invalid_state"),
        ({"where": "delay > 3"}, "invalid_state"),
        ({"where": "delay > 3", "state": "poisoned", "offsets": [1]}, "malformed"),
        ({"where": 3, "state": "poisoned"}, "malformed"),
        ({"where": "delay > 3", "state": "poisoned", "limit": 3}, "malformed"),
        ({"state": "poisoned"}, "malformed"),
        ({"first": 1, "state": "poisoned"}, "malformed"),
        ({"offsets": [], "state": "poisoned"}, "malformed"),
        ({"offsets": [True], "state": "poisoned"}, "malformed"),
        ({"first": 0, "end": 9, "state": "poisoned"}, "invalid_offset"),
        ({"first": 0, "end": 1, "state": "poisoned", "reason": "x" * 1001}, "malformed"),
    ],
)
def test_requests_that_cannot_be(
    http: httpx.Client, broker: BrokerProcess, name: str, document: dict[str, Any], reason: str
) -> None:
    path = send(broker, name, range(3))
    answer = http.put(f"{path}/0/states", json=document)
    assert (answer.status_code, answer.json()["reason"]) == (400, reason), answer.text
    assert http.get(f"{path}/0/states").json() == []


def test_a_topic_takes_only_filters_and_partitions_it_has(http: httpx.Client, broker: BrokerProcess, name: str) -> None:
    path = send(broker, name, range(3))
    assert http.put(f"{path}/states", json={"state": "poisoned"}).status_code == 400
    ask = {"where": "delay > 0", "state": "poisoned", "ranges": {"4": [0, 1]}}
    assert http.put(f"{path}/states", json=ask).json()["reason"] == "partition_not_found"
    assert http.put(f"{path}x/states", json={"where": "delay > 0", "state": "poisoned"}).status_code == 404


def test_iggy_http_takes_filters_too(broker: BrokerProcess, name: str) -> None:
    send(broker, name, range(10))
    http = httpx.Client(base_url=f"http://{broker.endpoints['iggy_http']}")
    states = f"/streams/default/topics/{name}/partitions/1/states"
    answer = http.put(states, json={"where": "delay > 7", "state": "poisoned"})
    assert (answer.status_code, answer.json()["changed"]) == (200, 2)
    assert http.get(states).json() == [{"first": 8, "end": 10, "state": "poisoned"}]
    http.close()


def test_only_available_messages_everywhere(
    http: httpx.Client, broker: BrokerProcess, transport: LadingTransport, name: str
) -> None:
    path = send(broker, name, range(6))
    set_state(transport, name, "poisoned", where="delay IN (1, 2, 5)")
    shown = [b"0", b"3", b"4"]

    def consumed(url: str, **options: Any) -> list[bytes | None]:
        with Consumer(url, name, start="earliest", timeout_s=0, **options) as consumer:
            return [message.payload for message in consumer]

    everything = [b"%d" % number for number in range(6)]
    for url in (broker.url, f"iggy://{broker.endpoints['iggy_tcp']}/default", str(broker.data_dir)):
        # the watermark that a reader of a directory goes by is at most 100 ms behind
        assert waited(lambda url=url: consumed(url, states="all"), everything) == everything  # type: ignore[misc]
        assert consumed(url) == shown
    assert sum(batch.num_rows for batch in transport.query(name, 0, 0).batches) == 3
    assert sum(batch.num_rows for batch in transport.query(name, 0, 0, states="all").batches) == 6
    # Iggy polls show states, until the topic hides what is not available
    place = b"\2\7default" + bytes([2, len(name)]) + name.encode()
    messages = f"http://{broker.endpoints['iggy_http']}/streams/default/topics/{name}/messages?partition_id=1"
    frames = Frames(broker.endpoints["iggy_tcp"])
    assert payloads(frames.ask(100, poll(place))[1]) == everything
    assert [one["state"] for one in httpx.get(messages).json()][1] == "poisoned"
    assert http.put(f"{path}/settings", json={"hide_states": True}).json()["settings"] == {"hide_states": True}
    assert payloads(frames.ask(100, poll(place))[1]) == shown
    assert [one["offset"] for one in httpx.get(messages).json()] == [0, 3, 4]
    frames.close()


def test_poisoned_messages_are_copied_to_the_dead_letter_topic(
    http: httpx.Client, broker: BrokerProcess, transport: LadingTransport, name: str
) -> None:
    send(broker, name, range(20), partitions=2, dead_letter_topic=f"{name}-dead")
    done = set_state(transport, name, State.POISONED, where="delay >= 15", reason="no such delay")
    assert done == (20, 5, 5)
    assert set_state(transport, name, State.POISONED, where="delay >= 14", reason="again").changed == 1

    def copies() -> int:
        return sum(part.end_offset for part in transport.topic(f"{name}-dead").partitions)

    assert waited(copies, 6) == 6
    with Consumer(broker.url, f"{name}-dead", start="earliest", timeout_s=0) as consumer:
        found = {message.headers["lading-origin"]: message for message in consumer}
    assert set(found) == {f"{name}/{delay % 2}/{delay // 2}" for delay in range(14, 20)}
    last = found[f"{name}/1/9"]
    assert last.payload == b"19" and last.headers["delay"] == 19 and last.partition == 1
    assert last.headers["lading-reason-detail"] == "no such delay"
    text = http.get("/metrics").text
    figures = {
        line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith("lading_broker")
    }
    assert figures["lading_broker_dead_letters"] >= 6 and figures["lading_broker_dead_letters_waiting"] == 0
    assert figures["lading_broker_states_set"] >= 6


def test_settings_of_a_topic(http: httpx.Client, broker: BrokerProcess, name: str) -> None:
    path = send(broker, name, range(1), retention_age_us=5_000_000_000)
    changed = http.put(f"{path}/settings", json={"dead_letter_topic": "dead", "retention_age_us": None})
    assert changed.json()["settings"] == http.get(path).json()["settings"] == {"dead_letter_topic": "dead"}
    for wrong in ({"dead_letter_topic": name}, {"hide": True}, {"hide_states": "yes"}, {"retention_bytes": 0}):
        assert http.put(f"{path}/settings", json=wrong).status_code == 400, wrong
    assert http.get(path).json()["settings"] == {"dead_letter_topic": "dead"}
    document = json.loads(next(broker.data_dir.glob(f"topics/{http.get(path).json()['id']}/topic.json")).read_text())
    assert document["settings"] == {"dead_letter_topic": "dead"}


def test_retention_marks_then_deletes_and_is_foreseen(tmp_path: Path, name: str) -> None:
    with testing.broker(tmp_path / "data", settings={"retention.check_ms": 100}) as broker:
        path = f"http://{broker.endpoints['admin']}" + send(broker, name, range(10), retention_age_us=60_000_000)
        transport = LadingTransport(broker.url)
        ahead = httpx.get(f"{path}/retention?within_ms=120000").json()
        (going,) = ahead["partitions"][0]["going"]
        assert (going["first"], going["end"], going["why"], going["marked"]) == (0, 10, "age", False)
        assert (ahead["age_us"], ahead["mark_us"], ahead["check_us"]) == (60_000_000, 100_000, 100_000)
        assert httpx.get(f"{path}/retention?within_ms=0").json()["partitions"][0]["going"] == []
        assert httpx.put(f"{path}/settings", json={"retention_age_us": 1}).status_code == 200
        seen = []

        def gone() -> int:
            seen.extend(transport.states(name, 0))
            return transport.topic(name).partitions[0].first_offset

        assert waited(gone, 10) == 10
        assert set(seen) <= {(0, 10, State.MARKED_FOR_DELETION)}
        figures = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
        for name in ("marked_messages", "deleted_offsets"):
            assert f"lading_broker_retention_{name} 10.0" in figures
        # a topic that keeps everything has nothing to foresee
        assert httpx.put(f"{path}/settings", json={"retention_age_us": None}).status_code == 200
        assert httpx.get(f"{path}/retention?within_ms=999999999").json()["age_us"] is None
        transport.close()


# ---------------------------------------------------------------------------------- one request, in this process


@pytest.fixture
def here(tmp_path: Path) -> Iterator[tuple[Services, Partition]]:
    """The services of a broker in this process, and a partition with 3,000 messages."""
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 3_000)
    with ThreadPoolExecutor(1) as workers:
        yield Services(broker, Settings(), Metrics(), workers), partition
    broker.stop()


def test_long_work_is_cut_into_requests_and_passes(
    here: tuple[Services, Partition], monkeypatch: pytest.MonkeyPatch
) -> None:
    services, partition = here
    monkeypatch.setattr(states, "WORK_S", 0.0)
    monkeypatch.setattr(states, "LOOK_MESSAGES_MAX", 1_000)
    requests = StateRequests(services)
    largest = 0
    kept = services.broker.states.set_soon

    def watched(*arguments: Any, **named: Any) -> int:
        nonlocal largest
        largest = max(largest, len(arguments[1]))
        return kept(*arguments, **named)

    monkeypatch.setattr(services.broker.states, "set_soon", watched)

    odd = " OR ".join(f"payload LIKE '%{digit}'" for digit in (1, 3, 5, 7, 9))

    async def work() -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        first = 0
        while not answers or not answers[-1]["done"]:
            # every second message: as many ranges as matches
            wanted = StatesDocument(state="poisoned", where=odd, first=first)
            answers.append((await requests.set(lambda: partition, wanted, "root")).document())
            first = answers[-1]["first"]
        return answers

    answers = asyncio.run(work())
    assert [one["first"] for one in answers[:3]] == [1_000, 2_000, 3_000]
    assert sum(one["seen"] for one in answers) == 3_000
    assert sum(one["changed"] for one in answers) == 1_500
    assert largest <= RANGES_AT_ONCE


def test_states_that_somebody_else_sets_meanwhile_are_looked_at_again(
    here: tuple[Services, Partition], monkeypatch: pytest.MonkeyPatch
) -> None:
    services, partition = here
    broker = services.broker
    run = FairRunner.run
    turns = 0

    async def meanwhile(*arguments: Any) -> Any:
        nonlocal turns
        turns += 1
        found = await run(*arguments)
        if turns == 1:
            broker.states.set(partition, [(100, 200)], State.UNAVAILABLE, now_us=NOW)
        return found

    monkeypatch.setattr(FairRunner, "run", meanwhile)
    wanted = StatesDocument(state="poisoned", where="state = 'available'")
    progress = asyncio.run(StateRequests(services).set(lambda: partition, wanted, "root"))
    assert finish(list_states(partition, 0, 3_000)) == [
        (0, 100, State.POISONED), (100, 200, State.UNAVAILABLE), (200, 3_000, State.POISONED),
    ]  # fmt: skip
    assert (turns, progress.changed, progress.seen) == (2, 2_900, 3_000)


def test_a_partition_that_is_deleted_meanwhile(here: tuple[Services, Partition]) -> None:
    services, partition = here
    found = iter([partition, partition, None])
    wanted = StatesDocument(state="poisoned", where="offset >= 0")
    with pytest.raises(Refusal, match="was deleted"):
        asyncio.run(StateRequests(services).set(lambda: next(found), wanted, "root"))  # type: ignore[arg-type, return-value]
