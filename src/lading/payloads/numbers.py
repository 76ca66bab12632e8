"""Decoded numbers of payloads in the forms that columns take: located values, instants, decimals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..kernels.arrays import Longs
from ..model.kinds import Kind
from ..model.limits import INSTANT_MAX_US, INSTANT_MIN_US
from ..model.run import Located
from .layout import ABSENT

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_LONG_MAX: Final = (1 << 63) - 1
_LONG_DIGITS: Final = 18
"""Numbers with this many decimal digits always fit an int64."""
_EXACT: Final = Context(prec=80)


def locate_numbers(numbers: Longs, length: Longs) -> Located:
    """Return whole numbers as header values of 8 bytes; a row with a length below 0 has no value."""
    held = np.ascontiguousarray(numbers)
    start = np.arange(0, 8 * len(held), 8, dtype=np.int64)
    return Located(held.view(np.uint8), start, np.where(length < 0, ABSENT, 8), np.full(len(held), Kind.INT64, np.int8))


def locate_texts(texts: Sequence[bytes], places: Longs, length: Longs) -> Located:
    """Return the texts at ``places`` of a list as header values; a row with a length below 0 has no value."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    data = np.frombuffer(b"".join(texts), np.uint8)
    kind = np.full(len(length), Kind.STRING, np.int8)
    if not len(texts):
        return Located(data, np.zeros(len(length), np.int64), np.where(length < 0, length, 0), kind)
    return Located(data, (np.cumsum(sizes) - sizes)[places], np.where(length < 0, length, sizes[places]), kind)


def type_instants(
    numbers: Longs, length: Longs, factor: int, divisor: int, target: pa.DataType
) -> tuple[Located | pa.Array[Any], NDArray[np.bool_] | None]:
    """Return moments, numbers since 1970, for a column of ``target``, and a mask of unreadable ones, if there are any.

    Multiplied by ``factor`` and divided by ``divisor`` they are microseconds. A column of numbers gets them unchanged.
    """
    if not (target in (TIMESTAMP, pa.date32()) or pa.types.is_string(target)):
        return locate_numbers(numbers, length), None
    # too far outside: the product below has to fit 64 bits
    there = length >= 0
    far = np.abs(numbers.astype(np.float64)) * factor / divisor >= 2.0**62
    micros = np.where(far, 0, numbers) * factor // divisor
    wrong = there & (far | (micros < INSTANT_MIN_US) | (micros > INSTANT_MAX_US))
    good = there & ~wrong
    array: Any = (pa.array(micros) if good.all() else pa.array(micros, mask=~good)).view(TIMESTAMP)
    if target != TIMESTAMP:
        array = array.cast(pa.date32() if target == pa.date32() else pa.string(), safe=False)
    return array, wrong if wrong.any() else None


def cast_decimals(
    unscaled: Longs,
    valid: NDArray[np.bool_],
    scale: int,
    large: Mapping[int, Decimal],
    target: pa.DataType,
    *,
    whole_numbers: bool,
) -> tuple[pa.Array[Any], NDArray[np.bool_] | None]:
    """Return numbers with ``scale`` decimals for a column of ``target``, and a mask of those that do not fit it, if
    any.

    Numbers beyond int64 are in ``large``, by row. A column that is not decimal gets texts, with ``whole_numbers`` 5.00
    as 5.
    """
    if isinstance(target, pa.Decimal128Type) and not large:
        made = _rescale_numbers(unscaled, valid, target.scale - scale, target)
        if made is not None:
            return made
    numbers = [
        None if not there else large[row] if row in large else Decimal(number).scaleb(-scale, _EXACT)
        for row, (there, number) in enumerate(zip(valid.tolist(), unscaled.tolist(), strict=True))
    ]
    texts = [None if number is None else _write_decimal(number, whole_numbers) for number in numbers]
    return pa.array(texts, pa.string()), None


def _write_decimal(number: Decimal, whole_numbers: bool) -> str:
    whole = number.to_integral_value() if whole_numbers else number
    return format(whole if whole == number else number, "f")


def _rescale_numbers(
    unscaled: Longs, valid: NDArray[np.bool_], digits: int, target: pa.Decimal128Type
) -> tuple[pa.Array[Any], NDArray[np.bool_] | None] | None:
    """Return the numbers with ``digits`` more decimals (fewer if below 0); None if they may exceed 64 bits."""
    if abs(digits) > _LONG_DIGITS:
        return None
    power = 10 ** abs(digits)
    limit = 10**target.precision - 1
    if digits >= 0:
        fits = np.abs(unscaled) <= min(limit // power, _LONG_MAX // power)
        # the smallest int64 is its own absolute value
        fits &= unscaled != -_LONG_MAX - 1
        if limit // power > _LONG_MAX // power and not fits.all():
            return None
        numbers = np.where(fits, unscaled, 0) * power
    else:
        numbers, rest = np.divmod(unscaled, power)
        fits = (rest == 0) & (np.abs(numbers) <= min(limit, _LONG_MAX))
    kept = valid & fits
    words = np.empty((len(numbers), 2), np.int64)
    words[:, 0], words[:, 1] = numbers, numbers >> 63
    bits = None if kept.all() else pa.py_buffer(np.packbits(kept, bitorder="little").data)
    array: Any = pa.Array.from_buffers(target, len(numbers), [bits, pa.py_buffer(words.data)])
    wrong = valid & ~fits
    return array, wrong if wrong.any() else None
