"""Which versions of the protocol are spoken (iggy-current.md B3): packed as major, minor and patch of 10 bits each."""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 0 << 20 | 11 << 10 | 0
"""0.11.0, as responses to clients say."""
PROTOCOL_VERSION_MIN: Final = PROTOCOL_VERSION
"""The earliest that is taken."""
SERVER_VERSION: Final = "0.9.0"
SERVER_VERSION_NUMBER: Final = 9_000
"""The version of the server in responses to clients: the real one's that speaks this protocol, and it as a number."""


def is_spoken(version: int) -> bool:
    """Check whether a client of this version is understood: its minor version has to be ours."""
    return version >= PROTOCOL_VERSION_MIN and version >> 10 <= PROTOCOL_VERSION >> 10
