"""Where the fields of Iggy classic messages lie, and why stored bytes may be refused (iggy.md A4)."""

from __future__ import annotations

from typing import Final

SENT_ID, SENT_HEADERS_LENGTH, SENT_HEADERS = 0, 16, 20
"""A message as sent: id u128, headers length u32, headers, payload length u32, payload."""

OFFSET, STATE, TIMESTAMP, ID, CHECKSUM, HEADERS_LENGTH, HEADERS = 0, 8, 9, 17, 33, 37, 41
"""A message as stored and polled (0.0.40): the same with offset, state, timestamp and checksum in front."""

LENGTH_BYTES: Final = 4
HEADER_BYTES_MIN: Final = 9
"""A header without key and value: key length u32, kind u8, value length u32."""
SENT_BYTES_MIN: Final = SENT_HEADERS + LENGTH_BYTES
STORED_BYTES_MIN: Final = HEADERS + LENGTH_BYTES
STORED_EXTRA_BYTES: Final = STORED_BYTES_MIN - SENT_BYTES_MIN
"""What a stored message takes more than a sent one: 21."""

POLLED_HEAD_BYTES: Final = 4
"""The body of a poll's answer begins with the number of messages, u32."""

POSITION_MAX: Final = (1 << 63) - 1
ARROW_BYTES_MAX: Final = (1 << 31) - 64
"""What one Arrow binary column of a batch can hold."""

STORED_KIND_MAX: Final = 127
"""A header kind is an int8 in a Batch: what is above it cannot be read."""

WANT_HEADERS, WANT_PAYLOAD = 1, 2
"""Bits of what ``scan`` is to count."""

COUNT, HEADER_COUNT, KEY_BYTES, VALUE_BYTES, PAYLOAD_BYTES, ODD_KEYS, WHERE, TOTALS = range(8)
"""What ``scan`` counts; ODD_KEYS says that some key is not plain ASCII or begins with a backslash."""

OFFSETS, STATES, TIMESTAMPS, IDS, CHECKSUMS, LIST_ENDS, KEY_ENDS, KEYS, KINDS, VALUE_ENDS, VALUES = range(11)
PAYLOAD_ENDS, PAYLOADS, PLACES = range(11, 14)
"""The buffers that ``fill`` writes, as Arrow has them; ``places`` holds where each begins, -1 where nobody asked."""

FINE, CUT, BAD_HEADERS, BAD_KIND, BAD_STATE, BAD_POSITION, TOO_LARGE = range(7)
REASONS: Final = (
    "",
    "is cut short",
    "has a header block whose lengths do not add up",
    "has a header kind above 127",
    "has an unknown state code",
    "has an offset or timestamp past 2^63 - 1",
    "is larger than an Arrow column can hold",
)

FITS, KEY_SIZE, VALUE_SIZE, UNKNOWN_KIND, NO_PAYLOAD = range(5)
"""Why ``write`` refuses a message."""
