"""Suggestions for a mistaken command line: the nearest command or option that exists."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Final

from typer import Abort
from typer.core import TyperGroup

from .plain_command import describe_wrong_value
from .usage_errors import is_usage_error, print_usage_error

OPTION_TWINS: Final = {"--server": "--from", "-s": "--from", "--from": "--server", "-f": "--server"}
"""Pairs of options: commands that only read also accept a directory, so their option has another name."""
OPTION_SYNONYMS: Final = {
    "--limit": ("--count", "--rows"), "--num": ("--count",), "-c": ("--count", "--columns"), "--max": ("--count",),
    "--max-messages": ("--count",),
    "--port": ("--set endpoints.NAME.address=HOST:PORT", "--free-ports", "--server", "--from"),
    "--host": ("--set endpoints.NAME.address=HOST:PORT", "--server", "--from"),
    "--tail": ("--offset -10",), "--from-beginning": ("--offset earliest",), "--broker": ("--server", "--from"),
    "--brokers": ("--server", "--from"), "-b": ("--server", "--from"), "--bootstrap-server": ("--server", "--from"),
    "--property": ("--transport OPTION=VALUE",), "-X": ("--transport OPTION=VALUE",), "-t": ("TOPIC as an argument",),
    "--topic": ("TOPIC as an argument",), "--json": ("--output json",), "--partitions": ("--partition",),
    "--data-dir": ("--data",), "--group-id": ("--group",), "-D": ("--data",),
}  # fmt: skip
"""Options of kcat, rpk and other tools, with our equivalents; only those that the command has are suggested."""
SYNONYMS: Final = {
    "read": "poll", "consume": "poll", "get": "poll", "fetch": "poll", "follow": "tail", "produce": "send",
    "publish": "send", "put": "send", "describe": "show", "info": "show", "ls": "list", "rm": "delete",
    "remove": "delete", "add": "create", "new": "create", "start": "serve", "broker": "serve", "replay": "redrive",
}  # fmt: skip
"""Names that other tools have for our commands."""
SHOWN_MAX: Final = 4
NEAR_SIMILARITY: Final = 0.75
"""An option of the command at least this similar is suggested, before the same option of a neighbouring command."""
MISTYPED_SIMILARITY: Final = 0.6
"""A word at least this similar to a command of the group is a mistyped command, not an argument of the default
command."""


class NearestGroup(TyperGroup):
    """A group of commands that searches all other groups, too, for a mistaken word or option."""

    build_whole: ClassVar[Callable[[], Any]]
    """Returns the command with all groups, as perhaps only the one on the command line was built."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line. A mistake in it is one sentence, and the process ends with its code."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        try:
            # commands return nothing; an early exit, such as help, returns its code as a number
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except Abort:
            sys.stderr.write("lading: aborted\n")
            sys.exit(1)
        except Exception as error:
            if not is_usage_error(error):
                raise
            print_usage_error(error)
            sys.exit(error.exit_code)  # type: ignore[attr-defined]
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command. Raises a usage error that names the group of a command that is not in this one."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            # the class of usage errors is in a private copy of click in some versions
            if args and hasattr(error, "message"):
                found = list(_find_in_other_groups(ctx, args[0]))
                if found:
                    named = ", ".join(repr(one) for one in found[:SHOWN_MAX])
                    error.message = f"No such command {args[0]!r}. Did you mean {named}?"
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command. The usage error for an unknown option names the one that the command has instead."""
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done
        except Exception as error:
            if getattr(error, "message", None) and (sentence := describe_wrong_value(error)):
                error.message = sentence  # type: ignore[attr-defined]
            option = getattr(error, "option_name", None) or ""
            root = ctx.find_root()
            if any(option in param.opts for param in root.command.params):
                error.message = f"{option} belongs before the command: {root.command_path} {option} …"  # type: ignore[attr-defined]
                error.possibilities = []  # type: ignore[attr-defined]
            other = OPTION_TWINS.get(option)
            command = getattr(getattr(error, "ctx", None), "command", None)
            params = getattr(command, "params", ())
            known = {name for param in params for name in (*param.opts, (param.metavar or param.name or "").upper())}
            forms = [form for form in OPTION_SYNONYMS.get(option, ()) if form.split()[0] in known]
            if other in known:
                error.possibilities = [other]  # type: ignore[attr-defined]
            elif forms:
                error.possibilities = forms  # type: ignore[attr-defined]
            elif option and command is not None:
                near = list(getattr(error, "possibilities", None) or ())
                # the parser suggests --count for --json
                if not get_close_matches(option, near, 1, NEAR_SIMILARITY):
                    error.possibilities = _find_in_neighbours(error.ctx, option) or near  # type: ignore[attr-defined]
            raise


class DefaultCommandGroup(NearestGroup):
    """A group whose command ``default`` is run if the command line names none of its commands."""

    default: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the command line, after adding the default command if it is missing."""
        # a shell that requests completions may have typed no word yet
        is_named = bool(args) and (args[0] in ctx.help_option_names or self._names_command(args[0]))
        if not is_named and (args or not ctx.resilient_parsing):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _names_command(self, word: str) -> bool:
        """Return whether ``word`` is a command, or a mistyped one that cannot be an argument of the default command."""
        if word in self.commands:
            return True
        return bool(get_close_matches(word, self.commands, 1, MISTYPED_SIMILARITY)) and not Path(word).exists()

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the completions: the commands, and the options of the default one."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            command = self.commands[self.default]
            found += command.shell_complete(
                command.make_context(self.default, [], ctx, resilient_parsing=True), incomplete
            )
        return found


class CreatingGroup(DefaultCommandGroup):
    """A group whose command ``create`` may be left out."""

    default = "create"


class CopyingGroup(DefaultCommandGroup):
    """A group whose command ``copy`` may be left out."""

    default = "copy"


def _find_in_neighbours(ctx: Any, option: str) -> list[str]:
    """Return the commands of the same group that have an option, or one of its synonyms, with the option."""
    group = ctx.parent
    if group is None:
        return []
    forms = (option, *OPTION_SYNONYMS.get(option, ()))
    found = []
    for name, command in getattr(group.command, "commands", {}).items():
        known = {one for param in command.params for one in param.opts}
        if form := next((one for one in forms if one.split()[0] in known), None):
            found.append(f"{group.command_path} {name} {form}")
    return found[:SHOWN_MAX]


def _find_in_other_groups(ctx: Any, word: str) -> Iterator[str]:
    """Yield the commands whose last word is ``word`` or a synonym, those of the group in question first."""
    own = ctx.command_path.split()
    whole = list(_list_commands(NearestGroup.build_whole(), ctx.find_root().command_path))
    asked = [path for path in whole if path.split()[: len(own)] == own]
    ordered = [*asked, *(path for path in whole if path not in asked)]
    for meant in (word, SYNONYMS.get(word)):
        yield from (path for path in ordered if path.split()[-1] == meant)


def _list_commands(command: Any, path: str) -> Iterator[str]:
    nested = getattr(command, "commands", None)
    if nested is None:
        yield path
        return
    for name, one in nested.items():
        yield from _list_commands(one, f"{path} {name}")
