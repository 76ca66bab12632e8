"""The ends of all partitions, watched with one request a leader: readers are called back when there is more."""

from __future__ import annotations

import logging
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
"""The longest watch: a partition that is new is watched from the next one on."""
IDLE_S: Final = 0.02
"""Between two looks that found nothing, if the watch ended early, as it does before an open transaction."""
FIRST_EVERY: Final = 25
"""Looks between two at the first offsets, which retention moves."""
RETRY_S: Final = 0.5
Places = Mapping[tuple[str, int], int]
"""Partitions with the ends that are known."""
Ends = Mapping[tuple[str, int], OffsetAndEpoch]


class EndsWatcher:
    """A thread that watches the ends of the partitions that ``list_places`` returns."""

    def __init__(
        self,
        transport: KafkaTransport,
        list_places: Callable[[], Places],
        take: Callable[[Ends, Ends, Ends], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """``list_places`` is called in the thread; ``take`` on the event loop, with the ends that are higher than they
        were, those that are lower, and at times the first offsets."""
        self.problem: str | None = None
        """Why the cluster could not be looked at the last time, or None."""
        self._transport = transport
        self._list_places = list_places
        self._take = take
        self._post = post
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="lading-ends", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after the watch that it is in."""
        self._stopped.set()

    def _run(self) -> None:
        looks = 0
        while not self._stopped.is_set():
            try:
                places = self._list_places()
                if not places:
                    self._stopped.wait(WAIT_MS / 1000)
                    continue
                self._transport.wait_for_news(places, WAIT_MS)
                ends = list_offsets(self._transport.cluster, places, LATEST)
                looks += 1
                firsts: Ends = {}
                if looks % FIRST_EVERY == 0:
                    firsts = list_offsets(self._transport.cluster, places, EARLIEST)
                higher = {place: end for place, end in ends.items() if end.offset > places[place]}
                lower = {place: end for place, end in ends.items() if end.offset < places[place]}
                if higher or lower or firsts:
                    self._post(partial(self._take, higher, lower, firsts))
                self.problem = None
                if not higher:
                    self._stopped.wait(IDLE_S)
            except Exception as error:
                # a topic that was deleted is listed no more the next time
                if self.problem is None:
                    fault = None if isinstance(error, (LadingError, OSError)) else error
                    LOG.warning("the ends of partitions cannot be looked at: %s", error, exc_info=fault)
                self.problem = f"the Kafka cluster does not respond: {error}"
                self._stopped.wait(RETRY_S)
        self._transport.close()
