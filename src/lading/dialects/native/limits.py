"""Limits of a native block."""

from __future__ import annotations

from typing import Final

from lading.model.limits import REQUEST_BYTES_MAX

BLOCK_BYTES_MAX: Final = REQUEST_BYTES_MAX
"""A block has at most this many bytes, compressed, and its columns have at most as many when decompressed."""

MESSAGE_BYTES_MAX: Final = REQUEST_BYTES_MAX - (1 << 20)
"""The payload of one message, and its header values in sum; the rest of a request is for keys and the block itself."""

BLOCKS_MAX: Final = 512
"""Blocks of one request at most: each is an append of its own, which takes 25 microseconds of the event loop."""

BLOCK_ROWS_MAX: Final = 1 << 24
"""Messages of one block."""

TIMESTAMP_MAX: Final = (1 << 63) - 1
"""Microseconds since 1970; none is negative."""
