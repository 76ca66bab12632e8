"""The table of rights, by hand: what each command of each protocol takes (docs/how-to/secure.md), and what roles have.

Nothing here is computed from the code's own tables, which only say what has to be in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lading.broker.core.access.rights import AccessRule, ResourceKind, Right
from tests.endpoints.every_request import HIDDEN, SECRET
from tests.endpoints.identity import rule

Needs = tuple[str, ...]
"""``kind:right`` each. ``open``: strangers too. ``login``: every user. ``alike``: the response is the same for those
who may not know, so that only effects are compared."""

SEE, READ, WRITE = ("topic:describe",), ("topic:read",), ("topic:write",)
MANAGE, ALTER, DELETE = ("topic:administrate",), ("topic:alter",), ("topic:delete",)
NAME_TARGET = ("topic:alter_configs", *READ, "elsewhere:write")
"""To set a dead letter topic: the rights on the topic ``elsewhere`` too."""
CREATE, LOGIN, OPEN, ALIKE = ("topic:create",), ("login",), ("open",), ("alike",)
SERVER, MANAGE_SERVER = ("cluster:describe",), ("cluster:administrate",)
USERS, MANAGE_USER = ("users:describe",), ("user:administrate",)

KAFKA: Final[Mapping[str, Needs]] = {
    "ApiVersions": OPEN,
    "Metadata": SEE,
    "DescribeTopicPartitions": SEE,
    "DescribeCluster": LOGIN,
    "Produce": WRITE,
    "Fetch": READ,
    "ListOffsets": SEE,
    "OffsetForLeaderEpoch": SEE,
    "OffsetCommit": ("group:read", *READ),
    "OffsetFetch": ("group:describe", *SEE),
    "OffsetDelete": ("group:delete", *READ),
    "FindCoordinator": ("group:describe",),
    "JoinGroup": ("group:read",),
    "SyncGroup": ("group:read",),
    "Heartbeat": ("group:read",),
    "LeaveGroup": ("group:read",),
    "DescribeGroups": ("group:describe",),
    "ConsumerGroupHeartbeat": ("group:read", *SEE),
    "ConsumerGroupDescribe": ("group:describe",),
    "ShareGroupHeartbeat": ("group:read", *SEE),
    "ShareGroupDescribe": ("group:describe",),
    "ShareFetch": ("group:read", *READ),
    "ShareAcknowledge": ("group:read", *READ),
    "DescribeShareGroupOffsets": ("group:describe", *SEE),
    "AlterShareGroupOffsets": ("group:read", *READ),
    "DeleteShareGroupOffsets": ("group:delete", *READ),
    "ListGroups": LOGIN,
    "DeleteGroups": ("group:delete",),
    "CreateTopics": CREATE,
    "DeleteTopics": DELETE,
    "CreatePartitions": ALTER,
    "DeleteRecords": DELETE,
    "InitProducerId": ("transaction:write",),
    "AddPartitionsToTxn": ("transaction:write", *WRITE),
    "AddOffsetsToTxn": ("transaction:write", "group:read"),
    "EndTxn": ("transaction:write",),
    "TxnOffsetCommit": ("transaction:write", "group:read", *READ),
    "WriteTxnMarkers": ("cluster:alter",),
    "DescribeTransactions": ("transaction:describe",),
    "ListTransactions": LOGIN,
    "DescribeProducers": READ,
    "DescribeConfigs": ("topic:describe_configs",),
    "AlterConfigs": ("topic:alter_configs",),
    "IncrementalAlterConfigs": ("topic:alter_configs",),
    "ListConfigResources": ("cluster:describe_configs",),
    "DescribeLogDirs": SERVER,
    "ElectLeaders": ("cluster:alter",),
    "ListPartitionReassignments": SERVER,
    "AlterPartitionReassignments": ("cluster:alter",),
    "AlterReplicaLogDirs": ("cluster:alter",),
    "DescribeQuorum": SERVER,
    "DescribeClientQuotas": ("cluster:describe_configs",),
    "AlterClientQuotas": ("cluster:alter_configs",),
    "DescribeAcls": USERS,
    "CreateAcls": ("users:administrate",),
    "DeleteAcls": ("users:administrate",),
    "DescribeUserScramCredentials": ALIKE,
    "AlterUserScramCredentials": MANAGE_USER,
    "GetTelemetrySubscriptions": ALIKE,
    "PushTelemetry": ALIKE,
}
KAFKA_BETWEEN_BROKERS: Final[Mapping[tuple[str, str], Needs]] = dict.fromkeys(
    (("AddPartitionsToTxn", "4"), ("AddPartitionsToTxn", "5")), ("cluster:alter",)
)
"""Versions that are for brokers alone (KIP-890), and take what the cluster takes whatever they name."""

IGGY_CLASSIC: Final[Mapping[str, Needs]] = {
    "ping": OPEN,
    "kill": MANAGE_SERVER,
    "stats": SERVER,
    "snapshot": SERVER,
    "me": LOGIN,
    "client.get": SERVER,
    "client.list": SERVER,
    "cluster.metadata": LOGIN,
    "user.get": ("self", "users:describe", "user:describe"),
    "user.list": USERS,
    "user.create": ("users:administrate", "user:administrate"),
    "user.update": ("users:administrate", "user:administrate"),
    "user.delete": ("users:administrate", "user:administrate"),
    "user.permissions": ("users:administrate", "user:administrate"),
    "user.password": ("self", "users:administrate", "user:administrate"),
    "user.logout": LOGIN,
    "personal_access_token.list": LOGIN,
    "personal_access_token.create": LOGIN,
    "personal_access_token.delete": LOGIN,
    "stream.get": ("stream:describe",),
    "stream.list": ("streams:describe",),
    "stream.create": ("new stream:create",),
    # no right comes with the new name, so none may be denied by the old names of its topics
    "stream.update": ("stream:alter", *ALTER),
    "stream.delete": ("stream:delete", *DELETE),
    "stream.purge": ("stream:delete", *DELETE),
    "topic.get": SEE,
    "topic.list": ("topics:describe",),
    "topic.create": CREATE,
    "topic.update": ALTER,
    "topic.delete": DELETE,
    "topic.purge": DELETE,
    "segment.delete": DELETE,
    "partitions.create": ALTER,
    "partitions.delete": DELETE,
    "message.poll": READ,
    "message.send": WRITE,
    "message.flush_unsaved_buffer": WRITE,
    "consumer_offset.get": READ,
    "consumer_offset.store": READ,
    "consumer_offset.delete": READ,
    "group.get": SEE,
    "group.list": SEE,
    "group.create": READ,
    "group.delete": READ,
    "group.join": READ,
    "group.leave": READ,
    "states.get": READ,
    "states.set": MANAGE,
    "states.set_where": MANAGE,
}

IGGY_CURRENT: Final[Mapping[str, Needs]] = {
    "ping": OPEN,
    "get_stats": SERVER,
    "get_snapshot": SERVER,
    "get_cluster_metadata": LOGIN,
    "get_metadata_changes": MANAGE_SERVER,
    "describe_options": LOGIN,
    "get_me": LOGIN,
    "get_client": SERVER,
    "get_clients": SERVER,
    "get_user": ("self", "users:describe", "user:describe"),
    "get_users": USERS,
    "create_user": ("users:administrate", "user:administrate"),
    "update_user": ("users:administrate", "user:administrate"),
    "delete_user": ("users:administrate", "user:administrate"),
    "update_permissions": ("users:administrate", "user:administrate"),
    "change_password": ("self", "users:administrate", "user:administrate"),
    "get_personal_access_tokens": LOGIN,
    "create_personal_access_token": LOGIN,
    "delete_personal_access_token": LOGIN,
    "logout": LOGIN,
    "get_stream": ("stream:describe",),
    "get_streams": ("streams:describe",),
    "create_stream": ("new stream:create",),
    "update_stream": ("stream:alter", *ALTER),
    "delete_stream": ("stream:delete", *DELETE),
    "purge_stream": ("stream:delete", *DELETE),
    "get_topic": SEE,
    "get_topics": ("topics:describe",),
    "get_partition_route": SEE,
    "create_topic": CREATE,
    "update_topic": ALTER,
    "update_resource": ALTER,
    "delete_topic": DELETE,
    "purge_topic": DELETE,
    "delete_segments": DELETE,
    "create_partitions": ALTER,
    "delete_partitions": DELETE,
    "poll_messages": READ,
    "poll_messages_deferred": READ,
    "fetch_messages": READ,
    "send_messages": WRITE,
    "flush_unsaved_buffer": WRITE,
    "get_consumer_offset": READ,
    "store_consumer_offset": READ,
    "delete_consumer_offset": READ,
    "get_consumer_group": SEE,
    "get_consumer_groups": SEE,
    "create_consumer_group": READ,
    "delete_consumer_group": READ,
    "join_consumer_group": READ,
    "leave_consumer_group": READ,
    "sync_consumer_group": READ,
}

NSQ: Final[Mapping[str, Needs]] = {
    **dict.fromkeys(("IDENTIFY", "AUTH", "NOP", "RDY", "FIN", "REQ", "TOUCH", "CLS"), OPEN),
    **dict.fromkeys(("SUB", "SUB_ADVANCED", "SUB_ORDERED"), READ),
    **dict.fromkeys(("PUB", "PUB_EXT", "PUB_TRACE", "MPUB", "MPUB_EXT", "MPUB_TRACE", "DPUB"), WRITE),
    "INTERNAL_CREATE_TOPIC": CREATE,
}

ADMIN: Final[Mapping[str, Needs]] = {
    "root": OPEN,
    **dict.fromkeys(("health", "live", "ready"), OPEN),
    **dict.fromkeys(("metrics", "overview"), SERVER),
    **dict.fromkeys(
        ("me", "streams.list", "topics.list", "group.list", "users.list", "rules.list", "quotas.list"), LOGIN
    ),
    "stream.create": ("stream:create",),
    "stream.delete": ("stream:delete", *DELETE),
    "topic.get": SEE,
    "topic.create": CREATE,
    **dict.fromkeys(("topic.delete", "topic.empty"), DELETE),
    "topic.alter": ("topic:alter_configs",),
    "topic.retention": SEE,
    **dict.fromkeys(("chunks.get", "batches.get", "offset.at", "topic.states.get", "states.get"), READ),
    "chunks.append": WRITE,
    **dict.fromkeys(("topic.states.set", "states.set"), MANAGE),
    "group.show": ("group:describe",),
    "group.reset": ("group:read", *READ),
    "group.delete": ("group:administrate",),
    **dict.fromkeys(("group.filter", "group.filter.remove"), ("group:administrate",)),
    "group.filter.show": ("group:describe",),
    "group.filter.preview": ("group:describe", *READ),
    "group.join": ("group:read", *READ),
    "group.heartbeat": ("group:read",),
    "group.leave": ("group:read",),
    "position.get": ("group:read", *READ),
    "position.store": ("group:read", *READ),
    **dict.fromkeys(("transaction.begin", "transaction.commit", "transaction.abort"), ("cluster:write",)),
    "user.create": ("user:create",),
    "user.alter": ("self", "user:administrate"),
    "user.delete": MANAGE_USER,
    "tokens.list": ("self", "user:describe"),
    **dict.fromkeys(("token.create", "token.delete"), ("self", "user:administrate")),
    "rules.change": ("users:administrate",),
    "quota.set": MANAGE_SERVER,
}

IGGY_HTTP: Final[Mapping[str, Needs]] = {
    **dict.fromkeys(("root", "ping", "user.login", "personal_access_token.login", "user.refresh"), OPEN),
    **{
        name: needs for name, needs in IGGY_CLASSIC.items()
        if name not in ("kill", "me", "group.join", "group.leave", "message.flush_unsaved_buffer", "states.set_where")
    },
    "message.poll_deferred": READ,
    "message.flush": WRITE,
    "options.describe": LOGIN,
}  # fmt: skip

_CHANNEL = ("delete", "setorder", "setoffset", "empty", "pause", "unpause", "skip", "unskip")
NSQD_HTTP: Final[Mapping[str, Needs]] = {
    "root": OPEN,
    "ping": OPEN,
    "info": LOGIN,
    **dict.fromkeys(("pub", "pub_ext", "pubtrace", "mpub"), WRITE),
    "stats": SEE,
    "channel/create": READ,
    **{f"channel/{verb}": MANAGE for verb in _CHANNEL},
    "config/{option}": MANAGE_SERVER,
    "topic/create": CREATE,
    **dict.fromkeys(("topic/delete", "topic/empty"), DELETE),
    **dict.fromkeys(("topic/pause", "topic/unpause"), MANAGE),
}
NSQLOOKUPD_HTTP: Final[Mapping[str, Needs]] = {
    "root": OPEN,
    "ping": OPEN,
    "info": LOGIN,
    **dict.fromkeys(("lookup", "channels"), SEE),
    **dict.fromkeys(("topics", "nodes", "listlookup"), SERVER),
    **dict.fromkeys(("topic/create", "topic/creat"), CREATE),
    "topic/delete": DELETE,
    **dict.fromkeys(("topic/meta/update", "topic/tombstone", "channel/delete"), MANAGE),
    "channel/create": READ,
}
_SUBJECT = ("versions", "schema.find", "schema.metadata", "version", "version.schema", "version.referencedby",
            "compatibility.all", "compatibility", "config", "mode")  # fmt: skip
_BY_ID = ("schema", "schema.text", "schema.subjects", "schema.versions", "schema.guid", "schema.guid.ids")
SCHEMA_REGISTRY: Final[Mapping[str, Needs]] = {
    # of the topic that the subject is of
    **dict.fromkeys(_SUBJECT, SEE),
    "version.register": WRITE,
    **dict.fromkeys(
        ("subject.delete", "version.delete", "config.change", "config.delete", "mode.change", "mode.delete"), MANAGE
    ),
    # lists have what one may see, and so has what is found by an id
    **dict.fromkeys(("registry", "subjects", "schemas", "schemas.types", "contexts", "associations", *_BY_ID), LOGIN),
    "config of all": LOGIN,
    "mode of all": LOGIN,
    **{f"{name} of all": MANAGE_SERVER for name in ("config.change", "config.delete", "mode.change", "mode.delete")},
}
FACES: Final[Mapping[str, Mapping[str, Needs]]] = {
    "kafka": KAFKA, "iggy_classic": IGGY_CLASSIC, "iggy_current": IGGY_CURRENT, "nsq": NSQ, "admin": ADMIN,
    "iggy_http": IGGY_HTTP, "nsqd_http": NSQD_HTTP, "nsqlookupd_http": NSQLOOKUPD_HTTP,
    "schema_registry": SCHEMA_REGISTRY,
}  # fmt: skip

# -- roles

_NAMED = ("topic", "group", "transaction")
ALL = frozenset(
    {"describe", "describe_configs", "read", "write", "create", "administrate", "alter", "delete", "alter_configs"}
)
_SEEN = frozenset({"describe", "describe_configs"})
Grants = Mapping[str, frozenset[str]]
ROLES: Final[Mapping[str, Grants]] = {
    "stranger": {},
    "nobody": {},
    "reader": {"topic": _SEEN | {"read"}, "group": _SEEN | {"read"}},
    "writer": {"topic": _SEEN | {"write"}, "transaction": _SEEN | {"write"}},
    "owner": dict.fromkeys(_NAMED, ALL),
    # of another topic, group and transaction
    "other": {},
    # everything of every kind is allowed, and everything that the requests name is denied
    "denied": dict.fromkeys(("cluster", "users", "streams", "default", "new stream", "topics of default"), ALL),
    "root": dict.fromkeys(
        (*_NAMED, "cluster", "users", "user", "streams", "default", HIDDEN, "new stream", "topics of default",
         f"topics of {HIDDEN}", "elsewhere"), ALL,
    ),
    # whom the requests about users name
    SECRET: {"self": frozenset()},
}  # fmt: skip
"""What each role may do with what the requests name, by hand: the topic, group, transaction and user ``secret``."""

_KINDS = (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTION)
_TOPICS = (SECRET, f"{HIDDEN}.{SECRET}")
RULES: Final[list[AccessRule]] = [
    # NSQ lets nobody in who has no right at all
    *(rule(name, Right.DESCRIBE, "elsewhere") for name in ("nobody", SECRET)),
    *(rule("reader", Right.READ, name) for name in _TOPICS),
    rule("reader", Right.READ, SECRET, kind=ResourceKind.GROUP),
    *(rule("writer", Right.WRITE, name) for name in _TOPICS),
    rule("writer", Right.WRITE, SECRET, kind=ResourceKind.TRANSACTION),
    *(rule("owner", Right.ALL, name) for name in _TOPICS),
    *(rule("owner", Right.ALL, SECRET, kind=kind) for kind in _KINDS[1:]),
    *(rule("other", Right.ALL, "mine*", kind=kind) for kind in _KINDS),
    *(rule("denied", Right.ALL, "*", kind=kind) for kind in (*_KINDS, ResourceKind.USER, ResourceKind.STREAM)),
    rule("denied", Right.ALL, "cluster", kind=ResourceKind.CLUSTER),
    *(rule("denied", Right.ALL, name, denies=True) for name in _TOPICS),
    *(rule("denied", Right.ALL, SECRET, kind=kind, denies=True) for kind in (*_KINDS[1:], ResourceKind.USER)),
    rule("denied", Right.ALL, HIDDEN, kind=ResourceKind.STREAM, denies=True),
]


def is_allowed(role: str, needs: Needs, stream: str = "default") -> bool:
    """Return what the table says; ``stream`` is the one that the request names."""
    if needs == OPEN:
        return True
    if role == "stranger":
        return False
    if needs == ALIKE:
        return role == "root"
    grants = ROLES[role]
    if needs == LOGIN or (needs[0] == "self" and "self" in grants):
        return True
    places = {"stream": stream, "topics": f"topics of {stream}"}
    pairs = (need.split(":") for need in needs if need != "self")
    return all(right in grants.get(places.get(kind, kind), ()) for kind, right in pairs)
