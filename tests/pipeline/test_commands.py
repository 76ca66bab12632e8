"""The commands, as their users and scripts see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lading import testing
from lading.cli.main import main
from lading.pipeline.quarantine import AT_LEAST_ONCE, ONCE

from .conftest import PARTITIONS, ROWS, Place
from .direct import Driver
from .flights import fate

WRONG_SOURCES = (
    ("[headers]", 'starting = "erliest"\n[headers]', "source: source.starting is 'erliest'; it takes earliest"),
    ("[headers]", "transport = { timeout = 3 }\n[headers]", "no transport option 'timeout'; did you mean timeout_s?"),
)


def _run(*arguments: str) -> int:
    try:
        main(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def test_check_tells_every_problem(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _run("pipeline", "check", str(place.write())) == 0
    assert "no problems found" in capsys.readouterr().err
    with monkeypatch.context() as plain:
        plain.setattr("lading.cli.pipeline.find_spec", lambda name: None)
        assert _run("pipeline", "check", str(place.write())) == 0
    assert capsys.readouterr().err.rstrip().endswith("flights.toml --local")
    wrong = place.write(
        lambda text: text.replace("delay > 60", "delai > 60").replace("[good]", '[good]\ncolumns = ["x"]')
    )
    assert _run("pipeline", "check", str(wrong)) == 1
    said = capsys.readouterr().out
    assert "did you mean 'delay'" in said and "\n    ^^^^^" in said and "\\n" not in said
    assert "good.columns: 'x'" in said
    assert _run("pipeline", "check", str(wrong), "--output", "json") == 1
    assert {row["part"] for row in map(json.loads, capsys.readouterr().out.splitlines())} == {"settings"}
    for before, after, says in WRONG_SOURCES:
        file = place.write(lambda text, before=before, after=after: text.replace(before, after, 1))  # type: ignore[misc]
        assert _run("pipeline", "check", str(file)) == 1
        assert says in capsys.readouterr().out
    for column, meant in (("value", "payload"), ("Offset", "offset"), ("carier", "carrier")):
        named = place.write(lambda text, name=column: text.replace("[good]", f'[good]\ncolumns = ["{name}"]'))  # type: ignore[misc]
        assert _run("pipeline", "check", str(named)) == 1
        assert f"nor a message field (did you mean {meant!r}?)" in capsys.readouterr().out
    header = place.write(lambda text: text.replace("[headers]", '[headers]\nvalue = "int be"', 1))
    assert _run("pipeline", "check", str(header)) == 0
    assert "has a header 'value' (did you mean the field 'payload'?)" in capsys.readouterr().err
    misspelt = place.write(lambda text: text.replace("[good]", "[god]"))
    assert _run("pipeline", "run", str(misspelt)) == 2
    assert capsys.readouterr().err == f"lading: {misspelt}: unknown key god; did you mean good?\n"


def test_quarantine_commands(place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(place.write())
    assert _run("quarantine", "list", file) == 2
    assert "has not run yet" in capsys.readouterr().err
    Driver(Path(file)).run()
    failed = PARTITIONS * sum(fate(row) not in ("late", "flights") for row in range(ROWS))
    assert _run("quarantine", "list", file, "--output", "json", "--limit", "1000") == 0
    assert len(capsys.readouterr().out.splitlines()) == failed
    assert _run("quarantine", "show", file, f"{place.topic}/0/2", "--output", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["reason"], shown["message"]["payload"]) == ("bad_value", '{"row": 2, "p": 0}')
    assert _run("quarantine", "show", file, f"{place.topic}/0/2") == 0
    assert "delay = string: late!" in capsys.readouterr().out
    assert _run("quarantine", "histogram", file, "--output", "json") == 0
    assert sum(row["messages"] for row in map(json.loads, capsys.readouterr().out.splitlines())) == failed
    assert _run("quarantine", "redrive", file, "--dry-run", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["sent"] == failed
    assert _run("quarantine", "redrive", file, "--reason", "bad_value") == 0
    assert "sent again, 0 parked" in capsys.readouterr().err
    page = tmp_path / "report.html"
    assert _run("pipeline", "report", file, str(page)) == 0
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("scheme", "face", "is_once"),
    [("lading", "native", True), ("kafka", "kafka", True), ("iggy", "iggy_tcp", False), ("nsq", "nsqd_tcp", False)],
)
def test_a_redrive_says_how_often_a_message_arrives(
    place: Place, served: testing.BrokerProcess, capsys: pytest.CaptureFixture[str], scheme: str, face: str,
    is_once: bool,
) -> None:  # fmt: skip
    """As the redrive of other systems' dead letters does; what a crash sends twice is in test_redrive_kills.py."""
    server = place.url if scheme == "lading" else f"{scheme}://{served.endpoints[face]}"
    Driver(place.write()).run()
    file = str(place.write(lambda text: text.replace(f'server = "{place.url}"', f'server = "{server}"')))
    for limit in ([], ["--dry-run"]):
        assert _run("quarantine", "redrive", file, "--limit", "2", "--output", "json", *limit) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["sent"], report["delivery"]) == (2, ONCE if is_once else AT_LEAST_ONCE)
    assert _run("quarantine", "redrive", file, "--limit", "2") == 0
    told = " ".join(capsys.readouterr().err.split())
    assert ("delivery is at least once: what an interrupted redrive had in hand may be sent twice" in told) != is_once


def test_both_redrives_say_the_same_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("quarantine", "dead-letters"):
        assert _run(command, "redrive", "--help") == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f"To iggy:// and nsq:// it is {AT_LEAST_ONCE}." in shown


def test_contract_commands(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("contract", "infer", place.topic, "--from", place.url) == 0
    inferred = capsys.readouterr().out
    assert 'carrier = "string"' in inferred
    alone = place.base / "contract.toml"
    alone.write_text(inferred)
    assert _run("contract", "infer", place.topic, "--from", place.url, "--against", str(alone)) == 0
    assert capsys.readouterr().err.startswith(f"no drift: 2,400 messages of {place.topic!r}, as {alone} says")
    assert _run("contract", "infer", place.topic, "--from", place.url, "--against", str(place.write())) == 1
    assert "is required, and is missing" in capsys.readouterr().out
    held = place.write(lambda text: text.replace('"string required"', '"string"').replace('"int"', '"string"'))
    assert _run("contract", "infer", place.topic, "--from", place.url, "--against", str(held)) == 0
