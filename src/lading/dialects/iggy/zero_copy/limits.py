"""Limits of the servers of crates 0.7 to 0.10, with their error codes for values beyond them.

Headers are as in all generations. Their servers look into no header block. Here a block has to add up, so that other
readers can have its headers; a key that occurs twice is kept.
"""

from __future__ import annotations

from typing import Final

PAYLOAD_BYTES_MAX: Final = 64_000_000
"""Payload bytes of one message; 10,000,000 in 0.7."""
HEADERS_BYTES_MAX: Final = 100_000
"""The header block of one message."""
