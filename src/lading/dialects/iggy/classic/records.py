"""Dataclasses whose fields say how they lie in bytes: the layout of a command or block is its class body.

A field is ``name: Annotated[type, codec]`` or ``Annotated[type, codec, rule]``; fields follow each other in class
order. A field that only other releases have is a plain one with a default: it has no bytes in this layout. If a release
lays a record out in another way, ``record(kind, name=codec, ...)`` says how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from .primitives import Codec
from .validation import Rule

R = TypeVar("R")

Reading = Callable[[memoryview, int], tuple[Any, int]]
Writing = Callable[[Any], bytes]


_FIELDS: dict[type, tuple[tuple[str, tuple[Any, ...]], ...]] = {}


def _fields_of(kind: type) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    if kind not in _FIELDS:
        hints = get_type_hints(kind, include_extras=True)
        _FIELDS[kind] = tuple(
            (name, hint.__metadata__) for name, hint in hints.items() if hasattr(hint, "__metadata__")
        )
    return _FIELDS[kind]


def layout(kind: type) -> tuple[tuple[str, Codec[Any]], ...]:
    """Return the (field name, Codec) pairs of a record in byte order."""
    return tuple((name, extras[0]) for name, extras in _fields_of(kind))


_RULES: dict[type, tuple[tuple[str, Rule], ...]] = {}


def validate(value: object) -> None:
    """Raise Refusal if a field breaks its rule, as a server does before it looks anything up (iggy.md A6)."""
    kind = type(value)
    if kind not in _RULES:
        _RULES[kind] = tuple((name, extras[1]) for name, extras in _fields_of(kind) if len(extras) > 1)
    for name, rule in _RULES[kind]:
        rule.check(getattr(value, name))


def record(kind: type[R], /, **fields: Codec[Any]) -> Codec[R]:
    """Return the Codec of a whole record: by its class body, or by ``fields`` if any are given.

    A field whose name begins with an underscore stands for bytes that are not part of the record: they are skipped on
    reading and written as the Codec writes None.

    A class body is looked at when the Codec is first used: of several hundred, most belong to commands and releases
    that no client of this broker speaks.
    """
    codecs: tuple[tuple[str | None, Reading, Writing], ...] | None = None

    def lay_out() -> tuple[tuple[str | None, Reading, Writing], ...]:
        nonlocal codecs
        laid_out = tuple(fields.items()) or layout(kind)
        codecs = tuple((None if name.startswith("_") else name, codec.read, codec.write) for name, codec in laid_out)
        return codecs

    def read(data: memoryview, at: int) -> tuple[R, int]:
        values = {}
        for name, read_field, _ in lay_out() if codecs is None else codecs:
            value, at = read_field(data, at)
            if name is not None:
                values[name] = value
        return kind(**values), at

    def write(value: R) -> bytes:
        laid_out = lay_out() if codecs is None else codecs
        return b"".join(
            [write_field(None if name is None else getattr(value, name)) for name, _, write_field in laid_out]
        )

    return Codec(read, write)
