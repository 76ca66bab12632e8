"""Tokens of another issuer (JWT, RFC 7519) as logins: checked by the keys that it publishes as a JWKS (RFC 7517).

Keys are read in the background every ``REFRESH_S``, so that one that the issuer has removed counts no longer. A token
of an unknown key has them read at once, at most every ``RETRY_S``: so that strangers cannot make the broker ask the
issuer more often. One read is under way at a time and ends after ``READ_TIMEOUT_S``, however slowly the issuer sends. A
login waits for it only if its key is not known.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...model.errors import LocalError, Reason, Refusal
from ...runtime.clock import date_us

if TYPE_CHECKING:
    import jwt

    from ...settings.settings import OAuthSettings

LOG: Final = logging.getLogger(__name__)

KEYS_AGE_S: Final = 300.0
"""Older keys count only if the broker has tried to read them again meanwhile."""
REFRESH_S: Final = 240.0
RETRY_S: Final = 10.0
READ_TIMEOUT_S: Final = 5.0
"""For the whole read: name, connection, TLS, response."""
KEYS_BYTES_MAX: Final = 1 << 20
TOKEN_BYTES_MAX: Final = 16 << 10
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are checked with a public key. If signatures with a secret (HS256) or none were accepted, everybody
with the JWKS could make tokens.
"""


class IssuedLogin(NamedTuple):
    """Owner of a token, and the date at which it expires."""

    name: str
    ends_us: int


class UnknownKeysError(Refusal):
    """The issuer's keys could not be read so far: no token can be checked, whether it is right or not."""

    def __init__(self) -> None:
        super().__init__(
            Reason.INVALID_TOKEN,
            "this token cannot be checked: the keys of its issuer could not be read; log in again in a few seconds",
        )


class TokenIssuer:
    """Checks tokens of the one issuer of the settings. Threads: event loop only."""

    def __init__(self, settings: OAuthSettings) -> None:
        """Raises LocalError if the file with the keys cannot be read."""
        self._settings = settings
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._read_s = self._tried_s = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        if settings.jwks_file is not None:
            try:
                self._keys = parse_keys(_read_file(settings.jwks_file))
            except (OSError, ValueError) as error:
                raise LocalError(
                    f"oauth.jwks_file {settings.jwks_file}: cannot be used: {error}; "
                    "check that it holds a JSON Web Key Set"
                ) from None

    def start(self) -> None:
        """Read the keys now and from time to time, so that logins need not wait for them."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    def close(self) -> None:
        """Read no more keys; logins that wait for them are refused."""
        for task in (self._refreshing, self._reading):
            if task is not None and not task.get_loop().is_closed():
                task.cancel()

    async def verify(self, token: str, now_us: int) -> IssuedLogin:
        """Return the login that a token stands for. Raises Refusal: INVALID_TOKEN or TOKEN_EXPIRED."""
        claims = await self.read_claims(token, now_us)
        ends_s = float(claims["exp"]) + self._settings.clock_skew_s
        return IssuedLogin(claims[self._settings.user_claim], int(ends_s * 1e6))

    async def read_claims(self, token: str, now_us: int) -> dict[str, Any]:
        """Return the claims of a token that is valid now, among them its user. Raises Refusal as ``verify`` does."""
        import jwt

        now_s, settings = now_us / 1e6, self._settings
        try:
            header = jwt.get_unverified_header(token[: TOKEN_BYTES_MAX + 1])
            if header.get("alg") not in ALGORITHMS:
                raise invalid_token_error("is not signed with a key of its issuer")
            key = await self._find_key(header.get("kid"), now_s)
            # dates are checked below, by the clock that is passed
            options: Any = {"require": ["exp", "iss", "aud"], "verify_exp": False, "verify_nbf": False,
                            "verify_iat": False}  # fmt: skip
            claims: dict[str, Any] = jwt.decode(
                token, key, ALGORITHMS, options=options, issuer=settings.issuer, audience=settings.audience
            )
            name, ends_s = claims[settings.user_claim], float(claims["exp"])
            begins_s = float(claims.get("nbf", 0))
        except (jwt.PyJWTError, KeyError, ValueError, TypeError) as error:
            raise invalid_token_error(f"is not valid here: {error or type(error).__name__}") from None
        if not isinstance(name, str) or begins_s > now_s + settings.clock_skew_s:
            raise invalid_token_error("is not valid here, or not yet")
        if not now_s < ends_s + settings.clock_skew_s:
            raise Refusal(Reason.TOKEN_EXPIRED, "this token has expired; ask its issuer for another")
        return claims

    async def _refresh(self) -> None:
        while True:
            await self._read_again(date_us() / 1e6)
            await asyncio.sleep(REFRESH_S)

    async def _find_key(self, kid: str | None, now_s: float) -> jwt.PyJWK:
        key = self._choose(kid)
        # in a broker that serves, the keys are never so old: they are read in the background
        is_old = now_s - max(self._read_s, self._tried_s) > KEYS_AGE_S
        if key is None or is_old:
            await self._read_again(now_s)
            key = self._choose(kid)
        if key is None and not self._keys:
            raise UnknownKeysError
        if key is None:
            raise invalid_token_error("is signed with a key that its issuer does not publish")
        return key

    def _choose(self, kid: str | None) -> jwt.PyJWK | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    async def _read_again(self, now_s: float) -> None:
        """Read the keys, unless they were just read; if a read is under way, wait for that one."""
        reading = self._reading
        if reading is None or reading.done():
            if now_s - self._tried_s <= RETRY_S:
                return
            self._tried_s = now_s
            reading = self._reading = asyncio.get_running_loop().create_task(self._read(now_s))
        # a login that ends meanwhile does not end the read, for which others wait
        await asyncio.wait([reading])

    async def _read(self, now_s: float) -> None:
        settings = self._settings
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                if settings.jwks_file is not None:
                    data = await asyncio.to_thread(_read_file, settings.jwks_file)
                else:
                    from ...runtime.document_fetch import fetch_document

                    assert settings.jwks_url is not None
                    data = await fetch_document(settings.jwks_url, KEYS_BYTES_MAX)
                self._keys = await asyncio.to_thread(parse_keys, data)
            self._read_s = now_s
        except (OSError, ValueError) as error:
            # keys that are known stay valid: an issuer that is away for a while locks no user out
            where = settings.jwks_file or settings.jwks_url
            why = f"not whole after {READ_TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else error
            LOG.warning("the keys of oauth.issuer cannot be read from %s: %s", where, why)


def parse_keys(data: bytes) -> Mapping[str | None, jwt.PyJWK]:
    """Return the public keys of a JWKS by their ids, without keys that are not for signatures. Raises ValueError."""
    import jwt

    document = json.loads(data)
    rows = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError("no JWKS: it has no list of keys")
    found: dict[str | None, jwt.PyJWK] = {}
    for row in rows:
        try:
            key = jwt.PyJWK(row)
        except (jwt.PyJWTError, AttributeError, TypeError, ValueError):
            # a kind of key that is not known says nothing of the others (RFC 7517 section 5)
            continue
        if key.public_key_use in (None, "sig") and key.algorithm_name in ALGORITHMS:
            found[key.key_id] = key
    if not found:
        raise ValueError("no JWKS: none of its keys signs tokens")
    return found


def invalid_token_error(why: str) -> Refusal:
    """Return the refusal of an invalid token."""
    return Refusal(Reason.INVALID_TOKEN, f"this token {why}; get a new one from its issuer")


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(KEYS_BYTES_MAX + 1)
    if len(data) > KEYS_BYTES_MAX:
        raise ValueError(f"longer than {KEYS_BYTES_MAX} bytes")
    return data
