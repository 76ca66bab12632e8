"""Logins to Iggy's endpoints: without users every client on this machine is let in; with users only users and tokens
are.
"""

from __future__ import annotations

from ...broker.core.access.principal import Principal
from ...model.errors import Reason, Refusal
from ..base.services import Services
from .clients import Client
from .users import ROOT_ID, ROOT_NAME


class Logins:
    """Checks logins of one listener.

    ``is_open``: clients of other machines are let in while no users are set up. ``admits_strangers``: clients that have
    not logged in are let in once there are users.
    """

    def __init__(self, services: Services, *, is_open: bool, admits_strangers: bool) -> None:
        self._access = services.broker.access
        self._authenticator = services.authenticator
        self._is_open = is_open
        self._admits_strangers = admits_strangers

    def admit(self) -> Principal | None:
        """Return the principal of a client that has not logged in; None if it has to."""
        return self._access.admit(is_open=self._admits_strangers)

    def try_at_once(self, client: Client, name: str, password: str) -> bool:
        """Log a client in without a check, if no users are set up; return False if its password has to be checked.

        Raises Refusal if it comes from another machine, unless the listener is open to all.
        """
        if self._access.is_enabled:
            return False
        if not (self._is_open or client.here.loopback):
            raise Refusal(
                Reason.UNAUTHENTICATED, "no users are set up: only clients on this machine may log in; add a user first"
            )
        client.log_in(self._access.admit(is_open=False), name or ROOT_NAME, password)
        return True

    async def log_in(self, client: Client, name: str, password: str) -> None:
        """Log a client in by name and password. Raises Refusal."""
        if self.try_at_once(client, name, password):
            return
        principal = await self._authenticator.log_in(name, password, _host_of(client))
        client.log_in(principal, principal.name)

    async def log_in_with_token(self, client: Client, token: str) -> None:
        """Log a client in by a personal access token. Raises Refusal for an invalid one; while no users are set up, all
        are.
        """
        if not self._access.is_enabled and self.try_at_once(client, ROOT_NAME, ""):
            client.secret = None
            return
        principal = await self._authenticator.log_in_with_token(token, _host_of(client))
        client.log_in(principal, principal.name)


def user_id_of(client: Client) -> int:
    """Return the user id for the response to a login, counted from 1."""
    return client.user_id or ROOT_ID


def _host_of(client: Client) -> str:
    return client.address.rpartition(":")[0]
