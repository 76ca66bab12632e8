"""Users, tokens, rules and quotas of a broker, over its admin endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .http import AdminHttp


class UserAdministration:
    """Requests about users, within the rights of the caller."""

    def __init__(self, http: AdminHttp) -> None:
        self._http = http

    def log_in(self, name: str, password: str) -> None:
        """Send the requests from now on as this user, instead of with a token."""
        self._http.log_in(name, password)

    def act_for(self, name: str) -> None:
        """Send the requests from now on with the rights of this user; the token has to be an administrator's."""
        self._http.act_for(name)

    def me(self) -> dict[str, Any]:
        """Return the caller's ``name``, whether it is an ``administrator``, and whether the broker ``has_users``."""
        document: dict[str, Any] = self._http.get("me").fields()
        return document

    def users(self) -> list[dict[str, Any]]:
        """Return the ``id``, ``name``, ``administrator``, ``active`` and ``created_us`` of each user."""
        rows: list[dict[str, Any]] = self._http.get("users").rows()
        return rows

    def add_user(self, name: str, password: str, *, administrator: bool = False) -> None:
        """Add a user; the first one is an administrator."""
        document = {"password": password, "administrator": administrator}
        self._http.request("POST", "users", name, again=False, document=document)

    def set_password(self, name: str, password: str) -> None:
        """Change a user's password."""
        self._http.request("PUT", "users", name, again=False, document={"password": password})

    def delete_user(self, name: str) -> None:
        """Delete a user with its tokens and rules."""
        self._http.request("DELETE", "users", name, again=False)

    def tokens(self, user: str) -> list[dict[str, Any]]:
        """Return the ``name``, ``created_us`` and ``ends_us`` of each access token of a user."""
        rows: list[dict[str, Any]] = self._http.get("users", user, "tokens").rows()
        return rows

    def add_token(self, user: str, name: str, days: float | None = None) -> str:
        """Add an access token, which is not shown again; it expires after ``days``, or never."""
        answer = self._http.request("POST", "users", user, "tokens", name, again=False, document={"days": days})
        return str(answer.fields()["token"])

    def delete_token(self, user: str, name: str) -> None:
        """Delete an access token."""
        self._http.request("DELETE", "users", user, "tokens", name, again=False)

    def rules(self) -> list[dict[str, Any]]:
        """Return the ``user``, ``kind``, ``pattern``, ``name``, ``operation`` and ``denies`` of each rule."""
        rows: list[dict[str, Any]] = self._http.get("rules").rows()
        return rows

    def change_rules(self, add: Sequence[dict[str, Any]] = (), delete: Sequence[dict[str, Any]] = ()) -> None:
        """Delete rules, then add some."""
        self._http.request("POST", "rules", again=True, document={"add": list(add), "delete": list(delete)})

    def quotas(self) -> list[dict[str, Any]]:
        """Return the ``user`` of each quota, ``*`` for that of all others, and its limits."""
        rows: list[dict[str, Any]] = self._http.get("quotas").rows()
        return rows

    def set_quota(self, user: str, quota: dict[str, float]) -> None:
        """Replace a user's quota; an empty one has no limits."""
        self._http.request("PUT", "quotas", user, again=True, document=quota)
