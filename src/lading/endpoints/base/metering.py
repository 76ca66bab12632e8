"""Requests of users who have a quota: what they take is measured, and their connection rests for it.

Sessions look whether ``principal.meter`` is there; for users without a quota nothing here is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .services import now_us

if TYPE_CHECKING:
    from ...broker.core.access.quotas import QuotaMeter
    from .session import ProtocolSession


@dataclass(slots=True)
class MeasuredRequest:
    """The facts about a request that is being taken."""

    produced_bytes: int = 0
    """The size of the request if it publishes messages."""


@contextmanager
def measure_request(session: ProtocolSession, meter: QuotaMeter, produced_bytes: int = 0) -> Iterator[MeasuredRequest]:
    """Measure what is done within, and have the session rest for it."""
    request = MeasuredRequest(produced_bytes)
    begun_us = now_us()
    yield request
    end_us = now_us()
    delay_us = meter.take_time(end_us - begun_us, end_us)
    if request.produced_bytes:
        delay_us = max(delay_us, meter.take_produced(request.produced_bytes, end_us))
    session.throttle(delay_us)
