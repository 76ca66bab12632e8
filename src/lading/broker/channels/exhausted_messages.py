"""Dead-lettering of messages whose delivery attempts are exhausted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...model.ranges import ranges_of_rising
from ...model.state import State
from ..core.counters import Counters
from ..core.dead_letters import DeadLetters, ShareGroupReason
from ..core.pending_append import Append
from ..core.states import States
from .channel import Channel
from .in_flight import GivenUp


class ExhaustedMessageHandler:
    """Copies messages to the topic's dead letter topic, if it has one; marks them poisoned only if its settings say so.

    Both are durable when the call returns, so that the channel may finish the message. Raises Refusal if that fails;
    the channel then tries again.
    """

    def __init__(
        self, dead_letters: DeadLetters, states: States, counters: Counters, now_us: Callable[[], int]
    ) -> None:
        self._dead_letters = dead_letters
        self._states = states
        self._counters = counters
        self._now_us = now_us

    def __call__(self, channel: Channel, given_up: GivenUp) -> Append | None:
        """Dead-letter messages. Returns an append to wait for, or None."""
        partition, attempts = given_up.partition, given_up.attempts
        first = partition.log.first_offset
        offsets = np.array([offset for offset in given_up.offsets if offset >= first], np.int64)
        self._counters.exhausted_messages += len(given_up.offsets)
        if channel.attempts_max is None:
            reason = f"channel {channel.name!r} gave it up after {attempts} deliveries"
        else:
            reason = str(ShareGroupReason(channel.name, attempts, given_up.is_rejected))
        settings = partition.topic.settings
        if not len(offsets):
            return None
        ranges = [(int(low), int(end)) for low, end in ranges_of_rising(offsets).tolist()]
        if settings.poison_given_up:
            self._states.set(partition, ranges, State.POISONED, reason=reason, now_us=self._now_us())
        elif settings.dead_letter_topic is not None:
            self._dead_letters.copy(partition, ranges, reason, self._now_us())
        return None
