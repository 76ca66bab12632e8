"""The table of exit codes in docs/reference/command-line.md, row by row: what commands return is what it says."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lading import Producer, testing
from lading.cli.main import main
from tests import forked_command
from tests.broker.room import fill, opened, topic_of
from tests.endpoints.test_watchdog import hanging

from .conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
TIMEOUT_S = 60
TABLE = re.compile(r"^## Exit codes\n\n\| code \| meaning \|\n\|---\|---\|\n((?:\|.*\n?)+)", re.MULTILINE)
CHECKS = {"doctor", "pipeline check", "contract infer --against", "restore --check", "mirror run --dry-run"}
ENDED_BY_CTRL_C = {"serve", "console", "mirror run", "--follow"}


def rows() -> dict[int, str]:
    table = TABLE.search(PAGE.read_text())
    assert table is not None
    found = [line.strip("| \n").split(" | ", 1) for line in table[1].splitlines()]
    return {int(code): meaning for code, meaning in found}


@contextmanager
def started(broker: testing.BrokerProcess, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = forked_command.start(
        [sys.executable, "-m", "lading.cli.main", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"LADING_SERVER": broker.url},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def code_after_ctrl_c(broker: testing.BrokerProcess, *arguments: str) -> int:
    """The exit code of a command that is interrupted when it has said something."""
    with started(broker, *arguments) as process:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGINT)
        # what is still written finds a reader
        process.communicate(timeout=TIMEOUT_S)
        return process.returncode


@pytest.fixture(scope="module", autouse=True)
def topics(broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        for _ in range(3000):
            producer.send("coded", b"x" * 100, headers={"carrier": "AA"})


@pytest.mark.turns(3, part=2)
def test_the_page_has_these_codes_and_commands() -> None:
    found = rows()
    assert found.keys() == {0, 1, 2, 70, 130}
    assert set(re.findall(r"`([^`]+)`", found[1])) == CHECKS
    assert set(re.findall(r"`([^`]+)`", found[130])) == ENDED_BY_CTRL_C
    assert found[70].startswith("`serve`")


@pytest.mark.turns(3, part=0)
def test_0_done_and_a_reader_that_goes_away(broker: testing.BrokerProcess, lading: Run) -> None:
    lading("topic", "list", code=0)
    with started(broker, "message", "poll", "coded", "--count", "3000", "-o", "json") as process:
        assert process.stdout is not None and process.stderr is not None
        json.loads(process.stdout.readline())
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(TIMEOUT_S), said) == (0, "")


@pytest.mark.parametrize("words", ["message poll coded --count 3000", "message poll --help", "topic list"])
@pytest.mark.turns(3)
def test_0_for_people_whose_pager_goes_away(broker: testing.BrokerProcess, words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone, forked_command.start(
        [sys.executable, "-m", "lading.cli.main", *words.split()], stdin=subprocess.DEVNULL, stdout=gone,
        stderr=subprocess.PIPE, env=os.environ | {"LADING_SERVER": broker.url},
    ) as process:  # fmt: skip
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, "Error" in said) == (0, False), said


@pytest.mark.turns(3, part=1)
def test_2_output_that_is_closed(broker: testing.BrokerProcess) -> None:
    command = f"{sys.executable} -m lading.cli.main topic list >&-"
    environment = os.environ | {"LADING_SERVER": broker.url}
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "lading: standard output: Bad file descriptor\n")


@pytest.mark.turns(3, part=1)
def test_0_output_in_ascii(broker: testing.BrokerProcess, process: Run) -> None:
    with Producer(broker.url) as producer:
        producer.send("ascii", b"x", headers={"city": "citt\u00e0 \U0001f6a2"})
    text = process("message", "poll", "ascii", PYTHONIOENCODING="ascii").stdout
    assert "city = string: citt\\u00e0 \\ud83d\\udea2" in text
    lines = process("message", "poll", "ascii", "-o", "json", PYTHONIOENCODING="ascii").stdout
    assert lines.isascii() and json.loads(lines)["headers"][0]["value"] == "citt\u00e0 \U0001f6a2"


def test_0_a_machine_where_the_broker_runs(
    broker: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What the broker does not need, and ports that the broker itself has taken, are no failures."""
    from lading.cli import doctor

    assert doctor._find_broker(int(broker.endpoints["admin"].rsplit(":", 1)[1])) == "ok"
    assert doctor._find_broker(int(broker.endpoints["kafka"].rsplit(":", 1)[1])) is None
    taken = int(broker.endpoints["kafka"].rsplit(":", 1)[1])
    assert doctor._check_port("kafka", taken, socket.SOCK_STREAM, "ok")().well
    assert not doctor._check_port("kafka", taken, socket.SOCK_STREAM, None)().well
    monkeypatch.setitem(sys.modules, "lading.spark.session", None)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--data", str(tmp_path)])
    assert (ended.value.code, "note Spark" in capsys.readouterr().err) == (0, True)


def test_1_a_check_failed(lading: Run, tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    stored = opened(data)
    fill(stored, topic_of(stored).partition(0), 5)
    stored.stop()
    lading("backup", str(data), str(backups))
    (archive,) = backups.glob("points/*.tar")
    archive.write_bytes(archive.read_bytes()[:3_000])
    contract = tmp_path / "contract.toml"
    contract.write_text('[headers]\ndelay = { type = "smallint", required = true }\n')
    pipeline = tmp_path / "pipeline.toml"
    pipeline.write_text('[source]\nfrom = "lading://127.0.0.1:1"\ntopic = "t"\n[good]\nto = "parquet:good"\n')
    mirrors = tmp_path / "mirrors.toml"
    mirrors.write_text("[mirror.a]\nsource = 'lading://127.0.0.1:1'\ntarget = 'kafka://127.0.0.1:1'\n")
    failing = {
        "doctor": ("doctor", "--data", "/proc/nowhere"),
        "pipeline check": ("pipeline", "check", str(pipeline)),
        "contract infer --against": ("contract", "infer", "coded", "--against", str(contract)),
        "restore --check": ("restore", str(backups), "--check"),
        "mirror run --dry-run": ("mirror", "run", str(mirrors), "--dry-run"),
    }
    assert failing.keys() == CHECKS
    for words in failing.values():
        lading(*words, code=1)


def test_1_a_question_was_answered_with_no(broker: testing.BrokerProcess) -> None:
    person, terminal = pty.openpty()
    with os.fdopen(person, "wb", buffering=0) as typing, os.fdopen(terminal, "rb", buffering=0) as stdin:
        typing.write(b"n\n")
        command = [sys.executable, "-m", "lading.cli.main", "topic", "delete", "coded", "--server", broker.url]
        assert subprocess.run(command, stdin=stdin, capture_output=True, timeout=TIMEOUT_S).returncode == 1


@pytest.mark.parametrize(
    "words",
    ["topic show nosuch", "topic show", "topic shwo coded", "message poll coded --where carrier=", "serve --set x=1"],
)
def test_2_an_error_in_one_sentence(words: str, lading: Run) -> None:
    assert lading(*words.split(), code=2).stderr.strip()


@pytest.mark.turns(3, part=0)
def test_70_a_loop_that_stood_still(tmp_path: Path) -> None:
    process = hanging(tmp_path, 600, subprocess.PIPE)
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 70
    assert "in hang" in said


@pytest.mark.turns(3, part=2)
def test_130_ctrl_c(broker: testing.BrokerProcess) -> None:
    assert code_after_ctrl_c(broker, "message", "tail", "coded", "--offset", "earliest", "-o", "json") == 130


@pytest.mark.turns(2, part=1)
def test_0_what_ctrl_c_is_the_way_to_end(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    kafka = f"kafka://{broker.endpoints['kafka']}"
    mirrors = tmp_path / "mirrors.toml"
    mirror = f"[mirror.a]\nsource = '{broker.url}'\ntarget = '{kafka}'\ntopics = ['none-*']\n"
    mirrors.write_text(f"[service]\nstate = 'states'\n{mirror}")
    ways = {
        "serve": ("serve", "--data", str(tmp_path / "data"), "--free-ports", "-o", "json"),
        "console": ("console", "--from", broker.url, "--address", "127.0.0.1:0", "-o", "json"),
        "mirror run": ("mirror", "run", str(mirrors), "--address", "127.0.0.1:0", "-o", "json"),
        "--follow": ("mirror", broker.url, kafka, "--topic", "coded", "--rename", "coded=copy", "--follow", "-o",
                     "json", "--state", str(tmp_path / "mirror")),
    }  # fmt: skip
    assert ways.keys() == ENDED_BY_CTRL_C
    ingest = ("ingest", "coded", str(tmp_path / "table"), "--local", "--follow", "-o", "json")
    for words in (*ways.values(), ingest):
        assert code_after_ctrl_c(broker, *words) == 0, words
