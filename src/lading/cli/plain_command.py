"""A command whose usage line and complaints are in our words, not in those of the libraries that parse it."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperArgument, TyperCommand

from ..model.value_faults import describe_fault, is_known_fault

_LIBRARY_PREFIX: Final = "Value error, "


class PlainCommand(TyperCommand):
    """A command whose arguments are upper-case words in its usage line, as in ``poll [OPTIONS] TOPIC``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what typer gives; an argument without a name for people has its own in capitals."""
        super().__init__(*arguments, **options)
        for param in self.params:
            if isinstance(param, TyperArgument) and param.metavar is None:
                param.metavar = (param.name or "").upper()

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the command's name."""
        pieces = [self.options_metavar] if self.options_metavar else []
        return pieces + [_usage_word(param) for param in self.params if isinstance(param, TyperArgument)]


def _usage_word(param: TyperArgument) -> str:
    name = param.metavar or ""
    # several words, such as "[SRC] TOPIC", say by themselves what may be left out
    if " " in name:
        return name
    many = "" if param.nargs == 1 or name.endswith("...") else "..."
    return f"{name}{many}" if param.required else f"[{name}]{many}"


def describe_wrong_value(error: Any) -> str | None:
    """Return our sentence for a value that a usage error is about; None if the error's own is to be kept."""
    causes = getattr(error.__cause__, "errors", None)
    if causes is None:
        return None
    details = causes()[0]
    if is_known_fault(details):
        value = details["input"]
        shown = repr(value) if details["type"].endswith("_parsing") else value
        return f"{shown} is {describe_fault(details)}"
    message: str = error.message
    return message.removeprefix(_LIBRARY_PREFIX).removesuffix(".")
