"""A thread that reads one channel from the cluster, as a member of its share group."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final, Protocol

from ..model.errors import LadingError
from ..transports.kafka.share import ACCEPT, RENEW, Acknowledgement, AcquiredMessages, ShareMember
from .due_dates import DueDates, find_due_dates

if TYPE_CHECKING:
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
WAIT_MS: Final = 100
"""How long leaders hold back their responses; an acknowledgement waits at most as long."""
ASSIGNMENT_S: Final = 0.1
"""The interval of heartbeats of a member without partitions: it has just joined, or others have them all."""
RETRY_S: Final = 0.5
UNCONFIRMED_S: Final = 300.0
"""How long a message is remembered that a subscriber has finished, and the cluster may not have accepted."""
UNCONFIRMED_MAX: Final = 1 << 16
"""Limit of these messages; beyond it the oldest may be delivered once more."""


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
        self._unconfirmed: OrderedDict[tuple[int, int], float] = OrderedDict()
        """Finished messages by partition and offset, with the time until which they are remembered.

        If the cluster gives one of them out again, it is accepted and not delivered.
        """

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
                self._remember(settled)
                if time.monotonic() >= due_s:
                    interval_s = member.heartbeat()
                    due_s = time.monotonic() + (interval_s if member.has_partitions else ASSIGNMENT_S)
                self._do_round(member, wanted, settled)
                self._problem = None
            except Exception as error:
                if is_ending:
                    break
                self._report(error)
                self._settle_later(member, settled)
                time.sleep(RETRY_S)
            self._forget_confirmed(member)
            self._report_lost(member)
        transport.close()

    def _do_round(self, member: ShareMember, wanted: int, settled: list[Acknowledgement]) -> None:
        done = [one for one in settled if one.kind != RENEW]
        finished = {(one.partition, one.first) for one in done}
        # a message that the member no longer has would make the leader refuse all renewals of its partition
        renewed = [one for one in settled if one.kind == RENEW and (one.partition, one.first) not in finished]
        if wanted > 0 and member.has_partitions:
            found = member.fetch(wanted, WAIT_MS, done)
            # before what is acquired: a lost session may have had messages of the same partitions
            self._report_lost(member)
            self._forget_confirmed(member)
            found = [rest for one in found if (rest := self._accept_finished(one)).ranges]
            if found:
                with self._changed:
                    # the event loop requests more once it has these
                    self._wanted = 0
                self._post(partial(self._outcome.on_acquired, self, found, find_due_dates(found)))
        elif done:
            member.acknowledge(done)
        if renewed:
            member.renew(renewed)

    def _report_lost(self, member: ShareMember) -> None:
        if member.lost:
            self._post(partial(self._outcome.on_lost, self, sorted(member.lost)))
            member.lost.clear()

    def _remember(self, settled: Sequence[Acknowledgement]) -> None:
        now_s = time.monotonic()
        for one in settled:
            if one.kind == ACCEPT:
                for offset in range(one.first, one.last + 1):
                    self._unconfirmed[one.partition, offset] = now_s + UNCONFIRMED_S
        while self._unconfirmed:
            oldest = next(iter(self._unconfirmed.values()))
            if oldest >= now_s and len(self._unconfirmed) <= UNCONFIRMED_MAX:
                break
            self._unconfirmed.popitem(last=False)

    def _forget_confirmed(self, member: ShareMember) -> None:
        for one in member.confirmed:
            for offset in range(one.first, one.last + 1) if one.kind == ACCEPT else ():
                self._unconfirmed.pop((one.partition, offset), None)
        member.confirmed.clear()

    def _settle_later(self, member: ShareMember, settled: Sequence[Acknowledgement]) -> None:
        """Acknowledge again after an error; if the session was lost, the member leaves these out."""
        confirmed = {(one.partition, at) for one in member.confirmed for at in range(one.first, one.last + 1)}
        left = [one for one in settled if one.kind != RENEW and (one.partition, one.first) not in confirmed]
        with self._changed:
            self._settled[:0] = left

    def _accept_finished(self, found: AcquiredMessages) -> AcquiredMessages:
        """Accept messages that were finished before, and return the others."""
        if not self._unconfirmed:
            return found
        ranges: list[tuple[int, int, int]] = []
        accepted: list[Acknowledgement] = []
        for first, last, deliveries in found.ranges:
            begin = first
            for offset in range(first, last + 1):
                if (found.partition, offset) in self._unconfirmed:
                    accepted.append(Acknowledgement(found.partition, offset, offset, ACCEPT))
                    if begin < offset:
                        ranges.append((begin, offset - 1, deliveries))
                    begin = offset + 1
            if begin <= last:
                ranges.append((begin, last, deliveries))
        self.settle(accepted)
        return found._replace(ranges=ranges)

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
