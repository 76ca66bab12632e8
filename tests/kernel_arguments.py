"""Kernels check next to nothing of their arguments; in tests each argument of each call is checked against its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from lading.kernels import machine_code
from lading.kernels.machine_code import CompiledKernel

link_unchecked: Final = machine_code.link_kernels
_TYPE: Final = re.compile(r"Array\((\w+), (\d), '(\w)', (True|False), aligned=True\)|(\w+)")
"""Of an array: its items, dimensions, order, and whether it is only read."""


class _ArrayType(NamedTuple):
    item: np.dtype[Any]
    dimensions: int
    contiguous: bool
    written: bool

    def takes(self, value: object) -> bool:
        return (
            isinstance(value, np.ndarray)
            and value.dtype == self.item
            and value.ndim == self.dimensions
            and (value.flags.c_contiguous or not self.contiguous)
            and (value.flags.writeable or not self.written)
        )


class _NumberType(NamedTuple):
    name: str

    def takes(self, value: object) -> bool:
        return isinstance(value, bool | np.bool_ if self.name == "bool" else int | np.integer)


def install() -> None:
    """Have every kernel that this process loads from now on raise TypeError for an argument of another type."""
    machine_code.link_kernels = link_checked


def link_checked(home: str, kernels: Sequence[CompiledKernel]) -> ModuleType:
    """See ``machine_code.link_kernels``."""
    module = link_unchecked(home, kernels)
    for kernel in kernels:
        types = parse_arguments(kernel.signature)
        vars(module)[kernel.name] = _check_first(f"{home}.{kernel.name}", types, vars(module)[kernel.name])
    return module


def parse_arguments(signature: str) -> list[_ArrayType | _NumberType]:
    """Return the types of a signature as Numba writes it, ``(Array(uint8, 1, 'C', True, aligned=True), …) -> …``."""
    found: list[_ArrayType | _NumberType] = []
    # a tuple of one ends with a comma
    arguments = signature.rpartition(" -> ")[0].removeprefix("(").removesuffix(")").removesuffix(",")
    at = 0
    while at < len(arguments):
        match = _TYPE.match(arguments, at)
        assert match, (signature, at)
        item, dimensions, order, read_only, number = match.groups()
        if number:
            found.append(_NumberType(number))
        else:
            found.append(_ArrayType(np.dtype(item), int(dimensions), order == "C", read_only == "False"))
        at = match.end()
        assert arguments[at : at + 2] in (", ", ""), (signature, at)
        at += 2
    return found


def _check_first(
    name: str, types: Sequence[_ArrayType | _NumberType], function: Callable[..., Any]
) -> Callable[..., Any]:
    @wraps(function)
    def checked(*arguments: Any) -> Any:
        if len(arguments) != len(types):
            raise TypeError(f"{name} takes {len(types)} arguments, not {len(arguments)}")
        for number, (value, wanted) in enumerate(zip(arguments, types, strict=True)):
            if not wanted.takes(value):
                raise TypeError(f"{name}: argument {number} is to be {wanted}, not {_describe(value)}")
        return function(*arguments)

    return checked


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}, contiguous {value.flags.c_contiguous}, written {value.flags.writeable}"
    return f"{type(value).__name__} {value!r:.50}"
