"""Tokens of another issuer (JWT, RFC 7519) as logins: checked by the keys that it publishes as a JWKS (RFC 7517).

Keys are read again every ``KEYS_AGE_S``, so that one that the issuer has removed counts no longer, and at once for a
token of a key that is not known, at most every ``RETRY_S``: strangers make the broker ask the issuer no more often.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...model.errors import LocalError, Reason, Refusal

if TYPE_CHECKING:
    import jwt

    from ...settings import OAuthSettings

LOG: Final = logging.getLogger(__name__)

KEYS_AGE_S: Final = 300.0
RETRY_S: Final = 10.0
URL_TIMEOUT_S: Final = 5.0
KEYS_BYTES_MAX: Final = 1 << 20
TOKEN_BYTES_MAX: Final = 16 << 10
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a public key. With one made with a secret (HS256), or none, all who have the JWKS could make tokens.
"""

RunInThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]


class IssuedLogin(NamedTuple):
    """Owner of a token, and the date at which it expires."""

    name: str
    ends_us: int


class TokenIssuer:
    """Checks tokens of the one issuer of the settings. Threads: event loop only."""

    def __init__(self, settings: OAuthSettings, run: RunInThread) -> None:
        """``run`` does in a thread what waits for a disk or a network.

        Raises LocalError if the file with the keys cannot be read.
        """
        self._settings = settings
        self._run = run
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._read_s = self._tried_s = float("-inf")
        if settings.jwks_file is not None:
            try:
                self._keys = parse_keys(self._load())
            except (OSError, ValueError) as error:
                raise LocalError(f"oauth.jwks_file {settings.jwks_file}: cannot be used: {error}") from None

    async def verify(self, token: str, now_us: int) -> IssuedLogin:
        """Return what a token says. Raises Refusal, INVALID_TOKEN or TOKEN_EXPIRED, if it says nothing here."""
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
            claims = jwt.decode(
                token, key, ALGORITHMS, options=options, issuer=settings.issuer, audience=settings.audience
            )
            name, ends_s = claims[settings.user_claim], float(claims["exp"])
            begins_s = float(claims.get("nbf", 0))
        except (jwt.PyJWTError, KeyError, ValueError, TypeError) as error:
            raise invalid_token_error(f"is not valid here: {error or type(error).__name__}") from None
        if not isinstance(name, str) or begins_s > now_s + settings.clock_skew_s:
            raise invalid_token_error("is not valid here, or not yet")
        if not now_s < ends_s + settings.clock_skew_s:
            raise Refusal(Reason.TOKEN_EXPIRED, "this token has expired")
        return IssuedLogin(name, int((ends_s + settings.clock_skew_s) * 1e6))

    async def _find_key(self, kid: str | None, now_s: float) -> jwt.PyJWK:
        if now_s - self._read_s > KEYS_AGE_S or (self._choose(kid) is None and now_s - self._tried_s > RETRY_S):
            await self._read_again(now_s)
        if (key := self._choose(kid)) is None:
            raise invalid_token_error("is signed with a key that its issuer does not publish")
        return key

    def _choose(self, kid: str | None) -> jwt.PyJWK | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    async def _read_again(self, now_s: float) -> None:
        if now_s - self._tried_s <= RETRY_S:
            return
        self._tried_s = now_s
        try:
            self._keys = parse_keys(await self._run(self._load))
            self._read_s = now_s
        except (OSError, ValueError) as error:
            # keys that are known stay valid: an issuer that is away for a while locks no user out
            where = self._settings.jwks_file or self._settings.jwks_url
            LOG.warning("the keys of oauth.issuer cannot be read from %s: %s", where, error)

    def _load(self) -> bytes:
        if self._settings.jwks_file is not None:
            with Path(self._settings.jwks_file).open("rb") as file:
                return _bounded(file.read(KEYS_BYTES_MAX + 1))
        assert self._settings.jwks_url is not None
        import http.client
        import urllib.request

        # no redirects: where the keys are is said in the settings alone
        opener = urllib.request.OpenerDirector()
        for handler in (urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.HTTPErrorProcessor,
                        urllib.request.HTTPDefaultErrorHandler):  # fmt: skip
            opener.add_handler(handler())
        try:
            with opener.open(self._settings.jwks_url, timeout=URL_TIMEOUT_S) as answer:
                return _bounded(answer.read(KEYS_BYTES_MAX + 1))
        except http.client.HTTPException as error:
            raise OSError(f"no HTTP answer: {error or type(error).__name__}") from None


def parse_keys(data: bytes) -> Mapping[str | None, jwt.PyJWK]:
    """Return the public keys of a JWKS by their ids, without those that sign nothing. Raises ValueError."""
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
    """Return what a token is refused with."""
    return Refusal(Reason.INVALID_TOKEN, f"this token {why}")


def _bounded(data: bytes) -> bytes:
    if len(data) > KEYS_BYTES_MAX:
        raise ValueError(f"longer than {KEYS_BYTES_MAX} bytes")
    return data
