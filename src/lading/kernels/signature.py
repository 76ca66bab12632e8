"""Decorators of kernels, the types they are compiled for, each named once, and their compilation.

A kernel is what the rest of the package calls, through ``kernels.engine``: it has a signature of Numba types, in
capitals here, and becomes machine code before its first use. Routines and inlined functions are called by kernels
alone and take whatever types they are given; their annotations are for readers and for mypy, Numba looks at none.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numba.core.environment import lookup_environment

from .arrays import Bytes
from .machine_code import CompiledKernel

_njit: Any = numba.njit
_types: Any = numba.types

Function = TypeVar("Function", bound=Callable[..., Any])

_ENVIRONMENT: Final = "_ZN08NumbaEnv"
_kernels: dict[str, list[tuple[Any, Any]]] = {}
"""Dispatcher and signature of each kernel, by the module that it was defined in."""

Address = int
"""The address of an array, from ``memory.base``; the caller holds the array."""
Data = Bytes | Address
"""The argument of unchecked loads and stores: an array of any type, or its address."""

LONG, BOOLEAN, NOTHING = _types.int64, _types.boolean, _types.void
INT, UINT32 = _types.int32, _types.uint32


def _readable(item: Any, dimensions: int = 1, order: str = "C") -> Any:
    """An array that is only read, so that a read-only one may be given."""
    return _types.Array(item, dimensions, order, readonly=True)


BYTES, KINDS, INTS, LONGS = (_readable(item) for item in (_types.uint8, _types.int8, _types.int32, LONG))
UINT32S = _readable(_types.uint32)
TABLE = _readable(LONG, 2)
CHUNKS = _readable(LONG, 2, "A")
"""A table of chunks (see ``model.chunk_table``), which may be a part of a larger one."""

OUT_BYTES, OUT_KINDS, OUT_INTS, OUT_LONGS = _types.uint8[::1], _types.int8[::1], _types.int32[::1], LONG[::1]
OUT_SHORTS, OUT_WORDS, OUT_FLOATS = _types.uint16[::1], _types.uint64[::1], _types.float64[::1]
OUT_TABLE, OUT_INT_TABLE, OUT_KIND_TABLE = LONG[:, ::1], _types.int32[:, ::1], _types.int8[:, ::1]
"""Arrays that a kernel writes, or writes and reads."""

int32 = cast("Callable[[Any], int]", np.int32)
int64 = cast("Callable[[Any], int]", np.int64)
uint32 = cast("Callable[[Any], int]", np.uint32)
uint64 = cast("Callable[[Any], int]", np.uint64)
"""NumPy's types as casts, which mypy may take for int. Numba makes float64 of an int64 with a uint64."""


def several(count: int) -> Any:
    """The type of a tuple of ``count`` int64."""
    return _types.UniTuple(LONG, count)


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Have ``compile_kernels`` compile a function for one signature; it runs without the GIL."""

    def note_signature(function: Function) -> Function:
        # nothing calls the wrapper for C callers
        dispatcher = _njit(nogil=True, no_cfunc_wrapper=True)(function)
        _kernels.setdefault(function.__module__, []).append((dispatcher, signature))
        return cast("Function", dispatcher)

    return note_signature


def compile_kernels(home: str) -> list[CompiledKernel]:
    """Import a module of kernels and compile them, which takes seconds. Raises what Numba raises of its sources."""
    import_module(home)
    return [_compile(dispatcher, signature) for dispatcher, signature in _kernels[home]]


def _compile(dispatcher: Any, signature: Any) -> CompiledKernel:
    dispatcher.compile(signature)
    (result,) = dispatcher.overloads.values()
    library, name = result.library, dispatcher.__name__
    _, kind, (code, _) = library.serialize_using_object_code()
    module = library._final_module
    environments = tuple(item.name for item in module.global_variables if item.name.startswith(_ENVIRONMENT))
    # such globals and constants are addresses in this process, and do not exist in the one that reads the file
    if library.has_dynamic_globals or any(lookup_environment(symbol).consts for symbol in environments):
        raise TypeError(f"{dispatcher.__module__}.{name} refers to an object of this process, which no file can hold")
    assert kind == "object"
    return CompiledKernel(
        name, str(result.signature), result.fndesc.llvm_cpython_wrapper_name, environments, _list_imports(module), code
    )


def _list_imports(module: Any) -> tuple[str, ...]:
    """Return what a module of LLVM's wants from elsewhere; ``llvm.…`` becomes instructions, or the C library's."""
    declared = (
        item.name for items in (module.functions, module.global_variables) for item in items if item.is_declaration
    )
    return tuple(sorted(name for name in declared if not name.startswith("llvm.")))


def routine(function: Function) -> Function:
    """Compile once for each set of types it is called with; LLVM inlines it if it thinks that it pays."""
    return cast("Function", _njit(nogil=True)(function))


def step(function: Function) -> Function:
    """Compile as a routine, which LLVM always inlines: a named part of a hot loop, which costs as if written there."""
    return cast("Function", _njit(nogil=True, forceinline=True)(function))


def inline(function: Function) -> Function:
    """Put the body in place of each call, before types are known: for a few lines, as each call compiles them again."""
    return cast("Function", _njit(inline="always")(function))
