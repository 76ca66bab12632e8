"""Commands that only the current generation has, and their responses; the others are those of earlier releases.

Partitions are counted from 1, as in all commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from ....model.lazy_dataclass import lazy_dataclass
from ..classic.later_codecs import FROM_ZERO
from ..classic.primitives import (
    BOOL,
    REST,
    STRATEGY,
    TEXT,
    U8,
    U32,
    U64,
    Bytes,
    ConsumerIdentifier,
    Identifier,
    Strategy,
    repeat_counted,
)
from .codecs import (
    BLOCK,
    CONSUMER,
    DEFERRAL,
    IDENTIFIER_FROM_ZERO,
    NAME,
    NAMED_PARTITION,
    NAMES,
    OPTIONS,
    RESOURCE,
    TARGET,
    Deferral,
    FetchTarget,
    PatchedResource,
)
from .limits import TARGETS_MAX


@lazy_dataclass(frozen=True, slots=True)
class Register:
    """Log in; ``rest`` is read as the version of the protocol says."""

    version: Annotated[int, U32]
    sdk_name: Annotated[str, NAME]
    sdk_version: Annotated[str, NAME]
    rest: Annotated[Bytes, REST]


@lazy_dataclass(frozen=True, slots=True)
class DescribeOptions:
    """Returns OptionInfo for every option of topics (scope 1); streams (2) and users (3) have none."""

    scope: Annotated[int, U8]


@lazy_dataclass(frozen=True, slots=True)
class GetMetadataChanges:
    """Refused: this broker keeps no log of changes to streams, topics and users."""

    wanted: Annotated[Bytes, REST]


@lazy_dataclass(frozen=True, slots=True)
class GetPartitionRoute:
    """Returns PartitionRoute; asked before the first send or poll of a partition."""

    stream: Annotated[Identifier, IDENTIFIER_FROM_ZERO]
    topic: Annotated[Identifier, IDENTIFIER_FROM_ZERO]
    partition_id: Annotated[int, FROM_ZERO]


@lazy_dataclass(frozen=True, slots=True)
class PollDeferred:
    """A poll that may wait for messages; the response is that of a poll."""

    consumer: Annotated[ConsumerIdentifier, CONSUMER]
    stream: Annotated[Identifier, IDENTIFIER_FROM_ZERO]
    topic: Annotated[Identifier, IDENTIFIER_FROM_ZERO]
    partition_id: Annotated[int | None, NAMED_PARTITION]
    strategy: Annotated[Strategy, STRATEGY]
    count: Annotated[int, U32]
    auto_commit: Annotated[bool, BOOL]
    deferral: Annotated[Deferral, DEFERRAL]


@lazy_dataclass(frozen=True, slots=True)
class CancelDeferred:
    """End a poll that waits; has no response."""


@lazy_dataclass(frozen=True, slots=True)
class FetchMessages:
    """A poll of several partitions; the response has a table of them, then their messages."""

    consumer: Annotated[ConsumerIdentifier, CONSUMER]
    stream: Annotated[Identifier, IDENTIFIER_FROM_ZERO]
    topic: Annotated[Identifier, IDENTIFIER_FROM_ZERO]
    wait_us: Annotated[int, U64]
    timeout_us: Annotated[int, U64]
    count_min: Annotated[int, U32]
    count: Annotated[int, U32]
    bytes_max: Annotated[int, U32]
    auto_commit: Annotated[bool, BOOL]
    targets: Annotated[Sequence[FetchTarget], repeat_counted(TARGET, TARGETS_MAX)]


@lazy_dataclass(frozen=True, slots=True)
class SyncGroup:
    """Returns GroupAssignment, or None if the connection is not a member of the group."""

    stream: Annotated[Identifier, IDENTIFIER_FROM_ZERO]
    topic: Annotated[Identifier, IDENTIFIER_FROM_ZERO]
    group_id: Annotated[Identifier, IDENTIFIER_FROM_ZERO]


@lazy_dataclass(frozen=True, slots=True)
class UpdateResource:
    """Change a topic, a stream or a user: set ``options``, and put the ``reset`` ones back to their defaults."""

    resource: Annotated[PatchedResource, RESOURCE]
    reset: Annotated[tuple[str, ...], NAMES]
    options: Annotated[Any, OPTIONS]


@lazy_dataclass(frozen=True, slots=True)
class PartitionRoute:
    """The way to a partition: it leads to the one node there is."""

    incarnation: Annotated[int, U64]
    metadata_op: Annotated[int, U64]
    view: Annotated[int, U32]
    partitions_count: Annotated[int, U32]
    node: Annotated[int, U8]


@lazy_dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The partitions of a member of a group, and the generation of the group that gave them."""

    generation: Annotated[int, U64]
    partitions: Annotated[Sequence[int], repeat_counted(FROM_ZERO)]


@lazy_dataclass(frozen=True, slots=True)
class OptionInfo:
    """An option that clients may set, with its default; ``flags`` say whether it can be changed later (0.12)."""

    key: Annotated[str, NAME]
    kind: Annotated[int, U8]
    default: Annotated[Bytes, BLOCK]
    description: Annotated[str, TEXT]
    flags: int = 0
