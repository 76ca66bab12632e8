"""Consumer groups of the newer protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe.

* ConsumerGroupHeartbeat 0-1. 1 a pattern of topics, and the member's id is the client's choice (KIP-1082).
* ConsumerGroupDescribe 0-1. 1 the protocol of each member (KIP-1099).

Here: a pattern matches only topics that its member may see, and is matched in a worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...broker.core.access.rights import Resource, ResourceKind
from ...broker.kafka.assignors import Place
from ...broker.kafka.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    ConsumerGroupMember,
)
from ...broker.kafka.topic_patterns import find_matching, require_pattern
from ...dialects.kafka import versions
from ...dialects.kafka.errors import (
    GROUP_NOT_FOUND,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
)
from ...model.errors import Refusal
from ...runtime.turns import TurnCounter, Turns, finish_in_turns, sort_in_turns, take_turns
from ..base.services import now_us
from .authorized_operations import find_authorized_operations
from .handling import Answer, Context, Fields, Handler, Request, Session
from .pending_responses import coordinator_code

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal

_MEMBER_CHOOSES_ID_FROM: Final = 1
_NEWER_MEMBER: Final = 1
"""The kind of a member that joined by this protocol."""
_UNKNOWN_TIMEOUT_MS: Final = -1
_ZERO: Final = bytes(16)


def handlers(context: Context) -> Mapping[int, Handler]:
    """Return the handlers of this module."""
    groups = ConsumerGroupHandlers(context)
    return {
        versions.CONSUMER_GROUP_HEARTBEAT: groups.heartbeat,
        versions.CONSUMER_GROUP_DESCRIBE: groups.describe,
    }


class ConsumerGroupHandlers:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._coordinator = context.broker.coordinated_groups
        self._groups = context.broker.coordinated_groups.consumer

    def heartbeat(self, session: Session, request: Request) -> Answer:
        body = request.body
        if (problem := find_problem(body, request.version)) is not None:
            return {"error_code": INVALID_REQUEST, "error_message": problem}
        regex = body.subscribed_topic_regex if request.version >= _MEMBER_CHOOSES_ID_FROM else None
        stale = self._groups.find_stale_patterns(body.group_id, regex, now_us())
        if stale:
            return self._match_first(session, request, regex, stale)
        return take_turns(self._heartbeat(session, request, regex))

    async def _match_first(
        self, session: Session, request: Request, regex: str | None, patterns: Iterable[str]
    ) -> Fields:
        """Handle a heartbeat after the patterns of its group have been matched with the topics."""
        run_in_worker, group = self._context.services.run_in_worker, request.body.group_id
        version = self._context.topics.version
        names = await finish_in_turns(self._list_names())
        try:
            if regex:
                await run_in_worker(1, 0, require_pattern, regex)
            for pattern in patterns:
                matching = await run_in_worker(1, 0, partial(find_matching, names=names), pattern)
                self._groups.keep_matches(group, version, {pattern: matching})
            return await finish_in_turns(self._heartbeat(session, request, regex))
        except Refusal as refusal:
            return _refuse(refusal)
        finally:
            self._groups.forget_matches(group)

    def _list_names(self) -> Turns[list[str]]:
        turn, names = TurnCounter(), []
        for topic in self._context.topics.list_topics():
            names.append(topic.flat_name)
            if turn.is_over():
                yield
        return names

    def _heartbeat(self, session: Session, request: Request, regex: str | None) -> Turns[Fields]:
        body, turn = request.body, TurnCounter()
        may_describe = partial(self._context.may_describe, session.principal)
        for name in body.subscribed_topic_names or ():
            if not may_describe(name):
                return {"error_code": TOPIC_AUTHORIZATION_FAILED}
            if turn.is_over():
                yield
        call = ConsumerGroupHeartbeat(
            body.group_id,
            body.member_id,
            body.member_epoch,
            body.instance_id,
            body.rack_id,
            None if body.rebalance_timeout_ms == _UNKNOWN_TIMEOUT_MS else body.rebalance_timeout_ms * 1000,
            body.subscribed_topic_names,
            regex,
            body.server_assignor,
            (yield from _to_places(body.topic_partitions, turn)),
            request.client_id or "",
            f"/{session.host}",
            may_describe,
        )
        try:
            result = yield from self._groups.heartbeat(call, now_us=now_us())
        except Refusal as refusal:
            return _refuse(refusal)
        return (yield from _encode(result))

    def describe(self, session: Session, request: Request) -> Answer:
        return take_turns(self._describe_all(session, request))

    def _describe_all(self, session: Session, request: Request) -> Turns[Fields]:
        rows: list[Fields] = []
        self._coordinator.tick(now_us())
        for name in request.body.group_ids:
            row = yield from self._describe(session.principal, name)
            if request.body.include_authorized_operations and row["error_code"] == NONE:
                resource = Resource(ResourceKind.GROUP, name)
                access = self._context.broker.access
                row["authorized_operations"] = find_authorized_operations(access, session.principal, resource)
            rows.append(row)
            yield
        return {"groups": rows}

    def _describe(self, principal: Principal | None, name: str) -> Turns[dict[str, Any]]:
        if not name:
            return {"error_code": INVALID_GROUP_ID, "group_id": name}
        group = self._coordinator.find(name)
        if not isinstance(group, ConsumerGroup):
            problem = "not found" if group is None else "is not a consumer group"
            return {"error_code": GROUP_NOT_FOUND, "error_message": f"Group {name} {problem}.", "group_id": name}
        turn = TurnCounter()
        for topic_id in group.partitions_count:
            topic = self._context.topics.find_by_uuid(topic_id)
            if topic is not None and not self._context.may_describe(principal, topic.flat_name):
                return {
                    "error_code": TOPIC_AUTHORIZATION_FAILED,
                    "error_message": "The group has described topic(s) that the client is not authorized to describe.",
                    "group_id": name,
                }
            if turn.is_over():
                yield
        members: list[Fields] = []
        for member in list(group.members.values()):
            members += [(yield from self._describe_member(member))]
        return {
            "error_code": NONE,
            "group_id": name,
            "group_state": group.state.value,
            "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor_name": group.assignor,
            "members": members,
        }

    def _describe_member(self, member: ConsumerGroupMember) -> Turns[Fields]:
        # a partition that it has to give up is its own until it has done so
        assigned = yield from self._show_assignment([*member.assigned, *member.revoking])
        target = yield from self._show_assignment(member.target)
        return {
            "member_id": member.id,
            "instance_id": member.instance,
            "rack_id": member.rack,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.host,
            "subscribed_topic_names": sorted(member.names),
            "subscribed_topic_regex": member.regex,
            "assignment": assigned,
            "target_assignment": target,
            "member_type": _NEWER_MEMBER,
        }

    def _show_assignment(self, places: Collection[Place]) -> Turns[Fields]:
        rows = yield from _group_by_topic(places)
        for row in rows:
            topic = self._context.topics.find_by_uuid(row["topic_id"].bytes)
            row["topic_name"] = "" if topic is None else topic.flat_name
        return {"topic_partitions": rows}


def find_problem(body: Any, version: int) -> str | None:
    """Return what is wrong with a heartbeat in itself, in Apache Kafka's words; None if nothing is."""
    epoch, is_join = body.member_epoch, body.member_epoch == JOIN_EPOCH
    checks = (
        (not body.group_id, "GroupId can't be empty."),
        (body.instance_id == "", "InstanceId can't be empty."),
        (body.rack_id == "", "RackId can't be empty."),
        (not body.member_id and (version >= _MEMBER_CHOOSES_ID_FROM or not is_join), "MemberId can't be empty."),
        (epoch < LEAVE_STATIC_EPOCH, "MemberEpoch is invalid."),
        (epoch == LEAVE_STATIC_EPOCH and body.instance_id is None, "InstanceId can't be null."),
        (
            is_join and body.rebalance_timeout_ms == _UNKNOWN_TIMEOUT_MS,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            is_join and (body.topic_partitions is None or len(body.topic_partitions) > 0),
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            is_join and body.subscribed_topic_names is None and body.subscribed_topic_regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
    )
    if epoch == LEAVE_EPOCH and body.member_id:
        return next((problem for is_wrong, problem in checks[:3] if is_wrong), None)
    return next((problem for is_wrong, problem in checks if is_wrong), None)


def _refuse(refusal: Refusal) -> Fields:
    return {"error_code": coordinator_code(refusal), "error_message": str(refusal)}


def _to_places(topics: Iterable[Any] | None, turn: TurnCounter) -> Turns[frozenset[Place] | None]:
    """Return the partitions that a member reports as its own."""
    if topics is None:
        return None
    places: set[Place] = set()
    for topic in topics:
        # the library decodes an id of zeros as None
        topic_id = _ZERO if topic.topic_id is None else topic.topic_id.bytes
        for number in topic.partitions:
            places.add((topic_id, number))
            if turn.is_over():
                yield
        if turn.is_over():
            yield
    return frozenset(places)


def _encode(result: ConsumerGroupHeartbeatResult) -> Turns[Fields]:
    assignment = None
    if result.assignment is not None:
        assignment = {"topic_partitions": (yield from _group_by_topic(result.assignment))}
    return {
        "error_code": NONE,
        "member_id": result.member,
        "member_epoch": result.epoch,
        "heartbeat_interval_ms": result.interval_ms,
        "assignment": assignment,
    }


def _group_by_topic(places: Collection[Place]) -> Turns[list[dict[str, Any]]]:
    """Return partitions as rows, by topic and number."""
    numbers: dict[bytes, list[int]] = {}
    turn = TurnCounter()
    for topic_id, number in (yield from sort_in_turns(places)):
        numbers.setdefault(topic_id, []).append(number)
        if turn.is_over():
            yield
    return [{"topic_id": UUID(bytes=topic_id), "partitions": found} for topic_id, found in numbers.items()]
