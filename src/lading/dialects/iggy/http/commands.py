"""Requests and responses of Iggy's HTTP endpoint as the commands and blocks of the binary one (iggy.md A5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

import numpy as np

from ....model.errors import Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass
from ....model.state import STATE_BY_WORD, State
from ..classic import commands as c
from ..classic import responses as r
from ..classic.primitives import ConsumerIdentifier, ConsumerKind, Identifier, PollingKind, Strategy
from ..classic.records import validate
from .documents import ID_TEXT, TEXT, U32, U64, YES_OR_NO, Form, fields_of, load_body, word
from .errors import wrong_document, wrong_query
from .options import join_options
from .text import dump

C = TypeVar("C")
_REQUIRED: Final = object()


@lazy_dataclass(frozen=True, slots=True)
class Part:
    """One member of a document or parameter of a query: its names, of which the first has precedence, and its form."""

    field: str
    names: tuple[str, ...]
    form: Form
    default: Any = _REQUIRED


Parts = Mapping[type[Any], tuple[Part, ...]]
"""Members of bodies, or parameters of queries, by command."""

_CONSUMER: Final = Part("consumer", ("id", "consumer_id"), ID_TEXT, 0)
_PARTITIONS: Final = Part("partitions_count", ("partitions_count",), U32)

_POLLING_KINDS: Final = word({kind.name.lower(): kind for kind in PollingKind})
# Java's SDK 0.6 and 0.7 sends strategy_kind and strategy_value, and words such as First. A server that ignores those
# would return the first messages at each of its polls
_KIND: Final = Form(_POLLING_KINDS.of, lambda text: _POLLING_KINDS.from_text(text[:1].lower() + text[1:]))
READING: Final[tuple[Part, ...]] = (
    Part("kind", ("kind", "strategy_kind"), _KIND, PollingKind.OFFSET),
    Part("value", ("value", "strategy_value"), U64, 0),
    Part("count", ("count",), U32, 10),
    Part("auto_commit", ("auto_commit",), YES_OR_NO, False),
)
"""Members of a poll in every release, beside its consumer and its partition."""

LATER_PARTS: Final = (
    Part("_consumer_kind", ("consumer_kind",), word({"consumer": None}), None),
    Part("_context", ("context",), TEXT, ""),
)
"""Parameters of polls and offsets since protocol 0.12. Over HTTP there is only one kind of consumer, and only one
history of a partition that a client can have seen."""

BODIES: Final[Parts] = {
    c.CreateStream: (Part("stream_id", ("stream_id",), U32), Part("name", ("name",), TEXT)),
    c.CreateTopic: (Part("topic_id", ("topic_id",), U32), _PARTITIONS, Part("name", ("name",), TEXT)),
    c.CreatePartitions: (_PARTITIONS,),
    c.CreateGroup: (Part("group_id", ("consumer_group_id",), U32),),
    c.StoreOffset: (
        _CONSUMER,
        Part("partition_id", ("partition_id",), U32, 1),
        Part("offset", ("offset",), U64),
    ),
}
"""Members of the body of a request, by command; the rest is in the path."""

QUERIES: Final[Parts] = {
    c.DeletePartitions: (_PARTITIONS,),
    c.GetOffset: (_CONSUMER, Part("partition_id", ("partition_id",), U32, 1)),
    c.PollMessages: (
        _CONSUMER,
        Part("partition_id", ("partition_id",), U32, 1),
        *READING,
    ),
}
"""Parameters of the query of a request, by command."""


def identifier(path_part: str) -> Identifier:
    """Parse the part of a path that names a stream or topic.

    Decimal text that fits u32 is a number, other text a name.
    """
    try:
        return int(U32.from_text(path_part))
    except ValueError:
        return path_part


def parse_body(
    command: type[C], body: bytes, parts: Parts = BODIES, check: Callable[[object], None] = validate, **path: Any
) -> C:
    """Return the command of a path and a body; ``parts`` are the bodies of a release, ``check`` its rules.

    Raises BodyError if the body is not valid, Refusal if the command breaks a rule or the release has no such command.
    """
    if command not in parts:
        raise Refusal(Reason.FEATURE_UNAVAILABLE, f"this release has no {command.__name__}; log in as a later one")
    return _build_command(command, {**path, **read_body(parts[command], body)}, check)


def parse_query(
    command: type[C],
    query: Mapping[str, str],
    parts: Parts = QUERIES,
    check: Callable[[object], None] = validate,
    **path: Any,
) -> C:
    """Return the command of a path and a query; ``parts`` are the queries of a release, ``check`` its rules.

    Raises BodyError 400 for a bad parameter, Refusal if the command breaks a rule.
    """
    return _build_command(command, {**path, **read_query(parts[command], query)}, check)


def read_body(parts: Sequence[Part], body: bytes) -> dict[str, Any]:
    """Return the fields of a body. Raises BodyError if it is not JSON, lacks a field or has a wrong one."""
    document = fields_of(load_body(body), "the document")
    values = {}
    for part in parts:
        name = next((name for name in part.names if name in document), None)
        if name is None and part.default is _REQUIRED:
            raise wrong_document(f"missing field `{part.names[0]}`")
        values[part.field] = part.default if name is None else part.form.of(document[name], name)
    return values


def read_query(parts: Sequence[Part], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a query. Raises BodyError 400 for a parameter that is unknown, missing or wrong."""
    require_known(query, [name for part in parts for name in part.names])
    values = {}
    for part in parts:
        name = next((name for name in part.names if name in query), None)
        if name is None and part.default is _REQUIRED:
            raise wrong_query(f"missing field `{part.names[0]}`")
        try:
            values[part.field] = part.default if name is None else part.form.from_text(query[name])
        except ValueError as error:
            raise wrong_query(f"{name}: {error}") from None
    return values


def require_known(query: Iterable[str], names: Sequence[str]) -> None:
    """Raise BodyError 400 for the first parameter of a query that is not in ``names``, as it would have no effect."""
    for name in query:
        if name not in names:
            known = f"expected one of {', '.join(names)}" if names else "expected none"
            raise wrong_query(f"unknown field `{name}`, {known}")


def states_of(text: str) -> frozenset[State] | None:
    """Return the states in the ``state`` of a poll, which are words separated by commas; None for ``all``."""
    if text == "all":
        return None
    words = text.split(",")
    for one in words:
        if one not in STATE_BY_WORD:
            raise wrong_query(f"state: unknown variant `{one}`, expected all or some of {', '.join(STATE_BY_WORD)}")
    return frozenset(STATE_BY_WORD[one] for one in words)


def _build_command(command: type[C], values: dict[str, Any], check: Callable[[object], None]) -> C:
    if "consumer" in values:
        values["consumer"] = ConsumerIdentifier(ConsumerKind.CONSUMER, values["consumer"])
    if "kind" in values:
        values["strategy"] = Strategy(values.pop("kind"), values.pop("value"))
    if "options" in values:
        values = join_options(values)
    made = command(**_drop_unused(values))
    check(made)
    return made


def _drop_unused(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without those that are read but not used, whose names begin with ``_``."""
    return {name: value for name, value in values.items() if not name.startswith("_")}


def single(value: float) -> float:
    """Return the shortest number that reads back as the same single-precision one."""
    return float(str(np.float32(value)))


TRANSPORTS: Final = {r.TRANSPORT_TCP: "TCP", r.TRANSPORT_QUIC: "QUIC", r.TRANSPORT_WEBSOCKET: "WebSocket"}


@lazy_dataclass(frozen=True, slots=True)
class Listed:
    """A member that is the list of the documents of a field."""

    field: str


Members = Sequence[tuple[str, Callable[[Any], Any] | Listed]]
"""Members of a document, in order: each member's name, and the function that makes its value from the block."""
Answers = Mapping[type[Any], Members]


def same(*names: str) -> Members:
    """Return members that have the names of their fields."""
    return [(name, attrgetter(name)) for name in names]


_STREAM = same("id", "name", "size_bytes", "messages_count", "topics_count")
_TOPIC = same("id", "name", "size_bytes", "messages_count", "partitions_count")
_GROUP = same("id", "partitions_count", "members_count")
_CLIENT: Members = [
    *same("id", "address"),
    ("transport", lambda client: TRANSPORTS.get(client.transport, str(client.transport))),
    ("consumer_groups_count", lambda client: client.groups_count),
]


def _of_head(head: str, take: Callable[[Any], Any], value: Any) -> Any:
    return take(getattr(value, head))


def inside(head: str, members: Members) -> Members:
    """Return the members of the document of the field ``head``, as members of the block itself."""
    return [(name, partial(_of_head, head, take)) for name, take in members if not isinstance(take, Listed)]


ANSWERS: Final[Answers] = {
    r.StreamInfo: _STREAM,
    r.TopicInfo: _TOPIC,
    r.PartitionInfo: same("id", "segments_count", "current_offset", "size_bytes", "messages_count"),
    r.GroupInfo: _GROUP,
    r.MemberInfo: [
        ("id", lambda member: member.id),
        ("partitions_count", lambda member: len(member.partitions)),
        ("partitions", lambda member: list(member.partitions)),
    ],
    r.ClientInfo: _CLIENT,
    r.ConsumerGroupInfo: [*same("stream_id", "topic_id"), ("consumer_group_id", lambda entry: entry.group_id)],
    r.StoredOffset: same("consumer_id", "offset"),
    r.StreamDetails: [*inside("stream", _STREAM), ("topics", Listed("topics"))],
    r.TopicDetails: [*inside("topic", _TOPIC), ("partitions", Listed("partitions"))],
    r.GroupDetails: [*inside("group", _GROUP), ("members", Listed("members"))],
    r.ClientDetails: [*inside("client", _CLIENT), ("consumer_groups", Listed("groups"))],
    r.StatsInfo: [
        ("process_id", lambda stats: stats.process_id),
        ("cpu_usage", lambda stats: single(stats.cpu_usage)),
        *same("memory_usage", "total_memory", "available_memory", "run_time", "start_time", "read_bytes"),
        *same("written_bytes", "messages_size_bytes", "streams_count", "topics_count", "partitions_count"),
        *same("segments_count", "messages_count", "clients_count"),
        ("consumer_groups_count", lambda stats: stats.groups_count),
        *same("hostname", "os_name", "os_version", "kernel_version"),
    ],
}
"""Members of the document of each block, in the order in which the real server writes them."""


def as_document(value: Any, answers: Answers = ANSWERS) -> dict[str, Any]:
    """Return the document of one block as a release has it, as plain Python values."""
    return {
        name: [as_document(entry, answers) for entry in getattr(value, take.field)]
        if isinstance(take, Listed)
        else take(value)
        for name, take in answers[type(value)]
    }


def encode_answer(value: Any, answers: Answers = ANSWERS) -> bytes:
    """Encode one block, or a list of them, as JSON."""
    if type(value) in answers:
        return dump(as_document(value, answers))
    return dump([as_document(entry, answers) for entry in value])
