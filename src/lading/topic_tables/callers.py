"""Callers of the catalog: each reads topics with its own login, and so sees what the source lets this login see.

A caller's bearer token, or the name and password that an engine trades for one (OAuth's client credentials), is what
this process logs in with for that caller. A caller may use the login of the process itself, if it has one, by the key
that was printed at the start.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ..model.errors import LadingError, LocalError
from ..transports.interface import Transport
from ..transports.lading.users import UserAdministration
from ..transports.open import holds_secret, open_transport, option_names, without_options
from .source import TableSource

CALLERS_MAX: Final = 1_000
"""Callers with a login of their own that are remembered; the one that asked longest ago goes first."""
STRANGERS_MAX: Final = 300
"""Callers whose login is tried or waits for that: more than the catalog lets wait, so that none displaces another."""
CONNECTED_MAX: Final = 50
"""Callers whose idle connections stay open: a process has about a thousand files."""
LOGIN_S: Final = 7 * 86_400
"""How long the tokens of a login by name and password are good, renewed ones too; then it is needed again."""
TOKENS_MAX: Final = 50
"""Tokens of one login that are remembered: renewing more often than that displaces no other caller."""
OWN: Final = ""
"""The name of a caller without a login of its own."""


@dataclass(slots=True)
class CallerLogin:
    """A login by name and password: its caller, when it ends, and digests of its tokens, oldest first."""

    caller: str
    end_s: float
    tokens: list[str] = field(default_factory=list)


class Callers:
    """The source as each caller sees it. A caller's name says nothing of its login."""

    def __init__(
        self,
        url: str,
        columns: Mapping[str, str],
        *,
        is_public: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With ``is_public`` callers may be on other machines, so that each one has to log in.

        ``clock`` gives the seconds by which logins end.
        Raises LocalError if the source is open to callers without a login then.
        """
        self._url = url
        self._columns = columns
        self._clock = clock
        self.own: Final = TableSource(url, columns)
        """The source with the login of this process, if it has one."""
        self._options = frozenset(option_names(without_options(url)))
        self._is_closed = holds_secret(url) or is_public
        if is_public and not holds_secret(url) and self._can_read(self.own):
            raise LocalError(
                f"{self.own.url}: gives everybody its topics, and so would its tables on other machines; "
                "set up users there, or listen on 127.0.0.1"
            )
        self.key: Final = secrets.token_urlsafe(24) if holds_secret(url) else None
        """The key of callers that read with the login of this process; None if it has no login."""
        self._sources: OrderedDict[str, TableSource] = OrderedDict()
        self._strangers: OrderedDict[str, TableSource] = OrderedDict()
        """Callers whose login the source has not taken yet."""
        self._logins: OrderedDict[str, CallerLogin] = OrderedDict()
        """Logins by the tokens that this process made for them, as a digest."""
        self._lock = threading.Lock()

    def find(self, token: str | None) -> str | None:
        """Return the name of a caller by its bearer token; None if the token is not valid."""
        if not token:
            return None if self._is_closed else OWN
        if self.key is not None and hmac.compare_digest(token.encode(), self.key.encode()):
            return OWN
        name = _hash_text(token)
        login = self._find_login(name)
        if login is not None:
            return login.caller
        if "token" not in self._options:
            # the source has no tokens, so that nobody could know this one
            return None if self._is_closed else OWN
        self._open_for_caller(name, lambda: open_transport(self._url, token=token))
        return name

    def log_in(self, name: str, password: str) -> str | None:
        """Return a bearer token for a name and a password; None if the source does not take them."""
        if self.key is not None and hmac.compare_digest(password.encode(), self.key.encode()):
            return self.key
        caller = _digest_pair(name, password)
        if self._can_read(self._open_for_caller(caller, lambda: self._log_in_transport(name, password))):
            self.accept(caller)
        else:
            self.forget(caller)
            if self._is_closed or not self._can_read(self.own):
                return None
            # without users, any name and password are accepted
            caller = OWN
        return self._make_token(CallerLogin(caller, self._clock() + LOGIN_S))

    def has_accepted(self, caller: str) -> bool:
        """Return whether the source has taken the login of a caller before, and the caller is remembered."""
        return caller == OWN or caller in self._sources

    def has_accepted_pair(self, name: str, password: str) -> bool:
        """Return whether the source has taken this name and password before."""
        return self.has_accepted(_digest_pair(name, password))

    def forget(self, caller: str) -> None:
        """Close the connections of a caller whose login the source has not taken; others stay."""
        with self._lock:
            source = self._strangers.pop(caller, None)
        if source is not None:
            source.close()

    def renew(self, token: str) -> str | None:
        """Return another token of the login of one that this process made; None for any other, or after ``LOGIN_S``."""
        if self.key is not None and hmac.compare_digest(token.encode(), self.key.encode()):
            return self.key
        login = self._find_login(_hash_text(token))
        return None if login is None else self._make_token(login)

    def _find_login(self, digest: str) -> CallerLogin | None:
        with self._lock:
            login = self._logins.get(digest)
            if login is not None and login.end_s <= self._clock():
                del self._logins[digest]
                login = None
        return login

    def _make_token(self, login: CallerLogin) -> str:
        token = secrets.token_urlsafe(24)
        with self._lock:
            login.tokens.append(_hash_text(token))
            self._logins[login.tokens[-1]] = login
            if len(login.tokens) > TOKENS_MAX:
                self._logins.pop(login.tokens.pop(0), None)
            while len(self._logins) > CALLERS_MAX:
                self._logins.popitem(last=False)
        return token

    def _log_in_transport(self, name: str, password: str) -> Transport:
        if {"username", "password"} <= self._options:
            return open_transport(self._url, username=name, password=password)
        transport = open_transport(self._url)
        if isinstance(transport, UserAdministration):
            transport.log_in(name, password)
        return transport

    @staticmethod
    def _can_read(source: TableSource) -> bool:
        try:
            source.list_tables()
        except LadingError:
            return False
        return True

    def _open_for_caller(self, name: str, connect: Callable[[], Transport]) -> TableSource:
        """Return the source of a caller. Until ``accept`` it is a stranger: strangers displace each other only."""
        with self._lock:
            found = self._sources.get(name) or self._strangers.pop(name, None)
            if found is None:
                found = TableSource(self._url, self._columns, connect)
            if name not in self._sources:
                self._strangers[name] = found
            gone = [self._strangers.popitem(last=False)[1] for _ in range(len(self._strangers) - STRANGERS_MAX)]
        for source in gone:
            source.close()
        return found

    def accept(self, caller: str) -> None:
        """Remember a caller: the source took its login."""
        with self._lock:
            source = self._strangers.pop(caller, None) or self._sources.get(caller)
            if source is None:
                return
            self._sources[caller] = source
            self._sources.move_to_end(caller)
            quiet = list(islice(reversed(self._sources.values()), CONNECTED_MAX, CONNECTED_MAX + 1))
            quiet += [self._sources.popitem(last=False)[1] for _ in range(len(self._sources) - CALLERS_MAX)]
        for source in quiet:
            source.close()

    def source_of(self, caller: str) -> TableSource | None:
        """Return the source as a caller sees it; None if the caller was forgotten and has to show its login again."""
        if caller == OWN:
            return self.own
        with self._lock:
            return self._sources.get(caller) or self._strangers.get(caller)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            sources = [*self._sources.values(), *self._strangers.values()]
            self._sources, self._strangers = OrderedDict(), OrderedDict()
        for source in (self.own, *sources):
            source.close()


def _digest_pair(name: str, password: str) -> str:
    return _hash_text(f"{name}\0{password}")


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
