"""Iggy groups: every partition has exactly one reader as long as there are members, whatever comes and goes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lading.broker.broker import Broker
from lading.model.errors import Reason, Refusal
from tests.broker.room import FULL, opened, topic_of


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


def shares(broker: Broker, group: int = 1) -> dict[int, list[int]]:
    return {
        member.id: member.partitions for member in broker.groups.get(broker.topology.topic("s", "t"), group).members
    }


def test_partition_i_goes_to_member_i_mod_n_in_join_order(broker: Broker) -> None:
    topic = topic_of(broker, 5)
    broker.groups.create(topic, 1)
    for member in (30, 10, 20):
        broker.groups.join(topic, 1, member)
    assert shares(broker) == {30: [0, 3], 10: [1, 4], 20: [2]}
    broker.groups.join(topic, 1, 10)
    assert shares(broker) == {30: [0, 3], 10: [1, 4], 20: [2]}
    broker.groups.leave(topic, 1, 10)
    assert shares(broker) == {30: [0, 2, 4], 20: [1, 3]}
    broker.groups.leave(topic, 1, 10)
    broker.at_once.add_partitions(topic, 1)
    assert shares(broker) == {30: [0, 2, 4], 20: [1, 3, 5]}
    broker.at_once.delete_partitions(topic, 5)
    assert shares(broker) == {30: [0], 20: []}


def test_creating_a_group_again_is_refused_without_harm(broker: Broker) -> None:
    topic = topic_of(broker, 2)
    broker.groups.create(topic, 1)
    broker.groups.join(topic, 1, 7)
    with pytest.raises(Refusal) as refused:
        broker.groups.create(topic, 1)
    assert refused.value.reason is Reason.GROUP_EXISTS
    assert shares(broker) == {7: [0, 1]}


@pytest.mark.parametrize(
    ("reason", "group"), [(Reason.GROUP_NOT_FOUND, 9), (Reason.INVALID_GROUP_ID, 0), (Reason.INVALID_GROUP_ID, 1 << 32)]
)
def test_groups_that_cannot_be(broker: Broker, reason: Reason, group: int) -> None:
    topic = topic_of(broker)
    if reason is Reason.INVALID_GROUP_ID:
        with pytest.raises(Refusal) as refused:
            broker.groups.create(topic, group)
        assert refused.value.reason is reason
        return
    for act in (
        broker.groups.get,
        broker.groups.delete,
        lambda t, g: broker.groups.join(t, g, 1),
        lambda t, g: broker.groups.leave(t, g, 1),
    ):
        with pytest.raises(Refusal) as refused:
            act(topic, group)
        assert refused.value.reason is reason


def test_a_client_knows_its_groups_and_loses_them_all_at_once(broker: Broker) -> None:
    one, other = topic_of(broker, 1, "t"), topic_of(broker, 1, "u")
    for topic, group in ((one, 1), (one, 2), (other, 1)):
        broker.groups.create(topic, group)
        broker.groups.join(topic, group, 5)
    broker.groups.join(one, 1, 6)
    assert sorted(broker.groups.memberships(5)) == [(1, 1, 1), (1, 1, 2), (1, 2, 1)]
    broker.groups.leave_all(5)
    assert broker.groups.memberships(5) == []
    assert shares(broker) == {6: [0]}
    assert broker.groups.count() == 3
    broker.at_once.delete_topic("s", "t")
    assert broker.groups.count() == 1


class GroupMachine(RuleBasedStateMachine):
    """Members and partitions come and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._path = tempfile.TemporaryDirectory()
        self.broker = opened(Path(self._path.name), partitions_per_topic_max=8)
        self.topic = topic_of(self.broker, 3)
        self.broker.groups.create(self.topic, 1)
        self.members: list[int] = []

    def teardown(self) -> None:
        self.broker.stop()
        self._path.cleanup()

    @rule(member=st.integers(1, 6))
    def join(self, member: int) -> None:
        self.broker.groups.join(self.topic, 1, member)
        if member not in self.members:
            self.members.append(member)

    @rule(member=st.integers(1, 6), how=st.sampled_from(["leave", "leave_all"]))
    def leave(self, member: int, how: str) -> None:
        if how == "leave":
            self.broker.groups.leave(self.topic, 1, member)
        else:
            self.broker.groups.leave_all(member)
        self.members = [one for one in self.members if one != member]

    @rule(count=st.integers(1, 3))
    def add(self, count: int) -> None:
        if len(self.topic.partitions) + count <= 8:
            self.broker.at_once.add_partitions(self.topic, count)

    @rule(count=st.integers(1, 4))
    def delete(self, count: int) -> None:
        self.broker.at_once.delete_partitions(self.topic, count)

    @invariant()
    def every_partition_has_exactly_one_member(self) -> None:
        found = shares(self.broker)
        assert list(found) == self.members
        assigned = sorted(number for share in found.values() for number in share)
        assert assigned == (list(range(len(self.topic.partitions))) if self.members else [])
        sizes = [len(share) for share in found.values()]
        assert not sizes or max(sizes) - min(sizes) <= 1


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=300 if FULL else 8, stateful_step_count=40, deadline=None, derandomize=not FULL
)


def test_groups_with_names_of_their_own(tmp_path: Path) -> None:
    """Found by number or name, kept over a restart; one made by number alone is called by it."""
    broker = opened(tmp_path)
    topic = topic_of(broker, 3)
    broker.groups.create(topic, 2)
    named = broker.groups.create(topic, None, "payments")
    assert (named.id, broker.groups.get(topic, "payments"), broker.groups.get(topic, 1)) == (1, named, named)
    assert broker.groups.get(topic, "2").id == 2
    for ident, name in ((None, "payments"), (None, "2"), (1, "other")):
        with pytest.raises(Refusal) as refused:
            broker.groups.create(topic, ident, name)
        assert refused.value.reason is Reason.GROUP_EXISTS
    before = named.generation
    broker.groups.join(topic, "payments", 7)
    assert named.generation == before + 1
    broker.stop()
    broker = opened(tmp_path)
    topic = broker.topology.topic("s", "t")
    assert [(group.id, group.name) for group in broker.groups.of_topic(topic)] == [(1, "payments"), (2, "2")]
    broker.groups.delete(topic, "payments")
    broker.stop()
    broker = opened(tmp_path)
    assert [group.name for group in broker.groups.of_topic(broker.topology.topic("s", "t"))] == ["2"]
    broker.stop()


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_group_names_that_cannot_be(broker: Broker, name: str) -> None:
    with pytest.raises(Refusal) as refused:
        broker.groups.create(topic_of(broker), None, name)
    assert refused.value.reason is Reason.INVALID_GROUP_ID
