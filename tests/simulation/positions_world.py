"""One simulated life with consumers' positions beside what a World has: they are stored, read back, and survive.

The catalog, where they are kept, is as a killed process leaves it: a simulated power cut takes nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lading.broker.core.pending_result import PendingResult
from lading.broker.core.position import StoredPosition
from lading.broker.iggy.consumer import ConsumerRef, IggyConsumerKind
from lading.broker.kafka.group_coordinator import MemberCall
from lading.model.errors import Refusal
from tests.simulation.world import World

POSITIONS_FROM: Final = 3_000_000
"""Seeds from here on have positions, and transactions."""
KAFKA: Final = ("kafka g", "kafka h")
IGGY: Final = "iggy 2"
NOTHING: Final = -1
"""What a read finds of a consumer without a position."""
_CONSUMER: Final = ConsumerRef(IggyConsumerKind.CONSUMER, 2)


@dataclass(frozen=True, slots=True)
class PositionCall:
    """A ``store``, a ``fetch`` or a ``crash`` of the broker, from ``call`` to ``end``, by a counter of all such times.

    ``is_confirmed``: the client was told that its position is durable. Iggy's clients are told that it is stored, which
    a crash may undo.
    """

    kind: str
    consumer: str
    call: int
    end: int
    value: int = NOTHING
    is_confirmed: bool = False


class PositionsWorld(World):
    """A broker, its clients, and consumers that store positions and read them back."""

    def __init__(self, seed: int, data: Path) -> None:
        self.calls: list[PositionCall] = []
        self._time = 0
        self._waiting: dict[int, PositionCall] = {}
        super().__init__(seed, data)

    def _now(self) -> int:
        self._time += 1
        return self._time

    def lose_connections(self) -> None:
        super().lose_connections()
        # who waits is told nothing, and what took no effect by now takes none later
        for waiting in self._waiting.values():
            self.calls.append(replace(waiting, end=self._now()))
        self._waiting = {}
        call, end = self._now(), self._now()
        self.calls += [PositionCall("crash", consumer, call, end) for consumer in (*KAFKA, IGGY)]

    def store_position(self) -> None:
        """Store where a consumer is: forward mostly, and back as a client does that reads again."""
        consumer, call = self.random.choice((*KAFKA, IGGY)), self._now()
        value = self.random.randint(0, max(self.partition.log.high_watermark - 1, 0))
        try:
            if consumer == IGGY:
                if self.partition.log.high_watermark:
                    topic = self.partition.topic
                    self.broker.poller.store_position(topic, _CONSUMER, None, 0, value, now_us=self.now_us)
                    self.calls.append(PositionCall("store", consumer, call, self._now(), value))
                return
            groups, name = self.broker.coordinated_groups, consumer.split()[1]
            groups.admit(MemberCall(name, "", -1), now_us=self.now_us)
            groups.store(name, self.partition, StoredPosition(value, updated_us=self.now_us))
            answer = self.broker.catalog_commit.confirm()
        except Refusal:
            return
        self._waiting[call] = PositionCall("store", consumer, call, call, value)
        answer.add_done_callback(lambda done: self._on_stored(call, done))

    def _on_stored(self, call: int, answer: PendingResult[None]) -> None:
        # an answer to a connection that a crash has cut reaches nobody
        waiting = self._waiting.pop(call, None)
        if waiting is not None:
            self.calls.append(replace(waiting, end=self._now(), is_confirmed=answer.error is None))

    def fetch_positions(self) -> None:
        """Read back where all consumers are."""
        call = self._now()
        for consumer in (*KAFKA, IGGY):
            if consumer == IGGY:
                found = self.broker.poller.position(self.partition.topic, _CONSUMER, 0)
            else:
                stored = self.broker.coordinated_groups.position(consumer.split()[1], self.partition)
                found = None if stored is None else stored.offset
            self.calls.append(PositionCall("fetch", consumer, call, self._now(), NOTHING if found is None else found))

    def happen(self) -> None:
        chance = self.random.random()
        if chance < 0.2:
            self.store_position()
        elif chance < 0.3:
            self.fetch_positions()
        super().happen()

    def crash(self, *, power_is_cut: bool) -> None:
        super().crash(power_is_cut=power_is_cut)
        self.fetch_positions()
