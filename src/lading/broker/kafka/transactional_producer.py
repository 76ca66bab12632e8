"""A producer with a name: its state, and the partitions that its transaction has written to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ...log.producer_table import ProducerRow
from ...model.errors import Reason, Refusal
from ..core.pending_result import PendingResult
from ..core.position import PositionKey, StoredPosition
from ..core.topology import Partition


class ProducerState(StrEnum):
    """The state of a producer with a name."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTING = "PrepareCommit"
    ABORTING = "PrepareAbort"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


TRANSITIONS: Final[Mapping[ProducerState, frozenset[ProducerState]]] = MappingProxyType(
    {
        ProducerState.EMPTY: frozenset({ProducerState.EMPTY, ProducerState.ONGOING, ProducerState.ABORTING}),
        ProducerState.ONGOING: frozenset({ProducerState.COMMITTING, ProducerState.ABORTING}),
        ProducerState.COMMITTING: frozenset({ProducerState.COMMITTED}),
        ProducerState.ABORTING: frozenset({ProducerState.ABORTED}),
        ProducerState.COMMITTED: frozenset({ProducerState.ONGOING, ProducerState.EMPTY, ProducerState.ABORTING}),
        ProducerState.ABORTED: frozenset({ProducerState.ONGOING, ProducerState.EMPTY, ProducerState.ABORTING}),
    }
)
"""The states that may follow each state; the diagram of docs/reference/kafka-groups."""
DECIDED: Final = {True: ProducerState.COMMITTING, False: ProducerState.ABORTING}
ENDED: Final = {
    ProducerState.COMMITTING: ProducerState.COMMITTED,
    ProducerState.ABORTING: ProducerState.ABORTED,
}
COMMITS: Final = frozenset({ProducerState.COMMITTING, ProducerState.COMMITTED})
ABORTS: Final = frozenset({ProducerState.ABORTING, ProducerState.ABORTED})


class ProducerIdAndEpoch(NamedTuple):
    """The identity that a producer writes under."""

    producer_id: int
    epoch: int


class Caller(NamedTuple):
    """The caller of a request: the name, and the id and epoch it was given."""

    name: str
    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class TransactionalProducer:
    """A producer with a name, and its transaction."""

    row: ProducerRow
    partitions: set[Partition] = field(default_factory=set)
    """Partitions that the open transaction may write to, or a decided one has a control record to come."""
    pending_offsets: dict[tuple[Partition, PositionKey], StoredPosition] = field(default_factory=dict)
    before: ProducerIdAndEpoch | None = None
    """The identity that this one took over from."""
    ended_as: ProducerIdAndEpoch | None = None
    """The identity under which its last transaction was ended, if the producer got another one for the next."""
    reloaded: bool = False
    """The transaction was open at start: which partitions its producer had named is not known any more."""
    ending: bool = False
    """The end of the transaction was requested; it is decided when the appends before it are durable."""
    unacknowledged: int = 0
    """Control records on their way to the disk."""
    ended: PendingResult[None] = field(default_factory=PendingResult)

    @property
    def state(self) -> ProducerState:
        """Return the state of its transaction."""
        return ProducerState(self.row.state)

    def transition(self, state: ProducerState, **changes: Any) -> ProducerRow:
        """Return the producer's row in the next state, which must be one of TRANSITIONS."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{describe(self)} cannot go from {self.state} to {state}")
        return replace(self.row, state=state, **changes)

    def has_ended_as(self, identity: ProducerIdAndEpoch) -> bool:
        """Return whether its last transaction, if none was begun since, had this identity when it was decided.

        After a restart only the epoch shows it, which a decision with a new identity makes higher by one.
        """
        if self.state is ProducerState.ONGOING:
            return False
        next_epoch = ProducerIdAndEpoch(identity.producer_id, identity.epoch + 1)
        return identity == self.ended_as or (self.state in COMMITS | ABORTS and next_epoch == self.identity)

    def has_fenced(self, epoch: int) -> bool:
        """Return whether its last transaction had this epoch and was aborted by a client that fenced the producer."""
        return self.state in ABORTS and self.row.epoch == epoch + 1

    @property
    def begun_us(self) -> int:
        """When its last transaction was begun; means nothing before the first."""
        return self.row.deadline_us - self.row.timeout_us

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """Return the producer id and epoch that it writes under."""
        return ProducerIdAndEpoch(self.row.id, self.row.epoch)


def describe(producer: TransactionalProducer) -> str:
    """Return how the producer is called in sentences."""
    return f"producer {producer.row.name!r}"


def transaction_in_progress_error(producer: TransactionalProducer) -> Refusal:
    """Return the error for a producer whose last transaction has to end first."""
    return Refusal(
        Reason.TRANSACTION_IN_PROGRESS, f"the previous transaction of {describe(producer)} is still completing; retry"
    )


def no_transaction_error(producer: TransactionalProducer) -> Refusal:
    """A request needs an open transaction."""
    return Refusal(Reason.TRANSACTION_NOT_OPEN, f"{describe(producer)} has no open transaction; begin one first")


def fenced_error(name: str, theirs: ProducerIdAndEpoch, ours: ProducerIdAndEpoch) -> Refusal:
    """Return the Refusal of a producer whose name another one has taken over."""
    return Refusal(
        Reason.PRODUCER_FENCED,
        f"producer {name!r} is at id {ours.producer_id} epoch {ours.epoch}: id {theirs.producer_id} epoch "
        f"{theirs.epoch} has been taken over, or its transaction took too long; close this producer and make a new one",
    )
