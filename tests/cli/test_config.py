"""``lading config show`` prints a settings file: what it says is what ``--config`` reads."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from lading.cli.main import main
from lading.settings.loading import load


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["config", "show", *arguments])
    assert not ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("origin", [(), ("--origin",)])
def test_what_is_shown_is_a_settings_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, origin: tuple[str, ...]
) -> None:
    sets = ("--set", "durability=os", "--set", "endpoints.admin.address=127.0.0.1:0", "--set", 'data=./a "b" ż')
    text = shown(capsys, *origin, *sets)
    document = tomllib.loads(text)
    assert (document["durability"], document["endpoints"]["admin"]["address"]) == ("os", "127.0.0.1:0")
    file = tmp_path / "lading.toml"
    file.write_text(text)
    again, first = load(file, (), {}).settings, load(None, sets[1::2], {}).settings
    assert again == first
    assert json.loads(shown(capsys, *sets, "--output", "json"))["durability"] == "os"
    assert ("# --set" in text) == bool(origin)
    assert "admin.address" not in text, "keys stand in their tables"


def test_tokens_are_never_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "lading.toml"
    file.write_text('[endpoints.admin]\ntoken = "s3cret-word"\n')
    for more in ((), ("--origin",), ("--output", "json"), ("--output", "json", "--origin")):
        assert "s3cret-word" not in shown(capsys, "--config", str(file), *more)
    text = shown(capsys, "--config", str(file))
    assert "# token is set and not shown" in text
    assert "token" not in tomllib.loads(text)["endpoints"]["admin"]
