"""nsqd's TCP protocol, for unmodified NSQ clients (nsq.md 1); the work is done in ``endpoints.nsq``."""

from __future__ import annotations

from ..base.services import Endpoint, Services
from .server import Nsqd


def endpoint(services: Services) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    return Nsqd(services)
