"""Record batches for tests: the vectors that three real clients made, and batches put together by hand."""

from __future__ import annotations

import gzip
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from lading.model.run import Run

VECTORS = Path(__file__).parents[1] / "vectors" / "kafka_vectors.json"
HEADER = struct.Struct(">qiibIhiqqqhii")
KAFKA = 4


@cache
def vectors() -> dict[str, Any]:
    """The published vectors."""
    found: dict[str, Any] = json.loads(VECTORS.read_text())
    return found


def run_of(*bodies: bytes, spare_bytes: int = 0) -> Run:
    """A Run with one chunk a body, each chunk covering all offsets that its batches name."""
    rows = []
    at = 0
    for body in bodies:
        rows.append([at, at + len(body), 0, 0, (1 << 62), 0, 0, 0])
        at += len(body)
    region = np.frombuffer(b"".join(bodies) + bytes(spare_bytes), np.uint8)
    return Run(KAFKA, region, np.array(rows, np.int64).reshape(-1, 8))


def varint(value: int) -> bytes:
    """Zigzag, base 128, little end first."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*out, rest))


def sized(value: bytes | None) -> bytes:
    """A value with its length in front, -1 for null."""
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    delta: int,
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: list[tuple[bytes, bytes | None]] | None = None,
    time_delta: int = 0,
) -> bytes:
    """One record."""
    body = b"\0" + varint(time_delta) + varint(delta) + sized(key) + sized(value) + varint(len(headers or []))
    body += b"".join(sized(name) + sized(held) for name, held in headers or [])
    return varint(len(body)) + body


def batch(
    records: list[bytes],
    base: int = 0,
    *,
    delta: int | None = None,
    count: int | None = None,
    attributes: int = 0,
    base_time_ms: int = 1_700_000_000_000,
    max_time_ms: int = 1_700_000_000_000,
    producer: int = -1,
    data: bytes | None = None,
) -> bytes:
    """One batch around records; ``data`` stands for them where they are compressed."""
    body = b"".join(records) if data is None else data
    delta = len(records) - 1 if delta is None else delta
    count = len(records) if count is None else count
    facts = (base, HEADER.size - 12 + len(body), 0, 2, 0, attributes, delta)
    head = bytearray(HEADER.pack(*facts, base_time_ms, max_time_ms, producer, 0, -1, count))
    head[17:21] = google_crc32c.value(bytes(head[21:]) + body).to_bytes(4, "big")
    return bytes(head) + body


def bomb() -> bytes:
    """A batch of some KiB that claims to hold more records than fit the 256 MiB that are taken."""
    return batch([], data=gzip.compress(bytes(300 << 20), 1), attributes=1, count=1000, delta=999)
