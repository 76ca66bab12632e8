"""Operations that a caller may do with a topic, a group or the cluster, for administrators' tools (KIP-430).

An operation is identified by its code in ACLs; on the wire each is the bit of that number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...broker.core.access.access import AccessControl
from ...broker.core.access.principal import Principal
from ...broker.core.access.rights import CLUSTER, Resource, ResourceKind, Right
from .acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    IDEMPOTENT_WRITE,
    OPERATIONS,
    READ,
    WRITE,
)

SUPPORTED: Final[Mapping[ResourceKind, Sequence[int]]] = {
    ResourceKind.TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    ResourceKind.GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    ResourceKind.CLUSTER: (
        CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE,
    ),
}  # fmt: skip
"""The operations that Apache Kafka 4.3.1 lists for a user who may do everything."""
_RIGHTS: Final[Mapping[int, Right]] = {
    **OPERATIONS,
    IDEMPOTENT_WRITE: Right.WRITE,
    # no rule can name it: it is only granted together with others
    CLUSTER_ACTION: Right.ADMINISTRATE,
}


def find_authorized_operations(access: AccessControl, principal: Principal | None, resource: Resource) -> set[int]:
    """Return the codes of the operations that ``principal`` may do with ``resource``, whether or not that exists."""
    supported = SUPPORTED[resource.kind]
    if access.is_administrator(principal):
        return set(supported)
    return {one for one in supported if access.allows(principal, _RIGHTS[one], resource)}


def find_cluster_operations(access: AccessControl, principal: Principal | None) -> set[int]:
    """Return the codes of the operations on the cluster: as in Apache Kafka, none for a user who may not
    describe it.
    """
    found = find_authorized_operations(access, principal, CLUSTER)
    return found if DESCRIBE in found else set()


def to_bit_field(operations: Iterable[int]) -> int:
    """Return the operations as one number."""
    return sum(1 << one for one in operations)
