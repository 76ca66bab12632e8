"""Limits of the current Iggy, with its server's error codes for values beyond them (iggy-current.md B6).

All hold at arrival and are checked before anything is stored. Header kinds above 15 are taken as the real server
takes them; 0 and those above 127, which no Batch can hold, are refused.
"""

from __future__ import annotations

from typing import Final

KEY_BYTES_MAX: Final = 255
VALUE_BYTES_MAX: Final = 255
"""Header keys and values have 1 to 255 bytes."""
KIND_MAX: Final = 127
DECLARED_KIND_MAX: Final = 15
"""The last kind that clients know."""
HEADERS_BYTES_MAX: Final = 100_000
"""The header block of one message, lengths and kinds included."""
PAYLOAD_BYTES_MAX: Final = 64_000_000
FRAME_BYTES_MAX: Final = 64 << 20
"""A request with its 256-byte header."""
PARTITIONS_MAX: Final = 1000
"""Partitions that one request creates or deletes."""
TARGETS_MAX: Final = 1000
"""Partitions that one fetch names; more are refused before any is read."""
OPTIONS_MAX: Final = 1024
OPTIONS_BYTES_MAX: Final = 100_000
NAME_BYTES_MAX: Final = 255

OK: Final = 0
NO_ROOM: Final = 1
"""Error: the target array is too small; a fault of the caller, never of the sender."""
INVALID_FORMAT: Final = 4
NO_MESSAGES: Final = 4009
HEADERS_TOO_LARGE: Final = 4017
INVALID_HEADER_KEY: Final = 4018
INVALID_HEADER_VALUE: Final = 4019
PAYLOAD_TOO_LARGE: Final = 4022
EMPTY_PAYLOAD: Final = 4024
INVALID_MESSAGE_CHECKSUM: Final = 4027
INVALID_BATCH_CHECKSUM: Final = 4039
INVALID_HEADER_KIND: Final = 4040
INVALID_RESERVED_FIELD: Final = 4101
