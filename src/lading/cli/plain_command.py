"""A command whose usage line and complaints are in our words, not in those of the libraries that parse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from typer.core import TyperArgument, TyperCommand

VALUE_SENTENCES: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], str]]] = {
    "int_parsing": lambda value, bounds: f"{value!r} is not a whole number",
    "float_parsing": lambda value, bounds: f"{value!r} is not a number",
    "bool_parsing": lambda value, bounds: f"{value!r} is not a yes or a no",
    "greater_than": lambda value, bounds: f"{value} is too small; use more than {bounds['gt']:g}",
    "greater_than_equal": lambda value, bounds: f"{value} is too small; use {bounds['ge']:g} or more",
    "less_than": lambda value, bounds: f"{value} is too large; use less than {bounds['lt']:g}",
    "less_than_equal": lambda value, bounds: f"{value} is too large; use {bounds['le']:g} or less",
}
"""The fault of a value, by the name that the library which checks values has for it."""
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
    sentence = VALUE_SENTENCES.get(details["type"])
    if sentence is not None:
        return sentence(details["input"], details.get("ctx", {}))
    message: str = error.message
    return message.removeprefix(_LIBRARY_PREFIX).removesuffix(".")
