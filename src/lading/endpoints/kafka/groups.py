"""Consumer groups of the classic protocol: join, sync, heartbeat, leave; describe, list, delete (kafka.md 3).

The coordinator of every group and transaction is this broker.

* FindCoordinator 0-6. 1 key type (KIP-98); 3 tagged fields; 4 several keys (KIP-699); 5 TRANSACTION_ABORTABLE
  (KIP-890); 6 share groups (KIP-932).
* JoinGroup 0-9. 1 rebalance timeout (KIP-62); 4 a member gets its id first, and joins again with it (KIP-394); 5 static
  members (KIP-345); 6 tagged fields; 7 the protocol type comes back (KIP-559); 8 reasons (KIP-800); 9 a leader of
  static members may leave the assignment as it is (KIP-814).
* Heartbeat 0-4, SyncGroup 0-5. 3 static members; 4 tagged fields; SyncGroup 5 checks type and name (KIP-559).
* LeaveGroup 0-5. 3 several members at once (KIP-345); 4 tagged fields; 5 reasons (KIP-800).
* DescribeGroups 0-6. 3 authorized operations (KIP-430); 4 static members; 5 tagged fields; 6 GROUP_ID_NOT_FOUND for a
  group that does not exist (KIP-1043), which is Dead before.
* ListGroups 0-5. 3 tagged fields; 4 by state (KIP-518); 5 by type (KIP-848).
* DeleteGroups 0-2. 2 tagged fields (KIP-229).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...broker.core.access.rights import Resource, ResourceKind
from ...broker.core.position import PositionKey
from ...broker.kafka.consumer_group import ConsumerGroup, ConsumerGroupState
from ...broker.kafka.consumer_group_coordinator import AnyGroup
from ...broker.kafka.group import (
    KAFKA,
    GroupState,
    JoinGroupRequest,
    JoinGroupResult,
    KafkaGroup,
    MemberIdRequired,
    SyncGroupResult,
)
from ...broker.kafka.group_coordinator import MemberCall
from ...broker.kafka.share_group import ShareGroup
from ...dialects.kafka import versions
from ...dialects.kafka.assignment import PROTOCOL
from ...dialects.kafka.errors import GROUP_NOT_FOUND, INVALID_GROUP_ID, INVALID_REQUEST, NONE
from ...model.errors import Reason, Refusal
from ...runtime.turns import ROWS_AT_ONCE, TurnCounter, Turns, collect_in_turns, finish_in_turns, take_turns
from ..base.services import now_us
from .authorized_operations import find_authorized_operations
from .handling import NODE_ID, Answer, Context, Fields, Handler, Request, Session, free_in_worker
from .pending_responses import complete_with, coordinator_code

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
_TYPE_OF: Final[Mapping[type[AnyGroup], str]] = {KafkaGroup: CLASSIC, ConsumerGroup: CONSUMER, ShareGroup: SHARE}
_STATES: Final = frozenset(state.value.lower() for state in (*GroupState, *ConsumerGroupState))
_TYPES: Final = frozenset(_TYPE_OF.values())
_UNKNOWN: Final = ""
"""The word that stands for all words of a filter that are neither states nor types."""
TOPICS_AT_ONCE: Final = 100
"""Others have their turn after positions of a group were deleted in this many topics."""
KEY_TYPES: Final = (0, 1, 2)
"""Kinds of keys in FindCoordinator: groups, transactional ids, partitions of share groups."""
_NAMED_FIRST_FROM: Final = 4
"""From this version of JoinGroup on a member without an id gets one and joins again (kafka.md 3.3)."""
_SKIPS_FROM: Final = 9
_MANY_KEYS_FROM: Final = 4
_MANY_LEAVE_FROM: Final = 3
_MISSING_IS_ERROR_FROM: Final = 6
_OPERATIONS_FROM: Final = 3


def handlers(context: Context) -> Mapping[int, Handler]:
    """Return the handlers of this module."""
    groups = Groups(context)
    return {
        versions.FIND_COORDINATOR: groups.find_coordinator,
        versions.JOIN_GROUP: groups.join,
        versions.SYNC_GROUP: groups.sync,
        versions.HEARTBEAT: groups.heartbeat,
        versions.LEAVE_GROUP: groups.leave,
        versions.DESCRIBE_GROUPS: groups.describe,
        versions.LIST_GROUPS: groups.list,
        versions.DELETE_GROUPS: groups.delete,
    }


class Groups:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._groups = context.broker.coordinated_groups
        context.services.add_stop_callback(self._groups.stop)

    def find_coordinator(self, session: Session, request: Request) -> Answer:
        body = request.body
        place = self._context.choose_address(session)
        here = {"node_id": NODE_ID, "host": place.host, "port": place.port, "error_code": NONE, "error_message": None}
        nowhere = {"node_id": -1, "host": "", "port": -1, "error_code": INVALID_REQUEST, "error_message": "key type"}
        found = here if request.version == 0 or body.key_type in KEY_TYPES else nowhere
        if request.version < _MANY_KEYS_FROM:
            return found
        return take_turns(self._name_coordinators(body.coordinator_keys, found))

    def _name_coordinators(self, keys: Sequence[str], found: Fields) -> Turns[Fields]:
        # in turns: a hundred thousand rows at once kept the loop for 75 ms
        rows, turn = [], TurnCounter()
        for key in keys:
            rows.append({"key": key, **found})
            if turn.is_over():
                yield
        return {"coordinators": free_in_worker(rows)}

    def join(self, session: Session, request: Request) -> Fields | Awaitable[Fields]:
        body, version = request.body, request.version
        try:
            # checked before the list is made: a list of 100,000 kept the loop for 31 ms
            self._groups.require_few_protocols(body.group_id, len(body.protocols))
        except Refusal as refusal:
            return _refuse_join(refusal, body.member_id, version)
        session_timeout_us = body.session_timeout_ms * 1000
        call = JoinGroupRequest(
            body.group_id,
            body.member_id,
            body.protocol_type,
            tuple((one.name, bytes(one.metadata)) for one in body.protocols),
            session_timeout_us,
            body.rebalance_timeout_ms * 1000 if version else session_timeout_us,
            body.group_instance_id,
            request.client_id or "",
            f"/{session.host}",
            requires_member_id=version >= _NAMED_FIRST_FROM,
            supports_skip_assignment=version >= _SKIPS_FROM,
        )

        def refused(error: Refusal) -> Fields:
            return _refuse_join(error, call.member, version)

        return complete_with(self._groups.join(call, now_us=now_us()), _encode_join, refused)

    def sync(self, session: Session, request: Request) -> Answer:
        return take_turns(self._sync(request))

    def _sync(self, request: Request) -> Turns[Fields | Awaitable[Fields]]:
        body, turn = request.body, TurnCounter()
        protocol = (body.protocol_type, body.protocol_name) if request.version >= 5 else (None, None)
        work: dict[str, bytes] = {}
        for one in body.assignments:
            work[one.member_id] = bytes(one.assignment)
            if turn.is_over():
                yield
        answer = self._groups.sync(_member_call(body), protocol, work, now_us=now_us())
        return complete_with(
            answer,
            _encode_sync,
            lambda error: {
                "error_code": coordinator_code(error),
                "protocol_type": None,
                "protocol_name": None,
                "assignment": b"",
            },
        )

    def heartbeat(self, session: Session, request: Request) -> Fields:
        try:
            self._groups.heartbeat(_member_call(request.body), now_us=now_us())
        except Refusal as refusal:
            return {"error_code": coordinator_code(refusal)}
        return {"error_code": NONE}

    def leave(self, session: Session, request: Request) -> Answer:
        if not request.body.group_id:
            return {"error_code": INVALID_GROUP_ID, "members": []}
        if request.version < _MANY_LEAVE_FROM:
            return {"error_code": self._leave(request.body.group_id, request.body.member_id, None)}
        return take_turns(self._leave_all(request.body.group_id, request.body.members))

    def _leave_all(self, group: str, members: Sequence[Any]) -> Turns[Fields]:
        rows, turn = [], TurnCounter()
        for one in members:
            member, instance = one.member_id, one.group_instance_id
            code = self._leave(group, member, instance)
            rows.append({"member_id": member, "group_instance_id": instance, "error_code": code})
            if turn.is_over():
                yield
        return {"error_code": NONE, "members": free_in_worker(rows)}

    def _leave(self, group: str, member: str, instance: str | None) -> int:
        """Have one member leave the group; return its error code."""
        [error] = self._groups.leave(group, [(member, instance)], now_us=now_us())
        return NONE if error is None else coordinator_code(error)

    def describe(self, session: Session, request: Request) -> Answer:
        return take_turns(self._describe(session, request))

    def _describe(self, session: Session, request: Request) -> Turns[Fields]:
        turn, found = TurnCounter(), []
        self._end_due_sessions()
        operations = request.version >= _OPERATIONS_FROM and request.body.include_authorized_operations
        for name in request.body.groups:
            group = self._groups.find(name)
            row = _describe_group(name, group, request.version)
            if operations and row["error_code"] == NONE:
                resource = Resource(ResourceKind.GROUP, name)
                told = find_authorized_operations(self._context.broker.access, session.principal, resource)
                row["authorized_operations"] = told
            found.append(row)
            if turn.is_over(1 + (len(group.members) if group else 0)):
                yield
        return {"groups": found}

    def list(self, session: Session, request: Request) -> Answer:
        return take_turns(self._list(request))

    def _list(self, request: Request) -> Turns[Fields]:
        body, turn = request.body, TurnCounter()
        self._end_due_sessions()
        states = (yield from _find_words(body.states_filter, _STATES)) if request.version >= 4 else set()
        types = (yield from _find_words(body.types_filter, _TYPES)) if request.version >= 5 else set()
        found = []
        for group in map(self._groups.find, sorted(self._groups.names())):
            if group is None:
                continue
            is_classic, state = isinstance(group, KafkaGroup), group.state.value
            kind = _TYPE_OF[type(group)]
            if (not states or state.lower() in states) and (not types or kind in types):
                found.append(
                    {
                        "group_id": group.name,
                        "protocol_type": _name_protocol(group),
                        "group_state": state,
                        "group_type": kind,
                    }
                )
            if turn.is_over(1 if is_classic else 1 + len(group.members) // ROWS_AT_ONCE):
                yield
        return {"error_code": NONE, "groups": found}

    async def delete(self, session: Session, request: Request) -> Fields:
        services, broker = self._context.services, self._context.broker
        names = list(request.body.groups_names)
        codes: dict[str, int] = {}
        self._end_due_sessions()
        topics_by_group = await finish_in_turns(self._topics_read_by(names))
        for name in names:
            if (shared := self._groups.share.find(name)) is not None and not shared.members:
                await finish_in_turns(broker.share_sessions.close_left(name))

        def attempt(name: str, work: Callable[[str, Sequence[Topic]], None], topics: Sequence[Topic]) -> None:
            try:
                work(name, topics)
                codes[name] = NONE
            except Refusal as refusal:
                codes[name] = coordinator_code(refusal)

        def writes() -> Iterator[Callable[[], None]]:
            for name in names:
                topics = topics_by_group.get(name, ())
                for at in range(0, len(topics), TOPICS_AT_ONCE):
                    some = topics[at : at + TOPICS_AT_ONCE]
                    yield partial(attempt, name, self._groups.delete_positions, some)
                for topic in self._list_topics_shared(name):
                    yield partial(attempt, name, self._delete_queue, (topic,))
                yield partial(attempt, name, self._delete, ())

        # the deletions share one sync of the catalog, and other clients do not wait for it
        try:
            await services.changes.make(broker.changes.write_all_to_catalog(writes()))
        except Refusal as refusal:
            codes = {name: code or coordinator_code(refusal) for name, code in codes.items()}
        # a generator, which the worker that encodes the response reads
        return {"results": ({"group_id": name, "error_code": codes[name]} for name in names)}

    def _list_topics_shared(self, name: str) -> Sequence[Topic]:
        """Return the topics that a share group reads."""
        found = map(self._context.broker.topology.topic_by_uuid, self._groups.share.list_topics_read(name))
        return [topic for topic in found if topic is not None]

    def _delete_queue(self, name: str, topics: Sequence[Topic]) -> None:
        """Delete the queues of a share group without members, in some topics."""
        self._context.broker.share_sessions.require_empty(name)
        for topic in topics:
            self._context.broker.share_sessions.delete_topic(name, topic)

    def _delete(self, name: str, topics: Sequence[Topic]) -> None:
        if self._list_topics_shared(name):
            raise Refusal(Reason.GROUP_NOT_EMPTY, f"share group {name!r} has queues in use; stop their subscribers")
        self._groups.delete(name, topics)

    def _end_due_sessions(self) -> None:
        """End sessions that have expired by now: the broker's own tick may come up to 50 ms later.

        librdkafka's test 0081 deletes a group 6.000 s after closing its only member, a static one with a session of 6
        s; Kafka has no member then.
        """
        self._groups.tick(now_us())

    def _topics_read_by(self, groups: Iterable[str]) -> Turns[dict[str, Sequence[Topic]]]:
        """Return, by group, the topics in which it has a position; groups without one are left out."""
        wanted: dict[PositionKey, str] = {}
        found: dict[str, dict[Topic, None]] = {}
        turn = TurnCounter()
        for name in groups:
            wanted[PositionKey(KAFKA, name)] = name
            if turn.is_over():
                yield
        for topic in self._context.broker.topology.list_topics():
            for partition in topic.partitions:
                for key in wanted.keys() & partition.positions.keys():
                    found.setdefault(wanted[key], {})[topic] = None
            if turn.is_over(len(topic.partitions)):
                yield
        return {name: list(topics) for name, topics in found.items()}


def _name_protocol(group: AnyGroup) -> str:
    """Return the protocol type of a group, as lists of groups show it."""
    if isinstance(group, KafkaGroup):
        return group.protocol_type
    return SHARE if isinstance(group, ShareGroup) else PROTOCOL


def _refuse_join(refusal: Refusal, member: str, version: int) -> Fields:
    return {
        "error_code": coordinator_code(refusal),
        "generation_id": -1,
        "protocol_name": None if version >= 7 else "",
        "leader": "",
        "member_id": refusal.member if isinstance(refusal, MemberIdRequired) else member,
        "members": [],
    }


def _find_words(asked: Iterable[str | None] | None, known: frozenset[str]) -> Turns[set[str]]:
    """Return the words of a filter in lower case; all unknown ones become ``_UNKNOWN``, which matches no group.

    A set of 100,000 unknown words kept the loop for 9 ms when it was freed.
    """
    return collect_in_turns(lowered if (lowered := word.lower()) in known else _UNKNOWN for word in asked or () if word)


def _member_call(body: Any) -> MemberCall:
    return MemberCall(body.group_id, body.member_id, body.generation_id, body.group_instance_id)


def _encode_join(joined: JoinGroupResult) -> Fields:
    return {
        "error_code": NONE,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member,
        "members": [
            {"member_id": member, "group_instance_id": instance, "metadata": metadata}
            for member, instance, metadata in joined.members
        ],
    }


def _encode_sync(synced: SyncGroupResult) -> Fields:
    return {
        "error_code": NONE,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


def _describe_group(name: str, group: AnyGroup | None, version: int) -> dict[str, Any]:
    if not isinstance(group, KafkaGroup):
        missing = GROUP_NOT_FOUND if version >= _MISSING_IS_ERROR_FROM else NONE
        problem = f"group {name!r} does not exist" if group is None else f"Group {name} is not a classic group."
        return {
            "error_code": missing,
            "error_message": problem if missing else None,
            "group_id": name,
            "group_state": GroupState.DEAD.value,
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    stable = group.state is GroupState.STABLE
    return {
        "error_code": NONE,
        "error_message": None,
        "group_id": name,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": (group.protocol or "") if stable else "",
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.call.instance,
                "client_id": member.call.client_id,
                "client_host": member.call.host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
    }
