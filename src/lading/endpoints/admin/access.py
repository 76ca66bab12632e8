"""Admin: users, access tokens and rules. Passwords come in bodies only, and nothing secret goes out but a new token."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.quotas import Quota
from ...broker.core.access.rights import CLUSTER, EVERYBODY, AccessRule, PatternKind, Resource, ResourceKind, Right
from ...broker.core.access.users import Token, User
from ...model.errors import Reason, Refusal
from ...runtime.clock import date_us
from ...runtime.turns import finish_in_turns, map_in_turns
from ..base.services import Services, now_us
from ..http_shared.documents import ROWS_MAX, RequestModel, answer_rows, json_response, parse_body, parse_rows
from ..http_shared.http_guard import principal_of
from ..http_shared.routing import HttpRoute, Parameters

_USER: Final = "/users/{user}"
_TOKEN: Final = "/users/{user}/tokens/{token}"
ANY_USER: Final = Resource(ResourceKind.USER, "*")
"""To change rules is to change those of any user."""


class NewUser(RequestModel):
    """POST /users/{user}"""

    password: str
    administrator: bool = False
    active: bool = True


class UserChange(RequestModel):
    """PUT /users/{user}: what changes."""

    password: str | None = None
    administrator: bool | None = None
    active: bool | None = None


class NewToken(RequestModel):
    """POST /users/{user}/tokens/{token}"""

    days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """Days until it expires; null means never."""


class RuleDocument(RequestModel):
    """One access rule."""

    user: str
    kind: str
    pattern: str
    name: str
    operation: str
    denies: bool = False
    implied: bool = False


RuleRows = Annotated[list[Any], Field(max_length=ROWS_MAX)]
"""Each a RuleDocument; see ``parse_rows``. As dictionaries all would be copied in one pass of the loop."""


class RulesChange(RequestModel):
    """POST /rules"""

    add: RuleRows = Field(default_factory=list)
    delete: RuleRows = Field(default_factory=list)


class QuotaDocument(RequestModel):
    """PUT /quotas/{user}: all of a user's quota; what is not named is not bounded."""

    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None
    request_percentage: float | None = None


class AdminAccess:
    """Handlers of users, tokens, rules and quotas."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = services.broker.access
        self._change = services.authenticator.change

    def routes(self) -> list[HttpRoute]:
        """Return the routes of users, tokens and rules.

        Every user may call those without a ``right`` for its own account: to see it, to change its password, and to
        manage its tokens.
        """
        return [
            HttpRoute("GET", "/me", "me", self._show_caller, right=None),
            HttpRoute("GET", "/users", "users.list", self._list_users, right=None),
            HttpRoute("POST", _USER, "user.create", self._add_user, right=Right.CREATE, resource=_user_in_path),
            HttpRoute("PUT", _USER, "user.alter", self._change_user, right=None),
            HttpRoute("DELETE", _USER, "user.delete", self._delete_user, resource=_user_in_path),
            HttpRoute("GET", f"{_USER}/tokens", "tokens.list", self._list_tokens, right=None),
            HttpRoute("POST", _TOKEN, "token.create", self._add_token, right=None),
            HttpRoute("DELETE", _TOKEN, "token.delete", self._delete_token, right=None),
            HttpRoute("GET", "/rules", "rules.list", self._list_rules, right=None),
            HttpRoute("POST", "/rules", "rules.change", self._change_rules, resource=lambda request, path: ANY_USER),
            HttpRoute("GET", "/quotas", "quotas.list", self._list_quotas, right=None),
            HttpRoute("PUT", "/quotas/{user}", "quota.set", self._set_quota),
        ]

    async def _list_quotas(self, request: Request, path: Parameters) -> Response:
        may_see_all = self._access.allows(principal_of(request), Right.DESCRIBE, CLUSTER)
        own = getattr(principal_of(request), "name", None)

        def describe(row: tuple[str, Quota]) -> dict[str, Any] | None:
            name, quota = row
            return {"user": name, **quota.document()} if may_see_all or name in (own, EVERYBODY) else None

        return await answer_rows(self._access.table.quotas.items(), describe, self._services.requests)

    async def _set_quota(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(QuotaDocument, request, self._services.receive)
        quota = Quota(**wanted.model_dump())
        await self._change(self._access.set_quotas({path["user"]: quota}))
        return json_response({"user": path["user"], **quota.document()})

    async def _show_caller(self, request: Request, path: Parameters) -> Response:
        """Return the caller's name, empty without users and for a token of the settings."""
        principal = principal_of(request)
        return json_response(
            {
                "name": "" if principal is None else principal.name,
                "administrator": self._access.is_administrator(principal),
                "has_users": self._access.is_enabled,
            }
        )

    async def _list_users(self, request: Request, path: Parameters) -> Response:
        def describe(user: User) -> dict[str, Any] | None:
            return _describe_user(user) if self._may_change(request, user.name, Right.DESCRIBE) else None

        return await answer_rows(self._access.table.users.values(), describe, self._services.requests)

    async def _add_user(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(NewUser, request, self._services.receive)
        if wanted.administrator:
            self._require_administrator(request)
        user = await self._change(
            self._access.add_user(
                path["user"], wanted.password, now_us=now_us(), is_administrator=wanted.administrator,
                is_active=wanted.active,
            )
        )  # fmt: skip
        return json_response(_describe_user(user), 201)

    async def _change_user(self, request: Request, path: Parameters) -> Response:
        wanted, name = await parse_body(UserChange, request, self._services.receive), path["user"]
        self._require(request, name, is_own=wanted.administrator is None and wanted.active is None)
        if wanted.administrator is not None or self._is_administrator(name):
            self._require_administrator(request)
        if wanted.password is not None:
            await self._change(self._access.set_password(name, wanted.password))
        change = self._access.change_user(name, is_active=wanted.active, is_administrator=wanted.administrator)
        return json_response(_describe_user(await self._change(change)))

    async def _delete_user(self, request: Request, path: Parameters) -> Response:
        if self._is_administrator(path["user"]):
            self._require_administrator(request)
        await self._change(self._access.delete_user(path["user"]))
        return Response(status_code=204)

    async def _list_tokens(self, request: Request, path: Parameters) -> Response:
        self._require(request, path["user"], is_own=True, right=Right.DESCRIBE)
        self._access.table.user(path["user"])

        def describe(token: Token) -> dict[str, Any] | None:
            return _describe_token(token) if token.owner == path["user"] else None

        return await answer_rows(self._access.table.tokens.values(), describe, self._services.requests)

    async def _add_token(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(NewToken, request, self._services.receive)
        self._require(request, path["user"], is_own=True)
        if self._is_administrator(path["user"]):
            # whoever has the token is the user
            self._require_administrator(request)
        ends_us = None if wanted.days is None else date_us() + int(wanted.days * 86_400e6)
        change = self._access.add_token(path["user"], path["token"], ends_us, now_us=now_us())
        token, secret = await self._change(change)
        return json_response(_describe_token(token) | {"token": secret}, 201)

    async def _delete_token(self, request: Request, path: Parameters) -> Response:
        self._require(request, path["user"], is_own=True)
        if self._is_administrator(path["user"]):
            self._require_administrator(request)
        await self._change(self._access.delete_token(path["user"], path["token"]))
        return Response(status_code=204)

    async def _list_rules(self, request: Request, path: Parameters) -> Response:
        def describe(rule: AccessRule) -> dict[str, Any] | None:
            return rule.document() if self._may_change(request, rule.user, Right.DESCRIBE) else None

        rules = await finish_in_turns(self._access.table.sort_rules())
        return await answer_rows(rules, describe, self._services.requests)

    async def _change_rules(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(RulesChange, request, self._services.receive)
        rows = {name: await parse_rows(RuleDocument, getattr(wanted, name), name) for name in ("add", "delete")}
        added, removed = await map_in_turns(_parse_rule, rows["add"]), await map_in_turns(_parse_rule, rows["delete"])
        await self._change(self._access.change_rules(added, removed))
        return Response(status_code=204)

    # -- rights on users

    def _may_change(self, request: Request, name: str, right: Right) -> bool:
        principal = principal_of(request)
        is_own = principal is not None and principal.name == name
        return is_own or self._access.allows(principal, right, Resource(ResourceKind.USER, name))

    def _require(self, request: Request, name: str, *, is_own: bool, right: Right = Right.ADMINISTRATE) -> None:
        principal = principal_of(request)
        if not (is_own and principal is not None and principal.user_id and principal.name == name):
            self._access.require(principal, right, Resource(ResourceKind.USER, name))

    def _is_administrator(self, name: str) -> bool:
        user = self._access.table.users.get(name)
        return user is not None and user.is_administrator

    def _require_administrator(self, request: Request) -> None:
        """Raise Refusal unless the caller is an administrator: only one may create, change or delete another."""
        principal = principal_of(request)
        if not self._access.is_administrator(principal):
            raise Refusal(Reason.UNAUTHORIZED, "only an administrator may do this with an administrator; ask one")


def _user_in_path(request: Request, path: Parameters) -> Resource:
    return Resource(ResourceKind.USER, path["user"])


def _describe_user(user: User) -> dict[str, Any]:
    return {
        "id": user.id,
        "name": user.name,
        "administrator": user.is_administrator,
        "active": user.is_active,
        "created_us": user.created_us,
    }


def _describe_token(token: Token) -> dict[str, Any]:
    return {"user": token.owner, "name": token.name, "created_us": token.created_us, "ends_us": token.ends_us}


def _parse_rule(document: RuleDocument) -> AccessRule:
    for kind, value in ((ResourceKind, document.kind), (PatternKind, document.pattern), (Right, document.operation)):
        if value not in kind._value2member_map_:
            raise Refusal(Reason.INVALID_RULE, f"rule: {value!r} is none of {', '.join(kind)}")
    return AccessRule.parse(document.model_dump())
