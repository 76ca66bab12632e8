"""How a Kafka client's topics are made: in stream ``default``, which comes with the first of them (design.md Names)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...model.names import DEFAULT_STREAM
from ..base.creating import create_with_prepared_logs
from .handling import Context

if TYPE_CHECKING:
    from ...broker.core.namespace import PreparedLogs
    from ...broker.core.settings import TopicSettings
    from ...broker.core.topology import Topic


async def create_topic_in_worker(
    context: Context, name: str, partitions_count: int, *, now_us: Callable[[], int], settings: TopicSettings
) -> Topic:
    """As ``create_topic``, with the logs made in a worker: nobody else waits for their files."""

    def create(prepared: PreparedLogs) -> Topic:
        return create_topic(context, name, partitions_count, now_us=now_us(), settings=settings, prepared=prepared)

    return await create_with_prepared_logs(context.services, partitions_count, create)


def create_topic(
    context: Context, name: str, partitions_count: int, *, now_us: int, settings: TopicSettings | None = None,
    prepared: PreparedLogs | None = None,
) -> Topic:  # fmt: skip
    """A new topic; Refusal where there is one, also of an Iggy stream, that Kafka would call the same."""
    broker = context.broker
    stream = broker.ensure_stream(DEFAULT_STREAM, now_us=now_us)
    return broker.create_topic(
        stream.id, None, name, partitions_count, now_us=now_us, settings=settings, prepared=prepared
    )
