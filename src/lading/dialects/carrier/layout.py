"""The numbers of a carrier's bytes (docs/reference/carrier.md)."""

from __future__ import annotations

from typing import Final

VERSION_BYTE: Final = 1
ENTRIES_FLAG, TIME_FLAG, ID_FLAG = 16, 32, 64
SHOWN_TAG, TYPED_TAG = 0, 2
HEAD_BYTES: Final = 2
"""Version and flags."""
ENTRY_BYTES: Final = 5
"""Tag and fingerprint; a typed one has its kind behind them."""
CRC_BYTES: Final = 4
TIME_BYTES: Final = 8
ID_BYTES: Final = 16
RAW: Final = 1
HEADERS_MAX: Final = 64
"""Messages with more headers are done one by one."""
