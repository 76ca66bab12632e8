"""Rights that rare APIs need, as a table; Produce and Fetch check theirs when a route is made.

A user without a right gets the error code of the API, for each topic or group separately, and the same whether or not
it exists. For a user with all rights there is only one check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...broker.core.access.rights import ResourceKind, Right
from ...dialects.kafka import versions as v
from ...dialects.kafka.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from .handling import Fields, Request

Row = dict[str, Any]
_TOPIC, _GROUP, _CLUSTER = TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED
_TRANSACTION: Final = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
KINDS: Final = {_GROUP: ResourceKind.GROUP, _TRANSACTION: ResourceKind.TRANSACTION}
_CONFIG_TOPIC, _CONFIG_GROUP = 2, 32

ASKED_ELSEWHERE: Final = frozenset(
    {
        v.API_VERSIONS, v.SASL_HANDSHAKE, v.SASL_AUTHENTICATE, v.METADATA, v.DESCRIBE_TOPIC_PARTITIONS,
        v.DESCRIBE_CLUSTER, v.DESCRIBE_ACLS, v.CREATE_ACLS, v.DELETE_ACLS, v.DESCRIBE_SCRAM_CREDENTIALS,
        v.ALTER_SCRAM_CREDENTIALS, v.GET_TELEMETRY_SUBSCRIPTIONS, v.PUSH_TELEMETRY,
    }
)  # fmt: skip
"""APIs that need no right, or whose handlers check the rights."""


class RequestNeed(NamedTuple):
    """A right without which a whole request is refused: on the group or transaction that ``name`` returns, or on
    CLUSTER.
    """

    right: Right
    code: int
    name: Callable[[Any], str | None] = lambda body: None
    """Returns the group or transaction; None if the request names none, and needs no right. Not called for CLUSTER."""
    refuse: Callable[[Any, int], Fields] = lambda body, code: {"error_code": code}
    """Returns the response to a refused request; a list as long as the request's is a generator, read when it is
    encoded.
    """


class RowNeed(NamedTuple):
    """A right for each row of a request; the response has refused rows next to the others."""

    right: Right
    asked: str
    """The attribute of the request that has the rows."""
    answered: str
    """The field of the response that has their rows."""
    refuse: Callable[[Any, int], Row]
    """Returns the row of the response; a list in it is a generator, as in ``RequestNeed``."""
    name: Callable[[Any], str] = lambda row: row.name
    code: int = TOPIC_AUTHORIZATION_FAILED
    kind: Callable[[Any], ResourceKind] = lambda row: ResourceKind.TOPIC


class ListNeed(NamedTuple):
    """A right without which a row of the response is left out."""

    right: Right
    kind: ResourceKind
    answered: str
    name: str


def _partitions_refusal(number: str, asked: str = "partition_index", name: str = "name") -> Callable[[Any, int], Row]:
    """Return a topic's row with the code for each of its partitions."""

    def refuse(row: Any, code: int) -> Row:
        rows = ({number: getattr(partition, asked), "error_code": code} for partition in row.partitions)
        return {name: getattr(row, name), "partitions": rows}

    return refuse


def _name_row(row: Any, code: int) -> Row:
    return {"name": row.name, "error_code": code, "error_message": None}


def _all_topics(body: Any, code: int) -> Fields:
    refuse = _partitions_refusal("partition_index")
    return {"topics": (refuse(row, code) for row in body.topics)}


def _all_topics_by_id(body: Any, code: int) -> Fields:
    refuse = _partitions_refusal("partition_index", name="topic_id")
    return {"topics": (refuse(row, code) for row in body.topics)}


def _no_positions(body: Any, code: int) -> Fields:
    return {"error_code": code, "topics": []}


def _partitions_v3_row(row: Any, code: int) -> Row:
    rows = ({"partition_index": number, "partition_error_code": code} for number in row.partitions)
    return {"name": row.name, "results_by_partition": rows}


def _not_added(body: Any, code: int) -> Fields:
    return {"results_by_topic_v3_and_below": (_partitions_v3_row(row, code) for row in body.v3_and_below_topics)}


def _partitions_row(row: Any, code: int) -> Row:
    rows = ({"partition_index": number, "error_code": code} for number in row.partition_indexes)
    return {"name": row.name, "partitions": rows}


def _configs_row(row: Any, code: int) -> Row:
    return {**_make_config_refusal(row, code), "configs": []}


def _make_config_refusal(row: Any, code: int) -> Row:
    code = {_CONFIG_TOPIC: _TOPIC, _CONFIG_GROUP: _GROUP}.get(row.resource_type, _CLUSTER)
    return {
        "error_code": code, "error_message": None, "resource_type": row.resource_type,
        "resource_name": row.resource_name,
    }  # fmt: skip


def _config_kind(row: Any) -> ResourceKind:
    return {_CONFIG_TOPIC: ResourceKind.TOPIC, _CONFIG_GROUP: ResourceKind.GROUP}.get(
        row.resource_type, ResourceKind.CLUSTER
    )


def _config_name(row: Any) -> str:
    return str(row.resource_name)


def _need_configs(right: Right, answered: str) -> RowNeed:
    refuse = _configs_row if answered == "results" else _make_config_refusal
    return RowNeed(right, "resources", answered, refuse, _config_name, kind=_config_kind)


def _group_id(body: Any) -> str | None:
    name: str | None = body.group_id
    return name


def _transactional_id(body: Any) -> str | None:
    name: str | None = body.transactional_id
    return name


def _not_joined(body: Any, code: int) -> Fields:
    return {
        "error_code": code, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": "", "members": [],
    }  # fmt: skip


def _no_quotas(body: Any, code: int) -> Fields:
    return {
        "entries": (
            {
                "error_code": code, "error_message": None,
                "entity": (
                    {"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity
                ),
            }
            for entry in body.entries
        )
    }  # fmt: skip


def _not_moved(body: Any, code: int) -> Fields:
    return {
        "results": (
            {
                "topic_name": topic.name,
                "partitions": ({"partition_index": number, "error_code": code} for number in topic.partitions),
            }
            for directory in body.dirs
            for topic in directory.topics
        )
    }


def _no_markers(body: Any, code: int) -> Fields:
    return {
        "markers": (
            {"producer_id": marker.producer_id, "topics": (_partitions_row(row, code) for row in marker.topics)}
            for marker in body.markers
        )
    }


def _no_id(body: Any, code: int) -> Fields:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def _no_responses(body: Any, code: int) -> Fields:
    return {"error_code": code, "responses": []}


def _build_altered_offsets_row(row: Any, code: int) -> Row:
    rows = ({"partition_index": one.partition_index, "error_code": code} for one in row.partitions)
    return {"topic_name": row.topic_name, "partitions": rows}


def _need_described_group(asked: str) -> RowNeed:
    return RowNeed(
        Right.DESCRIBE, asked, "groups", lambda name, code: {"error_code": code, "group_id": name},
        lambda name: str(name), _GROUP, lambda row: ResourceKind.GROUP,
    )  # fmt: skip


_MEMBER: Final = RequestNeed(Right.READ, _GROUP, _group_id)

Need = RequestNeed | RowNeed | ListNeed

NEEDS: Final[Mapping[int, Sequence[Need]]] = {
    v.LIST_OFFSETS: [RowNeed(Right.DESCRIBE, "topics", "topics", _partitions_refusal("partition_index"))],
    v.OFFSET_FOR_LEADER_EPOCH: [
        RowNeed(
            Right.DESCRIBE,
            "topics",
            "topics",
            _partitions_refusal("partition", "partition", "topic"),
            lambda row: row.topic,
        )
    ],
    v.OFFSET_DELETE: [
        RequestNeed(Right.DELETE, _GROUP, _group_id, _no_positions),
        RowNeed(Right.READ, "topics", "topics", _partitions_refusal("partition_index")),
    ],
    v.JOIN_GROUP: [_MEMBER._replace(refuse=_not_joined)],
    v.SYNC_GROUP: [
        _MEMBER._replace(refuse=lambda body, code: {"error_code": code, "protocol_name": None, "assignment": b""})
    ],
    v.HEARTBEAT: [_MEMBER],
    v.LEAVE_GROUP: [_MEMBER._replace(refuse=lambda body, code: {"error_code": code, "members": []})],
    v.CONSUMER_GROUP_HEARTBEAT: [_MEMBER],
    v.SHARE_GROUP_HEARTBEAT: [_MEMBER],
    v.SHARE_FETCH: [_MEMBER._replace(refuse=_no_responses)],
    v.SHARE_ACKNOWLEDGE: [_MEMBER._replace(refuse=_no_responses)],
    v.SHARE_GROUP_DESCRIBE: [_need_described_group("group_ids")],
    v.DESCRIBE_SHARE_GROUP_OFFSETS: [
        RowNeed(
            Right.DESCRIBE, "groups", "groups",
            lambda row, code: {"error_code": code, "group_id": row.group_id, "topics": []},
            lambda row: str(row.group_id), _GROUP, lambda row: ResourceKind.GROUP,
        )
    ],
    v.ALTER_SHARE_GROUP_OFFSETS: [
        _MEMBER._replace(refuse=_no_responses),
        RowNeed(Right.READ, "topics", "responses", _build_altered_offsets_row, lambda row: row.topic_name),
    ],
    v.DELETE_SHARE_GROUP_OFFSETS: [
        RequestNeed(Right.DELETE, _GROUP, _group_id, _no_responses),
        RowNeed(
            Right.READ, "topics", "responses",
            lambda row, code: {"topic_name": row.topic_name, "error_code": code}, lambda row: row.topic_name,
        ),
    ],
    v.CONSUMER_GROUP_DESCRIBE: [
        _need_described_group("group_ids")
    ],
    v.DESCRIBE_GROUPS: [
        RowNeed(
            Right.DESCRIBE, "groups", "groups",
            lambda name, code: {"error_code": code, "group_id": name, "group_state": "", "members": []},
            lambda name: str(name), _GROUP, lambda row: ResourceKind.GROUP,
        )
    ],
    v.LIST_GROUPS: [ListNeed(Right.DESCRIBE, ResourceKind.GROUP, "groups", "group_id")],
    v.DELETE_GROUPS: [
        RowNeed(
            Right.DELETE, "groups_names", "results", lambda name, code: {"error_code": code, "group_id": name},
            lambda name: str(name), _GROUP, lambda row: ResourceKind.GROUP,
        )
    ],
    v.CREATE_TOPICS: [RowNeed(Right.CREATE, "topics", "topics", _name_row)],
    v.CREATE_PARTITIONS: [RowNeed(Right.ALTER, "topics", "results", _name_row)],
    v.DELETE_RECORDS: [
        RowNeed(
            Right.DELETE, "topics", "topics",
            lambda row, code: {
                "name": row.name,
                "partitions": (
                    {"partition_index": partition.partition_index, "low_watermark": -1, "error_code": code}
                    for partition in row.partitions
                ),
            },
        )
    ],
    v.INIT_PRODUCER_ID: [RequestNeed(Right.WRITE, _TRANSACTION, _transactional_id, _no_id)],
    v.ADD_OFFSETS_TO_TXN: [RequestNeed(Right.WRITE, _TRANSACTION, _transactional_id), _MEMBER],
    v.END_TXN: [RequestNeed(Right.WRITE, _TRANSACTION, _transactional_id)],
    v.WRITE_TXN_MARKERS: [RequestNeed(Right.ALTER, _CLUSTER, refuse=_no_markers)],
    v.TXN_OFFSET_COMMIT: [
        RequestNeed(Right.WRITE, _TRANSACTION, _transactional_id, _all_topics),
        RequestNeed(Right.READ, _GROUP, _group_id, _all_topics),
        RowNeed(Right.READ, "topics", "topics", _partitions_refusal("partition_index")),
    ],
    v.DESCRIBE_TRANSACTIONS: [
        RowNeed(
            Right.DESCRIBE, "transactional_ids", "transaction_states",
            lambda name, code: {
                "transactional_id": name, "error_code": code, "transaction_state": "", "topics": [],
            },
            lambda name: str(name), _TRANSACTION, lambda row: ResourceKind.TRANSACTION,
        )
    ],
    v.LIST_TRANSACTIONS: [
        ListNeed(Right.DESCRIBE, ResourceKind.TRANSACTION, "transaction_states", "transactional_id")
    ],
    v.DESCRIBE_PRODUCERS: [RowNeed(Right.READ, "topics", "topics", _partitions_row)],
    v.DESCRIBE_CONFIGS: [_need_configs(Right.DESCRIBE_CONFIGS, "results")],
    v.ALTER_CONFIGS: [_need_configs(Right.ALTER_CONFIGS, "responses")],
    v.INCREMENTAL_ALTER_CONFIGS: [_need_configs(Right.ALTER_CONFIGS, "responses")],
    v.LIST_CONFIG_RESOURCES: [RequestNeed(Right.DESCRIBE_CONFIGS, _CLUSTER)],
    v.DESCRIBE_LOG_DIRS: [
        RequestNeed(Right.DESCRIBE, _CLUSTER, refuse=lambda body, code: {"error_code": code, "results": []})
    ],
    v.ELECT_LEADERS: [RequestNeed(Right.ALTER, _CLUSTER)],
    v.ALTER_REPLICA_LOG_DIRS: [RequestNeed(Right.ALTER, _CLUSTER, refuse=_not_moved)],
    v.ALTER_PARTITION_REASSIGNMENTS: [RequestNeed(Right.ALTER, _CLUSTER)],
    v.DESCRIBE_QUORUM: [RequestNeed(Right.DESCRIBE, _CLUSTER)],
    v.LIST_PARTITION_REASSIGNMENTS: [RequestNeed(Right.DESCRIBE, _CLUSTER)],
    v.DESCRIBE_CLIENT_QUOTAS: [RequestNeed(Right.DESCRIBE_CONFIGS, _CLUSTER)],
    v.ALTER_CLIENT_QUOTAS: [RequestNeed(Right.ALTER_CONFIGS, _CLUSTER, refuse=_no_quotas)],
}  # fmt: skip
"""Needed rights by API key; APIs whose fields differ by version are in ``NEEDS_BY_VERSION``."""


def _of_coordinators(request: Request) -> Sequence[Need]:
    body = request.body
    is_group = request.version == 0 or body.key_type == 0
    kind, code = (ResourceKind.GROUP, _GROUP) if is_group else (ResourceKind.TRANSACTION, _TRANSACTION)
    nowhere = {"node_id": -1, "host": "", "port": -1, "error_message": None}
    if request.version < 4:
        return [
            RequestNeed(
                Right.DESCRIBE, code, lambda body: str(body.key), lambda body, code: {**nowhere, "error_code": code}
            )
        ]
    return [
        RowNeed(
            Right.DESCRIBE, "coordinator_keys", "coordinators",
            lambda key, code: {"key": key, **nowhere, "error_code": code},
            lambda key: str(key), code, lambda key: kind,
        )
    ]  # fmt: skip


def _of_positions(request: Request) -> Sequence[Need]:
    """Return the need of a right on the group; the handler checks the topics in the response."""
    if request.version < 8:
        return [RequestNeed(Right.DESCRIBE, _GROUP, _group_id, _no_positions)]
    return [
        RowNeed(
            Right.DESCRIBE, "groups", "groups",
            lambda row, code: {"group_id": row.group_id, "error_code": code, "topics": []},
            lambda row: str(row.group_id), _GROUP, lambda row: ResourceKind.GROUP,
        )
    ]  # fmt: skip


def _of_commits(request: Request) -> Sequence[Need]:
    """Return the need of rights on the group, and on topics named by name; the handler checks topics named by id."""
    if request.version < 10:
        return [
            RequestNeed(Right.READ, _GROUP, _group_id, _all_topics),
            RowNeed(Right.READ, "topics", "topics", _partitions_refusal("partition_index")),
        ]
    return [RequestNeed(Right.READ, _GROUP, _group_id, _all_topics_by_id)]


def _of_additions(request: Request) -> Sequence[Need]:
    """Return the need of rights to add partitions to a transaction; adding to several at once is for brokers and
    administrators.
    """
    if request.version >= 4:
        return [RequestNeed(Right.ALTER, _CLUSTER)]
    return [
        RequestNeed(Right.WRITE, _TRANSACTION, lambda body: str(body.v3_and_below_transactional_id), _not_added),
        RowNeed(Right.WRITE, "v3_and_below_topics", "results_by_topic_v3_and_below", _partitions_v3_row),
    ]


def _of_deletions(request: Request) -> Sequence[Need]:
    if request.version < 6:
        return [
            RowNeed(
                Right.DELETE, "topic_names", "responses", lambda name, code: {"name": name, "error_code": code},
                lambda name: str(name),
            )
        ]  # fmt: skip
    # a request by topic id needs the right on all topics: the name of another topic must not be revealed
    return [
        RowNeed(
            Right.DELETE, "topics", "responses",
            lambda row, code: {
                "name": row.name, "topic_id": row.topic_id, "error_code": code, "error_message": None,
            },
            lambda row: row.name or "*",
        )
    ]  # fmt: skip


NEEDS_BY_VERSION: Final[Mapping[int, Callable[[Request], Sequence[Need]]]] = {
    v.FIND_COORDINATOR: _of_coordinators,
    v.OFFSET_FETCH: _of_positions,
    v.DELETE_TOPICS: _of_deletions,
    v.ADD_PARTITIONS_TO_TXN: _of_additions,
    v.OFFSET_COMMIT: _of_commits,
}
