"""nsqlookupd over HTTP (nsq.md 5.3): the endpoint that ``serve`` starts."""

from __future__ import annotations

from ...base.services import Endpoint, Services
from ...http_shared.http import HttpEndpoint
from ...http_shared.http_guard import guard_administration
from ...http_shared.routing import Router
from ..nsqd import node
from ..nsqd.http_responses import missing, refuse
from . import lookup
from .http import NAME, LookupHttp


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    own = node.of(services)
    routes = LookupHttp(own, lookup.of(services)).routes()
    settings = services.settings.endpoints.nsqlookupd_http
    guard = guard_administration(services, NAME)
    app = Router(NAME, routes, refuse, services.metrics, guard, missing(own.strict))
    return HttpEndpoint(NAME, app, services, (settings.address.host,), frozenset({"/ping"}))
