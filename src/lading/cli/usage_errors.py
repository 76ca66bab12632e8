"""A mistaken command line in one sentence and a usage line, as every other error, without the parser's boxes."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

from ..model.printable import escape_unseen_in_lines

_LIBRARY_SENTENCES: Final = (
    (re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL), r"too many arguments: \1"),
    (re.compile(r"Option '?([^' ]+)'? requires an argument"), r"option \1 needs a value"),
    (re.compile(r"Option '?([^' ]+)'? requires (\d+) arguments"), r"option \1 needs \2 values"),
    (re.compile(r"Option '?([^' ]+)'? does not take a value"), r"option \1 takes no value"),
)

OF_COMMANDS: Final = ("--server", "-s", "--from", "-f", "--output", "-o", "--data")
"""Options of nearly every command; kubectl and docker accept them before the command as well."""


def is_usage_error(error: BaseException) -> bool:
    """Return whether an exception is the parser's: the class lies in a private copy of click in some versions."""
    return hasattr(error, "exit_code") and hasattr(error, "format_message")


def print_usage_error(error: Any) -> None:
    """Print to standard error what is wrong with the command line, and below it how the command is used."""
    # no arguments were given, which prints the help; printing it raised this
    if type(error).__name__ == "NoArgsIsHelpError":
        return
    lines = f"lading: {describe_usage_error(error)}\n"
    context = getattr(error, "ctx", None)
    if context is not None:
        usage = " ".join(context.get_usage().split())
        lines += f"{usage}; help: {context.command_path} {context.help_option_names[0]}\n"
    sys.stderr.write(escape_unseen_in_lines(lines))


def describe_usage_error(error: Any) -> str:
    """Return the sentence for a usage error, without a full stop: object, problem and remedy."""
    message = str(error.message or "").strip().removesuffix(".")
    kind = type(error).__name__
    if kind == "NoSuchOption":
        if not message.startswith("No such option"):
            return message
        remedy = " or ".join(sorted(error.possibilities or ()))
        if error.option_name in OF_COMMANDS and error.ctx is not None and error.ctx.parent is None:
            return f"{error.option_name} belongs after the command: lading COMMAND {error.option_name} …"
        return f"option {error.option_name} does not exist" + (f"; did you mean {remedy}?" if remedy else "")
    if kind == "MissingParameter":
        name = _name_parameter(error)
        return f"{name} is missing" + (f"; {message}" if message else "")
    if kind == "BadParameter" and (name := _name_parameter(error)):
        return f"{name}: {_begin_small(message)}"
    if message.startswith("No such command "):
        word, _, rest = message.removeprefix("No such command ").partition(". Did you mean ")
        return f"command {word} does not exist" + (f"; did you mean {rest}" if rest else "")
    for library, ours in _LIBRARY_SENTENCES:
        if found := library.fullmatch(message):
            return found.expand(ours)
    return _begin_small(message)


def _name_parameter(error: Any) -> str:
    """Return the parameter that an error is about as users write it: its long option, or the argument's name."""
    hint = error.param_hint
    if hint is None and error.param is not None:
        options = [name for name in error.param.opts if name.startswith("-")]
        hint = max(options, key=len) if options else error.param.metavar or (error.param.name or "").upper()
    if hint is None:
        return ""
    text = hint if isinstance(hint, str) else " or ".join(hint)
    return text.replace("'", "")


def _begin_small(message: str) -> str:
    """Return a sentence for use after a colon: its first word in lower case, unless it is a name."""
    first = message.split(" ", 1)[0]
    return message if first.isupper() else message[:1].lower() + message[1:]
