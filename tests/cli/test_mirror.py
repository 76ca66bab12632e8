"""``lading mirror`` and ``lading sql``: what they say, and the reports they write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
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


def test_sql(broker: testing.BrokerProcess, lading: Run) -> None:
    pytest.importorskip("duckdb")
    lading("message", "send", "asked", "one", "--header", "carrier=UA")
    rows = lading("sql", "select carrier, payload from asked", "--from", broker.url, "--output", "json").stdout
    assert json.loads(rows) == {"carrier": "UA", "payload": "one"}
    assert "UA" in lading("sql", "select carrier from asked", "--from", broker.url).stdout
