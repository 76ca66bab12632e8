"""Versions of the current protocol as data (iggy-current.md B1, V): what differs between them is a field here.

Nothing else in the code asks for a version by its number: who answers takes the row of the connection and does what it
says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


def pack_version(major: int, minor: int, patch: int) -> int:
    """Return a version as the protocol packs it: 10 bits for each number."""
    return major << 20 | minor << 10 | patch


@dataclass(frozen=True, slots=True, eq=False)
class ProtocolVersion:
    """What the clients of one version of the protocol send and expect."""

    number: int
    """As responses to clients say it."""
    server: str
    """The version of the server in responses to clients: that of the real one that speaks it."""
    server_number: int
    """The same as a number."""
    hashes_bodies: bool = True
    """The checksum in the header of a request is the XXH3-64 of its body; later the client draws a number for it."""
    binds_sessions: bool = False
    """A login has a secret of 32 bytes behind the versions, for more connections of its session."""
    derives_options: bool = False
    """Streams and users, too, have options that the server chose, behind those that were set; a topic's bounds stand in
    its options alone; and options say which of them can be changed."""
    has_contexts: bool = False
    """Polls and partitions say the history of their partition in 24 bytes, and nodes of a cluster have numbers."""
    lists_members: bool = False
    """Partitions say which nodes have them."""


V_0_11: Final = ProtocolVersion(pack_version(0, 11, 0), "0.9.0", 9_000)
"""The crate 0.11.0 and apache-iggy 0.9."""
V_0_12: Final = replace(
    V_0_11,
    number=pack_version(0, 12, 0),
    server="0.10.0",
    server_number=10_000,
    hashes_bodies=False,
    binds_sessions=True,
    derives_options=True,
    has_contexts=True,
)
V_0_12_2: Final = replace(V_0_12, number=pack_version(0, 12, 2), lists_members=True)
"""The crate's pre-releases 0.11.1-edge.9 and those near it."""

PROTOCOL_VERSION_MIN: Final = V_0_11.number
"""The earliest that is taken."""
PROTOCOL_VERSION: Final = V_0_12_2.number
"""The latest."""
_BY_NUMBER: Final = {one.number: one for one in (V_0_12, replace(V_0_12, number=pack_version(0, 12, 1)), V_0_12_2)}


def find_version(number: int) -> ProtocolVersion | None:
    """Return the version of the protocol that a client says, or None if it is not understood.

    A patch of 0.11 is taken for 0.11.0, as that server takes it; since 0.12 each patch may have bytes of its own.
    """
    if number >> 10 == V_0_11.number >> 10:
        return V_0_11
    return _BY_NUMBER.get(number)
