"""The admin endpoint: native data, topics, groups, transactions, health and metrics, for CLI, Spark and Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ...broker.core.access.rights import CLUSTER, Right
from ...broker.core.counters import Counters
from ...kernels import engine
from ...model.version import __version__
from ...runtime.metrics import Gauge, Labels, MetricsSnapshot
from ...runtime.turns import TurnCounter, Turns, finish_in_turns
from ..base.services import Endpoint, Services
from ..http_shared.documents import error_response, json_response
from ..http_shared.http import HttpEndpoint, InPieces
from ..http_shared.http_guard import guard_all, principal_of
from ..http_shared.root_page import ELSEWHERE, make_root_route
from ..http_shared.routing import Access, HttpRoute, Parameters, Router
from .access import AdminAccess
from .data import AdminData
from .faults import AdminFaults
from .groups import AdminGroups
from .overview import AdminOverview
from .states import AdminStates
from .topics import AdminTopics

NAME: Final = "admin"
PURPOSE: Final = (
    "the admin endpoint of a Lading broker, which has no pages: GET /health, /metrics and /topics return what it "
    "reports."
)
HEALTH: Final = "/health"
LIVE: Final = "/live"
READY: Final = "/ready"
HEALTH_ROWS_AT_ONCE: Final = 500
"""Partitions that are checked between two looks at the clock; this many take a tenth of a millisecond."""


class AdminStatus:
    """Health and metrics."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._rendering: asyncio.Task[tuple[bytes, str]] | None = None
        for gauge in _list_gauges(services):
            services.metrics.add(gauge)

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router."""
        return [
            make_root_route(PURPOSE),
            HttpRoute("GET", HEALTH, "health", self._report_health, Access.HEALTH),
            HttpRoute("GET", LIVE, "live", self._report_live, Access.HEALTH),
            HttpRoute("GET", READY, "ready", self._report_ready, Access.HEALTH),
            HttpRoute("GET", "/metrics", "metrics", self._report_metrics, right=Right.DESCRIBE),
        ]

    async def _report_health(self, request: Request, path: Parameters) -> Response:
        refusing = await finish_in_turns(self._list_refusing())
        damaged = self._services.broker.damages.sentences()
        problems = self._services.health.problems()
        status = "degraded" if refusing or damaged or problems else "ok"
        if not self._may_see(request):
            return json_response({"status": status})
        return json_response(
            {
                "status": status,
                "version": __version__,
                "durability": self._services.settings.durability,
                "refusing": refusing,
                "damaged": damaged,
                "problems": problems,
            }
        )

    async def _report_live(self, request: Request, path: Parameters) -> Response:
        """Respond with 200: a response shows that the event loop runs."""
        return json_response({"status": "live"})

    async def _report_ready(self, request: Request, path: Parameters) -> Response:
        """Report whether clients should be sent here. A partition that refuses appends does not count: others work."""
        reasons = dict(self._services.health.problems())
        if self._services.stopping:
            reasons["stopping"] = "the broker is stopping; clients find it again after its restart"
        status = "not ready" if reasons else "ready"
        told = {"status": status, "reasons": reasons} if self._may_see(request) else {"status": status}
        return json_response(told, 503 if reasons else 200)

    def _may_see(self, request: Request) -> bool:
        """Return whether the caller may know what is wrong, which names partitions and directories."""
        return self._services.broker.access.allows(principal_of(request), Right.DESCRIBE, CLUSTER)

    def _list_refusing(self) -> Turns[dict[str, str]]:
        refusing, turn = {}, TurnCounter(HEALTH_ROWS_AT_ONCE)
        for topic in self._services.broker.topology.list_topics():
            for partition in topic.partitions:
                if partition.log.refusal is not None:
                    refusing[str(partition)] = str(partition.log.refusal)
            if turn.is_over(1 + len(topic.partitions)):
                yield
        return refusing

    async def _report_metrics(self, request: Request, path: Parameters) -> Response:
        # scrapers that come together share one text
        if self._rendering is None:
            self._rendering = asyncio.get_running_loop().create_task(self._render_metrics())
            self._rendering.add_done_callback(self._forget_rendering)
        text, content_type = await asyncio.shield(self._rendering)
        return InPieces(text, headers={"content-type": content_type})

    async def _render_metrics(self) -> tuple[bytes, str]:
        snapshot = await self._services.metrics.snapshot()
        return await self._services.run_in_worker(1, 0, MetricsSnapshot.render, snapshot)

    def _forget_rendering(self, task: asyncio.Task[tuple[bytes, str]]) -> None:
        self._rendering = None


def _list_gauges(services: Services) -> list[Gauge]:
    broker = services.broker

    def partitions(attribute: str) -> Iterable[tuple[Labels, float]]:
        for topic in broker.topology.list_topics():
            for partition in tuple(topic.partitions):
                labels = (topic.stream.name, topic.name, str(partition.number))
                yield labels, float(getattr(partition.log, attribute))

    def kernels() -> Iterable[tuple[Labels, float]]:
        yield (), float(not engine.is_loading())

    place = ("stream", "topic", "partition")
    of_logs = {
        "first_offset": "First offset that is kept.",
        "next_offset": "Offset the next message gets.",
        "high_watermark": "High watermark: first offset not yet synced.",
        "last_stable_offset": "Last stable offset: committed reads end before it.",
        "size_bytes": "Bytes of the log.",
    }
    gauges = [
        Gauge(f"lading_partition_{name}", text, place, lambda name=name: partitions(name))  # type: ignore[misc]
        for name, text in of_logs.items()
    ]

    def compacted(attribute: str, scale: float) -> Iterable[tuple[Labels, float]]:
        for topic in broker.topology.list_topics():
            for partition in tuple(topic.partitions):
                status = broker.compaction.find_status(partition)
                if status is not None:
                    labels = (topic.stream.name, topic.name, str(partition.number))
                    yield labels, getattr(status, attribute) * scale

    of_compaction = {
        "dirty_share": ("dirty_share", 1.0, "Share of bytes of a compacted partition that was not cleaned yet."),
        "compacted_at": (
            "cleaned_us",
            1e-6,
            "When a compacted partition was cleaned last, in seconds since 1970.",
        ),
    }
    gauges += [
        Gauge(f"lading_partition_{name}", text, place, lambda row=(attribute, scale): compacted(*row))  # type: ignore[misc]
        for name, (attribute, scale, text) in of_compaction.items()
    ]
    gauges.append(
        Gauge(
            "lading_kernels_ready",
            "1 if the compiled kernels are loaded that were needed so far, 0 while pure-Python fallbacks run instead.",
            (),
            kernels,
        )
    )
    gauges += [
        Gauge(
            f"lading_broker_{field.name}", field.metadata["help"], (),
            lambda name=field.name: [((), float(getattr(broker.counters, name)))],  # type: ignore[misc]
        )
        for field in fields(Counters)
    ]  # fmt: skip
    return gauges


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    settings = services.settings.endpoints.admin
    rooms = (
        AdminStatus(services),
        AdminOverview(services),
        AdminTopics(services),
        AdminData(services),
        AdminStates(services),
        AdminGroups(services),
        AdminAccess(services),
        AdminFaults(services),
    )
    routes = [route for room in rooms for route in room.routes()]
    router = Router(NAME, routes, error_response, services.metrics, guard_all(services), _explain_missing)
    return HttpEndpoint(NAME, router, services, (settings.address.host,), frozenset({HEALTH, LIVE, READY}))


def _explain_missing(request: Request, allowed: Sequence[str]) -> Response:
    """Return 404 or 405 with a sentence: browsers are pointed at this port, which has no page."""
    text = f"{request.method} {request.url.path}: not here. This is {PURPOSE} {ELSEWHERE}.\n"
    return PlainTextResponse(text, status_code=405 if allowed else 404)
