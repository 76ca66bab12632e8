"""``lading mirror`` and ``lading sql``: what they say, and the reports they write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from lading import testing
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_mirror_with_reports(broker: testing.BrokerProcess, lading: Run, tmp_path: Path) -> None:
    for number in range(6):
        lading("message", "send", "sent", f"m{number}", "--header", "carrier=UA", "--key", "k")
    kafka = f"kafka://{broker.endpoints['kafka']}"
    reports = [tmp_path / f"fidelity.{suffix}" for suffix in ("txt", "json", "html")]
    options = [part for path in reports for part in ("--report", str(path))]
    done = lading("mirror", broker.url, kafka, "--topic", "sent", "--rename", "sent=got", *options)
    assert "sent: 6 messages, 1 partition, exactly once" in done.stderr
    text, document, page = (path.read_text() for path in reports)
    row = next(line.split() for line in text.splitlines() if line.startswith("kind"))
    assert row == ["kind", "6", "0", "6", "0"]
    report = json.loads(document)
    assert (report["messages"], report["topics"][0]["target"]) == (6, "got")
    assert [one["fact"] for one in report["fidelity"]][:2] == ["order", "duplicates"]
    assert page.startswith("<!doctype html>") and "<td>kind</td><td>6</td><td>0</td><td>6</td>" in page
    again = lading("mirror", broker.url, kafka, "--topic", "sent", "--rename", "sent=got", "--output", "json")
    assert json.loads(again.stdout)["messages"] == 0
    where = lading("mirror", broker.url, kafka, "--translate", "sent:0:4")
    assert where.stdout.strip() == "sent:0:4"


def test_what_a_mirror_refuses(broker: testing.BrokerProcess, lading: Run) -> None:
    same = lading("mirror", broker.url, broker.url, code=2)
    assert "source and target are the same" in same.stderr
    never = lading("mirror", broker.url, "kafka://127.0.0.1:1", "--translate", "sent:0:4", code=2)
    assert "has run here" in never.stderr


def test_a_mirror_ends_in_order(broker: testing.BrokerProcess, lading: Run, tmp_path: Path) -> None:
    for number in range(3):
        lading("message", "send", "watched", f"m{number}")
    kafka = f"kafka://{broker.endpoints['kafka']}"
    pair = [broker.url, kafka, "--topic", "watched", "--rename", "watched=seen", "--follow", "--output", "json"]
    command = [sys.executable, "-m", "lading.cli.main", "mirror", *pair]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert json.loads(running.stdout.readline()) == {"event": "progress", "messages": 3, "left": 0}
            assert "another process runs the mirror" in lading("mirror", *pair, code=2).stderr
            back = lading("mirror", kafka, broker.url, "--follow", code=2).stderr
            assert "messages would go round and round; run both with --two-way" in back
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=30)
        finally:
            running.kill()
    assert running.returncode == 0, err
    assert json.loads(out)["messages"] == 3
    assert "stopping after the work in hand" in err


def write_mirrors(directory: Path, broker: testing.BrokerProcess) -> Path:
    file = directory / "mirrors.toml"
    file.write_text(
        f"""[service]
address = "127.0.0.1:0"
state = "states"

[mirror.copied]
source = "{broker.url}"
target = "kafka://{broker.endpoints["kafka"]}"
topics = ["many"]
rename = {{ many = "many-copied" }}

[mirror.lost]
source = "lading://127.0.0.1:1"
target = "kafka://{broker.endpoints["kafka"]}"
"""
    )
    return file


def test_a_dry_run_of_a_file_of_mirrors(broker: testing.BrokerProcess, lading: Run, tmp_path: Path) -> None:
    lading("message", "send", "many", "one")
    file = str(write_mirrors(tmp_path, broker))
    rows = [
        json.loads(row)
        for row in lading("mirror", "run", file, "--dry-run", "-o", "json", code=1).stdout.split("\n")[:-1]
    ]
    assert rows[0] == {
        "mirror": "copied", "topic": "many", "target": "many-copied", "partitions": 1, "is_created": True, "left": 1,
    }  # fmt: skip
    assert rows[1]["mirror"] == "lost" and "no broker is reachable" in rows[1]["problem"]
    shown = lading("mirror", "run", file, "--dry-run", "--only", "copied")
    assert "many-copied" in shown.stdout
    assert not (tmp_path / "states").exists()
    said = lading("mirror", "run", file, "--only", "copid", code=2).stderr
    assert "--only 'copid': the file has no such mirror; there are copied, lost" in said
    assert "cannot read the mirrors file" in lading("mirror", "run", str(tmp_path / "no.toml"), code=2).stderr


def test_a_service_of_mirrors_ends_within_a_second(broker: testing.BrokerProcess, lading: Run, tmp_path: Path) -> None:
    for number in range(3):
        lading("message", "send", "many", f"m{number}")
    file = str(write_mirrors(tmp_path, broker))
    command = [sys.executable, "-m", "lading.cli.main", "mirror", "run", file, "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            ready = json.loads(running.stdout.readline())
            assert (ready["event"], ready["mirrors"]) == ("ready", ["copied", "lost"])
            states: dict[str, str] = {}
            while states != {"copied": "running", "lost": "away"}:
                row = json.loads(running.stdout.readline())
                states[row["mirror"]] = row["state"]
            until = time.monotonic() + 30
            while time.monotonic() < until:
                with urllib.request.urlopen(f"{ready['address']}/health", timeout=10) as response:
                    health = json.load(response)
                if health["mirrors"]["copied"]["lag_messages"] == 0:
                    break
            running.send_signal(signal.SIGTERM)
            began = time.monotonic()
            out, err = running.communicate(timeout=30)
            took_s = time.monotonic() - began
        finally:
            running.kill()
    assert running.returncode == 0, err
    done = json.loads(out.splitlines()[-1])
    assert (done["event"], done["unfinished"]) == ("done", [])
    assert done["mirrors"]["copied"]["messages"] == health["mirrors"]["copied"]["messages"] >= 3
    assert took_s < 2, took_s


def test_sql(broker: testing.BrokerProcess, lading: Run) -> None:
    pytest.importorskip("duckdb")
    lading("message", "send", "asked", "one", "--header", "carrier=UA")
    rows = lading("sql", "select carrier, payload from asked", "--from", broker.url, "--output", "json").stdout
    assert json.loads(rows) == {"carrier": "UA", "payload": "one"}
    assert "UA" in lading("sql", "select carrier from asked", "--from", broker.url).stdout
