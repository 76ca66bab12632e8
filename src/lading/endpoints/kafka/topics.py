"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords.

* CreateTopics 2-7. 4 -1 for the default of partitions and replicas (KIP-464); 5 the configs that were set, tagged
  fields (KIP-525); 6 THROTTLING_QUOTA_EXCEEDED (KIP-599), never returned here; 7 the topic's id (KIP-516).
* DeleteTopics 1-6. 4 tagged fields; 5 error messages (KIP-599); 6 by id (KIP-516).
* CreatePartitions 0-3. 2 tagged fields; 3 as 2 (KIP-599).
* DeleteRecords 0-2. 2 tagged fields (KIP-107).

Here: every partition has one replica, whatever factor is requested; manual assignments may only name this node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...broker.core.access.rights import Right, topic_resource
from ...broker.core.settings import TopicSettings
from ...broker.core.topics.topology_changes import TopicSpec
from ...broker.core.upkeep.record_deletion import delete_before
from ...dialects.kafka.errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    INVALID_TOPIC,
    TOPIC_EXISTS,
    UNKNOWN_TOPIC_ID,
    code_of,
)
from ...dialects.kafka.names import is_legal, why_illegal
from ...dialects.kafka.versions import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS
from ...model.errors import LadingError, Refusal, SettingError
from ...model.names import DEFAULT_STREAM
from ...runtime.turns import Turn, take_turns
from ..base.services import now_us
from .configs import changes_of, describe_topic
from .handling import NODE_ID, Answer, Context, Fields, Handler, Request, Session, rows_by_topic

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

_BY_ID: Final = 6
"""The first version of DeleteTopics that can name topics by id."""
_DEFAULT: Final = -1
TOPICS_AT_ONCE: Final = 50
"""Topics of one request that are created together, so that their rows of the catalog share a sync."""


class _Refused(Exception):
    """A refusal of one row: a code and a sentence."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def handlers(context: Context) -> Mapping[int, Handler]:
    """CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""
    answers = _Handlers(context)
    return {
        CREATE_TOPICS: answers.create,
        DELETE_TOPICS: answers.delete,
        CREATE_PARTITIONS: answers.add_partitions,
        DELETE_RECORDS: answers.delete_records,
    }


class _Handlers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._broker = context.broker

    async def create(self, session: Session, request: Request) -> Fields:
        body, services = request.body, self._context.services
        times = Counter(topic.name for topic in body.topics)
        rows: list[Fields] = []
        wanted: dict[int, TopicSpec] = {}
        turn = Turn()
        for asked in body.topics:
            await turn.give_way()
            try:
                if times[asked.name] > 1:
                    raise _Refused(INVALID_REQUEST, f"topic {asked.name!r} is named more than once")
                count, settings = self._check_topic(asked)
                if not body.validate_only:
                    stream = await services.changes.make(
                        services.broker.changes.ensure_stream(DEFAULT_STREAM, now_us=now_us())
                    )
                    wanted[len(rows)] = TopicSpec(stream, None, asked.name, count, settings)
                rows.append(_creation_row(asked.name, count))
            except (LadingError, _Refused) as error:
                rows.append(_failure_row(asked.name, error))
        places = list(wanted)
        for at in range(0, len(places), TOPICS_AT_ONCE):
            await self._create_some(rows, {place: wanted[place] for place in places[at : at + TOPICS_AT_ONCE]})
        return {"topics": rows}

    async def _create_some(self, rows: list[Fields], wanted: Mapping[int, TopicSpec]) -> None:
        """Create topics together and complete their rows; if one fails, the others are still created."""
        services = self._context.services
        try:
            created = await services.changes.make(
                services.broker.changes.create_topics(list(wanted.values()), now_us=now_us())
            )
        except LadingError as error:
            created = [error] * len(wanted)
        turn = Turn()
        for (place, asked), topic in zip(wanted.items(), created, strict=True):
            await turn.give_way()
            if isinstance(topic, Exception):
                rows[place] = _failure_row(asked.name, topic)
            else:
                configs = describe_topic(self._context, topic)
                rows[place] = {**rows[place], "topic_id": UUID(bytes=topic.uuid), "configs": configs}

    def _check_topic(self, asked: Any) -> tuple[int, TopicSettings]:
        """Return the number of partitions and the settings for a topic. Raises the error for invalid ones."""
        if not is_legal(asked.name):
            raise _Refused(INVALID_TOPIC, why_illegal(asked.name))
        if self._exists(asked.name):
            raise _Refused(TOPIC_EXISTS, f"topic {asked.name!r} already exists")
        count = self._partitions_count(asked)
        return count, TopicSettings.parse(changes_of((one.name, one.value) for one in asked.configs))

    def _exists(self, name: str) -> bool:
        try:
            self._context.topics.find(name)
        except Refusal:
            return False
        return True

    def _partitions_count(self, asked: Any) -> int:
        if asked.assignments:
            if asked.num_partitions != _DEFAULT or asked.replication_factor != _DEFAULT:
                raise _Refused(INVALID_REQUEST, "with assignments, partitions and replication factor are -1")
            return _count_assignments(asked.assignments)
        if asked.replication_factor not in (_DEFAULT, 1):
            raise _Refused(
                INVALID_REPLICATION_FACTOR,
                f"replication factor {asked.replication_factor} is not possible on a single broker; use 1",
            )
        count: int = self._context.settings.partitions if asked.num_partitions == _DEFAULT else asked.num_partitions
        return _check_count(self._context, count)

    async def delete(self, session: Session, request: Request) -> Fields:
        body, turn, rows = request.body, Turn(), []
        if request.version < _BY_ID:
            for name in body.topic_names:
                rows.append(await self._delete_topic(name, None))
                await turn.give_way()
            return {"responses": rows}
        for one in body.topics:
            rows.append(await self._delete_topic(one.name, one.topic_id, session))
            await turn.give_way()
        return {"responses": rows}

    async def _delete_topic(self, name: str | None, uuid: UUID | None, session: Session | None = None) -> Fields:
        row: dict[str, Any] = {"name": name, "topic_id": uuid}
        try:
            if name is None:
                topic = self._context.topics.find_by_uuid(uuid.bytes) if uuid is not None else None
                if topic is None:
                    raise _Refused(UNKNOWN_TOPIC_ID, "no topic has that id")
                if session is not None and not self._may_delete(session, topic):
                    # checked one by one: a rule about this topic may deny what another one allows for all
                    raise _Refused(UNKNOWN_TOPIC_ID, "no topic has that id")
            else:
                topic = self._context.topics.find(name)
            row = {"name": topic.flat_name, "topic_id": UUID(bytes=topic.uuid)}
            self._context.topics.require_changeable(topic)
            await self._context.services.changes.make_in_turn(topic, self._broker.changes.delete_topic(topic))
        except (LadingError, _Refused) as error:
            return {**row, "error_code": _code_for(error), "error_message": str(error)}
        return {**row, "error_code": 0}

    def _may_delete(self, session: Session, topic: Topic) -> bool:
        resource = topic_resource(topic.stream.name, topic.name)
        return self._broker.access.allows(session.principal, Right.DELETE, resource)

    async def add_partitions(self, session: Session, request: Request) -> Fields:
        body, turn, rows = request.body, Turn(), []
        for one in body.topics:
            rows.append(await self._add_partitions(one, validate_only=body.validate_only))
            await turn.give_way()
        return {"results": rows}

    async def _add_partitions(self, asked: Any, *, validate_only: bool) -> Fields:
        try:
            topic = self._context.topics.find_to_change(asked.name)
            more = asked.count - len(topic.partitions)
            if more < 1:
                raise _Refused(
                    INVALID_PARTITIONS,
                    f"topic {asked.name!r} has {len(topic.partitions)} partitions; {asked.count} would not be more",
                )
            _check_count(self._context, asked.count)
            if asked.assignments is not None:
                _require_here([one.broker_ids for one in asked.assignments], more)
            if not validate_only:
                await self._context.services.changes.make_in_turn(
                    topic, self._broker.changes.add_partitions(topic, more)
                )
        except (LadingError, _Refused) as error:
            return {"name": asked.name, "error_code": _code_for(error), "error_message": str(error)}
        return {"name": asked.name, "error_code": 0}

    def delete_records(self, session: Session, request: Request) -> Answer:
        return take_turns(rows_by_topic(request.body.topics, "name", self._delete_records_before, rows_at_once=1))

    def _delete_records_before(self, name: str, asked: Any) -> Fields:
        try:
            partition = self._context.topics.find_to_change(name).partition(asked.partition_index)
            end = partition.log.last_stable_offset if asked.offset == _DEFAULT else asked.offset
            delete_before(partition, end)
        except LadingError as error:
            return {"partition_index": asked.partition_index, "low_watermark": -1, "error_code": code_of(error)}
        return {"partition_index": asked.partition_index, "low_watermark": partition.log.first_offset, "error_code": 0}


def _creation_row(name: str, partitions_count: int) -> Fields:
    return {
        "name": name,
        "error_code": 0,
        "error_message": None,
        "num_partitions": partitions_count,
        "replication_factor": 1,
        "topic_id": UUID(int=0),
        "configs": [],
    }


def _failure_row(name: str, error: LadingError | _Refused) -> Fields:
    return {"name": name, "error_code": _code_for(error), "error_message": str(error)}


def _check_count(context: Context, count: int) -> int:
    most = context.services.settings.broker.partitions_per_topic_max
    if not 1 <= count <= most:
        raise _Refused(INVALID_PARTITIONS, f"a topic has 1 to {most} partitions, not {count}")
    return count


def _count_assignments(assignments: Any) -> int:
    numbers = sorted(one.partition_index for one in assignments)
    if numbers != list(range(len(numbers))):
        raise _Refused(INVALID_REPLICA_ASSIGNMENT, f"assignments name the partitions 0 to {len(numbers) - 1}")
    _require_here([one.broker_ids for one in assignments], len(numbers))
    return len(numbers)


def _require_here(brokers: list[list[int]], count: int) -> None:
    if len(brokers) != count or any(ids != [NODE_ID] for ids in brokers):
        raise _Refused(INVALID_REPLICA_ASSIGNMENT, f"there is one broker: each of {count} assignments is [{NODE_ID}]")


def _code_for(error: LadingError | _Refused) -> int:
    if isinstance(error, _Refused):
        return error.code
    if isinstance(error, SettingError):
        return INVALID_CONFIG
    return code_of(error)
