"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from ...broker.core.record_deletion import delete_before
from ...broker.core.settings import TopicSettings
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
from ..base.services import now_us
from .configs import changes_of, describe_topic
from .creating import create_topic_in_worker
from .fetch import topic_by_id
from .handling import NODE_ID, Context, Fields, Handler, Request, Session

_BY_ID: Final = 6
"""The first version of DeleteTopics that can name topics by id."""
_DEFAULT: Final = -1


class _Refused(Exception):
    """A code and a sentence."""

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
        body = request.body
        times = Counter(topic.name for topic in body.topics)
        rows = []
        for asked in body.topics:
            try:
                if times[asked.name] > 1:
                    raise _Refused(INVALID_REQUEST, f"topic {asked.name!r} is named more than once")
                rows.append(await self._created(asked, validate_only=body.validate_only))
            except (LadingError, _Refused) as error:
                rows.append({"name": asked.name, "error_code": _code(error), "error_message": str(error)})
        return {"topics": rows}

    async def _created(self, asked: Any, *, validate_only: bool) -> Fields:
        if not is_legal(asked.name):
            raise _Refused(INVALID_TOPIC, why_illegal(asked.name))
        if self._exists(asked.name):
            raise _Refused(TOPIC_EXISTS, f"topic {asked.name!r} already exists")
        count = self._partitions_count(asked)
        settings = TopicSettings.parse(changes_of((one.name, one.value) for one in asked.configs))
        row = {"name": asked.name, "error_code": 0, "error_message": None, "num_partitions": count}
        if validate_only:
            return {**row, "replication_factor": 1, "topic_id": UUID(int=0), "configs": []}
        topic = await create_topic_in_worker(self._context, asked.name, count, now_us=now_us, settings=settings)
        configs = describe_topic(self._context, topic)
        return {**row, "replication_factor": 1, "topic_id": UUID(bytes=topic.uuid), "configs": configs}

    def _exists(self, name: str) -> bool:
        try:
            self._broker.resolve(name)
        except Refusal:
            return False
        return True

    def _partitions_count(self, asked: Any) -> int:
        if asked.assignments:
            if asked.num_partitions != _DEFAULT or asked.replication_factor != _DEFAULT:
                raise _Refused(INVALID_REQUEST, "with assignments, partitions and replication factor are -1")
            return _assigned(asked.assignments)
        if asked.replication_factor not in (_DEFAULT, 1):
            raise _Refused(
                INVALID_REPLICATION_FACTOR,
                f"replication factor {asked.replication_factor} is not possible on a single broker; use 1",
            )
        count: int = self._context.settings.partitions if asked.num_partitions == _DEFAULT else asked.num_partitions
        return _checked_count(self._context, count)

    def delete(self, session: Session, request: Request) -> Fields:
        body = request.body
        if request.version < _BY_ID:
            return {"responses": [self._deleted(name, None) for name in body.topic_names]}
        return {"responses": [self._deleted(one.name, one.topic_id) for one in body.topics]}

    def _deleted(self, name: str | None, uuid: UUID | None) -> Fields:
        row: dict[str, Any] = {"name": name, "topic_id": uuid}
        try:
            if name is None:
                topic = topic_by_id(self._broker, uuid.bytes) if uuid is not None else None
                if topic is None:
                    raise _Refused(UNKNOWN_TOPIC_ID, "there is no topic with that id")
            else:
                topic = self._broker.resolve(name)
            row = {"name": topic.flat_name, "topic_id": UUID(bytes=topic.uuid)}
            self._broker.delete_topic(topic.stream.id, topic.id)
        except (LadingError, _Refused) as error:
            return {**row, "error_code": _code(error), "error_message": str(error)}
        return {**row, "error_code": 0}

    def add_partitions(self, session: Session, request: Request) -> Fields:
        body = request.body
        return {"results": [self._grown(one, validate_only=body.validate_only) for one in body.topics]}

    def _grown(self, asked: Any, *, validate_only: bool) -> Fields:
        try:
            topic = self._broker.resolve(asked.name)
            more = asked.count - len(topic.partitions)
            if more < 1:
                raise _Refused(
                    INVALID_PARTITIONS,
                    f"topic {asked.name!r} has {len(topic.partitions)} partitions; {asked.count} would not be more",
                )
            _checked_count(self._context, asked.count)
            if asked.assignments is not None:
                _require_here([one.broker_ids for one in asked.assignments], more)
            if not validate_only:
                self._broker.add_partitions(topic, more)
        except (LadingError, _Refused) as error:
            return {"name": asked.name, "error_code": _code(error), "error_message": str(error)}
        return {"name": asked.name, "error_code": 0}

    def delete_records(self, session: Session, request: Request) -> Fields:
        return {
            "topics": [
                {"name": one.name, "partitions": [self._trimmed(one.name, each) for each in one.partitions]}
                for one in request.body.topics
            ]
        }

    def _trimmed(self, name: str, asked: Any) -> Fields:
        try:
            partition = self._broker.resolve(name).partition(asked.partition_index)
            end = partition.log.last_stable_offset if asked.offset == _DEFAULT else asked.offset
            delete_before(partition, end)
        except LadingError as error:
            return {"partition_index": asked.partition_index, "low_watermark": -1, "error_code": code_of(error)}
        return {"partition_index": asked.partition_index, "low_watermark": partition.log.first_offset, "error_code": 0}


def _checked_count(context: Context, count: int) -> int:
    most = context.services.settings.broker.partitions_per_topic_max
    if not 1 <= count <= most:
        raise _Refused(INVALID_PARTITIONS, f"a topic has 1 to {most} partitions, not {count}")
    return count


def _assigned(assignments: Any) -> int:
    numbers = sorted(one.partition_index for one in assignments)
    if numbers != list(range(len(numbers))):
        raise _Refused(INVALID_REPLICA_ASSIGNMENT, f"assignments name the partitions 0 to {len(numbers) - 1}")
    _require_here([one.broker_ids for one in assignments], len(numbers))
    return len(numbers)


def _require_here(brokers: list[list[int]], count: int) -> None:
    if len(brokers) != count or any(ids != [NODE_ID] for ids in brokers):
        raise _Refused(INVALID_REPLICA_ASSIGNMENT, f"there is one broker: each of {count} assignments is [{NODE_ID}]")


def _code(error: LadingError | _Refused) -> int:
    if isinstance(error, _Refused):
        return error.code
    if isinstance(error, SettingError):
        return INVALID_CONFIG
    return code_of(error)
