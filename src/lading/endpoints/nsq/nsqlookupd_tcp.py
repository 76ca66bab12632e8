"""nsqlookupd's TCP protocol, for nodes of NSQ (nsq.md 5.4); the work is done in ``endpoints.nsq``."""

from __future__ import annotations

from ..base.services import Endpoint, Services
from .lookup_tcp import LookupTcp


def endpoint(services: Services) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    return LookupTcp(services)
