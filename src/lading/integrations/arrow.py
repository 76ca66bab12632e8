"""A scan as a dataset of pyarrow, whose projection and filter are pushed down: what DuckDB and others scan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from ..client.scan import TopicScan
from ..client.scan_conditions import (
    MIRRORED,
    AllConditions,
    AnyCondition,
    ColumnComparison,
    ColumnCondition,
    ColumnNull,
    ColumnValues,
)

DEPTH_MAX: Final = 64
_OPERATORS: Final = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class TopicDataset(ds.Dataset):
    """A scan as a pyarrow Dataset: each scanner reads it anew, only its columns, and what its filter may select."""

    def __init__(self, scan: TopicScan) -> None:
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """The schema of the scan."""
        return self._scan.schema

    def scanner(  # type: ignore[override]
        self, columns: Any = None, filter: Any = None, **options: Any
    ) -> ds.Scanner:
        """Return a scanner of the columns and rows. Other options of pyarrow are for files, and are ignored."""
        names = columns if isinstance(columns, list | tuple) else None
        scan = self._scan.push_down(None if filter is None else to_condition(filter, self.schema))
        if names is not None:
            read = [*names, *(name for name in _list_fields(filter, self.schema) if name not in names)]
            scan = scan.select(read)
        return ds.Scanner.from_batches(scan.to_reader(), columns=columns, filter=filter)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._scan.__arrow_c_stream__(requested_schema)


def _list_fields(expression: Any, schema: pa.Schema) -> list[str]:
    """Return the columns that an expression may name: those whose names are in its text."""
    if expression is None:
        return []
    text = str(expression)
    return [name for name in schema.names if name in text]


def to_condition(expression: Any, schema: pa.Schema) -> ColumnCondition | None:
    """Return the part of a pyarrow expression that is understood, or None. pyarrow shows it only as text."""
    if not all(map(_NAME.fullmatch, schema.names)):
        return None
    try:
        return _ExpressionReader(str(expression), schema).read()
    except _NotUnderstood:
        return None


class _NotUnderstood(Exception):
    """The text of an expression is unknown."""


_NAME: Final = re.compile(r"(?!true$|false$)[A-Za-z_][\w.-]*")
"""Names that differ from all other parts of an expression: pyarrow prints names without quotes."""
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_JOINED: Final = re.compile(r" (and|or) ")
_VALUE: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^,"]+)\s*(?:,|$)', re.S)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6})0*)?Z")
_INNER_VALUES: Final = re.compile(r"if_else\(is_valid\((?P<name>.+?)\), (?P<rest>is_in\(.*\)), null\[bool\]\)", re.S)
_VALUES: Final = re.compile(r"is_in\((?P<column>.+?), \{value_set=(?P<type>\w+):\[(?P<values>[^\]]*)\]")
_NULL: Final = re.compile(r"is_(?P<word>null|valid)\((?P<column>[^(){},]+?)(?:, \{nan_is_null=false\})?\)")
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


class _ExpressionReader:
    """Reads ``((a > 5) and (b == "x"))``. An unknown term of an AND is left out; an unknown expression is None."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema

    def read(self) -> ColumnCondition | None:
        return self._read(self._text, 0)

    def _read(self, text: str, depth: int) -> ColumnCondition | None:
        text = text.strip()
        if depth > DEPTH_MAX:
            return None
        if null := _NULL.fullmatch(text):
            return self._if_known(ColumnNull(null["column"], null["word"] == "null"))
        if text.startswith(("is_in(", "if_else(is_valid(")):
            return self._read_values(text)
        if not (text.startswith("(") and text.endswith(")")):
            return None
        parts = list(_split(text[1:-1]))
        words = {word for word, _ in parts[1:]}
        if len(words) == 1:
            terms = tuple(self._read(part, depth + 1) for _, part in parts)
            return AllConditions(terms) if words == {"and"} else AnyCondition(terms)
        return self._read_comparison(text[1:-1]) if not words else None

    def _if_known(self, condition: ColumnComparison | ColumnNull | ColumnValues) -> ColumnCondition | None:
        return condition if condition.column in self._schema.names else None

    def _read_comparison(self, text: str) -> ColumnCondition | None:
        for name in self._schema.names:
            for symbol, operator in _OPERATORS.items():
                before = f"{name} {symbol} "
                if text.startswith(before):
                    value = _read_value(text[len(before) :])
                    return None if value is None else ColumnComparison(name, operator, value)
                after = f" {symbol} {name}"
                if text.endswith(after):
                    value = _read_value(text[: -len(after)])
                    mirrored = MIRRORED.get(operator, operator)
                    return None if value is None else ColumnComparison(name, mirrored, value)
        return None

    def _read_values(self, text: str) -> ColumnCondition | None:
        """Read ``is_in(a, {value_set=int32:[1, 2], …})``, which DuckDB puts into ``if_else(is_valid(a), …, null)``."""
        inner = _INNER_VALUES.fullmatch(text)
        found = _VALUES.match(text if inner is None else inner["rest"])
        if found is None or (inner is not None and inner["name"] != found["column"]):
            return None
        values = [_read_value(part.strip()) for part in _split_values(found["values"])]
        if not values or None in values:
            return None
        return self._if_known(ColumnValues(found["column"], tuple(values)))


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of ``a and b and c``, each with the word before it, outside of brackets and quotes."""
    word, start, depth, at = "", 0, 0, 0
    while at < len(text):
        letter = text[at]
        if letter == '"':
            end = _TEXT.match(text, at)
            if end is None:
                raise _NotUnderstood
            at = end.end()
            continue
        depth += (letter in "([{") - (letter in ")]}")
        joined = _JOINED.match(text, at) if depth == 0 and letter == " " else None
        if joined is not None:
            yield word, text[start:at]
            word, start, at = joined[1], joined.end(), joined.end()
            continue
        at += 1
    if depth:
        raise _NotUnderstood
    yield word, text[start:]


def _split_values(text: str) -> Iterator[str]:
    at = 0
    while at < len(text.rstrip()):
        found = _VALUE.match(text, at)
        # a long list is shown with its middle left out
        if found is None or "..." in found[1]:
            raise _NotUnderstood
        yield found[1]
        at = found.end()


def _read_value(text: str) -> Any:
    """Return a constant as pyarrow shows it; None for one that is not known."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d+\.?\d*(?:e[+-]?\d+)?", text):
        return float(text)
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _unescape(text[1:-1])
    if time := _TIME.fullmatch(text):
        moment = datetime.fromisoformat(time[1]).replace(tzinfo=UTC)
        return moment.replace(microsecond=int((time[2] or "0").ljust(6, "0")))
    return None


def _unescape(text: str) -> str | None:
    """Return a text without its escapes; None if there is an escape that is not known."""
    letters: list[str] = []
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            position += 1
            letter = _ESCAPED.get(text[position : position + 1], "")
            if not letter:
                return None
        letters.append(letter)
        position += 1
    return "".join(letters)
