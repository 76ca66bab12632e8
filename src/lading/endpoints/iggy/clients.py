"""Clients connected over Iggy's binary protocol, as ``me``, ``client.get`` and ``client.list`` show them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...dialects.iggy.classic.releases import UNTOLD, Release
from ...model.errors import Reason, Refusal
from ...settings.settings import Address
from ..base.services import Services

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal


@dataclass(slots=True, eq=False)
class Client:
    """A connection; ``id`` is the CRC-32 of ``address``, the peer's ``ip:port`` (iggy.md A1), or the next free one."""

    address: str
    transport: int
    here: Address
    """Address at which it reached this broker."""
    release: Release = UNTOLD
    releases: tuple[Release, ...] = ()
    """The releases that the client may have; the login leaves some open, and later requests narrow them down."""
    user: str | None = None
    """The name it has logged in with."""
    principal: Principal | None = None
    """The user of the client; None before the login."""
    secret: str | None = field(default=None, repr=False)
    """The password of its login, while no users are set up: the client that creates the first user becomes a user by
    it."""
    abort: Callable[[], None] | None = None
    """Ends the connection when its user is deleted, made inactive, or loses the token."""
    _cancel: Callable[[], None] | None = None
    id: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = zlib.crc32(self.address.encode())

    def log_in(self, principal: Principal | None, name: str | None, secret: str | None = None) -> None:
        """Remember the user the client has logged in as, and have ``abort`` called if the login is revoked."""
        self.forget_login()
        self.principal, self.user, self.secret = principal, name, secret
        if principal is not None and self.abort is not None:
            self._cancel = principal.add_revoked_callback(self.abort)

    def forget_login(self) -> None:
        """Stop watching the login: its revocation does not end the connection any more."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    @property
    def user_id(self) -> int:
        """Return the user id that others see, counted from 1; 0 if it has not logged in."""
        if self.user is None:
            return 0
        return self.principal.user_id if self.principal is not None and self.principal.user_id else 1


class Clients:
    """All connections by client id."""

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}

    def add(self, client: Client) -> None:
        """Add a connection; if its id is taken, it gets the next free one.

        A peer may use one port for connections to several endpoints, or again before its last connection has ended.
        """
        # skip 0: requests may not name a client 0
        while client.id in self._clients or not client.id:
            client.id = (client.id + 1) & 0xFFFF_FFFF
        self._clients[client.id] = client

    def remove(self, client: Client) -> None:
        """Remove a connection that has ended."""
        if self._clients.get(client.id) is client:
            del self._clients[client.id]

    def get(self, client_id: int) -> Client:
        """Return the connection with this id. Raises Refusal if no connection has it."""
        client = self._clients.get(client_id)
        if client is None:
            raise Refusal(Reason.CLIENT_NOT_FOUND, f"no client with id {client_id} is connected; list the clients")
        return client

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def __len__(self) -> int:
        return len(self._clients)


def clients_of(services: Services) -> Clients:
    """Return the connections of this process's services, which TCP and HTTP list; the same object each time."""
    clients: Clients = services.shared.setdefault(Clients, Clients())
    return clients
