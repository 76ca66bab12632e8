"""Not served of Kafka's protocol, and why: APIs of Apache Kafka 4.3, and versions above those that are served.

``versions.SERVED`` has the others. A client that sends one of these APIs all the same is disconnected, as by Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..not_served import NotServed
from . import versions as v

_BROKERS: Final[Mapping[int, str]] = {
    4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown", 52: "Vote",
    53: "BeginQuorumEpoch", 54: "EndQuorumEpoch", 56: "AlterPartition", 58: "Envelope", 59: "FetchSnapshot",
    62: "BrokerRegistration", 63: "BrokerHeartbeat", 64: "UnregisterBroker", 67: "AllocateProducerIds",
    70: "ControllerRegistration", 73: "AssignReplicasToDirs", 80: "AddRaftVoter", 81: "RemoveRaftVoter",
    82: "UpdateRaftVoter", 83: "InitializeShareGroupState", 84: "ReadShareGroupState", 85: "WriteShareGroupState",
    86: "DeleteShareGroupState", 87: "ReadShareGroupStateSummary",
}  # fmt: skip
_DELEGATION_TOKENS: Final[Mapping[int, str]] = {
    38: "CreateDelegationToken", 39: "RenewDelegationToken", 40: "ExpireDelegationToken", 41: "DescribeDelegationToken",
}  # fmt: skip
_FEATURES: Final[Mapping[int, str]] = {57: "UpdateFeatures"}
_STREAMS_GROUPS: Final[Mapping[int, str]] = {88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe"}

NOT_SERVED: Final[tuple[tuple[Mapping[int, str], NotServed], ...]] = (
    (
        _BROKERS,
        NotServed(
            "what brokers and controllers send each other",
            "the broker is alone: it has no replicas, and no quorum that decides",
            "[`lading mirror`](../how-to/mirror.md) copies topics to another broker",
        ),
    ),
    (
        _STREAMS_GROUPS,
        NotServed(
            "groups of Kafka Streams (KIP-1071)",
            "its tasks would be divided by the broker, and Kafka Streams divides them itself as well",
            "`group.protocol=classic`, which is its default",
        ),
    ),
    (
        _DELEGATION_TOKENS,
        NotServed(
            "delegation tokens (KIP-48)",
            "users have access tokens, which hold for all protocols",
            "[`lading token create`](../how-to/secure.md), as the password of SASL PLAIN",
        ),
    ),
    (
        _FEATURES,
        NotServed(
            "levels of features (KIP-584)",
            "a version of Lading has one set of them",
            "an [upgrade](../how-to/upgrade.md)",
        ),
    ),
)
"""APIs by key, and why they are not served."""


class NewerVersions(NamedTuple):
    """Versions of an API above the highest that is served: the first, the last that Kafka 4.3 has, and what changed."""

    first: int
    last: int
    change: str


NEWER: Final[Mapping[int, NewerVersions]] = {
    v.INIT_PRODUCER_ID: NewerVersions(6, 6, "commit in two phases (KIP-939), which Kafka 4.3 does not offer either"),
}
"""By API key. Clients use the highest version that both sides know, so that no request fails for lack of these."""
