"""Faults of values in plain words, by the names that pydantic has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_FAULTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "int_parsing": lambda bounds: "not a whole number",
    "int_type": lambda bounds: "not a whole number",
    "int_from_float": lambda bounds: "not a whole number",
    "float_parsing": lambda bounds: "not a number",
    "float_type": lambda bounds: "not a number",
    "bool_parsing": lambda bounds: "neither true nor false",
    "bool_type": lambda bounds: "neither true nor false",
    "string_type": lambda bounds: "not text; write it in quotes",
    "list_type": lambda bounds: 'not a list; write it as ["a", "b"]',
    "dict_type": lambda bounds: "not a table",
    "literal_error": lambda bounds: f"not one of {bounds['expected']}",
    "enum": lambda bounds: f"not one of {bounds['expected']}",
    "string_too_short": lambda bounds: f"too short; use {bounds['min_length']} or more characters",
    "too_short": lambda bounds: f"too short; name {bounds['min_length']} or more",
    "greater_than": lambda bounds: f"too small; use more than {bounds['gt']:g}",
    "greater_than_equal": lambda bounds: f"too small; use {bounds['ge']:g} or more",
    "less_than": lambda bounds: f"too large; use less than {bounds['lt']:g}",
    "less_than_equal": lambda bounds: f"too large; use {bounds['le']:g} or less",
}
_LIBRARY_PREFIXES: Final = ("Value error, ", "Assertion failed, ")


def describe_fault(details: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, from one of a validation error's ``errors()``: as in "not a number"."""
    describe = _FAULTS.get(details["type"])
    if describe is not None:
        return describe(details.get("ctx", {}))
    reason = str(details.get("ctx", {}).get("error") or details["msg"])
    for prefix in _LIBRARY_PREFIXES:
        reason = reason.removeprefix(prefix)
    return reason[:1].lower() + reason[1:]


def is_known_fault(details: Mapping[str, Any]) -> bool:
    """Return whether ``describe_fault`` has words of its own for this."""
    return details["type"] in _FAULTS
