"""Positions of a gateway: offsets of Kafka groups, looked up when they are needed and current for a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from lading.broker.core.counters import Counters
from lading.broker.core.position import PositionKey, StoredPosition
from lading.broker.core.settings import TopicSettings
from lading.broker.core.topology import Partition, Stream, Topic
from lading.kafka_log.group_offsets import GroupOffsets
from lading.kafka_log.log import ClusterLog
from lading.kafka_log.positions import CURRENT_S, KNOWN_MAX, LOOKS_MAX, ClusterPositions
from lading.log.catalog import Catalog
from lading.model.errors import LadingError, NotLoaded, Refusal, RemoteError

IGGY = PositionKey("iggy", "consumer/3")
NATIVE = PositionKey("native", "readers")


class ScriptedOffsets:
    """A cluster's offsets; requests wait until the test lets them be answered, in order."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, tuple[str, int]], int] = {}
        self.requests: list[tuple[str, str]] = []
        self.waiting: list[Callable[[LadingError | None], None]] = []

    def store(self, group: str, place: tuple[str, int], offset: int, stored: Any) -> None:
        self._add("store", group, lambda: self.offsets.update({(group, place): offset}), stored)

    def delete(self, group: str, place: tuple[str, int], stored: Any) -> None:
        self._add("delete", group, lambda: self.offsets.pop((group, place), None), stored)

    def fetch(self, group: str, place: tuple[str, int], fetched: Any) -> None:
        self._add("fetch", group, lambda: None, lambda error: fetched(self.offsets.get((group, place)), error))

    def _add(self, kind: str, group: str, act: Callable[[], object], done: Any) -> None:
        self.requests.append((kind, group))

        def finish(error: LadingError | None) -> None:
            if error is None:
                act()
            done(error)

        self.waiting.append(finish)

    def finish_all(self, error: LadingError | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for finish in waiting:
            finish(error)


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def offsets() -> ScriptedOffsets:
    return ScriptedOffsets()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def positions(offsets: ScriptedOffsets, clock: Clock) -> ClusterPositions:
    return ClusterPositions(
        cast("Catalog", None), Counters(), 0, lambda call: None, cast("GroupOffsets", offsets), clock
    )


@pytest.fixture
def partition() -> Partition:
    topic = Topic(Stream(1, "air", 0), 1, "legs", bytes(16), 0, TopicSettings())
    topic.partitions = [
        Partition(topic, number, cast("Any", ClusterLog(("air.legs", number), bytes(16), 0, 0))) for number in range(2)
    ]
    return topic.partitions[1]


def find(positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition, key: PositionKey) -> int | None:
    """As an endpoint reads: it waits until the position is there, and tries again."""
    while True:
        try:
            found = positions.find(partition, key)
            return None if found is None else found.offset
        except NotLoaded as absent:
            errors: list[LadingError | None] = []
            absent.add_loaded_callback(errors.append)
            offsets.finish_all()
            assert errors == [None]


@pytest.mark.parametrize(
    ("key", "group", "committed"), [(IGGY, "iggy.air.legs.consumer/3", 8), (NATIVE, "lading.readers", 7)]
)
def test_a_position_is_the_offset_of_a_kafka_group(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition, clock: Clock, key: PositionKey,
    group: str, committed: int,
) -> None:  # fmt: skip
    positions.store(partition, key, StoredPosition(7))
    # Kafka's offset is that of the next message; Iggy's of the last
    offsets.finish_all()
    assert offsets.offsets == {(group, ("air.legs", 1)): committed}
    clock.now_s += CURRENT_S
    assert find(positions, offsets, partition, key) == 7
    assert offsets.requests == [("store", group), ("fetch", group)]


def test_what_another_gateway_stored_is_found(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition, clock: Clock
) -> None:
    assert find(positions, offsets, partition, IGGY) is None
    offsets.offsets["iggy.air.legs.consumer/3", ("air.legs", 1)] = 6
    # for a moment what was looked up counts
    assert find(positions, offsets, partition, IGGY) is None
    clock.now_s += CURRENT_S
    assert find(positions, offsets, partition, IGGY) == 5
    del offsets.offsets["iggy.air.legs.consumer/3", ("air.legs", 1)]
    clock.now_s += CURRENT_S
    assert find(positions, offsets, partition, IGGY) is None


def test_an_offset_of_0_is_no_position_of_iggy(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition
) -> None:
    offsets.offsets["iggy.air.legs.consumer/3", ("air.legs", 1)] = 0
    assert find(positions, offsets, partition, IGGY) is None


def test_a_stored_position_counts_before_the_cluster_has_it(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition, clock: Clock
) -> None:
    with pytest.raises(NotLoaded):
        positions.find(partition, IGGY)
    positions.store(partition, IGGY, StoredPosition(4))
    clock.now_s += 10
    found = positions.find(partition, IGGY)
    assert found is not None and found.offset == 4
    # the lookup from before comes back, with less
    offsets.waiting.pop(0)(None)
    found = positions.find(partition, IGGY)
    assert found is not None and found.offset == 4


def test_a_client_waits_until_the_cluster_has_its_position(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition
) -> None:
    positions.store(partition, IGGY, StoredPosition(4))
    positions.store(partition, IGGY, StoredPosition(5))
    pending = positions.confirm(partition, IGGY)
    assert pending is not None and not pending.done
    offsets.waiting.pop(0)(None)
    assert not pending.done
    offsets.finish_all()
    assert pending.done and pending.error is None
    assert positions.confirm(partition, IGGY) is None


def test_a_position_that_the_cluster_refuses_is_refused_and_looked_up_again(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition
) -> None:
    positions.store(partition, IGGY, StoredPosition(4))
    pending = positions.confirm(partition, IGGY)
    offsets.finish_all(RemoteError("GROUP_AUTHORIZATION_FAILED"))
    assert pending is not None and isinstance(pending.error, Refusal)
    assert "GROUP_AUTHORIZATION_FAILED" in str(pending.error)
    assert find(positions, offsets, partition, IGGY) is None


def test_a_lookup_that_fails_is_the_error_of_the_read(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition
) -> None:
    errors: list[LadingError | None] = []
    for _ in range(2):
        with pytest.raises(NotLoaded) as absent:
            positions.find(partition, IGGY)
        absent.value.add_loaded_callback(errors.append)
    # both wait for one request
    assert len(offsets.requests) == 1
    offsets.finish_all(RemoteError("no coordinator"))
    assert ["no coordinator" in str(error) for error in errors] == [True, True]


def test_a_deleted_position_is_deleted_in_the_cluster(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition
) -> None:
    offsets.offsets = {("iggy.air.legs.consumer/3", ("air.legs", number)): 6 for number in range(2)}
    positions.remove_from(partition, IGGY)
    assert find(positions, offsets, partition, IGGY) is None
    offsets.finish_all()
    assert list(offsets.offsets) == [("iggy.air.legs.consumer/3", ("air.legs", 0))]
    positions.remove(partition.topic, IGGY)
    offsets.finish_all()
    assert offsets.offsets == {}


def test_positions_in_memory_are_bounded(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition, clock: Clock
) -> None:
    for number in range(KNOWN_MAX + 10):
        positions.store(partition, PositionKey("iggy", f"consumer/{number}"), StoredPosition(1))
        if number == KNOWN_MAX // 2:
            offsets.finish_all()
            clock.now_s += CURRENT_S
    offsets.finish_all()
    assert len(partition.positions) <= KNOWN_MAX
    assert len(offsets.offsets) == KNOWN_MAX + 10


def test_a_change_looks_at_few_of_many_positions_that_are_current(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition, clock: Clock
) -> None:
    """With 20,000 consumers that poll within 100 ms, each change of a position looked at all of them."""
    looks = 0

    def look() -> float:
        nonlocal looks
        looks += 1
        return 50.0

    for number in range(KNOWN_MAX + 100):
        positions.store(partition, PositionKey("iggy", f"consumer/{number}"), StoredPosition(1))
    offsets.finish_all()
    positions._clock = look
    for number in range(100):
        positions.store(partition, PositionKey("iggy", f"consumer/{number}"), StoredPosition(2))
    offsets.finish_all()
    assert looks <= 100 * (1 + LOOKS_MAX)


def test_positions_of_consumers_that_left_are_forgotten_beside_current_ones(
    positions: ClusterPositions, offsets: ScriptedOffsets, partition: Partition, clock: Clock
) -> None:
    for number in range(2 * KNOWN_MAX):
        positions.store(partition, PositionKey("native", f"reader-{number}"), StoredPosition(1))
    offsets.finish_all()
    assert len(partition.positions) == 2 * KNOWN_MAX
    clock.now_s += CURRENT_S
    for number in range(KNOWN_MAX):
        positions.store(partition, PositionKey("iggy", f"consumer/{number}"), StoredPosition(1))
    offsets.finish_all()
    assert len(partition.positions) == KNOWN_MAX
    assert all(key.protocol == "iggy" for key in partition.positions)
