"""Positions of the fields of Iggy classic messages, and reasons to refuse stored bytes (iggy.md A4)."""

from __future__ import annotations

from typing import Final

SENT_ID, SENT_HEADERS_LENGTH, SENT_HEADERS = 0, 16, 20
"""A message as sent: id u128, headers length u32, headers, payload length u32, payload."""

OFFSET, STATE, TIMESTAMP, ID, CHECKSUM, HEADERS_LENGTH, HEADERS = 0, 8, 9, 17, 33, 37, 41
"""A message as stored and polled (0.0.40): the same with offset, state, timestamp and checksum in front."""

LENGTH_BYTES: Final = 4
SENT_BYTES_MIN: Final = SENT_HEADERS + LENGTH_BYTES
STORED_BYTES_MIN: Final = HEADERS + LENGTH_BYTES
STORED_EXTRA_BYTES: Final = STORED_BYTES_MIN - SENT_BYTES_MIN
"""Bytes that a stored message has more than a sent one: 21."""

POLLED_HEAD_BYTES: Final = 4
"""The body of a poll's response begins with the number of messages, u32."""

OFFSETS, STATES, TIMESTAMPS, IDS, CHECKSUMS, LIST_ENDS, KEY_ENDS, KEYS, KINDS, VALUE_ENDS, VALUES = range(11)
PAYLOAD_ENDS, PAYLOADS, PLACES = range(11, 14)
"""The buffers that ``fill`` writes, as Arrow has them; ``places`` holds the position of each, -1 if it is not
wanted."""
