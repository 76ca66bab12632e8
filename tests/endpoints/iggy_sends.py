"""Sends of Iggy's classic framing by hand: of release 0.4, and of 0.10, whose messages have an index before them."""

from __future__ import annotations

import struct
from typing import Final

from lading.dialects.iggy.zero_copy.layout import FORM_0_9, NO_CHECKSUM
from tests.dialects import iggy_zero_copy
from tests.endpoints import frames
from tests.endpoints.test_iggy_releases import named

SEND: Final = 101


def frame(code: int, payload: bytes) -> bytes:
    return frames.HEAD.pack(4 + len(payload), code) + payload


def to_partition(number: int) -> bytes:
    """Partitioning by number."""
    return struct.pack("<BBI", 2, 4, number)


def by_key(key: bytes) -> bytes:
    """Partitioning by the hash of a key."""
    return struct.pack("<BB", 3, len(key)) + key


BALANCED: Final = struct.pack("<BB", 1, 0)


def send(release: str, *payloads: bytes, topic: str = "one", to: bytes | None = None, damage: int = 0) -> bytes:
    """A request of one of the releases; with ``damage`` a message has a length that it does not have."""
    where = named("stream") + named(topic)
    if release == "0.4.0":
        body = where + (to_partition(1) if to is None else to)
        body += b"".join(frames.message(payload) for payload in payloads)
        return frame(SEND, body[: len(body) - damage])
    form = FORM_0_9._replace(checksum=NO_CHECKSUM)
    sent, _ = iggy_zero_copy.indexed([iggy_zero_copy.message(0, each, form=form) for each in payloads])
    metadata = where + (to_partition(0) if to is None else to) + struct.pack("<I", len(payloads))
    body = struct.pack("<I", len(metadata)) + metadata + sent
    return frame(SEND, body[: len(body) - damage])
