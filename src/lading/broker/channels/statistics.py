"""Counters of a channel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ChannelStatistics:
    """Totals since start, but ``depth``, ``in_flight`` and ``deferred``, which are now."""

    depth: int = 0
    """Messages that wait to be delivered, for the first time or again."""
    in_flight: int = 0
    deferred: int = 0
    """Messages that a subscriber put off to a later time."""
    delivered: int = 0
    finished: int = 0
    requeued: int = 0
    timed_out: int = 0
    filtered: int = 0
    """Messages that the filter or the sampling of the subscriber they were for did not let through."""
    skipped: int = 0
    """Messages that were passed over undelivered because the channel skips, or was emptied."""
    lost: int = 0
    """Messages that retention or damage took before they were delivered."""
    exhausted: int = 0
    """Messages given up after as many deliveries as the channel allows."""

    @property
    def arrived(self) -> int:
        """Messages that the channel has had, each once however often it was delivered."""
        done = self.finished + self.filtered + self.skipped + self.lost + self.exhausted
        return done + self.depth + self.in_flight + self.deferred
