"""Requests and answers of Iggy's HTTP face as the commands and blocks of the binary one (iggy.md A5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

import numpy as np

from ...model.state import STATE_BY_WORD, State
from ..iggy_classic import commands as c
from ..iggy_classic import responses as r
from ..iggy_classic.primitives import ConsumerIdentifier, ConsumerKind, Identifier, PollingKind, Strategy
from ..iggy_classic.records import validate
from .documents import ID_TEXT, TEXT, U32, U64, YES_OR_NO, Form, fields_of, load_body, word
from .errors import wrong_document, wrong_query
from .text import dump

C = TypeVar("C")
_REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Part:
    """One member of a document or parameter of a query: its names, the first of which counts first, and its form."""

    field: str
    names: tuple[str, ...]
    form: Form
    default: Any = _REQUIRED


_CONSUMER: Final = Part("consumer", ("id", "consumer_id"), ID_TEXT, 0)
_PARTITIONS: Final = Part("partitions_count", ("partitions_count",), U32)

BODIES: Final[Mapping[type[Any], tuple[Part, ...]]] = {
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
"""What the body of a request says, by command; the path says the rest."""

QUERIES: Final[Mapping[type[Any], tuple[Part, ...]]] = {
    c.DeletePartitions: (_PARTITIONS,),
    c.GetOffset: (_CONSUMER, Part("partition_id", ("partition_id",), U32, 1)),
    c.PollMessages: (
        _CONSUMER,
        Part("partition_id", ("partition_id",), U32, 1),
        Part("kind", ("kind",), word({kind.name.lower(): kind for kind in PollingKind}), PollingKind.OFFSET),
        Part("value", ("value",), U64, 0),
        Part("count", ("count",), U32, 10),
        Part("auto_commit", ("auto_commit",), YES_OR_NO, False),
    ),
}
"""What the query of a request says, by command."""


def identifier(path_part: str) -> Identifier:
    """A stream or topic as a path names it: decimal text that fits u32 is a number, all else a name."""
    try:
        return int(U32.from_text(path_part))
    except ValueError:
        return path_part


def parse_body(command: type[C], body: bytes, **path: Any) -> C:
    """The command that a path and a body make; BodyError where the body is none, Refusal where a rule is broken."""
    document = fields_of(load_body(body), "the document")
    values = dict(path)
    for part in BODIES[command]:
        name = next((name for name in part.names if name in document), None)
        if name is None and part.default is _REQUIRED:
            raise wrong_document(f"missing field `{part.names[0]}`")
        values[part.field] = part.default if name is None else part.form.of(document[name], name)
    return _command(command, values)


def parse_query(command: type[C], query: Mapping[str, str], **path: Any) -> C:
    """The command that a path and a query make; BodyError 400 for a bad parameter, Refusal where a rule is broken."""
    require_known(query, [name for part in QUERIES[command] for name in part.names])
    values = dict(path)
    for part in QUERIES[command]:
        name = next((name for name in part.names if name in query), None)
        if name is None and part.default is _REQUIRED:
            raise wrong_query(f"missing field `{part.names[0]}`")
        try:
            values[part.field] = part.default if name is None else part.form.from_text(query[name])
        except ValueError as error:
            raise wrong_query(f"{name}: {error}") from None
    return _command(command, values)


def require_known(query: Iterable[str], names: Sequence[str]) -> None:
    """Raise BodyError 400 for the first parameter of a query that is none of ``names``: it would do nothing."""
    for name in query:
        if name not in names:
            known = f"expected one of {', '.join(names)}" if names else "expected none"
            raise wrong_query(f"unknown field `{name}`, {known}")


def states_of(text: str) -> frozenset[State] | None:
    """Return the states that the ``state`` of a poll asks for, words separated by commas; None for ``all``."""
    if text == "all":
        return None
    words = text.split(",")
    for one in words:
        if one not in STATE_BY_WORD:
            raise wrong_query(f"state: unknown variant `{one}`, expected all or some of {', '.join(STATE_BY_WORD)}")
    return frozenset(STATE_BY_WORD[one] for one in words)


def _command(command: type[C], values: dict[str, Any]) -> C:
    if "consumer" in values:
        values["consumer"] = ConsumerIdentifier(ConsumerKind.CONSUMER, values["consumer"])
    if "kind" in values:
        values["strategy"] = Strategy(values.pop("kind"), values.pop("value"))
    made = command(**values)
    validate(made)
    return made


def _single(value: float) -> float:
    return float(str(np.float32(value)))


_TRANSPORTS: Final = {r.TRANSPORT_TCP: "TCP", r.TRANSPORT_QUIC: "QUIC", r.TRANSPORT_WEBSOCKET: "WebSocket"}

Members = Sequence[tuple[str, Callable[[Any], Any]]]


def _same(*names: str) -> Members:
    return [(name, attrgetter(name)) for name in names]


_STREAM = _same("id", "name", "size_bytes", "messages_count", "topics_count")
_TOPIC = _same("id", "name", "size_bytes", "messages_count", "partitions_count")
_GROUP = _same("id", "partitions_count", "members_count")
_CLIENT: Members = [
    *_same("id", "address"),
    ("transport", lambda client: _TRANSPORTS.get(client.transport, str(client.transport))),
    ("consumer_groups_count", lambda client: client.groups_count),
]


def _of_head(head: str, take: Callable[[Any], Any], value: Any) -> Any:
    return take(getattr(value, head))


def _inside(head: str, members: Members) -> Members:
    return [(name, partial(_of_head, head, take)) for name, take in members]


def _list(name: str, field: str) -> Members:
    return [(name, lambda value: [as_document(entry) for entry in getattr(value, field)])]


ANSWERS: Final[Mapping[type[Any], Members]] = {
    r.StreamInfo: _STREAM,
    r.TopicInfo: _TOPIC,
    r.PartitionInfo: _same("id", "segments_count", "current_offset", "size_bytes", "messages_count"),
    r.GroupInfo: _GROUP,
    r.MemberInfo: [
        ("id", lambda member: member.id),
        ("partitions_count", lambda member: len(member.partitions)),
        ("partitions", lambda member: list(member.partitions)),
    ],
    r.ClientInfo: _CLIENT,
    r.ConsumerGroupInfo: [*_same("stream_id", "topic_id"), ("consumer_group_id", lambda entry: entry.group_id)],
    r.StoredOffset: _same("consumer_id", "offset"),
    r.StreamDetails: [*_inside("stream", _STREAM), *_list("topics", "topics")],
    r.TopicDetails: [*_inside("topic", _TOPIC), *_list("partitions", "partitions")],
    r.GroupDetails: [*_inside("group", _GROUP), *_list("members", "members")],
    r.ClientDetails: [*_inside("client", _CLIENT), *_list("consumer_groups", "groups")],
    r.StatsInfo: [
        ("process_id", lambda stats: stats.process_id),
        ("cpu_usage", lambda stats: _single(stats.cpu_usage)),
        *_same("memory_usage", "total_memory", "available_memory", "run_time", "start_time", "read_bytes"),
        *_same("written_bytes", "messages_size_bytes", "streams_count", "topics_count", "partitions_count"),
        *_same("segments_count", "messages_count", "clients_count"),
        ("consumer_groups_count", lambda stats: stats.groups_count),
        *_same("hostname", "os_name", "os_version", "kernel_version"),
    ],
}
"""Members of the document of each block, in the order in which the real server writes them."""


def as_document(value: Any) -> dict[str, Any]:
    """The document of one block, as plain Python values."""
    return {name: take(value) for name, take in ANSWERS[type(value)]}


def encode_answer(value: Any) -> bytes:
    """The JSON of one block, or of a list of them."""
    return dump(as_document(value) if type(value) in ANSWERS else [as_document(entry) for entry in value])
