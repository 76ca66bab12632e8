"""Zero-copy messages put together by hand, after what the published crates 0.7 to 0.10 write and check."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from lading.dialects.iggy.zero_copy.layout import CRC_32, FORM_0_9, XXH3_64, WireForm
from lading.model.run import Run

VECTORS = Path(__file__).parents[1] / "vectors"
Header = tuple[bytes, int, bytes] | tuple[bytes, int, bytes, int]


def captured_sends() -> dict[str, bytes]:
    """What each published wheel sent as the body of a send of ``hello`` and ``world``, by its version."""
    entries: list[dict[str, Any]] = json.loads((VECTORS / "iggy_release_captures.json").read_text())
    named = {entry["name"]: entry for entry in entries}
    return {
        version: bytes.fromhex(named[f"capture.apache-iggy_{version}.send_messages.1"]["decoded"]["payload_hex"])
        for version in ("0.5.0", "0.6.0", "0.7.0", "0.8.0")
    }


def typed_headers() -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in json.loads((VECTORS / "iggy_typed_headers.json").read_text())}


def block(headers: Sequence[Header], typed: int = 1) -> bytes:
    out = b""
    for key, kind, value, *key_kind in headers:
        out += bytes([*(key_kind or [2])] * typed) + struct.pack("<I", len(key)) + key
        out += struct.pack("<BI", kind, len(value)) + value
    return out


def message(
    offset: int = 0,
    payload: bytes = b"payload",
    headers: Sequence[Header] = (),
    *,
    form: WireForm = FORM_0_9,
    id_: int = 1,
    timestamp_us: int = 0,
    origin_us: int = 7,
) -> bytes:
    headers_block = block(headers, form.typed)
    hashed = id_.to_bytes(16, "little") + struct.pack("<QQQ", offset, timestamp_us, origin_us)
    hashed += struct.pack("<II", len(headers_block), len(payload)) + bytes(form.head_bytes - 56) + payload
    hashed += headers_block
    sums = {XXH3_64: xxhash.xxh3_64_intdigest, CRC_32: zlib.crc32}
    checksum = sums[form.checksum](hashed) if form.checksum in sums else 0
    return struct.pack("<Q", checksum) + hashed


def indexed(messages: Sequence[bytes]) -> tuple[bytes, int]:
    """Index and messages as a send carries them, and where the messages begin."""
    ends = np.cumsum([len(each) for each in messages], dtype=np.int64).tolist()
    index = b"".join(struct.pack("<IIQ", 0, end, 0) for end in ends)
    return index + b"".join(messages), len(index)


def octets(data: bytes | bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def run_of(*messages: bytes, first: int = 0) -> Run:
    """A Run of one chunk with other bytes before it, and none behind: headers end with the region."""
    body = b"".join(messages)
    row = [5, 5 + len(body), first, len(messages), first + len(messages) - 1, 0, 0, 0]
    return Run(6, octets(b"\xee" * 5 + body), np.array([row], np.int64))
