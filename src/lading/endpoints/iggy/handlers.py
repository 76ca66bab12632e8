"""Handlers of the requests of Iggy's sessions: one set for each listener, with a part for each release."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from ...broker.core.read import ReadResult
from ...dialects.iggy.classic.headers_only import strip
from ...dialects.iggy.classic.later_commands import LoginUser, LoginWithToken
from ...dialects.iggy.classic.releases import (
    BY_NAME,
    RELEASES,
    SILENT,
    UNTOLD,
    MessageForm,
    Release,
    guess_release,
)
from ...dialects.iggy.zero_copy.layout import HEADERS_LENGTH, INDEX_BYTES, INDEX_END, PAYLOAD_LENGTH, SHORT_HEAD_BYTES
from ..base.carrying import Fit
from ..base.services import Services
from .answers import Answer, PolledPlace, answer_of
from .clients import Client
from .current.endpoint import create_current
from .lent_sends import LentSends
from .logins import Logins
from .poll import Poller
from .rights import requirement_of
from .send import SEND, Require, Sender, allow_all
from .service import IggyService
from .zero_copy import ZeroCopyPoller, ZeroCopyPoller07, ZeroCopyPoller08, ZeroCopySender, ZeroCopySender08

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal
    from ...settings.endpoints import IggyListener

_U32: Final = struct.Struct("<I")
_CLASSIC: Final = frozenset({MessageForm.HEADERS_ONLY, MessageForm.CLASSIC})
_SHORT: Final = frozenset({MessageForm.ZERO_COPY_CRC_32, MessageForm.ZERO_COPY_56})
_LONG: Final = frozenset({MessageForm.ZERO_COPY_64})


def render_headers_only(reading: ReadResult, place: PolledPlace, fit: Fit | None = None) -> Answer:
    """Return the messages of a reading as 0.0.30 has them; from any thread."""
    answer = answer_of(reading, place, fit)
    return replace(answer, parts=[strip(b"".join(answer.parts))])


class HeadersOnlyPoller(Poller):
    """Polls of release 0.0.30: headers, and neither state nor checksum (docs/reference/protocols/iggy.md#releases)."""

    shows_states = False
    render = staticmethod(render_headers_only)


class FormHandlers(NamedTuple):
    """The senders and pollers of messages in one form."""

    sender: type[Sender]
    poller: type[Poller]


FORMS: Final[Mapping[MessageForm, FormHandlers]] = {
    MessageForm.HEADERS_ONLY: FormHandlers(Sender, HeadersOnlyPoller),
    MessageForm.CLASSIC: FormHandlers(Sender, Poller),
    MessageForm.ZERO_COPY_CRC_32: FormHandlers(ZeroCopySender08, ZeroCopyPoller07),
    MessageForm.ZERO_COPY_56: FormHandlers(ZeroCopySender08, ZeroCopyPoller08),
    MessageForm.ZERO_COPY_64: FormHandlers(ZeroCopySender, ZeroCopyPoller),
    # used over HTTP; each connection has senders and pollers of its own
    MessageForm.BATCHES: FormHandlers(ZeroCopySender, ZeroCopyPoller),
}
"""The handler of each form."""


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseHandlers:
    """The senders and pollers for the clients of one release."""

    release: Release
    sender: Sender
    poller: Poller


class IggyHandlers:
    """The handlers of the requests of all sessions of one listener."""

    def __init__(
        self, services: Services, name: str, settings: IggyListener, transport: int, lent: LentSends | None = None
    ) -> None:
        self.lent: Final = lent
        """None if the sockets of this listener are never lent."""
        self.name: Final = name
        """The endpoint's."""
        self.transport: Final = transport
        """The transport of its clients as other clients see it, by the protocol's number."""
        self.services: Final = services
        self.service: Final = IggyService(services)
        self._settings = settings
        self.logins: Final = Logins(services, is_open=settings.secured, admits_strangers=settings.allow_unauthenticated)
        self.current: Final = create_current(services, name, settings, self.logins, self.service)
        """For clients of the current generation."""
        self._is_told = settings.release is not None
        self._of_release = {release: self._make(release, allow_all) for release in (*RELEASES, SILENT)}
        self._of_user: WeakKeyDictionary[Principal, dict[Release, ReleaseHandlers]] = WeakKeyDictionary()
        self._of_nobody: dict[Release, ReleaseHandlers] = {}
        self.release: Final = BY_NAME[settings.release] if settings.release else UNTOLD
        """The release of a client that has not sent its version yet."""
        self.first: Final = self._of_release[self.release]

    def of(self, client: Client) -> ReleaseHandlers:
        """Return the handlers of a client, by its release and its user."""
        principal, release = client.principal, client.release
        require = requirement_of(self.services.broker, principal)
        if require is None:
            return self._of_release[release]
        made = self._of_nobody if principal is None else self._of_user.setdefault(principal, {})
        if release not in made:
            made[release] = self._make(release, require)
        return made[release]

    def _make(self, release: Release, require: Require) -> ReleaseHandlers:
        form = FORMS[release.form]
        return ReleaseHandlers(
            release,
            form.sender(self.services, self.name, release, require),
            form.poller(self.services, self.name, self._settings, release, require),
        )

    def parse(self, code: int, payload: memoryview, client: Client) -> Any:
        """Return the command of a request by the release of the client, which the request may reveal."""
        if client.releases:
            self.learn(code, payload, client)
        return client.release.commands.parse_request(code, payload)

    async def parse_in_worker(self, code: int, payload: memoryview, client: Client) -> Any:
        """Do what ``parse`` does for a long request in a worker; the client's later requests wait."""
        releases, release = client.releases, client.release

        def parse() -> tuple[tuple[Release, ...], Release, Any]:
            left = narrow(releases, code, payload)
            found = release if len(left) == len(releases) else left[0]
            return left, found, found.commands.parse_request(code, payload)

        left, client.release, command = await self.service.parse_in_worker(parse)
        if len(left) < len(releases):
            client.releases = left if len(left) > 1 else ()
        return command

    def learn(self, code: int, payload: memoryview, client: Client) -> bool:
        """Rule out the releases whose clients write no such request; return whether the client's release changed."""
        left = narrow(client.releases, code, payload)
        if len(left) == len(client.releases):
            return False
        client.releases = left if len(left) > 1 else ()
        is_other = client.release is not left[0]
        client.release = left[0]
        return is_other

    def log_in(self, command: LoginUser | LoginWithToken, client: Client) -> Awaitable[None] | None:
        """Log a client in; its release is known from then on. Returns None if done at once, as no users are set up.

        Raises Refusal, now or later, for a wrong password, or for a client on another machine while no users exist.
        """
        is_done = isinstance(command, LoginUser) and self.logins.try_at_once(client, command.name, command.password)
        if not self._is_told:
            if isinstance(command, LoginUser):
                client.release, client.releases = guess_release(command.version, command.context)
            else:
                client.release, client.releases = guess_release(None, by_token=True)
        if is_done:
            return None
        if isinstance(command, LoginWithToken):
            return self.logins.log_in_with_token(client, command.token)
        return self.logins.log_in(client, command.name, command.password)


def narrow(releases: tuple[Release, ...], code: int, payload: memoryview) -> tuple[Release, ...]:
    """Return those of ``releases`` whose clients write such a request; all of them if none does.

    The releases are those that a login leaves open: clients in languages other than Rust leave its version empty, and a
    login by token has none.
    """
    if code == SEND:
        forms = _forms_of_send(payload)
        left = tuple(one for one in releases if one.form in forms)
    else:
        left = tuple(one for one in releases if one.commands.fits(code, payload))
    return left or releases


def _forms_of_send(payload: memoryview) -> frozenset[MessageForm]:
    """Return the possible forms of the messages in a send; its first message decides.

    A classic send begins with the kind and the length of an identifier. A zero-copy send begins with the length of what
    is in front of its index, whose two upper bytes are 0; an identifier with such bytes would be a name of two NULs.
    """
    if len(payload) < _U32.size or payload[2] or payload[3]:
        return _CLASSIC
    index_at = _U32.size + _U32.unpack_from(payload)[0]
    if index_at < 2 * _U32.size or index_at > len(payload):
        return _CLASSIC
    (count,) = _U32.unpack_from(payload, index_at - _U32.size)
    first = index_at + INDEX_BYTES * count
    if not count or first + SHORT_HEAD_BYTES > len(payload):
        return _SHORT | _LONG
    (end,) = _U32.unpack_from(payload, index_at + INDEX_END)
    (headers_bytes,) = _U32.unpack_from(payload, first + HEADERS_LENGTH)
    (payload_bytes,) = _U32.unpack_from(payload, first + PAYLOAD_LENGTH)
    return _SHORT if end - headers_bytes - payload_bytes == SHORT_HEAD_BYTES else _LONG
