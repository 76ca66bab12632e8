"""The consumer that keeps the positions of a group for members of Lading's own client.

As a group, a server stores a position for the partition that the member polled last, whatever partition is asked for.
So Lading's members store theirs as a single consumer made for the group, and the higher of both positions counts.
"""

from __future__ import annotations

import zlib
from typing import Final

_ID_MAX: Final = 0xFFFF_FFFF


def group_number(group: str) -> int:
    """Return the number under which the group ``group`` is created: itself if it is a number, else its CRC-32."""
    if group.isascii() and group.isdigit() and 1 <= int(group) <= _ID_MAX:
        return int(group)
    return zlib.crc32(group.encode()) or 1


def keeper_number(group: str) -> int:
    """Return the number of the consumer: the CRC-32 of "lading group " and the number of the group."""
    return zlib.crc32(b"lading group %d" % group_number(group)) or 1
