"""Delivery of messages sent by many tasks: visible once, all or none of them, as far as the target can promise it.

A Lading broker and a Kafka cluster with a transactional id hide what tasks send until one process decides, so that
each piece of work is visible exactly once. Elsewhere a retry sends messages again: then each message has a header
that is the same in every attempt, by which readers find duplicates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_hexdigest

from ..model.errors import LadingError, LimitExceeded, Reason, Refusal, SettingError
from ..transports.fitting import MessageRefused
from ..transports.interface import HeaderAwareTransport, PipeliningTransport, Transport
from ..transports.lading.transport import LadingTransport
from ..transports.transactions import PreparedTransaction, TransactionalTransport, TransactionDecision
from .header_columns import with_header

Parts = Iterator[tuple[int, pa.RecordBatch]]
"""(Partition, messages), in order."""
OnRefused = Callable[[int, pa.RecordBatch, LadingError], None]
"""Called with a message that the target refused, as a batch of one row, its partition, and the refusal."""
_WORK_BYTES = 8
CONTENT_REASONS: Final = frozenset(
    {
        Reason.EMPTY_PAYLOAD,
        Reason.HEADERS_TOO_LARGE,
        Reason.INVALID_HEADER_KEY,
        Reason.INVALID_HEADER_VALUE,
        Reason.PAYLOAD_TOO_LARGE,
        Reason.REQUEST_TOO_LARGE,
        Reason.UNKNOWN_KIND,
    }
)
"""Refusals because of a message's content: if it is sent again, it is refused again."""


class DeliveryTarget(NamedTuple):
    """Target of messages, and the options that decide how they become visible there."""

    url: str
    """The target as the user typed it, for errors."""
    topic: str
    key_prefix: str
    """Prefix for the names of works in the keys of a Lading broker, such as ``spark/``."""
    transactional_id: str | None = None
    transaction_timeout_s: float | None = None
    dedupe_header: str | None = None


class Task(NamedTuple):
    """One task: the work of all tasks together, and this task's part. All attempts at the task have the same."""

    work: str
    number: int


@dataclass(frozen=True, slots=True)
class SentByTask:
    """Messages that one task attempt sent: the work, and its transaction (None if there is nothing to commit)."""

    transaction: int | PreparedTransaction | None
    work: str
    count: int


class CommitProtocol(Protocol):
    """The commit for one kind of target. ``write`` runs in tasks, the other methods in one process, with the
    transactions.
    """

    def write(self, parts: Parts, task: Task, *, on_refused: OnRefused | None = None) -> SentByTask:
        """Send the messages of one task attempt. A refused message ends it, unless ``on_refused`` leaves it out.

        With ``on_refused`` messages may be sent one at a time: it is for a second attempt, after the first was refused.
        """
        ...

    def commit(self, work: str, sent: Sequence[SentByTask]) -> None:
        """Make the messages of the winning attempts visible. Idempotent."""
        ...

    def abort(self, work: str, sent: Sequence[SentByTask]) -> None:
        """Discard the sent messages, as far as the target can."""
        ...


def choose_commit_protocol(transport: Transport, target: DeliveryTarget) -> CommitProtocol:
    """Return the protocol for this target. Raises SettingError for options that do not apply to it."""
    if target.transactional_id is not None:
        if not isinstance(transport, TransactionalTransport):
            raise SettingError(
                f"transactionalId is for Kafka clusters; {target.url} "
                + ("is exactly once without it" if isinstance(transport, LadingTransport) else "has no transactions")
            )
        decision = transport.decision(target.transactional_id, target.topic, timeout_s=target.transaction_timeout_s)
        return KafkaTransactionCommit(decision, target)
    if isinstance(transport, LadingTransport):
        return LadingTransactionCommit(transport, target)
    return AtLeastOnce(transport, target)


class LadingTransactionCommit:
    """Commits to a Lading broker: one transaction per attempt; the driver commits the winning ones under
    the work's key.
    """

    def __init__(self, transport: LadingTransport, target: DeliveryTarget) -> None:
        self._transport = transport
        self._topic = target.topic
        self._key_prefix = target.key_prefix

    def write(self, parts: Parts, task: Task, *, on_refused: OnRefused | None = None) -> SentByTask:
        """Append in a transaction, which stays open."""
        transaction, count = _send_in_transaction(self._transport, self._topic, task.work, parts, on_refused)
        return SentByTask(transaction, task.work, count)

    def commit(self, work: str, sent: Sequence[SentByTask]) -> None:
        """Commit all transactions together."""
        mine = [one.transaction for one in sent if isinstance(one.transaction, int)]
        self._transport.commit(f"{self._key_prefix}{work}", mine)

    def abort(self, work: str, sent: Sequence[SentByTask]) -> None:
        """Do nothing: the broker aborts open transactions when they time out.

        If a commit succeeded but its response was lost, its messages stay: the retried batch finds the key committed.
        """
        with suppress(LadingError):
            self._transport.abort([one.transaction for one in sent if isinstance(one.transaction, int)])


class KafkaTransactionCommit:
    """Commits to a Kafka cluster with a transactional id: one transaction per task, decided together."""

    def __init__(self, decision: TransactionDecision, target: DeliveryTarget) -> None:
        self._decision = decision
        self._topic = target.topic

    def write(self, parts: Parts, task: Task, *, on_refused: OnRefused | None = None) -> SentByTask:
        """Send in a transaction, which stays open; send nothing if the work is decided already."""
        if self._decision.last_decided() == task.work:
            for _ in parts:
                pass
            return SentByTask(None, task.work, 0)
        transaction = self._decision.begin(task.number)
        try:
            if on_refused is None:
                count = transaction.send_all(self._topic, parts)
            else:
                count = send_accepted(partial(transaction.send, self._topic), parts, on_refused, names_rows=True)
            return SentByTask(transaction.prepare(), task.work, count)
        except BaseException:
            with suppress(LadingError):
                transaction.abort()
            raise

    def commit(self, work: str, sent: Sequence[SentByTask]) -> None:
        """Store the decision, then commit one transaction after the other."""
        self._decision.decide(
            work, [one.transaction for one in sent if isinstance(one.transaction, PreparedTransaction)]
        )

    def abort(self, work: str, sent: Sequence[SentByTask]) -> None:
        """Abort the transactions, unless their commit was decided."""
        self._decision.withdraw(
            work, [one.transaction for one in sent if isinstance(one.transaction, PreparedTransaction)]
        )


class AtLeastOnce:
    """Commits to all other targets: a retry sends messages again, with the same mark."""

    def __init__(self, transport: Transport, target: DeliveryTarget) -> None:
        self._transport = transport
        self._topic = target.topic
        # a mark that the target cannot hold would make it refuse every message
        bare = isinstance(transport, HeaderAwareTransport) and not transport.takes_headers(target.topic)
        self._header = None if bare else target.dedupe_header

    def write(self, parts: Parts, task: Task, *, on_refused: OnRefused | None = None) -> SentByTask:
        """Send each message with its mark."""
        marked = parts if self._header is None else self._all_marked(parts, task)
        if on_refused is not None:
            send = partial(self._transport.send, self._topic)
            return SentByTask(None, task.work, send_accepted(send, marked, on_refused, names_rows=False))
        return SentByTask(None, task.work, _send_all(self._transport, self._topic, marked))

    def commit(self, work: str, sent: Sequence[SentByTask]) -> None:
        """Do nothing: all messages are visible already."""

    def abort(self, work: str, sent: Sequence[SentByTask]) -> None:
        """Do nothing: sent messages stay."""

    def _all_marked(self, parts: Parts, task: Task) -> Parts:
        count = 0
        for number, batch in parts:
            yield number, self._mark_messages(batch, task, count)
            count += batch.num_rows

    def _mark_messages(self, batch: pa.RecordBatch, task: Task, before: int) -> pa.RecordBatch:
        """Return the messages with their mark: the work, the task, the number of the message in it, and a digest.

        The digest covers key, headers and payload: even if the next attempt has its messages in another order,
        different messages have different marks, and a reader that keeps one message of each mark loses none.
        """
        work = hashlib.blake2b(task.work.encode(), digest_size=_WORK_BYTES).hexdigest()
        numbers: Any = pa.array(np.arange(before, before + batch.num_rows)).cast(pa.string())
        prefix: Any = pa.scalar(f"{work}-{task.number}")
        marks: Any = pc.binary_join_element_wise(prefix, numbers, _digest_messages(batch), "-")
        assert self._header is not None
        at = batch.schema.get_field_index("headers")
        headers = with_header(batch.column("headers"), self._header, marks.cast(pa.binary()))
        return batch.set_column(at, batch.schema.field(at), headers)


def _digest_messages(batch: pa.RecordBatch) -> pa.Array[Any]:
    """Return a text for each message that differs if key, headers or payload do, and is the same in each process."""
    headers: Any = batch.column("headers")
    entries = headers.flatten()
    names, kinds, values = (entries.field(number) for number in range(3))
    parts = _join_with_sizes(names.cast(pa.binary()), kinds.cast(pa.string()).cast(pa.binary()), values)
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False)
    ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    joined: Any = pc.binary_join(pa.ListArray.from_arrays(ends, parts), b"")
    texts = _join_with_sizes(batch.column("key"), joined, batch.column("payload"))
    return pa.array([xxh3_64_hexdigest(text.as_buffer()) for text in texts], pa.string())


def _join_with_sizes(*columns: Any) -> Any:
    """Return the joined values of each row, each after its size, so that rows with different values differ."""
    sizes = [pc.binary_length(column).cast(pa.string()).cast(pa.binary()).fill_null(b"") for column in columns]
    return pc.binary_join_element_wise(*sizes, *(column.fill_null(b"") for column in columns), b" ")


def send_once(transport: Transport, target: DeliveryTarget, key: str, parts: Parts) -> int:
    """Send from this process alone, under the name ``key``; return how many messages.

    Over ``lading://`` they become visible once, however often this is repeated. The same holds for a Kafka cluster with
    a transactional id, if nothing else was sent under that id since.
    """
    if isinstance(transport, LadingTransport):
        transaction, count = _send_in_transaction(transport, target.topic, key, parts)
        transport.commit(key, [transaction])
        return count
    protocol = choose_commit_protocol(transport, target)
    sent = protocol.write(parts, Task(key, 0))
    protocol.commit(key, [sent])
    return sent.count


def _send_all(transport: Transport, topic: str, parts: Parts) -> int:
    """Send, with several batches in flight if the transport can; return how many messages."""
    if isinstance(transport, PipeliningTransport):
        return transport.send_all(topic, parts)
    return sum(transport.send(topic, number, batch).count for number, batch in parts)


def refuses_message(error: LimitExceeded | Refusal) -> bool:
    """Return whether the target refused a message because of its content, and not because of the sender, the topic or
    the moment.
    """
    return isinstance(error, LimitExceeded) or error.reason in CONTENT_REASONS


def send_accepted(
    send: Callable[[int, pa.RecordBatch], object], parts: Parts, on_refused: OnRefused, *, names_rows: bool
) -> int:
    """Send the messages that the target accepts; return their number.

    ``names_rows`` means that a refusal names its message, and that earlier messages were accepted and later ones not.
    Otherwise each message is sent alone, so that it is certain which ones were accepted.
    """
    count = 0
    for number, batch in parts:
        first = 0
        while first < batch.num_rows:
            rows = batch.slice(first) if names_rows else batch.slice(first, 1)
            try:
                send(number, rows)
            except (LimitExceeded, Refusal) as error:
                if not refuses_message(error):
                    raise
                row = error.row if isinstance(error, MessageRefused) else None
                if row is None and rows.num_rows > 1:
                    raise
                taken = row or 0
                on_refused(number, rows.slice(taken, 1), error)
                first += taken + 1
            else:
                taken = rows.num_rows
                first += taken
            count += taken
    return count


def _send_in_transaction(
    transport: LadingTransport, topic: str, scope: str, parts: Parts, on_refused: OnRefused | None = None
) -> tuple[int, int]:
    """Append in a transaction that stays open; return its id and the number of messages. An error aborts it.

    The writer is new: no other attempt can continue this transaction, in this process or in a later one.
    """
    transaction = transport.begin(scope)
    try:
        writer = transport.writer(transaction_id=transaction)
        if on_refused is not None:
            count = send_accepted(partial(writer.send, topic), parts, on_refused, names_rows=False)
        else:
            count = 0
            for number, batch in parts:
                writer.send(topic, number, batch)
                count += batch.num_rows
    except BaseException:
        # if it stays open, the broker aborts it when its time is over
        with suppress(Exception):
            transport.abort([transaction])
        raise
    return transaction, count
