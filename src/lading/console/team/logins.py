"""Logins of people at the console: names and passwords, which the source checks as it does for its other clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ...endpoints.base.fair_runner import FairLimits, FairRunner, call_once
from ...endpoints.base.login_throttle import LoginThrottle, network_of
from ...model.errors import LadingError, LocalError, Reason, Refusal, Unreachable
from ...runtime.clock import now_us
from ...transports.interface import Transport
from ...transports.lading.transport import LadingLogin, LadingTransport
from ...transports.open import open_transport, option_names, without_options

LOGINS: Final = FairLimits(
    threads=8,
    waiting_max=256,
    client_waiting_max=16,
    reason=Reason.STOPPING,
    sentence="too many logins wait; try again in a few seconds",
)
"""The limit of logins by address: a wrong password waits in the source for seconds, and holds a thread as long."""
ENDED: Final = frozenset(
    {
        Reason.UNAUTHENTICATED, Reason.INVALID_CREDENTIALS, Reason.INVALID_TOKEN, Reason.TOKEN_EXPIRED,
        Reason.USER_INACTIVE,
    }
)  # fmt: skip
"""Reasons with which the source refuses a login that was valid before."""
NAME_CHARACTERS_MAX: Final = 255
NO_USERS: Final = (
    "has no users, so that everybody on the network could change it here; add one (lading user add NAME --admin), or "
    "listen on 127.0.0.1 without TLS"
)


@dataclass(frozen=True, slots=True)
class UserLogin:
    """A user that the source accepted, and the connection options for this user's requests."""

    name: str
    is_administrator: bool
    options: Mapping[str, Any] = field(repr=False)


def open_login(url: str, name: str, password: str) -> UserLogin:
    """Return the login of a name and a password. Raises Refusal if they are wrong, LocalError if the source has no
    users.
    """
    if not name or ":" in name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
        raise _wrong_login_error()
    known = option_names(without_options(url))
    is_lading = {"username", "password"}.isdisjoint(known)
    options: dict[str, Any] = (
        {"login": LadingLogin(name, password)} if is_lading else {"username": name, "password": password}
    )
    return check_login(url, name, options)


def check_login(url: str, name: str, options: Mapping[str, Any]) -> UserLogin:
    """Return a login with these options, checked at the source again. Raises Refusal if the source refuses it."""
    transport = open_transport(url, **options)
    try:
        if isinstance(transport, LadingTransport):
            me = transport.me()
            if not me["has_users"]:
                raise LocalError(f"{without_options(url)} {NO_USERS}")
            return UserLogin(str(me["name"]), bool(me["administrator"]), options)
        _list_topics(transport)
        return UserLogin(name, False, options)
    finally:
        transport.close()


def require_users(url: str) -> None:
    """Raise LocalError if the source accepts everybody. A source that is unreachable now is checked at each login."""
    transport = open_transport(url)
    try:
        if isinstance(transport, LadingTransport):
            has_users = bool(transport.me()["has_users"])
        else:
            transport.topics()
            has_users = False
    except LadingError:
        return
    finally:
        transport.close()
    if not has_users:
        raise LocalError(f"{without_options(url)} {NO_USERS}")


def require_administrator(url: str) -> None:
    """Raise LocalError unless this process logs in at the source as an administrator.

    A source that is unreachable now may start later, and is not an error.
    """
    transport = open_transport(url)
    try:
        is_administrator = isinstance(transport, LadingTransport) and transport.me()["administrator"]
    except Refusal:
        is_administrator = False
    except LadingError:
        return
    finally:
        transport.close()
    if not is_administrator:
        raise LocalError(
            f"{without_options(url)}: this console acts for users that it does not ask for a password, so it needs an "
            "administrator's token itself; put it into a file and add ?token_file=FILE to the URL, or set LADING_TOKEN"
        )


def open_vouched_login(url: str, name: str) -> UserLogin:
    """Return the login of a user for whom another program vouches. Raises Refusal if the source does not accept the
    user.
    """
    return check_login(url, name, {"login": LadingLogin(name)})


def _wrong_login_error() -> Refusal:
    """Return the error for unknown names and wrong passwords, with the text of Lading's broker."""
    return Refusal(Reason.INVALID_CREDENTIALS, "wrong user name or password")


def _list_topics(transport: Transport) -> None:
    try:
        transport.topics()
    except Unreachable:
        raise
    except LadingError:
        # each server has other words for it
        raise _wrong_login_error() from None


def is_over(error: BaseException) -> bool:
    """Return whether the source no longer accepts a login that it accepted before."""
    # a source that delays logins refuses right and wrong ones alike
    return isinstance(error, Refusal) and error.reason in ENDED and "too many" not in str(error)


class PasswordLogins:
    """Checks names and passwords by address, more slowly after wrong ones. Event loop only."""

    def __init__(self, url: str, clock_us: Callable[[], int] = now_us) -> None:
        self._url = url
        self._clock_us = clock_us
        self._throttle = LoginThrottle()
        self._runner = FairRunner("lading-login", LOGINS)

    async def log_in(self, name: str, password: str, host: str) -> UserLogin:
        """Return the login of a name and a password that come from an address.

        Raises Refusal if they are wrong, or too many were wrong, and Unreachable if the source does not respond.
        """
        # the source sees only this console's address, and would count all visitors as one
        try:
            wait_us = self._throttle.wait_us(name, host, self._clock_us())
        except Refusal:
            await asyncio.sleep(1)
            raise
        await asyncio.sleep(wait_us / 1e6)
        try:
            login = await self._runner.run(network_of(host), call_once(partial(open_login, self._url, name, password)))
        except Refusal as refusal:
            if refusal.reason is Reason.INVALID_CREDENTIALS:
                self._throttle.fail(name, host, self._clock_us())
            raise
        self._throttle.succeed(name, host)
        return login

    def close(self) -> None:
        """Check no more."""
        self._runner.close()
