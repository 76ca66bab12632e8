"""Loads messages that are not in memory: threads fetch from the cluster and post chunks to the event loop.

A load that fails for now, as without a leader, is tried again later, and others are done meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import numpy as np

from ..chunk.envelope import ENVELOPE_BYTES, seal
from ..dialects.kafka.errors import THROTTLING_QUOTA_EXCEEDED
from ..model.chunk_table import (
    BASE_OFFSET,
    BODY_END,
    BODY_START,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
)
from ..model.errors import LadingError, Reason, Refusal
from .attempts import ClusterAttempts, StalledWork
from .log import CachedStretch, ClusterLog, Loaded

if TYPE_CHECKING:
    from ..model.run import Run
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
LOAD_BYTES_MIN: Final = 1 << 20
"""Smallest size of a load, so that most of a reader's next reads find their messages in memory."""


THROTTLED_SHARE: Final = 4
"""Divisor of a load's size after the cluster has held it back."""
Key = tuple[ClusterLog, str, int]
Ask = Callable[["KafkaTransport", int], Callable[[], None]]
"""Asks the cluster, for at most this many bytes; returns what the event loop does with the result."""


@dataclass(slots=True, eq=False)
class _Load:
    key: Key
    ask: Ask
    bytes_max: int
    attempts: ClusterAttempts = field(default_factory=ClusterAttempts)


class Loader:
    """Loads ranges of logs, each once for all readers that wait for it. Methods are for the event loop."""

    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        threads_count: int,
        patience_s: float,
    ) -> None:
        """``post`` has the event loop call a function soon, from any thread; a load is tried for ``patience_s``."""
        self._open_transport = open_transport
        self._post = post
        self._changed = Condition()
        self._loads: deque[_Load] = deque()
        self._stalled: StalledWork[Key, _Load] = StalledWork(patience_s)
        self._is_ending = False
        self._failing: WeakSet[ClusterLog] = WeakSet()
        """Partitions whose last load failed, each logged once: Iggy's clients get a code alone."""
        self._waiting: dict[Key, list[Loaded]] = {}
        self._threads = [Thread(target=self._run, name="lading-load", daemon=True) for _ in range(threads_count)]
        for thread in self._threads:
            thread.start()

    def load(self, log: ClusterLog, offset: int, max_bytes: int) -> Callable[[Loaded], None]:
        """Load messages from ``offset`` on; return a function that adds a callback."""
        key = (log, "offset", offset)
        return self._begin(key, partial(_fetch, log, offset), max(max_bytes, LOAD_BYTES_MIN))

    def find_time(self, log: ClusterLog, timestamp_us: int) -> Callable[[Loaded], None]:
        """Request the first offset at a time; return a function that adds a callback."""
        key = (log, "time", timestamp_us)
        return self._begin(key, partial(_find_time, log, timestamp_us), 0)

    def close(self) -> None:
        """End the threads after their present work; one that waits for the cluster ends with the process."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()

    def _begin(self, key: Key, ask: Ask, bytes_max: int) -> Callable[[Loaded], None]:
        if key not in self._waiting:
            self._waiting[key] = []
            with self._changed:
                self._loads.append(_Load(key, ask, bytes_max))
                self._changed.notify()

        def add(callback: Loaded) -> None:
            callbacks = self._waiting.get(key)
            if callbacks is None:
                callback(None)
            else:
                callbacks.append(callback)

        return add

    def _finish(self, key: Key, take: Callable[[], None], error: LadingError | None) -> None:
        take()
        for callback in self._waiting.pop(key):
            callback(error)

    # -- in a thread

    def _run(self) -> None:
        transport = self._open_transport()
        # loads are tried again here, and others are done meanwhile
        transport.limit_patience(transport.cluster.timeout_s, 0.0)
        while (load := self._take()) is not None:
            try:
                take = load.ask(transport, load.bytes_max)
            except Exception as error:
                if getattr(error, "code", None) == THROTTLING_QUOTA_EXCEEDED:
                    # the cluster gives all of it or nothing: beside other readers the quota may never have room for it
                    load.bytes_max = max(load.bytes_max // THROTTLED_SHARE, 1)
                with self._changed:
                    is_put_off = self._stalled.put_off(load.key, load, error)
                    self._changed.notify()
                if not is_put_off:
                    refusal = to_refusal(load.key[0], error)
                    if load.key[0] not in self._failing:
                        LOG.warning("%s", refusal)
                    self._failing.add(load.key[0])
                    self._post(partial(self._finish, load.key, _do_nothing, refusal))
            else:
                self._failing.discard(load.key[0])
                self._post(partial(self._finish, load.key, take, None))
        transport.close()

    def _take(self) -> _Load | None:
        """Return a load whose turn has come again, or the one that has waited longest; None at the end."""
        with self._changed:
            while not self._is_ending:
                due = self._stalled.take_due()
                if due is not None:
                    return due
                if self._loads:
                    return self._loads.popleft()
                self._changed.wait(self._stalled.measure_wait_s())
            return None


def _fetch(log: ClusterLog, offset: int, transport: KafkaTransport, max_bytes: int) -> Callable[[], None]:
    topic, partition = log.place
    at = offset
    while True:
        found = transport.fetch(topic, partition, at, max_bytes=max_bytes)
        if found.topic_id is not None and found.topic_id != log.topic_id:
            raise Refusal(Reason.TOPIC_NAME_NOT_FOUND, f"topic {topic!r} was created again; look it up, then read it")
        if found.runs or found.end_offset <= at or found.end_offset >= found.last_stable_offset:
            break
        at = found.end_offset
    if found.runs:
        stretch = to_stretch(found.runs[0], max(offset, found.first_offset), found.end_offset)
        return partial(_take, log, stretch, found.first_offset)
    # control records only, or messages of an open transaction: for now readers see nothing from here on
    return partial(log.withhold, found.first_offset, offset)


def _find_time(log: ClusterLog, timestamp_us: int, transport: KafkaTransport, _max_bytes: int) -> Callable[[], None]:
    return partial(log.add_time, timestamp_us, transport.offset_at(*log.place, timestamp_us))


def _do_nothing() -> None:
    return None


def _take(log: ClusterLog, stretch: CachedStretch, first_offset: int) -> None:
    log.first_offset = max(log.first_offset, first_offset)
    log.add(stretch)
    log.advance(stretch.end_offset)


def to_refusal(log: ClusterLog, error: Exception) -> LadingError:
    """Return the error of a client's read for an error of the cluster."""
    topic, partition = log.place
    if isinstance(error, Refusal):
        return error
    if not isinstance(error, LadingError):
        LOG.error("topic %r, partition %d: a request to the cluster failed", topic, partition, exc_info=error)
    return Refusal(
        Reason.STOPPING,
        f"topic {topic!r}, partition {partition}: the Kafka cluster does not give it ({error}); retry later",
    )


def to_stretch(run: Run, first: int, end_offset: int) -> CachedStretch:
    """Return the batches of a fetch as chunks with envelopes, from ``first`` up to ``end_offset``.

    Offsets without a message, such as those of control records, belong to the chunk before or after them.
    """
    rows = run.chunks
    sizes = rows[:, BODY_END] - rows[:, BODY_START] + ENVELOPE_BYTES
    starts = np.concatenate(([0], np.cumsum(sizes))).tolist()
    region = np.empty(starts[-1], np.uint8)
    bases: list[int] = []
    for number, row in enumerate(rows.tolist()):
        body, stop = starts[number] + ENVELOPE_BYTES, starts[number + 1]
        region[body:stop] = run.region[row[BODY_START] : row[BODY_END]]
        base = min(row[BASE_OFFSET], first) if number == 0 else row[BASE_OFFSET]
        last = row[LAST_OFFSET] if number + 1 < len(rows) else max(row[LAST_OFFSET], end_offset - 1)
        bases.append(base)
        seal(
            region,
            starts[number],
            stop,
            dialect=run.dialect,
            flags=0,
            base_offset=base,
            count=row[COUNT],
            last_offset_delta=last - base,
            min_timestamp_us=row[MIN_TIMESTAMP_US],
            max_timestamp_us=max(row[MAX_TIMESTAMP_US], row[MIN_TIMESTAMP_US]),
        )
    return CachedStretch(region, bases[0], max(end_offset, int(rows[-1, LAST_OFFSET]) + 1), starts, bases)
