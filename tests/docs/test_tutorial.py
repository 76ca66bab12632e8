"""The tutorial shows what the commands propose, as they print it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lading import Producer, testing
from lading.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert not left.value.code
    return capsys.readouterr().out


def test_the_tutorial_shows_what_infer_and_profile_propose(capsys: pytest.CaptureFixture[str]) -> None:
    """With the amounts of the page, as bytes without a kind, which is what a Kafka client sends."""
    with testing.broker() as broker:
        with Producer(f"kafka://{broker.endpoints['kafka']}") as producer:
            for number in range(50):
                producer.send("orders", b"{}", headers=[("amount", str(number % 50).encode())])
        said = [
            run(["contract", "infer", "orders", "--from", broker.url], capsys),
            run(["profile", broker.url, "orders"], capsys),
        ]
    shown = re.findall(r"^    (amount = .*)$", PAGE.read_text(), re.MULTILINE)
    proposed = [re.findall(r"^(amount = .*)$", text, re.MULTILINE) for text in said]
    assert proposed == [[line] for line in shown]
