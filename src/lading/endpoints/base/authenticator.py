"""Logins, which wait for a slow password hash, and longer after many wrong passwords. They wait outside the event loop.

Users and rights are in ``broker.core.access``, which describes how a session uses both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ...model.errors import Reason, Refusal
from ...runtime.clock import date_us, now_us
from .fair_runner import FairLimits, FairRunner, call_once
from .known_passwords import KnownPasswords
from .login_throttle import LoginThrottle, network_of
from .token_issuer import TokenIssuer, UnknownKeysError

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.access.principal import Principal
    from ...broker.core.change import Change
    from ...settings.settings import OAuthSettings
    from .change_runner import ChangeRunner

R = TypeVar("R")
LOG: Final = logging.getLogger(__name__)

CHECKS: Final = FairLimits(
    threads=1,
    waiting_max=256,
    client_waiting_max=32,
    reason=Reason.INVALID_CREDENTIALS,
    sentence="too many logins wait; try again in a few seconds",
)
"""The limit of password checks by address: a slow hash takes a fifth of a second of one thread."""
REFUSAL_PAUSE_US: Final = 1_000_000
"""A login that is refused unchecked gets its response after this long: refusals must not be a fast way to guess."""
TOKEN_LOGIN: Final = ":token"
"""The name of logins by a token; no user has a colon in its name."""
LOG_EVERY_US: Final = 60_000_000
"""The interval at which wrong logins are logged, with their number."""


class Authenticator:
    """Checks names, passwords and tokens; one for the whole process.

    A session runs ``log_in`` by ``ConnectionHandle.run``, and reads no further until it is done.
    """

    def __init__(
        self,
        broker: Broker,
        changes: ChangeRunner,
        oauth: OAuthSettings | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Raises LocalError if the keys of the issuer of the settings cannot be read."""
        self._broker = broker
        self._clock = clock
        self._issuer = None if oauth is None or oauth.issuer is None else TokenIssuer(oauth)
        self._changes = changes
        self._throttle = LoginThrottle()
        self._known_passwords = KnownPasswords()
        self._checks = FairRunner("lading-login", CHECKS)
        self._is_closed = False
        self._turns: set[asyncio.Future[None]] = set()
        """Logins that wait because earlier ones were wrong."""
        self._logged_us = -LOG_EVERY_US
        self._unlogged_count = 0

    async def log_in(self, name: str, password: str, host: str) -> Principal:
        """Return the principal with this name and password. ``host`` is the client's address without its port.

        Raises Refusal: INVALID_CREDENTIALS for unknown names and wrong passwords alike, after a pause that grows with
        their number, and USER_INACTIVE, only to a caller who knows the password. While no users are set up every name
        is believed, as ``AccessControl.admit`` does.
        """
        access = self._broker.access
        if not access.is_enabled:
            return self._admit_open()
        credentials = access.credentials(name)
        if self._known_passwords.matches(name, password, credentials, host):
            # a user who logged in from this address before never waits for the wrong passwords of others
            return self.note_success(name, host)
        await self._wait(name, host)
        credentials = access.credentials(name)
        if not self._known_passwords.matches(name, password, credentials):
            from ...broker.core.access.credentials import check_password

            if self._is_closed:
                raise _stopping_error()
            check = call_once(partial(check_password, credentials, password))
            if not await self._checks.run(network_of(host), check):
                raise self.note_failure(name, host)
        # meanwhile the user may have been deleted, or created again
        if access.credentials(name) is not credentials:
            raise self.note_failure(name, host)
        self._known_passwords.remember(name, password, credentials, host)
        return self.note_success(name, host)

    async def log_in_with_token(self, token: str, host: str) -> Principal:
        """Return the user of a personal access token, or of one of the issuer of the settings.

        Raises Refusal: INVALID_TOKEN, TOKEN_EXPIRED, USER_INACTIVE.
        """
        try:
            if self._issuer is not None and token.count(".") == 2:
                # no token of this broker has a dot, and every signed JWT has two (RFC 7515 section 3.1)
                name, ends_us = await self._issuer.verify(token, date_us())
                return self._broker.access.vouch(name, ends_us)
            return self._broker.access.accept_token(token, self._clock())
        except UnknownKeysError:
            # the token is not wrong: do not make the next login wait for it
            raise
        except Refusal as refusal:
            if refusal.reason is Reason.INVALID_TOKEN:
                # a token cannot be guessed: only wrong ones wait, and no other login from their address
                await self._wait(TOKEN_LOGIN, host)
                self.note_failure(TOKEN_LOGIN, host)
            raise

    def start(self) -> None:
        """Read the keys of the issuer from now on, so that logins need not wait for them."""
        if self._issuer is not None:
            self._issuer.start()

    @property
    def has_issuer(self) -> bool:
        """Whether tokens of another issuer are logins."""
        return self._issuer is not None

    async def begin_scram(self, name: str, host: str) -> None:
        """Wait as long as a login has to, before SCRAM's first response; Refusal if that is too long.

        It ends with ``finish_scram``. A user who logged in from this address before does not wait, but a wrong proof
        does: to check one takes no slow hash.
        """
        if not self._is_known(name, host):
            await self._wait(name, host)

    async def finish_scram(self, name: str, host: str, *, is_right: bool) -> Principal:
        """Return the principal whose proof is right; Refusal if it is wrong, or the user is deleted or inactive."""
        if not is_right:
            if self._is_known(name, host):
                await self._wait(name, host)
            raise self.note_failure(name, host)
        self._known_passwords.remember_network(name, self._broker.access.credentials(name), host)
        return self.note_success(name, host)

    def _is_known(self, name: str, host: str) -> bool:
        return self._known_passwords.came_from(name, self._broker.access.credentials(name), host)

    def note_failure(self, name: str, host: str) -> Refusal:
        """Count a wrong password, log it once a minute, and return the refusal."""
        from ...broker.core.access.access import credentials_refusal

        self._throttle.fail(name, host, self._clock())
        self._log_failure(name, host)
        return credentials_refusal()

    def note_success(self, name: str, host: str) -> Principal:
        """Return the principal of a user whose password was right; Refusal if the user is deleted or inactive."""
        principal = self._broker.access.accept(name)
        self._throttle.succeed(name, host)
        return principal

    async def change(self, change: Change[R]) -> R:
        """Make a change of users, tokens or rules when those before it have ended; it is on disk on return."""
        return await self._changes.make_in_turn(self._broker.access, change)

    @property
    def failures_count(self) -> int:
        """Return the number of failed logins, for the metrics."""
        return self._throttle.failures_count

    def close(self) -> None:
        """Check no more passwords: refuse the logins that wait for their turn, cancel those that wait for a check."""
        self._is_closed = True
        for turn in self._turns:
            if not turn.done():
                turn.set_result(None)
        self._checks.close()
        if self._issuer is not None:
            self._issuer.close()

    def _admit_open(self) -> Principal:
        principal = self._broker.access.admit(is_open=False)
        assert principal is not None
        return principal

    async def _wait(self, name: str, host: str) -> None:
        """Wait for the turn of a login, at most ten seconds. Raises Refusal, after a pause, if that is too short.

        Each connection has at most one login in progress, so that the number of waiting logins needs no bound.
        """
        if self._is_closed:
            raise _stopping_error()
        try:
            wait_us = self._throttle.wait_us(name, host, self._clock())
        except Refusal:
            self._log_failure(name, host)
            await self._pause(REFUSAL_PAUSE_US)
            raise
        if wait_us:
            await self._pause(wait_us)

    async def _pause(self, pause_us: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.add(turn)
        try:
            # a broker that stops wakes it: else it would hold up the end of its connection
            await asyncio.wait([turn], timeout=pause_us / 1e6)
        finally:
            self._turns.discard(turn)
            turn.cancel()
        if self._is_closed:
            raise _stopping_error()

    def _log_failure(self, name: str, host: str) -> None:
        self._unlogged_count += 1
        now = self._clock()
        if now - self._logged_us < LOG_EVERY_US:
            return
        LOG.warning(
            "wrong logins: %d since the last line, the newest as %a from %s", self._unlogged_count, name[:64], host
        )
        self._logged_us, self._unlogged_count = now, 0


def _stopping_error() -> Refusal:
    return Refusal(Reason.STOPPING, "the broker is stopping; connect again once it runs")
