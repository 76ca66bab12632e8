"""What a person at the terminal sees: our styles, and everything else as it is."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from typer.main import get_command

from lading import Producer, testing
from lading.cli.app import build_app
from lading.cli.output import Output, apply_styles, format_rate, json_line, line, print_note, print_table
from lading.model.printable import escape_unseen

from .conftest import Run


def test_only_our_own_styles_are_markup() -> None:
    made = apply_styles("[bold]3[/] of [x] in [/y] and [/]: [red]no[/] [bold red]")
    assert made.plain == "3 of [x] in [/y] and [/]: no [bold red]"
    assert [(made.plain[span.start : span.end], span.style) for span in made.spans] == [("3", "bold"), ("no", "red")]


def test_a_name_with_brackets_is_said_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("topic [bold]a[/b][/] is [not] there")
    assert capsys.readouterr().err == "topic a[/b] is [not] there\n"


@pytest.mark.parametrize(
    ("per_s", "shown"), [(1.4, "1 message/s"), (0.2, "0 messages/s"), (1520.7, "1,521 messages/s")]
)
def test_a_rate_has_its_noun_in_the_right_number(per_s: float, shown: str) -> None:
    assert format_rate(per_s, "message") == shown


def test_one_long_text_does_not_fill_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """Strangers choose names of headers and reasons of dead letters, up to 30,000 characters and more."""
    rows = [{"name": "x" * 30_000, "count": 1}, {"name": "amount", "count": 2}]
    print_table(rows, {"name": "header", "count": "count"}, output=Output.TEXT)
    printed = capsys.readouterr().out
    assert (
        len(printed.splitlines()) < 12 and "… (30,000 characters)" in printed.replace("\n", "") and "amount" in printed
    )
    print_table(rows, {"name": "header", "count": "count"}, output=Output.JSON)
    assert json.loads(capsys.readouterr().out.splitlines()[0])["name"] == "x" * 30_000
    print_table(rows, {"name": "header"}, output=Output.TEXT, exact=True)
    assert capsys.readouterr().out.count("x") == 30_000


def test_no_help_text_loses_words_to_markup() -> None:
    """Brackets are markup in help texts."""

    def commands(command: object) -> list[str]:
        nested = getattr(command, "commands", {})
        return [str(getattr(command, "help", "")), *(text for one in nested.values() for text in commands(one))]

    texts = commands(get_command(build_app()))
    assert len(texts) > 20
    assert not [text for text in texts if re.search(r"(?<!\\)\[(?!/?(?:bold|dim)?\])[a-z/]", text)]


EVIL = "a\x1b]0;owned\x07\x9b2J\u202eb\r\nflights 0:9\ud800\U000e0041\u2066"
SAFE = r"a\x1b]0;owned\x07\x9b2J\u202eb\r\nflights 0:9\ud800\U000e0041\u2066"


def test_what_a_terminal_would_act_on_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert escape_unseen(EVIL) == SAFE
    assert escape_unseen("żółć 👨‍👩‍👧 می‌خواهم") == "żółć 👨‍👩‍👧 می‌خواهم"
    print_table([{"name": EVIL}], {"name": "name"}, output=Output.TEXT, title=EVIL)
    line(EVIL)
    shown = capsys.readouterr().out
    assert not [character for character in shown if character != "\n" and not character.isprintable()]
    assert SAFE in shown
    print_note(f"[bold]x[/] {EVIL}")
    assert "\x1b" not in (said := capsys.readouterr().err) and "\u202e" not in said


def test_json_is_exact_and_moves_no_cursor_either(capsys: pytest.CaptureFixture[str]) -> None:
    json_line({"value": EVIL})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"value": EVIL}
    assert shown.rstrip("\n").isprintable()
    print_table([{"value": EVIL}] * 2, {}, output=Output.JSON)
    assert [json.loads(row) for row in capsys.readouterr().out.splitlines()] == [{"value": EVIL}] * 2


def test_messages_and_names_of_others_cannot_control_the_terminal(lading: Run, broker: testing.BrokerProcess) -> None:
    evil = EVIL.replace("\ud800", "")
    safe = SAFE.replace(r"\ud800", "")
    with Producer(broker.url) as producer:
        producer.send("evil", evil.encode(), key=evil.encode(), headers=[(evil, evil), ("raw", evil.encode())])
    for command in ("message poll evil", "headers evil", "contract infer evil", "message poll evil --where nix=1"):
        done = lading(*command.split())
        said = done.stdout + done.stderr
        assert not [one for one in said if one != "\n" and not one.isprintable()], (command, said)
    assert lading("message", "poll", "evil").stdout.count(safe) == 5
    (message,) = [json.loads(row) for row in lading("message", "poll", "evil", "-o", "json").stdout.splitlines()]
    assert (message["payload"], message["key"], message["headers"][0]["key"]) == (evil, evil, evil)
    assert set(tomllib.loads(lading("contract", "infer", "evil").stdout)["headers"]) == {evil, "raw"}
    # an error quotes what the other side, or an argument, is called
    assert "\x1b" not in lading("message", "poll", "no\x1b[2Jne", code=2).stderr


def test_a_polled_message_shows_kind_and_value_of_headers(capsys: pytest.CaptureFixture[str]) -> None:
    from lading import Headers, u16
    from lading.cli.message import show
    from lading.model.message import Message

    headers = Headers([("delay", u16(12)), ("note", "a\x1b[2J"), ("none", None)])
    show(Message(topic="t", payload=b"p", headers=headers), Output.TEXT)
    out = capsys.readouterr().out
    assert "delay = uint16: 12\n" in out
    assert "note = string: a\\x1b[2J\n" in out
    assert "none = raw: null\n" in out
