"""Topics that clients create, by a request or by their first use."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from ...broker.core.settings import TopicSettings
from ...model.errors import LadingError, Reason, Refusal
from ...model.names import DEFAULT_STREAM
from .services import now_us

if TYPE_CHECKING:
    from ...broker.core.topology import Topic
    from .services import CreationKey, Services

MISSING: Final = frozenset({Reason.TOPIC_NAME_NOT_FOUND, Reason.STREAM_NAME_NOT_FOUND})
"""Reasons of a lookup that failed because the topic does not exist: it may be created then."""


async def create_topic(
    services: Services, name: str, partitions_count: int, *, stream: str = DEFAULT_STREAM,
    settings: TopicSettings | None = None,
) -> Topic:  # fmt: skip
    """Create a topic, and its stream if that is missing; Refusal if a topic has this name."""
    changes = services.broker.changes
    found = await services.changes.make(changes.ensure_stream(stream, now_us=now_us()))
    return await services.changes.make(
        changes.create_topic(found, None, name, partitions_count, now_us=now_us(), settings=settings or TopicSettings())
    )


async def find_or_create_topic(
    services: Services, name: str, partitions_count: int, settings: TopicSettings | None = None
) -> Topic:
    """Return the topic that a flat name means; create it in the default stream if it is missing.

    Callers that want the same topic meanwhile share one creation: each makes directories and waits for the disk five
    times. A thousand NSQ clients that published to a new topic at once waited 20 s.
    """
    try:
        return services.broker.topology.resolve(name)
    except Refusal as refusal:
        if refusal.reason not in MISSING:
            raise
    key = name, partitions_count, settings
    creation = services.creations.get(key)
    if creation is None:
        creation = asyncio.ensure_future(_create_or_find(services, name, partitions_count, settings))
        services.creations[key] = creation
        creation.add_done_callback(partial(_forget, services, key))
    try:
        # a caller that is cancelled leaves it to the others
        return await asyncio.shield(creation)
    except LadingError as error:
        # all callers get this object: without the frames of the others
        raise error.with_traceback(None) from None


def _forget(services: Services, key: CreationKey, creation: asyncio.Future[Topic]) -> None:
    del services.creations[key]
    if not creation.cancelled():
        # each caller has the error; if none waits any more, asyncio must not warn of it
        creation.exception()


async def _create_or_find(
    services: Services, name: str, partitions_count: int, settings: TopicSettings | None
) -> Topic:
    try:
        return await create_topic(services, name, partitions_count, settings=settings)
    except Refusal as refusal:
        if refusal.reason is not Reason.TOPIC_NAME_EXISTS:
            raise
        # another request was sooner
        return services.broker.topology.resolve(name)
