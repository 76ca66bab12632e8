"""A member of a share group of a Kafka cluster (KIP-932): acquires messages of one topic and acknowledges them.

A member has one session with each leader, whose requests are numbered; its messages go to other members when the
session ends. The group's coordinator assigns the partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID, uuid4

import numpy as np

from ...dialects.kafka import errors, layout
from ...dialects.kafka.messages import CODE, read_batches
from ...model.chunk_table import (
    BASE_OFFSET,
    BODY_END,
    BODY_START,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
)
from ...model.errors import CorruptError, Reason, Refusal
from ...model.run import Run
from .cluster import GROUP, KafkaCluster, Retriable, kafka_error, raise_for_code
from .socket import KafkaSocket

if TYPE_CHECKING:
    from numpy.typing import NDArray

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Kinds of acknowledgements."""
FETCH_BYTES_MAX: Final = 4 << 20
GROUP_CONFIGS: Final = 32
"""Kind of a resource that has configs: a group."""
_SET: Final = 0
_JOIN, _LEAVE = 0, -1
_OPEN, _CLOSE = 0, -1
_EPOCH_MAX: Final = (1 << 31) - 1
_SPARE_BYTES: Final = layout.SPARE_BYTES
_SESSION_LOST: Final = (errors.SHARE_SESSION_NOT_FOUND, errors.INVALID_SHARE_SESSION_EPOCH)
_MEMBER_LOST: Final = (errors.UNKNOWN_MEMBER, errors.FENCED_MEMBER_EPOCH)
_LEADER_LOST: Final = errors.RETRIABLE | errors.OTHER_TOPIC


class AcquiredMessages(NamedTuple):
    """Messages of a partition that this member has: ranges of (first, last, deliveries), and their batches.

    The batches may contain other messages too.
    """

    partition: int
    run: Run
    ranges: Sequence[tuple[int, int, int]]
    lock_s: float
    """How long this member has them, in seconds."""


class Acknowledgement(NamedTuple):
    """One kind for the messages from ``first`` to ``last``."""

    partition: int
    first: int
    last: int
    kind: int


class ShareMember:
    """One member, for one thread; ``interrupt`` of the cluster ends its waits."""

    def __init__(self, cluster: KafkaCluster, group: str, topic: str, topic_id: bytes) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._topic_id = UUID(bytes=topic_id)
        self._member = str(uuid4())
        self._member_epoch = _JOIN
        self._partitions: set[int] = set()
        self._sessions: dict[KafkaSocket, _Session] = {}
        self.lost: set[int] = set()
        """Partitions of which this member may have lost all its messages, until the caller removes them here."""
        self.confirmed: list[Acknowledgement] = []
        """Acknowledgements that a leader has accepted, until the caller removes them here."""

    def heartbeat(self) -> float:
        """Join, or stay in the group, and take the partitions that it assigns; return when to call again, in seconds.

        Raises Refusal FEATURE_UNAVAILABLE if the cluster has no share groups.
        """

        def ask(broker: KafkaSocket) -> Any:
            if not broker.speaks("ShareGroupHeartbeat") or not broker.speaks("ShareFetch"):
                raise _refuse_cluster()
            answer = broker.ask(
                "ShareGroupHeartbeat", group_id=self._group, member_id=self._member, member_epoch=self._member_epoch,
                rack_id=None, subscribed_topic_names=[self._topic] if self._member_epoch == _JOIN else None,
            )  # fmt: skip
            if answer.error_code == errors.UNSUPPORTED_VERSION:
                raise _refuse_cluster()
            if answer.error_code in _MEMBER_LOST:
                self._member_epoch = _JOIN
                raise Retriable(kafka_error(f"share group {self._group!r}", answer.error_code, answer.error_message))
            raise_for_code(f"share group {self._group!r}", answer.error_code, answer.error_message)
            return answer

        answer = self._cluster.at_coordinator(GROUP, self._group, ask)
        self._member_epoch = answer.member_epoch
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            self._partitions = {part for row in rows if row.topic_id == self._topic_id for part in row.partitions}
        return float(answer.heartbeat_interval_ms / 1000)

    @property
    def has_partitions(self) -> bool:
        """Whether the group has assigned partitions."""
        return bool(self._partitions)

    def fetch(self, count: int, wait_ms: int, settled: Iterable[Acknowledgement]) -> list[AcquiredMessages]:
        """Acknowledge, and acquire about ``count`` messages, in whole batches; wait for some up to ``wait_ms`` over all
        leaders.
        """
        found: list[AcquiredMessages] = []
        rows = _group_by_partition(settled)
        leaders = self._find_leaders(self._partitions | rows.keys())
        for broker, numbers in leaders.items():
            if count <= 0:
                break
            session = self._sessions.setdefault(broker, _Session())
            if session.epoch == _OPEN:
                self._lose_rows(broker, {number: rows.pop(number) for number in numbers if number in rows})
                self._sessions[broker] = session
            wanted = numbers & self._partitions
            changed = wanted ^ session.partitions
            mine = {number: rows.pop(number) for number in numbers if number in rows}
            topics = self._list_topics({number: mine.get(number, []) for number in (changed & wanted) | mine.keys()})
            forgotten = sorted(changed - wanted)
            answer = self._ask(
                broker, "ShareFetch", session, wait_s=wait_ms / 1000, max_wait_ms=wait_ms // len(leaders), min_bytes=1,
                max_bytes=FETCH_BYTES_MAX, max_records=count, batch_size=count, topics=topics,
                forgotten_topics_data=[{"topic_id": self._topic_id, "partitions": forgotten}] if forgotten else [],
            )  # fmt: skip
            if answer is None:
                continue
            session.partitions = set(wanted)
            parts = [part for row in answer.responses for part in row.partitions]
            self._confirm(mine, {part.partition_index for part in parts if part.acknowledge_error_code})
            taken = self._take(answer, mine)
            found += taken
            count -= sum(last - first + 1 for one in taken for first, last, _ in one.ranges)
        if rows:
            self._acknowledge(rows, is_renewal=False)
        return found

    def acknowledge(self, settled: Iterable[Acknowledgement]) -> None:
        """Acknowledge without a fetch; messages that the group does not accept go to other members."""
        self._acknowledge(_group_by_partition(settled), is_renewal=False)

    def renew(self, held: Iterable[Acknowledgement]) -> None:
        """Restart the time for which this member has messages."""
        self._acknowledge(_group_by_partition(held), is_renewal=True)

    def leave(self) -> None:
        """Release everything, and leave the group. Raises the errors of the cluster."""
        for broker, session in list(self._sessions.items()):
            if session.epoch != _OPEN and broker.open:
                session.epoch = _CLOSE
                self._ask(broker, "ShareAcknowledge", session, topics=[])
        self._sessions.clear()
        if self._member_epoch != _JOIN:
            epoch, self._member_epoch = _LEAVE, _JOIN
            self._cluster.coordinator(GROUP, self._group).ask(
                "ShareGroupHeartbeat", group_id=self._group, member_id=self._member, member_epoch=epoch, rack_id=None,
                subscribed_topic_names=None,
            )  # fmt: skip

    def _acknowledge(self, rows: dict[int, list[Acknowledgement]], *, is_renewal: bool) -> None:
        for broker, numbers in self._find_leaders(rows).items():
            session = self._sessions.get(broker)
            mine = {number: rows[number] for number in numbers}
            if session is None or session.epoch == _OPEN:
                self._lose_rows(broker, mine)
                continue
            answer = self._ask(
                broker, "ShareAcknowledge", session, topics=self._list_topics(mine), is_renew_ack=is_renewal
            )
            if answer is None:
                continue
            parts = [part for row in answer.responses for part in row.partitions]
            self._confirm(mine, {part.partition_index for part in parts if part.error_code})
            for part in parts:
                number = part.partition_index
                if part.error_code in _LEADER_LOST:
                    self._lose_partition(number)
                elif part.error_code == errors.INVALID_RECORD_STATE:
                    self._repeat(number, mine[number], is_renewal=is_renewal)

    def _confirm(self, rows: Mapping[int, Sequence[Acknowledgement]], refused: set[int]) -> None:
        for number, settled in rows.items():
            if number not in refused:
                self.confirmed += settled

    def _repeat(self, number: int, rows: Sequence[Acknowledgement], *, is_renewal: bool) -> None:
        """Acknowledge by halves: the leader refuses all if this member no longer has one of the messages."""
        for half in _halve_rows(rows):
            self._acknowledge({number: half}, is_renewal=is_renewal)

    def _find_leaders(self, numbers: Iterable[int]) -> dict[KafkaSocket, set[int]]:
        """Return the partitions of each leader; partitions without a leader now are looked up the next time."""
        found: dict[KafkaSocket, set[int]] = {}
        for number in numbers:
            try:
                found.setdefault(self._cluster.leader(self._topic, number), set()).add(number)
            except Retriable:
                self.lost.add(number)
        return found

    def _list_topics(self, rows: Mapping[int, Sequence[Acknowledgement]]) -> list[dict[str, Any]]:
        partitions = [
            {
                "partition_index": number,
                "acknowledgement_batches": [
                    {"first_offset": one.first, "last_offset": one.last, "acknowledge_types": [one.kind]}
                    for one in settled
                ],
            }
            for number, settled in rows.items()
        ]
        return [{"topic_id": self._topic_id, "partitions": partitions}] if partitions else []

    def _ask(self, broker: KafkaSocket, api: str, session: _Session, *, wait_s: float = 0.0, **fields: Any) -> Any:
        """Return the response of a leader; None if the session was lost, and with it all messages that the member had
        there.
        """
        try:
            answer = broker.ask(
                api, wait_s=wait_s, group_id=self._group, member_id=self._member, share_session_epoch=session.epoch,
                **fields,
            )  # fmt: skip
        except OSError:
            broker.close()
            self._lose_rows(broker, {})
            self._cluster.forget(self._topic)
            raise
        if answer.error_code in _SESSION_LOST:
            self._lose_rows(broker, {})
            return None
        if answer.error_code:
            self._lose_rows(broker, {})
            raise kafka_error(f"share group {self._group!r}", answer.error_code, answer.error_message)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        return answer

    def _take(self, answer: Any, settled: Mapping[int, Sequence[Acknowledgement]]) -> list[AcquiredMessages]:
        found = []
        for row in answer.responses:
            for part in row.partitions:
                if part.acknowledge_error_code == errors.INVALID_RECORD_STATE and part.partition_index in settled:
                    self._repeat(part.partition_index, settled[part.partition_index], is_renewal=False)
                if part.error_code in _LEADER_LOST or part.acknowledge_error_code in _LEADER_LOST:
                    self._lose_partition(part.partition_index)
                elif part.error_code:
                    what = f"topic {self._topic!r}, partition {part.partition_index}"
                    raise kafka_error(what, part.error_code, part.error_message)
                elif part.acquired_records:
                    run = to_run(self._topic, part.partition_index, bytes(part.records or b""))
                    ranges = [(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records]
                    lock_s = answer.acquisition_lock_timeout_ms / 1000
                    found.append(AcquiredMessages(part.partition_index, run, ranges, lock_s))
        return found

    def _lose_rows(self, broker: KafkaSocket, rows: Mapping[int, object]) -> None:
        session = self._sessions.pop(broker, None)
        self.lost |= rows.keys() | (session.partitions if session is not None else set())

    def _lose_partition(self, number: int) -> None:
        self.lost.add(number)
        self._cluster.forget(self._topic)
        for session in self._sessions.values():
            session.partitions.discard(number)


class _Session:
    """The member's session with one leader."""

    def __init__(self) -> None:
        self.epoch = _OPEN
        self.partitions: set[int] = set()
        """The partitions that the leader knows of."""


def set_group_configs(cluster: KafkaCluster, group: str, configs: Mapping[str, str]) -> None:
    """Set configs of a group, whether it exists or not."""
    rows = [{"name": name, "config_operation": _SET, "value": value} for name, value in configs.items()]
    wanted = {"resource_type": GROUP_CONFIGS, "resource_name": group, "configs": rows}
    answer = cluster.ask("IncrementalAlterConfigs", resources=[wanted], validate_only=False)
    for row in answer.responses:
        if row.error_code:
            raise kafka_error(f"configs of share group {group!r}", row.error_code, row.error_message)


def require_share_groups(cluster: KafkaCluster, group: str) -> None:
    """Raise Refusal FEATURE_UNAVAILABLE if the cluster has no share groups."""

    def ask(broker: KafkaSocket) -> None:
        if not broker.speaks("ShareGroupHeartbeat") or not broker.speaks("ShareFetch"):
            raise _refuse_cluster()

    cluster.at_coordinator(GROUP, group, ask)


def _refuse_cluster() -> Refusal:
    return Refusal(
        Reason.FEATURE_UNAVAILABLE,
        "the Kafka cluster has no share groups, which channels need; use Kafka 4.2 or later with share.version 1",
    )


def _group_by_partition(settled: Iterable[Acknowledgement]) -> dict[int, list[Acknowledgement]]:
    """Return acknowledgements by partition, in ascending order; adjacent ones of one kind are joined."""
    rows: dict[int, list[Acknowledgement]] = {}
    for one in sorted(settled):
        row = rows.setdefault(one.partition, [])
        if row and row[-1].last + 1 == one.first and row[-1].kind == one.kind:
            row[-1] = row[-1]._replace(last=one.last)
        else:
            row.append(one)
    return rows


def _halve_rows(rows: Sequence[Acknowledgement]) -> list[list[Acknowledgement]]:
    """Return the two halves of a refused acknowledgement; nothing if it is for one message."""
    if len(rows) > 1:
        return [list(rows[: len(rows) // 2]), list(rows[len(rows) // 2 :])]
    one = rows[0]
    if one.first == one.last:
        return []
    middle = (one.first + one.last) // 2
    return [[one._replace(last=middle)], [one._replace(first=middle + 1)]]


def to_run(topic: str, partition: int, records: bytes) -> Run:
    """Return record batches as chunks. Raises CorruptError if one is damaged."""
    region: NDArray[np.uint8] = np.zeros(len(records) + _SPARE_BYTES, np.uint8)
    region[: len(records)] = np.frombuffer(records, np.uint8)
    found = read_batches(region, 0, len(records))
    if found.reason not in (layout.FINE, layout.CUT):
        raise CorruptError(f"topic {topic!r}, partition {partition}: the record batch {layout.REASONS[found.reason]}")
    table = found.table
    chunks = np.zeros((len(table), 8), np.int64)
    chunks[:, BODY_START], chunks[:, BODY_END] = table[:, layout.START], table[:, layout.END]
    chunks[:, BASE_OFFSET], chunks[:, LAST_OFFSET] = table[:, layout.BASE], table[:, layout.LAST]
    chunks[:, COUNT] = table[:, layout.COUNT]
    chunks[:, MIN_TIMESTAMP_US] = np.clip(table[:, layout.BASE_TIME_MS], 0, layout.TIME_MS_MAX) * 1000
    chunks[:, MAX_TIMESTAMP_US] = np.clip(table[:, layout.MAX_TIME_MS], 0, layout.TIME_MS_MAX) * 1000
    return Run(CODE, region, chunks)
