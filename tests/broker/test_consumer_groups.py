"""Groups of the newer protocol (KIP-848) by a clock that is passed: epochs, fencing, time-outs, instances, limits.

Expected epochs, errors and orders are those that Apache Kafka 4.3.1 answered to the same heartbeats.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lading.broker.core.position import StoredPosition
from lading.broker.kafka.assignors import ASSIGNORS, AssignedMember, Place
from lading.broker.kafka.consumer_group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    ConsumerGroupState,
)
from lading.broker.kafka.group_coordinator import MemberCall
from lading.broker.kafka.topic_patterns import find_matching, require_pattern
from lading.model.errors import Reason, Refusal
from lading.runtime.turns import finish
from tests.broker.room import NOW, SECOND, opened, topic_of
from tests.broker.test_native_append import crashed

SESSION = 45 * SECOND
REBALANCE = 30 * SECOND
LATER = 2 * SECOND
"""Beyond the interval in which targets are computed once."""


class Room:
    """A broker with a topic ``t`` of four partitions in the stream of flat names, and members of a group ``g``."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.broker = opened(path, **settings)
        self.topic = topic_of(self.broker, 4, "t", "default")
        self.now = NOW

    def beat(self, member: str, epoch: int, *, group: str = "g", **more: Any) -> ConsumerGroupHeartbeatResult:
        call = ConsumerGroupHeartbeat(group, member, epoch, **more)
        return finish(self.broker.coordinated_groups.consumer.heartbeat(call, now_us=self.now))

    def join(self, member: str, names: Iterable[str] = ("t",), **more: Any) -> ConsumerGroupHeartbeatResult:
        self.now += LATER
        fields: dict[str, Any] = {"rebalance_timeout_us": REBALANCE, "names": list(names), "owned": frozenset()} | more
        return self.beat(member, 0, **fields)

    def places(self, *numbers: int) -> frozenset[Place]:
        return frozenset((self.topic.uuid, number) for number in numbers)

    def state(self) -> ConsumerGroupState:
        return self.group.state

    @property
    def group(self) -> ConsumerGroup:
        group = self.broker.coordinated_groups.consumer.find("g")
        assert group is not None
        return group


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def reason(act: Callable[[], object]) -> Reason:
    with pytest.raises(Refusal) as refusal:
        act()
    return refusal.value.reason


def numbers(result: ConsumerGroupHeartbeatResult) -> list[int] | None:
    return None if result.assignment is None else sorted(number for _, number in result.assignment)


def test_a_newcomer_gets_partitions_once_their_owner_has_given_them_up(room: Room) -> None:
    first = room.join("one")
    assert (first.epoch, numbers(first), first.interval_ms) == (2, [0, 1, 2, 3], 5000)
    second = room.join("two")
    assert (second.epoch, numbers(second)) == (3, [])
    told = room.beat("one", 2)
    assert (told.epoch, numbers(told)) == (2, [0, 1])
    assert room.state() is ConsumerGroupState.RECONCILING
    # it says nothing of them, then that it still has them: they are not given away
    assert numbers(room.beat("two", 3)) is None
    assert room.beat("one", 2, owned=room.places(0, 1, 2, 3)).epoch == 2
    assert numbers(room.beat("two", 3)) is None
    assert room.beat("one", 2, owned=room.places(0, 1)) == ConsumerGroupHeartbeatResult("one", 3, 5000, None)
    assert numbers(room.beat("two", 3)) == [2, 3]
    assert room.state() is ConsumerGroupState.STABLE
    assert room.beat("two", LEAVE_EPOCH) == ConsumerGroupHeartbeatResult("two", -1)
    assert room.state() is ConsumerGroupState.ASSIGNING
    room.now += LATER
    last = room.beat("one", 3)
    assert (last.epoch, numbers(last)) == (4, [0, 1, 2, 3])


def test_another_epoch_fences_unless_only_the_response_was_lost(room: Room) -> None:
    room.join("one")
    room.join("two")
    room.beat("one", 2)
    room.beat("one", 2, owned=room.places(0, 1))
    assert room.beat("one", 2, owned=room.places(0)).epoch == 3
    for epoch, owned in ((2, None), (2, room.places(0, 1, 2)), (1, room.places(0)), (4, None)):
        assert reason(partial(room.beat, "one", epoch, owned=owned)) is Reason.MEMBER_FENCED
    assert reason(lambda: room.beat("three", 3)) is Reason.GROUP_MEMBER_NOT_FOUND
    assert reason(lambda: room.beat("one", 3, group="other")) is Reason.GROUP_NOT_FOUND
    # a member that joins again keeps what it has
    assert numbers(room.join("one")) == [0, 1]


def test_a_member_that_sends_nothing_loses_its_partitions(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    """A line says so: who reads messages twice afterwards looks for the reason."""
    caplog.set_level("INFO", "lading.broker")
    room.join("one")
    room.join("two")
    room.beat("one", 2)
    room.beat("one", 2, owned=room.places(0, 1))
    room.beat("two", 3)
    joined_at = room.now
    room.now += SESSION - 1
    room.beat("two", 3)
    room.broker.tick(joined_at + SESSION - 1)
    assert set(room.group.members) == {"one", "two"}
    room.now = joined_at + SESSION
    room.broker.tick(room.now)
    assert set(room.group.members) == {"two"}
    silent = "group 'g': went on without members that sent no heartbeat within their session time-out: one"
    assert caplog.messages == [silent]
    assert numbers(room.beat("two", 3)) == [0, 1, 2, 3]
    assert reason(lambda: room.beat("one", 3)) is Reason.GROUP_MEMBER_NOT_FOUND


def test_a_member_that_keeps_what_it_is_to_give_up_is_taken_out(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lading.broker")
    room.join("one")
    room.join("two")
    room.beat("one", 2)
    begin = room.now
    while room.now < begin + REBALANCE - SECOND:
        room.now += SECOND
        room.beat("one", 2, owned=room.places(0, 1, 2, 3))
        room.broker.tick(room.now)
    room.broker.tick(begin + REBALANCE - 1)
    assert "one" in room.group.members
    room.now = begin + REBALANCE
    room.broker.tick(room.now)
    assert set(room.group.members) == {"two"}
    assert "members that did not give up partitions within their rebalance time-out: one" in caplog.messages[-1]
    assert numbers(room.beat("two", 3)) == [0, 1, 2, 3]


def test_an_instance_keeps_its_place_while_it_is_away(room: Room) -> None:
    room.join("s1", instance="i")
    assert reason(lambda: room.join("s2", instance="i")) is Reason.INSTANCE_IN_USE
    assert reason(lambda: room.beat("s2", 2, instance="i")) is Reason.MEMBER_REPLACED
    assert reason(lambda: room.beat("s2", 2, instance="j")) is Reason.GROUP_MEMBER_NOT_FOUND
    assert room.beat("s1", LEAVE_STATIC_EPOCH, instance="i").epoch == -2
    other = room.join("other")
    assert numbers(other) == []
    back = room.join("s2", instance="i")
    assert (back.epoch, numbers(back)) == (3, [0, 1, 2, 3]) or numbers(back) == [0, 1]
    assert reason(lambda: room.beat("s1", 2, instance="i")) is Reason.MEMBER_REPLACED
    assert reason(lambda: room.beat("s1", 2)) is Reason.GROUP_MEMBER_NOT_FOUND
    room.beat("s2", LEAVE_STATIC_EPOCH, instance="i")
    room.now += SESSION
    room.beat("other", 3)
    room.broker.tick(room.now)
    assert set(room.group.members) == {"other"}
    assert not room.group.instances


def test_positions_are_fenced_by_epochs(room: Room) -> None:
    room.join("one")
    room.join("two")
    room.beat("one", 2)
    room.beat("one", 2, owned=room.places(0, 1))
    groups = room.broker.coordinated_groups

    def commit(member: str, epoch: int, number: int = 0, **more: Any) -> None:
        require = groups.admit(MemberCall("g", member, epoch), now_us=room.now, **more)
        partition = room.topic.partition(number)
        require(partition)
        groups.store("g", partition, StoredPosition(1, None, None, room.now))

    # "one" has had its partitions since epoch 2, and its epoch is 3 now
    commit("one", 3)
    commit("one", 2)
    for epoch, number in ((1, 0), (4, 0), (-1, 0), (2, 3)):
        assert reason(partial(commit, "one", epoch, number)) is Reason.STALE_MEMBER_EPOCH
    assert reason(lambda: commit("one", 1, in_transaction=True)) is Reason.STALE_GENERATION
    assert reason(lambda: commit("nobody", 3)) is Reason.GROUP_MEMBER_NOT_FOUND
    assert reason(lambda: commit("", -1)) is Reason.GROUP_MEMBER_NOT_FOUND
    assert reason(lambda: commit("one", 3, knows_epochs=False)) is Reason.GROUP_VERSION_TOO_OLD
    room.beat("one", LEAVE_EPOCH)
    room.beat("two", LEAVE_EPOCH)
    commit("", -1)


def test_more_partitions_and_new_topics_begin_an_epoch(room: Room) -> None:
    room.join("one", ("t", "u"))
    assert room.beat("one", 2).epoch == 2
    room.broker.at_once.add_partitions(room.topic, 1)
    room.now += LATER
    grown = room.beat("one", 2)
    assert (grown.epoch, numbers(grown)) == (3, [0, 1, 2, 3, 4])
    # a topic that the group does not read changes nothing for it
    topic_of(room.broker, 1, "v", "default")
    room.now += LATER
    assert room.beat("one", 3).epoch == 3
    topic_of(room.broker, 1, "u", "default")
    room.now += LATER
    assert (found := room.beat("one", 3)).epoch == 4
    assert numbers(found) == [0, 0, 1, 2, 3, 4]


def test_a_restart_keeps_kind_and_positions_and_begins_above_every_epoch(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.join("one")
    groups = room.broker.coordinated_groups
    groups.store("g", room.topic.partition(1), StoredPosition(0, None, None, room.now))
    room.broker.tick(room.now + SECOND)
    before = room.group.epoch
    again = crashed(tmp_path, room.broker)
    found = again.coordinated_groups.find("g")
    assert isinstance(found, ConsumerGroup)
    assert found.state is ConsumerGroupState.EMPTY
    assert found.epoch > before
    assert again.coordinated_groups.position("g", again.topology.resolve("t").partition(1)) is not None
    # the member is unknown, not its group: clients join again after that, and give up after the other
    call = ConsumerGroupHeartbeat("g", "one", before)
    assert reason(lambda: finish(again.coordinated_groups.consumer.heartbeat(call, now_us=NOW))) is (
        Reason.GROUP_MEMBER_NOT_FOUND
    )


def test_limits_hold_before_memory_is_taken(tmp_path: Path) -> None:
    room = Room(tmp_path, group_members_max=2, member_metadata_bytes_max=10_000, groups_metadata_bytes_max=15_000)
    room.join("one", [f"topic-{number}" for number in range(50)])
    assert reason(lambda: room.join("two", [f"topic-{number}" for number in range(100)])) is Reason.REQUEST_TOO_LARGE
    assert reason(lambda: room.join("two", [f"topic-{number}" for number in range(50)])) is Reason.GROUP_FULL
    room.join("two")
    assert reason(lambda: room.join("three")) is Reason.GROUP_FULL
    assert set(room.group.members) == {"one", "two"}
    room.beat("one", LEAVE_EPOCH)
    room.beat("two", LEAVE_EPOCH)
    assert room.broker.coordinated_groups.consumer.subscription_bytes == 0


def test_patterns_match_whole_names_in_linear_time() -> None:
    names = ["found-1", "found-2", "not-found-1", "a" * 4_000]
    assert find_matching("found-.*", names) == ["found-1", "found-2"]
    assert find_matching("(a+)+b", names) == []
    assert find_matching("", names) == []
    for wrong in ("(a", "a)|(b", r"(a)\1", "x" * 10_001):
        assert reason(partial(require_pattern, wrong)) is Reason.INVALID_PATTERN


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_assignors_give_each_partition_to_one_subscriber(name: str) -> None:
    chance = random.Random(7)
    for _ in range(60):
        topics = [bytes([number]) * 16 for number in range(chance.randint(1, 4))]
        counts = {topic: chance.randint(0, 9) for topic in topics}
        members: list[AssignedMember] = []
        for number in range(chance.randint(1, 6)):
            wanted = frozenset(
                topics if chance.random() < 0.5 else chance.sample(topics, chance.randint(0, len(topics)))
            )
            before = frozenset((topic, chance.randint(0, 9)) for topic in topics for _ in range(3))
            members.append(AssignedMember(f"m{number}", chance.choice([None, f"i{number}"]), wanted, before))
        targets = finish(ASSIGNORS[name](members, counts))
        given = [place for places in targets.values() for place in places]
        wanted_topics = frozenset().union(*(member.topics for member in members))
        assert sorted(given) == sorted((topic, n) for topic in wanted_topics for n in range(counts[topic]))
        assert all(place[0] in member.topics for member in members for place in targets[member.id])
        if name == "uniform":
            sizes = [len(places) for places in targets.values()]
            if len({member.topics for member in members}) == 1:
                assert max(sizes) - min(sizes) <= 1
            # none could take a partition of another and both be nearer to each other
            for one in members:
                for other in members:
                    if len(targets[one.id]) > len(targets[other.id]) + 1:
                        assert not {place[0] for place in targets[one.id]} & other.topics


def test_uniform_moves_no_more_than_it_must() -> None:
    topic = bytes(16)
    counts, topics = {topic: 12}, frozenset({topic})
    targets = finish(
        ASSIGNORS["uniform"]([AssignedMember(f"m{n}", None, topics, frozenset()) for n in range(3)], counts)
    )
    more = [AssignedMember(f"m{n}", None, topics, targets.get(f"m{n}", frozenset())) for n in range(4)]
    moved = finish(ASSIGNORS["uniform"](more, counts))
    assert [len(moved[f"m{n}"] & targets[f"m{n}"]) for n in range(3)] == [3, 3, 3]
    fewer = finish(ASSIGNORS["uniform"]([one._replace(target=moved[one.id]) for one in more[1:]], counts))
    assert all(moved[f"m{n}"] <= fewer[f"m{n}"] for n in (1, 2, 3))


def test_range_gives_neighbours_and_instances_first() -> None:
    topics = [bytes([number]) * 16 for number in (1, 2)]
    members = [
        AssignedMember("b", None, frozenset(topics), frozenset()),
        AssignedMember("z", "instance", frozenset(topics), frozenset()),
        AssignedMember("a", None, frozenset(topics), frozenset()),
    ]
    targets = finish(ASSIGNORS["range"](members, dict.fromkeys(topics, 5)))
    shares = {
        member: sorted(number for topic, number in places if topic == topics[0]) for member, places in targets.items()
    }
    assert shares == {"z": [0, 1], "a": [2, 3], "b": [4]}
    assert {member: sorted(n for t, n in places if t == topics[1]) for member, places in targets.items()} == shares


def count_steps(act: Callable[[], object]) -> int:
    import sys

    steps = 0

    def count(frame: object, event: str, argument: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(None)
    return steps


def test_ten_times_the_members_cost_ten_times_the_steps(tmp_path: Path) -> None:
    def run(count: int) -> int:
        room = Room(tmp_path / str(count), group_members_max=1_000)
        fields: dict[str, Any] = {"rebalance_timeout_us": REBALANCE, "names": ["t"], "owned": frozenset()}

        def join_all() -> None:
            # within one interval: targets are computed twice, not for each member
            for number in range(count):
                room.now += SECOND // count
                room.beat(f"m{number}", 0, **fields)
            room.now += LATER
            for number, member in enumerate(list(room.group.members.values())):
                room.now += number % 2
                room.beat(member.id, member.epoch)

        return count_steps(join_all)

    fewer, more = run(20), run(200)
    assert more <= 12 * fewer, (fewer, more)


def test_a_heartbeat_that_changes_nothing_costs_the_same_in_a_large_group(tmp_path: Path) -> None:
    def run(count: int) -> int:
        room = Room(tmp_path / str(count))
        for number in range(count):
            room.join(f"m{number}")
        member = room.group.members["m0"]
        for _ in range(3):
            room.beat("m0", member.epoch, owned=frozenset(member.assigned))
        epoch = member.epoch
        return count_steps(lambda: room.beat("m0", epoch))

    assert run(30) == run(3)


def test_memory_is_given_back(tmp_path: Path) -> None:
    room = Room(tmp_path)
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(3):
            for number in range(50):
                room.join(f"m{number}", instance=f"i{number}")
            for number in range(50):
                room.beat(f"m{number}", LEAVE_EPOCH)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert not room.group.owners
    assert sizes[2] - sizes[1] < 20_000
