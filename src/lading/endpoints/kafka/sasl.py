"""SaslHandshake and SaslAuthenticate: PLAIN, SCRAM and OAUTHBEARER, checked by the one set of users (kafka.md 3).

PLAIN sends the password as it is: it is offered on TLS, to clients on this machine, and if a setting says so. The
password may be an access token of the user. While no users are set up a login by PLAIN succeeds with any name.
OAUTHBEARER (RFC 7628) takes tokens of the configured issuer, and is offered whenever PLAIN is, as anyone who sees a
token can use it. The response to a login that expires says when, and the client may log in again before that (KIP-368).

* SaslHandshake 0-1. 1 SaslAuthenticate follows; after 0 raw tokens would, which are not served (KIP-152).
* SaslAuthenticate 0-2. 1 how long the login lasts (KIP-368); 2 tagged fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ...broker.core.access.credentials import TOKEN_PREFIX
from ...broker.core.access.principal import Principal
from ...dialects.kafka.errors import (
    ILLEGAL_SASL_STATE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    UNSUPPORTED_VERSION,
)
from ...dialects.kafka.scram import HASHES, ScramExchange
from ...dialects.kafka.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from ...model.errors import LadingError, MalformedMessage, Reason, Refusal
from ...runtime.clock import date_us
from ..base.token_issuer import TOKEN_BYTES_MAX
from .handling import Context, Fields, Handler, Request, SaslState, Session

PLAIN: Final = "PLAIN"
PLAIN_BYTES_MAX: Final = 8 << 10
"""More than three fields of the longest name and password; a longer message is cut, and refused for that."""
OAUTHBEARER: Final = "OAUTHBEARER"
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
_BEARER: Final = "auth=bearer "


def handlers(context: Context) -> Mapping[int, Handler]:
    """SaslHandshake and SaslAuthenticate."""
    logins = SaslLogins(context)
    return {SASL_HANDSHAKE: logins.shake_hands, SASL_AUTHENTICATE: logins.authenticate}


_Step = Callable[[SaslState, bytes, Session], Awaitable[tuple[Principal | None, bytes]]]
"""Handles one message of the client; returns the principal, once it is known, and the response."""


class SaslLogins:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._access = context.broker.access
        self._authenticator = context.services.authenticator
        self._takes_plain = context.settings.tls.enabled or context.settings.sasl_plain_without_tls
        self._steps: Mapping[str, _Step] = {
            PLAIN: self._show_password, OAUTHBEARER: self._bear_token, **dict.fromkeys(HASHES, self._exchange)
        }  # fmt: skip

    def shake_hands(self, session: Session, request: Request) -> Fields:
        if request.version == 0:
            # listed for old librdkafka: without it the client considers the whole API missing, and with it the client
            # uses version 1; after version 0 a client would send raw tokens instead of requests
            session.end()
            return {"error_code": UNSUPPORTED_VERSION, "mechanisms": []}
        offered = self._list_mechanisms(session)
        if request.body.mechanism not in offered:
            return {"error_code": UNSUPPORTED_SASL_MECHANISM, "mechanisms": offered}
        session.sasl = SaslState(request.body.mechanism)
        return {"error_code": 0, "mechanisms": offered}

    def _list_mechanisms(self, session: Session) -> list[str]:
        plain = [PLAIN] if self._takes_plain or session.here.loopback else []
        bearer = [OAUTHBEARER] if plain and self._authenticator.has_issuer else []
        return [*plain, *HASHES, *bearer] if self._access.is_enabled else [*plain, *bearer]

    def authenticate(self, session: Session, request: Request) -> Fields | Awaitable[Fields]:
        if session.sasl is None:
            session.end()
            return _failure_fields("SaslHandshake comes before SaslAuthenticate", ILLEGAL_SASL_STATE)
        return self._authenticate(session, session.sasl, bytes(request.body.auth_bytes))

    async def _authenticate(self, session: Session, state: SaslState, message: bytes) -> Fields:
        try:
            principal, answer = await self._steps[state.mechanism](state, message, session)
            if principal is not None and session.sasl_name not in (None, principal.name):
                raise Refusal(
                    Reason.INVALID_CREDENTIALS,
                    "re-authentication must be by the same user; open another connection for another user",
                )
        except LadingError as error:
            # one text for unknown users and wrong passwords
            session.sasl = None
            session.end()
            return _failure_fields(str(error))
        if principal is not None:
            session.sasl = None
            session.sasl_name = principal.name
            session.log_in(principal)
        lifetime_ms = 0
        if principal is not None and principal.ends_us is not None:
            lifetime_ms = max(principal.ends_us - date_us(), 1_000) // 1_000
        return {
            "error_code": 0, "error_message": None, "auth_bytes": answer, "session_lifetime_ms": lifetime_ms
        }  # fmt: skip

    async def _bear_token(self, state: SaslState, message: bytes, session: Session) -> tuple[Principal | None, bytes]:
        """Handle OAUTHBEARER: ``n,[a=authzid],\\x01auth=Bearer TOKEN\\x01[key=value\\x01…]\\x01`` (RFC 7628, 3.1)."""
        if state.refusal:
            raise Refusal(Reason.INVALID_TOKEN, state.refusal)
        head, _, rest = message[:TOKEN_BYTES_MAX].decode(errors="replace").partition("\x01")
        told = [pair for pair in rest.split("\x01") if pair[: len(_BEARER)].lower() == _BEARER]
        flags = head.split(",")
        if len(flags) != 3 or flags[0] not in ("n", "y") or len(told) != 1 or not rest.endswith("\x01\x01"):
            raise MalformedMessage("OAUTHBEARER takes one pair auth=Bearer TOKEN (RFC 7628 section 3.1)")
        try:
            principal = await self._authenticator.log_in_with_token(told[0][len(_BEARER) :], session.host)
        except Refusal as refusal:
            # in two steps (RFC 7628): the client gets the status, responds, and the login fails
            state.refusal = str(refusal)
            return None, _INVALID_TOKEN
        if flags[1].removeprefix("a=") not in ("", principal.name):
            raise MalformedMessage("OAUTHBEARER: authorization as another user is not supported")
        return principal, b""

    async def _show_password(self, state: SaslState, message: bytes, session: Session) -> tuple[Principal, bytes]:
        return await self._log_in(message, session), b""

    async def _log_in(self, message: bytes, session: Session) -> Principal:
        """Handle PLAIN: ``[authzid] NUL authcid NUL password`` (RFC 4616)."""
        try:
            identity, name, password = message[:PLAIN_BYTES_MAX].decode().split("\0")
        except ValueError:
            raise MalformedMessage("PLAIN takes a name and a password, with NUL before each") from None
        if identity not in ("", name):
            raise MalformedMessage("PLAIN: authorization as another user is not supported")
        if not password.startswith(TOKEN_PREFIX):
            return await self._authenticator.log_in(name, password, session.host)
        principal = await self._authenticator.log_in_with_token(password, session.host)
        if principal.name not in ("", name):
            raise Refusal(
                Reason.INVALID_TOKEN, "this access token is of another user; log in with a token of the same user"
            )
        return principal

    async def _exchange(self, state: SaslState, message: bytes, session: Session) -> tuple[Principal | None, bytes]:
        scram, host = state.scram, session.host
        if scram is None:
            scram = ScramExchange(state.mechanism)
            name = scram.begin(message)
            await self._authenticator.begin_scram(name, host)
            answer = scram.challenge(self._access.scram_verifier(name, state.mechanism))
            state.scram = scram
            return None, answer
        verifier = self._access.scram_verifier(scram.name, state.mechanism)
        last = scram.finish(message)
        is_right = last is not None and scram.challenged == verifier
        principal = await self._authenticator.finish_scram(scram.name, host, is_right=is_right)
        return principal, last or b""


def _failure_fields(message: str, code: int = SASL_AUTHENTICATION_FAILED) -> Fields:
    return {"error_code": code, "error_message": message, "auth_bytes": b""}
