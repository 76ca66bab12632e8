"""The whole tree of commands: help for each argument and option, and what is the same for all of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from lading import testing
from lading.cli.app import build_app
from lading.cli.main import main
from tests import forked_command

from .conftest import Run, documents

READING = (
    "console", "headers", "topic list", "topic show", "message poll", "message tail", "contract infer", "ingest", "sql",
    "profile", "spool", "dead-letters list", "tables",
)  # fmt: skip


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


COMMANDS = dict(commands(get_command(build_app())))


def test_each_argument_and_option_has_help() -> None:
    without = [
        f"{path} {option.name}"
        for path, command in COMMANDS.items()
        for option in command.params
        if not getattr(option, "hidden", False) and not (getattr(option, "help", None) or "").strip()
    ]
    assert without == []
    assert len(COMMANDS) > 40


def test_help_ends_with_a_full_stop() -> None:
    for path, command in COMMANDS.items():
        for option in command.params:
            assert (getattr(option, "help", None) or ".").endswith("."), (path, option.name)


def test_server_is_understood_everywhere_and_output_is_the_same() -> None:
    for path, command in COMMANDS.items():
        options = {name: option for option in command.params for name in option.opts}
        # --server of a redrive is where letters are sent, and --from of a range is its begin
        if "--from" in options and path not in ("dead-letters redrive", "pipeline replace"):
            assert path in READING
            assert options["--server"] is options["--from"] and options["-s"] is options["-f"]
        if "--output" in options:
            assert options["-o"] is options["--output"]
            # without a value on the command line all have the same one
            assert options["-o"].default == "text"


def test_plurals(lading: Run) -> None:
    assert lading("topic", "create", "one").stderr == "created topic one with 1 partition\n"
    assert lading("topic", "create", "two", "-p", "2").stderr == "created topic two with 2 partitions\n"
    assert lading("message", "send", "one", "x").stderr == "sent 1 message to one\n"
    assert lading("message", "poll", "one").stderr.splitlines()[-1] == "1 message"
    assert lading("message", "poll", "two").stderr.startswith("0 messages; nothing")


def test_sizes_are_numbers_in_json(lading: Run) -> None:
    lading("message", "send", "sized", "x" * 1000)
    (row,) = [row for row in documents(lading("topic", "list", "-o", "json")) if row["name"] == "sized"]
    (shown,) = documents(lading("topic", "show", "sized", "-o", "json"))
    assert row["size_bytes"] == shown["size_bytes"] > 1000
    assert "kB" in lading("topic", "list").stdout


def leaves(table: dict[str, Any]) -> list[str]:
    """The names of all that is set in a TOML file."""
    inner = [name for value in table.values() if isinstance(value, dict) for name in leaves(value)]
    return [*inner, *(name for name, value in table.items() if not isinstance(value, dict))]


def test_config_init_writes_what_serve_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object) -> int:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        return int(ended.value.code or 0)

    file = tmp_path / "lading.toml"
    assert run("config", "init", file) == 0
    assert leaves(tomllib.loads(file.read_text())) == []
    assert run("config", "init", file) == 2
    assert "exists and is not overwritten" in capsys.readouterr().err
    file.write_text(file.read_text().replace("# segment_bytes", "segment_bytes"))
    assert run("config", "show", "--config", file, "--origin", "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["setting"] for row in rows.values() if row["origin"] != "default"} == {"log.segment_bytes"}


@pytest.mark.turns(2, part=1)
def test_a_profile_names_server_and_login(broker: testing.BrokerProcess, process: Run, tmp_path: Path) -> None:
    place = tmp_path / "lading" / "profiles.toml"
    said = process("--profile", "here", "topic", "list", code=2, XDG_CONFIG_HOME=str(tmp_path)).stderr
    assert f"{place} does not exist" in said
    place.parent.mkdir()
    place.write_text(
        f'[here]\nserver = "{broker.url}"\ntoken_file = "token"\n[bad]\ntoken = "x"\n[worse]\nsever = "x"\n'
    )
    place.with_name("token").write_text("t")
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "LADING_SERVER": "lading://127.0.0.1:1"}
    process("--profile", "here", "topic", "create", "by-profile", **environment)
    # the login of the environment is another server's
    listed = process("topic", "list", **environment, LADING_PROFILE="here", LADING_TOKEN="another")
    assert "by-profile" in listed.stdout
    for name, says in (("her", "did you mean 'here'"), ("bad", "token_file"), ("worse", "did you mean 'server'")):
        assert says in process("--profile", name, "topic", "list", code=2, **environment).stderr


@pytest.mark.turns(2, part=0)
def test_set_counts_more_than_free_ports(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    taken = f"endpoints.kafka.address={broker.endpoints['kafka']}"
    command = [sys.executable, "-m", "lading.cli.main", "serve", "--data", str(tmp_path / "data"), "--free-ports"]
    refused = forked_command.run([*command, "--set", taken], timeout=60)
    assert refused.returncode == 2 and "endpoints.kafka.address" in refused.stderr


def test_addresses_of_file_and_environment_count_more_than_free_ports(
    process: Run, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    serve = ("serve", "--data", str(tmp_path / "data"), "--free-ports")
    taken = broker.endpoints["kafka"]
    (tmp_path / "lading.toml").write_text(f'[endpoints.kafka]\naddress = "{taken}"\n')
    refused = process(*serve, "--config", str(tmp_path / "lading.toml"), code=2)
    assert taken in refused.stderr and "endpoints.kafka.address" in refused.stderr
    refused = process(*serve, code=2, LADING__ENDPOINTS__KAFKA__ADDRESS=taken)
    assert taken in refused.stderr and "endpoints.kafka.address" in refused.stderr


def test_a_profile_without_quotes_is_named(process: Run, tmp_path: Path) -> None:
    (tmp_path / "lading").mkdir()
    (tmp_path / "lading" / "profiles.toml").write_text("[here]\nserver = lading://127.0.0.1:7070\n")
    refused = process("--profile", "here", "topic", "list", code=2, XDG_CONFIG_HOME=str(tmp_path))
    assert 'text needs quotes: server = "…"' in refused.stderr


def test_the_version_is_shown_by_each_way_in(process: Run) -> None:
    said = process("--version").stdout
    assert re.search(r"\d+\.\d+\.\d+", said) and process("-V").stdout == said
    module = subprocess.run([sys.executable, "-m", "lading", "-V"], capture_output=True, text=True, timeout=60)
    assert (module.returncode, module.stdout) == (0, said)
