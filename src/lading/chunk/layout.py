"""Positions of the fields of a chunk's envelope, and reasons to refuse one (docs/reference/chunk-format.md)."""

from __future__ import annotations

import struct
from typing import Final

ENVELOPE: Final = struct.Struct("<IIHBBHHQIIQQ")
"""length, crc32c, magic, version, dialect, flags, reserved, base_offset, count, last_offset_delta, min and max time."""

ENVELOPE_BYTES: Final = 48
MAGIC: Final = 0x444C
"""The bytes ``LD``."""
VERSION: Final = 1
LENGTH_COUNTS_FROM: Final = 8
"""``length`` counts all bytes after the crc field, and the crc is taken over the same bytes."""

LENGTH, CRC, MAGIC_AT, VERSION_AT, DIALECT, FLAGS, RESERVED = 0, 4, 8, 10, 11, 12, 14
BASE_OFFSET, COUNT, LAST_OFFSET_DELTA, MIN_TIMESTAMP, MAX_TIMESTAMP = 16, 24, 28, 32, 40

POSITION_MAX: Final = (1 << 63) - 1
"""Highest offset and highest timestamp in microseconds: what an Arrow int64 holds."""

FINE, CUT, SHORT, NO_MAGIC, OTHER_VERSION, RESERVED_BITS, BAD_CRC, BAD_COUNT, BAD_OFFSET, BAD_TIME = range(10)
REASONS: Final = (
    "",
    "is cut short: the region ends inside it",
    "has a length below that of its own envelope",
    "does not begin with the magic of a chunk",
    "has an unknown version",
    "has reserved bits set",
    "does not match its CRC-32C",
    "holds more messages than offsets",
    "has an offset past 2^63 - 1",
    "has a time range that ends before it begins or past 2^63 - 1",
)
