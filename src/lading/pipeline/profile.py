"""Profiles of topics: what headers and payloads hold and weigh, how that changes, and the contract they suggest."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..client.consumer import Consumer
from ..columns.instants import drop_unreadable_times
from ..columns.locate import Entries
from ..columns.looks import count_looks
from ..columns.seen_members import PayloadStatistics
from ..columns.statistics import HeaderStatistics
from ..model.errors import LocalError
from ..model.message import Message
from ..model.ranges import OffsetSpan
from ..payloads.decoded import decode_payloads
from ..payloads.form import PayloadForm
from ..registry.payload_form import parse_payload_form
from ..transports.fetched import States
from ..transports.losses import describe_damage
from ..transports.open import is_queue
from .dead_letters import HEADER_TYPES

HEAVIEST_MAX: Final = 10
INTERVALS_MAX: Final = 32
"""The time of the messages is divided into at most this many intervals, which double in length when it grows."""
INTERVAL_US_MIN: Final = 1_000_000
DECODED_MAX: Final = 2_000
"""Payloads that are decoded by their schemas, one by one: about a tenth of a millisecond each."""
QUEUE_WAIT_S: Final = 2.0
"""A queue has no end: its profile ends after this time without a message."""
FIELDS: Final = "partition, offset, timestamp, key, headers, payload"
_LOOK_TYPES: Final = {
    "integer": "bigint",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "date": "date",
    "decimal": "double",
}
_REPEATED_SHARE: Final = 0.5
"""A header that occurs more than once in more than this share of its messages is suggested as a list."""


@dataclass(frozen=True, slots=True, order=True)
class HeavyMessage:
    """A message with many bytes of headers: names and values together."""

    header_bytes: int
    partition: int
    offset: int
    headers: int
    payload_bytes: int


@dataclass
class TopicProfile:
    """Statistics of the messages that were added; its size does not depend on how many those are."""

    statistics: HeaderStatistics = field(default_factory=HeaderStatistics)
    members: PayloadStatistics = field(default_factory=PayloadStatistics)
    header_bytes: int = 0
    payload_bytes: int = 0
    key_bytes: int = 0
    heaviest: list[HeavyMessage] = field(default_factory=list)
    looks: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Number of values, without nulls, of each look, by header."""
    interval_us: int = INTERVAL_US_MIN
    intervals: Counter[int] = field(default_factory=Counter)
    """Messages by the number of their interval since 1970."""
    unreadable_times: int = 0
    """Messages whose time is outside the years 1 to 9999; they are in no interval."""
    by_interval: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Messages with each header, by interval."""
    damaged: dict[int, list[OffsetSpan]] = field(default_factory=dict)
    """Offsets that could not be read, by partition."""
    lost: str = ""
    """The sentence about these."""
    form: PayloadForm | None = None
    """How payloads are read that name their schema; None if all are JSON."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the messages of a batch with the columns FIELDS."""
        self.statistics.add(batch)
        self._add_members(batch)
        entries = Entries.of(batch.column("headers"))
        payload = _sizes_of(batch.column("payload"))
        self.payload_bytes += int(payload.sum())
        self.key_bytes += int(_sizes_of(batch.column("key")).sum())
        sizes = _sizes_of(entries.key_array) + _sizes_of(entries.value_array)
        ends = np.concatenate(([0], np.cumsum(sizes)))
        of_message = ends[entries.lists[1:]] - ends[entries.lists[:-1]]
        self.header_bytes += int(ends[-1])
        self._weigh(batch, of_message, np.diff(entries.lists), payload)
        times = drop_unreadable_times(batch.column("timestamp"))[0]
        self.unreadable_times += times.null_count
        timed = times.is_valid().to_numpy(zero_copy_only=False)
        moments: Any = times.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)
        numbers = np.zeros(entries.rows, np.int64)
        numbers[timed] = self._intervals_of(moments)
        self._count_by_header(entries, numbers, timed)

    def _add_members(self, batch: pa.RecordBatch) -> None:
        if self.form is None:
            self.members.add(batch)
            return
        room = DECODED_MAX - self.members.messages
        self.members.is_cut |= batch.num_rows > room
        if room > 0:
            self.members.add(decode_payloads(self.form, batch.slice(0, room)))

    @property
    def total_bytes(self) -> int:
        """The bytes of headers, keys and payloads."""
        return self.header_bytes + self.key_bytes + self.payload_bytes

    def rows(self) -> list[dict[str, Any]]:
        """Return a JSON-ready row per header, the heaviest first: those of HeaderStatistics, weight, looks and change.

        ``bytes`` are names and values, ``bytes_share`` is their percentage of all bytes of messages. ``change`` is the
        percentage of messages with the header by interval.
        """
        rows = []
        for row in self.statistics.rows():
            of_key = self.statistics.keys[row["key"]]
            weight = of_key.size_bytes + of_key.occurrences * len(row["key"].encode())
            looks = self.looks[row["key"]]
            whole = sum(looks.values()) or 1
            change = [
                100.0 * self.by_interval[row["key"]][number] / count for number, count in sorted(self.intervals.items())
            ]
            rows.append(
                row
                | {
                    "bytes": weight,
                    "bytes_share": 100.0 * weight / self.total_bytes if self.total_bytes else 0.0,
                    "looks": {look: count / whole for look, count in looks.most_common()},
                    "change": change,
                    "proposed": self.propose(row["key"]),
                }
            )
        return sorted(rows, key=lambda row: -row["bytes"])

    def propose(self, key: str) -> dict[str, Any]:
        """Return a declaration for the header: its type, its encoding unless it is auto, whether it is required.

        A text gets another type only if all of its values look like it.
        """
        of_key, looks = self.statistics.keys[key], set(self.looks[key])
        made: dict[str, Any] = {"type": of_key.type}
        if key in HEADER_TYPES and of_key.type == "string":
            made["type"] = HEADER_TYPES[key]
        elif of_key.duplicates > _REPEATED_SHARE * of_key.messages and of_key.type == "string":
            made["type"] = "array<string>"
        elif of_key.type == "string" and len(looks) == 1 and not looks & {"big-endian int"}:
            made["type"] = _LOOK_TYPES.get(next(iter(looks)), "string")
        elif of_key.type == "string" and looks == {"integer", "decimal"}:
            made["type"] = "double"
        elif looks == {"big-endian int"} and len(of_key.value_sizes) == 1:
            made |= {"type": {2: "smallint", 4: "int", 8: "bigint"}[next(iter(of_key.value_sizes))], "encoding": "be"}
        if of_key.messages == self.statistics.messages and not of_key.nulls:
            made["required"] = True
        return made

    def document(self, topic: str, from_: str) -> dict[str, Any]:
        """Return the whole profile as JSON."""
        numbers = sorted(self.intervals)
        return {
            "topic": topic, "from": from_, "messages": self.statistics.messages, "header_bytes": self.header_bytes,
            "key_bytes": self.key_bytes, "payload_bytes": self.payload_bytes, "headers": self.rows(),
            "other_occurrences": self.statistics.other_occurrences,
            "intervals": [
                {"begin": Message(None, timestamp_us=number * self.interval_us).timestamp.isoformat(),
                 "seconds": self.interval_us / 1e6, "messages": self.intervals[number]}
                for number in numbers
            ],
            "heaviest": [asdict(one) for one in self.heaviest_first()],
            "damaged": [
                {"partition": number, "first": first, "end": end}
                for number, ranges in sorted(self.damaged.items()) for first, end in ranges
            ],
            "lost": self.lost or None,
            "unreadable_times": self.unreadable_times, "payload": self.members.document(),
        }  # fmt: skip

    def heaviest_first(self) -> list[HeavyMessage]:
        """Return the messages with the most bytes of headers."""
        return sorted(self.heaviest, key=lambda one: (-one.header_bytes, one.partition, one.offset))

    def _weigh(
        self, batch: pa.RecordBatch, header_bytes: NDArray[Any], headers: NDArray[Any], payload: NDArray[Any]
    ) -> None:
        partitions, offsets = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("partition", "offset"))
        for at in np.argsort(-header_bytes, kind="stable")[:HEAVIEST_MAX].tolist():
            one = HeavyMessage(
                int(header_bytes[at]), int(partitions[at]), int(offsets[at]), int(headers[at]), int(payload[at])
            )
            if len(self.heaviest) < HEAVIEST_MAX:
                heapq.heappush(self.heaviest, one)
            elif one.header_bytes > self.heaviest[0].header_bytes:
                heapq.heappushpop(self.heaviest, one)

    def _intervals_of(self, moments_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the interval of each of these times, after making intervals long enough for all of them."""
        while True:
            numbers: NDArray[np.int64] = moments_us // self.interval_us
            if len(set(np.unique(numbers).tolist()) | self.intervals.keys()) <= INTERVALS_MAX:
                break
            self.interval_us *= 2
            self.intervals = _halve_numbers(self.intervals)
            for key, counts in self.by_interval.items():
                self.by_interval[key] = _halve_numbers(counts)
        values, messages = np.unique(numbers, return_counts=True)
        self.intervals.update(dict(zip(values.tolist(), messages.tolist(), strict=True)))
        return numbers

    def _count_by_header(self, entries: Entries, numbers: NDArray[np.int64], timed: NDArray[np.bool_]) -> None:
        parents = np.repeat(np.arange(entries.rows), np.diff(entries.lists))
        encoded: Any = entries.key_array.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, key in enumerate(encoded.dictionary.to_pylist()):
            if key not in self.statistics.keys:
                continue
            held = np.flatnonzero(codes == code)
            messages = np.unique(parents[held])
            values, counts = np.unique(numbers[messages[timed[messages]]], return_counts=True)
            self.by_interval[key].update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
            for kind in np.unique(entries.kinds[held]).tolist():
                mine = held[entries.kinds[held] == kind]
                self.looks[key].update(count_looks(key, kind, entries.value_array.take(pa.array(mine))))


def read_profile(
    from_: str, topic: str, *, group: str | None = None, where: str | None = None, states: States = "available",
    limit: int | None = None, on_rows: Callable[[int], None] = lambda rows: None,
    transport: Mapping[str, Any] | None = None, payload: Mapping[str, str] | None = None,
) -> TopicProfile:  # fmt: skip
    """Return the profile of a topic, or of its first ``limit`` messages that ``where`` selects.

    ``payload`` has the keys of ``[payload]``: with a registry the members of payloads are those of their schemas.

    A queue (``nsq://``) is read through the channel ``group``, which consumes its messages. Raises LocalError for a
    topic without messages, and the errors of reading it. Damaged parts of the log are skipped, with a warning.
    """
    queue = is_queue(from_)
    if queue and group is None:
        raise LocalError(
            f"{from_} is a queue, and reading it consumes messages: name a channel to read with --group NAME; a new "
            "one gets what is published from then on, and takes nothing from others"
        )
    found = TopicProfile(form=None if payload is None else parse_payload_form(payload))
    options: dict[str, Any] = {"where": where, "states": states, "start": "earliest", "verify_checksum": False}
    options |= {"group": group, "timeout_s": QUEUE_WAIT_S if queue else 0, "on_loss": "skip"}
    options["payload"] = payload
    with Consumer(from_, topic, **options, **(transport or {})) as consumer:
        for batch in consumer.batches(FIELDS):
            read = found.statistics.messages
            wanted = batch if limit is None else batch.slice(0, limit - read)
            if wanted.num_rows:
                found.add(wanted)
                on_rows(wanted.num_rows)
            if limit is not None and found.statistics.messages >= limit:
                break
        found.damaged = {partition: ranges for (_, partition), ranges in consumer.damage().items()}
        if found.damaged:
            found.lost = describe_damage(found.damaged, len(consumer.transport.topic(topic).partitions))
    if not found.statistics.messages:
        what = f"no messages that match {where}" if where is not None else "no messages that can be read"
        lost = f"; {found.lost}" if found.lost else ""
        raise LocalError(
            f"topic {topic!r} at {from_} holds {what}, so there is nothing to profile; "
            f"send some, or name another topic{lost}"
        )
    return found


def _halve_numbers(counts: Counter[int]) -> Counter[int]:
    made: Counter[int] = Counter()
    for number, count in counts.items():
        made[number // 2] += count
    return made


def _sizes_of(column: Any) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = pc.binary_length(column).fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return sizes
