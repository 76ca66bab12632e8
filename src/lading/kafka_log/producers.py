"""Threads that produce clients' messages: one order for each partition, acks=all, idempotent, acknowledged batch by
batch.

A partition belongs to one thread, so that its messages stay in order. Messages of a partition that wait during its last
batch are sent together.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pyarrow as pa

from ..dialects import registry
from ..model.batch import FIELDS_WITH_ORIGIN
from ..model.chunk_table import COLUMNS
from ..model.errors import LadingError
from ..model.run import Run
from ..model.scan_request import ScanRequest
from ..transports.fitting import MessageRefused
from ..transports.kafka.writer import KafkaWriter
from .due_dates import add_due_date

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..transports.kafka.transport import KafkaTransport

TOGETHER_BYTES_MAX: Final = 1 << 20
"""Limit of the messages that are sent together: with more, the first of them would wait longer."""
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
    ) -> None:
        self._threads = [_ProducerThread(open_transport, post) for _ in range(threads_count)]

    def submit(self, place: Place, messages: Sequence[OutgoingMessages], outcome: ProduceOutcome) -> None:
        """Send messages of a partition after those before them."""
        self._thread_of(place).submit(place, messages, outcome)

    def resume(self, place: Place, outcome: ProduceOutcome) -> None:
        """Send messages again that are submitted from now on: all earlier ones have failed."""
        self._thread_of(place).resume(outcome)

    def close(self, timeout_s: float) -> None:
        """Send waiting messages, and end the threads; one that still waits for the cluster ends with the process."""
        for thread in self._threads:
            thread.end()
        for thread in self._threads:
            thread.join(timeout_s)

    def _thread_of(self, place: Place) -> _ProducerThread:
        # the same for each gateway and start, unlike hash()
        return self._threads[zlib.crc32(f"{place[0]}/{place[1]}".encode()) % len(self._threads)]


class _ProducerThread(Thread):
    def __init__(
        self, open_transport: Callable[[], KafkaTransport], post: Callable[[Callable[[], None]], None]
    ) -> None:
        super().__init__(name="lading-produce", daemon=True)
        self._open_transport = open_transport
        self._post = post
        self._changed = Condition()
        self._waiting: OrderedDict[ProduceOutcome, tuple[Place, deque[OutgoingMessages]]] = OrderedDict()
        """Waiting messages by partition object: a topic that was created again is not mixed with the deleted one."""
        self._failed: set[ProduceOutcome] = set()
        """Partitions for which nothing is sent until ``resume``."""
        self._is_ending = False
        self.start()

    def submit(self, place: Place, messages: Sequence[OutgoingMessages], outcome: ProduceOutcome) -> None:
        with self._changed:
            if messages and outcome not in self._failed:
                self._waiting.setdefault(outcome, (place, deque()))[1].extend(messages)
                self._changed.notify()

    def resume(self, outcome: ProduceOutcome) -> None:
        with self._changed:
            self._failed.discard(outcome)

    def end(self) -> None:
        with self._changed:
            self._is_ending = True
            self._changed.notify()

    def run(self) -> None:
        transport = self._open_transport()
        writer = KafkaWriter(transport.cluster)
        while (work := self._take()) is not None:
            self._send(writer, *work)
        transport.close()

    def _take(self) -> tuple[Place, list[OutgoingMessages], ProduceOutcome] | None:
        """Return the next messages of the partition that has waited longest, or None at the end."""
        with self._changed:
            while not self._waiting:
                if self._is_ending:
                    return None
                self._changed.wait()
            outcome, (place, messages) = self._waiting.popitem(last=False)
            taken: list[OutgoingMessages] = []
            size_bytes = 0
            while messages and size_bytes < TOGETHER_BYTES_MAX:
                one = messages.popleft()
                taken.append(one)
                size_bytes += one.end - one.start
            if messages:
                self._waiting[outcome] = place, messages
            return place, taken, outcome

    def _send(
        self, writer: KafkaWriter, place: Place, messages: list[OutgoingMessages], outcome: ProduceOutcome
    ) -> None:
        while messages:
            first = messages[0].first

            def acknowledge(low: int, high: int, base_offset: int, first: int = first) -> None:
                self._post(partial(outcome.acknowledge, first + low, first + high, base_offset))

            try:
                batch = to_batch(messages)
                writer.send(*place, batch, strict=False, compression=None, on_acknowledged=acknowledge)
                return
            except MessageRefused as refused:
                number = first + (refused.row or 0)
                refusing = next(one for one in messages if one.first + one.messages_count > number)
                end = refusing.first + refusing.messages_count
                self._post(partial(outcome.refuse, refusing.first, end, refused))
                messages = [one for one in messages if one.first >= end]
            except Exception as error:
                with self._changed:
                    self._waiting.pop(outcome, None)
                    self._failed.add(outcome)
                known = error if isinstance(error, LadingError) else LadingError(repr(error))
                self._post(partial(outcome.fail, first, known))
                return


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
