"""Quotas: how much a user may send, read, and keep the broker busy; one user's connections share them.

A bucket of one second fills at the rate of the quota. A request may leave the bucket in debt: its connection then rests
until the debt is paid, so that over time the rate is exact and nothing is refused. A debt never exceeds DEBT_S_MAX,
because a group would take a client that rests longer for dead: of a larger request only that much is paid. Names are
those of Kafka's quotas. Threads: event loop only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Self

from ....model.errors import Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass

RATE_MAX: Final = 1e15
"""Far above any machine; sums of larger rates could lose single bytes in a float."""
PERCENTAGE_MAX: Final = 100.0
DEBT_S_MAX: Final = 10
"""A client is paused for at most this long: less than the request time-outs of clients, after which they would
repeat requests.
"""
_SECOND_US: Final = 1_000_000


@lazy_dataclass(frozen=True, slots=True)
class Quota:
    """The amounts a user may take; None is unlimited."""

    producer_byte_rate: float | None = None
    """Bytes a second of requests that publish."""
    consumer_byte_rate: float | None = None
    """Bytes a second of messages that are handed out."""
    request_percentage: float | None = None
    """Share of the event loop's time for taking requests, in percent; all requests of a user count."""

    def __post_init__(self) -> None:
        for name, value in self.document().items():
            most = PERCENTAGE_MAX if name == "request_percentage" else RATE_MAX
            if not (math.isfinite(value) and 0 < value <= most):
                raise Refusal(
                    Reason.INVALID_QUOTA, f"quota {name}={value:g}: invalid; use more than 0, at most {most:g}"
                )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is bounded."""
        return not self.document()

    def document(self) -> dict[str, float]:
        """Return the bounds of the quota, as JSON."""
        return {one: value for one in QUOTA_NAMES if (value := getattr(self, one)) is not None}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Return the quota of a ``document``; raises TypeError, ValueError or Refusal if it is invalid."""
        return cls(**{name: float(value) for name, value in document.items()})


QUOTA_NAMES: Final = tuple(one.name for one in fields(Quota))


class TokenBucket:
    """A bucket that gets a number of tokens a second, and holds those of one second."""

    __slots__ = ("_balance", "_last_us", "_rate")

    def __init__(self, rate_per_s: float) -> None:
        self._rate = rate_per_s
        self._balance = rate_per_s
        self._last_us: int | None = None

    def take(self, amount: float, now_us: int) -> int:
        """Take tokens, also future ones; return the microseconds until the bucket has received the last of them."""
        if self._last_us is not None and now_us > self._last_us:
            self._balance = min(self._rate, self._balance + self._rate * (now_us - self._last_us) / _SECOND_US)
        self._last_us = now_us
        self._balance = max(self._balance - amount, -DEBT_S_MAX * self._rate)
        return 0 if self._balance >= 0 else math.ceil(-self._balance / self._rate * _SECOND_US)


class QuotaMeter:
    """The amounts one user has taken, on all connections. Each method returns the us that the connection must rest."""

    __slots__ = ("_produced", "_read", "_time", "times_requests")

    def __init__(self, quota: Quota) -> None:
        self._produced = _make_bucket(quota.producer_byte_rate)
        self._read = _make_bucket(quota.consumer_byte_rate)
        percentage = quota.request_percentage
        self._time = _make_bucket(None if percentage is None else percentage / 100 * _SECOND_US)
        self.times_requests = self._time is not None
        """Whether ``take_time`` is to be called."""

    def take_produced(self, size_bytes: int, now_us: int) -> int:
        """Count a request that publishes."""
        return 0 if self._produced is None else self._produced.take(size_bytes, now_us)

    def take_read(self, size_bytes: int, now_us: int) -> int:
        """Count messages that are sent to a reader."""
        return 0 if self._read is None else self._read.take(size_bytes, now_us)

    def take_time(self, busy_us: float, now_us: int) -> int:
        """Count the time for which requests kept the event loop busy."""
        return 0 if self._time is None else self._time.take(busy_us, now_us)


def _make_bucket(rate_per_s: float | None) -> TokenBucket | None:
    return None if rate_per_s is None else TokenBucket(rate_per_s)
