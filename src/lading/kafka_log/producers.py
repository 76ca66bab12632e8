"""Threads that produce clients' messages: one order for each partition, acks=all, idempotent, acknowledged batch by
batch.

A partition belongs to one thread, so that its messages stay in order. Messages of a partition that wait during its last
batch are sent together. A batch that the cluster does not take now, as without a leader or enough replicas, is tried
again later, and other partitions are sent meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakSet

import pyarrow as pa

from ..dialects import registry
from ..model.batch import FIELDS_WITH_ORIGIN
from ..model.chunk_table import COLUMNS
from ..model.errors import LadingError
from ..model.run import Run
from ..model.scan_request import ScanRequest
from ..transports.fitting import MessageRefused
from ..transports.kafka.writer import KafkaWriter
from .attempts import ClusterAttempts, StalledWork
from .cluster_threads import ClusterThread, ThreadGroup
from .due_dates import add_due_date

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..transports.kafka.transport import KafkaTransport

TOGETHER_BYTES_MAX: Final = 1 << 20
"""Limit of the messages that are sent together: with more, the first of them would wait longer."""
WRITERS_MAX: Final = 1 << 12
"""Limit of the producer ids of a thread; beyond it the partition that was sent to longest ago gets a new one."""
Place = tuple[str, int]


class OutgoingMessages(NamedTuple):
    """Messages of one append, in a chunk's body at ``array[start:end]``, numbered from ``first`` by this gateway."""

    dialect: int
    flags: int
    array: NDArray[np.uint8]
    start: int
    end: int
    first: int
    messages_count: int
    min_timestamp_us: int
    max_timestamp_us: int
    due_date_us: int = 0
    """Time until which channels keep the messages back, in microseconds since 1970; 0 for none."""


@dataclass(slots=True, eq=False)
class _Attempt:
    """A batch of one partition that is being sent, or waits to be tried again."""

    place: Place
    outcome: ProduceOutcome
    messages: list[OutgoingMessages]
    batch: pa.RecordBatch | None = None
    done: int = 0
    """Number of rows that the cluster has acknowledged."""
    attempts: ClusterAttempts = field(default_factory=ClusterAttempts)


class ProduceOutcome(Protocol):
    """The event loop's view of a partition's messages, by the numbers that this gateway gave them."""

    def acknowledge(self, first: int, end: int, base_offset: int) -> None:
        """Note that the cluster stored messages from ``base_offset`` on; -1 if it reported no offset."""

    def refuse(self, first: int, end: int, error: LadingError) -> None:
        """Note that the cluster refuses one of these messages; the others continue."""

    def fail(self, first: int, error: LadingError) -> None:
        """Note that the outcome of these messages is unknown; no later ones are sent until ``resume``."""


class Producers:
    """The threads. ``submit`` and ``resume`` are for the event loop."""

    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        threads_count: int,
        patience_s: float,
    ) -> None:
        """``patience_s`` is how long a batch is tried again that the cluster does not take."""
        self._threads = ThreadGroup(partial(_ProducerThread, open_transport, post, patience_s), threads_count)

    def submit(self, place: Place, messages: Sequence[OutgoingMessages], outcome: ProduceOutcome) -> None:
        """Send messages of a partition after those before them."""
        self._thread_of(place).submit(place, messages, outcome)

    def resume(self, place: Place, outcome: ProduceOutcome) -> None:
        """Send messages again that are submitted from now on: all earlier ones have failed."""
        self._thread_of(place).resume(outcome)

    def forget(self, place: Place, outcome: ProduceOutcome) -> None:
        """Send no more of a partition that was deleted: its name may be another topic's soon."""
        self._thread_of(place).forget(outcome)

    def close(self, timeout_s: float) -> None:
        """Send waiting messages, and end the threads; one that still waits for the cluster ends with the process."""
        self._threads.close(timeout_s)

    def _thread_of(self, place: Place) -> _ProducerThread:
        return self._threads.choose(f"{place[0]}/{place[1]}")


class _ProducerThread(ClusterThread):
    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        patience_s: float,
    ) -> None:
        super().__init__("lading-produce", open_transport, post)
        self._waiting: OrderedDict[ProduceOutcome, tuple[Place, deque[OutgoingMessages]]] = OrderedDict()
        """Waiting messages by partition object: a topic that was created again is not mixed with the deleted one."""
        self._stalled: StalledWork[ProduceOutcome, _Attempt] = StalledWork(patience_s)
        """Batches that are tried again; nothing else of their partitions is sent before them."""
        self._failed: WeakSet[ProduceOutcome] = WeakSet()
        """Partitions for which nothing is sent until ``resume``, and deleted ones."""
        self._writers: OrderedDict[ProduceOutcome, KafkaWriter] = OrderedDict()
        """A producer id for each partition: one that is lost in the middle of a batch must not number another's."""

    def submit(self, place: Place, messages: Sequence[OutgoingMessages], outcome: ProduceOutcome) -> None:
        with self._changed:
            if messages and outcome not in self._failed:
                self._waiting.setdefault(outcome, (place, deque()))[1].extend(messages)
                self._changed.notify()

    def resume(self, outcome: ProduceOutcome) -> None:
        with self._changed:
            self._failed.discard(outcome)

    def forget(self, outcome: ProduceOutcome) -> None:
        with self._changed:
            self._failed.add(outcome)
            self._waiting.pop(outcome, None)
            self._stalled.discard(outcome)
            self._writers.pop(outcome, None)
            self._changed.notify()

    def work(self, transport: KafkaTransport) -> None:
        # this thread tries again by itself, and sends others meanwhile
        transport.limit_patience(transport.cluster.timeout_s, 0.0)
        while (work := self._take()) is not None:
            self._send(transport, work)

    def _take(self) -> _Attempt | None:
        """Return a batch whose turn has come again, or the next messages of the partition that has waited longest; None
        at the end.
        """
        with self._changed:
            while True:
                due = self._stalled.take_due()
                if due is not None:
                    return due
                outcome = next((one for one in self._waiting if one not in self._stalled), None)
                if outcome is not None:
                    return self._begin(outcome)
                if self._is_ending and not self._stalled:
                    return None
                self._changed.wait(self._stalled.measure_wait_s())

    def _begin(self, outcome: ProduceOutcome) -> _Attempt:
        place, messages = self._waiting.pop(outcome)
        taken: list[OutgoingMessages] = []
        size_bytes = 0
        while messages and size_bytes < TOGETHER_BYTES_MAX:
            one = messages.popleft()
            taken.append(one)
            size_bytes += one.end - one.start
        if messages:
            self._waiting[outcome] = place, messages
        return _Attempt(place, outcome, taken)

    def _send(self, transport: KafkaTransport, work: _Attempt) -> None:
        while work.messages:
            first, done = work.messages[0].first, work.done
            try:
                writer = self._find_writer(transport, work.outcome)
                if work.batch is None:
                    work.batch = to_batch(work.messages)
                acknowledge = partial(self._acknowledge, work)
                writer.send(*work.place, work.batch, strict=False, compression=None, on_acknowledged=acknowledge)
                return
            except MessageRefused as refused:
                number = first + (refused.row or 0)
                refusing = next(one for one in work.messages if one.first + one.messages_count > number)
                end = refusing.first + refusing.messages_count
                self._post(partial(work.outcome.refuse, refusing.first, end, refused))
                messages = [one for one in work.messages if one.first >= end]
                work = _Attempt(work.place, work.outcome, messages)
            except Exception as error:
                if work.done > done:
                    work.attempts.begin_anew()
                if not self._try_later(work, error):
                    with self._changed:
                        self._waiting.pop(work.outcome, None)
                        self._failed.add(work.outcome)
                    known = error if isinstance(error, LadingError) else LadingError(repr(error))
                    self._post(partial(work.outcome.fail, first, known))
                return

    def _acknowledge(self, work: _Attempt, low: int, high: int, base_offset: int) -> None:
        work.done = high
        first = work.messages[0].first
        self._post(partial(work.outcome.acknowledge, first + low, first + high, base_offset))

    def _try_later(self, work: _Attempt, error: Exception) -> bool:
        """Have a batch tried again, unless the error does not pass or has lasted too long; return whether."""
        with self._changed:
            # a deleted partition's messages have failed already
            return work.outcome in self._failed or self._stalled.put_off(work.outcome, work, error)

    def _find_writer(self, transport: KafkaTransport, outcome: ProduceOutcome) -> KafkaWriter:
        with self._changed:
            writer = self._writers.get(outcome)
            if writer is None:
                idle = next((one for one in self._writers if one not in self._stalled), None)
                if len(self._writers) >= WRITERS_MAX and idle is not None:
                    del self._writers[idle]
                writer = self._writers[outcome] = KafkaWriter(transport.cluster)
            self._writers.move_to_end(outcome)
            return writer


def to_batch(messages: Sequence[OutgoingMessages]) -> pa.RecordBatch:
    """Return the messages as one Batch, in order."""
    import numpy as np

    request = ScanRequest(fields=FIELDS_WITH_ORIGIN)
    parts: list[pa.RecordBatch] = []
    for one in messages:
        chunk = np.zeros((1, COLUMNS), np.int64)
        last = one.first + one.messages_count - 1
        times_us = one.min_timestamp_us, one.max_timestamp_us
        chunk[0] = (one.start, one.end, one.first, one.messages_count, last, *times_us, one.flags)
        some = [registry.to_batch(part) for part in registry.decode(Run(one.dialect, one.array, chunk), request)]
        parts += [add_due_date(part, one.due_date_us) for part in some] if one.due_date_us else some
    if len(parts) == 1:
        return parts[0]
    # some have origin times, others do not
    table = pa.concat_tables([pa.Table.from_batches([part]) for part in parts], promote_options="default")
    return table.combine_chunks().to_batches()[0]
