"""Counters of a channel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ChannelStatistics:
    """Totals since the start; ``depth``, ``in_flight``, ``deferred`` and ``leaving`` are present values."""

    depth: int = 0
    """Messages that wait to be delivered, for the first time or again."""
    in_flight: int = 0
    deferred: int = 0
    """Messages that a subscriber or their publisher has deferred."""
    leaving: int = 0
    """Messages that were given up and are on their way to the dead letter topic."""
    delivered: int = 0
    finished: int = 0
    requeued: int = 0
    timed_out: int = 0
    filtered: int = 0
    """Messages that were not delivered because of a subscriber's filter or sampling."""
    skipped: int = 0
    """Messages that were skipped undelivered: the channel skips, was emptied, or was moved to a later offset."""
    discarded: int = 0
    """Messages that were in flight when the channel was emptied."""
    lost: int = 0
    """Messages that were lost to retention or damage before they were delivered."""
    exhausted: int = 0
    """Messages given up after as many deliveries as the channel allows."""
    unavailable: int = 0
    """Waiting offsets that the channel gets no message for: hidden by their state, transaction markers, or damaged."""

    @property
    def arrived(self) -> int:
        """Messages that the channel has had, each counted once however often it was delivered; the number
        never falls.
        """
        done = self.finished + self.filtered + self.skipped + self.discarded + self.lost + self.exhausted
        return done + self.unavailable + self.depth + self.in_flight + self.deferred + self.leaving
