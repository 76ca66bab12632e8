"""Positions of the fields of zero-copy messages (docs/reference/protocols/iggy.md#releases)."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..messages.layout import TYPED, UNTYPED

CHECKSUM, ID, OFFSET, TIMESTAMP, ORIGIN_TIMESTAMP = 0, 8, 24, 32, 40
HEADERS_LENGTH, PAYLOAD_LENGTH, RESERVED = 48, 52, 56
"""A message: checksum u64 of all after it, id u128, offset, time of receipt and of sending u64, lengths u32, reserved
u64 since 0.9; then the payload, then the headers."""
SHORT_HEAD_BYTES: Final = 56
HEAD_BYTES: Final = 64
STORED_BYTES_MIN: Final = HEAD_BYTES
UNHASHED_BYTES: Final = ID
"""The checksum does not cover itself."""

INDEX_OFFSET, INDEX_END, INDEX_TIMESTAMP, INDEX_BYTES = 0, 4, 8, 16
"""Sent messages follow an index. For each message it has: offset u32, which is 0, end of the message u32, and time u64,
0 too."""

NO_CHECKSUM, CRC_32, XXH3_64 = range(3)
"""Checksums of a message: none by senders, CRC-32 in 0.7, XXH3-64 since."""

OFFSETS, TIMESTAMPS, IDS, LIST_ENDS, KEY_ENDS, KEYS, KINDS, VALUE_ENDS, VALUES, PAYLOAD_ENDS, PAYLOADS = range(11)
"""The buffers that ``fill`` writes, as Arrow has them; ``places`` holds the position of each, -1 if it is not
wanted."""


class WireForm(NamedTuple):
    """Form of messages in the sends and polls of some releases; the last one is also that of stored messages."""

    head_bytes: int
    typed: int
    """Whether header keys have kinds."""
    checksum: int


FORM_0_7: Final = WireForm(SHORT_HEAD_BYTES, UNTYPED, CRC_32)
FORM_0_8: Final = WireForm(SHORT_HEAD_BYTES, UNTYPED, XXH3_64)
FORM_0_9: Final = WireForm(HEAD_BYTES, TYPED, XXH3_64)
