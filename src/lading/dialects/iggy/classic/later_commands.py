"""Commands that releases after 0.0.40 have and it has not (docs/reference/protocols/iggy.md#releases)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from ....model.errors import Reason
from ....model.lazy_dataclass import lazy_dataclass
from .expiries import EXPIRY_US
from .permissions import SOME_PERMISSIONS, Permissions
from .primitives import (
    BOOL,
    CONSUMER,
    IDENTIFIER,
    SHORT_TEXT,
    U8,
    U32,
    ConsumerIdentifier,
    Identifier,
    optional,
    short_text,
)
from .snapshots import COMPRESSION, PARTS, SnapshotCompression, SnapshotPart
from .validation import STREAM_NAME, TOPIC_NAME


@lazy_dataclass(frozen=True, slots=True)
class LoginUser:
    """Returns IdentityInfo; ``version`` is that of the client's crate, which says so since 0.5.0."""

    name: Annotated[str, SHORT_TEXT]
    password: Annotated[str, SHORT_TEXT]
    version: str | None = None
    context: str = ""
    """Names of clients in other languages."""


@lazy_dataclass(frozen=True, slots=True)
class GetSnapshot:
    """Return a ZIP archive with diagnostic data of the server."""

    compression: Annotated[SnapshotCompression, COMPRESSION]
    parts: Annotated[tuple[SnapshotPart, ...], PARTS]


@lazy_dataclass(frozen=True, slots=True)
class LogoutUser:
    """Log the connection out."""


@lazy_dataclass(frozen=True, slots=True)
class GetUser:
    """Returns UserDetails."""

    user: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class GetUsers:
    """Returns UserInfo for every user."""


@lazy_dataclass(frozen=True, slots=True)
class LoginWithToken:
    """Returns IdentityInfo; the token is a personal access token."""

    token: Annotated[str, SHORT_TEXT]


@lazy_dataclass(frozen=True, slots=True)
class CreateUser:
    """``status`` 1 is active; since 0.6.0 the response is UserDetails."""

    name: Annotated[str, SHORT_TEXT]
    password: Annotated[str, SHORT_TEXT]
    status: Annotated[int, U8]
    permissions: Annotated[Permissions | None, SOME_PERMISSIONS]
    options: Mapping[str, Any] | None = None
    """Options, which clients can send since 0.11; none is defined for users."""


@lazy_dataclass(frozen=True, slots=True)
class DeleteUser:
    """The user with all that belongs to it."""

    user: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class UpdateUser:
    """Another name, another status; None leaves it."""

    user: Annotated[Identifier, IDENTIFIER]
    name: Annotated[str | None, optional(SHORT_TEXT)]
    status: Annotated[int | None, optional(U8)]
    options: Mapping[str, Any] | None = None
    """Options, which clients can send since 0.11; none is defined for users."""


@lazy_dataclass(frozen=True, slots=True)
class UpdatePermissions:
    """All permissions of a user anew; None takes them away."""

    user: Annotated[Identifier, IDENTIFIER]
    permissions: Annotated[Permissions | None, SOME_PERMISSIONS]


@lazy_dataclass(frozen=True, slots=True)
class ChangePassword:
    """Change the password of the caller, or of another user."""

    user: Annotated[Identifier, IDENTIFIER]
    current: Annotated[str, SHORT_TEXT]
    new: Annotated[str, SHORT_TEXT]


@lazy_dataclass(frozen=True, slots=True)
class GetTokens:
    """Returns TokenInfo for each personal access token of the caller."""


@lazy_dataclass(frozen=True, slots=True)
class CreateToken:
    """Returns RawToken; ``expiry_us`` is how long it lasts, None for ever."""

    name: Annotated[str, SHORT_TEXT]
    expiry_us: Annotated[int | None, EXPIRY_US]


@lazy_dataclass(frozen=True, slots=True)
class DeleteToken:
    """A personal access token of the caller."""

    name: Annotated[str, SHORT_TEXT]


USER_COMMANDS: Final = (
    CreateUser, DeleteUser, UpdateUser, UpdatePermissions, ChangePassword, CreateToken, DeleteToken,
)  # fmt: skip
"""Commands that change users or tokens: they wait for the disk."""


@lazy_dataclass(frozen=True, slots=True)
class FlushMessages:
    """Write what is in memory; what is acknowledged here is written already."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int, U32]
    fsync: Annotated[bool, BOOL]


@lazy_dataclass(frozen=True, slots=True)
class GetClusterMetadata:
    """Returns ClusterInfo since 0.11, nothing before: this server is alone."""


@lazy_dataclass(frozen=True, slots=True)
class DeleteOffset:
    """Forget the stored offset of a consumer."""

    consumer: Annotated[ConsumerIdentifier, CONSUMER]
    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int | None, U32]


@lazy_dataclass(frozen=True, slots=True)
class UpdateStream:
    """Another name for a stream; since 0.12 None leaves it."""

    stream: Annotated[Identifier, IDENTIFIER]
    name: Annotated[str | None, short_text(Reason.INVALID_STREAM_NAME), STREAM_NAME]
    options: Mapping[str, Any] | None = None
    """Since 0.11; streams have none."""


@lazy_dataclass(frozen=True, slots=True)
class PurgeStream:
    """Delete the messages of all topics of a stream."""

    stream: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class UpdateTopic:
    """Another name for a topic, and how long its messages are kept; None leaves that to the server."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    name: Annotated[str | None, short_text(Reason.INVALID_TOPIC_NAME), TOPIC_NAME]
    expiry_us: int | None = None
    size_bytes_max: int | None = None
    """Bytes of all partitions together."""
    options: Mapping[str, Any] | None = None
    """Since 0.11: what is not among them stays as it is, since 0.12 also a name that is None."""


@lazy_dataclass(frozen=True, slots=True)
class PurgeTopic:
    """Delete the messages of a topic."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]


@lazy_dataclass(frozen=True, slots=True)
class DeleteSegments:
    """Delete the oldest segments of a partition."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int, U32]
    segments_count: Annotated[int, U32]


UPKEEP_COMMANDS: Final = (DeleteOffset, UpdateStream, PurgeStream, UpdateTopic, PurgeTopic, DeleteSegments)
"""Changes of what exists."""
