"""What one request costs within the broker's process: no sockets, no kernel, no client to wait for.

The endpoint is wired as ``lading serve`` wires it, with the scripted loop and transport of ``tests/house``. Figures are
CPU time of the thread, of blocks of requests: the lowest tenth of the blocks is free of what else the machine does, so
that 2 % between two work trees can be told on a busy one. ``python -m bench.house BEFORE AFTER request_cost`` has both
trees answer by turns.
"""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from lading.kernels import engine
from tests.house.test_hot_path import CASES, connected

QUESTION = "CPU time of one request in the broker's process: us, lowest tenth and median of blocks"
BLOCKS: Final = 200
BLOCK_REQUESTS: Final = 50
WARM_UP_REQUESTS: Final = 200


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: request, microseconds a request in the lowest tenth of the blocks and in the middle one."""
    for module in engine.list_kernel_modules():
        engine.load(module)
    blocks = BLOCKS // 4 if quick else BLOCKS
    return [_measure(name, blocks) for name in CASES]


def _measure(name: str, blocks: int) -> dict[str, Any]:
    endpoint, case = CASES[name]
    taken_us = []
    with tempfile.TemporaryDirectory() as directory, connected(Path(directory), endpoint, "os") as client:
        requests = case(client)
        for _ in range(WARM_UP_REQUESTS):
            client.send(next(requests))
        gc.collect()
        gc.freeze()
        for _ in range(blocks):
            taken_ns = 0
            for _ in range(BLOCK_REQUESTS):
                request = next(requests)
                begun_ns = time.thread_time_ns()
                client.send(request)
                taken_ns += time.thread_time_ns() - begun_ns
            taken_us.append(taken_ns / BLOCK_REQUESTS / 1000)
        gc.unfreeze()
        next(requests)
    taken_us.sort()
    return {
        "request": name,
        "low us": round(taken_us[len(taken_us) // 10], 2),
        "median us": round(taken_us[len(taken_us) // 2], 2),
    }
