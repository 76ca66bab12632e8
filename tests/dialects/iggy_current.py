"""Frames and batches of the current Iggy, built here by the layout alone: not with the code that is tested."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

VECTORS: dict[str, dict[str, Any]] = {
    vector["name"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "iggy_current_vectors.json").read_text())
}


def vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name]["hex"])


Header = tuple[int, bytes, int, bytes]
"""Key kind, key, kind, value."""


def header_block(headers: Sequence[Header]) -> bytes:
    return b"".join(
        struct.pack("<BI", key_kind, len(key)) + key + struct.pack("<BI", kind, len(value)) + value
        for key_kind, key, kind, value in headers
    )


def frame(
    payload: bytes, headers: Sequence[Header] | bytes = (), *, delta: int = 0, id_: int = 0, reserved: int = 0
) -> bytes:
    block = headers if isinstance(headers, bytes) else header_block(headers)
    lengths = struct.pack("<IIIIQ", delta, 0, len(block), len(payload), reserved)
    rest = id_.to_bytes(16, "little") + lengths + payload + block
    return struct.pack("<Q", xxhash.xxh3_64_intdigest(rest)) + rest


def batch(
    frames: Sequence[bytes],
    *,
    base: int = 0,
    time_us: int = 0,
    origin_us: int = 0,
    partition: int = 0,
    producer: tuple[int, int, int] | None = None,
) -> bytes:
    """A batch; ``producer`` is id, epoch and sequence of who numbered its messages (protocol 0.12)."""
    data = b"".join(frames)
    head = struct.pack("<5Q", partition, base, time_us, origin_us, 256 + len(data))
    count = struct.pack("<I", len(frames))
    section, hashed = bytes(20), b""
    if producer is not None:
        ident, epoch, sequence = producer
        section = struct.pack("<B3xQH2xI", 1, ident, epoch, sequence)
        hashed = struct.pack("<BQHI", 1, ident, epoch, sequence)
    checksum = xxhash.xxh3_64_intdigest(head + count + hashed + b"".join(one[:8] for one in frames))
    return head + struct.pack("<Q", checksum) + count + section + bytes(184) + data


class PolledMessage(NamedTuple):
    """What a client makes of a frame of a batch."""

    offset: int
    timestamp_us: int
    id: int
    headers: list[Header]
    payload: bytes


def parse_batches(data: bytes) -> list[PolledMessage]:
    """The messages of batches, each checksum checked."""
    found, at = [], 0
    while at < len(data):
        _, base, time_us, _, length, checksum, count = struct.unpack_from("<6QI", data, at)
        end, here, sums = at + length, at + 256, b""
        assert end <= len(data)
        # releases before protocol 0.12 take nothing there
        assert not any(data[at + 52 : here])
        for _ in range(count):
            own, id_, delta, _, headers_size, payload_size, reserved = struct.unpack_from("<Q16sIIIIQ", data, here)
            payload_at = here + 48
            headers_at, next_at = payload_at + payload_size, payload_at + payload_size + headers_size
            assert own == xxhash.xxh3_64_intdigest(data[here + 8 : next_at])
            assert reserved == 0
            sums += data[here : here + 8]
            block = parse_headers(data[headers_at:next_at])
            number = int.from_bytes(id_, "little")
            found.append(PolledMessage(base + delta, time_us, number, block, data[payload_at:headers_at]))
            here = next_at
        assert here == end
        assert checksum == xxhash.xxh3_64_intdigest(data[at : at + 40] + data[at + 48 : at + 52] + sums)
        at = end
    return found


def parse_headers(block: bytes) -> list[Header]:
    found, at = [], 0
    while at < len(block):
        key_kind, key_size = struct.unpack_from("<BI", block, at)
        key = block[at + 5 : at + 5 + key_size]
        kind, size = struct.unpack_from("<BI", block, at + 5 + key_size)
        at += 10 + key_size
        found.append((key_kind, key, kind, block[at : at + size]))
        at += size
    return found
