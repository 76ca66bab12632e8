"""The releases of Iggy as data: what their clients send and expect.

The facts, and the source of each measurement, are in docs/reference/protocols/iggy.md#releases. Nothing else in the
code asks for a release by its name: endpoints take one row for a connection and follow it. ``RELEASES`` are those that
speak the classic framing; the newest rows are in ``current.releases``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ....model.errors import LadingError, Reason
from . import commands as c
from . import later_commands as later
from . import later_layouts
from .command_table import CommandTable
from .errors import CODE_OF, LATER_CODES, USER_CODES, code_of
from .partitioning import partition_by_murmur3, partition_by_xxhash32, partition_by_xxhash32_from_0
from .validation import PARTITIONS_MAX, normalise_name


class MessageForm(Enum):
    """The form of messages in sends and in polls."""

    HEADERS_ONLY = "headers only"
    """Sent as in 0.0.40; polled without state and checksum."""
    CLASSIC = "classic"
    """The stored form of ``layout.py``."""
    ZERO_COPY_CRC_32 = "zero copy, 56 bytes, CRC-32"
    """A fixed header of 56 bytes, payload, then headers; sends have an index in front."""
    ZERO_COPY_56 = "zero copy, 56 bytes"
    """The same, hashed by XXH3-64."""
    ZERO_COPY_64 = "zero copy, 64 bytes"
    """Zero copy with eight more reserved bytes, and kinds of header keys."""
    BATCHES = "batches"
    """A head of 256 bytes and all messages of a send, in frames of 48 bytes and more."""


class PollHead(NamedTuple):
    """End of the bytes of a poll that name consumer, topic and partition."""

    identifiers_at: int
    identifiers_count: int
    partition_bytes: int


NUMBERED: Final = PollHead(5, 2, 4)
"""The consumer by number."""
NAMED: Final = PollHead(1, 3, 4)
"""The consumer by an identifier."""
FLAGGED: Final = PollHead(1, 3, 5)
"""The same, and whether a partition is named."""


@dataclass(frozen=True, slots=True, eq=False)
class ServerRules:
    """How the servers of a generation carry out a command; its layout says nothing about that."""

    normalise_name: Callable[[str], str]
    """Returns the name of a stream, topic or group as it is stored."""
    partitions_max: int
    """Partitions that one request creates or deletes."""
    deletes_all_partitions: bool
    """Deleting more partitions than there are deletes all; otherwise it is refused."""
    has_strict_groups: bool
    """Positions of a group need the group and are of the partition that the request names, and only a member leaves.

    Otherwise nobody looks whether the group exists, and the partition is the one that the member polled last.
    """


CLASSIC_RULES: Final = ServerRules(normalise_name, PARTITIONS_MAX, deletes_all_partitions=True, has_strict_groups=False)

_PLACES: Final = frozenset(
    {
        Reason.STREAM_ID_NOT_FOUND,
        Reason.STREAM_NAME_NOT_FOUND,
        Reason.TOPIC_ID_NOT_FOUND,
        Reason.TOPIC_NAME_NOT_FOUND,
        Reason.GROUP_NOT_FOUND,
    }
)
_MISSING: Final[Mapping[type[Any], frozenset[Reason]]] = dict.fromkeys(
    (c.GetClient, later.GetUser, c.GetOffset, c.GetStream, c.GetTopic, c.GetGroup),
    _PLACES | {Reason.CLIENT_NOT_FOUND, Reason.USER_NOT_FOUND},
)


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Protocol of the clients of some versions of the crate ``iggy``.

    A connection without a login is ``UNTOLD``; a login says which release it is (``guess_release``), as far as it
    says a version, and a listener's setting says it for good.
    """

    name: str
    """The oldest version of the crate, as settings and docs write it."""
    commands: CommandTable
    form: MessageForm = MessageForm.CLASSIC
    version: tuple[int, ...] = ()
    """The version that logins of this release send; empty if its clients send none."""
    partition_of_key: Callable[[bytes, int], int] = partition_by_xxhash32
    """Returns the partition, counted from 1, of a key; the number is how many partitions the topic has."""
    first_partition: int = 1
    """Number of the first partition for its clients."""
    poll_head: PollHead = NAMED
    tells_partition: bool = True
    """Polled messages have partition and current offset in front of their number, 16 bytes in sum instead of 4."""
    tells_history: bool = False
    """Polled messages have the history of their partition in front, after partition and current offset."""
    missing: Mapping[type[Any], frozenset[Reason]] = field(default_factory=dict)
    """Commands whose response is empty, instead of an error, if what they name does not exist for these reasons."""
    tells_errors: bool = False
    """A status of an error is followed by words, without which its clients fall over."""
    is_silent: bool = False
    """Whether clients of this release log in without their version."""
    codes: Mapping[Reason, int] = field(default_factory=lambda: MappingProxyType({**CODE_OF, **USER_CODES}))
    """The status by reason."""
    codes_by_request: Mapping[type[Any], Mapping[Reason, int]] = field(default_factory=dict)
    """Error codes of commands that have codes of their own."""
    rules: ServerRules = CLASSIC_RULES
    first_id: int = 1
    """Number of the first stream, topic, group or user for its clients."""

    @property
    def is_missing_empty(self) -> bool:
        """Whether the response to getting an object that does not exist is an empty body instead of an error."""
        return bool(self.missing)

    def is_missing(self, request: type[Any] | None, error: LadingError) -> bool:
        """Return whether the response to a command of this class that ``error`` ended is empty instead of an error."""
        reasons = None if request is None else self.missing.get(request)
        return reasons is not None and getattr(error, "reason", None) in reasons

    def code_of(self, error: LadingError, request: type[Any] | None = None) -> int:
        """Return the status of the response to a command that ``error`` ended; ``request`` is its class, if known."""
        return code_of(error, self.codes if request is None else self.codes_by_request.get(request, self.codes))

    @property
    def has_names(self) -> bool:
        """Whether its clients log in, and call consumers and groups by names: all since 0.1 do."""
        return self.poll_head is not NUMBERED


_0_0_40: Final = Release(
    "0.0.40",
    later_layouts.TABLE_0_0_40,
    partition_of_key=partition_by_murmur3,
    poll_head=NUMBERED,
    tells_partition=False,
)
# what a release has changed against the one it is made from
_0_6_60: Final = Release("0.6.60", later_layouts.TABLE_0_6, version=(0, 6, 60), missing=_MISSING, codes=LATER_CODES)
_0_8: Final = replace(
    _0_6_60,
    name="0.8",
    version=(0, 8),
    commands=later_layouts.TABLE_0_8,
    form=MessageForm.ZERO_COPY_56,
    partition_of_key=partition_by_xxhash32_from_0,
    first_partition=0,
    poll_head=FLAGGED,
)
# the one 0.8.3 there is, 0.8.3-edge.1 (apache-iggy 0.6.4.dev1), has it already
_0_9: Final = replace(_0_8, name="0.9", version=(0, 8, 3), form=MessageForm.ZERO_COPY_64)

RELEASES: Final = (
    replace(_0_0_40, name="0.0.30", form=MessageForm.HEADERS_ONLY),
    _0_0_40,
    Release("0.1", later_layouts.TABLE_0_1, is_silent=True, codes=LATER_CODES),
    Release("0.2", later_layouts.TABLE_0_2, is_silent=True, codes=LATER_CODES),
    Release("0.4", later_layouts.TABLE_0_4, tells_errors=True, is_silent=True, codes=LATER_CODES),
    Release("0.5", later_layouts.TABLE_0_6, version=(0, 5), tells_errors=True, codes=LATER_CODES),
    replace(_0_6_60, name="0.6", version=(0, 6, 10), tells_errors=True),
    _0_6_60,
    replace(_0_6_60, name="0.7", version=(0, 7), form=MessageForm.ZERO_COPY_CRC_32),
    _0_8,
    _0_9,
    replace(_0_9, name="0.10", version=(0, 10), commands=later_layouts.TABLE_0_10),
)
"""Every release, oldest first."""

BY_NAME: Final[Mapping[str, Release]] = {release.name: release for release in RELEASES}

UNTOLD: Final = BY_NAME["0.0.40"]
"""Release of a connection before it says more."""
SILENT: Final = replace(BY_NAME["0.4"], tells_errors=False)
"""Release of a login without a version, until a request says otherwise.

It gets no words with errors: a client of 0.1 or 0.2 would take them for its next response. One of 0.4 misses them, and
raises another error than it means to.
"""

RELEASE_OF_SERVER: Final[Mapping[tuple[int, int], str]] = {
    (0, 8): "0.10",
    (0, 7): "0.9",
    (0, 6): "0.8",
    (0, 5): "0.7",
    (0, 4): "0.6",
}
"""The crate that was published with a version of the server. The server has numbers of its own, and clients in other
languages have its numbers."""

_TOLD: Final = tuple(release for release in RELEASES if release.version)
_SILENT: Final = tuple(release for release in RELEASES if release.is_silent)
_NEWEST_FIRST: Final = tuple(reversed(RELEASES))
_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
_OTHER_LANGUAGE: Final = re.compile(r"iggy-[a-z]+-sdk/(\d{1,9})\.(\d{1,9})")
_STUCK_VERSIONS: Final[Mapping[str, str]] = {"java-sdk": "0.8"}
"""Clients, by the context of a login, that kept sending one version of the crate, and the release assumed first."""


class Guess(NamedTuple):
    """Release of a client, guessed from its login."""

    release: Release
    """The release that is assumed."""
    others: tuple[Release, ...] = ()
    """All releases that it may be, the likeliest first, if the login leaves that open; later requests narrow them
    (``narrow``)."""


def guess_release(version: str | None, context: str = "", *, by_token: bool = False) -> Guess:
    """Return what a login says of its client: ``version`` None for a login without one.

    The crate, and the packages made from it, say its version. Clients in other languages say their own, or nothing: all
    that is known of a client that leaves the field empty is that it has one, as crates have since 0.5. A login
    ``by_token`` has no such field at all.
    """
    if context in _STUCK_VERSIONS:
        return _guess_among(_STUCK_VERSIONS[context], _TOLD)
    if found := _OTHER_LANGUAGE.match(version or ""):
        number = int(found[1]), int(found[2])
        known = [server for server in RELEASE_OF_SERVER if server <= number]
        return Guess(BY_NAME[RELEASE_OF_SERVER[max(known, default=min(RELEASE_OF_SERVER))]])
    if by_token:
        return _guess_among(_NEWEST_FIRST[0].name, tuple(one for one in RELEASES if one.has_names))
    if version is None:
        return Guess(SILENT, _SILENT)
    if _VERSION.match(version) is None:
        return _guess_among(_NEWEST_FIRST[0].name, _TOLD)
    return Guess(release_of_version(version))


def _guess_among(likeliest: str, releases: tuple[Release, ...]) -> Guess:
    first = BY_NAME[likeliest]
    return Guess(first, (first, *(one for one in _NEWEST_FIRST if one in releases and one is not first)))


def release_of_version(version: str) -> Release:
    """Return the newest release that is not newer than this version of the crate."""
    found = _VERSION.match(version)
    told = () if found is None else tuple(int(part or 0) for part in found.groups())
    return next((release for release in reversed(_TOLD) if release.version <= told), _TOLD[0])
