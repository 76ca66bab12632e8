"""Share groups (KIP-932): ShareGroupHeartbeat, ShareGroupDescribe, and the offsets at which their queues begin.

* ShareGroupHeartbeat 1, ShareGroupDescribe 1.
* DescribeShareGroupOffsets 0-1. 1 the lag (KIP-1226).
* AlterShareGroupOffsets 0, DeleteShareGroupOffsets 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...broker.core.access.rights import Resource, ResourceKind
from ...broker.kafka.assignors import Place
from ...broker.kafka.share_group import ASSIGNOR, JOIN_EPOCH, LEAVE_EPOCH, ShareGroupHeartbeat, ShareGroupMember
from ...dialects.kafka import versions
from ...dialects.kafka.errors import (
    GROUP_NOT_FOUND,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
)
from ...model.errors import Refusal
from ...runtime.turns import TurnCounter, Turns, finish_in_turns, take_turns
from ..base.services import now_us
from .authorized_operations import find_authorized_operations
from .handling import Answer, Context, Fields, Handler, Request, Session
from .pending_responses import coordinator_code

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal
    from ...broker.core.topology import Topic


def handlers(context: Context) -> Mapping[int, Handler]:
    """Return the handlers of this module."""
    groups = ShareGroupHandlers(context)
    return {
        versions.SHARE_GROUP_HEARTBEAT: groups.heartbeat,
        versions.SHARE_GROUP_DESCRIBE: groups.describe,
        versions.DESCRIBE_SHARE_GROUP_OFFSETS: groups.describe_offsets,
        versions.ALTER_SHARE_GROUP_OFFSETS: groups.alter_offsets,
        versions.DELETE_SHARE_GROUP_OFFSETS: groups.delete_offsets,
    }


class ShareGroupHandlers:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._coordinator = context.broker.coordinated_groups
        self._groups = context.broker.coordinated_groups.share

    def heartbeat(self, session: Session, request: Request) -> Answer:
        if (problem := find_problem(request.body)) is not None:
            return {"error_code": INVALID_REQUEST, "error_message": problem}
        return take_turns(self._heartbeat(session, request))

    def _heartbeat(self, session: Session, request: Request) -> Turns[Fields]:
        body, turn = request.body, TurnCounter()
        may_describe = partial(self._context.may_describe, session.principal)
        for name in body.subscribed_topic_names or ():
            if not may_describe(name):
                return {"error_code": TOPIC_AUTHORIZATION_FAILED}
            if turn.is_over():
                yield
        call = ShareGroupHeartbeat(
            body.group_id,
            body.member_id,
            body.member_epoch,
            body.rack_id,
            body.subscribed_topic_names,
            request.client_id or "",
            f"/{session.host}",
        )
        try:
            result = yield from self._groups.heartbeat(call, now_us=now_us())
        except Refusal as refusal:
            return {"error_code": coordinator_code(refusal), "error_message": str(refusal)}
        assignment = None
        if result.assignment is not None:
            assignment = {"topic_partitions": _group_by_topic(result.assignment)}
        return {
            "error_code": NONE,
            "member_id": result.member,
            "member_epoch": result.epoch,
            "heartbeat_interval_ms": result.interval_ms,
            "assignment": assignment,
        }

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
        try:
            group = self._groups.require(name)
        except Refusal as refusal:
            return {"error_code": GROUP_NOT_FOUND, "error_message": str(refusal), "group_id": name}
        turn = TurnCounter()
        for topic in group.topics:
            if not self._context.may_describe(principal, topic):
                return {
                    "error_code": TOPIC_AUTHORIZATION_FAILED,
                    "error_message": "The group has described topic(s) that the client is not authorized to describe.",
                    "group_id": name,
                }
            if turn.is_over():
                yield
        members: list[Fields] = []
        for member in list(group.members.values()):
            members.append(self._describe_member(member))
            if turn.is_over():
                yield
        return {
            "error_code": NONE,
            "group_id": name,
            "group_state": group.state.value,
            "group_epoch": group.epoch,
            "assignment_epoch": group.epoch,
            "assignor_name": ASSIGNOR,
            "members": members,
        }

    def _describe_member(self, member: ShareGroupMember) -> Fields:
        rows = _group_by_topic(member.assigned)
        for row in rows:
            topic = self._context.topics.find_by_uuid(row["topic_id"].bytes)
            row["topic_name"] = "" if topic is None else topic.flat_name
        return {
            "member_id": member.id,
            "rack_id": member.rack,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.host,
            "subscribed_topic_names": sorted(member.names),
            "assignment": {"topic_partitions": rows},
        }

    # -- offsets at which the queues of a group begin

    def describe_offsets(self, session: Session, request: Request) -> Answer:
        return take_turns(self._describe_offsets(session.principal, request.body.groups))

    def _describe_offsets(self, principal: Principal | None, groups: Sequence[Any]) -> Turns[Fields]:
        rows: list[Fields] = []
        turn = TurnCounter()
        for wanted in groups:
            if turn.is_over():
                yield
            name = wanted.group_id
            try:
                self._groups.require(name)
            except Refusal as refusal:
                rows.append(
                    {"group_id": name, "topics": [], "error_code": GROUP_NOT_FOUND, "error_message": str(refusal)}
                )
                continue
            topics: list[Fields] = []
            for topic_name, numbers in self._list_wanted(principal, name, wanted.topics):
                topic = self._context.topics.find_listed(topic_name)
                may_describe = self._context.may_describe(principal, topic_name)
                partitions: list[Fields] = []
                for number in numbers:
                    row = self._describe_offset(name, topic, number) if may_describe else _NO_OFFSET
                    partitions.append({**row, "partition_index": number, **({} if may_describe else _NOT_ALLOWED)})
                    if turn.is_over():
                        yield
                topic_id = topic.uuid if topic is not None and may_describe else bytes(16)
                topics.append({"topic_name": topic_name, "topic_id": UUID(bytes=topic_id), "partitions": partitions})
                if turn.is_over():
                    yield
            rows.append({"group_id": name, "topics": topics, "error_code": NONE})
        return {"groups": rows}

    def _list_wanted(
        self, principal: Principal | None, group: str, topics: Sequence[Any] | None
    ) -> Iterator[tuple[str, Iterable[int]]]:
        """Return the requested topics, or all topics that the group reads and the user may see."""
        if topics is not None:
            for row in topics:
                yield row.topic_name, row.partitions
            return
        found = self._groups.require(group)
        subscribed = [topic_id for name, (topic_id, _) in found.topics.items() if name in found.subscribers]
        for topic_id in dict.fromkeys([*self._groups.list_topics_read(group), *subscribed]):
            topic = self._context.topics.find_by_uuid(topic_id)
            if topic is not None and self._context.may_describe(principal, topic.flat_name):
                yield topic.flat_name, range(len(topic.partitions))

    def _describe_offset(self, group: str, topic: Topic | None, number: int) -> Fields:
        channel = None if topic is None else self._context.broker.share_sessions.find_channel(group, topic)
        if channel is None or not 0 <= number < len(channel.lanes):
            return _NO_OFFSET
        lane = channel.lanes[number]
        lane.follow_retention()
        return {
            "start_offset": lane.oldest,
            "leader_epoch": lane.partition.log.epoch,
            "lag": lane.waiting + lane.in_flight + lane.deferred + lane.leaving,
            "error_code": NONE,
        }

    async def alter_offsets(self, session: Session, request: Request) -> Fields:
        body, sessions = request.body, self._context.broker.share_sessions
        try:
            if self._groups.find(body.group_id) is None:
                self._groups.create(body.group_id)
            sessions.require_empty(body.group_id)
        except Refusal as refusal:
            return {"error_code": coordinator_code(refusal), "error_message": str(refusal), "responses": []}
        await finish_in_turns(sessions.close_left(body.group_id))
        await finish_in_turns(self._open_channels(body.group_id, body.topics))
        results: dict[tuple[str, int], Refusal] = {}

        def seek(name: str, number: int, offset: int) -> None:
            try:
                sessions.require_empty(body.group_id)
                topic = self._require_topic(name)
                if self._context.topics.is_internal(topic):
                    # a log without records, in which a queue has one place to begin
                    topic.partition(number)
                else:
                    sessions.seek(body.group_id, topic, number, offset)
            except Refusal as refusal:
                results[name, number] = refusal

        steps = (
            partial(seek, row.topic_name, one.partition_index, one.start_offset)
            for row in body.topics
            for one in row.partitions
        )
        error = await self._write(steps)
        ids = await finish_in_turns(self._find_ids(body.topics))
        return {
            "error_code": NONE if error is None else coordinator_code(error),
            "error_message": None if error is None else str(error),
            # a generator, which the worker that encodes the response reads
            "responses": (
                {
                    "topic_name": row.topic_name,
                    "topic_id": ids[row.topic_name],
                    "partitions": [
                        {
                            "partition_index": one.partition_index,
                            **_describe_refusal(results.get((row.topic_name, one.partition_index))),
                        }
                        for one in row.partitions
                    ],
                }
                for row in body.topics
            ),
        }

    def _require_topic(self, name: str) -> Topic:
        """Return a topic that is listed. Raises Refusal if it does not exist."""
        topic = self._context.topics.find_listed(name)
        return self._context.broker.topology.resolve(name) if topic is None else topic

    def _open_channels(self, group: str, rows: Iterable[Any]) -> Turns[None]:
        """Create the missing queues of a group, in turns: finding their start by time takes reads."""
        for row in rows:
            with suppress(Refusal):
                # the error is reported for each partition
                topic = self._require_topic(row.topic_name)
                if not self._context.topics.is_internal(topic) and any(
                    0 <= one.partition_index < len(topic.partitions) for one in row.partitions
                ):
                    yield from self._context.broker.share_sessions.open_channel(group, topic)
            yield

    async def delete_offsets(self, session: Session, request: Request) -> Fields:
        body, sessions = request.body, self._context.broker.share_sessions
        try:
            sessions.require_empty(body.group_id)
        except Refusal as refusal:
            return {"error_code": coordinator_code(refusal), "error_message": str(refusal), "responses": []}
        await finish_in_turns(sessions.close_left(body.group_id))
        ids = await finish_in_turns(self._find_ids(body.topics))
        results: dict[str, Refusal] = {}

        def delete(name: str) -> None:
            try:
                sessions.require_empty(body.group_id)
                topic = self._require_topic(name)
                if not self._context.topics.is_internal(topic):
                    sessions.delete_topic(body.group_id, topic)
            except Refusal as refusal:
                results[name] = refusal

        error = await self._write(partial(delete, row.topic_name) for row in body.topics)
        return {
            "error_code": NONE if error is None else coordinator_code(error),
            "error_message": None if error is None else str(error),
            "responses": (
                {
                    "topic_name": row.topic_name,
                    "topic_id": ids[row.topic_name],
                    **_describe_refusal(results.get(row.topic_name)),
                }
                for row in body.topics
            ),
        }

    async def _write(self, steps: Iterable[Callable[[], None]]) -> Refusal | None:
        """Run steps that write to the catalog, with one sync for all; return the error if the disk refuses them."""
        changes = self._context.broker.changes
        try:
            await self._context.services.changes.make(changes.write_all_to_catalog(iter(steps)))
        except Refusal as refusal:
            return refusal
        return None

    def _find_ids(self, rows: Iterable[Any]) -> Turns[dict[str, UUID]]:
        """Return the ids of the topics of some rows by name; topics that do not exist have an id of zeros."""
        turn = TurnCounter()
        ids: dict[str, UUID] = {}
        for row in rows:
            topic = self._context.topics.find_listed(row.topic_name)
            ids[row.topic_name] = UUID(bytes=bytes(16) if topic is None else topic.uuid)
            if turn.is_over():
                yield
        return ids


_NO_OFFSET: Final[Fields] = {"start_offset": -1, "leader_epoch": 0, "lag": -1, "error_code": NONE}
_NOT_ALLOWED: Final[Fields] = {"error_code": TOPIC_AUTHORIZATION_FAILED}


def _describe_refusal(refusal: Refusal | None) -> Fields:
    code = NONE if refusal is None else coordinator_code(refusal)
    return {"error_code": code, "error_message": None if refusal is None else str(refusal)}


def find_problem(body: Any) -> str | None:
    """Return what is wrong with a heartbeat in itself, in Apache Kafka's words; None if nothing is."""
    checks = (
        (not body.member_id, "MemberId can't be empty."),
        (not body.group_id, "GroupId can't be empty."),
        (body.rack_id == "", "RackId can't be empty."),
        (
            body.member_epoch == JOIN_EPOCH and not body.subscribed_topic_names,
            "SubscribedTopicNames must be set in first request.",
        ),
        (body.member_epoch < LEAVE_EPOCH, "MemberEpoch is invalid."),
    )
    return next((problem for is_wrong, problem in checks if is_wrong), None)


def _group_by_topic(places: Collection[Place]) -> list[dict[str, Any]]:
    """Return partitions as rows, by topic and number."""
    numbers: dict[bytes, list[int]] = {}
    for topic_id, number in places:
        numbers.setdefault(topic_id, []).append(number)
    return [{"topic_id": UUID(bytes=topic_id), "partitions": some} for topic_id, some in numbers.items()]
