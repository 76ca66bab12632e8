"""Quotas on HTTP: the response to a user who has used one up comes later, and the connection reads nothing meanwhile.

Bodies are what counts: those of requests as what is produced, those of responses as what is read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from ...runtime.clock import now_us

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal

PRINCIPAL: Final = "lading.principal"
"""The key of a request's sender in its scope."""
BODY_BYTES: Final = "lading.body_bytes"
"""In the scope of a request: the bytes of its body, once it was read."""


async def rest_for_quota(request: Request, response: Response) -> None:
    """Wait for as long as the sender of a request has used up a quota with it."""
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None or principal.meter is None:
        return
    now = now_us()
    produced_us = principal.meter.take_produced(request.scope.get(BODY_BYTES, 0), now)
    delay_us = max(produced_us, principal.meter.take_read(len(response.body), now))
    if delay_us:
        await asyncio.sleep(delay_us / 1e6)
