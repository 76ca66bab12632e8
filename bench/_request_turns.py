"""Requests within the processes of two work trees, by blocks of fifty, one side after the other.

A tree that runs alone for half a minute is measured with what the machine did in that half minute, and its figures move
by a fifth. Here both trees' processes live beside each other, on one core; a block of requests in one is followed at
once by a block of the same in the other, and what counts is the median of the ratios of such pairs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.measure import median, tree_environment

BLOCKS_PER_TURN: Final = 20
_CASES: Final = "from tests.house.test_hot_path import CASES; print(*CASES, sep=chr(10))"
_WORK: Final = """
import gc, sys, tempfile, time
from pathlib import Path
from lading.kernels import engine
from tests.house.test_hot_path import CASES, connected

# other trees may have other names for these two
list_modules = getattr(engine, "list_kernel_modules", None) or engine.homes
load = getattr(engine, "load", None) or engine.compiled
for module in list_modules():
    load(module)
endpoint, case = CASES[sys.argv[1]]
with tempfile.TemporaryDirectory() as directory, connected(Path(directory), endpoint, "os") as client:
    requests = case(client)
    for _ in range(300):
        client.send(next(requests))
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        taken_ns = 0
        for _ in range(50):
            request = next(requests)
            begun_ns = time.thread_time_ns()
            client.send(request)
            taken_ns += time.thread_time_ns() - begun_ns
        print(taken_ns / 50_000, flush=True)
"""


def compare_requests(before: Path, after: Path, turns: int) -> list[dict[str, Any]]:
    """Rows: each request that both trees know, microseconds in the lowest tenth of the blocks, ratio of the pairs."""
    known = [_run(tree, _CASES).stdout.splitlines() for tree in (before, after)]
    return [_compare(before, after, case, turns * BLOCKS_PER_TURN) for case in known[0] if case in known[1]]


def _compare(before: Path, after: Path, case: str, blocks: int) -> dict[str, Any]:
    taken: list[tuple[float, float]] = []
    with ExitStack() as stack:
        sides = [stack.enter_context(_worker(tree, case)) for tree in (before, after)]
        for number in range(blocks):
            first = number % 2
            pair = {side: _measure_block(sides[side]) for side in (first, 1 - first)}
            taken.append((pair[0], pair[1]))
    print(f"  {case}: {blocks} blocks a side", file=sys.stderr, flush=True)
    ratios = sorted(new / old for old, new in taken)
    low = [sorted(figures)[blocks // 10] for figures in zip(*taken, strict=True)]
    return {
        "request": case,
        "before us": round(low[0], 2),
        "after us": round(low[1], 2),
        "ratio": round(median(ratios), 3),
        "middle half": f"{ratios[blocks // 4]:.2f} to {ratios[3 * blocks // 4]:.2f}",
    }


@contextmanager
def _worker(tree: Path, case: str) -> Iterator[subprocess.Popen[str]]:
    """The process of a tree that answers each line by the microseconds of one request of a block."""
    core = max(os.sched_getaffinity(0))
    with subprocess.Popen(
        [sys.executable, "-c", _WORK, case], cwd=tree, env=tree_environment(tree), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.sched_setaffinity(process.pid, {core})
        assert process.stdin is not None and process.stdout is not None
        while (line := process.stdout.readline()) != "ready\n":
            if not line:
                raise RuntimeError(f"{tree}: the process of {case!r} ended with {process.wait()}")
        try:
            yield process
        finally:
            process.kill()


def _measure_block(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def _run(tree: Path, script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=tree, env=tree_environment(tree), stdout=subprocess.PIPE, text=True, check=True)
