"""Iggy's permissions as a view of the rules of all protocols: each flag is one rule (``broker.core.rights``).

Rules refer to streams and topics by name, permissions by number: a missing stream or topic has no flag and gets no
rule. In Iggy a user who may read topics may also poll: such a flag is two rules, of which the second is marked as
implied, so that permissions come back as they were given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ...broker.core.access.rights import CLUSTER, AccessRule, PatternKind, ResourceKind, Right
from ...dialects.iggy.classic.permissions import Flags, Permissions, StreamPermissions
from ...model.errors import Refusal
from ...model.names import flat_name
from ...runtime.turns import TurnCounter, Turns

if TYPE_CHECKING:
    from ...broker.core.topics.namespace import Namespace
    from ...broker.core.topology import Stream, Topic

Subject = tuple[ResourceKind, PatternKind, str]
FlagRights = Mapping[str, tuple[Subject, Right]]

_SERVERS: Final = (ResourceKind.CLUSTER, PatternKind.LITERAL, CLUSTER.name)
_USERS: Final = (ResourceKind.USER, PatternKind.ANY, "*")
_STREAMS: Final = (ResourceKind.STREAM, PatternKind.ANY, "*")
_TOPICS: Final = (ResourceKind.TOPIC, PatternKind.ANY, "*")
_GLOBAL: Final[FlagRights] = {
    "manage_servers": (_SERVERS, Right.ADMINISTRATE),
    "read_servers": (_SERVERS, Right.DESCRIBE),
    "manage_users": (_USERS, Right.ADMINISTRATE),
    "read_users": (_USERS, Right.DESCRIBE),
    "manage_streams": (_STREAMS, Right.ADMINISTRATE),
    "read_streams": (_STREAMS, Right.DESCRIBE),
    "manage_topics": (_TOPICS, Right.ADMINISTRATE),
    "read_topics": (_TOPICS, Right.DESCRIBE),
    "poll_messages": (_TOPICS, Right.READ),
    "send_messages": (_TOPICS, Right.WRITE),
}
_POLLING: Final = frozenset(
    {"manage_streams", "read_streams", "manage_stream", "read_stream", "manage_topics", "read_topics", "manage_topic",
     "read_topic"}
)  # fmt: skip
"""Flags that include polling."""
_POLL: Final = "poll_messages"


def _stream_rights(stream: Stream) -> FlagRights:
    own = (ResourceKind.STREAM, PatternKind.LITERAL, stream.name)
    topics = (ResourceKind.TOPIC, PatternKind.IN_STREAM, stream.name)
    return {
        "manage_stream": (own, Right.ADMINISTRATE),
        "read_stream": (own, Right.DESCRIBE),
        "manage_topics": (topics, Right.ADMINISTRATE),
        "read_topics": (topics, Right.DESCRIBE),
        "poll_messages": (topics, Right.READ),
        "send_messages": (topics, Right.WRITE),
    }


def _topic_rights(topic: Topic) -> FlagRights:
    own = (ResourceKind.TOPIC, PatternKind.LITERAL, flat_name(topic.stream.name, topic.name))
    return {
        "manage_topic": (own, Right.ADMINISTRATE),
        "read_topic": (own, Right.DESCRIBE),
        "poll_messages": (own, Right.READ),
        "send_messages": (own, Right.WRITE),
    }


def to_rules(user: str, permissions: Permissions | None, topology: Namespace, first_id: int) -> Turns[set[AccessRule]]:
    """Return the rules that permissions stand for, in turns; ``first_id`` is the client's first number."""
    if permissions is None:
        return set()
    found, turn = set(_rules_of(user, permissions.flags, _GLOBAL)), TurnCounter()
    for stream_id, of_stream in permissions.streams.items():
        if turn.is_over():
            yield
        try:
            stream = topology.stream(stream_id + 1 - first_id)
        except Refusal:
            continue
        found.update(_rules_of(user, of_stream.flags, _stream_rights(stream)))
        for topic_id, flags in of_stream.topics.items():
            if turn.is_over():
                yield
            topic = stream.topics.get(topic_id + 1 - first_id)
            if topic is not None:
                found.update(_rules_of(user, flags, _topic_rights(topic)))
    return found


def _rules_of(user: str, flags: Flags, rights: FlagRights) -> Iterator[AccessRule]:
    implied = {_POLL} - flags if flags & _POLLING else set()
    for name in flags | implied:
        (kind, pattern, of), right = rights[name]
        yield AccessRule(user, kind, pattern, of, right, is_implied=name in implied)


def to_permissions(rules: Iterable[AccessRule], topology: Namespace, first_id: int) -> Turns[Permissions | None]:
    """Return the rules of a user as permissions, as far as flags can express them; None without any. In turns."""
    turn = TurnCounter()
    held: dict[tuple[Subject, Right], bool] = {}
    for rule in rules:
        if not rule.denies:
            held[(rule.kind, rule.pattern, rule.name), rule.operation] = rule.is_implied
        if turn.is_over():
            yield
    streams: dict[int, StreamPermissions] = {}
    for stream in topology.streams():
        own, topics = _flags_of(held, _stream_rights(stream)), {}
        for topic in list(stream.topics.values()):
            flags = _flags_of(held, _topic_rights(topic))
            if flags:
                topics[topic.id - 1 + first_id] = flags
            if turn.is_over():
                yield
        if turn.is_over():
            yield
        if own or topics:
            streams[stream.id - 1 + first_id] = StreamPermissions(own, topics)
    found = Permissions(_flags_of(held, _GLOBAL), streams)
    return found if found.flags or found.streams else None


def _flags_of(held: Mapping[tuple[Subject, Right], bool], rights: FlagRights) -> Flags:
    flags = frozenset(name for name, right in rights.items() if right in held)
    # a rule that was implied is shown as a flag of its own after the rule that implied it was removed over another
    # protocol
    return flags - {_POLL} if flags & _POLLING and held.get(rights[_POLL]) else flags
