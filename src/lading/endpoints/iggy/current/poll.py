"""Polls of the current Iggy: stored batches are passed through; those of other dialects go through Batch and carrier.

No field of a message shows its state, so only available ones are polled. A message that even the carrier cannot hold is
replaced by a stub that keeps its offset and gives the reason.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....broker.core.access.rights import Right
from ....broker.core.read import ReadResult
from ....broker.iggy.consumer import ConsumerRef, IggyConsumerKind
from ....dialects import registry
from ....dialects.codes import IGGY_CURRENT
from ....dialects.iggy.classic.commands import PollMessages
from ....dialects.iggy.classic.primitives import ConsumerIdentifier, PollingKind
from ....dialects.iggy.classic.releases import Release
from ....dialects.iggy.current import messages
from ....dialects.iggy.current.capabilities import POLLED
from ....dialects.iggy.current.encode import encode_stored
from ....dialects.iggy.current.operations import POLL
from ....dialects.iggy.current.releases import CURRENT_RULES, RELEASE_0_11
from ....dialects.iggy.current.responses import POLLED as POLLED_HEAD
from ....dialects.iggy.current.responses import context_block
from ....dialects.iggy.messages.derived_ids import fill_ids
from ....model.batch import FIELDS_WITH_ORIGIN
from ....model.errors import Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass
from ....model.scan_request import ScanRequest
from ...base.carrying import Carrying, Fit
from ...base.route_cache import RouteCache
from ...base.services import Services
from ..poll import STRATEGIES, consumer_of
from ..send import Require, allow_all

if TYPE_CHECKING:
    from ....broker.core.topology import Partition, Topic
    from ....broker.iggy.poll import PollStart
    from ....dialects.iggy.classic.primitives import Strategy
    from ....dialects.iggy.current.commands import FetchMessages, PollDeferred
    from ..clients import Client

_TAIL = struct.Struct("<BQIB")
"""Strategy kind and value, count, auto-commit: what follows the bytes that name consumer, topic and partition."""


class PollRoute(NamedTuple):
    """The route of a poll, read from its head; ``partition`` is None if a group member polls any of its own."""

    topic: Topic
    consumer: ConsumerRef
    partition: int | None


@lazy_dataclass(frozen=True, slots=True)
class PolledBatches:
    """The body of a poll's response in ``parts``, which may point into the log."""

    parts: Sequence[bytes | memoryview]
    """The head, then the batches."""
    count: int
    next_offset: int = 0
    """The offset after the last polled message."""
    stubs: int = 0
    """Number of messages replaced by stubs, because even the carrier cannot hold them."""


class CurrentPoller:
    """Handles poll requests; one for all connections of an endpoint."""

    def __init__(
        self, services: Services, name: str, require: Require = allow_all, *, carrier: bool, answer_bytes_max: int
    ) -> None:
        self.services: Final = services
        self._require = require
        self._carrying = Carrying(services, name, POLLED, default=carrier)
        self._broker = services.broker
        self.answer_bytes_max: Final = answer_bytes_max
        self._routes: RouteCache[bytes, PollRoute] = RouteCache(services.broker.topology)
        self._labels = (name,)
        self._messages_out = services.metrics.messages_out.values

    def poll(self, body: memoryview, client: Client, now_us: int) -> PolledBatches | Callable[[], PolledBatches]:
        """Return the response, or, if it takes too long for the event loop, the function that makes it in a worker.

        Raises Refusal.
        """
        head = bytes(body[: -_TAIL.size])
        route = self._routes.get(head)
        if route is None:
            command = client.release.commands.parse_request(POLL, body)
            route = self.route_of(self.topic_of(command), command.consumer, command.partition_id)
            # a group may be deleted and another take its number
            if route.consumer.kind is IggyConsumerKind.CONSUMER:
                self._routes.add(head, route)
        kind, value, count, auto_commit = _TAIL.unpack(body[-_TAIL.size :])
        strategy = STRATEGIES.get(kind)
        if strategy is None or auto_commit > 1:
            raise Refusal(
                Reason.MALFORMED,
                f"poll: strategy {kind} with auto commit {auto_commit} is unknown; "
                f"use a strategy from {min(STRATEGIES)} to {max(STRATEGIES)}, and 0 or 1",
            )
        return self.poll_route(route, client, strategy(value), count, auto_commit == 1, self.answer_bytes_max, now_us)

    def topic_of(self, command: PollMessages | PollDeferred | FetchMessages) -> Topic:
        """Return the topic of a poll, which the user may read. Raises Refusal for any other."""
        self._require(command.stream, command.topic, Right.READ)
        return self._broker.topology.topic(command.stream, command.topic)

    def route_of(self, topic: Topic, consumer: ConsumerIdentifier, partition_id: int | None) -> PollRoute:
        """Return the route of a poll. Raises Refusal for a group that does not exist."""
        reference = consumer_of(consumer, topic, self._broker.groups, CURRENT_RULES)
        if partition_id is None and reference.kind is IggyConsumerKind.CONSUMER:
            partition_id = 1
        return PollRoute(topic, reference, None if partition_id is None else partition_id - 1)

    def next_of(self, route: PollRoute, strategy: Strategy) -> int:
        """Return the offset from which a poll reads a partition: the offset it names, or the one after the consumer's
        last.
        """
        if strategy.kind is PollingKind.OFFSET:
            return strategy.value
        stored = self._broker.poller.position(route.topic, route.consumer, route.partition or 0)
        return 0 if stored is None else stored + 1

    def poll_route(
        self,
        route: PollRoute,
        client: Client,
        start: PollStart,
        count: int,
        auto_commit: bool,
        bytes_max: int,
        now_us: int,
    ) -> PolledBatches | Callable[[], PolledBatches]:
        """Poll at most ``bytes_max`` bytes, or one message if the first is longer; otherwise as ``poll``."""
        polled = self._broker.poller.poll(
            route.topic,
            route.consumer,
            client.id,
            route.partition or 0,
            start,
            count,
            auto_commit,
            max_bytes=bytes_max,
            now_us=now_us,
            shows_states=False,
            names_partition=route.partition is not None,
        )
        if polled.partition is None or polled.reading is None or not polled.reading.pieces:
            return PolledBatches((_build_head(client.release, polled.partition, 0),), 0)
        self._messages_out[self._labels] += polled.count
        if all(piece.run.dialect == IGGY_CURRENT for piece in polled.reading.pieces):
            return encode_polled(polled.partition, polled.reading, release=client.release)
        fit = self._carrying.fit(route.topic)
        return partial(encode_polled, polled.partition, polled.reading, fit, client.release)


NO_PARTITION: Final = 0xFFFFFFFF
"""The response by which a group member learns that it has no partition, and that it has to read its assignment again.
"""


def _build_head(release: Release, partition: Partition | None, count: int) -> bytes:
    if partition is None:
        head = POLLED_HEAD.pack(NO_PARTITION, 0, 0)
    else:
        head = POLLED_HEAD.pack(partition.number, (partition.log.high_watermark or 1) - 1, count)
    if release.tells_history:
        head += context_block(0 if partition is None else partition.topic.created_us)
    return head


def encode_polled(
    partition: Partition, reading: ReadResult, fit: Fit | None = None, release: Release = RELEASE_0_11
) -> PolledBatches:
    """Encode the messages of a reading as batches for a client. Callable from any thread.

    ``fit`` is required if messages of other dialects are among them.
    """
    parts: list[Any] = [b""]
    count = stubs = 0
    for piece in reading.pieces:
        if piece.run.dialect == IGGY_CURRENT:
            cut = messages.slice_batches(piece.run, piece.first, piece.end)
            parts += cut.parts
            count += cut.messages_count
            continue
        for some in registry.decode(piece.run, ScanRequest(piece.first, piece.end, FIELDS_WITH_ORIGIN)):
            batch = registry.to_batch(some)
            carried = None if fit is None else fit(batch)
            shown = batch if carried is None else carried.batch
            parts.append(encode_stored(fill_ids(shown, partition.topic.uuid, partition.number), partition.number))
            count += batch.num_rows
            stubs += 0 if carried is None else len(carried.unholdable)
    parts[0] = _build_head(release, partition, count)
    return PolledBatches(parts, count, reading.pieces[-1].end, stubs)
