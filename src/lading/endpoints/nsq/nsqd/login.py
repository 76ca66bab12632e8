"""Login and rights of a client of nsqd: TLS first, then AUTH, then its rights on topics.

A known line is a route, found without checking rights again. So a client may use shared routes only once it has met all
requirements, and a user without all rights has routes of its own (nsq.md 1.4).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from ....broker.core.access.principal import Principal
from ....broker.core.access.rights import Right
from ....broker.core.callbacks import ignore
from ....dialects.nsq import commands
from ....dialects.nsq.errors import NsqProtocolError
from ....model.errors import LadingError, Refusal
from ...base.responses import ResponseQueue
from ...base.services import Services
from ...base.session import ConnectionHandle
from .node import Node
from .publication_reader import PublicationReader
from .publish import PublishRoute

_NO_ROUTES: Final[Mapping[bytes, PublishRoute]] = {}


class LoginRules(NamedTuple):
    """Requirements of a listener that clients have to meet before anything else."""

    offers_tls: bool = False
    """Whether plain clients may change to TLS."""
    requires_tls: bool = False
    """Whether plain clients must change to TLS."""
    is_open: bool = False
    """Whether clients need no AUTH even if users are set up."""


NO_RULES: Final = LoginRules()


class NsqdLogin:
    """The login of one client: its user, and the routes that it may take."""

    def __init__(
        self, rules: LoginRules, services: Services, node: Node, connection: ConnectionHandle, intake: PublicationReader
    ) -> None:
        self.offers_tls, self.needs_tls = rules.offers_tls, rules.requires_tls
        self.needs_auth = False
        self.principal: Principal | None = None
        self._is_open = rules.is_open
        self._authenticator = services.authenticator
        self._node = node
        self._access = node.broker.access
        self._connection = connection
        self._intake = intake
        self._host = ""
        self._cancel_revoked: Callable[[], None] = ignore
        self._open_routes()

    def begin(self, host: str) -> None:
        """Note the client's address, and log in the user that is set for clients without AUTH, if there is one."""
        self._host = host
        principal = self._access.admit(is_open=self._is_open)
        self.needs_auth = principal is None
        if principal is not None:
            self.act_for(principal)
        else:
            self._open_routes()

    def act_for(self, principal: Principal) -> None:
        """Give the client the rights of this user, until the user loses them."""
        self._cancel_revoked()
        self.principal, self.needs_auth = principal, False
        self._cancel_revoked = principal.add_revoked_callback(self._connection.abort)
        intake = self._intake
        # also watch administrators, as they may lose that right later; without users nothing needs to be checked
        if principal.name:
            intake.use_routes(intake.publisher.user_routes.of(principal.name))
            intake.require_write = partial(self.require_right, "PUB", Right.WRITE)
        self._open_routes()

    async def check(self, secret: str) -> Principal:
        """Return the user whose secret AUTH sent, a token or ``name:password``. Raises LadingError if it is wrong."""
        name, colon, password = secret.partition(":")
        if colon:
            return await self._authenticator.log_in(name, password, self._host)
        return await self._authenticator.log_in_with_token(secret, self._host)

    def accept(self, login: Future[Principal]) -> bytes:
        """Log in the user that ``check`` has returned, and return the response.

        Raises NsqProtocolError if it has failed.
        """
        try:
            principal = login.result()
        except LadingError:
            # one text for unknown users and wrong passwords
            raise NsqProtocolError("E_AUTH_FAILED", "AUTH failed") from None
        count = self._access.count_rules(principal)
        if not count:
            raise NsqProtocolError("E_UNAUTHORIZED", "AUTH No authorizations found")
        self.act_for(principal)
        return commands.auth_answer(principal.name, count)

    def require_right(self, command: str, right: Right, topic: str) -> None:
        """Raise NsqProtocolError if the client lacks this right on a topic, whether or not the topic exists."""
        if not self._access.allows(self.principal, right, self._node.resource_of(topic)):
            raise NsqProtocolError("E_UNAUTHORIZED", f'AUTH failed for {command} on "{topic}"')

    def require_creation(self, command: str, topic: str) -> None:
        """Raise NsqProtocolError if a command would create a topic that the client may not create."""
        try:
            self._node.require_creation(self.principal, topic)
        except Refusal:
            raise NsqProtocolError("E_UNAUTHORIZED", f'AUTH failed for {command} on "{topic}"') from None

    def start_tls(self, responses: ResponseQueue) -> None:
        """Change to TLS after the last response. Raises NsqProtocolError if other responses are still due."""
        if not responses.is_empty:
            raise NsqProtocolError("E_INVALID", "cannot IDENTIFY with tls_v1 before publications are answered")
        self._connection.start_tls()
        self.leave_plain()

    def leave_plain(self) -> None:
        """Note that the connection is encrypted: commands that need TLS are allowed now."""
        self.offers_tls = self.needs_tls = False
        self._open_routes()

    def forget(self) -> None:
        """Stop watching for the end of the user's rights: the client has disconnected."""
        self._cancel_revoked()

    def _open_routes(self) -> None:
        """Look up known lines from now on, but not before TLS and AUTH: other clients' lines must not bypass them."""
        self.routes = _NO_ROUTES if self.needs_tls or self.needs_auth else self._intake.routes
