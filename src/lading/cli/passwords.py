"""Passwords come from a prompt, a file or standard input, never from arguments, which appear in the process list."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ..model.errors import LocalError

PASSWORD_BYTES_MAX: Final = 4096
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", metavar="FILE", help="File with the password and nothing else; - reads standard input."
    ),
]


def read_password(question: str, file: Path | None, *, is_new: bool = False) -> str:
    """Return a password: the first line of ``file`` or of standard input, or else the one typed, twice if it is new."""
    if file is not None:
        text = sys.stdin.readline() if str(file) == "-" else _read(file)
        password = text.split("\n", 1)[0].removesuffix("\r")
    elif sys.stdin.isatty():
        password = str(typer.prompt(question, hide_input=True, confirmation_prompt=is_new, err=True))
    else:
        raise LocalError(
            "not a terminal, cannot ask for a password; pass --password-file FILE, or - for standard input"
        )
    if not password:
        raise LocalError("the password is empty; enter a non-empty one")
    return password


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(PASSWORD_BYTES_MAX).decode()
    except OSError as error:
        raise LocalError(f"password file {file}: cannot be read: {error.strerror}; check its path and rights") from None
    except UnicodeDecodeError:
        raise LocalError(f"password file {file}: not UTF-8; save it as UTF-8") from None
