"""Command lines that help texts and pages show: split as a shell does it, and found in the tree of commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import Any

from typer.main import get_command

from lading.cli.app import build_app

ROOT: Any = get_command(build_app())


def split_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, at pipes; what a file takes or gives is left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split, lexer.commenters = True, ""
    for is_pipe, words in groupby(lexer, lambda word: word == "|"):
        if not is_pipe:
            yield list(takewhile(lambda word: word not in (">", ">>"), words))


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words behind ``lading`` name, or a group of them, and what is left of the words."""
    command: Any = ROOT
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if "create" in getattr(command, "commands", {}) and command.name == "backup" and words:
        # its name may be left out
        command = command.commands["create"]
    return command, words


def list_options(command: Any) -> list[str]:
    """All names of a command's options that help shows."""
    shown = [option for option in command.params if not getattr(option, "hidden", False)]
    return [name for option in shown for name in (*option.opts, *option.secondary_opts) if name[0] == "-"]
