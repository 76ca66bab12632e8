"""How what a job or micro-batch sends becomes visible: by what the target can promise (design.md Spark).

A Lading broker and a Kafka cluster with a transactional id hide what tasks send until the driver decides, so that
each batch is there once. Elsewhere a batch that is tried again is sent again: then every message has a header that is
the same in each try, by which readers find repetitions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from ..client.header_columns import with_header
from ..model.errors import LadingError, SettingError
from ..tables.options import SinkOptions
from ..transports.interface import (
    HeaderAwareTransport,
    PipeliningTransport,
    PreparedTransaction,
    TransactionalTransport,
    TransactionDecision,
    Transport,
)
from ..transports.lading.blocks import WRITER_ID_BYTES
from ..transports.lading.transport import LadingTransport

Parts = Iterator[tuple[int, pa.RecordBatch]]
"""(Partition, messages), in order."""
_WORK_BYTES = 8


class Task(NamedTuple):
    """One attempt of one task: of which work all tasks together do, which part, which try."""

    work: str
    number: int
    attempt: int


@dataclass
class TaskCommit(WriterCommitMessage):
    """What one task attempt sent: its transaction (None where there is none to decide about), for which work."""

    transaction: int | PreparedTransaction | None
    work: str
    count: int


class CommitProtocol(Protocol):
    """One way. ``write`` runs in tasks, the others in the driver, with what has a transaction."""

    def write(self, parts: Parts, task: Task) -> TaskCommit:
        """Send what one task attempt has."""
        ...

    def commit(self, work: str, sent: Sequence[TaskCommit]) -> None:
        """Make all that the winning attempts sent readable; a repeat changes nothing."""
        ...

    def abort(self, work: str, sent: Sequence[TaskCommit]) -> None:
        """Take back what was sent, as far as it can be."""
        ...


def choose_commit_protocol(transport: Transport, options: SinkOptions) -> CommitProtocol:
    """The way for this target; SettingError for options that it has no use for."""
    if options.transactional_id is not None:
        if not isinstance(transport, TransactionalTransport):
            raise SettingError(
                f"transactionalId is for Kafka clusters; {options.to} "
                + ("is exactly once without it" if isinstance(transport, LadingTransport) else "has no transactions")
            )
        decision = transport.decision(options.transactional_id, options.topic, timeout_s=options.transaction_timeout_s)
        return KafkaTransactionCommit(decision, options)
    if isinstance(transport, LadingTransport):
        return LadingTransactionCommit(transport, options)
    return AtLeastOnce(transport, options)


class LadingTransactionCommit:
    """To a Lading broker: one transaction an attempt; the driver commits those that won under the work's key."""

    def __init__(self, transport: LadingTransport, options: SinkOptions) -> None:
        self._transport = transport
        self._topic = options.topic

    def write(self, parts: Parts, task: Task) -> TaskCommit:
        """Append under an open transaction."""
        transaction = self._transport.begin(task.work)
        try:
            name = f"{task.work}/{task.number}/{task.attempt}"
            writer_id = hashlib.blake2b(name.encode(), digest_size=WRITER_ID_BYTES).digest()
            writer = self._transport.writer(writer_id, 0, transaction)
            count = 0
            for number, batch in parts:
                writer.send(self._topic, number, batch)
                count += batch.num_rows
            return TaskCommit(transaction, task.work, count)
        except BaseException:
            with suppress(LadingError):
                self._transport.abort([transaction])
            raise

    def commit(self, work: str, sent: Sequence[TaskCommit]) -> None:
        """Make all readable at once."""
        self._transport.commit(f"spark/{work}", [one.transaction for one in sent if isinstance(one.transaction, int)])

    def abort(self, work: str, sent: Sequence[TaskCommit]) -> None:
        """What stays open the broker aborts when its time is over.

        What a commit showed already, whose answer was lost, stays: the batch comes again and finds its key.
        """
        with suppress(LadingError):
            self._transport.abort([one.transaction for one in sent if isinstance(one.transaction, int)])


class KafkaTransactionCommit:
    """To a Kafka cluster with a transactional id: one transaction a task, decided about together."""

    def __init__(self, decision: TransactionDecision, options: SinkOptions) -> None:
        self._decision = decision
        self._topic = options.topic

    def write(self, parts: Parts, task: Task) -> TaskCommit:
        """Send in an open transaction; nothing where the work was decided about already."""
        if self._decision.last_decided() == task.work:
            for _ in parts:
                pass
            return TaskCommit(None, task.work, 0)
        transaction = self._decision.begin(task.number)
        try:
            count = transaction.send_all(self._topic, parts)
            return TaskCommit(transaction.prepare(), task.work, count)
        except BaseException:
            with suppress(LadingError):
                transaction.abort()
            raise

    def commit(self, work: str, sent: Sequence[TaskCommit]) -> None:
        """Decide, then commit one transaction after the other."""
        self._decision.decide(
            work, [one.transaction for one in sent if isinstance(one.transaction, PreparedTransaction)]
        )

    def abort(self, work: str, sent: Sequence[TaskCommit]) -> None:
        """Abort them, unless they were decided about."""
        self._decision.withdraw(
            work, [one.transaction for one in sent if isinstance(one.transaction, PreparedTransaction)]
        )


class AtLeastOnce:
    """To all others: what is tried again is sent again, with the same mark."""

    def __init__(self, transport: Transport, options: SinkOptions) -> None:
        self._transport = transport
        self._topic = options.topic
        # a mark that the target cannot hold would refuse everything
        bare = isinstance(transport, HeaderAwareTransport) and not transport.takes_headers(options.topic)
        self._header = None if bare else options.dedupe_header

    def write(self, parts: Parts, task: Task) -> TaskCommit:
        """Send, each message with its mark."""
        marked = parts if self._header is None else self._all_marked(parts, task)
        if isinstance(self._transport, PipeliningTransport):
            return TaskCommit(None, task.work, self._transport.send_all(self._topic, marked))
        count = sum(self._transport.send(self._topic, number, batch).count for number, batch in marked)
        return TaskCommit(None, task.work, count)

    def commit(self, work: str, sent: Sequence[TaskCommit]) -> None:
        """Everything is readable already."""

    def abort(self, work: str, sent: Sequence[TaskCommit]) -> None:
        """What was sent stays."""

    def _all_marked(self, parts: Parts, task: Task) -> Parts:
        count = 0
        for number, batch in parts:
            yield number, self._marked(batch, task, count)
            count += batch.num_rows

    def _marked(self, batch: pa.RecordBatch, task: Task, before: int) -> pa.RecordBatch:
        """The messages with their mark: the work, the task, and which of its messages each is."""
        work = hashlib.blake2b(task.work.encode(), digest_size=_WORK_BYTES).hexdigest()
        numbers: Any = pa.array(np.arange(before, before + batch.num_rows)).cast(pa.string())
        prefix: Any = pa.scalar(f"{work}-{task.number}-")
        marks: Any = pc.binary_join_element_wise(prefix, numbers, "")
        assert self._header is not None
        at = batch.schema.get_field_index("headers")
        headers = with_header(batch.column("headers"), self._header, marks.cast(pa.binary()))
        return batch.set_column(at, batch.schema.field(at), headers)
