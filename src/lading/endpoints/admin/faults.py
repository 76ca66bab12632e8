"""Admin: faults that tests ask for. A broker that is not started for it has no such route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ..base.services import Services
from ..http_shared.documents import FaultsDocument, json_response, parse_body
from ..http_shared.routing import HttpRoute, Parameters

if TYPE_CHECKING:
    from ...broker.core.injected_faults import InjectedFaults


class AdminFaults:
    """Handlers of faults for tests."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router; none in a broker that serves others than tests."""
        faults = self._services.faults
        if faults is None:
            return []

        async def show(request: Request, path: Parameters) -> Response:
            return json_response(_describe(faults))

        async def change(request: Request, path: Parameters) -> Response:
            wanted = await parse_body(FaultsDocument, request, self._services.receive)
            if wanted.appends_to_refuse is not None:
                faults.appends_to_refuse = wanted.appends_to_refuse
            if wanted.disk_is_full is not None:
                faults.disk_is_full = wanted.disk_is_full
            return json_response(_describe(faults))

        return [HttpRoute("GET", "/faults", "faults.show", show), HttpRoute("PUT", "/faults", "faults.change", change)]


def _describe(faults: InjectedFaults) -> dict[str, int | bool]:
    return {"appends_to_refuse": faults.appends_to_refuse, "disk_is_full": faults.disk_is_full}
