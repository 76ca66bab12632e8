"""Codes of the dialects, as they stand in chunk envelopes; a code is never given to another dialect."""

from __future__ import annotations

from typing import Final

NATIVE: Final = 1
IGGY_CLASSIC: Final = 2
IGGY_CURRENT: Final = 3
KAFKA: Final = 4
NSQ: Final = 5
IGGY_ZERO_COPY: Final = 6
