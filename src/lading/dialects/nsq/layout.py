"""Positions of the fields of stored NSQ messages, and reasons to refuse bytes (docs/reference/nsq.md; big-endian).

A stored message is the frame that a client gets, with a length and a checksum in the place of the frame's own 8 bytes:
delivery is a copy. Its ext block always exists, of one byte if a message has no ext.
"""

from __future__ import annotations

from typing import Final

LENGTH, CRC, TIMESTAMP, ATTEMPTS, ID, TRACE, EXT_VERSION = 0, 4, 8, 16, 18, 26, 34
"""Length and CRC-32C (both of all bytes from TIMESTAMP on), time in ns, attempts (0), internal id, trace id, ext."""
HEAD_BYTES: Final = 8
PLAIN_BODY: Final = 34
"""Position of the body in a frame delivered to a client without extend support."""
RECORD_BYTES_MIN: Final = 35
EXT_LENGTH_BYTES: Final = 2
EXT: Final = EXT_VERSION + 1 + EXT_LENGTH_BYTES
"""Position of the ext in a message that has one."""

NO_EXT, TAG_EXT, JSON_EXT = 0, 2, 4
"""Ext versions: none (no length, no bytes), a bare tag, JSON. Others are length and bytes too."""

OFFSET_BITS: Final = 50
PARTITION_BITS: Final = 10
OFFSET_MAX: Final = (1 << OFFSET_BITS) - 2
PARTITION_MAX: Final = (1 << PARTITION_BITS) - 1
"""An internal id is partition << 50 | offset + 1: what does not fit is refused to NSQ by name."""

TIME_NS_MAX: Final = (1 << 63) - 1
POSITION_MAX: Final = (1 << 63) - 1
ARROW_BYTES_MAX: Final = (1 << 31) - 64
"""Bytes that one Arrow binary column of a batch can hold."""

ROW_OFFSET, ROW_TIME_US, ROW_ID, ROW_BODY, ROW_BODY_BYTES, ROW_EXT, ROW_EXT_BYTES, ROW_HEADERS = range(8)
ROW_WORDS: Final = 8
"""Facts that ``scan`` writes for each message (int64).

ROW_HEADERS: how many headers, or -1 - ext version if Python has to take the ext apart.
"""

NAME_AT, NAME_BYTES, KIND, FORM, VALUE, VALUE_BYTES, VALUE_END = range(7)
HEADER_WORDS: Final = 7
"""Facts that ``scan`` writes for each header (int64). VALUE is a position, or the value itself for a number or bool;
VALUE_BYTES is its size in a Batch, -1 for null; VALUE_END is the end of an UNESCAPED one."""

COPIED, UNESCAPED, NUMBER, ASIDE = range(4)
"""FORM: value bytes as they lie in the region; the same with JSON's escapes undone; the 8 or 1 bytes of VALUE; name and
value lie in the side buffer."""

COUNT, HEADER_COUNT, ODD_ROWS, PAYLOAD_BYTES, WHERE, TOTALS = range(6)
"""Totals of ``scan``."""

OFFSETS, TIMESTAMPS, IDS, LIST_ENDS, NAME_ENDS, NAMES, KINDS, VALUE_VALID, VALUE_ENDS, VALUES = range(10)
PAYLOAD_ENDS, PAYLOADS, PLACES = range(10, 13)
"""The buffers that ``fill`` writes, as Arrow has them; ``places`` holds the position of each, -1 if it is not
wanted."""

FINE, CUT, BAD_LENGTH, BAD_EXT, BAD_COUNT, BAD_OFFSET, TOO_LARGE = range(7)
REASONS: Final = (
    "",
    "is cut short",
    "has a length below that of its own head",
    "has an ext that is longer than the message",
    "is not one of as many as its chunk says",
    "has an offset past 2^63 - 1",
    "is larger than an Arrow column can hold",
)
