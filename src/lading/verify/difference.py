"""The first message in which two topics differ, found by reading one range of both once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..client.message_json import to_json
from ..client.received import to_messages
from ..model.message import Message
from .digests import RangeDigest
from .settings import FACTS, Fact, VerifySettings
from .side import DigestedRange, TopicSide

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a partition: message ``number`` (from 0) of both topics, None for one that ends before
    it.

    ``facts`` names the parts that differ; ``meaning`` says what the messages after it suggest.
    """

    partition: int
    number: int
    a: Message | None
    b: Message | None
    facts: Sequence[Fact]
    meaning: str

    def as_document(self) -> dict[str, Any]:
        """Return the difference as a JSON document."""
        return {
            "partition": self.partition,
            "message": self.number,
            "facts": list(self.facts),
            "meaning": self.meaning,
            "a": None if self.a is None else to_json(self.a),
            "b": None if self.b is None else to_json(self.b),
        }


def find_difference(
    a: TopicSide, b: TopicSide, ranges: tuple[DigestedRange, DigestedRange], settings: VerifySettings
) -> Difference | None:
    """Return the first message that differs from these ranges on; None if all are equal.

    Messages that arrived after the topics were opened count only in ``b``, and only if ``b`` lacked them before.
    """
    one, other = ranges
    facts, ignored = settings.facts, settings.ignored_headers
    first, second = _Rows(a.iter_rows(one, a.end_of(one.partition))), _Rows(b.iter_rows(other))
    number = one.number * settings.range_messages
    while True:
        left, right = first.peek(1), second.peek(1)
        if left is None or right is None:
            break
        count = min(left.num_rows, right.num_rows)
        same = _count_same(left.slice(0, count), right.slice(0, count), facts, ignored)
        first.skip(same)
        second.skip(same)
        number += same
        if same < count:
            break
    if left is None and (right is None or right.column("offset")[0].as_py() >= b.end_of(one.partition)):
        return None
    rows = first.peek(2), second.peek(2)
    of_a, of_b = (_to_message(side, batch, one.partition) for side, batch in zip((a, b), rows, strict=True))
    if rows[0] is None or rows[1] is None:
        missing, rest = ("b", a) if rows[1] is None else ("a", b)
        end = rest.end_of(one.partition)
        meaning = f"{missing} has no more messages; {'a' if rest is a else 'b'} goes on to offset {end - 1:,}"
        return Difference(one.partition, number, of_a, of_b, (), meaning)
    differing = [fact for fact in FACTS if fact in facts and not _are_equal(rows[0], rows[1], 0, 0, [fact], ignored)]
    meaning = "the messages differ"
    if rows[0].num_rows > 1 and _are_equal(rows[0], rows[1], 1, 0, facts, ignored):
        meaning = "b lacks this message of a"
    elif rows[1].num_rows > 1 and _are_equal(rows[0], rows[1], 0, 1, facts, ignored):
        meaning = "b has a message that a has not"
    return Difference(one.partition, number, of_a, of_b, differing, meaning)


class _Rows:
    """The messages of one side in order; ``peek`` shows the next ones without passing them."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: list[pa.RecordBatch] = []

    def peek(self, count: int) -> pa.RecordBatch | None:
        """Return at least ``count`` of the next messages, fewer at the end, None after the last one."""
        while sum(batch.num_rows for batch in self._held) < count:
            batch = next(self._batches, None)
            if batch is None:
                break
            if batch.num_rows:
                self._held.append(batch)
        if not self._held:
            return None
        if self._held[0].num_rows < count and len(self._held) > 1:
            self._held = pa.Table.from_batches(self._held).combine_chunks().to_batches()
        return self._held[0]

    def skip(self, count: int) -> None:
        """Pass messages, no more than the last ``peek`` returned."""
        rest = self._held[0].slice(count)
        self._held[:1] = [rest] if rest.num_rows else []


def _count_same(left: pa.RecordBatch, right: pa.RecordBatch, facts: Collection[Fact], ignored: Collection[str]) -> int:
    """Return how many messages at the beginning of two batches of one size are equal."""
    low, high = 0, left.num_rows
    if _digest_of(left, facts, ignored) == _digest_of(right, facts, ignored):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        parts = (batch.slice(low, middle - low) for batch in (left, right))
        one, other = (_digest_of(part, facts, ignored) for part in parts)
        low, high = (middle, high) if one == other else (low, middle)
    return low


def _are_equal(
    left: pa.RecordBatch, right: pa.RecordBatch, at: int, place: int, facts: Collection[Fact], ignored: Collection[str]
) -> bool:
    return _digest_of(left.slice(at, 1), facts, ignored) == _digest_of(right.slice(place, 1), facts, ignored)


def _digest_of(batch: pa.RecordBatch, facts: Collection[Fact], ignored: Collection[str]) -> bytes:
    digest = RangeDigest(facts, ignored)
    digest.add(batch)
    return digest.digest()


def _to_message(side: TopicSide, batch: pa.RecordBatch | None, partition: int) -> Message | None:
    if batch is None:
        return None
    return to_messages(batch.slice(0, 1), side.meta.stream, side.meta.topic, partition)[0]
