"""The process that fills a queue's spool, as a stream uses it: it is there as long as the stream is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lading import Producer, testing
from lading.spool.spool_log import lock_spool
from lading.tables.plan.options import SourceOptions
from lading.tables.plan.planning import Planner
from lading.tables.plan.spooling import resolve_spool

DEADLINE_S = 60.0


def planner_of(
    broker: testing.BrokerProcess, topic: str, spool: Path, more: Mapping[str, str] | None = None
) -> Planner:
    """A stream's view of a queue."""
    options = {"from": f"nsq://{broker.endpoints['nsqd_tcp']}", "topic": topic, "spool": str(spool), **(more or {})}
    return Planner(resolve_spool(SourceOptions.parse(options)))


def publish(broker: testing.BrokerProcess, topic: str, count: int) -> None:
    with Producer(f"nsq://{broker.endpoints['nsqd_tcp']}") as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def end_of(planner: Planner) -> int:
    return planner.end_offsets()[0].offset


@pytest.mark.turns(3, part=0)
def test_a_spool_process_that_ended_is_started_again(
    broker: testing.BrokerProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planner = planner_of(broker, "spooled.again", tmp_path / "spool")
    publish(broker, "spooled.again", 10)
    assert end_of(planner) == 10
    child = planner._filling._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.wait(DEADLINE_S)
    publish(broker, "spooled.again", 5)
    wait_until(lambda: end_of(planner) == 15)
    assert [record.message for record in caplog.records if "spool process" in record.message] == [
        f"the spool process of nsq://{broker.endpoints['nsqd_tcp']} ended (signal 9); starting another"
    ]
    planner.close()


@pytest.mark.turns(3, part=1)
def test_secrets_of_a_queue_are_no_arguments_of_its_process(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    """Everybody on a machine sees what processes were called with."""
    planner = planner_of(broker, "spooled.secret", tmp_path / "spool", {"transport.auth_secret": "hush-hush"})
    publish(broker, "spooled.secret", 3)
    assert end_of(planner) == 3
    child = planner._filling._child
    assert child is not None
    words = Path(f"/proc/{child.pid}/cmdline").read_bytes()
    assert b"lading.spool" in words and b"hush-hush" not in words
    planner.close()


@pytest.mark.turns(3, part=2)
def test_a_spool_that_another_process_filled_is_filled_when_that_has_ended(
    broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    first = planner_of(broker, "spooled.taken", tmp_path / "spool")
    second = planner_of(broker, "spooled.taken", tmp_path / "spool")
    publish(broker, "spooled.taken", 10)
    assert (end_of(first), end_of(second)) == (10, 10)
    publish(broker, "spooled.taken", 5)
    wait_until(lambda: end_of(second) == 15)
    first.close()
    publish(broker, "spooled.taken", 5)
    wait_until(lambda: end_of(second) == 20)
    second.close()
    with lock_spool(tmp_path / "spool"):
        pass
