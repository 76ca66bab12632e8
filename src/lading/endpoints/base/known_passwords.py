"""Passwords that were right before, so that a client which logs in often does not pay for their slow hash each time."""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...broker.core.credentials import Credentials

KNOWN_MAX: Final = 4096
"""Users whose password is remembered."""


class KnownPasswords:
    """The last right password of each user, in memory and only as a keyed hash."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._known: dict[str, tuple[Credentials, bytes]] = {}

    def matches(self, name: str, password: str, credentials: Credentials) -> bool:
        """Return whether this password was right for these very credentials of the user."""
        known = self._known.get(name)
        return (
            known is not None and known[0] is credentials and hmac.compare_digest(known[1], self._fingerprint(password))
        )

    def remember(self, name: str, password: str, credentials: Credentials) -> None:
        """Remember that this password is right for these credentials."""
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[name] = (credentials, self._fingerprint(password))

    def _fingerprint(self, password: str) -> bytes:
        return hmac.digest(self._secret, password.encode(errors="surrogatepass"), "sha256")
