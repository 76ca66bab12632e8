"""Stored NSQ messages for tests, put together by hand."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from lading.model.run import Run

VECTORS = Path(__file__).parents[1] / "vectors"
NSQ = 5


@cache
def vectors() -> dict[str, Any]:
    """The published vectors."""
    found: dict[str, Any] = json.loads((VECTORS / "nsq_vectors.json").read_text())
    return found


def vector(name: str) -> dict[str, Any]:
    """One of them; its ``hex`` as ``bytes``."""
    found: dict[str, Any] = next(each for each in vectors()["vectors"] if each["name"] == name)
    return {**found, "bytes": bytes.fromhex(found["hex"])}


def stored(
    number: int = 0,
    body: bytes = b"hello",
    ext: bytes = b"",
    version: int | None = None,
    *,
    time_ns: int = 1_700_000_000_000_000_000,
    trace: int = 0,
    partition: int = 0,
) -> bytes:
    """The message at offset ``number`` as it is stored."""
    version = (4 if ext else 0) if version is None else version
    block = bytes((version,)) + (struct.pack(">H", len(ext)) + ext if version else b"")
    data = struct.pack(">qHQQ", time_ns, 0, partition << 50 | number + 1, trace) + block + body
    return struct.pack(">II", len(data), google_crc32c.value(data)) + data


def run_of(*bodies: list[bytes], first: int = 0, spare_bytes: int = 0) -> Run:
    """A Run with one chunk for each list of messages."""
    rows = []
    at, offset = 0, first
    for body in bodies:
        size = sum(map(len, body))
        rows.append([at, at + size, offset, len(body), offset + len(body) - 1, 0, 0, 0])
        at, offset = at + size, offset + len(body)
    region = np.frombuffer(b"".join(b"".join(body) for body in bodies) + bytes(spare_bytes), np.uint8)
    return Run(NSQ, region, np.array(rows, np.int64).reshape(-1, 8))
