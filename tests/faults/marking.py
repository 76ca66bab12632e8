"""A life of marking and copying, told in steps that a client repeats until they are answered; it may end anywhere.

As a program it is killed: ``python -m tests.faults.marking DIRECTORY POINT…`` runs it once for each point, kills it
before that many operations on disk and catalog, kills half of the starts after it too, and says what is there then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lading.broker.broker import Broker
from lading.broker.core import dead_letters
from lading.broker.core.settings import BrokerSettings, TopicSettings
from lading.broker.core.states import list_states
from lading.dialects import registry
from lading.log.disk import Disk
from lading.log.group_commit import SyncNow
from lading.model.scan_request import ScanRequest
from lading.model.state import State
from lading.runtime.turns import finish as finish_turns
from tests.broker.room import NOW, SECOND, append_block, block, enforce_retention, fill, read
from tests.faults.faulty import FaultyDisk

MESSAGES_PER_MARKING = 3
"""So few, that a story has many markings."""
LATER = NOW + 100 * SECOND
Ranges = list[tuple[int, int]]


def opened(home: Path, disk: Disk | None = None) -> Broker:
    """The broker of this story; it syncs where it stands."""
    return Broker.open(home, BrokerSettings(), now_us=NOW, disk=disk, commit=SyncNow())


def begin(home: Path, disk: Disk | None = None) -> Broker:
    """Topics and messages; nothing of it is at stake."""
    broker = opened(home, disk)
    broker.at_once.create_stream(None, "default", now_us=NOW)
    broker.at_once.create_topic("default", None, "dead", 2, now_us=NOW)
    own = TopicSettings(dead_letter_topic="dead")
    flights = broker.at_once.create_topic("default", None, "flights", 2, now_us=NOW, settings=own)
    old = TopicSettings(retention_age_us=SECOND)
    broker.at_once.create_topic("default", None, "old", 1, now_us=NOW, settings=old)
    fill(broker, flights.partition(0), 12)
    append_block(broker, flights.partition(1), block(*(b"%d" % number for number in range(12))))
    fill(broker, broker.topology.resolve("old").partition(0), 5)
    return broker


def _set(partition: int, ranges: Ranges, state: State) -> Callable[[Broker], None]:
    def step(broker: Broker) -> None:
        broker.states.set(broker.topology.resolve("flights").partition(partition), ranges, state, now_us=NOW)

    return step


def _copy(blocks: int) -> Callable[[Broker], None]:
    def step(broker: Broker) -> None:
        for _ in range(blocks):
            copy = broker.dead_letters.next(LATER)
            if copy is None:
                return
            copy.encode()
            broker.dead_letters.send(copy, LATER)
            broker.appender.flush()

    return step


def _retain(broker: Broker) -> None:
    enforce_retention(broker, LATER)


STEPS: list[Callable[[Broker], None]] = [
    _set(0, [(2, 5), (9, 10)], State.POISONED),
    _copy(1),
    _set(1, [(0, 1), (2, 3), (4, 5), (6, 7)], State.POISONED),
    _retain,
    _copy(100),
    _set(0, [(3, 4)], State.AVAILABLE),
    _set(0, [(3, 4)], State.POISONED),
    _set(1, [(8, 9)], State.UNAVAILABLE),
    _retain,
    _copy(100),
]
MARKED_BY, DELETED_BY = 4, 9
"""How many steps are done when the topic with retention is marked, and when it is empty."""
STATES_AFTER: dict[int, dict[int, set[tuple[int, int]]]] = {
    1: {0: {(2, 20), (3, 20), (4, 20), (9, 20)}},
    3: {1: {(0, 20), (2, 20), (4, 20), (6, 20)}},
    6: {0: {(2, 20), (4, 20), (9, 20)}},
    7: {0: {(2, 20), (3, 20), (4, 20), (9, 20)}},
    8: {1: {(0, 20), (2, 20), (4, 20), (6, 20), (8, 10)}},
}
"""The states (offset, state) of partitions when so many steps were answered."""
COPIES = Counter(
    [*(f"flights/0/{offset}" for offset in (2, 3, 4, 9, 3)), *(f"flights/1/{offset}" for offset in (0, 2, 4, 6))]
)


def states(broker: Broker, name: str, partition: int) -> set[tuple[int, int]]:
    """(offset, state) of what is not available."""
    found = finish_turns(list_states(broker.topology.resolve(name).partition(partition), 0, 1 << 40))
    return {(offset, state) for first, end, state in found for offset in range(first, end)}


def copies(broker: Broker) -> Counter[str]:
    """Where the messages in the dead letter topic came from."""
    found: Counter[str] = Counter()
    for partition in broker.topology.resolve("dead").partitions:
        for run, first, end in read(broker, partition).pieces:
            for part in registry.dialect(run.dialect).decode(run, ScanRequest(first=first, end=end)):
                for row in registry.to_batch(part).to_pylist():
                    origin = [one["value"].decode() for one in row["headers"] if one["key"] == "lading-origin"]
                    assert len(origin) == 1, row["headers"]
                    found[origin[0]] += 1
    return found


def require(broker: Broker, answered: int) -> None:
    """What was answered holds, right after a start."""
    for partition in (0, 1):
        known = [at for at in sorted(STATES_AFTER) if at <= answered and partition in STATES_AFTER[at]]
        if not known:
            continue
        # the step after it may have been done, and not answered
        following = [at for at in sorted(STATES_AFTER) if at == answered + 1 and partition in STATES_AFTER[at]]
        allowed = [STATES_AFTER[at][partition] for at in (known[-1], *following)]
        got = states(broker, "flights", partition)
        assert got in allowed, f"partition {partition} after {answered} steps: {sorted(got)}"
    log = broker.topology.resolve("old").partition(0).log
    if answered >= MARKED_BY and log.first_offset == 0:
        assert states(broker, "old", 0) == {(offset, 30) for offset in range(5)}
    if answered >= DELETED_BY:
        assert log.first_offset == 5
    assert not copies(broker) - COPIES, "copied twice"


def finish(broker: Broker, answered: int) -> dict[str, int]:
    """As a client goes on after a start; how many copies are lost, how many there twice."""
    for step in STEPS[answered:]:
        step(broker)
    _copy(100)(broker)
    found = copies(broker)
    return {"lost": (COPIES - found).total(), "twice": (found - COPIES).total(), "copies": found.total()}


# ------------------------------------------------------------------------------------------ killed


def _killed_at(broker: Callable[[Disk], Broker], point: int | None) -> tuple[Broker, Callable[[], int]]:
    """A broker that is killed before its ``point``-th operation on disk or catalog; how many there were."""
    disk = FaultyDisk()
    count = 0

    def operation() -> None:
        nonlocal count
        if count == point:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def fault(which: str, path: Path, data: Any) -> Any:
        operation()
        return data

    disk.fault = fault
    made = broker(disk)
    made.catalog._db.set_trace_callback(lambda statement: operation())
    return made, lambda: count


def _forked(work: Callable[[], None]) -> int:
    """Run it in a process of its own; how that ended."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def _answered(home: Path) -> int:
    return (home / "answers").stat().st_size if (home / "answers").exists() else 0


def _live(home: Path, point: int | None) -> None:
    """The steps that are not answered yet; each answer is a byte in a file."""
    broker, _ = _killed_at(lambda disk: opened(home, disk), point)
    require(broker, _answered(home))
    with open(home / "answers", "ab", buffering=0) as answers:
        for step in STEPS[_answered(home) :]:
            step(broker)
            answers.write(b".")


def _end(home: Path, point: int) -> None:
    broker = opened(home)
    require(broker, _answered(home))
    answered = _answered(home)
    print(json.dumps({"point": point, "answered": answered, **finish(broker, answered)}), flush=True)


def _count(home: Path) -> None:
    broker, count = _killed_at(lambda disk: opened(home, disk), None)
    for step in STEPS:
        step(broker)
    print(json.dumps({"operations": count()}), flush=True)


def main(directory: Path, points: list[int]) -> None:
    """Without points, how many there are."""
    dead_letters.MESSAGES_PER_MARKING = MESSAGES_PER_MARKING  # type: ignore[misc]

    def prepared(name: str) -> Path:
        home = directory / name
        home.mkdir()
        assert _forked(lambda: begin(home).stop()) == 0
        return home

    # what is imported once need not be imported by every process
    warm = directory / "warm"
    warm.mkdir()
    begin(warm).stop()
    _live(warm, None)
    if not points:
        home = prepared("count")
        assert _forked(lambda: _count(home)) == 0
    for point in points:
        home = prepared(str(point))
        assert os.WTERMSIG(_forked(lambda home=home, point=point: _live(home, point))) == signal.SIGKILL  # type: ignore[misc]
        if point % 2:
            _forked(lambda home=home, point=point: _live(home, point % 37))  # type: ignore[misc]
        assert _forked(lambda home=home, point=point: _end(home, point)) == 0, f"point {point}"  # type: ignore[misc]


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(one) for one in sys.argv[2:]])
