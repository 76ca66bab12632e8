"""Sharing partitions: as kafka-python does where it knows the way, and without two owners while partitions move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.dialects.kafka.assignment import (
    ASSIGNORS,
    Place,
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)
from lading.model.errors import MalformedMessage

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TOPICS = ("a", "b", "c")
groups = st.dictionaries(
    st.sampled_from([f"member-{at}" for at in range(6)]), st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1
)
counts = st.fixed_dictionaries({topic: st.integers(1, 7) for topic in TOPICS})


def test_bytes_are_those_of_other_clients() -> None:
    from kafka.protocol.consumer import ConsumerProtocolAssignment as Assignment
    from kafka.protocol.consumer import ConsumerProtocolSubscription as Asked

    theirs = Asked(
        topics=["a", "b"], user_data=b"x", owned_partitions=[Asked.TopicPartition(topic="a", partitions=[1])]
    )
    theirs.generation_id, theirs.rack_id = 7, None
    for version in range(4):
        said = parse_subscription(bytes(theirs.encode(version=version)))
        owned = {("a", 1)} if version else set()
        assert said == Subscription(frozenset("ab"), frozenset(owned), 7 if version >= 2 else -1)
    assert Asked.decode(encode_subscription(["b", "a"])).topics == ["a", "b"]
    places = [("a", 0), ("a", 2), ("b", 1)]
    found = Assignment.decode(encode_assignment(places))
    assert [(row.topic, row.partitions) for row in found.assigned_partitions] == [("a", [0, 2]), ("b", [1])]
    assert parse_assignment(encode_assignment(places)) == places and parse_assignment(b"") == []
    for wrong in (b"\0", b"\0\1\0\0\xff\xff", encode_assignment(places)[:-6]):
        with pytest.raises(MalformedMessage, match="group member"):
            parse_assignment(wrong)


@settings(max_examples=60, deadline=None)
@given(groups, counts)
def test_range_and_turns_are_as_kafka_python_has_them(topics: dict[str, frozenset[str]], sizes: dict[str, int]) -> None:
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    cluster: Any = SimpleNamespace(partitions_for_topic=lambda topic: set(range(sizes[topic])))
    members = [
        SimpleNamespace(member_id=member, group_instance_id=None, metadata=SimpleNamespace(topics=sorted(wanted)))
        for member, wanted in sorted(topics.items())
    ]
    # its round robin fails where a member does not want a topic
    for theirs in (RangePartitionAssignor, *[RoundRobinPartitionAssignor] * (len(set(topics.values())) == 1)):
        want = {
            member: sorted((topic, number) for topic, numbers in each.assigned_partitions for number in numbers)
            for member, each in theirs.assign(cluster, members).items()
        }
        ours = ASSIGNORS[theirs.name]({member: Subscription(wanted) for member, wanted in topics.items()}, sizes)
        assert {member: sorted(places) for member, places in ours.items()} == want


@settings(max_examples=60, deadline=None)
@given(st.lists(groups, min_size=1, max_size=4), counts)
def test_what_moves_is_let_go_of_first_and_all_are_even_in_the_end(
    history: list[dict[str, frozenset[str]]], sizes: dict[str, int]
) -> None:
    held: dict[str, list[Place]] = {}
    for topics in history:
        held = {member: [place for place in held.get(member, []) if place[0] in topics[member]] for member in topics}
        # each round lets go of something and gives it away in the next; members with few topics can make it a chain
        for round_ in range(6):
            members = {member: Subscription(wanted, frozenset(held[member])) for member, wanted in topics.items()}
            given_ = ASSIGNORS["cooperative-sticky"](members, sizes)
            owners = {place: member for member, places in held.items() for place in places}
            assert all(owners.get(place, member) == member for member, places in given_.items() for place in places)
            if given_ == held:
                break
            held = given_
            assert round_ < 5, "six rounds and still moving"
        every = [place for places in held.values() for place in places]
        wanted_by_all = {topic for wanted in topics.values() for topic in wanted}
        assert sorted(every) == sorted((topic, number) for topic in wanted_by_all for number in range(sizes[topic]))
        for full, light in ((full, light) for full in held for light in held):
            could_move = any(place[0] in topics[light] for place in held[full])
            assert not could_move or len(held[full]) <= len(held[light]) + 1


def test_of_two_that_hold_the_same_the_newer_keeps_it() -> None:
    wanted = frozenset("a")
    old, new = Subscription(wanted, frozenset({("a", 0)}), 4), Subscription(wanted, frozenset({("a", 0)}), 5)
    assert ASSIGNORS["cooperative-sticky"]({"x": old, "y": new}, {"a": 1}) == {"x": [], "y": [("a", 0)]}
