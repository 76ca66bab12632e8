"""Groups of Iggy at a gateway: what the coordinator assigns, and what members release before they confirm it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lading.broker.core.change import complete
from lading.broker.core.counters import Counters
from lading.broker.core.position import StoredPosition
from lading.broker.core.settings import TopicSettings
from lading.broker.core.topology import Partition, Stream, Topic
from lading.broker.iggy.consumer import ConsumerRef, IggyConsumerKind
from lading.kafka_log.catalog_records import GroupRecord
from lading.kafka_log.group_members import GroupMember
from lading.kafka_log.iggy_groups import ClusterIggyGroups
from lading.kafka_log.log import ClusterLog
from lading.kafka_log.positions import ClusterPositions
from lading.model.errors import NotLoaded, Reason, Refusal, RemoteError
from tests.kafka_log.test_positions import ScriptedOffsets

UUID = bytes(16)
KEY = ConsumerRef(IggyConsumerKind.GROUP, 3).key


class NotedMembers:
    """Members that the coordinator would have."""

    def __init__(self) -> None:
        self.joined: list[GroupMember] = []
        self.left: list[GroupMember] = []

    def join(self, member: GroupMember) -> None:
        self.joined.append(member)

    def leave(self, member: GroupMember) -> None:
        self.left.append(member)


@pytest.fixture
def topic() -> Topic:
    made = Topic(Stream(1, "air", 0), 1, "legs", UUID, 0, TopicSettings())
    for number in range(2):
        made.partitions.append(Partition(made, number, cast("Any", ClusterLog(("air.legs", number), UUID, 0, 10))))
    return made


@pytest.fixture
def offsets() -> ScriptedOffsets:
    return ScriptedOffsets()


@pytest.fixture
def members() -> NotedMembers:
    return NotedMembers()


@pytest.fixture
def groups(topic: Topic, offsets: ScriptedOffsets, members: NotedMembers) -> ClusterIggyGroups:
    positions = ClusterPositions(cast("Any", None), Counters(), 0, lambda call: None, cast("Any", offsets))
    made = ClusterIggyGroups(cast("Any", None), positions, cast("Any", None))
    made.bind(cast("Any", SimpleNamespace()), cast("Any", members), lambda: None)
    made.take_over(topic, {"g": make_record()})
    return made


def make_record(**changes: Any) -> GroupRecord:
    return replace(GroupRecord("air.legs", UUID.hex(), "g", 3, 0), **changes)


def assign(member: GroupMember, *partitions: int) -> list[str]:
    released: list[str] = []
    member.on_assigned(frozenset(partitions), lambda: released.append("released"))
    return released


def test_a_member_reads_what_the_coordinator_assigns(
    groups: ClusterIggyGroups, topic: Topic, members: NotedMembers
) -> None:
    pending = groups.join(topic, "g", 7)
    (joined,) = members.joined
    assert pending is not None and not pending.done
    assert (joined.group, joined.topic) == ("iggy.air.legs.g", ("air.legs", UUID)) and joined.id.startswith("7.")
    assert joined.on_joined is not None
    joined.on_joined(None)
    assert pending.done and pending.error is None
    assert assign(joined, 0, 1) == ["released"]
    member = groups.get(topic, 3).member(7)
    assert [member.next_partition() for _ in range(3)] == [0, 1, 0]
    assert groups.join(topic, "g", 7) is None and len(members.joined) == 1
    groups.leave(topic, "g", 7)
    assert members.left == [joined] and groups.get(topic, "g").members == []


def test_a_lost_partition_is_released_when_its_position_is_in_the_cluster(
    groups: ClusterIggyGroups, topic: Topic, members: NotedMembers, offsets: ScriptedOffsets
) -> None:
    groups.join(topic, "g", 7)
    assign(members.joined[0], 0, 1)
    positions = groups._positions
    positions.store(topic.partitions[1], KEY, StoredPosition(4))
    assert offsets.requests == [("store", "iggy.air.legs.g")]
    released = assign(members.joined[0], 0)
    # it is polled no more at once, and confirmed later
    assert groups.get(topic, 3).member(7).partitions == [0] and released == []
    offsets.finish_all()
    assert released == ["released"]
    # when it comes back, another member may have gone on with it
    assign(members.joined[0], 0, 1)
    with pytest.raises(NotLoaded):
        positions.find(topic.partitions[1], KEY)


def test_partitions_that_a_gateway_does_not_know_yet_are_read_when_it_does(
    groups: ClusterIggyGroups, topic: Topic, members: NotedMembers
) -> None:
    groups.join(topic, "g", 7)
    assign(members.joined[0], 1, 2)
    member = groups.get(topic, 3).member(7)
    assert member.partitions == [1]
    topic.partitions.append(Partition(topic, 2, cast("Any", ClusterLog(("air.legs", 2), UUID, 0, 0))))
    groups.on_topic_resized(topic)
    assert member.partitions == [1, 2]


def test_a_join_that_fails_leaves_no_member(groups: ClusterIggyGroups, topic: Topic, members: NotedMembers) -> None:
    pending = groups.join(topic, "g", 7)
    on_joined = members.joined[0].on_joined
    assert pending is not None and on_joined is not None
    on_joined(RemoteError("the cluster is silent"))
    assert pending.error is not None and "silent" in str(pending.error)
    assert groups.get(topic, "g").members == [] and members.left == members.joined
    # a response that comes later changes nothing
    assert assign(members.joined[0], 0) == []


@pytest.mark.parametrize(
    "records",
    [{}, {"g": make_record(is_deleted=True)}, {"g": make_record(topic_id="ff" * 16)}],
    ids=["gone", "deleted", "of the topic before"],
)
def test_members_of_a_deleted_group_leave(
    groups: ClusterIggyGroups, topic: Topic, members: NotedMembers, records: dict[str, GroupRecord]
) -> None:
    groups.join(topic, "g", 7)
    groups.take_over(topic, records)
    assert members.left == members.joined
    with pytest.raises(Refusal) as refused:
        groups.get(topic, "g")
    assert refused.value.reason is Reason.GROUP_NOT_FOUND


def test_a_name_of_a_single_consumer_is_refused(groups: ClusterIggyGroups, topic: Topic) -> None:
    with pytest.raises(Refusal, match="single consumers"):
        complete(groups.begin_create(topic, None, "consumer/7"))
