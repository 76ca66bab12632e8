"""nsqlookupd over HTTP (nsq.md 5.3); the work is done in ``endpoints.nsq``."""

from __future__ import annotations

from .bearer import guard_administration
from .http import HttpEndpoint
from .interface import Endpoint, Services
from .nsq import lookup, node
from .nsq.answers import missing, refuse
from .nsq.lookup_http import NAME, LookupHttp
from .routing import Router


def endpoint(services: Services) -> Endpoint:
    """The endpoint, for serve."""
    own = node.of(services)
    routes = LookupHttp(own, lookup.of(services)).routes()
    settings = services.settings.endpoints.nsqlookupd_http
    guard = guard_administration(services.settings.endpoints, NAME)
    app = Router(NAME, routes, refuse, services.metrics, guard, missing(own.strict))
    return HttpEndpoint(NAME, app, services, settings.connections_max, (settings.address.host,), frozenset({"/ping"}))
