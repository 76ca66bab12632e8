"""A process that works with a channel is killed at random times: every message is delivered until it is finished."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import forked_command
from tests.broker.channel_room import Reader
from tests.broker.room import opened


@pytest.mark.timeout(1200)
@pytest.mark.turns(3, part=2)
def test_kill_9_of_a_channel_loses_nothing(tmp_path: Path, full: bool, record_figures: Callable[..., None]) -> None:
    random = Random(16)
    rounds = 100 if full else 4
    told: dict[bytes, set[int]] = {b"P": {0}, b"I": set(), b"F": set()}
    again = 0
    for number in range(rounds):
        _run_and_kill(tmp_path, random.uniform(0.1, 0.6), number, told)
        published = max(told[b"P"])
        broker = opened(tmp_path)
        channel = broker.channels.find(broker.topology.topic("s", "t"), "c")
        assert channel is not None
        lane = channel.lanes[0]
        done = set(range(lane.window.first)) - {offset for offset, _ in lane.out_of_window.items()}
        done |= set(range(lane.window.first, lane.window.end)) - set(lane.window.pending().tolist())
        # what was stored as finished stays so, and nothing else is taken for done than what subscribers finished
        assert told[b"F"] <= done <= told[b"I"]
        again += len(told[b"I"] - done)
        broker.catalog.close()
    broker = opened(tmp_path)
    topic = broker.topology.topic("s", "t")
    end = topic.partition(0).log.next_offset
    assert end >= published
    channel = broker.channels.open(topic, "c")
    before = channel.statistics().depth + channel.statistics().deferred
    reader = Reader().subscribe(channel, 1 << 20)
    broker.tick(1 << 62)
    while (due_us := broker.channels.pump(1 << 62)) is not None or channel.statistics().depth:
        assert due_us is not None
    got = [offset for _, offset, _, _ in reader.got]
    assert len(got) == len(set(got)) == before
    assert reader.finish(*got) == len(got)
    assert channel.lanes[0].window.first == end and not len(channel.lanes[0].out_of_window)
    broker.stop()
    record_figures(
        "kill -9 of a channel",
        rounds=rounds,
        published=published,
        finished=len(told[b"I"]),
        lost=0,
        again=again,
    )


def _run_and_kill(home: Path, after_s: float, seed: int, told: dict[bytes, set[int]]) -> None:
    """Add what the process says to ``told``: P ends of what was published, I about to be finished, F finished."""
    command = [sys.executable, "-m", "tests.faults.channel_worker", str(home), str(seed)]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": 2}
    with forked_command.ForkedCommand(command, **streams) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(after_s)
        finally:
            process.kill()
        lines = process.stdout.read().splitlines(keepends=True)
        process.wait(20)
    for line in lines:
        if line.endswith(b"\n"):
            what, *numbers = line.split()
            told[what].update(map(int, numbers))
