"""Replicas and leaders, for tools made for many brokers: here there is one directory and one leader, and nothing moves.

* AlterReplicaLogDirs 1-2, DescribeLogDirs 1-5 (KIP-113). 2 tagged fields; DescribeLogDirs 3 an error of the whole, 4
  size and free bytes of the disk (KIP-827), 5 whether it takes no new partitions (KIP-1066), always false here.
* ElectLeaders 0-2. 1 kinds of elections (KIP-460); 2 tagged fields.
* AlterPartitionReassignments 0-1. 1 whether the number of replicas may change (KIP-860).
* ListPartitionReassignments 0 (KIP-455).
* DescribeQuorum 0-2. 1 times of fetches (KIP-836); 2 error messages, nodes and directory ids (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ...dialects.kafka.errors import (
    ELECTION_NOT_NEEDED,
    INVALID_REPLICA_ASSIGNMENT,
    LOG_DIR_NOT_FOUND,
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    STORAGE_ERROR,
    UNKNOWN_TOPIC,
    code_of,
)
from ...dialects.kafka.versions import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from ...model.errors import LadingError, Refusal
from ...runtime.turns import TurnCounter, Turns, take_turns
from ..base.process import measure_disk
from ..base.services import now_us
from .handling import NODE_ID, Answer, Context, Fields, Handler, Request, Session, free_in_worker

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic

QUORUM_TOPIC: Final = "__cluster_metadata"
"""The topic by which the controllers of Apache Kafka agree; a quorum is described by its one partition."""
_LEADS: Final = "the one broker leads every partition: there is nothing to elect"


def handlers(context: Context) -> Mapping[int, Handler]:
    """Return the handlers of this module."""
    answers = _Handlers(context)
    return {
        DESCRIBE_LOG_DIRS: answers.directories,
        ELECT_LEADERS: answers.elect,
        LIST_PARTITION_REASSIGNMENTS: answers.moving,
        ALTER_PARTITION_REASSIGNMENTS: answers.reassign,
        ALTER_REPLICA_LOG_DIRS: answers.move_directories,
        DESCRIBE_QUORUM: answers.describe_quorum,
    }


class _Handlers:
    def __init__(self, context: Context) -> None:
        self._context = context

    def directories(self, session: Session, request: Request) -> Answer:
        return take_turns(self._describe_directories(request))

    def _describe_directories(self, request: Request) -> Turns[Fields]:
        """Return the data directory, its disk, and the sizes of the requested partitions; null requests all."""
        directory = self._context.services.settings.data.absolute()
        row: dict[str, Any] = {"log_dir": str(directory), "error_code": 0, "topics": []}
        disk = measure_disk(directory)
        if disk is None:
            return {"error_code": 0, "results": [{**row, "error_code": STORAGE_ERROR}]}
        row |= {"total_bytes": disk.total_bytes, "usable_bytes": disk.free_bytes}
        asked = request.body.topics
        if asked is None:
            found = [(topic, topic.partitions) for topic in self._context.topics.list_topics()]
        else:
            found = [place for one in asked if (place := self._place_partitions(one.topic, one.partitions)) is not None]
        row["topics"], turn = [], TurnCounter()
        for topic, partitions in found:
            row["topics"].append({"name": topic.flat_name, "partitions": [_size_row(one) for one in partitions]})
            if turn.is_over(len(partitions)):
                yield
        return {"error_code": 0, "results": [row]}

    def _place_partitions(self, name: str, numbers: Iterable[int]) -> tuple[Topic, list[Partition]] | None:
        """Return the row of a partition; a partition that does not exist has no row."""
        try:
            topic = self._context.topics.find(name)
        except Refusal:
            return None
        return topic, [topic.partitions[number] for number in numbers if 0 <= number < len(topic.partitions)]

    def elect(self, session: Session, request: Request) -> Answer:
        """Refuse elections, as none is ever needed. For all partitions Kafka lists only those with an
        election: none.
        """
        return take_turns(self._elect_leaders(request))

    def _elect_leaders(self, request: Request) -> Turns[Fields]:
        turn, rows = TurnCounter(), []
        for one in request.body.topic_partitions or ():
            found = []
            for number in one.partitions:
                found.append(self._elect_leader(one.topic, number))
                if turn.is_over():
                    yield
            rows.append({"topic": one.topic, "partition_result": free_in_worker(found)})
            if turn.is_over():
                yield
        return {"error_code": 0, "replica_election_results": rows}

    def _elect_leader(self, name: str, number: int) -> Fields:
        try:
            self._context.topics.find(name).partition(number)
        except LadingError as error:
            return {"partition_id": number, "error_code": code_of(error), "error_message": str(error)}
        return {"partition_id": number, "error_code": ELECTION_NOT_NEEDED, "error_message": _LEADS}

    def moving(self, session: Session, request: Request) -> Fields:
        """Return the partitions that are moving to other brokers: none."""
        return {"error_code": 0, "error_message": None, "topics": []}

    def reassign(self, session: Session, request: Request) -> Answer:
        """Assign partitions to this broker, which has them already; another broker does not exist."""
        return take_turns(self._reassign_partitions(request))

    def _reassign_partitions(self, request: Request) -> Turns[Fields]:
        turn, rows = TurnCounter(), []
        for topic in request.body.topics or ():
            found = []
            for one in topic.partitions or ():
                found.append(self._reassign_replicas(topic.name, one.partition_index, one.replicas))
                if turn.is_over():
                    yield
            rows.append({"name": topic.name, "partitions": free_in_worker(found)})
            if turn.is_over():
                yield
        return {"error_code": NONE, "error_message": None, "responses": rows}

    def _reassign_replicas(self, name: str, number: int, replicas: Sequence[int] | None) -> Fields:
        code, message = NONE, None
        try:
            self._context.topics.find(name).partition(number)
        except LadingError as error:
            code, message = code_of(error), str(error)
        else:
            if replicas is None:
                code, message = NO_REASSIGNMENT_IN_PROGRESS, "no partition is on its way to another broker"
            elif list(replicas) != [NODE_ID]:
                code = INVALID_REPLICA_ASSIGNMENT
                message = f"replicas {list(replicas)[:10]}: there is one broker; assign [{NODE_ID}]"
        return {"partition_index": number, "error_code": code, "error_message": message}

    def move_directories(self, session: Session, request: Request) -> Answer:
        """Place partitions in a directory: only the data directory, which has them already, is accepted."""
        return take_turns(self._move_directories(request))

    def _move_directories(self, request: Request) -> Turns[Fields]:
        turn, rows = TurnCounter(), []
        here = str(self._context.services.settings.data.absolute())
        for directory in request.body.dirs:
            for topic in directory.topics:
                found = []
                for number in topic.partitions:
                    code = LOG_DIR_NOT_FOUND if directory.path != here else self._find_code(topic.name, number)
                    found.append({"partition_index": number, "error_code": code})
                    if turn.is_over():
                        yield
                rows.append({"topic_name": topic.name, "partitions": free_in_worker(found)})
                if turn.is_over():
                    yield
        return {"results": rows}

    def _find_code(self, name: str, number: int) -> int:
        try:
            self._context.topics.find(name).partition(number)
        except LadingError as error:
            return code_of(error)
        return NONE

    def describe_quorum(self, session: Session, request: Request) -> Answer:
        """Describe this broker as the only voter; it has no metadata log, and so no offset in it."""
        return take_turns(self._describe_quorum(session, request))

    def _describe_quorum(self, session: Session, request: Request) -> Turns[Fields]:
        turn, rows = TurnCounter(), []
        for topic in request.body.topics:
            found = []
            for one in topic.partitions:
                is_quorum = topic.topic_name == QUORUM_TOPIC and one.partition_index == 0
                found.append(_quorum_row() if is_quorum else _no_quorum_row(one.partition_index))
                if turn.is_over():
                    yield
            rows.append({"topic_name": topic.topic_name, "partitions": free_in_worker(found)})
            if turn.is_over():
                yield
        address = self._context.choose_address(session)
        listener = {"name": "CONTROLLER", "host": address.host, "port": address.port}
        nodes = [{"node_id": NODE_ID, "listeners": [listener]}]
        return {"error_code": NONE, "error_message": None, "topics": rows, "nodes": nodes}


def _quorum_row() -> Fields:
    voter = {
        "replica_id": NODE_ID,
        "replica_directory_id": _NO_DIRECTORY,
        "log_end_offset": 0,
        # as Apache Kafka describes the leader itself
        "last_fetch_timestamp": -1,
        "last_caught_up_timestamp": now_us() // 1000,
    }
    return {
        "partition_index": 0,
        "error_code": NONE,
        "error_message": None,
        "leader_id": NODE_ID,
        "leader_epoch": 1,
        "high_watermark": 0,
        "current_voters": [voter],
        "observers": [],
    }


def _no_quorum_row(number: int) -> Fields:
    return {
        "partition_index": number,
        "error_code": UNKNOWN_TOPIC,
        "error_message": f"a quorum is described by partition 0 of {QUORUM_TOPIC}",
    }


_NO_DIRECTORY: Final = UUID(int=0)


def _size_row(partition: Partition) -> Fields:
    return {
        "partition_index": partition.number,
        "partition_size": partition.log.size_bytes,
        "offset_lag": 0,
        "is_future_key": False,
    }
