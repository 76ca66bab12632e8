"""Who is connected over Iggy's binary protocol: what ``me``, ``client.get`` and ``client.list`` tell, on every face."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...dialects.iggy_classic.releases import UNTOLD, Release
from ...model.errors import Reason, Refusal
from ...settings import Address
from ..base.services import Services


@dataclass(slots=True, eq=False)
class Client:
    """A connection; ``id`` is the CRC-32 of ``address``, the peer's ``ip:port`` (iggy.md A1)."""

    address: str
    transport: int
    here: Address
    """Where it reached this broker."""
    release: Release = UNTOLD
    user: str | None = None
    """The name it has logged in with."""
    id: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = zlib.crc32(self.address.encode())


class Clients:
    """All connections by client id."""

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}

    def add(self, client: Client) -> bool:
        """Whether it is in now; False where another address with the same CRC-32 is connected."""
        return self._clients.setdefault(client.id, client) is client

    def remove(self, client: Client) -> None:
        """It has disconnected."""
        if self._clients.get(client.id) is client:
            del self._clients[client.id]

    def get(self, client_id: int) -> Client:
        """By id; Refusal where nobody has it."""
        client = self._clients.get(client_id)
        if client is None:
            raise Refusal(Reason.CLIENT_NOT_FOUND, f"no client with id {client_id} is connected")
        return client

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def __len__(self) -> int:
        return len(self._clients)


def clients_of(services: Services) -> Clients:
    """Return the connections of this process's services, which TCP and HTTP tell of; the same each time."""
    clients: Clients = services.shared.setdefault(Clients, Clients())
    return clients
