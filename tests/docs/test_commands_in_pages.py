"""Every command that a page shows is one: its words, its options. Fenced blocks are run whole by test_snippets.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_lines import ROOT as COMMANDS
from tests.cli.command_lines import find_command, list_options, split_commands
from tests.docs.test_snippets import PAGES, ROOT

INDENTED = re.compile(r"^    (?:\$ )?(lading .*(?:\\\n.*)*)$", re.MULTILINE)
INLINE = re.compile(r"`(lading [^`\n]+)`")
COMMENT = re.compile(r"\s{2,}#.*")
ELISIONS = {"…", "..."}
WRITTEN_BY_CODE = {"commands.md"}
"""The reference is made from the commands themselves."""


def shown_commands(text: str) -> Iterator[str]:
    for found in (*INDENTED.finditer(text), *INLINE.finditer(text)):
        yield COMMENT.sub("", found[1].replace("\\\n", " ")).replace("\\|", "|").rstrip("\\")


def describe_fault(line: str) -> str | None:
    """What is wrong with a command as it is shown, or None. Words in capitals, "…" and "|" stand for others."""
    for words in split_commands(line.replace(" group reset|delete", " group reset")):
        if words[:1] != ["lading"]:
            continue
        while len(words) > 2 and words[1] in ("--profile", "--transport"):
            del words[1:3]
        command, rest = find_command(words[1:])
        if command is COMMANDS and rest and not (rest[0] in ELISIONS or rest[0].isupper() or rest[0][0] == "-"):
            return f"there is no command {rest[0]!r}"
        # an option of a group that is named alone is one of its commands'
        among = [command, *getattr(command, "commands", {}).values()]
        known = {"--help", "-h", *(name for one in among for name in list_options(one))}
        for word in rest:
            name = word.partition("=")[0].strip("[],.")
            if re.fullmatch(r"--?[a-zA-Z][\w-]*", name) and name not in known:
                return f"{command.name} has no option {name}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_shown_commands_are_commands(page: Path) -> None:
    if page.name in WRITTEN_BY_CODE:
        pytest.skip("made from the commands")
    faults = {line: fault for line in shown_commands(page.read_text()) if (fault := describe_fault(line)) is not None}
    assert faults == {}


def test_many_commands_are_shown() -> None:
    assert sum(len(list(shown_commands(page.read_text()))) for page in PAGES) > 150


@pytest.mark.parametrize("line", ["lading tpoic list", "lading topic list --formm x", "lading message poll a -Z"])
def test_what_is_none_is_found(line: str) -> None:
    assert describe_fault(line) is not None
