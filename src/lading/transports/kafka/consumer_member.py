"""A member of a consumer group of a Kafka cluster by the newer protocol (KIP-848), which reads one topic.

The coordinator assigns partitions; no request waits for other members, so that one connection serves many members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ...dialects.kafka import errors
from ...model.errors import Reason, Refusal
from .cluster import GROUP, KafkaCluster, kafka_error, raise_for_code
from .socket import KafkaSocket

JOIN, LEAVE = 0, -1
"""Epochs of a member that joins or leaves."""
REBALANCE_TIMEOUT_MS: Final = 30_000
"""How long the coordinator waits for a member to confirm that it has released partitions."""
_LOST: Final = (errors.UNKNOWN_MEMBER, errors.FENCED_MEMBER_EPOCH, errors.GROUP_NOT_FOUND)


class MemberLost(Exception):
    """The coordinator does not have the member any more: others have its partitions, and it has to join again."""


class HeartbeatResult(NamedTuple):
    """The coordinator's response to one heartbeat."""

    epoch: int
    interval_s: float
    partitions: frozenset[int] | None
    """The partitions that the member may read, None if they are unchanged."""


def send_heartbeat(
    cluster: KafkaCluster,
    group: str,
    member: str,
    epoch: int,
    topic: tuple[str, bytes],
    owned: Collection[int] | None,
) -> HeartbeatResult:
    """Join with the epoch ``JOIN``, or stay in the group; ``owned`` confirms the partitions that the member has now.

    ``topic`` is its name and id. Raises MemberLost, and Refusal FEATURE_UNAVAILABLE if the cluster has no such groups.
    """
    name, topic_id = topic
    wanted = UUID(bytes=topic_id)
    if epoch == JOIN:
        owned = ()
    rows = [{"topic_id": wanted, "partitions": sorted(owned)}] if owned else []

    def ask(broker: KafkaSocket) -> Any:
        if not broker.speaks("ConsumerGroupHeartbeat"):
            raise _refuse_cluster()
        answer = broker.ask(
            "ConsumerGroupHeartbeat", group_id=group, member_id=member, member_epoch=epoch, instance_id=None,
            rack_id=None, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if epoch == JOIN else -1,
            subscribed_topic_names=[name] if epoch == JOIN else None, subscribed_topic_regex=None,
            server_assignor=None, topic_partitions=None if owned is None else rows,
        )  # fmt: skip
        if answer.error_code in _LOST:
            raise MemberLost
        if answer.error_code == errors.UNSUPPORTED_VERSION:
            raise _refuse_cluster()
        raise_for_code(f"consumer group {group!r}", answer.error_code, answer.error_message)
        return answer

    answer = cluster.at_coordinator(GROUP, group, ask)
    partitions = None
    if answer.assignment is not None:
        found = [row for row in answer.assignment.topic_partitions if row.topic_id == wanted]
        partitions = frozenset(number for row in found for number in row.partitions)
    return HeartbeatResult(answer.member_epoch, answer.heartbeat_interval_ms / 1000, partitions)


def leave_group(cluster: KafkaCluster, group: str, member: str) -> None:
    """Give a member's partitions to the others. Does nothing if the coordinator does not have it."""

    def ask(broker: KafkaSocket) -> None:
        answer = broker.ask(
            "ConsumerGroupHeartbeat", group_id=group, member_id=member, member_epoch=LEAVE, instance_id=None,
            rack_id=None, rebalance_timeout_ms=-1, subscribed_topic_names=None, subscribed_topic_regex=None,
            server_assignor=None, topic_partitions=None,
        )  # fmt: skip
        if answer.error_code not in _LOST:
            raise_for_code(f"consumer group {group!r}", answer.error_code, answer.error_message)

    cluster.at_coordinator(GROUP, group, ask)


def require_consumer_groups(cluster: KafkaCluster, group: str) -> None:
    """Raise Refusal FEATURE_UNAVAILABLE if the cluster has no consumer groups of the newer protocol."""

    def ask(broker: KafkaSocket) -> None:
        if not broker.speaks("ConsumerGroupHeartbeat"):
            raise _refuse_cluster()

    cluster.at_coordinator(GROUP, group, ask)


def describe_members(cluster: KafkaCluster, group: str) -> Mapping[str, list[int]]:
    """Return the partitions of each member by its id; nothing for a group that has no members."""

    def ask(broker: KafkaSocket) -> Mapping[str, list[int]]:
        (row,) = broker.ask("ConsumerGroupDescribe", group_ids=[group], include_authorized_operations=False).groups
        if row.error_code == errors.GROUP_NOT_FOUND:
            return {}
        if row.error_code:
            raise kafka_error(f"consumer group {group!r}", row.error_code, row.error_message)
        return {
            member.member_id: sorted(number for one in member.assignment.topic_partitions for number in one.partitions)
            for member in row.members
        }

    return cluster.at_coordinator(GROUP, group, ask)


def _refuse_cluster() -> Refusal:
    return Refusal(
        Reason.FEATURE_UNAVAILABLE,
        "the Kafka cluster has no consumer groups of the newer protocol (KIP-848), which groups of Iggy need; "
        "use Kafka 4.0 or later",
    )
