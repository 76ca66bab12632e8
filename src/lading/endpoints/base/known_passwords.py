"""Passwords that were right before, so that a client which logs in often does not pay for their slow hash each time."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from .login_throttle import network_of

if TYPE_CHECKING:
    from ...broker.core.access.credentials import Credentials

KNOWN_MAX: Final = 4096
"""Users whose password is remembered."""
ADDRESSES_MAX: Final = 64
"""Addresses that are remembered for each user, the last ones."""


class _KnownPassword(NamedTuple):
    credentials: Credentials
    digest: bytes
    networks: OrderedDict[str, None]
    """Addresses from which the right password came, the last one at the end."""


class KnownPasswords:
    """The last right password of each user, in memory and only as a keyed hash, and the addresses it came from."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._known: dict[str, _KnownPassword] = {}
        self._unknown_digest = self._hash_password(secrets.token_hex())

    def matches(self, name: str, password: str, credentials: Credentials, host: str | None = None) -> bool:
        """Return whether this password was right for these very credentials of the user, and came from ``host``.

        Takes as long for a name that is not remembered. With None any address will do.
        """
        known = self._known.get(name)
        expected = self._unknown_digest if known is None else known.digest
        is_same = hmac.compare_digest(expected, self._hash_password(password))
        if known is None or known.credentials is not credentials:
            return False
        return is_same and (host is None or network_of(host) in known.networks)

    def remember(self, name: str, password: str, credentials: Credentials, host: str) -> None:
        """Remember that this password is right for these credentials, and was shown from ``host``."""
        digest, known = self._hash_password(password), self._known.get(name)
        if known is None or known.credentials is not credentials or known.digest != digest:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[name] = _KnownPassword(credentials, digest, OrderedDict())
        self._add_network(known.networks, host)

    def remember_network(self, name: str, credentials: Credentials, host: str) -> None:
        """Remember that the user with these credentials came from ``host``, having shown a proof and no password."""
        known = self._known.get(name)
        if known is None or known.credentials is not credentials:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            # no password has an empty digest
            known = self._known[name] = _KnownPassword(credentials, b"", OrderedDict())
        self._add_network(known.networks, host)

    def came_from(self, name: str, credentials: Credentials, host: str) -> bool:
        """Return whether the user with these credentials has logged in from ``host`` before."""
        known = self._known.get(name)
        return known is not None and known.credentials is credentials and network_of(host) in known.networks

    @staticmethod
    def _add_network(networks: OrderedDict[str, None], host: str) -> None:
        network = network_of(host)
        networks[network] = None
        networks.move_to_end(network)
        if len(networks) > ADDRESSES_MAX:
            networks.popitem(last=False)

    def _hash_password(self, password: str) -> bytes:
        return hmac.digest(self._secret, password.encode(errors="surrogatepass"), "sha256")
