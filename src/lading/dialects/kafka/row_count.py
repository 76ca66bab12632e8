"""Rows of a request, counted before it is decoded, by the length of each list."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from lading.model.errors import MalformedMessage

from .requests import decode_request, read_uvarint, skip_tags
from .schemas import message
from .versions import SERVED

_SIZES: Final = {
    "int8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16,
}  # fmt: skip
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


class _Walk:
    """A position in a request, and how many rows may still follow."""

    __slots__ = ("at", "body", "rows_left", "rows_max")

    def __init__(self, body: memoryview, rows_max: int) -> None:
        self.body, self.at = body, 0
        self.rows_left = self.rows_max = rows_max

    def count(self, rows: int) -> None:
        """Count the entries of a list, from its length."""
        self.rows_left -= rows
        if self.rows_left < 0:
            raise MalformedMessage(f"the request has more than {self.rows_max} rows; ask for fewer at a time")
        if rows > len(self.body) - self.at:
            raise MalformedMessage(f"the request claims a list of {rows} entries", at=self.at)


Step = Callable[[_Walk], None]
"""Moves past a field."""


def count_rows(key: int, version: int, body: memoryview, rows_max: int) -> int:
    """Return how many rows a rare request has, in all its lists.

    Raises MalformedMessage if they are more than ``rows_max``, or the lengths are wrong.
    """
    served = SERVED[key]
    assert served.module is not None
    walk = _Walk(body, rows_max)
    try:
        for step in _find_steps(key, version):
            step(walk)
    except (struct.error, IndexError):
        raise MalformedMessage("the request is truncated", at=walk.at) from None
    return rows_max - walk.rows_left


@cache
def _find_steps(key: int, version: int) -> tuple[Step, ...]:
    served = SERVED[key]
    assert served.module is not None
    kind = message(served.module, served.name + "Request")
    return _steps_of(kind, version, version >= served.flexible)


def _steps_of(kind: Any, version: int, flexible: bool) -> tuple[Step, ...]:
    steps: list[Step] = []
    fixed_bytes = 0
    for field in kind.fields.values():
        if not field.for_version_q(version) or field._tag is not None:
            continue
        if (size_bytes := _SIZES.get(field.type_str)) is not None:
            fixed_bytes += size_bytes
            continue
        if fixed_bytes:
            steps.append(_skip(fixed_bytes))
            fixed_bytes = 0
        steps.append(_step_of(field, version, flexible))
    if fixed_bytes:
        steps.append(_skip(fixed_bytes))
    if flexible:
        steps.append(_skip_tags)
    return tuple(steps)


def _step_of(field: Any, version: int, flexible: bool) -> Step:
    if field.is_struct_array():
        return _list(_steps_of(field, version, flexible), flexible)
    if field.is_array():
        inner = field.type_str.removeprefix("[]")
        size_bytes = _SIZES.get(inner)
        return (
            _list((_pass_text(flexible, inner),), flexible)
            if size_bytes is None
            else _pass_numbers(size_bytes, flexible)
        )
    if field.is_struct():
        return _pass_struct(_steps_of(field, version, flexible), field.nullable_for_version_q(version))
    return _pass_text(flexible, field.type_str)


def _skip(size_bytes: int) -> Step:
    def step(walk: _Walk) -> None:
        walk.at += size_bytes
        if walk.at > len(walk.body):
            raise IndexError

    return step


def _skip_tags(walk: _Walk) -> None:
    # tagged fields are rare
    if walk.body[walk.at]:
        walk.at = skip_tags(walk.body, walk.at)
    else:
        walk.at += 1


def _read_length(walk: _Walk, flexible: bool, plain: struct.Struct) -> int:
    if flexible:
        length, walk.at = read_uvarint(walk.body, walk.at)
        return max(length - 1, 0)
    (length,) = plain.unpack_from(walk.body, walk.at)
    walk.at += plain.size
    return max(int(length), 0)


def _pass_text(flexible: bool, kind: str) -> Step:
    plain = _INT16 if kind == "string" else _INT32

    def step(walk: _Walk) -> None:
        size_bytes = _read_length(walk, flexible, plain)
        walk.at += size_bytes
        if walk.at > len(walk.body):
            raise IndexError

    return step


def _pass_numbers(size_bytes: int, flexible: bool) -> Step:
    def step(walk: _Walk) -> None:
        rows = _read_length(walk, flexible, _INT32)
        walk.count(rows)
        walk.at += rows * size_bytes
        if walk.at > len(walk.body):
            raise IndexError

    return step


def _list(steps: tuple[Step, ...], flexible: bool) -> Step:
    def step(walk: _Walk) -> None:
        rows = _read_length(walk, flexible, _INT32)
        walk.count(rows)
        for _ in range(rows):
            for one in steps:
                one(walk)

    return step


def _pass_struct(steps: tuple[Step, ...], nullable: bool) -> Step:
    def step(walk: _Walk) -> None:
        if nullable:
            # a byte says whether the struct is present
            walk.at += 1
            if walk.body[walk.at - 1] >= 128:
                return
        for one in steps:
            one(walk)

    return step


def decode_bounded_request(key: int, version: int, rows_max: int, body: memoryview) -> Any:
    """Return the body of a rare request as ``decode_request`` does, if it has at most ``rows_max`` rows.

    Raises MalformedMessage.
    """
    count_rows(key, version, body, rows_max)
    return decode_request(key, version, body)
