"""Texts to decimals of a given precision and scale: exact, or unreadable."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_TEXT_CHARACTERS_MAX: Final = 128
"""A longer text is not taken for a decimal, which has at most 38 digits."""
_EXPONENT_MAX: Final = 200
"""Far beyond decimal128, whose numbers have 38 digits; a larger exponent would only cost time and memory."""


def read_decimal(text: str, type_: pa.Decimal128Type) -> Decimal | None:
    """Return the number in ``text`` if ``type_`` holds it exactly, else None. An exponent is allowed, NaN is not."""
    plain = text.lstrip("+-")
    if len(text) > _TEXT_CHARACTERS_MAX or not plain.isascii() or not plain[:1].replace(".", "0").isdigit():
        return None
    if "_" in plain or plain != plain.strip():
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > _EXPONENT_MAX:
        return None
    with localcontext(prec=_TEXT_CHARACTERS_MAX + 2 * _EXPONENT_MAX):
        scaled = number.scaleb(type_.scale)
        if scaled != scaled.to_integral_value() or abs(scaled) >= 10**type_.precision:
            return None
        return number.quantize(Decimal(1).scaleb(-type_.scale))


def convert_texts(texts: pa.StringArray, type_: pa.Decimal128Type) -> tuple[pa.Array[Any], NDArray[np.bool_]]:
    """Return texts as decimals, null for a text that is null or cannot be read, and a mask of those that cannot.

    Texts of the usual form are converted by Arrow; those with exponents, leading zeros or more decimals one by one.
    """
    whole = max(1, type_.precision - type_.scale)
    fraction = rf"(?:\.[0-9]{{1,{type_.scale}}})?" if type_.scale else ""
    usual: Any = pc.match_substring_regex(texts, rf"\A[+-]?[0-9]{{1,{whole}}}{fraction}\z")
    if type_.precision == type_.scale:
        # the one digit before the point has to be 0
        usual = pc.and_(usual, pc.match_substring_regex(texts, r"\A[+-]?0"))
    nothing: Any = pa.scalar(None, pa.string())
    array: Any = cast("Any", pc.if_else(usual, texts, nothing)).cast(type_)
    unreadable = np.zeros(len(texts), np.bool_)
    left = np.flatnonzero(~usual.fill_null(True).to_numpy(zero_copy_only=False))
    if len(left):
        rest: list[Any] = texts.take(cast("Any", pa.array(left))).to_pylist()
        numbers = [read_decimal(text, type_) for text in rest]
        mask = np.zeros(len(texts), np.bool_)
        mask[left] = True
        array = pc.replace_with_mask(array, pa.array(mask), pa.array(numbers, type_))
        unreadable[left] = [number is None for number in numbers]
    return array, unreadable


def set_scale(unscaled: pa.Array[Any], type_: pa.Decimal128Type) -> tuple[pa.Array[Any], NDArray[np.bool_]]:
    """Return whole numbers (decimal(38,0)) as the digits of decimals, and which have more digits than ``type_``."""
    limit = Decimal(10) ** type_.precision
    bound: Any = pa.scalar(limit - 1, unscaled.type)
    too_large: Any = pc.greater(pc.abs(unscaled), bound).fill_null(False)
    kept: Any = pc.if_else(too_large, pa.scalar(None, unscaled.type), unscaled)
    made = pa.Array.from_buffers(type_, len(kept), kept.buffers(), kept.null_count, kept.offset)
    return made, too_large.to_numpy(zero_copy_only=False)
