"""What answers the requests of Iggy's sessions: one set for all of a listener, with a part for each release."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...dialects.iggy_classic.later_commands import LoginUser
from ...dialects.iggy_classic.releases import (
    BY_NAME,
    CREATE_TOPIC,
    RELEASES,
    SILENT,
    UNTOLD,
    MessageForm,
    Release,
    release_of_login,
    release_of_topic,
)
from ...dialects.iggy_classic.responses import IdentityInfo
from ..base.services import Services
from .clients import Client
from .current.endpoint import create_current
from .headers_only import HeadersOnlyPoller
from .logins import Logins
from .poll import Poller
from .send import Sender
from .service import CHANGES, SURVEYS, USER_ID, IggyService
from .states import SETTING_STATES, StateSetter
from .zero_copy import ZeroCopyPoller, ZeroCopyPoller07, ZeroCopyPoller08, ZeroCopySender, ZeroCopySender08

if TYPE_CHECKING:
    from ...endpoint_settings import IggyListener
    from ..base.session import Peer


class FormHandlers(NamedTuple):
    """What takes and gives messages in one form."""

    sender: type[Sender]
    poller: type[Poller]


FORMS: Final[Mapping[MessageForm, FormHandlers]] = {
    MessageForm.HEADERS_ONLY: FormHandlers(Sender, HeadersOnlyPoller),
    MessageForm.CLASSIC: FormHandlers(Sender, Poller),
    MessageForm.ZERO_COPY_CRC_32: FormHandlers(ZeroCopySender08, ZeroCopyPoller07),
    MessageForm.ZERO_COPY_56: FormHandlers(ZeroCopySender08, ZeroCopyPoller08),
    MessageForm.ZERO_COPY_64: FormHandlers(ZeroCopySender, ZeroCopyPoller),
}
"""What serves each form."""


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseHandlers:
    """What takes and gives messages of the clients of one release."""

    release: Release
    sender: Sender
    poller: Poller


class IggyHandlers:
    """What answers the requests of all sessions of one listener."""

    def __init__(self, services: Services, name: str, settings: IggyListener, transport: int) -> None:
        self.name: Final = name
        """The endpoint's."""
        self.transport: Final = transport
        """What others are told that its clients come over, as the protocol numbers it."""
        self.services: Final = services
        self.service: Final = IggyService(services)
        self._states = StateSetter(services)
        self._logins = Logins(is_open=settings.secured)
        self.current: Final = create_current(services, name, settings, self._logins)
        """For clients of the current generation."""
        self._is_told = settings.release is not None
        self._of_release = {
            release: ReleaseHandlers(
                release,
                FORMS[release.form].sender(services, name, release),
                FORMS[release.form].poller(services, name, settings, release),
            )
            for release in (*RELEASES, SILENT)
        }
        self.first: Final = self.of_release(BY_NAME[settings.release] if settings.release else UNTOLD)
        """For a client that has not said yet what it is."""

    def of_release(self, release: Release) -> ReleaseHandlers:
        """Return what serves clients of a release."""
        return self._of_release[release]

    def parse(self, code: int, payload: memoryview, client: Client) -> Any:
        """Return the command of a request by the release of the client; a request may tell which one that is."""
        if code == CREATE_TOPIC and not self._is_told and client.release.is_silent:
            client.release = release_of_topic(payload) or client.release
        return client.release.commands.parse_request(code, payload)

    def log_in(self, command: LoginUser, client: Client, peer: Peer) -> IdentityInfo:
        """Take a client at its word, as no users are set up; its release is known from then on.

        Refusal where it comes from another machine, unless the listener is open to all.
        """
        self._logins.check(peer.here)
        if not self._is_told:
            client.release = release_of_login(command.version)
        client.user = command.name
        return IdentityInfo(USER_ID)

    def begin(self, command: Any, client: Client) -> Awaitable[bytes] | None:
        """Begin a command that waits for the disk or takes turns, and return its body to be; None for any other."""
        if isinstance(command, SETTING_STATES):
            return self._states.set(command)
        encode = partial(client.release.commands.encode_response, command)
        if type(command) in SURVEYS:
            return self.service.survey(command, client, encode)
        if isinstance(command, CHANGES):
            return self.service.change(command, encode)
        return None
