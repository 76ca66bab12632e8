"""A thread that reads one channel from the cluster, as a member of its share group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final, Protocol

from ..model.errors import LadingError
from ..transports.kafka.share import RENEW, Acknowledgement, AcquiredMessages, ShareMember
from .due_dates import DueDates, find_due_dates

if TYPE_CHECKING:
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
WAIT_MS: Final = 100
"""How long leaders hold back their responses; an acknowledgement waits at most as long."""
ASSIGNMENT_S: Final = 0.1
"""The interval of heartbeats of a member without partitions: it has just joined, or others have them all."""
RETRY_S: Final = 0.5


class ShareOutcome(Protocol):
    """The event loop's view of a channel."""

    def on_acquired(self, reader: ShareGroupReader, found: Sequence[AcquiredMessages], due_dates: DueDates) -> None:
        """Take messages that a reader has acquired, some of which are kept back until a date."""

    def on_lost(self, reader: ShareGroupReader, partitions: Sequence[int]) -> None:
        """Drop those of these messages that the reader had acquired before: the cluster delivers them again."""


class ShareGroupReader(Thread):
    """A reader of one channel. Methods are for the event loop."""

    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        group: str,
        topic: str,
        topic_id: bytes,
        outcome: ShareOutcome,
    ) -> None:
        super().__init__(name="lading-share", daemon=True)
        self._open_transport = open_transport
        self._post = post
        self._group, self._topic, self._topic_id = group, topic, topic_id
        self._outcome = outcome
        self._changed = Condition()
        self._wanted = 0
        self._settled: list[Acknowledgement] = []
        self._is_ending = False
        self._problem: str | None = None

    def want(self, count: int) -> None:
        """Acquire about ``count`` more messages; this replaces earlier requests."""
        with self._changed:
            if count != self._wanted:
                self._wanted = count
                self._changed.notify()

    def settle(self, settled: Sequence[Acknowledgement]) -> None:
        """Acknowledge messages."""
        with self._changed:
            self._settled += settled
            self._changed.notify()

    def end(self) -> None:
        """Acknowledge settled messages, release the others, and end."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()

    # -- in the thread

    def run(self) -> None:
        transport = self._open_transport()
        member = ShareMember(transport.cluster, self._group, self._topic, self._topic_id)
        due_s = 0.0
        while True:
            wanted, settled, is_ending = self._take(due_s if member.has_partitions or not self._wanted else 0.0)
            try:
                if is_ending:
                    member.acknowledge(settled)
                    member.leave()
                    break
                if time.monotonic() >= due_s:
                    interval_s = member.heartbeat()
                    due_s = time.monotonic() + (interval_s if member.has_partitions else ASSIGNMENT_S)
                self._work(member, wanted, settled)
                self._problem = None
            except Exception as error:
                if is_ending:
                    break
                self._report(error)
                time.sleep(RETRY_S)
            if member.lost:
                self._post(partial(self._outcome.on_lost, self, sorted(member.lost)))
                member.lost.clear()
        transport.close()

    def _work(self, member: ShareMember, wanted: int, settled: list[Acknowledgement]) -> None:
        done = [one for one in settled if one.kind != RENEW]
        finished = {(one.partition, one.first) for one in done}
        # a message that the member no longer has would make the leader refuse all renewals of its partition
        renewed = [one for one in settled if one.kind == RENEW and (one.partition, one.first) not in finished]
        if wanted > 0 and member.has_partitions:
            found = member.fetch(wanted, WAIT_MS, done)
            if found:
                with self._changed:
                    # the event loop requests more once it has these
                    self._wanted = 0
                self._post(partial(self._outcome.on_acquired, self, found, find_due_dates(found)))
        elif done:
            member.acknowledge(done)
        if renewed:
            member.renew(renewed)

    def _take(self, due_s: float) -> tuple[int, list[Acknowledgement], bool]:
        """Return the work to do, at the latest when the next heartbeat is due."""
        with self._changed:
            while not (self._wanted > 0 or self._settled or self._is_ending):
                left_s = due_s - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            settled, self._settled = self._settled, []
            return self._wanted, settled, self._is_ending

    def _report(self, error: Exception) -> None:
        if self._problem is None:
            fault = None if isinstance(error, (LadingError, OSError)) else error
            LOG.warning("share group %r cannot be read: %s", self._group, error, exc_info=fault)
        self._problem = str(error)
