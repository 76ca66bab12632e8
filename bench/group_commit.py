"""Group commit: what 50 producers, each waiting for its own acknowledgement, get from one disk that really syncs."""

from __future__ import annotations

import os
import selectors
import tempfile
import time
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

from lading.kernels import engine
from lading.log.disk import RealDisk
from lading.log.group_commit import GroupCommit
from lading.log.partition import DiskPartitionLog, open_partition

QUESTION = "group commit ÷ a sync for every message: 50 producers, 1 message of 200 B in flight each, fdatasync"
PRODUCERS = 50
BODY = bytes(200)
DIALECT = 2


def run(quick: bool) -> list[dict[str, Any]]:
    """One row for each number of partitions; ``alone`` is one producer whose every message is synced by itself."""
    for home in ("lading.chunk.kernels", "lading.kernels.sync"):
        engine.load(home)
    rows = []
    for partitions in (1, 16, 256):
        with tempfile.TemporaryDirectory(prefix="lading-bench-") as home:
            alone = _alone(Path(home), 0.3 if quick else 2.0)
            rows.append(_measure(Path(home), partitions, 0.5 if quick else 5.0, alone))
    return rows


def _open(home: Path, name: str) -> DiskPartitionLog:
    return open_partition(RealDisk(), home / name, bytes(16), segment_bytes=256 << 20, now_us=_now_us())


def _now_us() -> int:
    return time.time_ns() // 1000


def _alone(home: Path, seconds: float) -> float:
    log = _open(home, "alone")
    done = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        log.append(DIALECT, 0, BODY, 1, 1, 1)
        log.flush()
        for file in log.begin_sync():
            file.sync()
        log.complete_sync()
        done += 1
    took = time.perf_counter() - begun
    log.close()
    return done / took


def _measure(home: Path, partitions: int, seconds: float, alone: float) -> dict[str, Any]:
    logs = [_open(home, str(number)) for number in range(partitions)]
    commit = GroupCommit()
    selector = selectors.DefaultSelector()
    selector.register(commit.fileno() or 0, selectors.EVENT_READ)
    waiting: dict[DiskPartitionLog, deque[tuple[int, float]]] = {log: deque() for log in logs}
    ready = PRODUCERS
    latencies: list[float] = []
    syncs = 0
    random = Random(1)
    for log in logs:
        log.append(DIALECT, 0, BODY, 1, 1, 1)
        log.flush()
        commit.submit(log)
    commit.drain()

    cpu, begun = time.process_time(), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        touched = set()
        for _ in range(ready):
            log = logs[random.randrange(partitions)] if partitions > 1 else logs[0]
            offset = log.append(DIALECT, 0, BODY, 1, 1, 1)
            waiting[log].append((offset, time.perf_counter()))
            touched.add(log)
        for log in touched:
            log.flush()
            commit.submit(log)
        selector.select(1)
        commit.complete()
        ready = 0
        now = time.perf_counter()
        for log in logs:
            queue = waiting[log]
            if queue and queue[0][0] < log.high_watermark:
                syncs += 1
                while queue and queue[0][0] < log.high_watermark:
                    latencies.append(now - queue.popleft()[1])
                    ready += 1
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    commit.close()
    for log in logs:
        log.close()
    latencies.sort()
    count = len(latencies)
    return {
        "partitions": partitions,
        "acks/s": round(count / took),
        "÷ alone": round(count / took / alone, 1),
        "p50 ms": round(latencies[count // 2] * 1e3, 2),
        "p99 ms": round(latencies[int(count * 0.99)] * 1e3, 2),
        "acks a sync": round(count / max(syncs, 1), 1),
        "CPU s/M": round(used / count * 1e6, 1),
        "alone acks/s": round(alone),
        "durability": "fsync",
        "cores": os.cpu_count(),
    }
