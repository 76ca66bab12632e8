"""A broker with users: what tests of logins and rights begin with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.broker.core.access import credentials
from lading.broker.core.access.rights import AccessRule, PatternKind, ResourceKind, Right
from lading.broker.core.change import complete
from lading.runtime.clock import now_us
from lading.serve.serve import open_access

PASSWORDS = {"root": "the root's päss:word", "ann": "ann's password", "bob": "bob's password"}
"""``root`` is an administrator, the others have what rules give them."""


def rule(
    user: str, right: Right, name: str, *, kind: ResourceKind = ResourceKind.TOPIC, denies: bool = False
) -> AccessRule:
    """A rule as the command line writes it: ``*`` is all, ``name*`` a prefix."""
    if name == "*":
        return AccessRule(user, kind, PatternKind.ANY, "*", right, denies)
    if name.endswith("*"):
        return AccessRule(user, kind, PatternKind.PREFIX, name[:-1], right, denies)
    return AccessRule(user, kind, PatternKind.LITERAL, name, right, denies)


def add_users(data: Path, rules: Sequence[AccessRule] = (), others: Sequence[str] = ()) -> dict[str, str]:
    """Add the users with less work for their hashes, and a token ``test`` for each; returns the tokens.

    ``others`` have the password ``password``.
    """
    with pytest.MonkeyPatch.context() as less, open_access(data) as access:
        less.setattr(credentials, "SCRYPT_LOG2_N", 4)
        less.setattr(credentials, "SCRAM_ITERATIONS", 4096)
        tokens = {}
        for name, password in (PASSWORDS | dict.fromkeys(others, "password")).items():
            complete(access.add_user(name, password, now_us=now_us(), is_administrator=name == "root"))
            tokens[name] = complete(access.add_token(name, "test", None, now_us=now_us()))[1]
        complete(access.change_rules(rules))
    return tokens


@contextmanager
def broker_with_users(
    data: Path,
    rules: Sequence[AccessRule] = (),
    settings: Mapping[str, Any] | None = None,
    others: Sequence[str] = (),
) -> Iterator[tuple[testing.BrokerProcess, dict[str, str]]]:
    """A broker on a new directory, and the tokens of its users."""
    tokens = add_users(data, rules, others)
    with testing.broker(data, settings=settings) as running:
        yield running, tokens
