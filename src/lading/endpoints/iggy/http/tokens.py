"""Access tokens of Iggy's HTTP clients: JSON Web Tokens that a login gives and each request shows (RFC 7519).

The key is made at start and kept in memory: a token lasts until it ends, its user logs out, or the broker stops. So
what was logged out never counts again, and nothing secret is on disk.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple

from ....model.errors import Reason, Refusal

ALGORITHM: Final = "HS256"
"""The only one that is taken, whatever a token's head says."""
KEY_BYTES: Final = 32
ACCESS_S: Final = 3600
REFRESH_S: Final = 86_400
LOGOUTS_MAX: Final = 100_000
"""Tokens that were logged out before their end and are remembered; with more, the key changes and all log in again."""
PASSWORDS_MAX: Final = 1000
"""Passwords of this many newest logins are kept while no users are set up."""
_REQUIRED: Final = ["sub", "name", "exp", "jti", "use", "release"]
ACCESS, REFRESH = "access", "refresh"


class TokenClaims(NamedTuple):
    """Claims of a valid token."""

    user_id: int
    """As ``Principal`` has it: 0 while no users are set up."""
    name: str
    release: str
    """Release of the client, from its login."""
    ident: str
    ends_s: int
    use: str
    pat: str | None = None
    """The name of the personal access token that was shown at login."""


class IssuedToken(NamedTuple):
    """A token as the response to a login shows it."""

    token: str
    expiry: int
    """Seconds since 1970."""


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
        # with its cryptography a tenth of a start, which no broker needs before the first login over HTTP
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
        """Return what the user of a token has logged in with, while no users are set up."""
        return self._passwords.get(claims.ident)

    def forget_passwords(self) -> None:
        """Forget the passwords of past logins, which do not count once users are set up."""
        self._passwords.clear()

    def read(self, token: str, now_s: int, *uses: str) -> TokenClaims:
        """Return what a token for one of ``uses``, by default ACCESS, says.

        Refusal, with one text for all reasons, if it is not valid now.
        """
        import jwt

        try:
            # the time is checked below, by the clock that is passed
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
        """Have a token count no longer."""
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
    """Return the one error for all tokens that do not count."""
    return Refusal(Reason.UNAUTHENTICATED, "the access token is not valid here, or has ended; log in again")
