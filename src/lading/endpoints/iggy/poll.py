"""Polls of Iggy classic: stored bytes passed through; what another dialect wrote goes through Batch and carrier.

A message that even the carrier cannot bring across is replaced by a stub that keeps its offset and says why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from ...broker.core.access.rights import Right
from ...broker.core.read import ReadResult
from ...broker.iggy import poll as polling
from ...broker.iggy.consumer import ConsumerRef, IggyConsumerKind
from ...broker.iggy.poll import PollResult
from ...dialects import codes
from ...dialects.carrier import Carried
from ...dialects.iggy.classic.commands import GetOffset, PollMessages, StoreOffset
from ...dialects.iggy.classic.later_commands import DeleteOffset
from ...dialects.iggy.classic.partitioning import number_of_consumer
from ...dialects.iggy.classic.primitives import ConsumerIdentifier, ConsumerKind, PollingKind, Strategy
from ...dialects.iggy.classic.protocol import POLLED
from ...dialects.iggy.classic.releases import CLASSIC_RULES, UNTOLD, PollHead, Release, ServerRules
from ...dialects.iggy.messages.derived_ids import fill_ids
from ...model.state import State
from ..base.carrying import Carrying, Fit
from ..base.route_cache import RouteCache
from ..base.services import Services
from .answers import NOWHERE, Answer, PolledPlace, answer_of
from .clients import Client
from .send import Require, allow_all

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic
    from ...broker.iggy.groups import IggyGroups
    from ...model.protocol import Capabilities
    from ...settings.endpoints import IggyHttpListener, IggyListener

POLL: Final = 100

_TAIL = struct.Struct("<BQIB")
"""Strategy kind and value, count, auto-commit: what follows the bytes that name consumer, topic and partition."""

Route = tuple["Topic", ConsumerRef, int]


NOTHING: Final = Answer(0, ())


class Poller:
    """Handles poll requests of one release; one for all its connections of an endpoint."""

    stored_as: ClassVar[int] = codes.IGGY_CLASSIC
    """The dialect whose messages are sent as they are stored."""
    shows_states: ClassVar[bool] = True
    """Whether the form of a message shows its state; without it only available messages are polled."""
    target: ClassVar[Capabilities] = POLLED
    """Capabilities of the release's messages."""
    render = staticmethod(answer_of)
    """Converts the messages that were read to those that clients of the release get."""

    def __init__(
        self,
        services: Services,
        name: str,
        settings: IggyListener | IggyHttpListener,
        release: Release = UNTOLD,
        require: Require = allow_all,
    ) -> None:
        """``require`` is the same as in ``Sender``."""
        self._require = require
        self._commands = release.commands
        self._head = release.poll_head
        self._tells_partition = release.tells_partition
        self._first_partition = release.first_partition
        self._carrying = Carrying(services, name, self.target, default=settings.carrier)
        self._broker = services.broker
        self._answer_bytes_max = settings.answer_bytes_max
        self._routes: RouteCache[bytes, Route] = RouteCache(services.broker.topology)
        self._labels = (name,)
        self._messages_out = services.metrics.messages_out.values
        self._hidden_out = services.metrics.hidden_out.values
        self._dropped = services.metrics.dropped.values

    def poll(self, payload: memoryview, client: Client | None, now_us: int) -> Answer | Callable[[], Answer]:
        """Return the response, or, if it takes too long for the event loop, the function that makes it in a worker.

        Raises Refusal.
        """
        head = _head_size(payload, self._head)
        tail = payload[head:]
        if len(tail) != _TAIL.size:
            return self._poll_command(self._parse(payload), client, now_us)
        kind, value, count, auto_commit = _TAIL.unpack(tail)
        strategy = STRATEGIES.get(kind)
        if strategy is None or count == 0 or auto_commit > 1:
            return self._poll_command(self._parse(payload), client, now_us)
        name = bytes(payload[:head])
        route = self._routes.get(name)
        if route is None:
            command = self._parse(payload)
            route = self._find_route(command)
            if is_lasting(command.consumer):
                self._routes.add(name, route)
        polled = self._poll(route, client, strategy(value), count, bool(auto_commit), now_us)
        return self._answer(polled, route[0])

    def _poll_command(self, command: PollMessages, client: Client | None, now_us: int) -> Answer | Callable[[], Answer]:
        """Handle a poll whose request is parsed."""
        route = self._find_route(command)
        return self._answer(self._poll_route(command, route, client, now_us), route[0])

    def read(
        self,
        command: PollMessages,
        client: Client | None,
        now_us: int,
        states: frozenset[State] | None = None,
        bytes_max: int | None = None,
    ) -> tuple[ReadResult, Fit] | None:
        """Read for a poll, and return the reading and the function that makes its messages fit this dialect.

        The messages are as in the log: at most ``bytes_max`` bytes, or one message if the first is longer. Returns None
        for a group member without a partition.
        """
        polled = self._poll_route(command, self._find_route(command), client, now_us, states, bytes_max)
        if polled.reading is None or polled.partition is None:
            return None
        return polled.reading, self._make_fit(polled.partition.topic, polled.partition)

    def _poll_route(
        self,
        command: PollMessages,
        route: Route,
        client: Client | None,
        now_us: int,
        states: frozenset[State] | None = None,
        bytes_max: int | None = None,
    ) -> PollResult:
        strategy = strategy_of(command.strategy)
        return self._poll(route, client, strategy, command.count, command.auto_commit, now_us, states, bytes_max)

    def _poll(
        self,
        route: Route,
        client: Client | None,
        strategy: polling.PollStart,
        count: int,
        auto_commit: bool,
        now_us: int,
        states: frozenset[State] | None = None,
        bytes_max: int | None = None,
    ) -> PollResult:
        topic, consumer, number = route
        polled = self._broker.poller.poll(
            topic,
            consumer,
            client.id if client else None,
            number,
            strategy,
            count,
            auto_commit,
            max_bytes=self._answer_bytes_max if bytes_max is None else min(bytes_max, self._answer_bytes_max),
            now_us=now_us,
            states=states,
            shows_states=self.shows_states,
        )
        if polled.reading is not None:
            self._messages_out[self._labels] += polled.count
            if polled.reading.hidden:
                self._hidden_out[self._labels] += sum(end - first for first, end, _ in polled.reading.hidden)
        return polled

    def _answer(self, polled: PollResult, topic: Topic) -> Answer | Callable[[], Answer]:
        reading, partition = polled.reading, polled.partition
        if reading is None or partition is None:
            return NOTHING
        place = NOWHERE
        if self._tells_partition:
            last = max(partition.log.high_watermark - 1, 0)
            place = PolledPlace(partition.number + self._first_partition, last)
        if all(piece.run.dialect == self.stored_as for piece in reading.pieces):
            return self.render(reading, place)
        return partial(self.render, reading, place, self._make_fit(topic, partition))

    def _make_fit(self, topic: Topic, partition: Partition) -> Fit:
        """Return the function that converts messages of other dialects to this one; each message without an id gets a
        new one.
        """
        return partial(_fit_and_identify, self._carrying.fit(topic), topic.uuid, partition.number)

    def _parse(self, payload: memoryview) -> PollMessages:
        command: Any = self._commands.parse_request(POLL, payload)
        assert isinstance(command, PollMessages)
        return command

    def _find_route(self, command: PollMessages) -> Route:
        self._require(command.stream, command.topic, Right.READ)
        topic = self._broker.topology.topic(command.stream, command.topic)
        return topic, consumer_of(command.consumer, topic, self._broker.groups), partition_of(command)


def _fit_and_identify(fit: Fit, topic: bytes, partition: int, batch: pa.RecordBatch) -> Carried:
    carried = fit(batch)
    return replace(carried, batch=fill_ids(carried.batch, topic, partition))


def _head_size(payload: memoryview, head: PollHead) -> int:
    """Return the size of consumer, stream, topic and partition (iggy.md A3); if they are cut short, any size."""
    at, identifiers_count, partition_bytes = head
    for _ in range(identifiers_count):
        if at + 2 > len(payload):
            return at
        at += 2 + payload[at + 1]
    return at + partition_bytes


STRATEGIES: Final[dict[int, Callable[[int], polling.PollStart]]] = {
    PollingKind.OFFSET: polling.Offset,
    PollingKind.TIMESTAMP: polling.Timestamp,
    PollingKind.FIRST: lambda value: polling.First(),
    PollingKind.LAST: lambda value: polling.Last(),
    PollingKind.NEXT: lambda value: polling.Next(),
}
"""The broker's start of a poll, by the code of a strategy; first, last and next ignore the value."""

_CONSUMERS: Final = {
    ConsumerKind.CONSUMER: IggyConsumerKind.CONSUMER,
    ConsumerKind.GROUP: IggyConsumerKind.GROUP,
}


def partition_of(command: PollMessages | GetOffset | StoreOffset | DeleteOffset) -> int:
    """Return the partition of a command, counted from 0: the first if the client names none."""
    return 0 if command.partition_id is None else command.partition_id - 1


def strategy_of(strategy: Strategy) -> polling.PollStart:
    """Return the start of the poll that a polling strategy stands for."""
    return STRATEGIES[strategy.kind](strategy.value)


def consumer_of(
    consumer: ConsumerIdentifier, topic: Topic, groups: IggyGroups, rules: ServerRules = CLASSIC_RULES
) -> ConsumerRef:
    """Return the broker's reference to the consumer or group that polls.

    Raises Refusal for the name of a group that does not exist, and for its number if groups are strict.
    """
    if consumer.kind is ConsumerKind.CONSUMER or not (rules.has_strict_groups or isinstance(consumer.id, str)):
        return ConsumerRef(_CONSUMERS[consumer.kind], number_of_consumer(consumer.id))
    return ConsumerRef(IggyConsumerKind.GROUP, groups.get(topic, consumer.id).id)


def is_lasting(consumer: ConsumerIdentifier) -> bool:
    """Return whether an identifier always means the same group; a name may be given to another one later."""
    return consumer.kind is ConsumerKind.CONSUMER or isinstance(consumer.id, int)
