"""A list without rows says so in a sentence and how the first one comes, instead of a table of headings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lading import testing
from lading.cli.main import main


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with testing.broker() as broker:
        yield broker.url


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("command", "sentence", "remedy"),
    [
        ("group list", "there are no groups", "--group"),
        ("acl list", "there are no rules", "lading acl add"),
        ("user list", "there are no users", "lading user add"),
        ("user quota", "no user has a quota", "lading user quota"),
        ("topic list", "there are no topics", "lading topic create"),
    ],
)
def test_an_empty_list_is_a_sentence(
    command: str,
    sentence: str,
    remedy: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LADING_SERVER", url)
    with pytest.raises(SystemExit) as left:
        main(command.split())
    said = capsys.readouterr()
    assert not left.value.code
    assert said.out == ""
    assert said.err.startswith(sentence) and remedy in said.err and said.err.count("\n") == 1
    with pytest.raises(SystemExit):
        main([*command.split(), "--output", "json"])
    assert tuple(capsys.readouterr()) == ("", "")
