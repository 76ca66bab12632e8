"""A walk over every command and option, from the command line's own table: what holds for one holds for all."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lading import Producer, testing
from lading.cli.main import COMPLETION, main
from lading.model.headers import Headers
from lading.transports.lading.transport import LadingTransport
from tests.case_turns import choose_part

from .command_lines import ROOT, find_command, list_options, split_commands
from .conftest import Run
from .test_tree import COMMANDS

VERBS = frozenset(
    ("Add", "Allow", "Back", "Build", "Change", "Check", "Compare", "Consume", "Copy", "Count", "Create", "Delete",
     "Follow", "Give", "Have", "Infer", "Inspect", "List", "Make", "Manage", "Profile", "Read", "Replace", "Restore",
     "Run", "Send", "Serve", "Set", "Show", "Validate", "Write")
)  # fmt: skip
"""What a command does is said in the imperative; a verb that is new here was looked at."""


def groups(command: Any = ROOT, path: str = "") -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        yield path, command
        for name, one in command.commands.items():
            yield from groups(one, f"{path} {name}".strip())


def examples(command: Any) -> list[str]:
    """The example lines of a help text."""
    _, _, behind = (command.help or "").partition("Example")
    return [line.strip() for line in behind.splitlines()[1:] if line.strip()]


@pytest.mark.parametrize("path", COMMANDS)
def test_help_works_and_its_examples_are_commands(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a narrow terminal the names of long options go on in a second line
    monkeypatch.setenv("COLUMNS", "160")
    with pytest.raises(SystemExit) as ended:
        main([*path.split(), "--help"])
    shown = capsys.readouterr().out
    assert not ended.value.code
    lines = examples(COMMANDS[path])
    assert lines, "no example"
    assert ("Examples:" in shown) == (len(lines) > 1), "Example: is one, Examples: are several"
    assert all(option in shown for option in list_options(COMMANDS[path]) if option.startswith("--")), shown
    for example in lines:
        for words in split_commands(example):
            if words[:1] != ["lading"]:
                continue
            command, rest = find_command(words[1:])
            command.make_context(example, rest)


def test_each_does_what_its_first_word_says() -> None:
    texts = {path: command.help for path, command in [*COMMANDS.items(), *list(groups())[1:]]}
    assert {path: text for path, text in texts.items() if text.split()[0].strip(",") not in VERBS} == {}
    assert {path: text for path, text in texts.items() if text.split("\n\n")[0][-1] not in ".:"} == {}


def mistype(name: str) -> str:
    """The name with two letters turned round, or one doubled if both are the same."""
    at = len(name) - 2
    turned = name[:at] + name[at + 1] + name[at]
    return turned if turned != name else name + name[-1]


def usage_error(arguments: list[str]) -> str:
    with pytest.raises(Exception) as caught:
        ROOT.main(arguments, prog_name="lading", standalone_mode=False)
    # the class of usage errors lies in a private copy of click in some versions
    error: Any = caught.value
    assert hasattr(error, "format_message"), error
    assert error.exit_code == 2
    return str(error.format_message())


def test_a_mistyped_command_names_the_one_that_is_meant() -> None:
    known = {path.split()[-1] for path in COMMANDS}
    for path, name in choose_part([(path, name) for path, group in groups() for name in group.commands], 3):
        if (wrong := mistype(name)) in known:
            continue
        assert f"'{name}'" in usage_error([*path.split(), wrong]), (path, name)


def test_a_mistyped_option_names_the_one_that_is_meant() -> None:
    for path, command in choose_part(list(COMMANDS.items()), 3):
        for name in list_options(command):
            if name.startswith("--") and len(name) > 5:
                assert name in usage_error([*path.split(), mistype(name)]), (path, name)


@pytest.mark.parametrize("incomplete", ["", "-"])
def test_tab_completes_commands_and_options(
    incomplete: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As bash asks, for some; and for each command by what answers it."""
    monkeypatch.setenv(COMPLETION, "complete_bash")
    for path in ("", "message", "message poll") if incomplete else ("", "message", "backup"):
        monkeypatch.setenv("COMP_WORDS", f"lading {path} {incomplete}")
        monkeypatch.setenv("COMP_CWORD", str(len(path.split()) + 1))
        with pytest.raises(SystemExit) as ended:
            main([])
        offered = set(capsys.readouterr().out.split())
        assert not ended.value.code
        command = COMMANDS.get(path) or dict(groups())[path]
        wanted = set(list_options(command)) if incomplete else set(command.commands)
        assert offered >= wanted, (path, wanted - offered)


# what each command that prints is called with to print something; the topic `one` has one message, `two` two
PRINTING = {
    "headers": "one",
    "profile": "{url} one",
    "topic list": "",
    "topic show": "one",
    "stream list": "",
    "message poll": "one",
    "state list": "one",
    "state set": "two --state poisoned --offset 0 --dry-run",
    "group list": "",
    "group show": "readers",
    "user list": "",
    "token list": "--user ann",
    "acl list": "",
    "group reset": "readers --to earliest",
    "group filter": "filtered --where 'a = 1'",
    "topic set": "one message_bytes_max=1MB",
    "topic columns": "one",
    "topic retention": "one",
    "user quota": "ann",
    "contract infer": "one --against {dir}/one.toml",
    "config show": "",
    "doctor": "--data {dir}",
    "sql": "'select count(*) from one'",
    "ingest": "one {dir}/table --local",
    "table show": "{dir}/table",
    "table optimize": "{dir}/table",
    "table expire": "{dir}/table",
    "table vacuum": "{dir}/table",
    "table delete": "{dir}/table --where 'partition < 0' --yes",
    "mirror copy": "{url} {url} --topic one --rename one=copy --state {dir}/mirror",
    "verify": "{url}/one {url}/copy",
    "conformance": "{url} --random 5",
    "pipeline check": "{dir}/one.toml",
    "pipeline run": "{dir}/one.toml --local",
    "pipeline replace": "{dir}/one.toml --from 0 --to now --yes",
    "quarantine list": "{dir}/one.toml",
    "quarantine histogram": "{dir}/one.toml",
    "quarantine show": "{dir}/one.toml one/0/0",
    "quarantine redrive": "{dir}/one.toml --dry-run",
    "dead-letters list": "{url} dead",
    "dead-letters redrive": "{url} dead --dry-run --state {dir}/redrive",
    "backup create": "{data} {dir}/backups",
    "restore": "{dir}/backups {dir}/restored",
    "backup prune": "{dir}/backups --keep 1 --dry-run",
    "cert": "{dir}/certs",
}
ELSEWHERE = {
    "serve": "its ready line: by every broker of these tests", "console": "its ready line: tests/console",
    "tables": "its ready line: tests/topic_tables/test_command.py",
    "mirror run": "runs until it is stopped: tests/cli/test_mirror.py",
    "message tail": "shows messages as message poll does", "pipeline package": "tests/spark/test_cluster.py",
}  # fmt: skip
"""Commands that run until they are stopped, or for long, and where their output is looked at."""
FRESH = {"restore": 1, "ingest": 1, "cert": 0}
"""Which word is a directory that must not exist, or is another table's."""
LISTS = frozenset(
    ("headers", "topic list", "stream list", "message poll", "state list", "group list", "user list", "token list",
     "acl list", "sql", "quarantine list", "quarantine histogram", "dead-letters list")
)  # fmt: skip
"""What prints an object for each thing that there is, and none if there is none; text has the heads of a table."""
ALWAYS = frozenset(
    ("table show", "profile", "topic show", "topic set", "topic columns", "group show", "group reset", "group filter",
     "config show",
     "doctor", "conformance", "quarantine show", "backup create", "restore", "cert")
)  # fmt: skip
"""What shows or makes something, and is an error if that is not there."""
NOTHING = {
    "state set": "two --state poisoned --where 'carrier = 1' --dry-run",
    "topic retention": "one",
    "user quota": "ben",
    "contract infer": "one --against {dir}/fits.toml",
    "ingest": "one {dir}/table --local",
    "table optimize": "{dir}/table",
    "table expire": "{dir}/table",
    "table vacuum": "{dir}/table",
    "table delete": "{dir}/table --where 'partition < 0' --yes",
    "mirror copy": "{url} {url} --topic void --rename void=void-copy --state {dir}/mirror-void",
    "verify": "{url}/void {url}/void-copy",
    "pipeline check": "{dir}/one.toml",
    "pipeline run": "{dir}/void.toml --local",
    "pipeline replace": "{dir}/one.toml --from 0 --to now --dry-run",
    "quarantine redrive": "{dir}/void.toml --dry-run",
    "dead-letters redrive": "{url} void --dry-run --state {dir}/redrive-void",
    "backup prune": "{dir}/backups --keep 9 --dry-run",
}
"""What says how something went, called where there is nothing to do or to find: that is an object too."""
ANSWERS = {"doctor": (0, 1), "contract infer": (0, 1), "verify": (0, 1)}
"""Exit codes of those that check something; all others have 0."""


def test_each_command_that_prints_is_walked() -> None:
    printing = {path for path, command in COMMANDS.items() if "--output" in list_options(command)}
    assert printing == PRINTING.keys() | ELSEWHERE.keys()
    assert sorted(PRINTING) == sorted([*LISTS, *ALWAYS, *NOTHING])


@pytest.fixture(scope="module")
def place(broker: testing.BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("walk")
    told = {"topic": "one", "partition": "0", "offset": "0", "exception.class.name": "E"}
    with Producer(broker.url) as producer:
        producer.send("one", b"x", headers={"carrier": "AA"})
        for _ in range(2):
            producer.send("two", b"x", headers={"carrier": "AA"})
        producer.send("dead", b"x", headers=Headers([(f"__connect.errors.{key}", text) for key, text in told.items()]))
    with closing(LadingTransport(broker.url)) as admin:
        admin.create_topic("void", 1)
    for topic in ("one", "void"):
        (directory / f"{topic}.toml").write_text(
            f'[source]\nfrom = "{broker.url}"\ntopic = "{topic}"\n[quality]\nmax_failure_ratio = 1.0\n'
            f'[good]\nto = "parquet:good-{topic}"\n[headers]\n'
            'carrier = { type = "string", values = ["UA"] }\n'
        )
    (directory / "fits.toml").write_text('[headers]\ncarrier = { type = "string", required = true }\n')
    return {"url": broker.url, "dir": str(directory), "data": str(broker.data_dir)}


def test_what_deletes_asks_and_a_no_changes_nothing(lading: Run, broker: testing.BrokerProcess) -> None:
    asking = {path for path, command in COMMANDS.items() if "--yes" in list_options(command)}
    # topics: of a time below a second, after which nobody could read a message
    assert asking - {"topic create", "topic set"} == {
        "pipeline replace", "table delete", "stream delete", "topic delete", "topic empty", "group delete",
        "user delete", "user reset", "backup prune",
    }  # fmt: skip
    lading("topic", "create", "asked")
    assert "pass --yes" in lading("topic", "delete", "asked", code=2).stderr, (
        "without a terminal there is nobody to ask"
    )
    person, terminal = pty.openpty()
    with os.fdopen(person, "wb", buffering=0) as typing, os.fdopen(terminal, "rb", buffering=0) as stdin:
        typing.write(b"n\n")
        done = subprocess.run(
            [sys.executable, "-m", "lading.cli.main", "topic", "delete", "asked", "--server", broker.url],
            stdin=stdin, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert (done.returncode, "Delete topic 'asked'" in done.stderr) == (1, True), done
    with closing(LadingTransport(broker.url)) as admin:
        assert "asked" in [meta.name for meta in admin.topics()]


@pytest.mark.timeout(400)
@pytest.mark.turns(2, part=0)
def test_json_is_an_object_a_line_and_text_has_its_plurals_right(
    lading: Run, place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place["dir"])
    lading("message", "poll", "one", "--group", "readers")
    # users close the broker to strangers: last in this file
    word = Path(place["dir"], "word")
    word.write_text("ann's password")
    lading("user", "add", "ann", "--admin", "--password-file", str(word))
    login = {
        "LADING_TOKEN": lading("token", "create", "t", "--user", "ann", "--password-file", str(word)).stdout.strip()
    }
    lading("acl", "add", "ann", "read", "one", **login)
    lading("user", "quota", "ann", "--send", "10MB", **login)
    faults: list[tuple[str, Any, Any]] = []
    for path in sorted(PRINTING, key=list(PRINTING).index):
        arguments = [word.format(**place) for word in shlex.split(PRINTING[path])]
        for form in ("json", "text"):
            if form == "text" and path in FRESH:
                arguments[FRESH[path]] += "-again"
            done = run(lading, path, [*path.split(), *arguments, "--output", form], login)
            if form == "json":
                documents = [json.loads(line) for line in done.stdout.splitlines()]
                if not documents or not all(isinstance(one, dict) for one in documents):
                    faults.append((path, "no objects", done))
            wrong = re.findall(r"(?<![\d.,:/])\b1 (?!status)[a-z]{3,}[^s\W]s\b(?!/)", done.stdout + done.stderr)
            if wrong:
                faults.append((path, wrong, done))
    for path, words in NOTHING.items():
        done = run(lading, path, [*path.split(), *shlex.split(words.format(**place)), "--output", "json"], login)
        documents = [json.loads(line) for line in done.stdout.splitlines()]
        if not documents or not all(isinstance(one, dict) for one in documents):
            faults.append((path, "no object says that there is nothing", done))
    assert not faults, "\n".join(map(str, faults))


def run(lading: Run, path: str, arguments: list[str], login: dict[str, str]) -> Any:
    codes = ANSWERS.get(path, (0,))
    try:
        return lading(*arguments, code=codes[0], **login)
    except AssertionError:
        if len(codes) == 1:
            raise
        return lading(*arguments, code=codes[1], **login)
