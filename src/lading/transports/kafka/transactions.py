"""Transactions that several processes prepare and one decides about, with the decision kept in the cluster.

Kafka ties a transaction to one producer. So every task of a piece of work has one of its own, under the transactional
id and the task's number, and leaves it open. To decide, the work's name and all open transactions are stored as the
position of a group (one append of the cluster, so whole or not at all); then each is committed, then the decision is
marked as done. The next process first finishes a stored decision, so after a crash at any point no piece of work is
visible twice, and none stays half visible. A later task of the same number ends what an earlier one left open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ...dialects.kafka import errors
from ...dialects.kafka.encode import ProducerSequence
from ...model.errors import DataLoss, LadingError, LocalError
from ..interface import SendResult
from ..transactions import PreparedTransaction, TransactionDecision
from .cluster import GROUP, TRANSACTION, KafkaCluster, raise_for_code
from .socket import KafkaSocket

if TYPE_CHECKING:
    import pyarrow as pa

TIMEOUT_S: Final = 900.0
"""Time that a transaction may stay open: the longest that a cluster allows by default."""
METADATA_BYTES_MAX: Final = 4000
"""Bytes of metadata that the cluster stores with a position, a little below its default limit."""
DECISION_GROUP_PREFIX: Final = "lading-decisions-"
"""Prefix of the names of groups that store decisions as positions; they read nothing."""
Place = tuple[str, int]


class KafkaTransaction:
    """An open transaction; readers of committed messages do not see what is sent in it.

    Creating it aborts an open transaction with the same id, and fences its writer.
    """

    def __init__(self, cluster: KafkaCluster, id_: str, timeout_s: float) -> None:
        from .writer import KafkaWriter

        self.id = id_
        self._cluster = cluster
        self._places: set[Place] = set()

        def ask(broker: KafkaSocket) -> Any:
            answer = broker.ask(
                "InitProducerId", transactional_id=id_, transaction_timeout_ms=int(timeout_s * 1000), producer_id=-1,
                producer_epoch=-1,
            )  # fmt: skip
            raise_for_code(f"transaction {id_!r} cannot begin", answer.error_code)
            return answer

        answer = cluster.at_coordinator(TRANSACTION, id_, ask)
        self.producer = ProducerSequence(answer.producer_id, answer.producer_epoch, transactional=True)
        self._writer = KafkaWriter(cluster, self)

    def send(
        self, topic: str, partition: int, batch: pa.RecordBatch, *, compression: Literal["lz4"] | None = None
    ) -> SendResult:
        """Send in order, as a transport does."""
        return self._writer.send(topic, partition, batch, strict=False, compression=compression)

    def send_all(
        self, topic: str, parts: Iterable[tuple[int, pa.RecordBatch]], *, compression: Literal["lz4"] | None = None
    ) -> int:
        """Send several batches without waiting for the acknowledgement of each; return the number of messages."""
        return self._writer.send_all(topic, parts, strict=False, compression=compression)

    def add_partition(self, place: Place) -> None:
        """Register a partition of the transaction at the cluster, before writing to it."""
        if place in self._places:
            return

        def ask(broker: KafkaSocket) -> None:
            answer = broker.ask(
                "AddPartitionsToTxn", v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self.producer.id, v3_and_below_producer_epoch=self.producer.epoch,
                v3_and_below_topics=[{"name": place[0], "partitions": [place[1]]}],
            )  # fmt: skip
            for row in answer.results_by_topic_v3_and_below:
                for part in row.results_by_partition:
                    raise_for_code(f"transaction {self.id!r} cannot write to {place[0]!r}", part.partition_error_code)

        self._cluster.at_coordinator(TRANSACTION, self.id, ask)
        self._places.add(place)

    def prepare(self) -> PreparedTransaction | None:
        """Return what another process needs to decide about it, or None if nothing was sent."""
        return PreparedTransaction(self.id, self.producer.id, self.producer.epoch) if self._places else None

    def abort(self) -> None:
        """Abort: the messages never become visible."""
        if self._places:
            end(self._cluster, PreparedTransaction(self.id, self.producer.id, self.producer.epoch), committed=False)


@dataclass(frozen=True, slots=True)
class _StoredDecision:
    """The decision as the cluster stores it: the name of its work, and its transactions until all of them
    are committed.
    """

    work: str
    done: bool
    prepared: tuple[PreparedTransaction, ...] = ()

    def text(self, prefix: str) -> str:
        rows = [[each.id.removeprefix(prefix), each.producer_id, each.epoch] for each in self.prepared]
        return json.dumps([self.work, self.done, rows], separators=(",", ":"))

    @classmethod
    def parse(cls, text: str, prefix: str) -> _StoredDecision:
        work, done, rows = json.loads(text)
        return cls(work, done, tuple(PreparedTransaction(prefix + task, *who) for task, *who in rows))


class KafkaDecision(TransactionDecision):
    """Decision under one transactional id for one topic."""

    def __init__(self, cluster: KafkaCluster, id_: str, topic: str, timeout_s: float = TIMEOUT_S) -> None:
        self._cluster = cluster
        self._id = id_
        self._topic = topic
        self._timeout_s = timeout_s
        self._prefix = f"{id_}-"
        self._group = f"{DECISION_GROUP_PREFIX}{id_}"

    def begin(self, task: int) -> KafkaTransaction:
        """Begin a transaction for the task of this number."""
        return KafkaTransaction(self._cluster, f"{self._prefix}{task}", self._timeout_s)

    def last_decided(self) -> str | None:
        """Return the work decided last, after its commits are finished, or None if nothing was decided yet.

        Raises DataLoss if they cannot be finished, because a transaction timed out after the decision.
        """
        stored = self._read()
        if stored is None:
            return None
        if not stored.done:
            self._finish(stored)
        return stored.work

    def decide(self, work: str, prepared: Sequence[PreparedTransaction]) -> None:
        """Make all of it visible; a repetition for the same work changes nothing. Raises LocalError for too many
        transactions.
        """
        if self.last_decided() != work:
            stored = _StoredDecision(work, False, tuple(prepared))
            self._write(stored)
            self._finish(stored)

    def withdraw(self, work: str, prepared: Sequence[PreparedTransaction]) -> None:
        """Abort it, unless it was decided already; if the cluster cannot be reached now, it times out there."""
        with suppress(LadingError):
            stored = self._read()
            if stored is None or stored.work != work:
                for each in prepared:
                    end(self._cluster, each, committed=False)

    def _finish(self, stored: _StoredDecision) -> None:
        # the coordinator responds to a commit before its markers are written; the response to a second one waits for
        # them
        for each in (*stored.prepared, *stored.prepared):
            try:
                end(self._cluster, each, committed=True)
            except LadingError as error:
                now = self._read()
                if now != stored:
                    # another process has finished the decision meanwhile
                    return
                if getattr(error, "code", None) not in errors.SHUT_OUT:
                    raise
                raise DataLoss(
                    f"{stored.work} was decided, but transaction {each.id!r} was aborted by the cluster before it was "
                    f"committed (it stays open for {self._timeout_s:g} s at most): its messages for topic "
                    f"{self._topic!r} are missing, those of the other tasks are visible. To continue without them, "
                    f"delete the group {self._group!r}"
                ) from error
        self._write(_StoredDecision(stored.work, True))

    def _write(self, stored: _StoredDecision) -> None:
        text = stored.text(self._prefix)
        pieces = [text[at : at + METADATA_BYTES_MAX] for at in range(0, len(text), METADATA_BYTES_MAX)]
        partitions = self._list_partitions()
        if len(pieces) > len(partitions):
            raise LocalError(
                f"{len(stored.prepared)} tasks are too many for one decision about topic {self._topic!r}: coalesce "
                f"the frame to {len(stored.prepared) * len(partitions) // len(pieces)}"
            )
        rows = [
            {"partition_index": partitions[at], "committed_offset": len(pieces), "committed_metadata": piece}
            for at, piece in enumerate(pieces)
        ]

        def ask(broker: KafkaSocket) -> None:
            answer = broker.ask(
                "OffsetCommit", group_id=self._group, generation_id_or_member_epoch=-1, member_id="",
                topics=[{"name": self._topic, "partitions": rows}],
            )  # fmt: skip
            for part in answer.topics[0].partitions:
                raise_for_code(f"the decision about {stored.work} cannot be stored", part.error_code)

        self._cluster.at_coordinator(GROUP, self._group, ask)

    def _read(self) -> _StoredDecision | None:
        wanted = [{"name": self._topic, "partition_indexes": self._list_partitions()}]

        def ask(broker: KafkaSocket) -> Any:
            answer = broker.ask("OffsetFetch", group_id=self._group, topics=wanted, require_stable=True)
            raise_for_code(f"the decisions under {self._id!r}", answer.error_code)
            return sorted(answer.topics[0].partitions, key=lambda row: row.partition_index)

        rows = self._cluster.at_coordinator(GROUP, self._group, ask)
        pieces = rows[0].committed_offset
        if pieces <= 0:
            return None
        return _StoredDecision.parse("".join(row.metadata for row in rows[:pieces]), self._prefix)

    def _list_partitions(self) -> list[int]:
        (row,) = self._cluster.metadata([self._topic]).topics
        return sorted(part.partition_index for part in row.partitions)


def end(cluster: KafkaCluster, prepared: PreparedTransaction, *, committed: bool) -> None:
    """Commit or abort a transaction; returns also if that was done before."""

    def ask(broker: KafkaSocket) -> None:
        answer = broker.ask(
            "EndTxn", transactional_id=prepared.id, producer_id=prepared.producer_id, producer_epoch=prepared.epoch,
            committed=committed,
        )  # fmt: skip
        raise_for_code(
            f"transaction {prepared.id!r} cannot be {'committed' if committed else 'aborted'}", answer.error_code
        )

    cluster.at_coordinator(TRANSACTION, prepared.id, ask)
