"""Sequence numbers of writers, per partition, so that a repeated block is kept once.

A native writer numbers its blocks from 0, a producer its records. A block that follows is taken, a repetition of one
of the last ``window`` blocks gets the offset of the first one. A higher epoch starts again at 0 and shuts the lower one
out.

A block repeats another one only if both belong to the same transaction, or to none: what was sent in a transaction that
was aborted, or that is open, must never make a later block of the same number vanish. So a native writer may start
again at 0 in each transaction; what it wrote before, in other transactions, is shut out from then on. A native block
has a digest of its content too, and a repeated number with another content is refused. A producer of Kafka or Iggy is
known by its numbers alone, as their own servers know it; its ids are assigned by the broker and never twice.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from ...dialects.sequenced import SequencedBatch
from ...log.formats import GATE, WRITERS
from ...model.errors import CorruptLog, Reason, Refusal

K = TypeVar("K")

SNAPSHOT = "writers"
SNAPSHOTS: Final = (SNAPSHOT, "writers-ahead")
"""Names of the snapshots of a partition. One that was taken under load has blocks which a power cut may take back; it
never replaces the last one without such blocks, since compaction has removed what that would be read from again."""
_VERSION_WITH_TRANSACTIONS: Final = 2


class AppendedBlock(NamedTuple):
    """A block that was appended; it took ``numbers`` numbers from ``sequence`` on.

    ``transaction_id`` is 0 for none, and None if an older Lading wrote the snapshot that the block is from. ``digest``
    is 0 if none is known.
    """

    sequence: int
    base_offset: int
    end_offset: int
    numbers: int = 1
    transaction_id: int | None = 0
    digest: int = 0


@dataclass(slots=True)
class Writer:
    """One writer in one partition; ``recent`` holds its last blocks in order.

    ``restart_offset`` is the offset at which it started again at 0 in another transaction, 0 if it never did.
    """

    epoch: int
    next_sequence: int = 0
    recent: list[AppendedBlock] = field(default_factory=list)
    restart_offset: int = 0


class Ranges(dict[K, list[tuple[int, int]]]):
    """Offset ranges of one partition, each with the id it belongs to, rising, joined if they touch."""

    def add(self, owner: K, first: int, end: int) -> None:
        """Add the block ``[first, end)`` of ``owner``, joined to the owner's last range if that ends at ``first``."""
        ranges = self.setdefault(owner, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((first, end))

    def cut(self, offset: int) -> None:
        """Forget all from ``offset`` on."""
        for owner, ranges in list(self.items()):
            kept = [(first, min(end, offset)) for first, end in ranges if first < offset]
            if kept:
                self[owner] = kept
            else:
                del self[owner]


class Writers:
    """Sequences and open transactions of one partition. All of it can be rebuilt from the blocks in the log."""

    def __init__(self, window: int, writers_max: int) -> None:
        self._window = window
        self._writers_max = writers_max
        self._writers: OrderedDict[bytes, Writer] = OrderedDict()
        self.transactions: Ranges[int] = Ranges()
        """Undecided blocks by transaction id."""
        self.open_by_writer: Ranges[bytes] = Ranges()
        """Blocks of transactions that end by a control record, by writer."""
        self.snapshot_rolls = 0
        """``PartitionLog.rolls_count`` at the last snapshot."""
        self.snapshot_ends = [0] * len(SNAPSHOTS)
        """Up to which offset each of the snapshots knows the blocks; 0 if it does not exist."""

    def find(
        self,
        writer_id: bytes,
        epoch: int,
        sequence: int,
        expected: dict[bytes, tuple[int, int]],
        *,
        transaction_id: int = 0,
        digest: int = 0,
    ) -> AppendedBlock | None:
        """Return the block that this one repeats, or None if it is new and next.

        ``expected`` holds (epoch, next sequence) of writers with earlier blocks in the same request. Raises Refusal
        OUT_OF_SEQUENCE, and WRITER_ID_REUSED if the number belongs to a block of other content or of another
        transaction.
        """
        if writer_id in expected and expected[writer_id] == (epoch, sequence):
            return None
        writer = self._writers.get(writer_id)
        if writer is not None and epoch == writer.epoch and writer_id not in expected:
            name = f"writer {writer_id.hex()}"
            if self._is_shut_out(writer, transaction_id):
                raise _writer_id_reused_error(
                    name, sequence, "it has started again at block 0 in another transaction since"
                )
            if sequence == writer.next_sequence:
                return None
            number_is_taken = False
            for block in reversed(writer.recent):
                if block.sequence == sequence:
                    if self._belongs_to(block, transaction_id):
                        if digest and block.digest and digest != block.digest:
                            raise _writer_id_reused_error(
                                name, sequence, f"offset {block.base_offset} has other content"
                            )
                        return block
                    number_is_taken = True
            if sequence == 0 and transaction_id and transaction_id not in self.transactions:
                return None
            if number_is_taken:
                raise _writer_id_reused_error(name, sequence, "that number was used outside of this transaction")
        elif writer_id not in expected and sequence == 0 and (writer is None or epoch > writer.epoch):
            return None
        raise Refusal(Reason.OUT_OF_SEQUENCE, self._explain(writer_id, epoch, sequence, expected))

    def _is_shut_out(self, writer: Writer, transaction_id: int) -> bool:
        """Return whether a transaction (0 for none) is older than the block at which the writer started again."""
        if not writer.restart_offset:
            return False
        ranges = self.transactions.get(transaction_id)
        return not transaction_id or (ranges is not None and ranges[0][0] < writer.restart_offset)

    def _belongs_to(self, block: AppendedBlock, transaction_id: int) -> bool:
        """Return whether a block was sent in this transaction, 0 for none."""
        if block.transaction_id is not None:
            return block.transaction_id == transaction_id
        # only an undecided transaction takes blocks, and the ranges of those are known
        ranges = self.transactions.get(transaction_id, ())
        return not transaction_id or any(first <= block.base_offset < end for first, end in ranges)

    def _explain(self, writer_id: bytes, epoch: int, sequence: int, expected: dict[bytes, tuple[int, int]]) -> str:
        who = f"block {sequence} of writer {writer_id.hex()} epoch {epoch}"
        writer = self._writers.get(writer_id)
        if writer_id in expected:
            return f"{who} does not follow the block before it in this request (next is {expected[writer_id][1]})"
        if writer is None:
            return f"{who}: the writer is not known here (new, or idle for long), so its first block must be 0"
        if epoch < writer.epoch:
            return f"{who}: a writer of epoch {writer.epoch} has taken over"
        if epoch > writer.epoch:
            return f"{who}: a new epoch starts at block 0"
        if sequence < writer.next_sequence:
            return f"{who} is too old to be recognized; only the last {self._window} can be repeated"
        return f"{who} leaves a gap: the next is {writer.next_sequence}"

    def find_settled_end(self, high_watermark: int) -> int:
        """Return up to which offset a snapshot knows the blocks that will not be lost in a power cut."""
        return max((end for end in self.snapshot_ends if end <= high_watermark), default=0)

    def choose_snapshot(self, high_watermark: int, next_offset: int) -> int:
        """Return the number of the snapshot that the next one replaces."""
        if high_watermark == next_offset:
            return 0
        return 1 if self.snapshot_ends[0] == self.find_settled_end(high_watermark) else 0

    def get(self, writer_id: bytes) -> Writer | None:
        """Return what is remembered of a writer."""
        return self._writers.get(writer_id)

    def items(self) -> Iterable[tuple[bytes, Writer]]:
        """Return all writers, the least recently heard first."""
        return self._writers.items()

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset that is not decided; None if all are."""
        ranges = (*self.transactions.values(), *self.open_by_writer.values())
        return min((one[0][0] for one in ranges), default=None)

    @property
    def highest_transaction_id(self) -> int:
        """The highest transaction id of a known block; 0 without one."""
        recent = (block.transaction_id or 0 for writer in self._writers.values() for block in writer.recent)
        return max(max(recent, default=0), max(self.transactions, default=0))

    def add(self, numbered: SequencedBatch, high_watermark: int) -> None:
        """Note that a block or control record is in the log now."""
        writer_id, epoch, sequence, numbers, base_offset, end_offset, transaction_id, transactional, outcome, digest = (
            numbered
        )
        if transaction_id:
            self.transactions.add(transaction_id, base_offset, end_offset)
        if outcome is not None:
            self.open_by_writer.pop(writer_id, None)
            self._writer_of(writer_id, epoch)
        elif writer_id:
            if transactional:
                self.open_by_writer.add(writer_id, base_offset, end_offset)
            writer = self._writer_of(writer_id, epoch)
            if transaction_id and sequence == 0 and writer.next_sequence:
                writer.recent, writer.restart_offset = [], base_offset
            block = AppendedBlock(sequence, base_offset, end_offset, numbers, transaction_id, digest)
            self._count(writer, block, high_watermark)

    def expect(self, writer_id: bytes, epoch: int, sequence: int) -> None:
        """Let an unknown writer continue here: its first block could not be written, so a later one comes first."""
        if writer_id not in self._writers:
            self._writer_of(writer_id, epoch).next_sequence = sequence

    def _writer_of(self, writer_id: bytes, epoch: int) -> Writer:
        writer = self._writers.get(writer_id)
        if writer is None or writer.epoch != epoch:
            writer = self._writers[writer_id] = Writer(epoch)
            if len(self._writers) > self._writers_max:
                self._writers.popitem(last=False)
        self._writers.move_to_end(writer_id)
        return writer

    def _count(self, writer: Writer, block: AppendedBlock, high_watermark: int) -> None:
        writer.next_sequence = block.sequence + block.numbers
        writer.recent.append(block)
        # blocks that are not synced may still be cut, so they are kept whatever the window says
        excess = len(writer.recent) - self._window
        if excess > 0 and writer.recent[excess - 1].end_offset <= high_watermark:
            del writer.recent[:excess]

    def truncate_from(self, offset: int) -> None:
        """Blocks from ``offset`` on have not happened."""
        for writer in self._writers.values():
            writer.restart_offset = min(writer.restart_offset, offset)
            lost = [block for block in writer.recent if block.end_offset > offset]
            if lost:
                writer.recent = writer.recent[: -len(lost)]
                writer.next_sequence = lost[0].sequence
        self.transactions.cut(offset)
        self.open_by_writer.cut(offset)

    def dump(self) -> bytes:
        """Return all as JSON for a snapshot."""
        return json.dumps(
            {
                "version": WRITERS.written,
                "writers": [
                    _dump_writer(writer_id, writer, self._window) for writer_id, writer in self._writers.items()
                ],
                "transactions": list(self.transactions.items()),
                "unmarked": [[writer_id.hex(), ranges] for writer_id, ranges in self.open_by_writer.items()],
            }
        ).encode()

    def load(self, data: bytes, source: str) -> None:
        """Load what ``dump`` returned. Raises CorruptLog, which names ``source``, for anything else."""
        try:
            document = json.loads(data)
            GATE.require_known(WRITERS, document["version"], source)
            # before version 2 nothing said in which transaction a block was sent
            rest = [0] if document["version"] >= _VERSION_WITH_TRANSACTIONS else [None]
            for writer_id, epoch, next_sequence, recent, *restart_offset in document["writers"]:
                blocks = [AppendedBlock(*(block if len(block) > 4 else block + rest)) for block in recent]
                self._writers[bytes.fromhex(writer_id)] = Writer(epoch, next_sequence, blocks, *restart_offset)
            for transaction_id, ranges in document["transactions"]:
                self.transactions[transaction_id] = [(first, end) for first, end in ranges]
            for writer_id, ranges in document.get("unmarked", ()):
                self.open_by_writer[bytes.fromhex(writer_id)] = [(first, end) for first, end in ranges]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptLog(f"{source} cannot be read: {error!r}; delete its file, it is created again") from None


def _dump_writer(writer_id: bytes, writer: Writer, window: int) -> list[object]:
    """Return what a snapshot holds of a writer: few ever start again."""
    row: list[object] = [writer_id.hex(), writer.epoch, writer.next_sequence]
    row.append([_dump_block(block) for block in writer.recent[-window:]])
    return [*row, writer.restart_offset] if writer.restart_offset else row


def _dump_block(block: AppendedBlock) -> tuple[int | None, ...]:
    """Return what a snapshot holds of a block: most are of no transaction and have no digest."""
    return block if block.transaction_id != 0 or block.digest else block[:4]


def _writer_id_reused_error(name: str, sequence: int, cause: str) -> Refusal:
    """Return the error for a number that a writer used for another block."""
    return Refusal(
        Reason.WRITER_ID_REUSED,
        f"{name}: writer id reused: block {sequence} is not the one that was sent under this number ({cause}); send it "
        "under a new writer id",
    )
