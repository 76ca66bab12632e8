"""Codes of errors about users, tokens and rights, the same in all releases since 0.1 (iggy-current.md B7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...model.errors import Reason

USER_CODES: Final[Mapping[Reason, int]] = {
    Reason.USER_NOT_FOUND: 20,
    Reason.TOKEN_NOT_FOUND: 20,
    Reason.UNAUTHENTICATED: 40,
    Reason.UNAUTHORIZED: 41,
    Reason.INVALID_CREDENTIALS: 42,
    Reason.INVALID_USER_NAME: 43,
    Reason.INVALID_PASSWORD: 44,
    Reason.USER_EXISTS: 46,
    Reason.USER_INACTIVE: 47,
    Reason.LAST_ADMINISTRATOR: 48,
    Reason.ADMINISTRATOR_RIGHTS: 49,
    Reason.INVALID_TOKEN_NAME: 50,
    Reason.TOKEN_EXISTS: 51,
    Reason.INVALID_TOKEN: 53,
    Reason.TOKEN_EXPIRED: 54,
}
"""The status by reason."""
