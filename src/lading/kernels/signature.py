"""Decorators that compile functions of kernels, and the types they are compiled for, each named once.

A kernel is what the rest of the package calls: it has a signature of Numba types, in capitals here, so that it is
compiled when its module is imported and kept in the cache. Routines and inlined functions are called by kernels
alone and take whatever types they are given; their annotations are for readers and for mypy, Numba looks at none.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import environment
from numba.core.caching import FunctionCache, IndexDataCacheFile, _cache_log
from numba.core.runtime.nrt import rtsys

from .arrays import Bytes

_njit: Any = numba.njit
_types: Any = numba.types

Function = TypeVar("Function", bound=Callable[..., Any])

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
OUT_TABLE, OUT_KIND_TABLE = LONG[:, ::1], _types.int8[:, ::1]
"""Arrays that a kernel writes, or writes and reads."""

int64 = cast("Callable[[Any], int]", np.int64)
uint32 = cast("Callable[[Any], int]", np.uint32)
uint64 = cast("Callable[[Any], int]", np.uint64)
"""NumPy's types as casts, which mypy may take for int. Numba makes float64 of an int64 with a uint64."""


def several(count: int) -> Any:
    """The type of a tuple of ``count`` int64."""
    return _types.UniTuple(LONG, count)


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Compile for one signature when the module is imported, or take it from the cache; it runs without the GIL."""

    def compile_for_signature(function: Function) -> Function:
        # nothing calls the wrapper for C callers
        dispatcher = _njit(nogil=True, no_cfunc_wrapper=True)(function)
        dispatcher._cache = _MachineCodeCache(function)
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        return cast("Function", dispatcher)

    return compile_for_signature


class _MachineCodeCache(FunctionCache):
    """Numba's cache of a function, read without the tables of all that Numba can compile.

    Numba imports those, 200 modules, before it looks into the cache; machine code needs Numba's runtime alone. What is
    not in the cache is compiled, and the compiler gets the tables for itself.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _MachineCodeFile(self._cache_path, self._impl.filename_base, locator.get_source_stamp())

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """See numba.core.caching.Cache."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target_context)


class _MachineCodeFile(IndexDataCacheFile):
    """A cached function, read without the modules of Numba's own routines that are compiled into it."""

    def _load_data(self, name: str) -> Any:
        """See numba.core.caching.IndexDataCacheFile."""
        path = self._data_path(name)
        with open(path, "rb") as file:
            data = _MachineCodeUnpickler(file).load()
        _cache_log("[cache] data loaded from %r", path)
        return data


class _MachineCodeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """See pickle.Unpickler."""
        is_environment = (module, name) == (environment.__name__, environment._rebuild_env.__name__)
        return _rebuild_environment if is_environment else super().find_class(module, name)


def _rebuild_environment(module: str, constants: list[Any], name: str) -> Any:
    """Return what a compiled routine refers to beside its arguments, as ``numba.core.environment._rebuild_env`` does.

    That imports the routine's module for its global names, which machine code does not look at: they are constants in
    it. Numba's arrays and texts are 20 modules, half of the time that the first kernel of a protocol takes.
    """
    if not module.startswith("numba.") or module in sys.modules:
        return environment._rebuild_env(module, constants, name)
    known = environment.lookup_environment(name)
    if known is None:
        known = environment.Environment({"__name__": module})
        known.consts[:] = constants
        known.env_name = name
        environment.Environment._memo[name] = known
    return known


def routine(function: Function) -> Function:
    """Compile once for each set of types it is called with; LLVM inlines it where it thinks that it pays."""
    return cast("Function", _njit(nogil=True)(function))


def step(function: Function) -> Function:
    """Compile as a routine, which LLVM always inlines: a named part of a hot loop, which costs as if written there."""
    return cast("Function", _njit(nogil=True, forceinline=True)(function))


def inline(function: Function) -> Function:
    """Put the body where it is called, before types are known: for a few lines, since each call compiles them again."""
    return cast("Function", _njit(inline="always")(function))
