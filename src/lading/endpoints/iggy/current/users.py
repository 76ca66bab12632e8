"""Users and personal access tokens as the current Iggy's operations (iggy-current.md B6): one method for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ....dialects.iggy_classic import later_commands as later
from ....dialects.iggy_classic.permissions import Permissions
from ....dialects.iggy_classic.primitives import Identifier
from ....dialects.iggy_classic.responses import UserDetails, UserInfo
from ....dialects.iggy_current import options, responses
from ....dialects.iggy_current.options import Options
from ....dialects.iggy_current.versions import ProtocolVersion
from ....model.errors import Reason, Refusal
from ...base.services import Services
from ..users import users_of
from .blocks import NOTHING, Outcome
from .caller import FIRST_ID, CurrentCaller, from_wire, to_wire
from .topic_options import refuse_options

USER_CHANGES: Final = frozenset(
    {"create_user", "update_user", "delete_user", "change_password", "update_permissions",
     "create_personal_access_token", "delete_personal_access_token"}
)  # fmt: skip
"""Operations whose rights are asked for where the change is made."""


class CurrentUsers:
    """Answers the operations of users and tokens, which are views of the broker's users and rules."""

    def __init__(self, services: Services) -> None:
        self._users = users_of(services)

    def _user(self, caller: CurrentCaller, user: Identifier) -> Outcome:
        try:
            return _describe_user(caller.version, self._users.get(from_wire(user), caller.client, FIRST_ID))
        except Refusal as refusal:
            if refusal.reason is not Reason.USER_NOT_FOUND:
                raise
            return NOTHING

    def _list_users(self, caller: CurrentCaller) -> Outcome:
        return b"".join(_describe_user_alone(caller.version, one) for one in self._users.list_users(caller.client))

    async def _create_user(
        self,
        caller: CurrentCaller,
        username: str,
        password: str,
        status: int,
        permissions: Permissions | None,
        options: Options,
    ) -> bytes:
        refuse_options(options, "users")
        command = later.CreateUser(username, password, status, permissions)
        return _describe_user(caller.version, await self._users.change(command, caller.client, FIRST_ID))

    async def _update_user(
        self, caller: CurrentCaller, user: Identifier, username: str | None, status: int | None, options: Options
    ) -> bytes:
        refuse_options(options, "users")
        return await self._change_user(caller, later.UpdateUser(from_wire(user), username, status))

    async def _delete_user(self, caller: CurrentCaller, user: Identifier) -> bytes:
        return await self._change_user(caller, later.DeleteUser(from_wire(user)))

    async def _change_password(self, caller: CurrentCaller, user: Identifier, current: str, new: str) -> bytes:
        return await self._change_user(caller, later.ChangePassword(from_wire(user), current, new))

    async def _update_permissions(
        self, caller: CurrentCaller, user: Identifier, permissions: Permissions | None
    ) -> bytes:
        return await self._change_user(caller, later.UpdatePermissions(from_wire(user), permissions))

    async def _create_token(self, caller: CurrentCaller, name: str, expiry_us: int) -> bytes:
        command = later.CreateToken(name, None if expiry_us in (0, options.UNLIMITED) else expiry_us)
        token: str = (await self._users.change(command, caller.client, FIRST_ID)).token
        return bytes((len(token),)) + token.encode()

    async def _delete_token(self, caller: CurrentCaller, name: str) -> bytes:
        return await self._change_user(caller, later.DeleteToken(name))

    async def _change_user(self, caller: CurrentCaller, command: object) -> bytes:
        await self._users.change(command, caller.client, FIRST_ID)
        return NOTHING

    def _tokens(self, caller: CurrentCaller) -> Outcome:
        return b"".join(responses.token_block(one.name, one.ends_us) for one in self._users.tokens(caller.client))


def _describe_user_alone(version: ProtocolVersion, user: UserInfo) -> bytes:
    return responses.user_block(to_wire(user.id), user.created_us, user.status, user.name, version)


def _describe_user(version: ProtocolVersion, found: UserDetails) -> bytes:
    return _describe_user_alone(version, found.user) + responses.permissions_block(found.permissions)


USER_HANDLERS: Final[Mapping[str, Callable[..., Outcome]]] = {
    "get_user": CurrentUsers._user,
    "get_users": CurrentUsers._list_users,
    "create_user": CurrentUsers._create_user,
    "update_user": CurrentUsers._update_user,
    "delete_user": CurrentUsers._delete_user,
    "change_password": CurrentUsers._change_password,
    "update_permissions": CurrentUsers._update_permissions,
    "create_personal_access_token": CurrentUsers._create_token,
    "delete_personal_access_token": CurrentUsers._delete_token,
    "get_personal_access_tokens": CurrentUsers._tokens,
}
"""The method of each operation."""
