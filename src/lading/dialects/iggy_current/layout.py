"""Where the fields of batches and their frames lie, and why stored bytes may be refused (iggy-current.md B4)."""

from __future__ import annotations

from typing import Final

PARTITION, BASE_OFFSET, BASE_TIME, ORIGIN_TIME, BATCH_LENGTH, BATCH_CHECKSUM, MESSAGE_COUNT = 0, 8, 16, 24, 32, 40, 48
BATCH_HEAD_BYTES: Final = 256
"""A batch: partition, base offset and times u64, its length with this head u64, checksum u64, count u32, reserved."""
BATCH_HEAD_HASHED_BYTES: Final = 52 - 8
"""What the batch checksum covers of the head: all that is used but the checksum itself; then those of the frames."""

CHECKSUM, ID, OFFSET_DELTA, TIME_DELTA, HEADERS_LENGTH, PAYLOAD_LENGTH, RESERVED = 0, 8, 24, 28, 32, 36, 40
FRAME_HEAD_BYTES: Final = 48
"""A frame: checksum u64 of all behind it, id u128, deltas and lengths u32, reserved u64; payload, then headers."""

CHECKSUM_BYTES: Final = 8
SCRATCH_BYTES: Final = 64
"""Room for what the checksum of a batch covers beside those of its frames, and for a word behind."""
HEADER_BYTES_MIN: Final = 10
"""A header without key and value: key kind u8, key length u32, value kind u8, value length u32."""
STORED_BYTES_MIN: Final = FRAME_HEAD_BYTES
STRING_KEY: Final = 2
"""The kind of a header key that is text."""

POSITION_MAX: Final = (1 << 63) - 1
DELTA_MAX: Final = (1 << 32) - 1
ARROW_BYTES_MAX: Final = (1 << 31) - 64
"""What one Arrow binary column of a batch can hold."""
STORED_KIND_MAX: Final = 127
"""A header kind is an int8 in a Batch: what is above it cannot be read."""

WANT_HEADERS, WANT_PAYLOAD = 1, 2
"""Bits of what ``scan`` is to count."""

COUNT, HEADER_COUNT, KEY_BYTES, VALUE_BYTES, PAYLOAD_BYTES, ODD_KEYS, WHERE, TOTALS = range(8)
"""What ``scan`` counts; ODD_KEYS says that some key is not plain ASCII text or begins with a backslash."""

OFFSETS, TIMESTAMPS, IDS, LIST_ENDS, KEY_ENDS, KEYS, KINDS, VALUE_ENDS, VALUES = range(9)
PAYLOAD_ENDS, PAYLOADS, PLACES = range(9, 12)
"""The buffers that ``fill`` writes, as Arrow has them; ``places`` holds where each begins, -1 where nobody asked."""

FINE, CUT, BAD_HEADERS, BAD_KIND, BAD_POSITION, TOO_LARGE = range(6)
REASONS: Final = (
    "",
    "is cut short",
    "has a header block whose lengths do not add up",
    "has a header kind that is 0 or above 127",
    "has an offset or timestamp past 2^63 - 1",
    "is larger than an Arrow column can hold",
)

FITS, KEY_SIZE, VALUE_SIZE, UNKNOWN_KIND, NO_PAYLOAD, PAYLOAD_SIZE, HEADERS_SIZE = range(7)
"""Why ``write`` refuses a message."""
