"""Expiry times, as releases write them."""

from __future__ import annotations

from typing import Final

from .primitives import U32, U64, Codec, map_values

NEVER: Final = (1 << 64) - 1
_MICROSECONDS: Final = 1_000_000

EXPIRY_S: Final[Codec[int | None]] = map_values(
    U32,
    lambda seconds: seconds * _MICROSECONDS or None,
    lambda us: 0 if us is None else min(max(us // _MICROSECONDS, 1), 0xFFFF_FFFF),
)
"""Seconds until messages expire; 0 never."""
EXPIRY_US: Final[Codec[int | None]] = map_values(
    U64, lambda us: None if us in (0, NEVER) else us, lambda us: NEVER if us is None else us
)
"""Microseconds until messages expire; 0 is the server's setting, the largest number never."""
