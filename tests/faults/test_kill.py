"""A writer is killed at random times; what it was told is there (test 2 of the fault list, at the level of the log)."""

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
from tests.log.messages import message, opened, read_all

PARTITIONS = 3


@pytest.mark.timeout(1200)
def test_kill_9_loses_nothing(tmp_path: Path, full: bool, record_figures: Callable[..., None]) -> None:
    random = Random(11)
    rounds = 100 if full else 4
    acknowledged = dict.fromkeys(range(PARTITIONS), 0)
    recovery_ms: list[float] = []
    for number in range(rounds):
        _run_and_kill(tmp_path, random.uniform(0.05, 0.5), acknowledged)
        for partition in range(PARTITIONS):
            started = time.perf_counter()
            log = opened(tmp_path / str(partition), segment_bytes=200_000)
            recovery_ms.append((time.perf_counter() - started) * 1e3)
            assert log.high_watermark >= acknowledged[partition]
            assert log.high_watermark == log.next_offset and not log.recovery.damage
            if number % 10 == 0 or number == rounds - 1:
                assert read_all(log, max_bytes=1 << 20) == {at: message(at) for at in range(log.high_watermark)}
            log.close()
    assert sum(acknowledged.values()) > 100
    recovery_ms.sort()
    record_figures(
        "kill -9",
        rounds=rounds,
        acknowledged=sum(acknowledged.values()),
        lost=0,
        recovery_p50_ms=round(recovery_ms[len(recovery_ms) // 2], 1),
        recovery_p99_ms=round(recovery_ms[int(len(recovery_ms) * 0.99)], 1),
    )


def _run_and_kill(home: Path, after_s: float, acknowledged: dict[int, int]) -> None:
    command = [sys.executable, "-m", "tests.faults.writer", str(home), str(PARTITIONS)]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": 2}
    with forked_command.ForkedCommand(command, **streams) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            time.sleep(after_s)
        finally:
            process.kill()
        lines = [first, *process.stdout.read().splitlines(keepends=True)]
        process.wait(20)
    for line in lines:
        if line.endswith(b"\n"):
            partition, end = map(int, line.split())
            acknowledged[partition] = max(acknowledged[partition], end)
