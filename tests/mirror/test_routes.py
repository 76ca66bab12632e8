"""Every route between the protocols and a directory: what is mirrored is what it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lading import read_arrow, testing
from lading.client.patience import Patience
from lading.model.errors import LadingError
from lading.testing.broker_fixture import LadingBroker
from lading.transports.open import open_transport
from tests.mirror.conftest import MESSAGES, PARTITIONS, contents, fill

TARGETS = ("lading", "kafka", "iggy", "nsq")


@pytest.mark.turns(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["lading", "kafka", "iggy", "file"])
def test_a_log_arrives_as_it_was(
    source: str, target: str, urls: dict[str, str], broker: testing.BrokerProcess, mirror: Any
) -> None:
    name = f"{source}_to_{target}"
    done = mirror(urls[source], urls[target], "flights", name, fidelity=True)
    assert done.messages == MESSAGES
    assert done.fidelity.is_lossless
    assert contents(broker.url, name) == contents(broker.url, "flights")
    if target != "nsq":
        parts = open_transport(broker.url).topic(name).partitions
        assert len(parts) == PARTITIONS
        # once more: nothing is new
        assert mirror(urls[source], urls[target], "flights", name).messages == 0


@pytest.mark.turns(2)
@pytest.mark.parametrize("target", TARGETS)
def test_a_queue_arrives_as_it_was(
    target: str, urls: dict[str, str], broker: testing.BrokerProcess, mirror: Any
) -> None:
    queue, name = f"queue_for_{target}", f"from_queue_{target}"
    # the first channel of a topic gets what is there already
    fill(broker.url, queue, 10, partitions=1)
    done = mirror(urls["nsq"], urls[target], queue, name)
    assert done.messages == 10
    assert [one.delivery for one in done.topics] == ["at least once"]
    assert contents(broker.url, name) == contents(broker.url, queue)
    assert mirror(urls["nsq"], urls[target], queue, name).messages == 0


@pytest.mark.parametrize(
    ("target", "lost"),
    [
        ("lading", set()),
        ("kafka", {"kind", "time"}),
        ("iggy", {"duplicates", "null", "empty", "kind", "bytes", "key", "time"}),
        ("nsq", {"duplicates", "null", "empty", "kind", "bytes", "key", "time"}),
    ],
)
def test_what_is_lost_without_carriers_is_counted(
    target: str, lost: set[str], urls: dict[str, str], broker: testing.BrokerProcess, mirror: Any
) -> None:
    name = f"plain_{target}"
    done = mirror(broker.url, urls[target], "flights", name, carrier="off")
    counted = {row["fact"]: row["lost"] for row in done.fidelity.rows()}
    # times of this clock may be whole milliseconds
    assert {fact for fact, count in counted.items() if count} - {"time"} == lost - {"time"}
    there = read_arrow(broker.url, name)
    assert there.num_rows == MESSAGES
    keys = {header["key"] for headers in there.column("headers").to_pylist() for header in headers or ()}
    assert not any(key.startswith("lading-") for key in keys)


def test_offsets_are_translated(
    urls: dict[str, str], broker: testing.BrokerProcess, mirror: Any, tmp_path: Any
) -> None:
    from lading.mirror.state import MirrorState

    name = "translated"
    open_transport(broker.url).create_topic(name, PARTITIONS)
    fill(broker.url, name, 7)
    for target in ("lading", "kafka"):
        fill(broker.url, f"for_{target}", 10)
        mirror(broker.url, urls[target], f"for_{target}", name, state=tmp_path / target)
        fill(broker.url, f"for_{target}", 10, first=10)
        mirror(broker.url, urls[target], f"for_{target}", name, state=tmp_path / target)
        state = MirrorState(tmp_path / target)
        sent = read_arrow(broker.url, f"for_{target}", "partition, offset, key").to_pylist()
        there = read_arrow(broker.url, name, "partition, offset, key").to_pylist()
        found = {(row["partition"], row["offset"]): row["key"] for row in there}
        for row in sent:
            at = state.translate(f"for_{target}", row["partition"], row["offset"])
            assert found[row["partition"], at] == row["key"]
        state.close()


def test_two_mirrors_of_each_other_come_to_rest(broker: testing.BrokerProcess, mirror: Any, tmp_path: Any) -> None:
    fill(broker.url, "there", 10)
    fill(broker.url, "back", 4, first=10)
    for turn in range(3):
        one = mirror(
            broker.url, broker.url, "there", "back", two_way=True, source_name="a", target_name="b",
            state=tmp_path / "one",
        )  # fmt: skip
        two = mirror(
            broker.url, broker.url, "back", "there", two_way=True, source_name="b", target_name="a",
            state=tmp_path / "two",
        )  # fmt: skip
        assert (one.messages, two.messages) == ((10, 4) if turn == 0 else (0, 0))
    assert len(contents(broker.url, "there")) == len(contents(broker.url, "back")) == 14


@pytest.mark.parametrize("source", ["lading", "nsq"])
def test_a_mirror_that_follows(
    source: str, urls: dict[str, str], broker: testing.BrokerProcess, mirror: Any, tmp_path: Path
) -> None:
    topic, copy = f"followed_{source}", f"follower_{source}"
    fill(broker.url, topic, 5, partitions=1)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            mirror, urls[source], broker.url, topic, copy, follow=True, is_stopped=stop.is_set, state=tmp_path / source
        )
        try:
            wait_for(broker.url, copy, 5)
            fill(broker.url, topic, 5, first=5, partitions=1)
            wait_for(broker.url, copy, 10)
        finally:
            stop.set()
        assert running.result(20).messages == 10
    assert contents(broker.url, copy) == contents(broker.url, topic)


@pytest.mark.parametrize("target", ["lading", "kafka"])
def test_a_mirror_that_follows_waits_for_a_target_that_is_away(
    target: str, broker: testing.BrokerProcess, mirror: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended at its second attempt, and over Kafka neither said for half a minute that it waits nor stopped."""
    waits: list[LadingError] = []

    class CountedPatience(Patience):
        def wait(self, error: LadingError) -> None:
            waits.append(error)
            super().wait(error)

    monkeypatch.setattr("lading.mirror.run.Patience", CountedPatience)
    monkeypatch.setattr("lading.transports.kafka.cluster.FIRST_PAUSE_S", 0.01)
    topic, stop = f"patient_{target}", threading.Event()
    fill(broker.url, topic, 5)
    with LadingBroker() as away, ThreadPoolExecutor(1) as pool:
        url = {"lading": f"{away.url}?retries=1", "kafka": f"kafka://{away.address('kafka')}"}[target]
        running = pool.submit(mirror, broker.url, url, topic, topic, follow=True, is_stopped=stop.is_set)
        try:
            wait_for(away.url, topic, 5)
            with away.outage():
                fill(broker.url, topic, 5, first=5)
                wait_until(lambda: len(waits) >= 3 or running.done())
            wait_for(away.url, topic, 10)
            waits.clear()
            with away.outage():
                fill(broker.url, topic, 5, first=10)
                wait_until(lambda: bool(waits) or running.done())
                stop.set()
                first = running.result(20)
        finally:
            stop.set()
        # a work that the outage interrupted is counted by the run that ends it
        assert first.messages + mirror(broker.url, url, topic, topic).messages == 15
        assert contents(away.url, topic) == contents(broker.url, topic)


def wait_until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for(url: str, topic: str, count: int) -> None:
    transport = open_transport(url)
    deadline = time.monotonic() + 30
    while True:
        ends = [part.end_offset for one in transport.topics() if one.name == topic for part in one.partitions]
        if sum(ends) >= count:
            break
        assert time.monotonic() < deadline, f"{topic} has {ends}, not {count} messages"
        time.sleep(0.05)
    transport.close()
