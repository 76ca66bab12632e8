"""Rights that a user needs for each Iggy command, as in the permissions of Iggy's servers (``broker.core.rights``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...broker.core.access.rights import CLUSTER, Resource, ResourceKind, Right, topic_resource
from ...broker.core.topology import Stream, Topic
from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic import later_commands as later
from ...dialects.iggy.classic.state_commands import GetStates, SetStates, SetStatesWhere
from ...dialects.iggy.classic.validation import normalise_name
from ...dialects.iggy.current import commands as current
from ...model.errors import Reason, Refusal
from ...model.names import flat_name

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.access.access import AccessControl
    from ...broker.core.access.principal import Principal
    from ...dialects.iggy.classic.primitives import Identifier
    from .clients import Client
    from .send import Require

Fields = Mapping[str, Any]
"""Resources that a command names, with the ids of the broker."""
_ALL: Final = "*"
"""A name that only rules about all names match."""


def _server_resource(broker: Broker, fields: Fields) -> Resource:
    return CLUSTER


def _users_resource(broker: Broker, fields: Fields) -> Resource:
    return Resource(ResourceKind.USER, _ALL)


def _streams_resource(broker: Broker, fields: Fields) -> Resource:
    return Resource(ResourceKind.STREAM, _ALL)


def _new_stream(broker: Broker, fields: Fields) -> Resource:
    return Resource(ResourceKind.STREAM, fields["name"])


def _stream_resource(broker: Broker, fields: Fields) -> Resource:
    return Resource(ResourceKind.STREAM, _stream_name(broker, fields["stream"]))


def _topics_resource(broker: Broker, fields: Fields) -> Resource:
    return topic_resource(_stream_name(broker, fields["stream"]), _ALL)


def _new_topic(broker: Broker, fields: Fields) -> Resource:
    return topic_resource(_stream_name(broker, fields["stream"]), fields["name"])


def _topic_resource(broker: Broker, fields: Fields) -> Resource:
    return resource_of(broker, fields["stream"], fields["topic"])


def resource_of(broker: Broker, stream: Identifier, topic: Identifier) -> Resource:
    """Return a topic as rules name it, even if it does not exist; a number without a topic stands for any topic."""
    try:
        name = broker.topology.topic(stream, topic).name
    except Refusal:
        name = topic if isinstance(topic, str) else _ALL
    return topic_resource(_stream_name(broker, stream), name)


def _stream_name(broker: Broker, stream: Identifier) -> str:
    try:
        return broker.topology.stream(stream).name
    except Refusal:
        return stream if isinstance(stream, str) else _ALL


class NeededRight(NamedTuple):
    """A right, and the resource that it is needed on."""

    right: Right
    find: Callable[[Broker, Fields], Resource]


_SEE_SERVER: Final = NeededRight(Right.DESCRIBE, _server_resource)
_CHANGE_USERS: Final = NeededRight(Right.ADMINISTRATE, _users_resource)
_ALTER_STREAM: Final = NeededRight(Right.ALTER, _stream_resource)
_DELETE_STREAM: Final = NeededRight(Right.DELETE, _stream_resource)
_SEE_TOPIC: Final = NeededRight(Right.DESCRIBE, _topic_resource)
_CHANGE_TOPIC: Final = NeededRight(Right.ADMINISTRATE, _topic_resource)
_ALTER_TOPIC: Final = NeededRight(Right.ALTER, _topic_resource)
_DELETE_TOPIC: Final = NeededRight(Right.DELETE, _topic_resource)
_READ: Final = NeededRight(Right.READ, _topic_resource)
_WRITE: Final = NeededRight(Right.WRITE, _topic_resource)
_NEW_STREAM: Final = NeededRight(Right.CREATE, _new_stream)
_NEW_TOPIC: Final = NeededRight(Right.CREATE, _new_topic)
_SEE_STREAMS: Final = NeededRight(Right.DESCRIBE, _streams_resource)
_SEE_STREAM: Final = NeededRight(Right.DESCRIBE, _stream_resource)
_SEE_TOPICS: Final = NeededRight(Right.DESCRIBE, _topics_resource)

COMMAND_RIGHTS: Final[Mapping[type[Any], NeededRight | None]] = {
    c.Kill: NeededRight(Right.ADMINISTRATE, _server_resource),
    c.Ping: None,
    c.Stats: _SEE_SERVER,
    c.Me: None,
    c.GetClient: _SEE_SERVER,
    c.GetClients: _SEE_SERVER,
    c.PollMessages: _READ,
    c.SendMessages: _WRITE,
    c.GetOffset: _READ,
    c.StoreOffset: _READ,
    c.GetStream: _SEE_STREAM,
    c.GetStreams: _SEE_STREAMS,
    c.CreateStream: _NEW_STREAM,
    c.DeleteStream: _DELETE_STREAM,
    c.GetTopic: _SEE_TOPIC,
    c.GetTopics: _SEE_TOPICS,
    c.CreateTopic: _NEW_TOPIC,
    c.DeleteTopic: _DELETE_TOPIC,
    c.CreatePartitions: _ALTER_TOPIC,
    c.DeletePartitions: _DELETE_TOPIC,
    c.GetGroup: _SEE_TOPIC,
    c.GetGroups: _SEE_TOPIC,
    c.CreateGroup: _READ,
    c.DeleteGroup: _READ,
    c.JoinGroup: _READ,
    c.LeaveGroup: _READ,
    GetStates: _READ,
    SetStates: _CHANGE_TOPIC,
    SetStatesWhere: _CHANGE_TOPIC,
    later.GetSnapshot: _SEE_SERVER,
    later.LogoutUser: None,
    # everybody may see themselves
    later.GetUser: None,
    later.GetUsers: NeededRight(Right.DESCRIBE, _users_resource),
    later.CreateUser: _CHANGE_USERS,
    later.DeleteUser: _CHANGE_USERS,
    later.UpdateUser: _CHANGE_USERS,
    later.UpdatePermissions: _CHANGE_USERS,
    # everybody may change their own password
    later.ChangePassword: None,
    later.GetTokens: None,
    later.CreateToken: None,
    later.DeleteToken: None,
    later.GetClusterMetadata: None,
    later.FlushMessages: _WRITE,
    later.DeleteOffset: _READ,
    later.UpdateStream: _ALTER_STREAM,
    later.PurgeStream: _DELETE_STREAM,
    later.UpdateTopic: _ALTER_TOPIC,
    later.PurgeTopic: _DELETE_TOPIC,
    later.DeleteSegments: _DELETE_TOPIC,
    current.DescribeOptions: None,
    current.GetPartitionRoute: _SEE_TOPIC,
    current.SyncGroup: _READ,
}
"""The right that each command of all releases needs; None: a login is enough. Commands that are not listed need
ADMINISTRATE on everything.
"""

_CREATE: Final = (c.CreateStream, c.CreateTopic)
_EMPTY_STREAM: Final = (c.DeleteStream, later.PurgeStream)
_RENAME: Final = (later.UpdateStream, later.UpdateTopic)
_NOT_GAINED: Final = (Right.READ, Right.WRITE, Right.DELETE, Right.ALTER_CONFIGS)
"""Rights that a user must not get by renaming a topic or stream to a name for which rules grant them."""
_EVERYTHING: Final = NeededRight(Right.ADMINISTRATE, _server_resource)


def require_command(
    broker: Broker, principal: Principal | None, command: Any, normalise: Callable[[str], str] = normalise_name
) -> None:
    """Raise Refusal if a user may not run a command; ``normalise`` returns a name as its release stores it."""
    if broker.access.is_enabled and not isinstance(command, c.Ping):
        fields = {name: getattr(command, name) for name in ("stream", "topic", "name") if hasattr(command, name)}
        if isinstance(command, _CREATE):
            # the name as it is stored: rules refer to it
            fields["name"] = normalise(command.name)
        _require(broker, principal, COMMAND_RIGHTS.get(type(command), _EVERYTHING), fields)
        if isinstance(command, _EMPTY_STREAM):
            _require_topics(broker, principal, command.stream)
        if isinstance(command, _RENAME):
            _require_new_name(broker, principal, fields, normalise)


def _require(broker: Broker, principal: Principal | None, needed: NeededRight | None, fields: Fields) -> None:
    if principal is None:
        raise login_refusal()
    if needed is not None:
        _require_right(broker, principal, needed.right, needed.find(broker, fields), fields)


def _require_topics(broker: Broker, principal: Principal | None, stream: Identifier) -> None:
    """Raise Refusal if a user may not delete each topic of a stream: a rule about one may deny it."""
    try:
        topics = broker.topology.stream(stream).list_topics()
    except Refusal:
        # no refusal here: the handler that looks the topic up to empty it refuses
        return
    broker.access.require_topics(principal, Right.DELETE, topics, str(stream))


def _require_new_name(
    broker: Broker, principal: Principal | None, fields: Fields, normalise: Callable[[str], str]
) -> None:
    """Raise Refusal if a stream or topic gets a new name that the user may not create."""
    find = broker.topology
    try:
        renamed = find.topic(fields["stream"], fields["topic"]) if "topic" in fields else find.stream(fields["stream"])
    except Refusal:
        # no refusal here: the handler that looks it up to rename it refuses
        return
    if fields["name"] not in (None, renamed.name):
        needed = _NEW_TOPIC if "topic" in fields else _NEW_STREAM
        name = normalise(fields["name"])
        wanted = needed.find(broker, {**fields, "name": name})
        broker.access.require(principal, needed.right, wanted)
        for former, later in _list_renamed(renamed, name):
            _require_no_gain(broker.access, principal, former, later)


def _list_renamed(renamed: Stream | Topic, name: str) -> Iterator[tuple[Resource, Resource]]:
    """Yield everything whose name a rename changes, with the new name: a topic, or a stream with all its topics."""
    if isinstance(renamed, Topic):
        stream = renamed.stream.name
        yield topic_resource(stream, renamed.name), topic_resource(stream, name)
        return
    yield Resource(ResourceKind.STREAM, renamed.name), Resource(ResourceKind.STREAM, name)
    for topic in renamed.list_topics():
        yield topic_resource(renamed.name, topic.name), topic_resource(name, topic.name)


def _require_no_gain(access: AccessControl, principal: Principal | None, former: Resource, later: Resource) -> None:
    """Raise Refusal if a user would have a right under the new name only: renaming must not give rights."""
    for right in _NOT_GAINED:
        if access.allows(principal, right, later):
            access.require(principal, right, former, later.name)


def visible_streams(broker: Broker, client: Client | None) -> Iterable[Stream]:
    """Return the streams that a client may see: a rule about one may deny what another allows for all."""
    access, principal = broker.access, None if client is None else client.principal
    streams = broker.topology.streams()
    if not access.is_enabled or access.is_administrator(principal):
        return streams
    return [
        stream for stream in streams
        if access.allows(principal, Right.DESCRIBE, Resource(ResourceKind.STREAM, stream.name))
    ]  # fmt: skip


def topic_visibility(broker: Broker, client: Client | None) -> Callable[[Topic], bool] | None:
    """Return whether a client may see a topic; None if it may see all of them."""
    access, principal = broker.access, None if client is None else client.principal
    if not access.is_enabled or access.is_administrator(principal):
        return None
    return lambda topic: access.allows(principal, Right.DESCRIBE, topic_resource(topic.stream.name, topic.name))


def _require_right(broker: Broker, principal: Principal, right: Right, resource: Resource, fields: Fields) -> None:
    """Raise Refusal if the right is missing, before anything shows whether the resource exists."""
    named = [str(fields[part]) for part in ("stream", "topic") if fields.get(part) is not None]
    # the error uses the client's name for it: the name of a numbered resource is not revealed
    broker.access.require(principal, right, resource, flat_name(*named) if len(named) > 1 else "".join(named))


def login_refusal() -> Refusal:
    """Return the refusal of a request without a login."""
    return Refusal(Reason.UNAUTHENTICATED, "this request needs a login; log in before")


def requirement_of(broker: Broker, principal: Principal | None) -> Require | None:
    """Return the check of each topic for a sender or poller; None while no users are set up, when everything is
    allowed.
    """
    if principal is not None and not principal.name:
        return None

    def require(stream: Identifier, topic: Identifier, right: Right) -> None:
        if principal is None:
            raise login_refusal()
        fields = {"stream": stream, "topic": topic}
        _require_right(broker, principal, right, resource_of(broker, stream, topic), fields)

    return require
