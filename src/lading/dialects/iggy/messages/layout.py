"""Totals, column buffers and refusal reasons of a scan of stored messages, for all Iggy generations."""

from __future__ import annotations

from typing import Final

UNTYPED, TYPED = 0, 1
"""Whether header keys have a kind in front, as they do since 2026; as a number: that many more bytes for each
header."""
STRING_KEY: Final = 2
"""The kind of a key that is text; keys without a kind are."""
HEADER_BYTES_MIN: Final = 9
"""A header without key and value: key length u32, kind u8, value length u32; one more if keys have kinds."""
VALUE_HEAD_BYTES: Final = 5
"""Kind and length of a value."""
SPARE_BYTES: Final = 8
"""Behind a header block, so that whole words may be loaded."""

POSITION_MAX: Final = (1 << 63) - 1
ARROW_BYTES_MAX: Final = (1 << 31) - 64
"""Bytes that one Arrow binary column of a batch can hold."""
STORED_KIND_MAX: Final = 127
"""A header kind is an int8 in a Batch: what is above it cannot be read."""

WANT_HEADERS, WANT_PAYLOAD = 1, 2
"""Bits of what ``scan`` is to count."""

COUNT, HEADER_COUNT, KEY_BYTES, VALUE_BYTES, PAYLOAD_BYTES, ODD_KEYS, WHERE, TOTALS = range(8)
"""Totals of ``scan``; ODD_KEYS says that some key is not text, not plain ASCII, or begins with a backslash."""

FINE, CUT, BAD_HEADERS, BAD_KIND, BAD_STATE, BAD_POSITION, TOO_LARGE = range(7)
REASONS: Final = (
    "",
    "is cut short",
    "has a header block whose lengths do not add up",
    "has a header kind above 127, or a header key of kind 0",
    "has an unknown state code",
    "has an offset or timestamp past 2^63 - 1",
    "is larger than an Arrow column can hold",
)

FITS, KEY_SIZE, VALUE_SIZE, UNKNOWN_KIND, NO_PAYLOAD, TYPED_KEY = range(6)
"""Why ``write`` refuses a message."""
