"""Compressed batches that are no batches: refused with the memory they would have taken given back at once."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import tracemalloc
from functools import cache
from typing import Any

import cramjam
import numpy as np
import pytest

from lading.dialects.kafka import compression, validation
from lading.dialects.kafka.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    DecompressionBudget,
    decompress,
    plain_bytes_max,
)
from lading.dialects.kafka.limits import PLAIN_BYTES_FREE, PLAIN_BYTES_MAX
from lading.model.errors import MalformedMessage
from tests.endpoints.kafka_frames import batch

MIB = 1 << 20


def snapped(data: bytes) -> bytes:
    """A raw block with a wrong byte at its end."""
    block = bytes(cramjam.snappy.compress_raw(data))
    return block[:-1] + b"\xff"


@cache
def make_bomb(name: str) -> tuple[int, bytes]:
    """Return a codec and what becomes 60 MiB by it."""
    plain = bytes(60 * MIB)
    match name:
        case "zstd":
            return ZSTD, bytes(cramjam.zstd.compress(plain))
        case "gzip":
            return GZIP, gzip.compress(plain, 1)
        case "lz4":
            return LZ4, bytes(cramjam.lz4.compress(plain))
    return SNAPPY, snapped(plain)


def judge(data: bytes, codec: int) -> None:
    sent = np.frombuffer(batch(data, 1, attributes=codec), np.uint8)
    validation.validate_batch(sent, 0, validation.parse_batch_header(sent, 0, sent.size, version=9, size_max=8 * MIB))


@pytest.mark.parametrize("name", ["zstd", "gzip", "lz4", "snappy"])
def test_a_refused_bomb_leaves_nothing_behind(name: str) -> None:
    """Each refusal kept 256 MiB: its traceback held the buffer, and a cycle held the traceback."""
    codec, data = make_bomb(name)
    refusals: list[Any] = []
    tracemalloc.start()
    try:
        for attempt in (lambda: judge(data, codec), lambda: decompress(codec, memoryview(data), bytes_max=50 * MIB)):
            with pytest.raises(MalformedMessage) as refused:
                attempt()
            refusals.append(refused)
        taken = tracemalloc.take_snapshot().filter_traces((tracemalloc.Filter(True, compression.__file__),))
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in taken.traces) < MIB, refusals


@pytest.mark.parametrize("codec", [ZSTD, GZIP])
def test_a_producer_may_send_32_mib_in_a_few_bytes_and_no_more(codec: int) -> None:
    assert plain_bytes_max(8_192) == PLAIN_BYTES_FREE
    assert plain_bytes_max(MIB) == 100 * MIB
    assert plain_bytes_max(100 * MIB) == PLAIN_BYTES_MAX
    compress = cramjam.zstd.compress if codec == ZSTD else cramjam.gzip.compress
    with pytest.raises(MalformedMessage, match=f"more than {PLAIN_BYTES_FREE}"):
        judge(bytes(compress(bytes(PLAIN_BYTES_FREE + 1))), codec)
    # what was stored before, or lies in another cluster, is read all the same
    plain, size_bytes = decompress(codec, memoryview(bytes(compress(bytes(PLAIN_BYTES_FREE + 1)))))
    assert size_bytes == PLAIN_BYTES_FREE + 1 <= plain.size


def test_threads_take_from_one_budget_before_they_take_memory() -> None:
    budget = DecompressionBudget(20 * MIB)
    taken: list[int] = []
    under_way = [0]
    lock = threading.Lock()

    def work() -> None:
        for _ in range(50):
            with budget.hold(9 * MIB):
                with lock:
                    under_way[0] += 9 * MIB
                    taken.append(under_way[0])
                with lock:
                    under_way[0] -= 9 * MIB

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(taken) == 300
    assert max(taken) <= 20 * MIB


def test_one_alone_has_its_turn_however_small_the_budget_is() -> None:
    with DecompressionBudget(1).hold(256 * MIB):
        pass


WITHOUT_MEMORY = """
import resource
import numpy as np
import cramjam
from lading.dialects.kafka import validation as accept, compression
from lading.model.errors import Reason, Refusal
from tests.endpoints.kafka_frames import batch

data = bytes(cramjam.zstd.compress(bytes(30 << 20)))
sent = np.frombuffer(batch(data, 1, attributes=4), np.uint8)
facts = accept.parse_batch_header(sent, 0, sent.size, version=9, size_max=8 << 20)
accept.kernels_for(0)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
try:
    accept.validate_batch(sent, 0, facts)
except Refusal as refusal:
    assert refusal.reason is Reason.STOPPING
    print(refusal)
"""


def test_a_producer_is_told_to_come_again_where_there_is_no_memory() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, check=False)
    assert "out of memory to decompress a batch" in done.stdout, done.stderr
