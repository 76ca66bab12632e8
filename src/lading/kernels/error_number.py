"""The error number that a failed call of the system leaves, for kernels that make such calls."""

from __future__ import annotations

import sys
from typing import Any, Final

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

intrinsic: Any = _intrinsic
types: Any = numba.types

_PLACE: Final = "__errno_location" if sys.platform == "linux" else "__error"


@intrinsic
def read_error_number(typing_context: Any) -> Any:
    """Return C's ``errno`` of this thread."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32).as_pointer(), [])
        return builder.load(builder.call(cgutils.get_or_insert_function(builder.module, kind, _PLACE), []))

    return types.int32(), generate
