"""Users, personal access tokens and rules as one table, which is replaced as a whole and never changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from operator import attrgetter
from typing import Any, Final, Self

from ....model.errors import Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass
from ....runtime.turns import Turns, collect_in_turns, sort_in_turns
from .credentials import Credentials
from .quotas import Quota
from .rights import ANONYMOUS, EVERYBODY, NAME_CHARACTERS_MAX, AccessRule

_RULE_ORDER: Final = attrgetter("user", "kind", "pattern", "name", "operation", "denies")
"""The order of rules as a key: comparing the rules themselves takes ten times as long."""

PASSWORD_CHARACTERS_MAX = 1024


@lazy_dataclass(frozen=True, slots=True)
class User:
    """A user who may log in."""

    id: int
    """Ids count from 1; one is never assigned again."""
    name: str
    credentials: Credentials = field(repr=False)
    created_us: int
    """The date of the user's creation."""
    is_active: bool = True
    """Whether the user may log in."""
    is_administrator: bool = False
    """Whether the user may do everything, whatever the rules say."""

    def document(self) -> dict[str, Any]:
        """Return the user as JSON, with the credentials: for the file alone."""
        return {
            "id": self.id,
            "name": self.name,
            "credentials": self.credentials.document(),
            "created_us": self.created_us,
            "active": self.is_active,
            "administrator": self.is_administrator,
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Return the user of a ``document``; raises KeyError, TypeError or ValueError if it is invalid."""
        return cls(
            int(document["id"]), str(document["name"]), Credentials.parse(document["credentials"]),
            int(document["created_us"]), bool(document["active"]), bool(document["administrator"]),
        )  # fmt: skip


@lazy_dataclass(frozen=True, slots=True)
class Token:
    """A personal access token: its owner may log in with it instead of name and password."""

    owner: str
    name: str
    hash: str = field(repr=False)
    created_us: int
    ends_us: int | None
    """The date from which on it is refused; None: never."""

    def document(self) -> dict[str, Any]:
        """Return the token as JSON, with its hash: for the file alone."""
        return {
            "owner": self.owner,
            "name": self.name,
            "hash": self.hash,
            "created_us": self.created_us,
            "ends_us": self.ends_us,
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Return the token of a ``document``; raises KeyError, TypeError or ValueError if it is invalid."""
        ends_us = document["ends_us"]
        return cls(
            str(document["owner"]), str(document["name"]), str(document["hash"]), int(document["created_us"]),
            None if ends_us is None else int(ends_us),
        )  # fmt: skip


@lazy_dataclass(frozen=True, slots=True)
class AccessTable:
    """All users, tokens, rules and quotas at one time."""

    users: Mapping[str, User] = field(default_factory=dict)
    """Users by name."""
    tokens: Mapping[tuple[str, str], Token] = field(default_factory=dict)
    """Tokens by owner and name."""
    rules: Mapping[str, frozenset[AccessRule]] = field(default_factory=dict)
    """Rules by user."""
    next_id: int = 1
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """Quotas by user, and under EVERYBODY that of users without their own."""

    def user(self, name: str) -> User:
        """Return a user. Raises Refusal if no user has this name."""
        if (user := self.users.get(name)) is None:
            raise Refusal(Reason.USER_NOT_FOUND, f"user {name!r} does not exist; check the name, or create the user")
        return user

    def with_user(self, user: User) -> AccessTable:
        """Return the table with a user that is new or changed."""
        return self.with_users([user])

    def with_users(self, users: Collection[User]) -> AccessTable:
        """Return the table with users that are new or changed."""
        next_id = max([self.next_id, *(user.id + 1 for user in users)])
        return replace(self, users={**self.users, **{user.name: user for user in users}}, next_id=next_id)

    def without_user(self, name: str) -> AccessTable:
        """Return the table without a user, whose tokens, rules and quota go too: a later one of that name has none."""
        return replace(
            self,
            users={key: user for key, user in self.users.items() if key != name},
            tokens={key: token for key, token in self.tokens.items() if token.owner != name},
            rules={key: rules for key, rules in self.rules.items() if key != name},
            quotas={key: quota for key, quota in self.quotas.items() if key != name},
        )

    def with_token(self, token: Token) -> AccessTable:
        """Return the table with one more token."""
        return replace(self, tokens={**self.tokens, (token.owner, token.name): token})

    def without_token(self, owner: str, name: str) -> AccessTable:
        """Return the table without a token."""
        return replace(self, tokens={key: token for key, token in self.tokens.items() if key != (owner, name)})

    def with_rules(self, added: Iterable[AccessRule], removed: Iterable[AccessRule] = ()) -> AccessTable:
        """Return the table with rules added after others were removed."""
        changed: dict[str, set[AccessRule]] = {}

        def rules_of(user: str) -> set[AccessRule]:
            if user not in changed:
                changed[user] = set(self.rules.get(user, ()))
            return changed[user]

        for rule in removed:
            rules_of(rule.user).discard(rule)
        for rule in added:
            # an equal rule may be marked as implied: the last one counts
            rules_of(rule.user).discard(rule)
            rules_of(rule.user).add(rule)
        # other users keep their very sets, and what was made of them
        rules = {**self.rules, **{user: frozenset(found) for user, found in changed.items()}}
        return replace(self, rules={user: found for user, found in rules.items() if found})

    def with_quotas(self, quotas: Mapping[str, Quota]) -> AccessTable:
        """Return the table with other quotas for some users; an empty quota removes a user's."""
        kept = {name: quota for name, quota in {**self.quotas, **quotas}.items() if not quota.is_empty}
        return replace(self, quotas=kept)

    def quota_of(self, name: str) -> Quota | None:
        """Return the quota of a user, that of everybody if the user has none; strangers are ANONYMOUS."""
        return self.quotas.get(name or ANONYMOUS) or self.quotas.get(EVERYBODY)

    def with_name(self, name: str, new_name: str) -> AccessTable:
        """Return the table with another name for a user; everything else stays."""
        user = replace(self.users[name], name=new_name)
        tokens = [replace(one, owner=new_name) for one in self.tokens.values() if one.owner == name]
        rules = [replace(one, user=new_name) for one in self.rules.get(name, ())]
        table = self.without_user(name).with_user(user).with_rules(rules)
        if (quota := self.quotas.get(name)) is not None:
            table = table.with_quotas({new_name: quota})
        return replace(table, tokens={**table.tokens, **{(one.owner, one.name): one for one in tokens}})

    def all_rules(self) -> list[AccessRule]:
        """Return all rules, sorted."""
        return sorted((rule for rules in self.rules.values() for rule in rules), key=_RULE_ORDER)

    def sort_rules(self) -> Turns[list[AccessRule]]:
        """Return all rules, sorted in turns: comparing a hundred thousand takes a second."""
        rules = yield from collect_in_turns(rule for rules in self.rules.values() for rule in rules)
        return (yield from sort_in_turns(rules, _RULE_ORDER))

    def document(self) -> dict[str, Any]:
        """Return the table as JSON, for the file."""
        return {
            "next_id": self.next_id,
            "users": [user.document() for user in self.users.values()],
            "tokens": [token.document() for token in self.tokens.values()],
            "rules": [rule.document() for rule in self.all_rules()],
            "quotas": {name: quota.document() for name, quota in self.quotas.items()},
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> AccessTable:
        """Return the table of a ``document``; raises KeyError, TypeError or ValueError if it is invalid."""
        users = [User.parse(one) for one in document["users"]]
        tokens = [Token.parse(one) for one in document["tokens"]]
        table = cls(
            {user.name: user for user in users}, {(token.owner, token.name): token for token in tokens},
            next_id=int(document["next_id"]),
        )  # fmt: skip
        # version 1 has no quotas
        quotas = {str(name): Quota.parse(one) for name, one in document.get("quotas", {}).items()}
        return table.with_rules(AccessRule.parse(one) for one in document["rules"]).with_quotas(quotas)


def require_user_name(name: str) -> str:
    """Return a name for a new user. Raises Refusal if it cannot be one.

    A colon would end it in Basic authentication and in NSQ's AUTH, ``*`` and ANONYMOUS mean others in rules.
    """
    is_plain = name.isprintable() and not any(one.isspace() or one == ":" for one in name)
    if not is_plain or not 0 < len(name) <= NAME_CHARACTERS_MAX or name in (EVERYBODY, ANONYMOUS):
        raise Refusal(
            Reason.INVALID_USER_NAME,
            f"user name {name!r}: invalid; use 1 to {NAME_CHARACTERS_MAX} printable characters without spaces and "
            f"colons, and neither {EVERYBODY!r} nor {ANONYMOUS!r}",
        )
    return name


def require_quota_name(name: str) -> str:
    """Return the name of a quota: EVERYBODY, ANONYMOUS, or that of a user. Raises Refusal if no user can have it."""
    return name if name in (EVERYBODY, ANONYMOUS) else require_user_name(name)


def require_password(password: str) -> str:
    """Return a password for a user. Raises Refusal, which does not quote it, if it cannot be one."""
    if not 0 < len(password) <= PASSWORD_CHARACTERS_MAX or not _is_utf8(password) or "\0" in password:
        raise Refusal(
            Reason.INVALID_PASSWORD,
            f"password: invalid; use 1 to {PASSWORD_CHARACTERS_MAX} characters of UTF-8 without NUL",
        )
    return password


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
