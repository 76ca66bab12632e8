"""Replicas and leaders, for tools made for many brokers: one directory, one leader, nothing moves."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...dialects.kafka.errors import ELECTION_NOT_NEEDED, STORAGE_ERROR, code_of
from ...dialects.kafka.versions import DESCRIBE_LOG_DIRS, ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS
from ...model.errors import LadingError, Refusal
from ...turns import TurnCounter, Turns, take_turns
from .handling import Answer, Context, Fields, Handler, Request, Session
from .metadata import expressible

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic

_LEADS: Final = "the one broker leads every partition: there is nothing to elect"


def handlers(context: Context) -> Mapping[int, Handler]:
    """DescribeLogDirs, ElectLeaders and ListPartitionReassignments."""
    answers = _Handlers(context)
    return {
        DESCRIBE_LOG_DIRS: answers.directories,
        ELECT_LEADERS: answers.elect,
        LIST_PARTITION_REASSIGNMENTS: answers.moving,
    }


class _Handlers:
    def __init__(self, context: Context) -> None:
        self._context = context

    def directories(self, session: Session, request: Request) -> Answer:
        return take_turns(self._directories(request))

    def _directories(self, request: Request) -> Turns[Fields]:
        """Return the data directory, its disk, and the size of the partitions asked for; null asks for all."""
        directory = self._context.services.settings.data.absolute()
        row: dict[str, Any] = {"log_dir": str(directory), "error_code": 0, "topics": []}
        try:
            disk = shutil.disk_usage(directory)
        except OSError:
            return {"error_code": 0, "results": [{**row, "error_code": STORAGE_ERROR}]}
        row |= {"total_bytes": disk.total, "usable_bytes": disk.free}
        asked = request.body.topics
        if asked is None:
            found = [(topic, topic.partitions) for topic in expressible(self._context)]
        else:
            found = [place for one in asked if (place := self._place(one.topic, one.partitions)) is not None]
        row["topics"], turn = [], TurnCounter()
        for topic, partitions in found:
            row["topics"].append({"name": topic.flat_name, "partitions": [_size(one) for one in partitions]})
            if turn.is_over(len(partitions)):
                yield
        return {"error_code": 0, "results": [row]}

    def _place(self, name: str, numbers: Iterable[int]) -> tuple[Topic, list[Partition]] | None:
        """Return a partition's row; what does not exist has no size, and no row."""
        try:
            topic = self._context.broker.topology.resolve(name)
        except Refusal:
            return None
        return topic, [topic.partitions[number] for number in numbers if 0 <= number < len(topic.partitions)]

    def elect(self, session: Session, request: Request) -> Fields:
        """No election ever is needed; asked for all partitions, Kafka tells only of those that had one: none."""
        return {
            "error_code": 0,
            "replica_election_results": [
                {"topic": one.topic, "partition_result": [self._elected(one.topic, each) for each in one.partitions]}
                for one in request.body.topic_partitions or ()
            ],
        }

    def _elected(self, name: str, number: int) -> Fields:
        try:
            self._context.broker.topology.resolve(name).partition(number)
        except LadingError as error:
            return {"partition_id": number, "error_code": code_of(error), "error_message": str(error)}
        return {"partition_id": number, "error_code": ELECTION_NOT_NEEDED, "error_message": _LEADS}

    def moving(self, session: Session, request: Request) -> Fields:
        """Return the partitions on their way to other brokers: none."""
        return {"error_code": 0, "error_message": None, "topics": []}


def _size(partition: Partition) -> Fields:
    return {
        "partition_index": partition.number,
        "partition_size": partition.log.size_bytes,
        "offset_lag": 0,
        "is_future_key": False,
    }
