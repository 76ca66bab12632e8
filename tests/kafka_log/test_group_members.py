"""Threads of members: heartbeats, what they confirm, and what a member that the coordinator dropped does."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lading.kafka_log import group_members
from lading.kafka_log.group_members import GroupMember, GroupMembers
from lading.model.errors import LadingError
from lading.transports.kafka.consumer_member import HeartbeatResult, MemberLost

TOPIC = ("legs", bytes(16))


class Coordinator:
    """Its responses are scripted by the test; each heartbeat is noted."""

    def __init__(self) -> None:
        self.heartbeats: list[tuple[str, int, tuple[int, ...] | None]] = []
        self.left: list[str] = []
        self.results: list[HeartbeatResult | Exception] = []

    def send_heartbeat(
        self, _cluster: Any, group: str, member: str, epoch: int, topic: Any, owned: Collection[int] | None
    ) -> HeartbeatResult:
        self.heartbeats.append((member, epoch, None if owned is None else tuple(sorted(owned))))
        result = self.results.pop(0) if self.results else HeartbeatResult(max(epoch, 1), 5.0, None)
        if isinstance(result, Exception):
            raise result
        return result

    def leave_group(self, _cluster: Any, group: str, member: str) -> None:
        self.left.append(member)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(group_members, "send_heartbeat", made.send_heartbeat)
    monkeypatch.setattr(group_members, "leave_group", made.leave_group)
    monkeypatch.setattr(group_members, "HEARTBEAT_S", 0.05)
    return made


@pytest.fixture
def members(coordinator: Coordinator) -> Iterator[GroupMembers]:
    transport = SimpleNamespace(cluster=None, close=lambda: None)
    made = GroupMembers(lambda: cast("Any", transport), lambda callback: callback(), 1)
    yield made
    made.close(10)


class NotedMember:
    """One member with what it heard; it releases when the test says so."""

    def __init__(self, members: GroupMembers) -> None:
        self.assigned: list[set[int]] = []
        self.releases: list[Callable[[], None]] = []
        self.joined: list[LadingError | None] = []
        self.member = GroupMember("g", TOPIC, 7, self._note, self.joined.append)
        members.join(self.member)

    def _note(self, partitions: frozenset[int], release: Callable[[], None]) -> None:
        self.assigned.append(set(partitions))
        self.releases.append(release)


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_assignment_is_confirmed_after_it_was_released(coordinator: Coordinator, members: GroupMembers) -> None:
    coordinator.results = [HeartbeatResult(2, 5.0, frozenset({0, 1}))]
    one = NotedMember(members)
    wait_until(lambda: one.assigned)
    assert one.joined == [None] and one.assigned == [{0, 1}]
    wait_until(lambda: len(coordinator.heartbeats) > 3)
    assert coordinator.heartbeats[0] == (one.member.id, 0, None)
    assert {confirmed for _, _, confirmed in coordinator.heartbeats[1:]} == {None}
    assert members.find_identity("g") == (one.member.id, 2)
    one.releases[0]()
    wait_until(lambda: (one.member.id, 2, (0, 1)) in coordinator.heartbeats)
    members.leave(one.member)
    wait_until(lambda: coordinator.left == [one.member.id])
    assert members.find_identity("g") == ("", -1)


def test_a_client_that_joins_waits_for_its_first_partition(
    coordinator: Coordinator, members: GroupMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kafka 4.3 assigns a moment after the join, and clients of Iggy 0.5 give up after some empty polls
    none, some = HeartbeatResult(2, 5.0, frozenset()), HeartbeatResult(3, 5.0, frozenset({1}))
    coordinator.results = [none, none, some]
    one = NotedMember(members)
    wait_until(lambda: one.joined)
    assert one.joined == [None] and one.assigned[-1] == {1} and len(coordinator.heartbeats) >= 3
    # of a group that has more members than partitions one gets none
    monkeypatch.setattr(group_members, "JOIN_WAIT_S", 0.2)
    other = NotedMember(members)
    wait_until(lambda: other.joined)
    assert other.joined == [None] and other.assigned == []


def test_a_member_without_a_coordinator_reads_no_more_after_its_session(
    coordinator: Coordinator, members: GroupMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_members, "SESSION_S", 0.3)
    monkeypatch.setattr(group_members, "RETRY_S", 0.05)
    coordinator.results = [HeartbeatResult(2, 5.0, frozenset({0})), *[LadingError("cut off")] * 30]
    one = NotedMember(members)
    wait_until(lambda: one.assigned == [{0}, set()])
    # and joins again when it responds
    wait_until(lambda: coordinator.heartbeats[-1][1] == 1)


def test_a_member_that_the_coordinator_dropped_joins_again_with_nothing(
    coordinator: Coordinator, members: GroupMembers
) -> None:
    coordinator.results = [
        HeartbeatResult(2, 5.0, frozenset({0})),
        MemberLost(),
        HeartbeatResult(4, 5.0, frozenset({1})),
    ]
    one = NotedMember(members)
    wait_until(lambda: len(one.assigned) == 3)
    assert one.assigned == [{0}, set(), {1}]
    assert [epoch for _, epoch, _ in coordinator.heartbeats[:3]] == [0, 2, 0]


def test_a_join_that_fails_is_reported_and_others_go_on(coordinator: Coordinator, members: GroupMembers) -> None:
    coordinator.results = [LadingError("silent")]
    one = NotedMember(members)
    wait_until(lambda: one.joined)
    assert str(one.joined[0]) == "silent"
    other = NotedMember(members)
    wait_until(lambda: other.joined)
    assert other.joined == [None]
