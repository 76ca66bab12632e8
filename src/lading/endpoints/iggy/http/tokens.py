"""Access tokens of Iggy's HTTP clients: JSON Web Tokens, returned by a login and sent with each request (RFC 7519).

The key is made at start and kept in memory: a token is valid until it expires, its user logs out, or the broker stops.
So a revoked token is never accepted again, and no secret is on disk.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple

from ....model.errors import Reason, Refusal

ALGORITHM: Final = "HS256"
"""The only accepted algorithm, even if a token's header names another."""
KEY_BYTES: Final = 32
ACCESS_S: Final = 3600
REFRESH_S: Final = 86_400
LOGOUTS_MAX: Final = 100_000
"""At most this many revoked tokens are remembered until they expire; beyond it the key changes, and all clients log in
again.
"""
PASSWORDS_MAX: Final = 1000
"""The passwords of this many latest logins are kept while no users are set up."""
_REQUIRED: Final = ["sub", "name", "exp", "jti", "use", "release"]
ACCESS, REFRESH = "access", "refresh"


class TokenClaims(NamedTuple):
    """Claims of a valid token."""

    user_id: int
    """The id as in ``Principal``: 0 while no users are set up."""
    name: str
    release: str
    """Release of the client, from its login."""
    ident: str
    ends_s: int
    use: str
    pat: str | None = None
    """The name of the personal access token that was shown at login."""


class IssuedToken(NamedTuple):
    """A token as it appears in the response to a login."""

    token: str
    expiry: int
    """When the token expires, in seconds since 1970."""


class HttpTokens:
    """Issues and checks tokens; one for all HTTP listeners."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)
        self._logged_out: dict[str, int] = {}
        self._passwords: dict[str, str] = {}

    def issue(
        self,
        name: str,
        user_id: int,
        release: str,
        now_s: int,
        use: str = ACCESS,
        pat: str | None = None,
        password: str | None = None,
    ) -> IssuedToken:
        """Return a new token of a user whose client is of ``release``; ``password`` is kept for ``password_of``."""
        # importing it with its cryptography takes a tenth of a start, and it is only needed for logins over HTTP
        import jwt

        ends_s = now_s + (ACCESS_S if use == ACCESS else REFRESH_S)
        claims: dict[str, Any] = {
            "sub": str(user_id), "name": name, "iat": now_s, "exp": ends_s, "jti": secrets.token_hex(16), "use": use,
            "release": release,
        }  # fmt: skip
        if pat is not None:
            claims["pat"] = pat
        if password is not None:
            if len(self._passwords) >= PASSWORDS_MAX:
                self._passwords.pop(next(iter(self._passwords)))
            self._passwords[claims["jti"]] = password
        return IssuedToken(jwt.encode(claims, self._key, ALGORITHM), ends_s)

    def password_of(self, claims: TokenClaims) -> str | None:
        """Return the password with which the user of a token logged in, while no users are set up."""
        return self._passwords.get(claims.ident)

    def forget_passwords(self) -> None:
        """Forget the passwords of past logins, which are not needed once users are set up."""
        self._passwords.clear()

    def read(self, token: str, now_s: int, *uses: str) -> TokenClaims:
        """Return the claims of a token for one of ``uses``, by default ACCESS.

        Raises Refusal, with one text for all reasons, if the token is not valid now.
        """
        import jwt

        try:
            # the time is checked below, against the clock that was passed
            options: Any = {"require": _REQUIRED, "verify_exp": False, "verify_iat": False}
            claims = jwt.decode(token, self._key, [ALGORITHM], options=options)
            found = TokenClaims(
                int(claims["sub"]), str(claims["name"]), str(claims["release"]), str(claims["jti"]),
                int(claims["exp"]), str(claims["use"]), claims.get("pat"),
            )  # fmt: skip
        except (jwt.InvalidTokenError, ValueError, TypeError):
            raise refuse_token() from None
        if found.ends_s <= now_s or found.use not in (uses or (ACCESS,)) or found.ident in self._logged_out:
            raise refuse_token()
        return found

    def log_out(self, claims: TokenClaims, now_s: int) -> None:
        """Revoke a token."""
        if len(self._logged_out) >= LOGOUTS_MAX:
            self._logged_out = {ident: ends_s for ident, ends_s in self._logged_out.items() if ends_s > now_s}
            if len(self._logged_out) >= LOGOUTS_MAX:
                self._key, self._logged_out = secrets.token_bytes(KEY_BYTES), {}
        self._logged_out[claims.ident] = claims.ends_s


def has_own_algorithm(token: str) -> bool:
    """Return whether a token claims this broker's own algorithm, or is not a token at all."""
    import jwt

    try:
        return jwt.get_unverified_header(token).get("alg") == ALGORITHM
    except jwt.InvalidTokenError:
        return True


def refuse_token() -> Refusal:
    """Return the error for every invalid token, the same for all reasons."""
    return Refusal(Reason.UNAUTHENTICATED, "the access token is not valid here, or has ended; log in again")
