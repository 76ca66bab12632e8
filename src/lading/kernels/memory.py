"""Unaligned loads, stores and memcpy for Numba kernels.

Plain Numba indexing checks for negative indices and copies byte by byte; these compile to single machine
instructions (measured: six times the decode rate). Positions are bytes from the start of a C-contiguous
array of any type, or from an address that ``base`` gave: inner functions take addresses, because Numba counts
references to an array around every inlined function, which costs more than they do. Nothing is bounds-checked: the
kernel that calls them must have checked before, and hold the array.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

_BYTE = ir.IntType(8)
intrinsic: Any = _intrinsic


def _pointer(context: Any, builder: Any, signature: Any, args: Any, array: int, bits: int) -> Any:
    """LLVM pointer of width ``bits`` to byte ``args[array + 1]`` of ``args[array]``, an array or an address."""
    position = context.cast(builder, args[array + 1], signature.args[array + 1], types.int64)
    if isinstance(signature.args[array], types.Integer):
        number = context.cast(builder, args[array], signature.args[array], types.int64)
        data = builder.inttoptr(number, _BYTE.as_pointer())
    else:
        data = context.make_array(signature.args[array])(context, builder, args[array]).data
    at = builder.gep(builder.bitcast(data, _BYTE.as_pointer()), [position])
    return builder.bitcast(at, ir.IntType(bits).as_pointer())


def _load(bits: int, result: Any, name: str) -> Any:
    def load(typing_context: Any, array: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_pointer(context, builder, signature, args, 0, bits), align=1)

        return result(array, at), generate

    load.__name__ = load.__qualname__ = name
    return intrinsic(load)


def _store(bits: int, stored: Any, name: str) -> Any:
    def store(typing_context: Any, array: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = context.cast(builder, args[2], signature.args[2], stored)
            builder.store(word, _pointer(context, builder, signature, args, 0, bits), align=1)
            return context.get_dummy_value()

        return types.void(array, at, value), generate

    store.__name__ = store.__qualname__ = name
    return intrinsic(store)


load8 = _load(8, types.uint8, "load8")
load16 = _load(16, types.uint16, "load16")
load32 = _load(32, types.uint32, "load32")
load64 = _load(64, types.uint64, "load64")
loadi64 = _load(64, types.int64, "loadi64")
store8 = _store(8, types.uint8, "store8")
store16 = _store(16, types.uint16, "store16")
store32 = _store(32, types.uint32, "store32")
store64 = _store(64, types.uint64, "store64")


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Count the zero bits below the lowest bit that is set, which there must be."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def base(typing_context: Any, array: Any) -> Any:
    """The address of an array's first byte, as a number; good for as long as the caller holds the array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic
def address(typing_context: Any, array: Any, at: Any) -> Any:
    """Pointer to byte ``at`` of ``array``, for C functions."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _pointer(context, builder, signature, args, 0, 8)

    return types.voidptr(array, at), generate


@intrinsic
def memcpy(typing_context: Any, target: Any, to: Any, source: Any, at: Any, size: Any) -> Any:
    """Copy ``size`` bytes from byte ``at`` of ``source`` to byte ``to`` of ``target``; they may not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size_bytes = context.cast(builder, args[4], signature.args[4], types.int64)
        cgutils.raw_memcpy(
            builder,
            _pointer(context, builder, signature, args, 0, 8),
            _pointer(context, builder, signature, args, 2, 8),
            size_bytes,
            1,
        )
        return context.get_dummy_value()

    return types.void(target, to, source, at, size), generate
