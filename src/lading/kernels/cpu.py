"""Instructions that not every CPU has, carry-less multiplication and CRC-32C, and whether they are here."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core import config as _config
from numba.extending import intrinsic as _intrinsic

intrinsic: Any = _intrinsic
config: Any = _config


def features() -> frozenset[str]:
    """Names (LLVM's) of the instruction sets that Numba compiles for in this process."""
    if config.CPU_FEATURES is not None:
        words = config.CPU_FEATURES.split(",")
        return frozenset(word[1:] for word in words if word.startswith("+"))
    if config.CPU_NAME == "generic":
        return frozenset()
    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


HAS_PCLMUL = "pclmul" in features()
HAS_SSE42 = "sse4.2" in features()

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_PAIR = ir.VectorType(_I64, 2)


def _call(builder: Any, name: str, result: Any, args: list[Any]) -> Any:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


@intrinsic
def crc32c_step(typing_context: Any, crc: Any, word: Any) -> Any:
    """One step of SSE4.2's CRC-32C over 8 bytes; only if HAS_SSE42."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, "llvm.x86.sse42.crc32.64.64", _I64, list(args))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def carryless_multiply(typing_context: Any, x: Any, y: Any) -> Any:
    """PCLMULQDQ: 64 x 64 bits without carries -> (low, high); only if HAS_PCLMUL."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = [builder.insert_element(ir.Constant(_PAIR, ir.Undefined), arg, _I32(0)) for arg in args]
        product = _call(builder, "llvm.x86.pclmulqdq", _PAIR, [*vectors, ir.Constant(ir.IntType(8), 0)])
        halves = [builder.extract_element(product, _I32(half)) for half in (0, 1)]
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate
