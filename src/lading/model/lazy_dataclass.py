"""Frozen dataclasses each of whose methods is compiled when it is first called.

``dataclasses.dataclass`` writes up to six methods of a class as text and compiles each, which takes longer than all
else that an import does; of several hundred classes, most are commands and results that no client of a process uses.

Measured with the 197 of a broker's imports, CPU on a busy machine, best of 5: declared in 22 ms instead of 205 ms; a
first call takes 1 ms more, and a broker makes 22 of them before it is ready.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

__all__ = ["COMPILED_LATER", "lazy_dataclass"]

COMPILED_LATER: Final[Mapping[str, Mapping[str, Any]]] = {
    "__init__": {"init": True, "repr": False, "eq": False, "frozen": True},
    "__repr__": {"init": False, "repr": True, "eq": False},
    "__eq__": {"init": False, "repr": False, "eq": True},
    "__hash__": {"init": False, "repr": False, "eq": False, "unsafe_hash": True},
}
"""Methods, and the options of a dataclass of whose methods only this one is compiled."""

if TYPE_CHECKING:
    from dataclasses import dataclass as lazy_dataclass
else:

    def lazy_dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """As ``dataclasses.dataclass(frozen=True, slots=True)``, in a fifth of the time.

        Methods that the class itself defines stay. Threads may be the first together: each compiles the same.
        """
        if not (frozen and slots):
            raise TypeError("lazy_dataclass is for frozen dataclasses with slots; take dataclasses.dataclass")
        return _declare


def _declare(declared: type) -> type:
    """Return the class with slots and fields; methods that compile themselves stand for those to come."""
    own = declared.__dict__.keys()
    kind: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(declared)
    for name in COMPILED_LATER:
        if name not in own:
            setattr(kind, name, _make_first_call(kind, name))
    for method in (__setattr__, __delattr__, __getstate__, __setstate__):
        if method.__name__ not in own:
            setattr(kind, method.__name__, method)
    # a class that inherits from this one has to be frozen, too
    kind.__dataclass_params__.frozen = True
    made: type = kind
    return made


def _make_first_call(kind: type, name: str) -> Callable[..., Any]:
    def call_first(self: Any, *arguments: Any, **named: Any) -> Any:
        _compile(kind, name)
        return getattr(kind, name)(self, *arguments, **named)

    call_first.is_compiled_later = True  # type: ignore[attr-defined]
    return call_first


def _compile(kind: Any, name: str) -> None:
    """Put a method of an ordinary dataclass with these fields into the class."""
    copies = [(field.name, field.type, _copy(field)) for field in dataclasses.fields(kind)]
    after = {"__post_init__": kind.__post_init__} if hasattr(kind, "__post_init__") else {}
    twin = dataclasses.make_dataclass(kind.__name__, copies, namespace=after, **COMPILED_LATER[name])
    method = getattr(twin, name)
    method.__qualname__ = f"{kind.__qualname__}.{name}"
    setattr(kind, name, method)


def _copy(field: dataclasses.Field[Any]) -> Any:
    facts = ("default", "default_factory", "init", "repr", "hash", "compare", "metadata", "kw_only")
    return dataclasses.field(**{fact: getattr(field, fact) for fact in facts})


def __setattr__(self: Any, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def __getstate__(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def __setstate__(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
