"""Polls of Iggy classic: stored bytes passed through; what another dialect wrote goes through Batch and carrier.

A message that even the carrier cannot bring across is replaced by a stub that keeps its offset and says why.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ...broker.core.read import ReadResult, RunSlice
from ...broker.iggy import poll as polling
from ...broker.iggy.consumer import ConsumerRef, IggyConsumerKind
from ...broker.iggy.poll import PollResult
from ...dialects import codes, registry
from ...dialects.carrier import Carried
from ...dialects.iggy_classic import messages
from ...dialects.iggy_classic.commands import PollMessages, parse_request
from ...dialects.iggy_classic.partitioning import number_of_consumer
from ...dialects.iggy_classic.primitives import ConsumerIdentifier, ConsumerKind, PollingKind, Strategy
from ...dialects.iggy_classic.protocol import POLLED
from ...model.batch import SCHEMA
from ...model.ranges import write_marks
from ...model.scan_request import ScanRequest
from ...model.state import State
from ..base.carrying import Carrying, Fit
from ..base.route_cache import RouteCache
from ..base.services import Services
from .clients import Client

if TYPE_CHECKING:
    from ...broker.core.topology import Topic
    from ...endpoint_settings import IggyHttpSettings, IggyListener

POLL: Final = 100
UNBOUNDED: Final = 1 << 62
"""The reading is bounded already; nothing is to be left out of it."""

_TAIL = struct.Struct("<BQIB")
"""Strategy kind and value, count, auto-commit: what follows the bytes that name consumer, topic and partition."""

Route = tuple["Topic", ConsumerRef, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """Messages as polled: ``count`` of them in ``parts``, which may point into the log."""

    count: int
    parts: Sequence[bytes | bytearray | memoryview]
    stubs: int = 0
    """How many of them stand for messages that even the carrier cannot bring across."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(map(len, self.parts))


NOTHING: Final = Answer(0, ())


class Poller:
    """Answers poll requests; one for all connections of a face."""

    def __init__(self, services: Services, name: str, settings: IggyListener | IggyHttpSettings) -> None:
        self._carrying = Carrying(services, name, POLLED, default=settings.carrier)
        self._broker = services.broker
        self._workers = services.workers
        self._answer_bytes_max = settings.answer_bytes_max
        self._routes: RouteCache[bytes, Route] = RouteCache(services.broker.topology)
        self._labels = (name,)
        self._messages_out = services.metrics.messages_out.values
        self._hidden_out = services.metrics.hidden_out.values
        self._dropped = services.metrics.dropped.values

    def poll(self, payload: memoryview, client: Client | None, now_us: int) -> Answer | asyncio.Future[Answer]:
        """The answer, or a future of it where it takes work too long for the event loop; Refusal."""
        head = _head_size(payload)
        tail = payload[head:]
        if len(tail) != _TAIL.size:
            return self._poll_command(_command(payload), client, now_us)
        kind, value, count, auto_commit = _TAIL.unpack(tail)
        strategy = STRATEGIES.get(kind)
        if strategy is None or count == 0 or auto_commit > 1:
            return self._poll_command(_command(payload), client, now_us)
        name = bytes(payload[:head])
        route = self._routes.get(name)
        if route is None:
            route = self._routed(_command(payload))
            self._routes.add(name, route)
        polled = self._poll(route, client, strategy(value), count, bool(auto_commit), now_us)
        return self._answer(polled.reading, route)

    def _poll_command(
        self, command: PollMessages, client: Client | None, now_us: int
    ) -> Answer | asyncio.Future[Answer]:
        """The same for a parsed request."""
        return self._answer(self.read(command, client, now_us), self._routed(command))

    def fit(self, command: PollMessages) -> Fit:
        """What brings messages of other dialects into the form of this face."""
        return self._carrying.fit(self._routed(command)[0])

    def read(
        self, command: PollMessages, client: Client | None, now_us: int, states: frozenset[State] | None = None
    ) -> ReadResult | None:
        """What a poll reads, as it lies in the log; None where a group member has no partition."""
        strategy = strategy_of(command.strategy)
        route, count = self._routed(command), command.count
        return self._poll(route, client, strategy, count, command.auto_commit, now_us, states).reading

    def _poll(
        self,
        route: Route,
        client: Client | None,
        strategy: polling.PollStart,
        count: int,
        auto_commit: bool,
        now_us: int,
        states: frozenset[State] | None = None,
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
            max_bytes=self._answer_bytes_max,
            now_us=now_us,
            states=states,
        )
        if polled.reading is not None:
            self._messages_out[self._labels] += polled.count
            if polled.reading.hidden:
                self._hidden_out[self._labels] += sum(end - first for first, end, _ in polled.reading.hidden)
        return polled

    def _answer(self, reading: ReadResult | None, route: Route) -> Answer | asyncio.Future[Answer]:
        if reading is None or not reading.pieces:
            return NOTHING
        if all(piece.run.dialect == codes.IGGY_CLASSIC for piece in reading.pieces):
            return answer_of(reading)
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._workers, answer_of, reading, self._carrying.fit(route[0]))

    def _routed(self, command: PollMessages) -> Route:
        topic = self._broker.topic(command.stream, command.topic)
        return topic, consumer_of(command.consumer), command.partition_id - 1


def _command(payload: memoryview) -> PollMessages:
    command: Any = parse_request(POLL, payload)
    assert isinstance(command, PollMessages)
    return command


def _head_size(payload: memoryview) -> int:
    """Bytes of consumer, stream, topic and partition (iggy.md A3); any size where they are cut short."""
    at = 5
    for _ in range(2):
        if at + 2 > len(payload):
            return at
        at += 2 + payload[at + 1]
    return at + 4


STRATEGIES: Final[dict[int, Callable[[int], polling.PollStart]]] = {
    PollingKind.OFFSET: polling.Offset,
    PollingKind.TIMESTAMP: polling.Timestamp,
    PollingKind.FIRST: lambda value: polling.First(),
    PollingKind.LAST: lambda value: polling.Last(),
    PollingKind.NEXT: lambda value: polling.Next(),
}
"""What the broker is told of a strategy, by its code; first, last and next ignore the value."""

_CONSUMERS: Final = {
    ConsumerKind.CONSUMER: IggyConsumerKind.CONSUMER,
    ConsumerKind.GROUP: IggyConsumerKind.GROUP,
}


def strategy_of(strategy: Strategy) -> polling.PollStart:
    """The broker's word for where a poll begins."""
    return STRATEGIES[strategy.kind](strategy.value)


def consumer_of(consumer: ConsumerIdentifier) -> ConsumerRef:
    """The broker's word for who polls."""
    return ConsumerRef(_CONSUMERS[consumer.kind], number_of_consumer(consumer.id))


def answer_of(reading: ReadResult, fit: Fit | None = None) -> Answer:
    """The messages of a reading as an Iggy client gets them; callable from any thread.

    ``fit`` is needed where messages of other dialects are among them.
    """
    parts: list[bytes | bytearray | memoryview] = []
    count = stubs = 0
    for piece in reading.pieces:
        if piece.run.dialect == codes.IGGY_CLASSIC:
            cut = messages.slices(piece.run, piece.first, piece.end, UNBOUNDED, UNBOUNDED)
            parts += cut.parts
            count += cut.count
        else:
            for carried in _carried(piece, fit):
                parts.append(registry.dialect(codes.IGGY_CLASSIC).encode(carried.batch))
                count += carried.batch.num_rows
                stubs += len(carried.unholdable)
    if reading.hidden:
        patched = bytearray().join(parts)
        messages.set_states(patched, reading.hidden)
        parts = [patched]
    return Answer(count, parts, stubs)


def _carried(piece: RunSlice, fit: Fit | None) -> Iterator[Carried]:
    """Messages as this dialect can hold them: its own as they lie, those of another whole again before they are."""
    own = piece.run.dialect == codes.IGGY_CLASSIC
    for some in registry.decode(piece.run, ScanRequest(piece.first, piece.end, carrier=not own)):
        batch = registry.to_batch(some)
        yield Carried(batch, []) if own or fit is None else fit(batch)


def batch_of(reading: ReadResult, fit: Fit) -> tuple[pa.RecordBatch, int]:
    """The messages of a reading as one Batch with their states, and how many stubs are in it; from any thread."""
    carried = [part for piece in reading.pieces for part in _carried(piece, fit)]
    table = pa.Table.from_batches([part.batch for part in carried], schema=SCHEMA).combine_chunks()
    batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=SCHEMA)
    return _with_states(batch, reading.hidden), sum(len(part.unholdable) for part in carried)


def _with_states(batch: pa.RecordBatch, hidden: Sequence[tuple[int, int, int]]) -> pa.RecordBatch:
    if not hidden:
        return batch
    at = batch.schema.get_field_index("state")
    states = write_marks(batch.column("state").to_numpy(), batch.column("offset").to_numpy(), hidden)
    return batch.set_column(at, SCHEMA.field("state"), pa.array(states, pa.int8()))
