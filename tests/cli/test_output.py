"""What a person at the terminal sees: our styles, and everything else as it is."""

from __future__ import annotations

import re

import pytest
from typer.main import get_command

from lading.cli.main import app
from lading.cli.output import note, styled


def test_only_our_own_styles_are_markup() -> None:
    made = styled("[bold]3[/] of [x] in [/y] and [/]: [red]no[/] [bold red]")
    assert made.plain == "3 of [x] in [/y] and [/]: no [bold red]"
    assert [(made.plain[span.start : span.end], span.style) for span in made.spans] == [("3", "bold"), ("no", "red")]


def test_a_name_with_brackets_is_said_whole(capsys: pytest.CaptureFixture[str]) -> None:
    note("topic [bold]a[/b][/] is [not] there")
    assert capsys.readouterr().err == "topic a[/b] is [not] there\n"


def test_no_help_text_loses_words_to_markup() -> None:
    """Brackets are markup in help texts."""

    def commands(command: object) -> list[str]:
        nested = getattr(command, "commands", {})
        return [str(getattr(command, "help", "")), *(text for one in nested.values() for text in commands(one))]

    texts = commands(get_command(app))
    assert len(texts) > 20
    assert not [text for text in texts if re.search(r"(?<!\\)\[(?!/?(?:bold|dim)?\])[a-z/]", text)]
