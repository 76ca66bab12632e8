"""What native writers have written: sequences per writer and partition, so that a repeated block is kept once.

A writer numbers its blocks per partition from 0. The next number is taken, one of the last ``window`` is answered
with the offset it got, anything else is refused. A higher epoch starts again at 0 and shuts the lower one out.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model.errors import CorruptLog, Reason, Refusal

SNAPSHOT = "writers"
_SNAPSHOT_VERSION = 1


class Block(NamedTuple):
    """A block that was appended."""

    sequence: int
    base_offset: int
    end_offset: int


@dataclass(slots=True)
class Writer:
    """One writer in one partition; ``recent`` holds its last blocks in order."""

    epoch: int
    next_sequence: int = 0
    recent: list[Block] = field(default_factory=list)


class Ranges(dict[int, list[tuple[int, int]]]):
    """Offset ranges of one partition by transaction id, rising, joined where they touch."""

    def add(self, transaction_id: int, first: int, end: int) -> None:
        """One more block of a transaction."""
        ranges = self.setdefault(transaction_id, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((first, end))

    def cut(self, offset: int) -> None:
        """Forget all from ``offset`` on."""
        for transaction_id, ranges in list(self.items()):
            kept = [(first, min(end, offset)) for first, end in ranges if first < offset]
            if kept:
                self[transaction_id] = kept
            else:
                del self[transaction_id]


class Writers:
    """Sequences and open transactions of one partition. All of it can be rebuilt from the blocks in the log."""

    def __init__(self, window: int, writers_max: int) -> None:
        self._window = window
        self._writers_max = writers_max
        self._writers: OrderedDict[bytes, Writer] = OrderedDict()
        self.transactions = Ranges()
        self.snapshot_segments = 0
        """How many segments the log had at the last snapshot."""

    def find(self, writer_id: bytes, epoch: int, sequence: int, expected: dict[bytes, tuple[int, int]]) -> Block | None:
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
            return f"{who} was written long ago; only the last {self._window} can be asked for again"
        return f"{who} leaves a gap: the next is {writer.next_sequence}"

    def add(self, writer_id: bytes, epoch: int, transaction_id: int, block: Block, synced_end: int) -> None:
        """A block is in the log now; ``writer_id`` zeros or ``transaction_id`` 0 is none."""
        if transaction_id:
            self.transactions.add(transaction_id, block.base_offset, block.end_offset)
        if any(writer_id):
            self._count(writer_id, epoch, block, synced_end)

    def _count(self, writer_id: bytes, epoch: int, block: Block, synced_end: int) -> None:
        writer = self._writers.get(writer_id)
        if writer is None or writer.epoch != epoch:
            writer = self._writers[writer_id] = Writer(epoch)
            if len(self._writers) > self._writers_max:
                self._writers.popitem(last=False)
        self._writers.move_to_end(writer_id)
        writer.next_sequence = block.sequence + 1
        writer.recent.append(block)
        # blocks that are not synced may still be cut, so they are kept whatever the window says
        excess = len(writer.recent) - self._window
        if excess > 0 and writer.recent[excess - 1].end_offset <= synced_end:
            del writer.recent[:excess]

    def cut(self, offset: int) -> None:
        """Blocks from ``offset`` on have not happened."""
        for writer_id, writer in list(self._writers.items()):
            lost = [block for block in writer.recent if block.end_offset > offset]
            if lost:
                writer.recent = writer.recent[: -len(lost)]
                writer.next_sequence = lost[0].sequence
                if writer.next_sequence == 0:
                    del self._writers[writer_id]
        self.transactions.cut(offset)

    def dump(self) -> bytes:
        """As JSON for a snapshot."""
        return json.dumps(
            {
                "version": _SNAPSHOT_VERSION,
                "writers": [
                    [writer_id.hex(), writer.epoch, writer.next_sequence, writer.recent[-self._window :]]
                    for writer_id, writer in self._writers.items()
                ],
                "transactions": list(self.transactions.items()),
            }
        ).encode()

    def load(self, data: bytes) -> None:
        """The inverse of ``dump``; CorruptLog for anything else."""
        try:
            document = json.loads(data)
            if document["version"] != _SNAPSHOT_VERSION:
                raise ValueError(f"version {document['version']}")
            for writer_id, epoch, next_sequence, recent in document["writers"]:
                blocks = [Block(*block) for block in recent]
                self._writers[bytes.fromhex(writer_id)] = Writer(epoch, next_sequence, blocks)
            for transaction_id, ranges in document["transactions"]:
                self.transactions[transaction_id] = [(first, end) for first, end in ranges]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptLog(f"a snapshot of writers cannot be read: {error!r}") from None
