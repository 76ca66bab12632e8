"""Message: one row of a Batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from .headers import Headers
from .state import State

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Message:
    """A message as it was read: payload, headers, place and time of storage.

    ``timestamp_us`` is in microseconds since 1970 UTC, ``id`` is 16 bytes or None, ``checksum`` the dialect's
    CRC-32 of the payload or None; ``offset`` counts from 0 within (``stream``, ``topic``, ``partition``).
    ``attempts`` counts the deliveries of a message of a queue, this one among them; None elsewhere.
    """

    payload: bytes | None
    headers: Headers = field(default_factory=Headers)
    key: bytes | None = None
    offset: int = -1
    state: State = State.AVAILABLE
    timestamp_us: int = 0
    id: bytes | None = None
    checksum: int | None = None
    stream: str = ""
    topic: str = ""
    partition: int = 0
    attempts: int | None = None

    @property
    def timestamp(self) -> datetime:
        """``timestamp_us`` as an aware datetime in UTC; outside the years 1 to 9999, the nearest that Python has."""
        try:
            return EPOCH + timedelta(microseconds=self.timestamp_us)
        except OverflowError:
            nearest = datetime.max if self.timestamp_us > 0 else datetime.min
            return nearest.replace(tzinfo=UTC)

    def _repr_html_(self) -> str:
        from .html import message_table

        facts = [("topic", f"{self.topic} / {self.partition}")] if self.topic else []
        if self.offset >= 0:
            facts.append(("offset", str(self.offset)))
        facts += [("timestamp", format_time(self.timestamp_us)), ("state", self.state.word)]
        if self.id is not None:
            facts.append(("id", self.id.hex()))
        if self.checksum is not None:
            facts.append(("checksum", str(self.checksum)))
        return message_table(facts, self.key, tuple(self.headers), self.payload)


def format_time(time_us: int, timespec: str = "microseconds") -> str:
    """Return microseconds since 1970 as a date and time in UTC; outside the years 1 to 9999, as the number it is."""
    try:
        return (EPOCH + timedelta(microseconds=time_us)).replace(tzinfo=None).isoformat(" ", timespec)
    except OverflowError:
        return f"{time_us} µs since 1970"
