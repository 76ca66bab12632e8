"""How close decoding comes to only copying the bytes: the iggy_classic kernels and what they are made of."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.measure import median
from lading.dialects.iggy.classic import messages
from lading.dialects.registry import dialect
from lading.kernels import engine
from lading.model.run import Run
from lading.model.scan_request import ALL_FIELDS, ScanRequest

QUESTION = (
    "Decode kernel / memcpy of the same bytes (stored Iggy classic messages, three headers, one core, by its CPU time)"
)
CHUNK_ROWS = 1000
KEYS = ("carrier", "trace", "delay")


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: payload size, what was decoded, messages/s, GB/s, ratio to memcpy (medians of 5 alternating rounds)."""
    engine.load(messages.KERNEL_MODULE)
    engine.load(messages.SEND_KERNEL_MODULE)
    rows = []
    for payload_bytes, count in ((100, 200_000), (1000, 50_000)):
        rows += _sizes(payload_bytes, count // 10 if quick else count)
    return rows


def _sizes(payload_bytes: int, count: int) -> list[dict[str, Any]]:
    request = np.frombuffer(_sent(payload_bytes) * CHUNK_ROWS, np.uint8)
    target = np.empty(messages.room(request.size), np.uint8)
    stored = _stored(request, count)
    copy = np.empty_like(stored.region)
    iggy = dialect("iggy_classic")
    random = messages.random_state()

    def decode(fields: frozenset[str], keys: tuple[str, ...], carrier: bool = False) -> Callable[[], object]:
        return lambda: [None for _ in iggy.decode(stored, ScanRequest(fields=fields, keys=keys, carrier=carrier))]

    def restamp() -> None:
        for _ in range(count // CHUNK_ROWS):
            messages.restamp(request, 0, request.size, target, 0, 0, 0, random)

    work: dict[str, Callable[[], object]] = {
        "memcpy": lambda: np.copyto(copy, stored.region),
        "decode, every field": decode(ALL_FIELDS, ()),
        "decode, every field, carriers undone": decode(ALL_FIELDS, (), carrier=True),
        "decode, payload and 3 headers located": decode(frozenset({"offset", "payload"}), KEYS),
        "decode, 3 headers located": decode(frozenset({"offset"}), KEYS),
        "restamp (checks, ids, CRC-32)": restamp,
    }
    took: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(6):
        for name, task in work.items():
            begun = time.thread_time()
            task()
            took[name].append(time.thread_time() - begun)
    seconds = {name: median(rounds[1:]) for name, rounds in took.items()}
    return [
        {
            "payload bytes": payload_bytes,
            "work": name,
            "messages": count,
            "M messages/s": round(count / spent / 1e6, 1),
            "GB/s": round(stored.region.size / spent / 1e9, 1),
            "CPU us a message": round(spent / count * 1e6, 3),
            "/ memcpy": round(seconds["memcpy"] / spent, 2),
        }
        for name, spent in seconds.items()
    ]


def _header(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<I", len(key)) + key + struct.pack("<BI", kind, len(value)) + value


def _sent(payload_bytes: int) -> bytes:
    headers = _header(b"carrier", 2, b"dhl") + _header(b"trace", 2, b"0" * 32) + _header(b"delay", 12, bytes(8))
    return (
        bytes(16) + struct.pack("<I", len(headers)) + headers + struct.pack("<I", payload_bytes) + bytes(payload_bytes)
    )


def _stored(request: np.ndarray[Any, Any], count: int) -> Run:
    """Chunks of 1000 stored messages, offsets rising over all of them."""
    room = messages.room(request.size)
    chunks = count // CHUNK_ROWS
    region = np.zeros(room * chunks, np.uint8)
    random = messages.random_state()
    at = 0
    table = []
    for chunk in range(chunks):
        first = chunk * CHUNK_ROWS
        _, _, size = messages.restamp(request, 0, request.size, region, at, first, 1_000_000, random)
        table.append([at, at + size, first, CHUNK_ROWS, first + CHUNK_ROWS - 1, 0, 0, 0])
        at += size
    return Run(messages.CODE, region[:at], np.array(table, np.int64))
