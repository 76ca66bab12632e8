"""Logins: waiting for slow hashes, or because of too many wrong passwords. What it waits for is no loop's.

Rights and users are ``broker.core.access``; how a session uses both is told there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from ...clock import date_us, now_us
from ...model.errors import Reason, Refusal
from .known_passwords import KnownPasswords
from .login_throttle import LoginThrottle
from .token_issuer import TokenIssuer

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.change import Change
    from ...broker.core.principal import Principal
    from ...settings import OAuthSettings
    from .change_runner import ChangeRunner

R = TypeVar("R")
LOG: Final = logging.getLogger(__name__)

WAITING_MAX: Final = 256
"""Logins that wait; more are refused unchecked. A slow hash takes a fifth of a second of one thread."""
TOKEN_LOGIN: Final = ":token"
"""As the name of logins that show a token; no user has a colon in its name."""
LOG_EVERY_US: Final = 60_000_000
"""Wrong logins are logged once in so long, with their number."""


class Authenticator:
    """Checks names, passwords and tokens; one for the whole process.

    A session runs ``log_in`` by ``ConnectionHandle.run``, and reads no further until it is done.
    """

    def __init__(self, broker: Broker, changes: ChangeRunner, oauth: OAuthSettings | None = None) -> None:
        """Raises LocalError if the keys of the issuer of the settings cannot be read."""
        self._broker = broker
        self._issuer = None if oauth is None or oauth.issuer is None else TokenIssuer(oauth, self._run)
        self._changes = changes
        self._throttle = LoginThrottle()
        self._known_passwords = KnownPasswords()
        self._thread: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._waiting_count = 0
        self._turns: set[asyncio.Future[None]] = set()
        """Of logins that wait because others were wrong before."""
        self._logged_us = -LOG_EVERY_US
        self._unlogged_count = 0

    async def log_in(self, name: str, password: str, host: str) -> Principal:
        """Return the principal with this name and password. ``host`` is the client's address without its port.

        Raises Refusal: INVALID_CREDENTIALS for unknown names and wrong passwords alike, after a pause that grows with
        their number, and USER_INACTIVE, told only to who knows the password. While no users are set up everybody is
        taken at their word, as ``AccessControl.admit`` does.
        """
        access = self._broker.access
        if not access.is_enabled:
            return self._admit_open()
        await self._wait(name, host)
        credentials = access.credentials(name)
        if not self._known_passwords.matches(name, password, credentials):
            from ...broker.core.credentials import check_password

            if not await self._run(check_password, credentials, password):
                raise self.note_failure(name, host)
            self._known_passwords.remember(name, password, credentials)
        # the user may be another one by now, or gone
        if access.credentials(name) is not credentials:
            raise self.note_failure(name, host)
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
            return self._broker.access.accept_token(token, now_us())
        except Refusal as refusal:
            if refusal.reason is Reason.INVALID_TOKEN:
                # a token cannot be guessed: only wrong ones wait, and no other login from their address
                await self._wait(TOKEN_LOGIN, host)
                self.note_failure(TOKEN_LOGIN, host)
            raise

    @property
    def has_issuer(self) -> bool:
        """Whether tokens of another issuer are logins."""
        return self._issuer is not None

    async def begin_scram(self, name: str, host: str) -> None:
        """Wait as long as a login has to, before SCRAM's first answer; Refusal if that is too long.

        It ends with ``note_success`` or ``note_failure``.
        """
        await self._wait(name, host)

    def note_failure(self, name: str, host: str) -> Refusal:
        """Count a wrong password, log it once a minute, and return what to answer."""
        from ...broker.core.access import credentials_refusal

        self._throttle.fail(name, host, now_us())
        self._log_failure(name, host)
        return credentials_refusal()

    def note_success(self, name: str, host: str) -> Principal:
        """Return the principal of who has shown to know the password; Refusal if the user is gone or inactive."""
        principal = self._broker.access.accept(name)
        self._throttle.succeed(name, host)
        return principal

    async def change(self, change: Change[R]) -> R:
        """Make a change of users, tokens or rules when those before it have ended; it is on disk on return."""
        return await self._changes.make_in_turn(self._broker.access, change)

    @property
    def failures_count(self) -> int:
        """Return how many logins were wrong, for the metrics."""
        return self._throttle.failures_count

    def close(self) -> None:
        """Check no more passwords: refuse the logins that wait for their turn, cancel those that wait for a check."""
        self._is_closed = True
        for turn in self._turns:
            if not turn.done():
                turn.set_result(None)
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _admit_open(self) -> Principal:
        principal = self._broker.access.admit(is_open=False)
        assert principal is not None
        return principal

    async def _wait(self, name: str, host: str) -> None:
        if self._is_closed:
            raise _stopping_error()
        if self._waiting_count >= WAITING_MAX:
            raise Refusal(Reason.INVALID_CREDENTIALS, "too many logins wait; try again in a few seconds")
        try:
            wait_us = self._throttle.wait_us(name, host, now_us())
        except Refusal:
            self._log_failure(name, host)
            raise
        if wait_us:
            self._waiting_count += 1
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.add(turn)
            try:
                # a broker that stops wakes it: else it would hold up the end of its connection
                await asyncio.wait([turn], timeout=wait_us / 1e6)
            finally:
                self._turns.discard(turn)
                turn.cancel()
                self._waiting_count -= 1
            if self._is_closed:
                raise _stopping_error()

    async def _run(self, work: Callable[..., R], *arguments: object) -> R:
        if self._waiting_count >= WAITING_MAX:
            raise Refusal(Reason.INVALID_CREDENTIALS, "too many logins wait; try again in a few seconds")
        if self._is_closed:
            raise _stopping_error()
        if self._thread is None:
            # its own: no number of logins takes the workers from those who read and write
            self._thread = ThreadPoolExecutor(1, "lading-login")
        self._waiting_count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        finally:
            self._waiting_count -= 1

    def _log_failure(self, name: str, host: str) -> None:
        self._unlogged_count += 1
        now = now_us()
        if now - self._logged_us < LOG_EVERY_US:
            return
        LOG.warning(
            "wrong logins: %d since the last line, the newest as %a from %s", self._unlogged_count, name[:64], host
        )
        self._logged_us, self._unlogged_count = now, 0


def _stopping_error() -> Refusal:
    return Refusal(Reason.STOPPING, "the broker is stopping")
