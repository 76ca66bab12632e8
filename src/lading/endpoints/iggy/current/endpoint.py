"""What answers the current generation on an endpoint that speaks Iggy over connections."""

from __future__ import annotations

from ....endpoint_settings import IggyListener
from ...base.services import Services
from ..logins import Logins
from .framing import CurrentHandlers
from .poll import CurrentPoller
from .send import CurrentSender
from .service import CurrentService


def create_current(services: Services, name: str, settings: IggyListener, logins: Logins) -> CurrentHandlers:
    """Create the handlers for the endpoint of this name."""
    return CurrentHandlers(
        name,
        services.broker,
        services.metrics.requests.values,
        CurrentService(services),
        CurrentSender(services, name),
        CurrentPoller(services, name, carrier=settings.carrier, answer_bytes_max=settings.answer_bytes_max),
        logins,
    )
