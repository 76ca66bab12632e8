"""Positions of the fields of a record batch (kafka.md 2.1; big-endian), and reasons to refuse bytes."""

from __future__ import annotations

import struct
from typing import Final

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, CRC-32C, attributes, last offset delta, base time, max time, producer id,
producer epoch, base sequence, records count."""
BATCH_HEADER_BYTES: Final = BATCH_HEADER.size
LENGTH_AT, EPOCH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT = 8, 12, 16, 17, 21
LAST_DELTA_AT, BASE_TIME_AT, MAX_TIME_AT, PRODUCER_AT, COUNT_AT = 23, 27, 35, 43, 57
PRODUCER_EPOCH_AT, SEQUENCE_AT = 51, 53
FRAME_BYTES: Final = 12
"""Base offset and length: what the length does not count."""
MAGIC: Final = 2

CODEC_BITS, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 7, 8, 16, 32
"""Bits of ``attributes``."""

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, time delta, offset delta, key length, value length and headers count, one byte each."""
SPARE_BYTES: Final = 8
"""Kernels load whole words: this many bytes after the last record must be readable."""
TIME_MS_MAX: Final = ((1 << 63) - 1) // 1000
POSITION_MAX: Final = (1 << 63) - 1
ARROW_BYTES_MAX: Final = (1 << 31) - 64
"""Bytes that one Arrow binary column of a batch can hold."""

START, END, BASE, COUNT, LAST, BASE_TIME_MS, MAX_TIME_MS, ATTRIBUTES, PRODUCER, CHUNK = range(10)
TABLE_COLUMNS: Final = 10
"""Columns of a table of batches (int64): ``survey`` fills one row a batch; CHUNK is the row of the run's chunk."""

OFFSET, TIME_US, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT, HEADERS_COUNT = range(8)
ROW_WORDS: Final = 8
"""Facts that ``scan`` writes for each message (int64); sizes are -1 for null."""

WANT_HEADERS, WANT_PAYLOAD, WANT_KEY = 1, 2, 4
"""Bits of what ``scan`` is to count."""

TOTAL_COUNT, HEADER_COUNT, NAME_BYTES, VALUE_BYTES, KEY_BYTES, PAYLOAD_BYTES, ODD_NAMES, WHERE = range(8)
NULL_KEYS, NULL_VALUES, NULL_PAYLOADS = range(8, 11)
TOTALS: Final = 11
"""Totals of ``scan``; ODD_NAMES says that some header key is not plain ASCII or begins with a backslash."""

(
    OFFSETS,
    TIMESTAMPS,
    KEY_VALID,
    KEY_ENDS,
    KEYS,
    LIST_ENDS,
    NAME_ENDS,
    NAMES,
    VALUE_VALID,
    VALUE_ENDS,
    VALUES,
    PAYLOAD_VALID,
    PAYLOAD_ENDS,
    PAYLOADS,
) = range(14)
"""The buffers that ``fill`` writes, as Arrow has them; ``places`` holds the position of each, -1 if it is not
wanted."""

FINE, CUT, BAD_MAGIC, BAD_CRC, BAD_COUNT, BAD_POSITION, BAD_RECORD, BAD_HEADERS, TOO_LARGE = range(9)
REASONS: Final = (
    "",
    "is cut short",
    "is not of format 2, the only one that has headers",
    "does not match its CRC-32C",
    "does not hold as many records as it says",
    "has an offset outside of its batch, or not above the one before",
    "has a length that does not fit its bytes",
    "has a header whose lengths do not add up",
    "is larger than an Arrow column can hold",
)

CARRIER_HEADER_BYTES_MAX: Final = 64 << 10
"""Maximum of name and value of a header whose carrier is undone in place; longer ones take another way."""
