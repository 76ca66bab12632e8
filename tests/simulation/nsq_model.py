"""What NSQ clients may see of a channel: the specification that a simulated life is held against, step by step.

A message is delivered until it is finished, to one client at a time, not while it is put off, with a count of its
deliveries (docs/explanation/channels.md). Order is not promised. What was finished stays so over a crash from the
moment its position is stored, STORE_US later at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

STORE_US = 100_000
TIMEOUT_MAX_US = 900_000_000


class Finished(Enum):
    """How much is known of a FIN."""

    NEVER = "no FIN was taken"
    NOW = "finished in this life of the broker"
    FOR_GOOD = "finished, and stored"
    PERHAPS = "finished shortly before a crash"


@dataclass(slots=True)
class MessageOnChannel:
    """One message as one channel has it."""

    body: bytes
    attempts: int = 0
    """Deliveries that count: not those to clients that left with the message in hand."""
    attempts_max: int = 0
    """The most that ``attempts`` was: after a crash it is anything up to this, as it was stored last."""
    is_counted: bool = True
    holder: object = None
    deadline_us: int = 0
    delivered_us: int = 0
    not_before_us: int = 0
    finished: Finished = Finished.NEVER
    finished_us: int = 0


@dataclass(slots=True)
class ChannelModel:
    """All messages of a channel by their ids; every method raises AssertionError for what may not be."""

    name: str
    messages: dict[bytes, MessageOnChannel] = field(default_factory=dict)

    def held_by(self, client: object) -> list[bytes]:
        return [number for number, one in self.messages.items() if one.holder is client]

    def deliver(self, client: object, number: bytes, body: bytes, attempts: int, now_us: int, timeout_us: int) -> None:
        one = self.messages.setdefault(number, MessageOnChannel(body))
        shown = f"{self.name}: {body[:8]!r}"
        assert one.body == body, f"{shown} has the id of {one.body[:8]!r}"
        assert one.finished not in (Finished.NOW, Finished.FOR_GOOD), (
            f"{shown} is delivered again, {one.finished.value}"
        )
        assert one.holder is None, f"{shown} is delivered to two clients at once"
        assert now_us >= one.not_before_us, f"{shown} was put off, and comes {one.not_before_us - now_us} us early"
        least, most = (one.attempts + 1, one.attempts + 1) if one.is_counted else (1, one.attempts_max + 1)
        assert least <= attempts <= most, f"{shown} has attempts {attempts}, not {least} to {most}"
        one.attempts, one.attempts_max, one.is_counted = attempts, max(attempts, one.attempts_max), True
        one.holder, one.delivered_us, one.deadline_us = client, now_us, now_us + timeout_us
        one.finished = Finished.NEVER if one.finished is Finished.NEVER else Finished.PERHAPS

    def finish(self, client: object, number: bytes, now_us: int) -> bool:
        """Take a FIN; return whether the broker has to take it."""
        one = self._held(client, number)
        if one is not None:
            one.holder, one.finished, one.finished_us = None, Finished.NOW, now_us
        return one is not None

    def requeue(self, client: object, number: bytes, delay_us: int, now_us: int) -> bool:
        """Take a REQ."""
        one = self._held(client, number)
        if one is not None:
            one.holder, one.not_before_us = None, now_us + delay_us
        return one is not None

    def touch(self, client: object, number: bytes, timeout_us: int, now_us: int) -> bool:
        """Take a TOUCH."""
        one = self._held(client, number)
        if one is not None:
            one.deadline_us = min(now_us + timeout_us, one.delivered_us + TIMEOUT_MAX_US)
        return one is not None

    def _held(self, client: object, number: bytes) -> MessageOnChannel | None:
        one = self.messages[number]
        return one if one.holder is client else None

    def leave(self, client: object) -> None:
        """The client has gone: what it had counts as not delivered."""
        for number in self.held_by(client):
            one = self.messages[number]
            one.holder, one.attempts = None, one.attempts - 1

    def tick(self, now_us: int) -> None:
        """Times are over, and positions are stored."""
        for one in self.messages.values():
            if one.holder is not None and one.deadline_us <= now_us:
                one.holder = None
            if one.finished is Finished.NOW and one.finished_us + STORE_US <= now_us:
                one.finished = Finished.FOR_GOOD

    def crash(self) -> None:
        """What was not stored may be as before, or as it was stored a moment ago."""
        for one in self.messages.values():
            one.holder, one.not_before_us, one.is_counted = None, 0, False
            if one.finished is Finished.NOW:
                one.finished = Finished.PERHAPS

    def missing(self, bodies: set[bytes]) -> set[bytes]:
        """Return which of these were neither finished nor are with a client."""
        return bodies - {
            one.body for one in self.messages.values() if one.finished is not Finished.NEVER or one.holder is not None
        }
