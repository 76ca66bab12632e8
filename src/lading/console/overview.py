"""The start page: whether the broker is well, how full its disk is, how much arrives, what failed today."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..client.read_bounds import resolve_offset
from ..model.errors import Refusal
from ..transports.interface import Transport
from ..transports.lading.transport import LadingTransport
from .failures import find_dead_letter_topics
from .history import History
from .responses import json_answer
from .source import ConsoleSource

RATES: Final = ("messages_in", "messages_out")
LETTERS_FRESH_S: Final = 10.0
"""The shortest time between two counts of dead letters, which take a request for each of their partitions."""
LETTER_PARTITIONS_MAX: Final = 500
"""How many partitions of dead letters are counted."""


class OverviewPage:
    """Handlers."""

    def __init__(self, source: ConsoleSource) -> None:
        self._source = source
        self._totals: History[str] = History(len(RATES))
        self._started_s = 0.0
        self._letters = 0
        self._letters_at_s = float("-inf")
        self._lock = threading.Lock()

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        return [Route("/api/overview", self._show_overview)]

    def _show_overview(self, request: Request) -> Response:
        with self._source.lend() as transport:
            if not isinstance(transport, LadingTransport):
                # a cluster or a directory has no such report
                return json_answer({"reported": False})
            health = transport.health()
            try:
                told = transport.overview()
            except Refusal:
                # whoever may read topics need not be allowed to see this
                return json_answer({"reported": False, "status": health["status"]})
            letters = self._count_letters(transport)
        with self._lock:
            if told["started_s"] != self._started_s:
                # totals of a broker begin again with its process
                self._started_s, self._totals = told["started_s"], History(len(RATES))
            for name in RATES:
                self._totals.note(name, told["totals"][name])
            rates = {name: compute_rates(self._totals.of(name)) for name in RATES}
        wanted = ("version", "durability", "now_s", "uptime_s", "memory_bytes", "disk", "certificates")
        return json_answer(
            {name: told[name] for name in wanted}
            | {
                "reported": True,
                "status": health["status"],
                "damaged": len(health.get("damaged", {})),
                "refusing": len(health.get("refusing", {})),
                "totals": {name: told["totals"][name] for name in RATES},
                "rates": rates,
                "letters_today": letters,
            }
        )

    def _count_letters(self, transport: Transport) -> int:
        """Return how many dead letters have come since midnight UTC."""
        with self._lock:
            if time.monotonic() - self._letters_at_s > LETTERS_FRESH_S:
                self._letters = count_letters_since(transport, datetime.now(UTC).replace(hour=0, minute=0, second=0))
                self._letters_at_s = time.monotonic()
            return self._letters


def count_letters_since(transport: Transport, moment: datetime) -> int:
    """Return how many messages of topics of dead letters are not older than a moment."""
    metas = {meta.name: meta for meta in transport.topics()}
    places = [
        (metas[name], part)
        for name in find_dead_letter_topics(metas.values())
        if name in metas
        for part in metas[name].partitions
        if part.end_offset > part.first_offset
    ]
    return sum(
        part.end_offset - resolve_offset(transport, meta, part, moment) for meta, part in places[:LETTER_PARTITIONS_MAX]
    )


def compute_rates(totals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return (seconds since 1970, a second) between each sample of a total and the next."""
    return [(after[0], max(0.0, after[1] - before[1]) / (after[0] - before[0])) for before, after in pairwise(totals)]
