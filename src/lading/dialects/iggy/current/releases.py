"""The newest releases of Iggy, and the versions of the protocol by which a login names them (iggy-current.md B1, V).

Nothing else in the code asks for a version by its number: endpoints take the row of the connection and do what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ....model.errors import Reason
from ..classic import commands as c
from ..classic import later_commands as later
from ..classic.errors import NEWEST_CODES, RESOURCE_NOT_FOUND
from ..classic.partitioning import partition_by_xxhash32_from_0
from ..classic.releases import FLAGGED, MessageForm, Release, ServerRules
from .commands import SyncGroup
from .layouts import TABLE_0_11, TABLE_0_12, TABLE_0_12_2
from .limits import PARTITIONS_MAX

CURRENT_RULES: Final = ServerRules(str, PARTITIONS_MAX, deletes_all_partitions=False, has_strict_groups=True)
"""Names are stored as they are sent."""

_NO_PLACE: Final = frozenset(
    {
        Reason.STREAM_ID_NOT_FOUND,
        Reason.STREAM_NAME_NOT_FOUND,
        Reason.TOPIC_ID_NOT_FOUND,
        Reason.TOPIC_NAME_NOT_FOUND,
    }
)
_NO_GROUP: Final = frozenset({Reason.GROUP_NOT_FOUND})
_MISSING: Final[Mapping[type[Any], frozenset[Reason]]] = {
    later.GetUser: frozenset({Reason.USER_NOT_FOUND}),
    c.GetStream: _NO_PLACE,
    c.GetTopic: _NO_PLACE,
    c.GetTopics: _NO_PLACE,
    c.GetOffset: _NO_PLACE | _NO_GROUP,
    # a missing stream or topic is an error by its own name
    c.GetGroup: _NO_GROUP,
    SyncGroup: _NO_PLACE | _NO_GROUP | {Reason.GROUP_MEMBER_NOT_FOUND},
}

RELEASE_0_11: Final = Release(
    "0.11",
    TABLE_0_11,
    MessageForm.BATCHES,
    version=(0, 11),
    partition_of_key=partition_by_xxhash32_from_0,
    first_partition=0,
    poll_head=FLAGGED,
    missing=_MISSING,
    codes=NEWEST_CODES,
    codes_by_request={later.DeleteOffset: {**NEWEST_CODES, **dict.fromkeys(_NO_PLACE, RESOURCE_NOT_FOUND)}},
    rules=CURRENT_RULES,
    first_id=0,
)
"""The crate 0.11.0 and apache-iggy 0.9."""
RELEASE_0_12: Final = replace(RELEASE_0_11, name="0.12", version=(0, 12), commands=TABLE_0_12, tells_history=True)
RELEASE_0_12_2: Final = replace(RELEASE_0_12, name="0.12.2", version=(0, 12, 2), commands=TABLE_0_12_2)
"""The crate's pre-releases 0.11.1-edge.9 and those near it."""


def pack_version(major: int, minor: int, patch: int) -> int:
    """Return a version as the protocol packs it: 10 bits for each number."""
    return major << 20 | minor << 10 | patch


@dataclass(frozen=True, slots=True, eq=False)
class ProtocolVersion:
    """The framing of one version of the protocol; all else is in its ``release``."""

    number: int
    """The number in responses to clients."""
    release: Release
    server: str
    """The version of the server in responses to clients: that of the real one that speaks it."""
    server_number: int
    """The version of the server as a number."""
    hashes_bodies: bool = True
    """The checksum in the header of a request is the XXH3-64 of its body; later the client draws a number for it."""
    binds_sessions: bool = False
    """A login has a secret of 32 bytes after the versions, for more connections of its session."""


V_0_11: Final = ProtocolVersion(pack_version(0, 11, 0), RELEASE_0_11, "0.9.0", 9_000)
V_0_12: Final = ProtocolVersion(
    pack_version(0, 12, 0), RELEASE_0_12, "0.10.0", 10_000, hashes_bodies=False, binds_sessions=True
)
V_0_12_2: Final = replace(V_0_12, number=pack_version(0, 12, 2), release=RELEASE_0_12_2)

PROTOCOL_VERSION_MIN: Final = V_0_11.number
"""The earliest that is taken."""
PROTOCOL_VERSION: Final = V_0_12_2.number
"""The latest."""
_BY_NUMBER: Final = {
    version.number: version for version in (V_0_12, replace(V_0_12, number=pack_version(0, 12, 1)), V_0_12_2)
}


def find_version(number: int) -> ProtocolVersion | None:
    """Return the version of the protocol that a client says, or None if it is not understood.

    A patch of 0.11 is taken for 0.11.0, as that server takes it; since 0.12 each patch may have bytes of its own.
    """
    if number >> 10 == V_0_11.number >> 10:
        return V_0_11
    return _BY_NUMBER.get(number)
