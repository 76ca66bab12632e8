"""Every rare API and its handler: one row for each module of handlers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from ...dialects.kafka import versions
from ...dialects.kafka.versions import API_VERSIONS, FETCH, PRODUCE, SERVED
from . import (
    acls,
    api_versions,
    client_metrics,
    configs,
    consumer_groups,
    groups,
    metadata,
    offset_commits,
    offsets,
    producers,
    quotas,
    replicas,
    sasl,
    scram_users,
    share_fetch,
    share_groups,
    topics,
    transaction_markers,
    transactions,
)
from .authorizer import Authorizer
from .handling import Answer, Context, Handler, Request, Session

HANDLER_MODULES: Final[tuple[Callable[[Context], Mapping[int, Handler]], ...]] = (
    metadata.handlers,
    offsets.handlers,
    topics.handlers,
    configs.handlers,
    groups.handlers,
    consumer_groups.handlers,
    share_groups.handlers,
    share_fetch.handlers,
    offset_commits.handlers,
    transactions.handlers,
    transaction_markers.handlers,
    producers.handlers,
    replicas.handlers,
    quotas.handlers,
    sasl.handlers,
    acls.handlers,
    scram_users.handlers,
    client_metrics.handlers,
)
"""Modules that return their handlers by API key. An API without a handler is not listed to clients."""


def handlers(context: Context) -> dict[int, Handler]:
    """Return all handlers of an endpoint, by key."""
    found: dict[int, Handler] = {}
    authorizer = Authorizer(context)
    for room in HANDLER_MODULES:
        found |= {
            key: authorizer.guard(key, note_groups(context, handler) if key in _OF_MEMBERS else handler)
            for key, handler in room(context).items()
        }
    found |= api_versions.handlers(list_advertised_keys(found))
    return found


_OF_MEMBERS: Final = frozenset(
    (
        versions.JOIN_GROUP,
        versions.CONSUMER_GROUP_HEARTBEAT,
        versions.OFFSET_COMMIT,
        versions.OFFSET_FETCH,
        versions.TXN_OFFSET_COMMIT,
    )
)
"""Requests by which a consumer names its group."""


def note_groups(context: Context, handler: Handler) -> Handler:
    """Return the handler of requests of members, which first notes their groups and client.ids for the filters."""
    filters = context.broker.group_filters

    def handle(session: Session, request: Request) -> Answer:
        if filters.of_clients and request.client_id:
            body = request.body
            several = getattr(body, "groups", None)
            names = [one.group_id for one in several] if several else [body.group_id]
            for name in names:
                filters.note_member(name, request.client_id)
        return handler(session, request)

    return handle


def list_advertised_keys(found: Collection[int]) -> list[int]:
    """Return the keys of the APIs that clients are offered: all with a handler, and two without."""
    return [key for key in SERVED if key in (PRODUCE, FETCH, API_VERSIONS) or key in found]
