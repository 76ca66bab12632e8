"""The numbers of a carrier's bytes (docs/reference/carrier.md)."""

from __future__ import annotations

from typing import Final

from ...model.kinds import Kind

VERSION_BYTE: Final = 1
KEY_FLAG, NULL_PAYLOAD_FLAG, EMPTY_PAYLOAD_FLAG, ZERO_ID_FLAG = 1, 2, 4, 8
ENTRIES_FLAG, TIME_FLAG, ID_FLAG, ORIGIN_FLAG = 16, 32, 64, 128
KNOWN_FLAGS: Final = 255
SHOWN_TAG, CARRIED_TAG, TYPED_TAG, REPLACED_TAG = range(4)
"""Flags of a header's entry: see ``encoding.Entry``."""
HEAD_BYTES: Final = 2
"""Version and flags."""
ENTRY_BYTES: Final = 5
"""Tag and fingerprint; a typed one is followed by its kind."""
CRC_BYTES: Final = 4
TEXT_PREFIX: Final = b"v1:"
"""The beginning of the printable form; base64url of the bytes follows, without padding."""
TEXT_PREFIX_BYTES: Final = len(TEXT_PREFIX)
TIME_BYTES: Final = 8
ID_BYTES: Final = 16
RAW: Final = int(Kind.RAW)
HEADERS_MAX: Final = 1024
"""Messages with more headers are handled one by one: the kernels' table of names has room for this many."""
NAME_SLOT_BYTES: Final = 24
"""A slot of the table of names: how often a name occurred, the position of its bytes, and their number."""
NAME_SLOTS_BYTES: Final = 2 * HEADERS_MAX * NAME_SLOT_BYTES
"""The table of the names of HEADERS_MAX headers, at most half full."""
PLAIN_BYTES_MAX: Final = HEAD_BYTES + 2 * TIME_BYTES + ID_BYTES + 2 + (ENTRY_BYTES + 1) * HEADERS_MAX + CRC_BYTES
"""The largest carrier that kernels write or undo, before it is printable."""
TEXT_BYTES_MAX: Final = TEXT_PREFIX_BYTES + (4 * PLAIN_BYTES_MAX + 2) // 3
