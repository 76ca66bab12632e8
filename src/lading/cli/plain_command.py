"""A command whose usage line and errors use our words, instead of those of the parsing libraries."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperArgument, TyperCommand

from ..model.value_faults import describe_fault, is_known_fault

_LIBRARY_PREFIX: Final = "Value error, "


class PlainCommand(TyperCommand):
    """A command whose arguments are upper-case words in its usage line, as in ``poll [OPTIONS] TOPIC``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take the parameters of typer; an argument without a display name gets its own name in capitals."""
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
    # several words, such as "[SRC] TOPIC", already show which of them are optional
    if " " in name:
        return name
    many = "" if param.nargs == 1 or name.endswith("...") else "..."
    return f"{name}{many}" if param.required else f"[{name}]{many}"


def describe_wrong_value(error: Any) -> str | None:
    """Return our sentence for the wrong value in a usage error; None to keep the error's own."""
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
