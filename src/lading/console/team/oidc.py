"""OpenID Connect logins (code flow with PKCE, RFC 7636), for which an identity provider vouches.

The state of a login is in a cookie of the browser that began it, so that logins of strangers take no memory and
displace no others. Its signature is the ``state``, and the nonce and the code verifier are made from it.
The ID token is verified as the tokens of OAUTHBEARER are. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

from pydantic import Field, ValidationError, model_validator

from ...endpoints.base.login_throttle import LoginThrottle
from ...endpoints.base.token_issuer import TokenIssuer
from ...model.errors import Reason, Refusal, Unreachable
from ...runtime.clock import date_us, now_us
from ...runtime.document_fetch import fetch_document
from ...settings.sections import Section
from ...settings.settings import OAuthSettings
from ...transports.secrets import read_secret

BEGIN: Final = "/login/oidc"
CALLBACK: Final = "/login/oidc/callback"
COOKIE: Final = "__Host-lading-console-oidc"
ATTRIBUTES: Final = "Path=/; Secure; HttpOnly; SameSite=Lax"
"""Attributes of the cookie. The provider sends the browser back from another site: with ``Strict`` it would
not be sent.
"""
LOGIN_S: Final = 600
"""How long a person has for the login at the provider."""
FETCH_S: Final = 5.0
"""Time limit of each whole response of the provider."""
RETRY_S: Final = 2.0
"""After a failure the provider's configuration is not read again for this long."""
CONFIGURATION_S: Final = 600.0
DOCUMENT_BYTES_MAX: Final = 256 << 10
EXCHANGES_MAX: Final = 16
PROVIDER_LOGIN: Final = ":provider"
"""The name under which failed logins at the provider are throttled; no user has a colon in its name."""

Text = Annotated[str, Field(min_length=1)]


class OidcSection(Section):
    """[oidc]: the identity provider, at which the console is registered as a client."""

    issuer: Text
    """The provider's address, below which its configuration is (``/.well-known/openid-configuration``)."""
    client_id: Text
    client_secret_file: Path | None = None
    """File with the secret of the client. Without it the client is a public one, protected by PKCE alone."""
    user_claim: Text = "sub"
    """The claim with the user's name, as rules use it."""
    scopes: Text = "openid"
    label: Text | None = None
    """The name of the provider on the login page. Default: its host."""

    @model_validator(mode="after")
    def _require_encryption(self) -> Self:
        if not is_private(self.issuer):
            raise ValueError("oidc.issuer is an https:// address, or http:// on this machine")
        if "openid" not in self.scopes.split():
            raise ValueError("oidc.scopes has to have openid")
        return self

    @property
    def shown(self) -> str:
        """The name of the provider for people."""
        return self.label or urlsplit(self.issuer).hostname or self.issuer


def is_private(url: str) -> bool:
    """Return whether nobody can read the traffic to a URL on its way: by https, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1"))


class ProviderConfiguration(NamedTuple):
    """Addresses of a provider (OpenID Connect Discovery 1.0, section 3)."""

    authorization: str
    token: str
    issuer: TokenIssuer


class BegunLogin(NamedTuple):
    """The start of a login: the address at the provider, and the cookie of the browser."""

    url: str
    cookie: str


class OidcLogins:
    """Logins at one provider. ``clock`` returns the seconds that limit how long a login may take."""

    def __init__(self, settings: OidcSection, public_url: str, clock: Callable[[], float] = time.time) -> None:
        """Raises SettingError if the client's secret cannot be read."""
        self._settings = settings
        self._callback = f"{public_url.rstrip('/')}{CALLBACK}"
        self._clock = clock
        file = settings.client_secret_file
        self._secret = None if file is None else read_secret("client_secret", None, str(file))
        self._key = secrets.token_bytes(32)
        self._configuration: ProviderConfiguration | None = None
        self._reading: asyncio.Task[ProviderConfiguration] | None = None
        self._read_s = self._failed_s = float("-inf")
        self._throttle = LoginThrottle()
        self._exchanges = asyncio.Semaphore(EXCHANGES_MAX)
        self.shown: Final = settings.shown

    async def begin(self, goal: str) -> BegunLogin:
        """Return the start of a login that leads to ``goal``. Raises Unreachable if the provider cannot be reached."""
        configuration = await self._find_configuration()
        begun = f"{secrets.token_urlsafe(24)}.{int(self._clock())}.{urlsafe_b64encode(goal.encode()).decode()}"
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._settings.client_id,
                "redirect_uri": self._callback,
                "scope": self._settings.scopes,
                "state": self._derive("state", begun),
                "nonce": self._derive("nonce", begun),
                "code_challenge": _make_challenge(self._derive("verifier", begun)),
                "code_challenge_method": "S256",
            }
        )
        mark = "&" if "?" in configuration.authorization else "?"
        return BegunLogin(f"{configuration.authorization}{mark}{query}", begun)

    async def finish(self, begun: str, query: Mapping[str, str], host: str) -> tuple[str, str]:
        """Return the user's name and the goal of a login, from the parameters that the provider sent back.

        Raises Refusal if the login is not one that this browser began, or the provider refused it, and Unreachable if
        the provider does not respond as it should.
        """
        goal = self._require_begun(begun, query.get("state", ""))
        if query.get("iss", self._settings.issuer) != self._settings.issuer:
            # a response of another provider (RFC 9207)
            raise _make_refusal("the login came from another identity provider; log in again")
        if "error" in query or not query.get("code"):
            why = query.get("error_description") or query.get("error") or "no reason given"
            raise _make_refusal(f"{self.shown} did not log you in: {why[:200]}")
        await asyncio.sleep(self._throttle.wait_us(PROVIDER_LOGIN, host, now_us()) / 1e6)
        try:
            async with self._exchanges:
                configuration = await self._find_configuration()
                token = await self._exchange(configuration, query["code"], self._derive("verifier", begun))
                claims = await configuration.issuer.read_claims(token, date_us())
        except Refusal as refusal:
            self._throttle.fail(PROVIDER_LOGIN, host, now_us())
            raise _make_refusal(f"the login at {self.shown} is not valid here: {refusal}") from None
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), self._derive("nonce", begun).encode()):
            raise _make_refusal(f"the token of {self.shown} is of another login; log in again")
        # a token for several clients says which one it was issued to (OpenID Connect Core 1.0, 3.1.3.7)
        if isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1:
            claims.setdefault("azp", "")
        if claims.get("azp", self._settings.client_id) != self._settings.client_id:
            raise _make_refusal(f"the token of {self.shown} was issued to another client")
        return str(claims[self._settings.user_claim]), goal

    def _require_begun(self, begun: str, state: str) -> str:
        """Return the goal of a login. Raises Refusal if this browser did not begin it, or too long ago."""
        if not begun or not hmac.compare_digest(state.encode(), self._derive("state", begun).encode()):
            raise _make_refusal(
                "this login was not begun in this browser, or another one was begun since; log in again"
            )
        _, began_s, goal = begun.split(".")
        if not 0 <= self._clock() - int(began_s) <= LOGIN_S:
            raise _make_refusal("this login was begun too long ago; log in again")
        return urlsafe_b64decode(goal).decode()

    def _derive(self, purpose: str, begun: str) -> str:
        digest = hmac.digest(self._key, f"{purpose} {begun}".encode(), "sha256")
        return urlsafe_b64encode(digest).rstrip(b"=").decode()

    # -- requests to the provider

    async def _find_configuration(self) -> ProviderConfiguration:
        now_s = time.monotonic()
        if self._configuration is not None and now_s - self._read_s < CONFIGURATION_S:
            return self._configuration
        if self._reading is None or self._reading.done():
            if now_s - self._failed_s < RETRY_S:
                raise self._away_error("it did not respond a moment ago")
            self._reading = asyncio.get_running_loop().create_task(self._read_configuration())
        try:
            # one read for all logins that wait for it
            self._configuration = await asyncio.shield(self._reading)
        except Unreachable:
            self._failed_s = time.monotonic()
            if self._configuration is None:
                raise
        self._read_s = time.monotonic()
        return self._configuration

    async def _read_configuration(self) -> ProviderConfiguration:
        settings = self._settings
        url = f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        document = await self._fetch(url)
        addresses = [document.get(f"{name}_endpoint") for name in ("authorization", "token")]
        if document.get("issuer") != settings.issuer:
            raise self._away_error(f"its configuration is of the issuer {str(document.get('issuer'))[:200]!r}")
        if not all(isinstance(one, str) and is_private(one) for one in addresses):
            raise self._away_error("its configuration has no encrypted endpoints")
        try:
            oauth = OAuthSettings(
                issuer=settings.issuer, audience=settings.client_id, jwks_url=document.get("jwks_uri"),
                user_claim=settings.user_claim,
            )  # fmt: skip
        except ValidationError:
            raise self._away_error("its configuration has no address of its keys") from None
        return ProviderConfiguration(str(addresses[0]), str(addresses[1]), TokenIssuer(oauth))

    async def _exchange(self, configuration: ProviderConfiguration, code: str, verifier: str) -> str:
        """Return the ID token for a code. Raises Refusal if the provider refuses the code."""
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self._callback, "code_verifier": verifier,
        }  # fmt: skip
        authorization = None
        if self._secret is None:
            form["client_id"] = self._settings.client_id
        else:
            # both are encoded as in a form (RFC 6749 section 2.3.1)
            pair = f"{quote(self._settings.client_id, safe='')}:{quote(self._secret, safe='')}"
            authorization = f"Basic {b64encode(pair.encode()).decode()}"
        document = await self._fetch(configuration.token, urlencode(form).encode(), authorization)
        token = document.get("id_token")
        if not isinstance(token, str):
            raise Refusal(Reason.INVALID_TOKEN, "the provider sent no ID token; check the scopes of this client there")
        return token

    async def _fetch(self, url: str, form: bytes | None = None, authorization: str | None = None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(FETCH_S):
                data = await fetch_document(url, DOCUMENT_BYTES_MAX, form=form, authorization=authorization)
        except TimeoutError:
            raise self._away_error(f"no whole response within {FETCH_S:g} s") from None
        except (OSError, ValueError) as error:
            if form is not None and "HTTP status 4" in str(error):
                raise Refusal(Reason.INVALID_TOKEN, f"it does not take the code ({error}); log in again") from None
            raise self._away_error(str(error)) from None
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise self._away_error("it sent a page, or something else that is not a JSON object")
        return document

    def _away_error(self, why: str) -> Unreachable:
        return Unreachable(f"the identity provider {self.shown} cannot be used now: {why}; try again in a while")


def _make_challenge(verifier: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _make_refusal(sentence: str) -> Refusal:
    return Refusal(Reason.INVALID_CREDENTIALS, sentence)
