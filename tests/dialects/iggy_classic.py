"""Iggy classic messages put together by hand (iggy.md A4), and what the real server wrote."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.model.run import Run

VECTORS = Path(__file__).parents[1] / "vectors"
Header = tuple[bytes, int, bytes]


def vectors() -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in json.loads((VECTORS / "iggy_classic_vectors.json").read_text())}


def written_logs(partition: str) -> list[bytes]:
    """The segments of a partition that the real 0.0.40 server wrote, in order."""
    directory = VECTORS / "iggy_classic_data" / "streams" / "2" / "topics" / "1" / "partitions" / partition
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


def written_messages(partition: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads((VECTORS / "iggy_classic_data.json").read_text())["partitions"][
        partition
    ]
    return messages


def block(headers: Sequence[Header]) -> bytes:
    return b"".join(struct.pack("<I", len(k)) + k + struct.pack("<BI", kind, len(v)) + v for k, kind, v in headers)


def sent(payload: bytes = b"payload", headers: Sequence[Header] = (), id_: int = 1) -> bytes:
    head = id_.to_bytes(16, "little") + struct.pack("<I", len(block(headers))) + block(headers)
    return head + struct.pack("<I", len(payload)) + payload


def stored(
    offset: int,
    payload: bytes = b"payload",
    headers: Sequence[Header] = (),
    *,
    id_: int = 1,
    state: int = 1,
    timestamp_us: int = 0,
) -> bytes:
    head = struct.pack("<QBQ", offset, state, timestamp_us) + id_.to_bytes(16, "little")
    head += struct.pack("<II", zlib.crc32(payload), len(block(headers))) + block(headers)
    return head + struct.pack("<I", len(payload)) + payload


def octets(data: bytes | bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def run_of(*bodies: Sequence[bytes], gap: bytes = b"\xee" * 5, first: int = 0) -> Run:
    """A Run of chunks, one for each list of stored messages, with other bytes between them."""
    region = bytearray()
    rows = []
    for messages in bodies:
        region += gap
        start = len(region)
        region += b"".join(messages)
        rows.append([start, len(region), first, len(messages), first + len(messages) - 1, 0, 0, 0])
        first += len(messages)
    return Run(2, octets(bytes(region + gap)), np.array(rows, np.int64).reshape(-1, 8))


def messages_in(log: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each stored message, by the lengths alone."""
    at = 0
    while at < len(log):
        length_at = at + 41 + struct.unpack_from("<I", log, at + 37)[0]
        end = length_at + 4 + struct.unpack_from("<I", log, length_at)[0]
        yield at, end
        at = end
