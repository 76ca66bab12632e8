"""``lading user``, ``token`` and ``acl``, from the first user to the last right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading import testing
from lading.model.errors import SettingError
from lading.settings.loading import load

from .conftest import Run


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    """Its own: users close it for others."""
    with testing.broker() as running:
        yield running


@pytest.mark.turns(2, part=1)
def test_from_the_first_user_to_rights(lading: Run, tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text("the root's password\n")
    lading("topic", "create", "orders-1")
    refused = lading("user", "add", "ann", "--password-file", "-", stdin="ann's password\n", code=2)
    assert "the first user must be an administrator" in refused.stderr
    lading("user", "add", "root", "--admin", "--password-file", str(word))
    assert "needs a login" in lading("topic", "list", code=2).stderr
    token = lading("token", "create", "cli", "--user", "root", "--password-file", str(word)).stdout.strip()
    root = {"LADING_TOKEN": token}
    lading("user", "add", "ann", "--password-file", "-", stdin="ann's password\n", **root)
    made = lading("token", "create", "ci", "--user", "ann", "--days", "1", **root)
    ann = {"LADING_TOKEN": made.stdout.strip()}
    assert "orders-1" not in lading("topic", "list", **ann).stdout
    lading("acl", "add", "ann", "read", "orders-*", **root)
    assert "orders-1" in lading("topic", "list", **ann).stdout
    assert "orders-*" in lading("acl", "list", **ann).stdout
    assert "may not write" in lading("message", "send", "orders-1", "x", code=2, **ann).stderr
    lading("acl", "delete", "ann", "read", "orders-*", **root)
    assert "this rule does not exist" in lading("acl", "delete", "ann", "read", "orders-*", code=2, **root).stderr
    listed = lading("user", "list", "-o", "json", **root).stdout
    assert [row["name"] for row in map(json.loads, listed.splitlines())] == ["root", "ann"]
    assert "no quota" not in lading("user", "quota", **root).stdout
    lading("user", "quota", "ann", "--send", "10MB", "--requests", "25%", **root)
    lading("user", "quota", "ann", "--read", "1MiB", "--requests", "none", **root)
    printed = lading("user", "quota", "ann", **root).stdout
    assert "10 MB/s" in printed and "1 MB/s" in printed
    shown = json.loads(lading("user", "quota", "ann", "-o", "json", **root).stdout)
    assert shown == {"user": "ann", "producer_byte_rate": 1e7, "consumer_byte_rate": 1048576.0}
    assert "which user" in lading("user", "quota", "--send", "1MB", code=2, **root).stderr
    assert "may not" in lading("user", "quota", "ann", "--send", "none", code=2, **ann).stderr
    lading("user", "password", "ann", "--password-file", "-", stdin="another\n", **root)
    lading("token", "delete", "ci", "--user", "ann", **root)
    assert "not valid" in lading("topic", "list", code=2, **ann).stderr
    lading("user", "delete", "ann", "--yes", **root)
    assert "only administrator" in lading("user", "delete", "root", "--yes", code=2, **root).stderr


def test_a_rule_or_quota_for_nobody_is_noted(lading: Run) -> None:
    """Rightly so for names that a token issuer gives; without one it is a typo."""
    with testing.broker() as own:
        server = {"LADING_SERVER": own.url}
        lading("user", "add", "root", "--admin", "--password-file", "-", stdin="a long password\n", **server)
        made = lading(
            "token", "create", "t", "--user", "root", "--password-file", "-", stdin="a long password\n", **server
        )
        root = {**server, "LADING_TOKEN": made.stdout.strip()}
        for command in (("acl", "add", "rot", "read", "x"), ("user", "quota", "rot", "--send", "1MB")):
            said = lading(*command, **root).stderr
            assert "user 'rot' does not exist here (did you mean 'root'?)" in said
            assert "lading user add rot" in said
        for name in ("root", "*"):
            assert "does not exist" not in lading("acl", "add", name, "read", "x", **root).stderr
            assert "does not exist" not in lading("user", "quota", name, "--send", "1MB", **root).stderr


def test_a_password_is_no_argument(lading: Run) -> None:
    assert "cannot ask for a password" in lading("user", "add", "eve", code=2).stderr
    assert "is empty" in lading("user", "add", "eve", "--password-file", "-", stdin="\n", code=2).stderr


@pytest.mark.turns(2, part=0)
def test_users_of_a_directory_without_a_broker(lading: Run, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    open_address = {"endpoints.admin.address": "0.0.0.0:0"}
    sets = [f"{key}={value}" for key, value in {**open_address, "data": data}.items()]
    with pytest.raises(SettingError, match="lading user add NAME --admin"):
        load(sets=sets)
    lading("user", "add", "root", "--admin", "--data", data, "--password-file", "-", stdin="root's\n")
    # an endpoint that asks for a login may leave loopback; one whose protocol has none may not
    load(sets=sets)
    with pytest.raises(SettingError, match="allow_unauthenticated=true, or listen"):
        load(sets=[*sets, "endpoints.nsqlookupd_tcp.address=0.0.0.0:0"])
    assert "root" in lading("user", "list", "--data", data).stdout
    assert "is in use by" in lading("user", "list", "--data", str(broker.data_dir), code=2).stderr
