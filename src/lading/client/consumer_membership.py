"""A consumer as a member of its group: heartbeats, and the positions that it commits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ..model.errors import Reason, Refusal
from ..transports.interface import Membership, Position
from .interceptors import LOG, ConsumerInterceptor, notify_interceptors
from .read_bounds import TopicPartition

HEARTBEAT_S = 2.0
STORE_ATTEMPTS = 3
COMMIT_S = 5.0
"""With ``auto_commit`` positions are stored at most this long after messages were processed."""


class ConsumerMembership:
    """Heartbeats and commits over a ``membership``; ``reassigned`` until its partitions were read again."""

    def __init__(self, membership: Membership, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self.membership = membership
        self.reassigned = False
        self._interceptors = interceptors
        self._stored: dict[TopicPartition, Position] = {}
        self._heartbeat_at = self._commit_at = time.monotonic()

    @property
    def store_due(self) -> bool:
        """Whether the last commit is COMMIT_S ago."""
        return time.monotonic() - self._commit_at >= COMMIT_S

    def heartbeat_when_due(self, *, changing: bool) -> None:
        """Send a heartbeat every two seconds, and at once if the assignment is ``changing``."""
        now = time.monotonic()
        if changing or now - self._heartbeat_at >= HEARTBEAT_S:
            self._heartbeat_at = now
            self.reassigned |= self.membership.heartbeat()

    def store(self, done: Mapping[TopicPartition, Position]) -> None:
        """Store the positions that changed, except of partitions that another member has now."""
        self._commit_at = time.monotonic()
        changed = {place: position for place, position in done.items() if self._stored.get(place) != position}
        stored = {place: position for place, position in changed.items() if self._store_one(place, position)}
        self._stored.update(stored)
        notify_interceptors(
            [each.on_commit for each in self._interceptors],
            {place: position.offset for place, position in stored.items()},
        )

    def _store_one(self, place: TopicPartition, position: Position) -> bool:
        """Store one position; return False if the partition was assigned to another member."""
        for _ in range(STORE_ATTEMPTS):
            try:
                self.membership.store(*place, position)
                return True
            except Refusal as error:
                if error.reason is not Reason.STALE_GENERATION:
                    raise
            # the members changed; what is still ours can be stored under the new generation
            self.reassigned |= self.membership.heartbeat()
            if place not in self.membership.partitions:
                LOG.info("partition %d of topic %r went to another member with its position", place[1], place[0])
                return False
        return False
