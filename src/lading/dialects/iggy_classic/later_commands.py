"""Commands that releases after 0.0.40 have and it has not (docs/reference/protocols/iggy.md#releases)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from .primitives import BOOL, IDENTIFIER, SHORT_TEXT, U32, Identifier


@dataclass(frozen=True, slots=True)
class LoginUser:
    """Answers IdentityInfo; ``version`` is that of the client's crate, which says so since 0.5.0."""

    name: Annotated[str, SHORT_TEXT]
    password: Annotated[str, SHORT_TEXT]
    version: str | None = None


@dataclass(frozen=True, slots=True)
class LogoutUser:
    """The connection is nobody's again."""


@dataclass(frozen=True, slots=True)
class GetUser:
    """Answers UserDetails."""

    user: Annotated[Identifier, IDENTIFIER]


@dataclass(frozen=True, slots=True)
class GetUsers:
    """Answers UserInfo for every user."""


@dataclass(frozen=True, slots=True)
class FlushMessages:
    """Write what is in memory; what is acknowledged here is written already."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int, U32]
    fsync: Annotated[bool, BOOL]


@dataclass(frozen=True, slots=True)
class GetClusterMetadata:
    """Answers nothing: this server is alone."""


NOT_OFFERED: Final[Mapping[int, str]] = {
    11: "snapshot",
    33: "user.create",
    34: "user.delete",
    35: "user.update",
    36: "user.permissions",
    37: "user.password",
    41: "personal_access_token.list",
    42: "personal_access_token.create",
    43: "personal_access_token.delete",
    44: "personal_access_token.login",
    122: "consumer_offset.delete",
    204: "stream.update",
    205: "stream.purge",
    304: "topic.update",
    305: "topic.purge",
    503: "segment.delete",
}
"""Commands that later clients know and this server refuses by FEATURE_UNAVAILABLE, with the names that metrics use."""
