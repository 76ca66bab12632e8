"""JSON over HTTP in each release of Iggy, as data (docs/reference/protocols/iggy.md#http-releases).

Each release is defined by its changes from the one before. Ids and partitions are counted from 1 inside; the forms of a
release that counts from 0 convert them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ..classic import commands as c
from ..classic import later_commands as later
from ..classic import responses as r
from ..classic.primitives import Identifier
from ..classic.records import validate
from ..classic.releases import BY_NAME, Release, guess_release
from ..classic.snapshots import SnapshotCompression, SnapshotPart
from ..current.codecs import Deferral
from ..current.releases import RELEASE_0_11
from .byte_sizes import SIZE
from .commands import (
    ANSWERS,
    BODIES,
    LATER_PARTS,
    QUERIES,
    READING,
    Answers,
    Part,
    Parts,
    identifier,
    read_query,
)
from .documents import IDENTIFIER, TEXT, U32, U64, Form, convert_form, list_of, optional, word
from .options import OPTIONS, U64_OR_TEXT
from .release_answers import (
    CONTEXTS,
    DISK_0_10,
    KEPT_0_1,
    KEPT_0_4,
    KEPT_0_5,
    KEPT_0_11,
    MICROSECONDS,
    NO_OPTIONS,
    SIZE_0_1,
    SIZE_0_4,
    UNLIMITED,
    VERSION_0_6,
    connection_answers,
    entity_answers,
    stats_answers,
    user_answers,
)
from .users import user_bodies


class MessagesForm(Enum):
    """The form of messages in the documents of sends and polls."""

    LISTED = "a list"
    """A poll is the list of its messages; headers are an object by key."""
    PLACED = "a list with its partition"
    """The list is next to partition and current offset."""
    HEADED = "messages with a header"
    """Each message has a header with the server's facts; its own headers as before."""
    TYPED = "messages with typed keys"
    """Headers are a list of keys and values, both with kinds."""
    BATCHED = "messages of batches"
    """As TYPED, but responses to sends give the place of their messages."""


@dataclass(frozen=True, slots=True, eq=False)
class JsonRelease:
    """The documents that the HTTP clients of a release send and expect."""

    name: str
    """The oldest version of the crate, as settings and docs write it."""
    release: Release
    """The same release over a connection."""
    bodies: Parts
    queries: Parts
    answers: Answers
    messages: MessagesForm = MessagesForm.LISTED
    has_users: bool = False
    """Whether clients log in, and send a token with each request."""
    has_refresh_tokens: bool = False
    """Whether a login returns a second token, with which only new tokens are requested."""
    tells_created: bool = False
    """Whether the response to a creation describes the new object, with status 200."""
    is_current: bool = False
    """Whether it is the current generation: responses to sends give the place of their messages, polls may wait, and
    there is a cluster.
    """
    check: Callable[[object], None] = validate
    """Raises Refusal for a command that breaks a rule; called before anything is looked up."""

    @property
    def first_id(self) -> int:
        """The number of the first stream, topic, group or user for its clients."""
        return self.release.first_id

    def identify(self, path_part: str) -> Identifier:
        """Return a stream, topic, group or user from its part of a path."""
        named = identifier(path_part)
        return named + 1 - self.first_id if isinstance(named, int) else named


_OPTIONAL_ID: Final = optional(convert_form(U32, lambda value: value or None))
_NAME: Final = Part("name", ("name",), TEXT)
_EXPIRY_S: Final = optional(convert_form(U32, lambda seconds: seconds * MICROSECONDS or None))
_EXPIRY_US: Final = optional(convert_form(U64, lambda us: None if us in (0, UNLIMITED) else us))
_SIZE: Final = optional(convert_form(SIZE, lambda size: None if size in (0, UNLIMITED) else size))
_CONSUMER: Final = Part("consumer", ("consumer_id", "id"), IDENTIFIER, 1)


def _partition_part(first: int) -> Part:
    """Return the Part for a partition counted from ``first``.

    A missing partition means the first one, as does 0 if partitions are counted from 1.
    """
    form: Form = optional(convert_form(U32, lambda number: number + 1 - first or 1), 1)
    return Part("partition_id", ("partition_id",), form, 1)


def _position_parts(first: int) -> tuple[Parts, Parts]:
    """Return the bodies and the queries for polls and stored offsets, with partitions counted from ``first``."""
    place = (_CONSUMER, _partition_part(first))
    return (
        {c.StoreOffset: (*place, Part("offset", ("offset",), U64))},
        {
            c.GetOffset: place,
            c.PollMessages: (*place, *READING),
            later.DeleteOffset: place[1:],
            later.DeleteSegments: (Part("segments_count", ("segments_count",), U32),),
        },
    )


def _update_parts(expiry: Form) -> Parts:
    """Return the bodies of changes of streams and topics."""
    kept = (
        Part("expiry_us", ("message_expiry",), expiry, None),
        Part("size_bytes_max", ("max_topic_size",), _SIZE, None),
    )
    return {later.UpdateStream: (_NAME,), later.UpdateTopic: (_NAME, *kept)}


def _new_topic(expiry: Form) -> tuple[Part, ...]:
    return (
        Part("topic_id", ("topic_id",), _OPTIONAL_ID, None),
        Part("partitions_count", ("partitions_count",), U32),
        _NAME,
        Part("expiry_us", ("message_expiry",), expiry, None),
        Part("size_bytes_max", ("max_topic_size",), _SIZE, None),
    )


def _to_camel_case(one: Enum) -> str:
    """Return a member as the crate's documents write it: ``FILESYSTEM_OVERVIEW`` as ``FilesystemOverview``."""
    return one.name.title().replace("_", "")


_BODIES_FROM_1, _QUERIES_FROM_1 = _position_parts(1)
_BODIES_FROM_0, _QUERIES_FROM_0 = _position_parts(0)
_BODIES_0_1: Final[Parts] = {
    **BODIES,
    **_BODIES_FROM_1,
    **user_bodies(_EXPIRY_S),
    c.CreateStream: (Part("stream_id", ("stream_id",), _OPTIONAL_ID, None), _NAME),
    c.CreateTopic: _new_topic(_EXPIRY_S),
    **_update_parts(_EXPIRY_S),
    c.CreateGroup: (Part("group_id", ("group_id", "consumer_group_id"), _OPTIONAL_ID, None), _NAME),
}
_BODIES_0_5: Final[Parts] = {
    **_BODIES_0_1,
    **user_bodies(_EXPIRY_US),
    **_update_parts(_EXPIRY_US),
    c.CreateTopic: _new_topic(_EXPIRY_US),
}
_BODIES_0_6: Final[Parts] = {
    **_BODIES_0_5,
    later.GetSnapshot: (
        Part("compression", ("compression",), word({_to_camel_case(one): one for one in SnapshotCompression})),
        Part("parts", ("snapshot_types",), list_of(word({_to_camel_case(one): one for one in SnapshotPart}))),
    ),
}


def _unsent_part(field: str) -> Part:
    """Return the Part for a field that clients do not send, and that is None."""
    return Part(field, (), U32, None)


_OPTIONS: Final = Part("options", ("options",), OPTIONS, {})
# since protocol 0.12 omitted members stay unchanged, even a name, and members to reset are named
_NEW_NAME: Final = Part("name", ("name",), optional(TEXT), None)
_TOPIC_OPTIONS: Final = (
    Part("compression_algorithm", ("compression_algorithm",), optional(TEXT), None),
    Part("message_expiry", ("message_expiry",), optional(U64_OR_TEXT), None),
    Part("max_topic_size", ("max_topic_size",), optional(SIZE), None),
    _OPTIONS,
)
_BODIES_0_11: Final[Parts] = {
    **_BODIES_0_6,
    c.CreateStream: (_unsent_part("stream_id"), _NAME, _OPTIONS),
    later.UpdateStream: (_NEW_NAME, _OPTIONS),
    c.CreateTopic: (
        _unsent_part("topic_id"),
        Part("partitions_count", ("partitions_count",), U32),
        _NAME,
        *_TOPIC_OPTIONS,
    ),
    later.UpdateTopic: (
        _NEW_NAME,
        *_TOPIC_OPTIONS,
        Part("reset", ("reset",), optional(list_of(TEXT)), None),
    ),
    c.StoreOffset: (
        Part("consumer", ("consumer_id",), IDENTIFIER, 1),
        _partition_part(0),
        Part("offset", ("offset",), U64),
    ),
    c.CreateGroup: (_unsent_part("group_id"), _NAME),
}


_0_0_40: Final = JsonRelease("0.0.40", BY_NAME["0.0.40"], BODIES, QUERIES, ANSWERS)
_0_1: Final = JsonRelease(
    "0.1",
    BY_NAME["0.1"],
    bodies=_BODIES_0_1,
    queries={**QUERIES, **_QUERIES_FROM_1},
    answers={
        **ANSWERS,
        **entity_answers(SIZE_0_1, KEPT_0_1),
        **connection_answers("consumer_group_id"),
        **user_answers("expiry"),
    },
    messages=MessagesForm.PLACED,
    has_users=True,
    has_refresh_tokens=True,
)
_EITHER_SIZE: Final = entity_answers([*SIZE_0_1, *SIZE_0_4], KEPT_0_4)
_0_2: Final = replace(
    _0_1,
    name="0.2",
    release=BY_NAME["0.2"],
    # topics have size, streams and partitions still size_bytes; clients ignore members that they do not know
    answers={**_0_1.answers, **_EITHER_SIZE},
)
_0_4: Final = replace(
    _0_1,
    name="0.4",
    release=BY_NAME["0.4"],
    answers={
        **_0_1.answers,
        **entity_answers(SIZE_0_4, KEPT_0_4),
        **connection_answers("group_id"),
        **stats_answers(1),
    },
)
_0_5: Final = replace(
    _0_4,
    name="0.5",
    release=BY_NAME["0.5"],
    bodies=_BODIES_0_5,
    answers={
        **_0_4.answers,
        **entity_answers(SIZE_0_4, KEPT_0_5),
        **stats_answers(MICROSECONDS),
        **user_answers("expiry_at"),
    },
    has_refresh_tokens=False,
    tells_created=True,
)
_0_6: Final = replace(
    _0_5,
    name="0.6",
    release=BY_NAME["0.6"],
    bodies=_BODIES_0_6,
    answers={**_0_5.answers, **stats_answers(MICROSECONDS, VERSION_0_6)},
)
_0_7: Final = replace(_0_6, name="0.7", release=BY_NAME["0.7"], messages=MessagesForm.HEADED)
_0_8: Final = replace(
    _0_7,
    name="0.8",
    release=BY_NAME["0.8"],
    bodies={**_BODIES_0_6, **_BODIES_FROM_0},
    queries={**QUERIES, **_QUERIES_FROM_0},
    answers={**_0_7.answers, **entity_answers(SIZE_0_4, KEPT_0_5, part_shift=1)},
)
_0_9: Final = replace(_0_8, name="0.9", release=BY_NAME["0.9"], messages=MessagesForm.TYPED)
_0_10: Final = replace(
    _0_9, name="0.10", release=BY_NAME["0.10"], answers={**_0_9.answers, **stats_answers(MICROSECONDS, DISK_0_10)}
)
_ENTITIES_0_11: Final = entity_answers(SIZE_0_4, KEPT_0_11, NO_OPTIONS, id_shift=1, part_shift=1)
_0_11: Final = replace(
    _0_10,
    name="0.11",
    release=RELEASE_0_11,
    bodies=_BODIES_0_11,
    queries={
        **_0_10.queries,
        **{kind: (*_0_10.queries[kind], *LATER_PARTS) for kind in (c.PollMessages, c.GetOffset, later.DeleteOffset)},
    },
    answers={
        **_0_10.answers,
        **_ENTITIES_0_11,
        r.PartitionInfo: [*_ENTITIES_0_11[r.PartitionInfo], *CONTEXTS],
        **connection_answers("group_id", id_shift=1),
        **user_answers("expiry_at", 1, NO_OPTIONS),
    },
    messages=MessagesForm.BATCHED,
    is_current=True,
    # the code that uses the values checks them
    check=lambda command: None,
)

_CURRENT_VERSION: Final = (0, 11)

JSON_RELEASES: Final[Mapping[str, JsonRelease]] = {
    one.name: one
    for one in (
        replace(_0_0_40, name="0.0.30", release=BY_NAME["0.0.30"]),
        _0_0_40,
        _0_1,
        _0_2,
        _0_4,
        _0_5,
        _0_6,
        replace(_0_6, name="0.6.60", release=BY_NAME["0.6.60"]),
        _0_7,
        _0_8,
        _0_9,
        _0_10,
        _0_11,
    )
}
"""Every release by its name, oldest first."""

SILENT: Final = replace(_0_4, name="0.1 or 0.4", answers={**_0_4.answers, **_EITHER_SIZE})
"""Release of a login without a version.

All up to 0.4 ignore unknown members of these documents, except for the server's statistics, which are those of 0.4.
"""
BY_TOKEN: Final[Mapping[str, JsonRelease]] = {**JSON_RELEASES, SILENT.name: SILENT}
"""All releases by the name in tokens, including the one that no setting names."""


def release_of_http_login(version: str | None, context: str = "") -> JsonRelease:
    """Return the release of a client by its login; None for a login without a version, or with an empty one."""
    parts = (version or "").split(".")[:2]
    is_told = all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts)
    if is_told and tuple(map(int, parts)) >= _CURRENT_VERSION:
        return _0_11
    found = guess_release(version, context).release
    return SILENT if found.is_silent else JSON_RELEASES[found.name]


_DEFERRAL: Final = (
    Part("wait_us", ("wait_us",), U64, 0),
    Part("count_min", ("min_count",), U32, 1),
    Part("bytes_max", ("max_bytes",), U32, 1 << 20),
    Part("timeout_us", ("request_timeout_us",), U64, 0),
)
_DEFERRAL_NAMES: Final = frozenset(name for part in _DEFERRAL for name in part.names)


def take_deferral(query: dict[str, str]) -> Deferral:
    """Remove from a poll's query the limits of its wait, and return them. Raises BodyError 400 for a bad parameter."""
    return Deferral(**read_query(_DEFERRAL, {name: query.pop(name) for name in _DEFERRAL_NAMES & query.keys()}))
