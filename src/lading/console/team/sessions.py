"""Sessions of people who logged in: limited in number and time; each has a random token, of which only a
digest is kept.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp

from ..source import ConsoleSource
from .logins import UserLogin
from .settings import SessionSection

TOKEN_BYTES: Final = 32
ENDED_MAX: Final = 1_000
"""The reasons of this many ended sessions are remembered, for pages that are still open."""
UNKNOWN: Final = "you are not logged in, or this console was restarted since; log in again"


@dataclass(slots=True, eq=False)
class BrowserSession:
    """One login in one browser. ``app`` serves its requests with the rights of its user."""

    login: UserLogin
    source: ConsoleSource
    app: ASGIApp
    host: str
    """The address from which the user logged in."""
    began_s: float
    used_s: float
    checked_s: float
    """When the source was last asked whether the login is still good."""
    digest: str = ""
    end_reason: str | None = None
    """Why it has ended; None before that."""


class BrowserSessions:
    """All sessions, the least recently used one first. Event loop only."""

    def __init__(self, settings: SessionSection, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self.clock: Final = clock
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        self._ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, session: BrowserSession, token: str = "") -> str:
        """Keep a session and return its token, a new one if none is given.

        If there are too many sessions, the least recently used one ends.
        """
        self._end_late()
        own = [one for one in self._sessions.values() if one.login.name == session.login.name]
        if len(own) >= self._settings.user_max:
            self.end(own[0], "you logged in too often elsewhere, which ended this session; log in again")
        while len(self._sessions) >= self._settings.count_max:
            self.end(next(iter(self._sessions.values())), "too many others logged in since; log in again")
        token = token or secrets.token_urlsafe(TOKEN_BYTES)
        session.digest = _hash_token(token)
        self._sessions[session.digest] = session
        return token

    def find(self, token: str, *, is_used: bool) -> BrowserSession | None:
        """Return the session of a token; ``is_used`` says that its user did something, rather than only waited."""
        session = self._sessions.get(_hash_token(token))
        if session is None or not self.is_alive(session):
            return None
        if is_used:
            session.used_s = self.clock()
            self._sessions.move_to_end(session.digest)
        return session

    def explain(self, token: str) -> str:
        """Return why a token has no session."""
        return self._ended.get(_hash_token(token), UNKNOWN)

    def is_alive(self, session: BrowserSession) -> bool:
        """Return whether a session is valid; if its time is over, end it."""
        now_s, settings = self.clock(), self._settings
        if session.end_reason is None and now_s - session.used_s >= settings.idle_minutes * 60:
            self.end(session, f"your session ended after {settings.idle_minutes:g} minutes without use; log in again")
        elif session.end_reason is None and now_s - session.began_s >= settings.hours * 3_600:
            self.end(session, f"your session ended after {settings.hours:g} hours; log in again")
        return session.end_reason is None

    def end(self, session: BrowserSession, reason: str) -> None:
        """End a session and forget its login."""
        if session.end_reason is not None:
            return
        session.end_reason = reason
        self._sessions.pop(session.digest, None)
        self._ended[session.digest] = reason
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
        session.source.close()

    def close(self) -> None:
        """End all sessions."""
        for session in list(self._sessions.values()):
            self.end(session, UNKNOWN)

    def _end_late(self) -> None:
        for session in list(self._sessions.values()):
            self.is_alive(session)


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
