"""Users, tokens and rules: what they allow, how long they last, and what is kept of them."""

from __future__ import annotations

import hashlib
import hmac
import json
import stat
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lading.broker.core.access import credentials as credentials_module
from lading.broker.core.access.access import AccessControl, RuleIndex
from lading.broker.core.access.credentials import check_password, make_credentials, make_verifier
from lading.broker.core.access.principal import Principal
from lading.broker.core.access.rights import (
    ANONYMOUS,
    CLUSTER,
    EVERYBODY,
    AccessRule,
    PatternKind,
    Resource,
    ResourceKind,
    Right,
    rules_allow,
    topic_resource,
)
from lading.broker.core.change import Change, complete
from lading.log.access_file import AccessFile
from lading.model.errors import CorruptLog, NewerFormat, Reason, Refusal
from lading.runtime.clock import Dates
from tests.broker.room import NOW, SECOND, opened

ORDERS = topic_resource("default", "orders")
PASSWORD = "a password that nobody guesses"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real hashes with less work; one test below has them as they are."""
    monkeypatch.setattr(credentials_module, "SCRYPT_LOG2_N", 4)
    monkeypatch.setattr(credentials_module, "SCRAM_ITERATIONS", 4096)


def access_in(path: Path) -> AccessControl:
    return AccessControl(AccessFile(path), Dates())


def with_users(path: Path) -> AccessControl:
    access = access_in(path)
    complete(access.add_user("root", PASSWORD, now_us=NOW, is_administrator=True))
    complete(access.add_user("ann", PASSWORD, now_us=NOW))
    return access


def rule(
    kind: ResourceKind,
    pattern: PatternKind,
    name: str,
    operation: Right,
    user: str = "ann",
    *,
    denies: bool = False,
) -> AccessRule:
    return AccessRule(user, kind, pattern, name, operation, denies)


def topics(pattern: PatternKind, name: str, operation: Right, user: str = "ann", *, denies: bool = False) -> AccessRule:
    return rule(ResourceKind.TOPIC, pattern, name, operation, user, denies=denies)


def allowed(access: AccessControl, *rules: AccessRule, resource: Resource = ORDERS, name: str = "ann") -> set[str]:
    """Every operation that the rules allow."""
    complete(access.change_rules(rules, access.table.all_rules()))
    principal = access.vouch(name)
    return {one for one in Right if one is not Right.ALL and access.allows(principal, one, resource)}


def test_without_users_everybody_may_do_everything(tmp_path: Path) -> None:
    access = access_in(tmp_path)
    principal = access.admit(is_open=False)
    assert access.allows(principal, Right.ADMINISTRATE, ORDERS)
    assert not (tmp_path / "access.json").exists()


def test_an_implied_rule_is_the_rule_itself_and_stays_marked(tmp_path: Path) -> None:
    """One rule with or without the mark: added again it takes the new mark, and deleting either deletes it."""
    access = with_users(tmp_path)
    plain = topics(PatternKind.LITERAL, "orders", Right.READ)
    implied = replace(plain, is_implied=True)
    assert allowed(access, implied) == {Right.READ, Right.DESCRIBE, Right.DESCRIBE_CONFIGS}
    assert access.table.all_rules()[0].is_implied and access_in(tmp_path).table.all_rules()[0].is_implied
    complete(access.change_rules([plain]))
    assert [(rule, rule.is_implied) for rule in access.table.all_rules()] == [(plain, False)]
    assert access_in(tmp_path).table.all_rules()[0].document() == plain.document()
    complete(access.change_rules([implied]))
    complete(access.change_rules([], [plain]))
    assert access.table.all_rules() == []


def test_with_users_a_stranger_may_nothing(tmp_path: Path) -> None:
    access = access_in(tmp_path)
    before = access.admit(is_open=False)
    assert before is not None
    lost: list[str] = []
    before.add_revoked_callback(lambda: lost.append("before"))
    complete(access.add_user("root", PASSWORD, now_us=NOW, is_administrator=True))
    assert lost == ["before"]
    assert access.admit(is_open=False) is None
    assert not access.allows(before, Right.DESCRIBE, ORDERS)
    assert not access.allows(None, Right.DESCRIBE, ORDERS)
    stranger = access.admit(is_open=True)
    assert stranger is not None and stranger.name == ANONYMOUS
    assert not access.allows(stranger, Right.DESCRIBE, ORDERS)
    complete(access.change_rules([topics(PatternKind.LITERAL, "orders", Right.READ, EVERYBODY)]))
    assert access.allows(stranger, Right.READ, ORDERS)


@pytest.mark.parametrize(
    ("pattern", "name", "covered", "others"),
    [
        (PatternKind.LITERAL, "orders", ["default/orders"], ["default/orders2", "s/orders"]),
        (PatternKind.PREFIX, "ord", ["default/orders", "ord/x"], ["default/or", "s/orders"]),
        (PatternKind.ANY, "*", ["default/orders", "s/t"], []),
        (PatternKind.LITERAL, "s.t", ["s/t"], ["s/tt", "default/t"]),
        # a flat name does not say where its stream ends; this pattern does
        (PatternKind.IN_STREAM, "a", ["a/b.c"], ["a.b/c", "default/a"]),
    ],
)
def test_patterns_of_topics(
    tmp_path: Path, pattern: PatternKind, name: str, covered: list[str], others: list[str]
) -> None:
    one = topics(pattern, name, Right.READ)
    for text in covered:
        assert one.covers(topic_resource(*text.split("/"))), text
    for text in others:
        assert not one.covers(topic_resource(*text.split("/"))), text


def test_operations_as_kafka_implies_them(tmp_path: Path) -> None:
    access = with_users(tmp_path)
    literal = PatternKind.LITERAL
    assert allowed(access) == set()
    known = {"describe", "describe_configs"}
    assert allowed(access, topics(literal, "orders", Right.READ)) == {"read", *known}
    assert allowed(access, topics(literal, "orders", Right.WRITE)) == {"write", *known}
    assert allowed(access, topics(literal, "orders", Right.DESCRIBE)) == known
    parts = {"alter", "delete", "alter_configs"}
    administrate = topics(literal, "orders", Right.ADMINISTRATE)
    assert allowed(access, administrate) == {"administrate", "create", *parts, *known}
    assert allowed(access, topics(literal, "orders", Right.DESCRIBE_CONFIGS)) == {"describe_configs"}
    assert allowed(access, topics(literal, "orders", Right.ALTER_CONFIGS)) == {"alter_configs", "describe_configs"}
    for part in (Right.ALTER, Right.DELETE):
        assert allowed(access, topics(literal, "orders", part)) == {part, *known}
        # who is forbidden a part has the others, and not the whole
        left = allowed(access, administrate, topics(literal, "orders", part, denies=True))
        assert left == {"create", *parts, *known} - {part}
    left = allowed(access, topics(literal, "orders", Right.ALL), replace(administrate, denies=True))
    assert left == {"read", "write", "create", *known}
    everything = topics(literal, "orders", Right.ALL)
    assert len(allowed(access, everything)) == 9
    assert "read" not in allowed(access, everything, topics(literal, "orders", Right.READ, denies=True))
    assert allowed(access, everything, topics(PatternKind.ANY, "*", Right.ALL, EVERYBODY, denies=True)) == set()
    # to create on the cluster is to create any topic (Kafka: Create on Cluster)
    create = rule(ResourceKind.CLUSTER, literal, "cluster", Right.CREATE)
    assert allowed(access, create) == {"create"}
    assert allowed(access, create, resource=Resource(ResourceKind.GROUP, "g")) == set()
    assert "describe" in allowed(access, create, resource=CLUSTER)
    assert len(allowed(access, name="root")) == 9


def test_rights_on_a_stream_hold_for_its_topics(tmp_path: Path) -> None:
    access = with_users(tmp_path)
    manage = rule(ResourceKind.STREAM, PatternKind.LITERAL, "s", Right.ADMINISTRATE)
    assert "administrate" in allowed(access, manage, resource=topic_resource("s", "t"))
    assert "administrate" in allowed(access, manage, resource=Resource(ResourceKind.STREAM, "s"))
    assert allowed(access, manage, resource=topic_resource("default", "s")) == set()
    of_topics = topics(PatternKind.IN_STREAM, "s", Right.ADMINISTRATE)
    assert allowed(access, of_topics, resource=Resource(ResourceKind.STREAM, "s")) == set()


def test_everything_is_there_after_a_start(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    routes = broker.topology.version
    complete(broker.access.add_user("root", PASSWORD, now_us=NOW, is_administrator=True))
    complete(broker.access.add_user("ann", PASSWORD, now_us=NOW))
    complete(broker.access.change_rules([topics(PatternKind.PREFIX, "o", Right.READ)]))
    _, secret = complete(broker.access.add_token("ann", "ci", None, now_us=NOW))
    # what routes remember was looked up before the rights changed
    assert broker.topology.version > routes
    table = broker.access.table
    broker.stop()
    assert stat.S_IMODE((tmp_path / "access.json").stat().st_mode) == 0o600
    kept = (tmp_path / "access.json").read_text()
    assert PASSWORD not in kept and secret not in kept
    assert PASSWORD not in repr(table) and table.user("ann").credentials.scrypt not in repr(table)
    broker = opened(tmp_path)
    assert broker.access.table == table
    ann = broker.access.accept_token(secret, NOW)
    assert (ann.name, ann.token) == ("ann", "ci")
    assert broker.access.allows(ann, Right.READ, ORDERS)
    assert check_password(broker.access.credentials("ann"), PASSWORD)
    broker.stop()


def test_a_deleted_user_has_nothing_at_once(tmp_path: Path) -> None:
    access = with_users(tmp_path)
    complete(access.change_rules([topics(PatternKind.ANY, "*", Right.ALL)]))
    _, secret = complete(access.add_token("ann", "ci", None, now_us=NOW))
    ended: list[str] = []
    by_password, by_token, root = access.accept("ann"), access.accept_token(secret, NOW), access.accept("root")
    for name, principal in {"password": by_password, "token": by_token, "root": root}.items():
        principal.add_revoked_callback(lambda name=name: ended.append(name))  # type: ignore[misc]
    complete(access.delete_token("ann", "ci"))
    assert ended == ["token"] and not access.allows(by_token, Right.READ, ORDERS)
    assert access.allows(by_password, Right.READ, ORDERS)
    complete(access.delete_user("ann"))
    assert ended == ["token", "password"] and not access.allows(by_password, Right.READ, ORDERS)
    # a later user of that name is another one
    complete(access.add_user("ann", PASSWORD, now_us=NOW))
    assert access.table.user("ann").id == 3
    assert allowed(access) == set() and not access.allows(by_password, Right.DESCRIBE, ORDERS)
    with pytest.raises(Refusal):
        access.accept_token(secret, NOW)


def test_inactive_and_renamed_users(tmp_path: Path) -> None:
    access = with_users(tmp_path)
    complete(access.change_rules([topics(PatternKind.ANY, "*", Right.READ)]))
    _, secret = complete(access.add_token("ann", "ci", None, now_us=NOW))
    complete(access.change_user("ann", new_name="anna"))
    assert access.accept_token(secret, NOW).name == "anna"
    assert access.allows(access.accept("anna"), Right.READ, ORDERS)
    complete(access.change_user("anna", is_active=False))
    attempts: list[Callable[[], Principal]] = [
        lambda: access.accept("anna"),
        lambda: access.accept_token(secret, NOW),
        lambda: access.vouch("anna"),
    ]
    for attempt in attempts:
        with pytest.raises(Refusal) as refused:
            attempt()
        assert refused.value.reason is Reason.USER_INACTIVE


def test_there_is_always_an_administrator(tmp_path: Path) -> None:
    access = access_in(tmp_path)

    def require_refused(change: Change[Any]) -> None:
        with pytest.raises(Refusal) as refused:
            complete(change)
        assert refused.value.reason is Reason.LAST_ADMINISTRATOR

    require_refused(access.add_user("ann", PASSWORD, now_us=NOW))
    complete(access.add_user("root", PASSWORD, now_us=NOW, is_administrator=True))
    require_refused(access.delete_user("root"))
    require_refused(access.change_user("root", is_active=False))
    require_refused(access.change_user("root", is_administrator=False))


def test_a_token_ends_with_its_connections(tmp_path: Path) -> None:
    access = with_users(tmp_path)
    _, secret = complete(access.add_token("ann", "ci", NOW + SECOND, now_us=NOW))
    principal = access.accept_token(secret, NOW)
    ended: list[bool] = []
    principal.add_revoked_callback(lambda: ended.append(True))
    assert access.due_us == NOW + SECOND
    access.tick(NOW + SECOND - 1)
    assert not ended
    access.tick(NOW + SECOND)
    assert ended == [True] and principal.is_revoked
    with pytest.raises(Refusal) as refused:
        access.accept_token(secret, NOW + SECOND)
    assert refused.value.reason is Reason.TOKEN_EXPIRED


@pytest.mark.parametrize("name", ["", "a b", "a:b", "*", ANONYMOUS, "a\n", "x" * 256])
def test_names_that_no_user_may_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refusal) as refused:
        complete(access_in(tmp_path).add_user(name, PASSWORD, now_us=NOW, is_administrator=True))
    assert refused.value.reason is Reason.INVALID_USER_NAME


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    access = with_users(tmp_path)
    (tmp_path / "access.json.tmp").mkdir()
    before = access.table
    with pytest.raises(Refusal, match="cannot be changed"):
        complete(access.delete_user("ann"))
    assert access.table is before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": "1"}'])
def test_a_damaged_file_opens_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "access.json").write_text(text)
    with pytest.raises(CorruptLog, match=r"access\.json is damaged"):
        access_in(tmp_path)


def test_a_later_file_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with_users(tmp_path)
    document = json.loads((tmp_path / "access.json").read_text())
    (tmp_path / "access.json").write_text(json.dumps({**document, "version": 12}))
    with pytest.raises(NewerFormat, match=r"access\.json was written by a later Lading"):
        opened(tmp_path)
    assert not (tmp_path / "catalog.sqlite").exists()


def test_scram_verifiers_are_those_of_the_rfc() -> None:
    """RFC 7677 section 3: user ``user``, password ``pencil``; the keys that its example ends with."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = make_verifier("SCRAM-SHA-256", hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096), salt, 4096)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(verifier.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == verifier.stored_key
    server_signature = hmac.digest(verifier.server_key, message, "sha256")
    assert server_signature == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_passwords_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    kept = make_credentials("pässword")
    assert kept.scrypt.startswith("14$8$5$")
    assert check_password(kept, "pässword") and not check_password(kept, "passwort")
    # whose password came by way of SCRAM logs in with it everywhere
    only = credentials_module.Credentials("", {"SCRAM-SHA-512": kept.scram["SCRAM-SHA-512"]})
    assert check_password(only, "pässword") and not check_password(only, "passwort")
    assert not check_password(credentials_module.Credentials(), "")


def test_unknown_users_look_like_others_to_scram(tmp_path: Path) -> None:
    access = with_users(tmp_path)
    one, again = (access.scram_verifier("nobody", "SCRAM-SHA-256") for _ in range(2))
    other = access.scram_verifier("someone", "SCRAM-SHA-256")
    assert one.salt == again.salt != other.salt
    known = access.scram_verifier("ann", "SCRAM-SHA-256")
    assert (len(one.salt), len(one.stored_key)) == (len(known.salt), len(known.stored_key))


def test_an_index_of_rules_says_what_all_rules_say() -> None:
    random = Random(4)
    names = ("cluster", "a", "ab", "abc", "b", "b.a", "b.ab", "*")
    allowed_count = 0
    for _ in range(150):
        rules = list[AccessRule]()
        while len(rules) < 12:
            kind, pattern = random.choice(list(ResourceKind)), random.choice(list(PatternKind))
            operation, denies = random.choice(list(Right)), random.random() < 0.3
            with suppress(Refusal):
                rules.append(AccessRule("ann", kind, pattern, random.choice(names), operation, denies))
        for _ in range(60):
            resource = Resource(random.choice(list(ResourceKind)), random.choice(names), random.choice(("a", "b", "")))
            operation = random.choice([right for right in Right if right is not Right.ALL])
            expected = rules_allow(rules, operation, resource)
            assert rules_allow(RuleIndex(rules).find(resource), operation, resource) is expected
            allowed_count += expected
    assert 1000 < allowed_count < 8000


def test_a_request_looks_at_few_of_many_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rules of a user were put together, and looked at, for each row of a request."""
    access = with_users(tmp_path)
    rules = [
        AccessRule("ann", ResourceKind.TOPIC, PatternKind.LITERAL, f"t{number}", right)
        for number in range(2000)
        for right in (Right.READ, Right.WRITE)
    ]
    complete(access.change_rules(rules))
    covers, calls = AccessRule.covers, [0]

    def count(rule: AccessRule, resource: Resource) -> bool:
        calls[0] += 1
        return covers(rule, resource)

    monkeypatch.setattr(AccessRule, "covers", count)
    ann = access.vouch("ann")
    assert [access.allows(ann, Right.WRITE, topic_resource("default", name)) for name in ("t7", "u7")] == [True, False]
    assert calls[0] <= 4
    complete(access.change_rules([], rules))
    assert not access.allows(ann, Right.WRITE, topic_resource("default", "t7"))
