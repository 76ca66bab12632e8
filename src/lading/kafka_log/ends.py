"""The ends of partitions, watched with one request for each leader: readers are called back when messages arrive.

Partitions with readers are watched all the time, the others are checked once in ``SWEEP_S``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from ..dialects.kafka.commands import EARLIEST, LATEST
from ..model.errors import LadingError
from ..transports.kafka.offsets import OffsetAndEpoch, list_offsets

if TYPE_CHECKING:
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
WAIT_MS: Final = 200
"""The longest watch: a new partition is included in the next one."""
IDLE_S: Final = 0.02
"""The pause after a watch that ended early and found nothing, as happens before an open transaction."""
SWEEP_S: Final = 1.0
"""The interval of checks of all partitions."""
FIRST_EVERY: Final = 5
"""First offsets, which retention moves, are requested at every fifth check."""
AWAITED_S: Final = 10.0
"""How long a partition is watched after a reader asked for its end."""
RETRY_S: Final = 0.5
UNWATCHED_S: Final = 30.0
"""How long ends are listed every ``WAIT_MS`` instead of watched, after the cluster has held a watch back.

A watch ends with a whole batch, which counts for the quota of the login like those of readers. Kafka has no smaller
response, and counts for 11 seconds by default.
"""
Places = Mapping[tuple[str, int], int]
"""Partitions with their known ends."""
Ends = Mapping[tuple[str, int], OffsetAndEpoch]


class AwaitedPlaces:
    """The partitions whose end a reader asked for lately. Threads: the event loop notes, the watcher lists."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_at_s: dict[tuple[str, int], float] = {}
        self._arrived = Event()

    def note(self, place: tuple[str, int]) -> None:
        """Have a partition watched."""
        is_new = place not in self._asked_at_s
        self._asked_at_s[place] = self._clock()
        if is_new:
            self._arrived.set()

    def list_places(self) -> list[tuple[str, int]]:
        """Return the watched partitions, without those whose end no reader has asked for lately."""
        since_s = self._clock() - AWAITED_S
        for place in [place for place, asked_at_s in list(self._asked_at_s.items()) if asked_at_s < since_s]:
            self._asked_at_s.pop(place, None)
        return list(self._asked_at_s)

    def wait_for_one(self, wait_s: float) -> None:
        """Wait until another partition is noted, at most ``wait_s``."""
        self._arrived.wait(wait_s)
        self._arrived.clear()


class EndsWatcher:
    """A thread that watches the ends of the partitions that ``list_places`` returns."""

    def __init__(
        self,
        transport: KafkaTransport,
        list_places: Callable[[], Places],
        awaited: AwaitedPlaces,
        take: Callable[[Ends, Ends, Ends], None],
        post: Callable[[Callable[[], None]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``list_places`` is called in the thread.

        ``take`` is called on the event loop, with the ends that are higher than before, those that are lower, and
        sometimes the first offsets.
        """
        self.problem: str | None = None
        """Why the last check of the cluster failed, or None."""
        self._transport = transport
        self._list_places = list_places
        self._awaited = awaited
        self._take = take
        self._post = post
        self._clock = clock
        self._sweep_at_s = clock()
        self._sweeps = 0
        self._watch_from_s = 0.0
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="lading-ends", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after its present watch."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self.look():
                    self._stopped.wait(IDLE_S)
            except Exception as error:
                # a deleted topic is not listed the next time
                if self.problem is None:
                    fault = None if isinstance(error, (LadingError, OSError)) else error
                    LOG.warning("the ends of partitions cannot be looked at: %s", error, exc_info=fault)
                self.problem = f"the Kafka cluster does not respond: {error}"
                self._stopped.wait(RETRY_S)
        self._transport.close()

    def look(self) -> bool:
        """Check the partitions whose turn it is, waiting for messages in those that readers wait for.

        Returns whether some have more. Raises the errors of the cluster.
        """
        known = self._list_places()
        is_sweep = self._clock() >= self._sweep_at_s
        places: Places = known if is_sweep else self._choose_awaited(known)
        if not places:
            if is_sweep:
                self._sweep_at_s = self._clock() + SWEEP_S
            self._awaited.wait_for_one(WAIT_MS / 1000)
            return False
        if not is_sweep:
            self._wait_for_news(places)
        ends = list_offsets(self._transport.cluster, places, LATEST)
        firsts: Ends = {}
        if is_sweep:
            self._sweeps += 1
            if self._sweeps % FIRST_EVERY == 0:
                firsts = list_offsets(self._transport.cluster, places, EARLIEST)
            self._sweep_at_s = self._clock() + SWEEP_S
        higher = {place: end for place, end in ends.items() if end.offset > places[place]}
        lower = {place: end for place, end in ends.items() if end.offset < places[place]}
        if higher or lower or firsts:
            self._post(partial(self._take, higher, lower, firsts))
        self.problem = None
        return bool(higher)

    def _wait_for_news(self, places: Places) -> None:
        if self._clock() < self._watch_from_s:
            self._stopped.wait(WAIT_MS / 1000)
        elif self._transport.wait_for_news(places, WAIT_MS):
            self._watch_from_s = self._clock() + UNWATCHED_S

    def _choose_awaited(self, known: Places) -> Places:
        return {place: known[place] for place in self._awaited.list_places() if place in known}
