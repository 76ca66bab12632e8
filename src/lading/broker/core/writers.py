"""Sequence numbers of writers, per partition, so that a repeated block is kept once.

A native writer numbers its blocks from 0, a producer its records. What follows is taken, one of the last ``window``
blocks is answered with the offset it got. A higher epoch starts again at 0 and shuts the lower one out.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ...dialects.sequenced import SequencedBatch
from ...log.formats import GATE, WRITERS
from ...model.errors import CorruptLog, Reason, Refusal

K = TypeVar("K")

SNAPSHOT = "writers"


class AppendedBlock(NamedTuple):
    """A block that was appended; it took ``numbers`` numbers from ``sequence`` on."""

    sequence: int
    base_offset: int
    end_offset: int
    numbers: int = 1


@dataclass(slots=True)
class Writer:
    """One writer in one partition; ``recent`` holds its last blocks in order."""

    epoch: int
    next_sequence: int = 0
    recent: list[AppendedBlock] = field(default_factory=list)


class Ranges(dict[K, list[tuple[int, int]]]):
    """Offset ranges of one partition by what they belong to, rising, joined where they touch."""

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
        self.snapshot_segments = 0
        """How many segments the log had at the last snapshot."""
        self.snapshot_end = 0
        """Up to which offset the last snapshot knows the blocks."""

    def find(
        self, writer_id: bytes, epoch: int, sequence: int, expected: dict[bytes, tuple[int, int]]
    ) -> AppendedBlock | None:
        """None where the block is new and next, the block it repeats otherwise; Refusal OUT_OF_SEQUENCE.

        ``expected`` holds (epoch, next sequence) of writers with earlier blocks in the same request.
        """
        if writer_id in expected and expected[writer_id] == (epoch, sequence):
            return None
        writer = self._writers.get(writer_id)
        if writer is not None and epoch == writer.epoch and writer_id not in expected:
            if sequence == writer.next_sequence:
                return None
            for block in reversed(writer.recent):
                if block.sequence == sequence:
                    return block
        elif writer_id not in expected and sequence == 0 and (writer is None or epoch > writer.epoch):
            return None
        raise Refusal(Reason.OUT_OF_SEQUENCE, self._explain(writer_id, epoch, sequence, expected))

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

    def get(self, writer_id: bytes) -> Writer | None:
        """Return what is remembered of a writer."""
        return self._writers.get(writer_id)

    def items(self) -> Iterable[tuple[bytes, Writer]]:
        """Return all writers, the least recently heard first."""
        return self._writers.items()

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset that is not decided; None where all are."""
        ranges = (*self.transactions.values(), *self.open_by_writer.values())
        return min((one[0][0] for one in ranges), default=None)

    def add(self, numbered: SequencedBatch, high_watermark: int) -> None:
        """Note that a block or control record is in the log now."""
        writer_id, epoch, sequence, numbers, base_offset, end_offset, transaction_id, transactional, outcome = numbered
        if transaction_id:
            self.transactions.add(transaction_id, base_offset, end_offset)
        if outcome is not None:
            self.open_by_writer.pop(writer_id, None)
            self._writer(writer_id, epoch)
        elif writer_id:
            if transactional:
                self.open_by_writer.add(writer_id, base_offset, end_offset)
            self._count(
                self._writer(writer_id, epoch),
                AppendedBlock(sequence, base_offset, end_offset, numbers),
                high_watermark,
            )

    def expect(self, writer_id: bytes, epoch: int, sequence: int) -> None:
        """Let an unknown writer go on here: its first block could not be written, so that a later one comes first."""
        if writer_id not in self._writers:
            self._writer(writer_id, epoch).next_sequence = sequence

    def _writer(self, writer_id: bytes, epoch: int) -> Writer:
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
                    [writer_id.hex(), writer.epoch, writer.next_sequence, writer.recent[-self._window :]]
                    for writer_id, writer in self._writers.items()
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
            for writer_id, epoch, next_sequence, recent in document["writers"]:
                blocks = [AppendedBlock(*block) for block in recent]
                self._writers[bytes.fromhex(writer_id)] = Writer(epoch, next_sequence, blocks)
            for transaction_id, ranges in document["transactions"]:
                self.transactions[transaction_id] = [(first, end) for first, end in ranges]
            for writer_id, ranges in document.get("unmarked", ()):
                self.open_by_writer[bytes.fromhex(writer_id)] = [(first, end) for first, end in ranges]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptLog(f"{source} cannot be read: {error!r}; delete its file, it is created again") from None
