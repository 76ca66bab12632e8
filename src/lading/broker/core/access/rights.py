"""Rights: one table of rules that every endpoint checks, and that each protocol shows in its own form.

A rule says that a user may, or may not, do an operation on resources of one kind whose names fit a pattern. Without a
rule that allows it, nothing is allowed; one that denies wins over all that allow. As in Kafka, a user who may read,
write, create or administrate something may also know that it exists (``DESCRIBE``).

Rules on a stream hold for the stream and for all its topics; rules on topics name them by their flat name (``t`` in
stream ``default``, else ``s.t``), as Kafka and NSQ do, or by their stream. So each flag of Iggy's permissions is one
rule, and each rule is at most one flag:

| flag of Iggy | global | of a stream ``s`` | of a topic ``t`` in it |
|---|---|---|---|
| ``manage_servers``, ``read_servers`` | CLUSTER, ADMINISTRATE or DESCRIBE | | |
| ``manage_users``, ``read_users`` | USER ``*``, ADMINISTRATE or DESCRIBE | | |
| ``manage_stream(s)``, ``read_stream(s)`` | STREAM ``*``, … | STREAM ``s``, … | |
| ``manage_topic(s)``, ``read_topic(s)`` | TOPIC ``*``, … | TOPIC, pattern IN_STREAM ``s``, … | TOPIC ``s.t``, … |
| ``poll_messages``, ``send_messages`` | TOPIC ``*``, READ or WRITE | TOPIC, pattern IN_STREAM ``s`` | TOPIC ``s.t`` |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from ....model.errors import Reason, Refusal
from ....model.names import DEFAULT_STREAM, flat_name

if TYPE_CHECKING:
    from ..topology import Topic

EVERYBODY: Final = "*"
"""The user of a rule for all users that are logged in, and strangers if an endpoint accepts them."""
ANONYMOUS: Final = "ANONYMOUS"
"""The user name of strangers, if an endpoint accepts them although users are set up; the name is Kafka's."""
NAME_CHARACTERS_MAX: Final = 255
TOPIC_CHARACTERS_MAX: Final = 2 * NAME_CHARACTERS_MAX + 1
"""A rule names a topic by its flat name: that of its stream, a point, and its own."""


class Right(StrEnum):
    """An operation on a resource."""

    ALL = "all"
    """All other rights; in rules only."""
    DESCRIBE = "describe"
    """Know that it exists, and its settings and sizes."""
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    ADMINISTRATE = "administrate"
    """Create, change, empty, delete: CREATE and each of the next three, and what only this allows."""
    ALTER = "alter"
    """Change what it is: partitions, name."""
    DELETE = "delete"
    """Delete or empty it."""
    ALTER_CONFIGS = "alter_configs"
    """Change its settings."""
    DESCRIBE_CONFIGS = "describe_configs"
    """Know its settings; implied by the right to know that it exists."""


class ResourceKind(StrEnum):
    """Kinds of resources that rules name."""

    CLUSTER = "cluster"
    """The broker itself: its figures, clients and settings; to create on it is to create any topic or stream."""
    USER = "user"
    """Users with their tokens and rights."""
    STREAM = "stream"
    TOPIC = "topic"
    GROUP = "group"
    """Kafka's consumer groups; those of other protocols belong to their topic."""
    TRANSACTION = "transaction"
    """Kafka's transactional ids."""


class PatternKind(StrEnum):
    """Ways to compare the name of a rule."""

    LITERAL = "literal"
    PREFIX = "prefix"
    ANY = "any"
    """Every name; that of the rule is ``*``."""
    IN_STREAM = "in_stream"
    """The topics of the stream of this name."""


class TopicResolver(Protocol):
    """Finds a topic by its flat name."""

    def resolve(self, name: str) -> Topic:
        """Return the topic; raises Refusal if it does not exist."""


class Resource(NamedTuple):
    """The resource of a request. ``name`` of a topic is its flat name, ``stream`` its stream."""

    kind: ResourceKind
    name: str
    stream: str = ""


CLUSTER: Final = Resource(ResourceKind.CLUSTER, "cluster")


def topic_resource(stream: str, topic: str) -> Resource:
    """Return a topic, existing or not, by the names of its stream and its own."""
    return Resource(ResourceKind.TOPIC, flat_name(stream, topic), stream)


def flat_topic_resource(topology: TopicResolver, name: str) -> Resource:
    """Return a topic by its flat name; one that does not exist is to be of stream ``default``."""
    try:
        stream = topology.resolve(name).stream.name
    except Refusal:
        stream = DEFAULT_STREAM
    return Resource(ResourceKind.TOPIC, name, stream)


@dataclass(frozen=True, slots=True, order=True)
class AccessRule:
    """One row of the table."""

    user: str
    kind: ResourceKind
    pattern: PatternKind
    name: str
    operation: Right
    denies: bool = False
    is_implied: bool = field(default=False, compare=False)
    """Whether the rule only follows from another one, as polling from reading topics in Iggy: the client that set the
    other one did not name it. The same rule with and without this mark is one rule."""

    def __post_init__(self) -> None:
        name_max = TOPIC_CHARACTERS_MAX if self.kind is ResourceKind.TOPIC else NAME_CHARACTERS_MAX
        for what, name, length_max in (("user", self.user, NAME_CHARACTERS_MAX), (self.kind, self.name, name_max)):
            if not 0 < len(name) <= length_max:
                raise Refusal(
                    Reason.INVALID_RULE,
                    f"rule: the name of a {what} has 1 to {length_max} characters, not {len(name)}; name a shorter one",
                )
        if self.pattern is PatternKind.IN_STREAM and self.kind is not ResourceKind.TOPIC:
            raise Refusal(Reason.INVALID_RULE, f"rule: only topics are in a stream, not a {self.kind}")
        if (self.pattern is PatternKind.ANY) != (self.name == "*"):
            raise Refusal(Reason.INVALID_RULE, "rule: the pattern any has the name '*', and no other has")
        if self.kind is ResourceKind.CLUSTER and (self.pattern, self.name) != (PatternKind.LITERAL, CLUSTER.name):
            raise Refusal(
                Reason.INVALID_RULE, "rule: the cluster has the pattern literal and the name 'cluster'; write these"
            )

    def covers(self, resource: Resource) -> bool:
        """Return whether the rule is about ``resource``."""
        if self.kind is resource.kind:
            if self.pattern is PatternKind.IN_STREAM:
                return self.name == resource.stream
            return self._matches_name(resource.name)
        return (
            self.kind is ResourceKind.STREAM
            and resource.kind is ResourceKind.TOPIC
            and self._matches_name(resource.stream)
        )

    def _matches_name(self, name: str) -> bool:
        if self.pattern is PatternKind.LITERAL:
            return name == self.name
        return self.pattern is PatternKind.ANY or name.startswith(self.name)

    def document(self) -> dict[str, Any]:
        """Return the rule as JSON; only an implied rule says so."""
        document = asdict(self)
        if not document.pop("is_implied"):
            return document
        return {**document, "implied": True}

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Self:
        """Return the rule of a ``document``; raises KeyError, TypeError or ValueError if it is invalid."""
        return cls(
            str(document["user"]), ResourceKind(document["kind"]), PatternKind(document["pattern"]),
            str(document["name"]), Right(document["operation"]), bool(document.get("denies", False)),
            bool(document.get("implied", False)),
        )  # fmt: skip


PARTS: Final = frozenset({Right.ALTER, Right.DELETE, Right.ALTER_CONFIGS})
"""The rights that make up ADMINISTRATE, besides CREATE; a user who is denied one of them is denied ADMINISTRATE."""
_GRANTED_BY: Final = {
    Right.DESCRIBE: frozenset(Right) - {Right.ALTER_CONFIGS, Right.DESCRIBE_CONFIGS},
    Right.DESCRIBE_CONFIGS: frozenset(Right),
    **{part: frozenset({Right.ALL, Right.ADMINISTRATE, part}) for part in PARTS},
    Right.READ: frozenset({Right.ALL, Right.READ}),
    Right.WRITE: frozenset({Right.ALL, Right.WRITE}),
    Right.CREATE: frozenset({Right.ALL, Right.CREATE, Right.ADMINISTRATE}),
    Right.ADMINISTRATE: frozenset({Right.ALL, Right.ADMINISTRATE}),
}
_DENIED_BY: Final = {
    right: frozenset({right, Right.ALL})
    | (PARTS if right is Right.ADMINISTRATE else {Right.ADMINISTRATE} if right in PARTS else frozenset())
    for right in Right
}
_CREATED: Final = frozenset({ResourceKind.STREAM, ResourceKind.TOPIC})


def rules_allow(rules: Iterable[AccessRule], operation: Right, resource: Resource) -> bool:
    """Return whether the rules of one user allow an operation."""
    granted_by, found = _GRANTED_BY[operation], False
    for rule in rules:
        if rule.denies:
            if rule.operation in _DENIED_BY[operation] and rule.covers(resource):
                return False
        elif not found and rule.operation in granted_by:
            found = rule.covers(resource) or (
                operation is Right.CREATE and resource.kind in _CREATED and rule.covers(CLUSTER)
            )
    return found
