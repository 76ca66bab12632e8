"""The interface of the three formats: a parsed schema, its references, and JSON text read and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ..model.errors import LadingError

JSON_DEPTH_MAX: Final = 250
"""Limit of nesting in a schema; Python's own parser gives up at about a thousand levels."""


class InvalidSchema(LadingError):
    """A text is not a schema of its format; the message says why."""


class Reference(NamedTuple):
    """A schema that another one uses: the name by which it is imported, and its subject and version."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """The text of a referenced schema. References come after the schemas that they use themselves."""

    name: str
    text: str
    reference: Reference | None = None


class ParsedSchema(Protocol):
    """A schema of any format. ``text`` is its canonical form: two schemas are the same if kind and texts are equal."""

    @property
    def kind(self) -> str:
        """Return the name of the format, as a registry calls it."""
        ...

    @property
    def text(self) -> str: ...

    def normalize(self) -> str:
        """Return the text without parts that readers ignore, such as the order of attributes."""
        ...

    def format_text(self, form: str) -> str:
        """Return the text in another ``form``, such as ``serialized``; an unknown form is the canonical one."""
        ...

    def require_valid(self) -> None:
        """Check the rules for new schemas only. Raises InvalidSchema."""
        ...


Parse = Callable[[str, Sequence[ResolvedReference]], ParsedSchema]
Compare = Callable[[Any, Any, tuple[str, str]], list[str]]
"""Takes the reader's and the writer's schema, and their names for messages; returns why the first cannot read the
second.
"""


@dataclass(frozen=True, slots=True)
class SchemaFormat:
    """A format as data: the functions that parse and compare it."""

    kind: str
    parse: Parse
    list_incompatibilities: Compare
    forms: frozenset[str] = field(default=frozenset())


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises InvalidSchema; NaN, infinite numbers and lone surrogates are invalid."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_finite)
        text.encode()
    except RecursionError:
        raise InvalidSchema(f"nested more than {JSON_DEPTH_MAX} levels deep") from None
    except ValueError as error:
        raise InvalidSchema(f"not JSON: {str(error)[:300]}") from None
    require_depth(value)
    return value


def require_depth(value: Any) -> None:
    """Raise InvalidSchema if a JSON value is nested too deep, or has a lone surrogate from an escape."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > JSON_DEPTH_MAX:
            raise InvalidSchema(f"nested more than {JSON_DEPTH_MAX} levels deep")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
                for name in item:
                    _require_text(name)
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str):
                _require_text(item)
        level = below


def _require_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidSchema("a text with half of a surrogate pair") from None


def write_json(value: Any) -> str:
    """Return JSON without spaces, with members in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"number {text[:40]} is too large")
    return number
