"""Secrets by reference: ``${VARIABLE}``, a file, a variable, a command; and that none is shown."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from lading.cli.main import main
from lading.cli.profiles import use_profile, use_transport_options
from lading.model.errors import LocalError, SettingError
from lading.pipeline.run import source_options
from lading.pipeline.settings import PipelineSettings
from lading.transports.open import open_transport
from lading.transports.secrets import expand_variables, read_references, run_secret_command

HIDDEN = "correct-horse"
PIPELINE = """
[source]
from = "kafka://127.0.0.1:1"
topic = "flights"
transport = {{ username = "me", {} }}

[good]
to = "parquet:./tables/flights"
"""


def command(code: str) -> str:
    return f'{sys.executable} -c "{code}"'


@pytest.mark.parametrize("ending", ["", "_file", "_env", "_command"])
def test_each_way_gives_the_secret(ending: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{HIDDEN}\n")
    ways = {"": HIDDEN, "_file": str(file), "_env": "SECRET", "_command": command(f"print('{HIDDEN}')")}
    found = read_references({f"password{ending}": ways[ending]}, ["password"], {"SECRET": HIDDEN})
    assert found == {"password": HIDDEN}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"password_env": "LADING_TEST_UNSET"}, "the variable 'LADING_TEST_UNSET' is not set"),
        ({"password_file": "/missing"}, "password_file '/missing': No such file"),
        ({"password_command": "/missing --key correct-horse"}, "'/missing' cannot be run: No such file"),
        ({"password_command": command("raise SystemExit('correct-horse')")}, "failed with exit code 1; run it to see"),
        ({"password_command": command("pass")}, "printed nothing"),
        ({"password_command": "say 'correct-horse"}, "not a command"),
        ({"password": HIDDEN, "password_env": "HOME"}, "password and password_env are both given"),
        ({"token_command": "x"}, "did you mean oauth_token_command"),
    ],
)
def test_a_secret_that_is_not_there(options: dict[str, str], told: str) -> None:
    with pytest.raises(SettingError, match=told) as error:
        open_transport("kafka://h", username="u", **options)
    assert HIDDEN not in str(error.value)


def test_commands_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading.transports.secrets.COMMAND_TIMEOUT_S", 0.1)
    with pytest.raises(SettingError, match="did not end within"):
        run_secret_command("token_command", "sleep 5")


def test_variables_of_a_file() -> None:
    given = {"username": "u-${ZONE}", "password": "${SECRET}", "token_env": "SECRET", "retries": 3}
    found = expand_variables(given, "here", {"ZONE": "eu", "SECRET": HIDDEN})
    assert found == {"username": "u-eu", "password": HIDDEN, "token": HIDDEN, "retries": 3}
    with pytest.raises(SettingError, match=re.escape("here.password: the variable 'SECRET' is not set")):
        expand_variables(given, "here", {"ZONE": "eu"})


def _pipeline(tmp_path: Path, options: str) -> PipelineSettings:
    file = tmp_path / "flights.toml"
    file.write_text(PIPELINE.format(options))
    return PipelineSettings.load(file)


def test_a_pipeline_warns_of_a_secret_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADING_TEST_SECRET", HIDDEN)
    settings = _pipeline(tmp_path, f'password = "{HIDDEN}"')
    [sentence] = settings.clear_secrets
    assert "source.transport.password is in the file in clear text" in sentence and HIDDEN not in sentence
    for options in ('password = "${LADING_TEST_SECRET}"', 'password_env = "LADING_TEST_SECRET"'):
        settings = _pipeline(tmp_path, options)
        assert not list(settings.clear_secrets)
        read = source_options(settings, settings.document.source[0])
        assert read.transport == {"username": "me", "password": HIDDEN}
        assert HIDDEN not in repr(read) + repr(settings.document)


def test_no_error_of_a_pipeline_shows_a_secret(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"source\.transport\.password cannot be what it is") as error:
        _pipeline(tmp_path, f'password = ["{HIDDEN}"]')
    assert HIDDEN not in str(error.value)


def test_profiles_name_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"XDG_CONFIG_HOME": str(tmp_path), "SECRET": HIDDEN})
    file = tmp_path / "lading" / "profiles.toml"
    file.parent.mkdir()
    file.write_text('[a]\npassword = "${SECRET}"\n[b]\ntoken_command = "get-token"\n[c]\npassword = "correct-horse"\n')
    use_profile("a")
    assert os.environ["LADING_PASSWORD"] == HIDDEN
    use_profile("b")
    assert os.environ["LADING_TOKEN_COMMAND"] == "get-token" and "LADING_PASSWORD" not in os.environ
    with pytest.raises(LocalError, match="put the password into a file") as error:
        use_profile("c")
    assert HIDDEN not in str(error.value)
    use_transport_options(["token_env=SECRET", "username=me"])
    assert os.environ["LADING_TOKEN_ENV"] == "SECRET" and "LADING_TOKEN_COMMAND" not in os.environ


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("password=correct-horse", "seen by everybody on this machine"),
        ("usrname=me", "did you mean 'username'"),
        ("timeout_s=3", r"lading://host:7070\?timeout_s="),
    ],
)
def test_the_command_line_takes_no_secret(given: str, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--transport", given, "topic", "list"])
    said = capfd.readouterr().err
    assert ended.value.code == 2 and re.search(told, said) and HIDDEN not in said
