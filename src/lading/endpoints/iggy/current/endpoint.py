"""Handlers of the current generation for an endpoint that speaks Iggy over connections."""

from __future__ import annotations

from ....settings.endpoints import IggyListener
from ...base.services import Services
from ..logins import Logins
from ..send import Require, allow_all
from ..service import IggyService
from .poll import CurrentPoller
from .send import CurrentSender
from .session import CurrentHandlers


def create_current(
    services: Services, name: str, settings: IggyListener, logins: Logins, service: IggyService
) -> CurrentHandlers:
    """Create the handlers for the endpoint of this name."""

    def make_messages(require: Require) -> tuple[CurrentSender, CurrentPoller]:
        bound = settings.answer_bytes_max
        poller = CurrentPoller(services, name, require, carrier=settings.carrier, answer_bytes_max=bound)
        return CurrentSender(services, name, require), poller

    return CurrentHandlers(
        name,
        services.broker,
        services.metrics.requests.values,
        service,
        *make_messages(allow_all),
        logins,
        make_messages,
    )
