"""Reasons and numbers that the kernels that write records share with their fallbacks."""

from __future__ import annotations

from typing import Final

from lading.dialects.carrier.encoding import NAME

RECORD_HEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5
"""Length, attributes, time delta and offset delta of a record at their largest."""

CARRIER: Final = NAME.encode()
CARRIER_BYTES: Final = len(CARRIER)
CARRIER_HEAD: Final = int.from_bytes(CARRIER[:8], "little")
CARRIER_TAIL: Final = int.from_bytes(CARRIER[-8:], "little")
"""The first and the last eight bytes of the name; they overlap or touch, so that both together identify it."""
ESCAPE: Final = ord("\\")
"""The beginning of a header key that stands for other bytes."""
