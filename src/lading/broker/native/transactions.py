"""Transactions: blocks that many writers append and that readers see all at once, or never (design.md Spark, sinks).

Blocks of an open transaction are in the log like any others, but ``last_stable_offset`` stays before them. A commit is
one SQLite transaction that stores the key and the ids of the committed transactions: a repeated commit with the same
key changes nothing. Aborted ranges are on disk in the overlay before ``last_stable_offset`` passes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from ...log.catalog import Catalog
from ...model.errors import Reason, Refusal
from ..core.append.writer_state import update_last_stable_offset
from ..core.component import NEVER_US, SOON_US, Component, partitions_of
from ..core.counters import Counters
from ..core.topology import Partition, Topic

LOG: Final = logging.getLogger("lading.broker")
ABORTED_AT_ONCE: Final = 100
"""Transactions that are aborted before others have their turn: some milliseconds, and a sync for each partition."""


class CommitResult(NamedTuple):
    """The transactions that are committed under the key; ``repeated`` if an earlier call committed them."""

    committed: tuple[int, ...]
    repeated: bool


@dataclass(slots=True, eq=False)
class OpenNativeTransaction:
    """A transaction that is not decided; ``partitions`` are those that hold blocks of it."""

    id: int
    scope: str
    deadline_us: int
    partitions: set[Partition] = field(default_factory=set)


class NativeTransactions(Component):
    """All transactions of a broker. Decisions are on disk before a call returns."""

    def __init__(
        self,
        catalog: Catalog,
        counters: Counters,
        timeout_us: int,
        on_stable_moved: Callable[[Partition], None],
    ) -> None:
        """``on_stable_moved`` is called with every partition whose last stable offset may have moved."""
        self._catalog = catalog
        self._counters = counters
        self._timeout_us = timeout_us
        self._on_stable_moved = on_stable_moved
        self._open: dict[int, OpenNativeTransaction] = {}
        self._unsettled: set[tuple[Partition, int]] = set()
        """Aborted, but the overlay could not be written; tried again by ``tick``."""

    def load(self, topics: Sequence[Topic]) -> None:
        """Load transactions after a start: decided ones are settled in every partition, open ones hold readers back."""
        decided: dict[int, str] = {}
        highest = 0
        for row in self._catalog.transactions():
            highest = max(highest, row.id)
            if row.state == "open":
                self._open[row.id] = OpenNativeTransaction(row.id, row.scope, row.deadline_us)
            else:
                decided[row.id] = row.state
        named = 0
        for partition in partitions_of(topics):
            writers = partition.writers
            if writers is not None:
                named = max(named, writers.highest_transaction_id)
            for transaction_id in list(writers.transactions) if writers is not None else ():
                if transaction_id in decided:
                    self._settle(partition, transaction_id, decided[transaction_id] == "committed")
                elif _was_settled(partition, transaction_id):
                    self._settle_forgotten(partition, transaction_id)
                elif transaction_id in self._open:
                    self._open[transaction_id].partitions.add(partition)
                else:
                    # one the catalog does not know was never committed
                    self._settle(partition, transaction_id, False)
            self._hold(partition)
        if named > highest:
            # the catalog has lost it: an id that is assigned again would join old blocks in the log with new ones, and
            # new blocks would pass for repetitions of old ones
            self._catalog.skip_transaction_ids(named)
        self._counters.transactions_open = len(self._open)

    def _settle_forgotten(self, partition: Partition, transaction_id: int) -> None:
        """Settle a transaction that readers have passed: it was committed, unless its ranges are marked as aborted.

        The catalog no longer has its outcome, or is an older copy.
        """
        log = partition.log
        ranges = _ranges_of(partition)[transaction_id]
        aborted = any(log.aborted_ranges(first, end) for first, end in ranges)
        if log.recovery.states_lost and not aborted:
            LOG.warning(
                "%s: whether transaction %d (offsets %d to %d) was committed is unknown; its messages are visible",
                partition, transaction_id, ranges[0][0], ranges[-1][1] - 1,
            )  # fmt: skip
        self._settle(partition, transaction_id, not aborted)

    def begin(self, *, scope: str = "", timeout_us: int | None = None, now_us: int) -> int:
        """Begin a transaction. Attempts at the same work have the same ``scope``; a commit names those that count."""
        deadline_us = now_us + (self._timeout_us if timeout_us is None else timeout_us)
        transaction_id = self._catalog.begin(scope, deadline_us)
        self._open[transaction_id] = OpenNativeTransaction(transaction_id, scope, deadline_us)
        self._counters.transactions_open = len(self._open)
        return transaction_id

    def require_open(self, transaction_id: int) -> OpenNativeTransaction:
        """Return the transaction a block belongs to; refused if it is decided, expired or was never begun."""
        transaction = self._open.get(transaction_id)
        if transaction is None:
            raise Refusal(
                Reason.TRANSACTION_NOT_OPEN,
                f"transaction {transaction_id} is not open (committed, aborted, expired or never begun); begin another",
            )
        return transaction

    def add_partition(self, transaction_id: int, partition: Partition) -> None:
        """Record that the partition has a block of the transaction: nothing after it is visible before the decision."""
        transaction = self._open[transaction_id]
        if partition not in transaction.partitions:
            transaction.partitions.add(partition)
            self._hold(partition)

    def commit(self, key: str, ids: Collection[int], *, scope: str | None = None, now_us: int) -> CommitResult:
        """Show the listed transactions, abort the others of their scope, remember the key.

        With a key that was used before nothing is shown: listed transactions that are still open are then a late
        attempt at the same work, and are aborted. Refuses a transaction that is not open, or has appends that are not
        acknowledged yet.
        """
        if not key:
            raise Refusal(Reason.MALFORMED, "commit key is empty; pass a unique, non-empty key")
        winners = self._catalog.commit_key(key)
        repeated = winners is not None
        if winners is None:
            winners = tuple(sorted(set(ids)))
        listed = [self._open[one] for one in set(ids) if one in self._open]
        scopes = {one.scope for one in listed if one.scope} | ({scope} if scope else set())
        losers = {one.id for one in self._open.values() if one.scope in scopes}
        if repeated:
            losers.update(one.id for one in listed)
            self._carry_out_decision(None, (), losers, now_us)
        else:
            for one in winners:
                self._require_acknowledged(self.require_open(one))
            self._carry_out_decision(key, winners, losers.difference(winners), now_us)
        return CommitResult(winners, repeated)

    def abort(self, ids: Collection[int], *, now_us: int) -> None:
        """Abort transactions: readers never see their blocks. Those that are not open are left as they are."""
        self._carry_out_decision(None, (), {one for one in ids if one in self._open}, now_us)

    @property
    def due_us(self) -> int:
        """The time of the next tick, if transactions are open or their ends are not on disk."""
        return SOON_US if self._open or self._unsettled else NEVER_US

    def tick(self, now_us: int) -> None:
        """Abort transactions that are open for too long."""
        for partition, transaction_id in list(self._unsettled):
            self._settle(partition, transaction_id, False)
            self._hold(partition)
        late = (one.id for one in self._open.values() if one.deadline_us <= now_us)
        # the next tick aborts the others
        self._carry_out_decision(None, (), set(islice(late, ABORTED_AT_ONCE)), now_us)

    def forget_before(self, before_us: int) -> None:
        """Delete transactions and commit keys that were settled before this time and that no partition still needs."""
        self._catalog.forget_transactions(before_us)

    def on_partition_deleted(self, partition: Partition) -> None:
        """Remove the partition from all open and unsettled transactions."""
        for transaction in self._open.values():
            transaction.partitions.discard(partition)
        self._unsettled = {(one, ident) for one, ident in self._unsettled if one is not partition}

    def on_truncated(self, partition: Partition) -> None:
        """Remove a partition from transactions whose blocks there were truncated, by the history of its writers."""
        for transaction in self._open.values():
            if partition in transaction.partitions and transaction.id not in _ranges_of(partition):
                transaction.partitions.discard(partition)
        self._hold(partition)

    def _require_acknowledged(self, transaction: OpenNativeTransaction) -> None:
        for partition in transaction.partitions:
            if _ranges_of(partition)[transaction.id][-1][1] > partition.log.high_watermark:
                raise Refusal(
                    Reason.TRANSACTION_NOT_OPEN,
                    f"transaction {transaction.id} has appends to {partition} that are not acknowledged yet; "
                    "wait for their responses, then commit",
                )

    def _carry_out_decision(
        self, key: str | None, committed: Collection[int], aborted: Collection[int], now_us: int
    ) -> None:
        if key is None and not committed and not aborted:
            return
        self._catalog.settle(key, committed, aborted, now_us)
        touched: set[Partition] = set()
        hidden: dict[Partition, list[int]] = {}
        for one in committed:
            for partition in self._open.pop(one).partitions:
                self._show(partition, one)
                touched.add(partition)
        for one in aborted:
            for partition in self._open.pop(one).partitions:
                hidden.setdefault(partition, []).append(one)
        for partition, ids in hidden.items():
            self._hide(partition, ids)
        self._counters.transactions_open = len(self._open)
        for partition in touched | hidden.keys():
            self._hold(partition)

    def _settle(self, partition: Partition, transaction_id: int, shown: bool) -> None:
        """Let readers of a partition pass a decided transaction, unless the overlay cannot be written at present."""
        if shown:
            self._show(partition, transaction_id)
        else:
            self._hide(partition, [transaction_id])

    def _show(self, partition: Partition, transaction_id: int) -> None:
        _ranges_of(partition).pop(transaction_id)
        self._unsettled.discard((partition, transaction_id))

    def _hide(self, partition: Partition, ids: Sequence[int]) -> None:
        """Mark the blocks of aborted transactions on disk, with one sync for all of them."""
        log, ranges = partition.log, _ranges_of(partition)
        try:
            for one in ids:
                for first, end in ranges[one]:
                    if log.aborted_ranges(first, end) != [(first, end)]:
                        log.add_aborted(first, end)
            log.sync_states()
        except Refusal:
            self._unsettled.update((partition, one) for one in ids)
            return
        for one in ids:
            self._show(partition, one)

    def _hold(self, partition: Partition) -> None:
        update_last_stable_offset(partition)
        self._on_stable_moved(partition)


def _was_settled(partition: Partition, transaction_id: int) -> bool:
    """Return whether the process before let readers pass the transaction's first block, so that it was decided."""
    return _ranges_of(partition)[transaction_id][0][0] < partition.log.recovery.settled_end


def _ranges_of(partition: Partition) -> dict[int, list[tuple[int, int]]]:
    return {} if partition.writers is None else partition.writers.transactions
