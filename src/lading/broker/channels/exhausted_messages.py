"""Dead-lettering of messages whose delivery attempts are exhausted."""

from __future__ import annotations

from collections.abc import Callable

from ...model.state import State
from ..core.counters import Counters
from ..core.dead_letters import DeadLetters
from ..core.pending_append import Append
from ..core.states import States
from ..core.topology import Partition
from . import Channel


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

    def __call__(self, channel: Channel, partition: Partition, offset: int, attempts: int) -> Append | None:
        """Dead-letter one message. Returns an append to wait for, or None."""
        self._counters.exhausted_messages += 1
        reason = f"channel {channel.name!r} gave it up after {attempts} deliveries"
        settings = partition.topic.settings
        one = [(offset, offset + 1)]
        if offset < partition.log.first_offset:
            return None
        if settings.poison_given_up:
            self._states.set(partition, one, State.POISONED, reason=reason, now_us=self._now_us())
        elif settings.dead_letter_topic is not None:
            self._dead_letters.copy(partition, one, reason, self._now_us())
        return None
