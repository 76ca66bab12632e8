"""Users, personal access tokens and permissions as Iggy's clients have them: a view of ``broker.core.access``.

While no users are set up, every client counts as one user with all rights, under the name that it gives. The client
that creates the first user becomes the administrator, with the name and password of its own login: Iggy's clients rely
on a root user, and nobody else could change users then. From then on every client has to log in.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from ...broker.core.access.rights import Resource, ResourceKind, Right
from ...dialects.iggy.classic import later_commands as later
from ...dialects.iggy.classic import responses as r
from ...dialects.iggy.classic.permissions import ALL, Permissions
from ...dialects.iggy.classic.primitives import Identifier
from ...model.errors import Reason, Refusal
from ...runtime.turns import TurnCounter, Turns, collect_in_turns, finish_in_turns
from ..base.services import Services, now_us
from .permissions import to_permissions, to_rules
from .rights import login_refusal

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal
    from ...broker.core.access.rights import AccessRule
    from ...broker.core.access.users import User
    from .clients import Client

ROOT_NAME: Final = "iggy"
ROOT_ID: Final = 1
"""The id of the first user, and of every client while no users exist; the current generation counts from 0."""
ACTIVE, INACTIVE = 1, 2
NAME_BYTES_MIN, NAME_BYTES_MAX = 3, 50
PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX = 3, 100
TOKEN_NAME_BYTES_MIN, TOKEN_NAME_BYTES_MAX = 3, 30
"""Limits of Iggy's servers (iggy-current.md B6)."""
_USERS: Final = Resource(ResourceKind.USER, "*")


class IggyUsers:
    """Handles commands about users; one for all listeners. Ids are counted from 1, those in permissions as the client
    gives them.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._topology = services.broker.topology
        self._access = services.broker.access
        self._change = services.authenticator.change

    # -- list users

    def list_users(self, client: Client | None) -> Turns[list[r.UserInfo]]:
        """Return all users that the caller may see."""
        users = self._access.table.users.values()
        if not users:
            return [self._describe_operator(client)]
        principal, turn = None if client is None else client.principal, TurnCounter()
        visible = []
        for user in users:
            if _is_own(principal, user) or self._access.allows(
                principal, Right.DESCRIBE, Resource(ResourceKind.USER, user.name)
            ):
                visible.append(_describe_user(user))
            if turn.is_over():
                yield
        return visible

    def get(self, ident: Identifier, client: Client | None, first_id: int) -> Turns[r.UserDetails]:
        """Return one user; a caller may always see itself. Raises Refusal if the user does not exist."""
        if not self._access.is_enabled:
            only = self._describe_operator(client)
            if ident not in (only.id, only.name, ROOT_NAME):
                raise Refusal(
                    Reason.USER_NOT_FOUND, f"user {ident!r} does not exist: no users are set up; add a user first"
                )
            return r.UserDetails(only, ALL)
        self._require_logged_in(client)
        user = self._find(ident, client, Right.DESCRIBE, is_own_free=True)
        return (yield from self._describe_details(user, first_id))

    def _describe_operator(self, client: Client | None) -> r.UserInfo:
        name = ROOT_NAME if client is None or client.user is None else client.user
        started_us = int(self._services.process.figures().start_time_s * 1_000_000)
        return r.UserInfo(ROOT_ID, started_us, ACTIVE, name)

    def _describe_details(self, user: User, first_id: int) -> Turns[r.UserDetails]:
        if user.is_administrator:
            return r.UserDetails(_describe_user(user), ALL)
        rules = self._access.table.rules.get(user.name, ())
        return r.UserDetails(_describe_user(user), (yield from to_permissions(rules, self._topology, first_id)))

    def _find(self, ident: Identifier, client: Client | None, right: Right, *, is_own_free: bool = False) -> User:
        """Return a user if the caller has ``right`` on all users and on this one.

        With ``is_own_free`` callers need no right for their own user; it is never set for changes of rights. Raises the
        same Refusal for a missing user and for one that the caller may not see.
        """
        principal = None if client is None else client.principal
        found = self._access.find_user(ident)
        if not (is_own_free and found is not None and _is_own(principal, found)):
            self._access.require(principal, right, _USERS)
            name = found.name if found is not None else ident if isinstance(ident, str) else ""
            # a rule about one user may deny what another rule allows for all
            self._access.require(principal, right, Resource(ResourceKind.USER, name), _USERS.name)
            if found is not None and found.is_administrator and right is Right.ADMINISTRATE:
                self._require_administrator(principal, found)
        if found is None:
            raise Refusal(Reason.USER_NOT_FOUND, f"user {ident!r} does not exist; check the name, or create the user")
        return found

    def _require_logged_in(self, client: Client | None) -> None:
        if self._access.is_enabled and (client is None or client.principal is None):
            raise login_refusal()

    def _require_administrator(self, principal: Principal | None, user: User) -> None:
        """Raise Refusal for an administrator unless the caller is one too: the right to manage users must not give
        more.
        """
        if not self._access.is_administrator(principal):
            raise Refusal(Reason.UNAUTHORIZED, f"user {user.name!r} is an administrator; only another may change it")

    # -- changes

    async def change(self, command: Any, client: Client | None, first_id: int) -> Any:
        """Carry out one of ``USER_COMMANDS``; returns its result or None. Raises Refusal."""
        self._require_logged_in(client)
        match command:
            case later.CreateUser():
                return await self._create(command, client, first_id)
            case later.DeleteUser():
                await self._change(self._access.delete_user(self._find(command.user, client, Right.ADMINISTRATE).name))
            case later.UpdateUser():
                await self._update(command, client)
            case later.UpdatePermissions():
                user = self._find(command.user, client, Right.ADMINISTRATE)
                await self._set_permissions(user, command.permissions, first_id)
            case later.ChangePassword():
                await self._change_password(command, client)
            case later.CreateToken():
                return await self._create_token(command, client)
            case _:
                await self._change(self._access.delete_token(self._require_login(client), command.name))
        return None

    async def _create(self, command: later.CreateUser, client: Client | None, first_id: int) -> r.UserDetails:
        _require_size(command.name, NAME_BYTES_MIN, NAME_BYTES_MAX, Reason.INVALID_USER_NAME, "user name")
        _require_password(command.password)
        if not self._access.is_enabled:
            await self._create_root(command.name, client)
        principal = None if client is None else client.principal
        self._access.require(principal, Right.ADMINISTRATE, _USERS)
        self._access.require(principal, Right.ADMINISTRATE, Resource(ResourceKind.USER, command.name), _USERS.name)
        user = await self._change(
            self._access.add_user(command.name, command.password, now_us=now_us(), is_active=command.status == ACTIVE)
        )
        await self._set_permissions(user, command.permissions, first_id)
        return await finish_in_turns(self._describe_details(user, first_id))

    async def _create_root(self, name: str, client: Client | None) -> None:
        """Make the caller the administrator, with the name and password of its login."""
        if client is None or client.user is None or client.secret is None:
            raise Refusal(
                Reason.LAST_ADMINISTRATOR,
                f"user {name!r}: the first user has to be an administrator; log in with the name and password that it "
                "is to have, then create others",
            )
        if client.user == name:
            raise Refusal(
                Reason.USER_EXISTS, f"user {name!r} is the one that is logged in; log in as another administrator"
            )
        # this connection continues as the administrator; all others end, and have to log in
        client.forget_login()
        try:
            change = self._access.add_user(client.user, client.secret, now_us=now_us(), is_administrator=True)
            user = await self._change(change)
        except BaseException:
            client.log_in(self._access.admit(is_open=False), client.user, client.secret)
            raise
        client.log_in(self._access.accept(user.name), user.name)

    async def _set_permissions(self, user: User, permissions: Permissions | None, first_id: int) -> None:
        if user.is_administrator:
            raise Refusal(
                Reason.ADMINISTRATOR_RIGHTS,
                f"user {user.name!r} is an administrator and may do everything; leave its permissions out",
            )
        wanted = await finish_in_turns(to_rules(user.name, permissions, self._topology, first_id))
        held = self._access.table.rules.get(user.name, frozenset())
        added, removed = await finish_in_turns(_compare_rules(held, wanted))
        if added or removed:
            # in one change: at every moment either the old or the new rights are in effect
            await self._change(self._access.change_rules(added, removed))

    async def _update(self, command: later.UpdateUser, client: Client | None) -> None:
        user = self._find(command.user, client, Right.ADMINISTRATE)
        if command.name is not None:
            _require_size(command.name, NAME_BYTES_MIN, NAME_BYTES_MAX, Reason.INVALID_USER_NAME, "user name")
        is_active = None if command.status is None else command.status == ACTIVE
        await self._change(self._access.change_user(user.name, new_name=command.name, is_active=is_active))

    async def _change_password(self, command: later.ChangePassword, client: Client | None) -> None:
        user = self._find(command.user, client, Right.ADMINISTRATE, is_own_free=True)
        _require_password(command.new)
        # the caller has to give the old password too, even an administrator, as with Iggy
        host = "" if client is None else client.address.rpartition(":")[0]
        await self._services.authenticator.log_in(user.name, command.current, host)
        await self._change(self._access.set_password(user.name, command.new))

    async def _create_token(self, command: later.CreateToken, client: Client | None) -> r.RawToken:
        _require_size(command.name, TOKEN_NAME_BYTES_MIN, TOKEN_NAME_BYTES_MAX, Reason.INVALID_TOKEN_NAME, "token name")
        owner = self._require_login(client)
        ends_us = None if command.expiry_us is None else now_us() + command.expiry_us
        _, secret = await self._change(self._access.add_token(owner, command.name, ends_us, now_us=now_us()))
        return r.RawToken(secret)

    def list_tokens(self, client: Client | None) -> Turns[list[r.TokenInfo]]:
        """Return the personal access tokens of the caller."""
        if not self._access.is_enabled:
            return []
        owner = self._require_login(client)
        turn, tokens = TurnCounter(), []
        for token in self._access.table.tokens.values():
            if token.owner == owner:
                tokens.append(r.TokenInfo(token.name, token.ends_us or 0))
            if turn.is_over():
                yield
        return tokens

    def _require_login(self, client: Client | None) -> str:
        """Return the caller's name; Refusal unless the caller is a user."""
        principal = None if client is None else client.principal
        if principal is None or not principal.user_id:
            raise Refusal(
                Reason.FEATURE_UNAVAILABLE if not self._access.is_enabled else Reason.UNAUTHENTICATED,
                "an access token needs a user: create one, then log in",
            )
        return principal.name


def users_of(services: Services) -> IggyUsers:
    """Return the handler of commands about users, shared by all listeners."""
    users: IggyUsers = services.shared.setdefault(IggyUsers, IggyUsers(services))
    return users


def _compare_rules(
    held: Collection[AccessRule], wanted: Collection[AccessRule]
) -> Turns[tuple[list[AccessRule], list[AccessRule]]]:
    """Return the rules to add and those to remove, in turns: a user may have a rule for each of 100,000 topics."""
    kept = yield from collect_in_turns((rule, rule.is_implied) for rule in held)
    turn, added, removed = TurnCounter(), [], []
    for rule in wanted:
        if (rule, rule.is_implied) not in kept:
            added.append(rule)
        if turn.is_over():
            yield
    for rule in held:
        if rule not in wanted:
            removed.append(rule)
        if turn.is_over():
            yield
    return added, removed


def _is_own(principal: Principal | None, user: User) -> bool:
    return principal is not None and principal.user_id == user.id


def _describe_user(user: User) -> r.UserInfo:
    return r.UserInfo(user.id, user.created_us, ACTIVE if user.is_active else INACTIVE, user.name)


def _require_password(password: str) -> None:
    _require_size(password, PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX, Reason.INVALID_PASSWORD, "password")


def _require_size(text: str, least: int, most: int, reason: Reason, what: str) -> None:
    size_bytes = len(text.encode(errors="replace"))
    if not least <= size_bytes <= most:
        raise Refusal(reason, f"{what}: {size_bytes} bytes; Iggy takes {least} to {most}")
