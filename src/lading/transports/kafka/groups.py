"""Consumer groups of a Kafka cluster, looked at from outside: who is in them, and how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .cluster import GROUP, KafkaCluster, raise_for_code
from .offsets import Place
from .socket import KafkaSocket

CONSUMERS: Final = ("", "consumer")
"""Protocol types of groups that have positions in topics; others coordinate something else (Connect: workers)."""


def describe_groups(cluster: KafkaCluster, ends: Mapping[Place, int], limit: int) -> list[dict[str, Any]]:
    """Return the first ``limit`` groups by name, with ``members`` and ``partitions``, as an admin endpoint does.

    ``ends`` are the ends of partitions; those that have none there are left out. KafkaError for a group that the user
    may not see, or that cannot be looked at.
    """
    found: dict[str, str] = {}
    for answer in cluster.ask_each("ListGroups"):
        raise_for_code("groups cannot be listed", answer.error_code)
        found |= {row.group_id: row.protocol_type for row in answer.groups}
    names = sorted(name for name, kind in found.items() if kind in CONSUMERS)
    return [_describe(cluster, name, ends) for name in names[:limit]]


def _describe(cluster: KafkaCluster, name: str, ends: Mapping[Place, int]) -> dict[str, Any]:
    def ask(broker: KafkaSocket) -> tuple[Any, Any]:
        (group,) = broker.ask("DescribeGroups", groups=[name], include_authorized_operations=False).groups
        raise_for_code(f"group {name!r} cannot be described", group.error_code)
        answer = broker.ask("OffsetFetch", group_id=name, topics=None, require_stable=False)
        raise_for_code(f"positions of group {name!r}", getattr(answer, "error_code", 0) or 0)
        return group, answer

    group, answer = cluster.at_coordinator(GROUP, name, ask)
    partitions = []
    for topic in answer.topics:
        for part in topic.partitions:
            end = ends.get((topic.name, part.partition_index))
            if end is not None and part.committed_offset >= 0:
                row = {"topic": topic.name, "partition": part.partition_index, "position": part.committed_offset}
                partitions.append(row | {"end": end, "lag": max(0, end - part.committed_offset)})
    partitions.sort(key=lambda row: (row["topic"], row["partition"]))
    return {
        "protocol": "kafka", "group": name, "state": group.group_state,
        "members": [member.member_id for member in group.members], "partitions": partitions,
        "lag": sum(row["lag"] for row in partitions),
    }  # fmt: skip
