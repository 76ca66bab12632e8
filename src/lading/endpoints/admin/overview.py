"""Admin: what a person looks at first, such as the console's start page: uptime, disk, totals, certificates."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.rights import Right
from ...model.version import __version__
from ..base.process import measure_disk
from ..base.services import Services
from ..encryption.renewal import CertificateRenewal
from ..http_shared.documents import json_response
from ..http_shared.routing import HttpRoute, Parameters


class AdminOverview:
    """The handler of ``GET /overview``."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router."""
        return [HttpRoute("GET", "/overview", "overview", self._show_overview, right=Right.DESCRIBE)]

    async def _show_overview(self, request: Request, path: Parameters) -> Response:
        services = self._services
        # a disk of another machine may take seconds to say how full it is
        disk = await asyncio.get_running_loop().run_in_executor(services.workers, measure_disk, services.settings.data)
        process = services.process.figures()
        return json_response(
            {
                "version": __version__,
                "durability": services.settings.durability,
                "now_s": time.time(),
                "started_s": process.start_time_s,
                "uptime_s": process.run_time_s,
                "memory_bytes": process.memory_bytes,
                "disk": asdict(disk) if disk else {"total_bytes": None, "free_bytes": None},
                "certificates": [
                    {"endpoint": name, "expires_s": expires_s}
                    for name, expires_s in CertificateRenewal.of(services).expiries()
                ],
                "totals": asdict(services.broker.counters),
            }
        )
