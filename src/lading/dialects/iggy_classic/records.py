"""Dataclasses whose fields say how they lie in bytes: the layout of a command or block is its class body.

A field is ``name: Annotated[type, codec]`` or ``Annotated[type, codec, rule]``; fields lie in class order.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_type_hints

from .primitives import Codec
from .validation import Rule

R = TypeVar("R")


def _fields(kind: type) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return tuple((name, hint.__metadata__) for name, hint in get_type_hints(kind, include_extras=True).items())


def layout(kind: type) -> tuple[tuple[str, Codec[Any]], ...]:
    """The (field name, Codec) pairs of a record in byte order."""
    return tuple((name, extras[0]) for name, extras in _fields(kind))


_RULES: dict[type, tuple[tuple[str, Rule], ...]] = {}


def validate(value: object) -> None:
    """Refusal where a field breaks its rule: what a server refuses before it looks anything up (iggy.md A6)."""
    kind = type(value)
    if kind not in _RULES:
        _RULES[kind] = tuple((name, extras[1]) for name, extras in _fields(kind) if len(extras) > 1)
    for name, rule in _RULES[kind]:
        rule.check(getattr(value, name))


def record(kind: type[R]) -> Codec[R]:
    """The Codec of a whole record."""
    codecs = tuple(codec.read for _, codec in layout(kind))
    parts = tuple((name, codec.write) for name, codec in layout(kind))

    def read(data: memoryview, at: int) -> tuple[R, int]:
        values = []
        for read_field in codecs:
            value, at = read_field(data, at)
            values.append(value)
        return kind(*values), at

    def write(value: R) -> bytes:
        return b"".join([write_field(getattr(value, name)) for name, write_field in parts])

    return Codec(read, write)
