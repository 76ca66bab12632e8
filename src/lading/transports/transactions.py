"""Interface of transports whose server has transactions: many tasks send, and one process shows all of it, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """An open transaction that waits only for the decision; its id, and its producer."""

    id: str
    producer_id: int
    epoch: int


class TaskTransaction(Protocol):
    """An open transaction: its messages are not visible yet."""

    def send_all(
        self, topic: str, parts: Iterable[tuple[int, pa.RecordBatch]], *, compression: Literal["lz4"] | None = None
    ) -> int:
        """Send (partition, batch) after (partition, batch); all are acknowledged when this returns how many."""
        ...  # fmt: skip

    def send(
        self, topic: str, partition: int, batch: pa.RecordBatch, *, compression: Literal["lz4"] | None = None
    ) -> object:
        """Send a batch, as a transport does; after MessageRefused, which names the row, the others can be sent."""
        ...  # fmt: skip

    def prepare(self) -> PreparedTransaction | None:
        """Return what another process needs to decide about the transaction; None if no message was sent."""
        ...

    def abort(self) -> None:
        """Abort: the messages never become visible."""
        ...


class TransactionDecision(Protocol):
    """Decision under one name for one topic; kept by the server, so that any process can continue it."""

    def begin(self, task: int) -> TaskTransaction:
        """Begin a transaction for the task of this number, and end what an earlier attempt of it left open."""
        ...

    def last_decided(self) -> str | None:
        """Return the work decided last, after its commits are finished; None if nothing was decided yet."""
        ...

    def decide(self, work: str, prepared: Sequence[PreparedTransaction]) -> None:
        """Show all of it; a repeat for the same work changes nothing."""
        ...

    def withdraw(self, work: str, prepared: Sequence[PreparedTransaction]) -> None:
        """Show none of it, unless that was decided already."""
        ...


@runtime_checkable
class TransactionalTransport(Protocol):
    """A transport whose server hides what many tasks sent until one process decides."""

    def decision(self, name: str, topic: str, *, timeout_s: float | None = None) -> TransactionDecision:
        """Return the decisions under ``name`` for a topic.

        A transaction may stay open for ``timeout_s`` seconds; None is the longest time that the server allows.
        """
        ...
