"""Producers with ids, and transactions of producers with a name, which are begun, decided once, and ended in every
partition.

A name has one id and an epoch; a producer that asks for the id again fences the one before. A decision is in the
catalog, with the positions that it commits, before control records go to the partitions: after a crash the next start
completes it. An open transaction stays open over a restart, until its producer or its time-out ends it (kafka.md 2.4,
3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from ...log.catalog_rows import PositionRow
from ...log.producer_table import ProducerRow, ProducerTable
from ...model.errors import Reason, Refusal
from ...runtime.turns import Turn
from ..core.append.append import Write
from ..core.component import NEVER_US, SOON_US, Component, partitions_of
from ..core.pending_append import Append
from ..core.pending_result import PendingResult
from ..core.position import PositionKey, StoredPosition
from ..core.positions import Positions
from ..core.topology import Partition, Topic
from .append import ActiveProducer, BatchSequence, KafkaAppender, producer_of, writer_of
from .transactional_producer import (
    COMMITS,
    DECIDED,
    ENDED,
    Caller,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionalProducer,
    describe,
    fenced_error,
    no_transaction_error,
    transaction_in_progress_error,
)

EPOCH_MAX: Final = (1 << 15) - 2
"""The highest epoch that producers get; the one above it shuts out a producer whose time is over."""
ABORTING_S: Final = 0.008
"""How long one tick aborts transactions that are late: some twenty or more."""
IDS_AT_ONCE: Final = 1000
IDS_PER_SECOND: Final = 1 << 20
ID_MAX: Final = 1 << 62
"""The highest producer id that is accepted; this broker assigns none above it."""


class TransactionCoordinator(Component):
    """All producers of a broker. Ids, epochs and decisions are on disk before a call returns."""

    def __init__(
        self, table: ProducerTable, produced: KafkaAppender, positions: Positions, timeout_us_max: int
    ) -> None:
        self._table = table
        self._produced = produced
        self._positions = positions
        self._timeout_us_max = timeout_us_max
        self._names: dict[str, TransactionalProducer] = {}
        self._ids: dict[int, TransactionalProducer] = {}
        self._busy: set[TransactionalProducer] = set()
        """Producers whose transaction is open, or decided but not yet ended in every partition."""
        self._orphans = OrphanedBatches(produced)
        """Ended by the next ``tick``."""
        self.ids = ProducerIds(table, produced)

    def load(self, topics: Sequence[Topic]) -> None:
        """Load producers and transactions after a start; the first ``tick`` writes missing control records."""
        for row in self._table.rows():
            self._names[row.name] = self._ids[row.id] = producer = TransactionalProducer(row)
            producer.reloaded = producer.state is ProducerState.ONGOING
            if producer.reloaded or producer.state in ENDED:
                self._busy.add(producer)
        places = {(partition.topic.uuid, partition.number): partition for partition in partitions_of(topics)}
        for name, waits in self._table.waiting():
            partition = places.get((waits.topic, waits.partition))
            if partition is not None and name in self._names:
                key = PositionKey(waits.protocol, waits.consumer)
                stored = StoredPosition(waits.offset, waits.epoch, waits.extra, waits.updated_us)
                self._names[name].pending_offsets[partition, key] = stored
        for place in places.values():
            for writer in () if place.writers is None else place.writers.open_by_writer:
                owner = self._ids.get(producer_of(writer))
                if owner is not None and owner in self._busy:
                    owner.partitions.add(place)
                else:
                    self._orphans.add(place, writer)

    def init_producer_id(
        self, name: str | None, timeout_us: int, known: ProducerIdAndEpoch | None, *, now_us: int
    ) -> PendingResult[ProducerIdAndEpoch]:
        """Return an identity to produce under, fence the name's former owner, and abort its open transaction.

        ``known`` is the caller's former identity; raises PRODUCER_FENCED if the name has a newer one.
        """
        if name is None:
            return PendingResult.of(ProducerIdAndEpoch(self.ids.take(), 0))
        if not 0 < timeout_us <= self._timeout_us_max:
            raise Refusal(
                Reason.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction of producer {name!r} may stay open for 1 to {self._timeout_us_max // 1000} ms, "
                f"not {timeout_us // 1000}",
            )
        producer = self._names.get(name)
        if producer is None:
            row = ProducerRow(name, self.ids.take(), 0, ProducerState.EMPTY, timeout_us, 0, now_us)
            self._table.put(row)
            self._names[name] = self._ids[row.id] = producer = TransactionalProducer(row)
            return PendingResult.of(producer.identity)
        if known is not None and known != producer.identity:
            if known == producer.before:
                return PendingResult.of(producer.identity)
            raise fenced_error(name, known, producer.identity)
        self._require_idle(producer)
        if producer.state is not ProducerState.ONGOING:
            self._renew(producer, timeout_us, now_us)
            return PendingResult.of(producer.identity)
        answer: PendingResult[ProducerIdAndEpoch] = PendingResult()

        def aborted(_: PendingResult[None]) -> None:
            try:
                self._require_idle(producer)
                self._renew(producer, timeout_us, now_us)
            except Refusal as refusal:
                answer.refuse(refusal)
            else:
                answer.finish(producer.identity)

        self._carry_out_decision(producer, False, now_us, fence=True)
        producer.ended.add_done_callback(aborted)
        return answer

    def add_partitions(self, caller: Caller, partitions: Iterable[Partition], *, now_us: int) -> None:
        """Add partitions to the caller's transaction, which is begun if none is open."""
        producer = self._require(caller)
        self._open(producer, now_us)
        producer.partitions.update(partitions)

    def require_partitions(self, caller: Caller, partitions: Iterable[Partition]) -> None:
        """Raise TRANSACTION_NOT_OPEN unless the caller's open transaction has all of the partitions."""
        producer = self._require(caller)
        self._require_open(producer)
        if not producer.partitions.issuperset(partitions):
            raise no_transaction_error(producer)

    def add_offsets(self, caller: Caller, *, now_us: int) -> None:
        """Let the caller's transaction, which is begun if none is open, store positions."""
        self._open(self._require(caller), now_us)

    def store_positions(
        self, caller: Caller, positions: Mapping[tuple[Partition, PositionKey], StoredPosition]
    ) -> None:
        """Add positions to the caller's transaction; they are stored when it is committed, and only then."""
        producer = self._require(caller)
        self._require_open(producer)
        self._table.wait(caller.name, [_make_row(*place, stored) for place, stored in positions.items()])
        producer.pending_offsets.update(positions)

    def waits(self, partition: Partition, key: PositionKey) -> bool:
        """Return whether an open transaction may replace this position."""
        return any((partition, key) in producer.pending_offsets for producer in self._busy)

    def end(self, caller: Caller, committed: bool, *, now_us: int) -> PendingResult[None]:
        """Decide the caller's transaction, done when it is ended in every partition; may be repeated."""
        producer = self._require(caller)
        state = producer.state
        if state is ENDED[DECIDED[committed]]:
            return PendingResult.of(None)
        if state is DECIDED[committed] and not producer.ended.done:
            return producer.ended
        self._require_open(producer)
        return self._decide_when_durable(producer, committed, now_us, new_epoch=False)

    def end_with_new_epoch(self, caller: Caller, committed: bool, *, now_us: int) -> PendingResult[ProducerIdAndEpoch]:
        """Decide the caller's transaction as ``end`` does, and return the identity for the next one (KIP-890).

        A late batch of this transaction is then fenced by its epoch. An abort without an open transaction gives a new
        epoch as well; may be repeated.
        """
        theirs = ProducerIdAndEpoch(caller.producer_id, caller.epoch)
        producer = self._names.get(caller.name)
        if producer is not None and producer.has_ended_as(theirs):
            return self._repeat_end(producer, theirs, committed)
        producer = self._require(caller)
        self._require_idle(producer)
        if producer.state is ProducerState.ONGOING:
            ended = self._decide_when_durable(producer, committed, now_us, new_epoch=True)
        elif committed:
            raise no_transaction_error(producer)
        else:
            producer.ended = ended = PendingResult()
            self._busy.add(producer)
            self._carry_out_decision(producer, False, now_us, fence=True)
        answer: PendingResult[ProducerIdAndEpoch] = PendingResult()

        def give_identity(done: PendingResult[None]) -> None:
            if done.error is not None:
                answer.refuse(done.error)
                return
            if producer.row.epoch > EPOCH_MAX and producer.state in ENDED.values():
                try:
                    self._renew(producer, producer.row.timeout_us, now_us)
                except Refusal as refusal:
                    answer.refuse(refusal)
                    return
            producer.ended_as = theirs
            answer.finish(producer.identity)

        ended.add_done_callback(give_identity)
        return answer

    def _repeat_end(
        self, producer: TransactionalProducer, theirs: ProducerIdAndEpoch, committed: bool
    ) -> PendingResult[ProducerIdAndEpoch]:
        """Return the result of the decision that was made under this identity, if it was the same one."""
        if producer.state in DECIDED.values() and producer.state is not DECIDED[committed]:
            raise no_transaction_error(producer)
        if producer.state in ENDED.values() and producer.state is not ENDED[DECIDED[committed]]:
            raise no_transaction_error(producer)
        if producer.state in DECIDED.values() or producer.ending:
            # Apache Kafka has the client ask again as well
            raise transaction_in_progress_error(producer)
        return PendingResult.of(producer.identity)

    def _decide_when_durable(
        self, producer: TransactionalProducer, committed: bool, now_us: int, *, new_epoch: bool
    ) -> PendingResult[None]:
        """Decide an open transaction when all that it has written is on disk; done when it is ended everywhere."""
        producer.ending = True
        left = [
            append
            for partition in producer.partitions
            if (append := self._produced.append_when_durable(partition)) is not None
        ]
        answer: PendingResult[None] = PendingResult()
        waiting = len(left)

        def lasts(append: Append | None) -> None:
            nonlocal waiting
            waiting -= append is not None
            if waiting or answer.done:
                return
            producer.ending = False
            lost = next((one.error for one in left if one.error is not None), None)
            try:
                if lost is not None and committed:
                    raise lost
                self._carry_out_decision(producer, committed, now_us, fence=new_epoch)
            except Refusal as refusal:
                answer.refuse(refusal)
            else:
                producer.ended.add_done_callback(lambda _: answer.finish(None))

        for append in left:
            append.add_done_callback(lasts)
        if not left:
            lasts(None)
        return answer

    def append(
        self, partition: Partition, batch: BatchSequence, room_bytes: int, write: Write, source: object = None
    ) -> Append:
        """Append a numbered batch once, see ``KafkaAppender.append``; refused outside of an open transaction."""
        producer = self._ids.get(batch.producer_id)
        if producer is None:
            if batch.transactional:
                raise Refusal(Reason.PRODUCER_UNKNOWN, f"producer {batch.producer_id} has no name; ask for its id")
        else:
            if batch.epoch != producer.row.epoch:
                raise fenced_error(
                    producer.row.name, ProducerIdAndEpoch(batch.producer_id, batch.epoch), producer.identity
                )
            if not batch.transactional:
                raise Refusal(
                    Reason.TRANSACTION_NOT_OPEN, f"{describe(producer)} writes in transactions only; begin one first"
                )
            self._require_open(producer)
            if producer.reloaded:
                producer.partitions.add(partition)
            elif partition not in producer.partitions:
                raise Refusal(
                    Reason.TRANSACTION_NOT_OPEN,
                    f"the transaction of {describe(producer)} has not named {partition}; "
                    "add the partition to the transaction first",
                )
        return self._produced.append(partition, batch, room_bytes, write, source)

    def find_next(self, partition: Partition, batches: Sequence[BatchSequence]) -> list[int]:
        """Return the places of the batches, of no transaction, that ``append_next`` may append together.

        ``append`` refuses the others, or finds the earlier append: they are repeated, fenced or out of sequence, or
        their producer has a name, and so writes in transactions only.
        """
        places = self._produced.find_next(partition, batches)
        return [place for place in places if batches[place].producer_id not in self._ids]

    def append_next(
        self, partition: Partition, batches: Sequence[BatchSequence], room_bytes: int, write: Write, source: object
    ) -> Append:
        """Append batches together that ``find_next`` has found. Raises Refusal."""
        return self._produced.append_next(partition, batches, room_bytes, write, source)

    def end_in_partition(
        self, partition: Partition, identity: ProducerIdAndEpoch, committed: bool, *, now_us: int
    ) -> Append | None:
        """End a producer's transaction in a partition at an administrator's request; see ``append_when_durable``.

        An open transaction is aborted as a whole and its producer fenced: a commit after an abort of a part would
        lose that part. Raises TRANSACTION_NOT_OPEN if the decision is another one: only producers commit.
        """
        producer_id, writer, writers = identity.producer_id, writer_of(identity.producer_id), partition.writers
        owner, known = self._ids.get(producer_id), None if writers is None else writers.get(writer)
        # of several partitions that are named one after another, the first has fenced the producer in all of them
        is_repeated = not committed and owner is not None and owner.has_fenced(identity.epoch)
        if known is not None and identity.epoch < known.epoch and not is_repeated:
            raise fenced_error(f"{producer_id}", identity, ProducerIdAndEpoch(producer_id, known.epoch))
        if writers is not None and writer in writers.open_by_writer:
            if owner is not None and owner.state is ProducerState.ONGOING and not committed:
                self._require_idle(owner)
                self._carry_out_decision(owner, False, now_us, fence=True)
            if committed != self._is_committed(producer_id):
                raise Refusal(
                    Reason.TRANSACTION_NOT_OPEN,
                    f"the transaction of producer {producer_id} ends otherwise; wait until it has ended",
                )
            refused = self._mark(owner, now_us) if owner is not None and owner in self._busy else []
            if writer in writers.open_by_writer:
                if refused:
                    raise refused[0]
                self._orphans.mark(partition, writer, committed, now_us)
        return self._produced.append_when_durable(partition)

    def list_aborted(self, partition: Partition, first: int, end: int) -> list[tuple[int, int]]:
        """See ``KafkaAppender.list_aborted``."""
        return self._produced.list_aborted(partition, first, end)

    @property
    def due_us(self) -> int:
        """The time of the next tick, if transactions are open or their ends are not written everywhere."""
        return SOON_US if self._busy or self._orphans else NEVER_US

    def tick(self, now_us: int) -> None:
        """Abort transactions that were open for too long and fence their producers; write the control records that are
        missing.
        """
        refused = self._orphans.mark_all(self._is_committed, now_us)
        turn = Turn(ABORTING_S)
        for producer in list(self._busy):
            if producer.state in ENDED:
                refused += self._mark(producer, now_us)
            elif producer.row.deadline_us <= now_us and not producer.ending and not turn.is_over():
                # the next tick aborts the others
                try:
                    self._carry_out_decision(producer, False, now_us, fence=True)
                except Refusal as refusal:
                    refused.append(refusal)
        if refused:
            raise refused[0]

    def on_partition_deleted(self, partition: Partition) -> None:
        """End nothing in it any more, and store no positions."""
        self._orphans.on_partition_deleted(partition)
        for producer in self._busy:
            producer.partitions.discard(partition)
            producer.pending_offsets = {
                place: one for place, one in producer.pending_offsets.items() if place[0] is not partition
            }

    def forget_before(self, before_us: int) -> None:
        """Forget the names that no producer has used since ``before_us``, microseconds since 1970."""
        idle = [one for one in self._names.values() if one.row.updated_us < before_us and one not in self._busy]
        if idle:
            self._table.remove(producer.row.name for producer in idle)
        for producer in idle:
            del self._names[producer.row.name]
            del self._ids[producer.row.id]

    def rows(self) -> list[ProducerRow]:
        """Return the producers that have a name."""
        return [producer.row for producer in self._names.values()]

    def list_transactional(self) -> list[TransactionalProducer]:
        """Return the producers that have a name, to be looked at."""
        return list(self._names.values())

    def find(self, name: str) -> TransactionalProducer | None:
        """Return the producer of a name, to be looked at."""
        return self._names.get(name)

    def writing(self, partition: Partition) -> list[ActiveProducer]:
        """See ``KafkaAppender.writing``."""
        return self._produced.list_active_producers(partition)

    def _is_committed(self, producer_id: int) -> bool:
        owner = self._ids.get(producer_id)
        return owner is not None and owner.state in COMMITS

    def _require(self, caller: Caller) -> TransactionalProducer:
        producer = self._names.get(caller.name)
        if producer is None or producer.row.id != caller.producer_id:
            raise Refusal(
                Reason.PRODUCER_UNKNOWN, f"producer {caller.name!r} does not have id {caller.producer_id}; ask again"
            )
        if caller.epoch != producer.row.epoch:
            raise fenced_error(caller.name, ProducerIdAndEpoch(caller.producer_id, caller.epoch), producer.identity)
        return producer

    def _require_idle(self, producer: TransactionalProducer) -> None:
        if producer.ending or producer.state in ENDED:
            raise transaction_in_progress_error(producer)

    def _require_open(self, producer: TransactionalProducer) -> None:
        self._require_idle(producer)
        if producer.state is not ProducerState.ONGOING:
            raise no_transaction_error(producer)

    def _open(self, producer: TransactionalProducer, now_us: int) -> None:
        self._require_idle(producer)
        if producer.state is not ProducerState.ONGOING:
            deadline_us = now_us + producer.row.timeout_us
            self._put(producer, producer.transition(ProducerState.ONGOING, deadline_us=deadline_us, updated_us=now_us))
            producer.ended = PendingResult()
            producer.ended_as = None
            self._busy.add(producer)

    def _renew(self, producer: TransactionalProducer, timeout_us: int, now_us: int) -> None:
        """Give the producer the next epoch, or another id if its epochs are used up."""
        before = producer.identity
        producer_id, epoch = before.producer_id, before.epoch + 1
        if before.epoch >= EPOCH_MAX:
            producer_id, epoch = self.ids.take(), 0
        row = producer.transition(
            ProducerState.EMPTY, id=producer_id, epoch=epoch, timeout_us=timeout_us, updated_us=now_us
        )
        self._put(producer, row)
        producer.before, producer.ended_as = before, None
        del self._ids[before.producer_id]
        self._ids[producer_id] = producer

    def _put(self, producer: TransactionalProducer, row: ProducerRow) -> None:
        self._table.put(row)
        producer.row = row

    def _carry_out_decision(
        self, producer: TransactionalProducer, committed: bool, now_us: int, *, fence: bool = False
    ) -> None:
        epoch = producer.row.epoch + fence
        row = producer.transition(DECIDED[committed], epoch=epoch, updated_us=now_us)
        made_true = dict(producer.pending_offsets) if committed else {}
        self._table.decide(row, [_make_row(*place, stored) for place, stored in made_true.items()])
        producer.row = row
        producer.pending_offsets.clear()
        producer.reloaded = False
        for (partition, key), stored in made_true.items():
            self._positions.store(partition, key, stored)
        self._mark(producer, now_us)

    def _mark(self, producer: TransactionalProducer, now_us: int) -> list[Refusal]:
        """Write the missing control records; if the disk refuses one, ``tick`` tries again."""
        row, refused = producer.row, []
        for partition in list(producer.partitions):
            try:
                append = self._produced.write_transaction_marker(
                    partition, writer_of(row.id), row.epoch, producer.state in COMMITS, now_us
                )
            except Refusal as refusal:
                refused.append(refusal)
            else:
                producer.partitions.discard(partition)
                producer.unacknowledged += 1
                append.add_done_callback(partial(self._on_marker_appended, producer, partition))
        self._end_when_marked(producer)
        return refused

    def _on_marker_appended(self, producer: TransactionalProducer, partition: Partition, append: Append) -> None:
        producer.unacknowledged -= 1
        if append.error is not None and append.error.reason is not Reason.PARTITION_NOT_FOUND:
            producer.partitions.add(partition)
        self._end_when_marked(producer)

    def _end_when_marked(self, producer: TransactionalProducer) -> None:
        """End a decided transaction when its control records are written.

        Callers get their response even if the record of a partition has to wait: a decision never changes.
        """
        ended = ENDED.get(producer.state)
        if ended is None or producer.unacknowledged:
            return
        if not producer.partitions:
            producer.row = producer.transition(ended)
            self._busy.discard(producer)
        if not producer.ended.done:
            producer.ended.finish(None)


def _make_row(partition: Partition, key: PositionKey, stored: StoredPosition) -> PositionRow:
    return PositionRow(key.protocol, partition.topic.uuid, partition.number, key.consumer, *stored)


class OrphanedBatches:
    """Partitions with batches of no known transaction, by writer, until a control record ends them: their producers
    were lost with the catalog.
    """

    def __init__(self, produced: KafkaAppender) -> None:
        self._produced = produced
        self._places: set[tuple[Partition, bytes]] = set()

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, partition: Partition, writer: bytes) -> None:
        """Note that the writer has unended batches in the partition."""
        self._places.add((partition, writer))

    def mark(self, partition: Partition, writer: bytes, committed: bool, now_us: int) -> None:
        """Write the control record. Raises Refusal if the log does not take it."""
        known = partition.writers and partition.writers.get(writer)
        self._produced.write_transaction_marker(partition, writer, known.epoch if known else 0, committed, now_us)
        self._places.discard((partition, writer))

    def mark_all(self, is_committed: Callable[[int], bool], now_us: int) -> list[Refusal]:
        """Write all control records, by the decision for the producer id; return the refusals of those that wait."""
        refused = []
        for partition, writer in list(self._places):
            try:
                self.mark(partition, writer, is_committed(producer_of(writer)), now_us)
            except Refusal as refusal:
                refused.append(refusal)
        return refused

    def on_partition_deleted(self, partition: Partition) -> None:
        """End nothing in it any more."""
        self._places = {one for one in self._places if one[0] is not partition}


class ProducerIds:
    """Gives producer ids of a block that the catalog has noted as taken.

    Each is given once, over restarts, the loss of the catalog, and backups that are restored.
    """

    def __init__(self, table: ProducerTable, produced: KafkaAppender) -> None:
        self._table = table
        self._produced = produced
        self._next_id = self._end_id = 0

    def take(self) -> int:
        """Return an id that no producer ever had."""
        if self._next_id == self._end_id:
            self._next_id = self._table.take_ids(IDS_AT_ONCE)
            self._end_id = self._next_id + IDS_AT_ONCE
        self._next_id += 1
        return self._next_id - 1

    def skip_given(self, partitions: Iterable[Partition], now_us: int) -> None:
        """Skip the ids that were given before the catalog was lost, or after the backup that it was restored from.

        The batches of the second owner would be taken for repetitions of what the first one sent. The partitions know
        the ids of what was written; those of producers that write only now are found by no log, so that ids continue
        at a number that is higher the later it is: no broker gives more than ``IDS_PER_SECOND``.
        """
        written = [
            one.identity.producer_id for place in partitions for one in self._produced.list_active_producers(place)
        ]
        highest = max((one for one in written if one < ID_MAX), default=0)
        self._table.skip_ids(max(highest + IDS_AT_ONCE, now_us * IDS_PER_SECOND // 1_000_000))
