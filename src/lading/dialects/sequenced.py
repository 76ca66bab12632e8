"""Sequence numbers of batches, for dialects whose writers number them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from lading.model.run import Run


class SequencedBatch(NamedTuple):
    """One batch or block of a chunk.

    ``writer`` is empty if it has none; the batch takes the writer's numbers ``sequence`` and ``numbers - 1`` more.
    ``transaction`` is the id it was written under, 0 for none. ``transactional``: it belongs to its writer's open
    transaction. ``outcome``: it is a control record, which ends its writer's transaction in this partition, and whether
    that is committed. ``digest`` is the digest of the content; 0 if the dialect keeps none.
    """

    writer: bytes
    epoch: int
    sequence: int
    numbers: int
    base_offset: int
    end_offset: int
    transaction: int = 0
    transactional: bool = False
    outcome: bool | None = None
    digest: int = 0


@runtime_checkable
class SequencedDialect(Protocol):
    """A dialect whose batches carry a writer and a sequence."""

    def iter_batches(self, run: Run, first: int) -> Iterator[SequencedBatch]:
        """Return the batches of a Run with offsets from ``first`` on, in order.

        Raises MalformedMessage at bytes that are not batches.
        """


@runtime_checkable
class TransactionMarkerDialect(SequencedDialect, Protocol):
    """A dialect that ends a transaction by a record of its own in every partition."""

    def marker(
        self, writer: bytes, epoch: int, committed: bool, base_offset: int, log_epoch: int, now_us: int
    ) -> bytes:
        """Return the control record, as it lies in a chunk; ``epoch`` is the writer's."""
