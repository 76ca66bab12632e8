"""Consumer groups of a Kafka cluster, from outside: their members, their lag, other positions, deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from ...dialects.kafka import errors
from ...dialects.kafka.protocol import PROTOCOL
from ...model.errors import Reason, Refusal
from .cluster import GROUP, KafkaCluster, Retriable, kafka_error, raise_for_code
from .offsets import Place
from .socket import KafkaSocket

CONSUMERS: Final = ("", "consumer")
"""Protocol types of groups with positions in topics; other groups coordinate something else (Connect: workers)."""
DEAD: Final = "Dead"
"""State that brokers report for a group that they do not have (KafkaApis.handleDescribeGroupsRequest)."""
NO_MEMBER: Final = ("", -1)
"""Id and epoch of a commit from outside of a group: KIP-496 and kafka-consumer-groups do the same."""
JOINS_AGAIN: Final = (errors.STALE_MEMBER_EPOCH, errors.UNKNOWN_MEMBER, errors.FENCED_MEMBER_EPOCH)
"""Codes of brokers for a member that has another epoch by now, or has to join again."""
_HAS_MEMBERS: Final = (
    errors.UNKNOWN_MEMBER, errors.ILLEGAL_GENERATION, errors.REBALANCE_IN_PROGRESS, errors.GROUP_NOT_EMPTY,
    errors.GROUP_SUBSCRIBED,
)  # fmt: skip
"""Codes of brokers that refuse to change a group with members."""


def list_groups(cluster: KafkaCluster, ends: Mapping[Place, int]) -> list[dict[str, Any]]:
    """Return a row of each group: as in ``describe_groups``, with ``members`` counted."""
    described = describe_groups(cluster, ends, None)
    return [
        {name: value for name, value in group.items() if name != "partitions"} | {"members": len(group["members"])}
        for group in described
    ]


def describe_groups(cluster: KafkaCluster, ends: Mapping[Place, int], limit: int | None) -> list[dict[str, Any]]:
    """Return the first ``limit`` groups by name (None: all), with ``members`` and ``partitions``.

    ``ends`` are the ends of partitions; partitions without one are left out. Raises KafkaError for a group that the
    user may not see, or that cannot be described.
    """
    states = _list_states(cluster)
    return [_describe(cluster, name, ends, states[name]) for name in sorted(states)[:limit]]


def describe_group(cluster: KafkaCluster, name: str, ends: Mapping[Place, int]) -> dict[str, Any]:
    """Return one group as ``describe_groups`` does. Raises Refusal GROUP_NOT_FOUND."""
    states = _list_states(cluster)
    if name not in states:
        raise _not_found(name)
    return _describe(cluster, name, ends, states[name])


def reset_group(
    cluster: KafkaCluster,
    name: str,
    positions: Sequence[tuple[str, int, int]],
    find_identity: Callable[[], tuple[str, int]] = lambda: NO_MEMBER,
) -> None:
    """Store (topic, partition, next offset) as the positions of a group, as no member or as one that it has.

    They are sent in one request; KafkaError names the first that the broker refused, and others may be stored then.
    Raises Refusal GROUP_NOT_EMPTY while the group has members, and ``find_identity`` returns none of these.
    """
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
                for _, number, offset in rows
            ],
        }
        for topic, rows in groupby(sorted(positions), key=lambda position: position[0])
    ]

    def ask(broker: KafkaSocket) -> None:
        member, epoch = find_identity()
        answer = broker.ask(
            "OffsetCommit", group_id=name, generation_id_or_member_epoch=epoch, member_id=member, topics=topics
        )
        for topic in answer.topics:
            for part in topic.partitions:
                what = f"the position of group {name!r} in {topic.name!r}, partition {part.partition_index}"
                if part.error_code in JOINS_AGAIN and (member, epoch) != NO_MEMBER:
                    raise Retriable(kafka_error(what, part.error_code))
                if part.error_code in _HAS_MEMBERS:
                    raise _not_empty(name)
                raise_for_code(what, part.error_code)

    cluster.at_coordinator(GROUP, name, ask)


def fetch_positions(cluster: KafkaCluster, name: str, places: Iterable[Place]) -> dict[Place, int]:
    """Return the next offsets that a group has stored for partitions; those without one are left out."""
    topics = [
        {"name": topic, "partition_indexes": [number for _, number in numbers]}
        for topic, numbers in groupby(sorted(places), key=lambda place: place[0])
    ]

    def ask(broker: KafkaSocket) -> dict[Place, int]:
        answer = broker.ask("OffsetFetch", group_id=name, topics=topics, require_stable=False)
        raise_for_code(f"positions of group {name!r}", getattr(answer, "error_code", 0) or 0)
        found: dict[Place, int] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                what = f"the position of group {name!r} in {topic.name!r}, partition {part.partition_index}"
                raise_for_code(what, part.error_code)
                if part.committed_offset >= 0:
                    found[topic.name, part.partition_index] = part.committed_offset
        return found

    return cluster.at_coordinator(GROUP, name, ask)


def delete_positions(cluster: KafkaCluster, name: str, places: Iterable[Place]) -> None:
    """Delete the positions that a group has in partitions; a group that does not exist has no positions."""
    topics = [
        {"name": topic, "partitions": [{"partition_index": number} for _, number in numbers]}
        for topic, numbers in groupby(sorted(places), key=lambda place: place[0])
    ]

    def ask(broker: KafkaSocket) -> None:
        answer = broker.ask("OffsetDelete", group_id=name, topics=topics)
        if answer.error_code == errors.GROUP_NOT_FOUND:
            return
        if answer.error_code in _HAS_MEMBERS:
            raise _not_empty(name)
        raise_for_code(f"positions of group {name!r} cannot be deleted", answer.error_code)
        for topic in answer.topics:
            for part in topic.partitions:
                what = f"the position of group {name!r} in {topic.name!r}, partition {part.partition_index}"
                if part.error_code in _HAS_MEMBERS:
                    raise _not_empty(name)
                raise_for_code(what, part.error_code)

    cluster.at_coordinator(GROUP, name, ask)


def delete_group(cluster: KafkaCluster, name: str) -> None:
    """Delete a group with its positions. Raises Refusal GROUP_NOT_FOUND, and GROUP_NOT_EMPTY while it has members."""
    is_response_lost = False

    def ask(broker: KafkaSocket) -> None:
        nonlocal is_response_lost
        # connect first: a connection that fails here has not carried the request
        broker.speaks("DeleteGroups")
        try:
            (result,) = broker.ask("DeleteGroups", groups_names=[name]).results
        except OSError:
            is_response_lost = True
            raise
        if result.error_code == errors.GROUP_NOT_FOUND:
            if is_response_lost:
                # the previous request may have deleted it
                return
            raise _not_found(name)
        if result.error_code in _HAS_MEMBERS:
            raise _not_empty(name)
        raise_for_code(f"group {name!r} cannot be deleted", result.error_code)

    cluster.at_coordinator(GROUP, name, ask)


def _not_found(name: str) -> Refusal:
    return Refusal(
        Reason.GROUP_NOT_FOUND, f"{PROTOCOL.name} group {name!r} does not exist; lading group list shows all"
    )


def _not_empty(name: str) -> Refusal:
    return Refusal(
        Reason.GROUP_NOT_EMPTY,
        f"{PROTOCOL.name} group {name!r} has members, which would go on where they are; stop them first",
    )


def _list_states(cluster: KafkaCluster) -> dict[str, str]:
    """Return the states of all groups of consumers by name; empty if brokers older than 2.6 do not list them."""
    found = {}
    for answer in cluster.ask_each("ListGroups"):
        raise_for_code("groups cannot be listed", answer.error_code)
        for row in answer.groups:
            if row.protocol_type in CONSUMERS:
                found[row.group_id] = getattr(row, "group_state", None) or ""
    return found


def _describe(cluster: KafkaCluster, name: str, ends: Mapping[Place, int], listed_state: str) -> dict[str, Any]:
    def ask(broker: KafkaSocket) -> tuple[Any, Any]:
        (group,) = broker.ask("DescribeGroups", groups=[name], include_authorized_operations=False).groups
        raise_for_code(f"group {name!r} cannot be described", group.error_code)
        answer = broker.ask("OffsetFetch", group_id=name, topics=None, require_stable=False)
        raise_for_code(f"positions of group {name!r}", getattr(answer, "error_code", 0) or 0)
        return group, answer

    group, answer = cluster.at_coordinator(GROUP, name, ask)
    # groups of the newer protocol (KIP-848) are listed with their state, but described as if they did not exist
    state = listed_state if group.group_state == DEAD and listed_state else group.group_state
    partitions = []
    for topic in answer.topics:
        for part in topic.partitions:
            end = ends.get((topic.name, part.partition_index))
            if end is not None and part.committed_offset >= 0:
                row = {"topic": topic.name, "partition": part.partition_index, "position": part.committed_offset}
                partitions.append(row | {"end": end, "lag": max(0, end - part.committed_offset)})
    partitions.sort(key=lambda row: (row["topic"], row["partition"]))
    return {
        "protocol": PROTOCOL.name, "group": name, "state": state,
        "members": [member.member_id for member in group.members], "partitions": partitions,
        "lag": sum(row["lag"] for row in partitions),
    }  # fmt: skip
