"""Located header values to typed Arrow columns: one typing for all dialects (rules: docs/reference/contract)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..kernels import engine
from ..model.errors import LocalError
from ..model.kinds import FIXED_SIZE_BYTES, FLOATS, INTEGERS, Kind
from ..model.lazy_dataclass import lazy_dataclass
from ..model.limits import INSTANT_MAX_US, INSTANT_MIN_US
from ..model.run import Located
from . import fallback
from .contract import BINARY_ENCODINGS, INTEGER_DECIMAL, TIMESTAMP, Encoding
from .decimals import convert_texts, set_scale
from .documents import unwrap_json
from .locate import to_located
from .rules import (
    ANY_WIDTH,
    BAD,
    DECIMAL_MAX,
    LEFT,
    OK,
    Raw,
    Text,
    read_float,
    read_integer,
)

KERNEL_MODULE = "lading.columns.kernels"
"""Kernels of this room: bulk readers call ``engine.compiled(HOME)`` once, a broker never waits for them."""

_ROW_BYTES = 64
"""Weight of one row of typing when the engine chooses between kernel and fallback."""


@lazy_dataclass(frozen=True, slots=True)
class WholeTarget:
    """A column type of whole numbers: how texts are read, the size of its binary form, its range."""

    text: Text
    width_bytes: int
    low: int
    high: int


def _integer_target(size_bytes: int) -> WholeTarget:
    return WholeTarget(Text.NUMBER, size_bytes, -(1 << 8 * size_bytes - 1), (1 << 8 * size_bytes - 1) - 1)


WHOLE_TARGETS = MappingProxyType(
    {
        pa.bool_(): WholeTarget(Text.BOOLEAN, 1, 0, 1),
        pa.int8(): _integer_target(1),
        pa.int16(): _integer_target(2),
        pa.int32(): _integer_target(4),
        pa.int64(): _integer_target(8),
        INTEGER_DECIMAL: WholeTarget(Text.NUMBER, ANY_WIDTH, -DECIMAL_MAX, DECIMAL_MAX),
        TIMESTAMP: WholeTarget(Text.INSTANT, 8, INSTANT_MIN_US, INSTANT_MAX_US),
    }
)
_INT64 = _integer_target(8)
_DAY_US = 86_400_000_000
_DAYS = WholeTarget(Text.NUMBER, 4, INSTANT_MIN_US // _DAY_US, INSTANT_MAX_US // _DAY_US)
_DATE_CHARACTERS = len("2024-05-01")
_FIRST_DASH = 4
_DIGITS_EXACT = 18
"""Numbers with this many decimal digits always fit an int64."""
_RAW = {Encoding.LE: Raw.LE, Encoding.BE: Raw.BE}


def convert_column(
    located: Located, type_: pa.DataType, encoding: Encoding = Encoding.AUTO
) -> tuple[pa.Array[Any], pa.BooleanArray | None]:
    """Convert header values to an Arrow array of ``type_``, with a mask of those that cannot be read so.

    Absent, null and unreadable values are null; the mask is None if nothing was unreadable.
    """
    located = normalize_layout(located)
    unreadable: NDArray[np.bool_] | None = None
    if encoding is Encoding.JSON:
        located, unreadable = unwrap_json(located, whole_numbers=type_ in WHOLE_TARGETS)
        located = normalize_layout(located)
    raw = _RAW.get(encoding, Raw.TEXT) if encoding in BINARY_ENCODINGS else Raw.TEXT
    if type_ in WHOLE_TARGETS:
        array, status = _whole_column(located, type_, raw)
    elif type_ in (pa.float32(), pa.float64()):
        array, status = _float_column(located, type_, raw)
    elif type_ in (pa.string(), pa.binary()):
        array, status = _bytes_column(located, type_)
    elif type_ == pa.date32():
        array, status = _date_column(located, raw)
    elif isinstance(type_, pa.Decimal128Type):
        array, status = _decimal_column(located, type_, raw)
    else:
        raise LocalError(f"a header cannot become a column of type {type_}; see the types in the page about contracts")
    wrong = status == BAD
    if unreadable is not None:
        wrong |= unreadable
    return array, pa.array(wrong) if wrong.any() else None


def convert_to_text(array: pa.Array[Any]) -> tuple[pa.Array[Any], pa.BooleanArray | None]:
    """Convert keys or payloads to text, with a mask of those that are not UTF-8, which are null."""
    try:
        texts: pa.Array[Any] = array.cast(pa.string())
    except pa.ArrowInvalid:
        return convert_column(to_located(array), pa.string())
    return texts, None


def compare_bytes(located: Located, wanted: bytes, *, text: bool) -> pa.BooleanArray | None:
    """Return which values have these bytes, as comparing a column of type binary, or string for ``text``, would.

    Absent and null values are null, with ``text`` also those that are not UTF-8. Returns None if ``text`` asks for
    values of number kinds, which only a column has as texts.
    """
    located = normalize_layout(located)
    rows = len(located.length)
    same, valid = np.empty(-(-rows // 8), np.uint8), np.empty(-(-rows // 8), np.uint8)
    sought = np.frombuffer(wanted, np.uint8)
    good, left = kernels(rows).match_bytes(
        located.data, located.start, located.length, located.kind, text, sought, same, valid
    )
    if left:
        return None
    bits = [None if good == rows else buffer(valid), buffer(same)]
    return cast("pa.BooleanArray", pa.Array.from_buffers(pa.bool_(), rows, bits, null_count=rows - good))


def subset(located: Located, rows: NDArray[Any]) -> Located:
    """Return the located values of some rows, by index or mask."""
    return Located(located.data, located.start[rows], located.length[rows], located.kind[rows])


def normalize_layout(located: Located) -> Located:
    """Return the values in the one memory layout that kernels are compiled for: contiguous and read-only."""
    return Located(*(_read_only(part) for part in (located.data, located.start, located.length, located.kind)))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def kernels(rows: int) -> Any:
    """Return the kernels of this room, or their fallback, as ``engine.select`` chooses for ``rows`` rows."""
    return engine.select(KERNEL_MODULE, fallback, rows * _ROW_BYTES)


def _convert_integers(
    located: Located, target: WholeTarget, raw: Raw
) -> tuple[NDArray[np.int64], NDArray[np.uint8], int, int]:
    rows = len(located.length)
    values, status = np.empty(rows, np.int64), np.empty(rows, np.uint8)
    low, high = max(target.low, _INT64.low), min(target.high, _INT64.high)
    good, left = kernels(rows).take_integers(
        located.data, located.start, located.length, located.kind,
        int(target.text), int(raw), target.width_bytes, low, high, values, status,
    )  # fmt: skip
    return values, status, good, left


def _whole_column(located: Located, type_: pa.DataType, raw: Raw) -> tuple[pa.Array[Any], NDArray[np.uint8]]:
    target = WHOLE_TARGETS[type_]
    values, status, good, left = _convert_integers(located, target, raw)
    large: dict[int, int] = {}
    if left:
        for row, data in _list_left(located, status):
            number = read_integer(int(located.kind[row]), data, target.text, raw, target.width_bytes)
            if number is None or not target.low <= number <= target.high:
                status[row] = BAD
            else:
                status[row], good = OK, good + 1
                large[row] = number
    if type_ == TIMESTAMP:
        return _to_array(values, status, good).cast(pa.int64()).view(TIMESTAMP), status
    if type_ != INTEGER_DECIMAL:
        for row, number in large.items():
            values[row] = number
        return _to_array(values.astype(cast("Any", type_.to_pandas_dtype()), copy=False), status, good), status
    array = _to_array(values, status, good).cast(INTEGER_DECIMAL)
    return _replace_values(array, large, Decimal), status


def _date_column(located: Located, raw: Raw) -> tuple[pa.Array[Any], NDArray[np.uint8]]:
    """Return dates: whole numbers are days since 1970, as in Kafka Connect; texts are ISO dates without a
    time of day.
    """
    days, status = _convert_integers(located, _DAYS, raw)[:2]
    status[status == LEFT] = BAD
    texts = (status == BAD) & (located.length == _DATE_CHARACTERS)
    if texts.any():
        rows = np.flatnonzero(texts)
        moments, read = _convert_integers(normalize_layout(subset(located, rows)), WHOLE_TARGETS[TIMESTAMP], raw)[:2]
        # ten characters without a dash are a number out of range
        dashed = located.data[located.start[rows] + _FIRST_DASH] == ord("-")
        days[rows] = moments // _DAY_US
        status[rows] = np.where((read == OK) & dashed, OK, BAD)
    array = _to_array(days.astype(np.int32), status, int((status == OK).sum()))
    return array.view(pa.date32()), status


def _decimal_column(located: Located, type_: pa.Decimal128Type, raw: Raw) -> tuple[pa.Array[Any], NDArray[np.uint8]]:
    """Return decimals from their texts; binary ones are the unscaled number, as in Kafka Connect."""
    if type_.scale < 0:
        return _convert_left(located, type_, raw)
    rows = len(located.length)
    words, status = np.empty(2 * rows, np.int64), np.empty(rows, np.uint8)
    limit = 10 ** min(type_.precision, _DIGITS_EXACT)
    good, left = kernels(rows).take_decimals(
        located.data, located.start, located.length, located.kind, int(raw), type_.scale, limit, words, status
    )
    valid = None if good == rows else valid_bits(status)
    array: pa.Array[Any] = pa.Array.from_buffers(type_, rows, [valid, buffer(words)], null_count=rows - good)
    if left:
        chosen = np.flatnonzero(status == LEFT)
        values, status[chosen] = _convert_left(normalize_layout(subset(located, chosen)), type_, raw)
        array = values if left == rows else _scatter_values(array, chosen, values)
    return array, status


def _convert_left(located: Located, type_: pa.Decimal128Type, raw: Raw) -> tuple[pa.Array[Any], NDArray[np.uint8]]:
    texts, status = _bytes_column(located, pa.string())
    array, unreadable = convert_texts(cast("pa.StringArray", texts), type_)
    status[unreadable] = BAD
    binary = np.flatnonzero((located.length >= 0) & ~np.isin(located.kind, (Kind.STRING, *FIXED_SIZE_BYTES)))
    if raw is not Raw.TEXT and len(binary):
        unscaled, read = _whole_column(normalize_layout(subset(located, binary)), INTEGER_DECIMAL, raw)
        numbers, too_large = set_scale(unscaled, type_)
        status[binary] = np.where(too_large, BAD, read)
        array = _scatter_values(array, binary, numbers)
    return array, status


def _float_column(located: Located, type_: pa.DataType, raw: Raw) -> tuple[pa.Array[Any], NDArray[np.uint8]]:
    rows = len(located.length)
    width = 4 if type_ == pa.float32() else 8
    values, status = np.empty(rows, np.float64), np.empty(rows, np.uint8)
    good, left = kernels(rows).take_floats(
        located.data, located.start, located.length, located.kind, int(raw), width, values, status
    )
    if left:
        for row, data in _list_left(located, status):
            number = read_float(int(located.kind[row]), data, raw, width)
            status[row] = BAD if number is None else OK
            values[row] = 0.0 if number is None else number
            good += number is not None
    if width == 8:
        return _to_array(values, status, good), status
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    too_large = np.isinf(narrow) & np.isfinite(values)
    status[too_large] = BAD
    return _to_array(narrow, status, good - int(too_large.sum())), status


def _bytes_column(located: Located, type_: pa.DataType) -> tuple[pa.Array[Any], NDArray[np.uint8]]:
    rows = len(located.length)
    size_bytes = int(located.length.clip(min=0).sum())
    if size_bytes > np.iinfo(np.int32).max:
        raise LocalError(
            f"{size_bytes:,} bytes of header values in one batch; 2 GiB is the limit, read smaller batches"
        )
    offsets, out, status = np.empty(rows + 1, np.int32), np.empty(size_bytes, np.uint8), np.empty(rows, np.uint8)
    good, left = kernels(rows).take_bytes(
        located.data, located.start, located.length, located.kind, type_ == pa.string(), offsets, out, status
    )
    valid = None if good == rows else valid_bits(status)
    buffers = [valid, buffer(offsets), buffer(out)]
    array: pa.Array[Any] = pa.Array.from_buffers(type_, rows, buffers, null_count=rows - good)
    if left:
        array = _with_numbers(located, array, status)
    return array, status


def _with_numbers(located: Located, array: pa.Array[Any], status: NDArray[np.uint8]) -> pa.Array[Any]:
    """Return ``array``, of texts, with the rows LEFT replaced: these are of number kinds, and become the texts of their
    numbers.
    """
    chosen = np.flatnonzero(status == LEFT)
    numbers = subset(located, chosen)
    texts: pa.Array[Any] = pa.nulls(len(chosen), pa.string())
    for of_kind, as_text in _NUMBER_TEXTS:
        members = np.flatnonzero(np.isin(numbers.kind, of_kind))
        if len(members):
            part = as_text(normalize_layout(subset(numbers, members)))
            texts = part if len(members) == len(chosen) else _scatter_values(texts, members, part)
    status[chosen] = np.where(texts.is_valid().to_numpy(zero_copy_only=False), OK, BAD)
    return texts if len(chosen) == len(array) else _scatter_values(array, chosen, texts)


def _boolean_texts(located: Located) -> pa.Array[Any]:
    return _whole_column(located, pa.bool_(), Raw.TEXT)[0].cast(pa.string())


def _integer_texts(located: Located) -> pa.Array[Any]:
    values, status, good, left = _convert_integers(located, _INT64, Raw.TEXT)
    texts = _to_array(values, status, good).cast(pa.string())
    # a number beyond int64 came from an integer kind, so that its text always exists
    large = {
        row: read_integer(int(located.kind[row]), data, Text.NUMBER, Raw.TEXT, 8)
        for row, data in _list_left(located, status)
    }
    return _replace_values(texts, large, str) if left else texts


def _float_texts(type_: pa.DataType) -> Callable[[Located], pa.Array[Any]]:
    return lambda located: _float_column(located, type_, Raw.TEXT)[0].cast(pa.string())


_NUMBER_TEXTS: tuple[tuple[list[int], Callable[[Located], pa.Array[Any]]], ...] = (
    ([Kind.BOOL], _boolean_texts),
    (list(INTEGERS), _integer_texts),
    ([Kind.FLOAT32], _float_texts(pa.float32())),
    ([Kind.FLOAT64], _float_texts(pa.float64())),
)
assert set(FLOATS) == {Kind.FLOAT32, Kind.FLOAT64}


def _list_left(located: Located, status: NDArray[np.uint8]) -> list[tuple[int, bytes]]:
    """Return row and bytes of every value that the kernel did not convert."""
    rows: list[int] = np.flatnonzero(status == LEFT).tolist()
    return [
        (row, located.data[located.start[row] : located.start[row] + located.length[row]].tobytes()) for row in rows
    ]


def valid_bits(status: NDArray[np.uint8]) -> pa.Buffer:
    """Return the bitmap of the rows that are OK."""
    return buffer(np.packbits(status == OK, bitorder="little"))


def buffer(array: NDArray[Any]) -> pa.Buffer:
    """Return an Arrow buffer over the memory of an array, without a copy."""
    return pa.py_buffer(array.data)


def _to_array(values: NDArray[Any], status: NDArray[np.uint8], good: int) -> pa.Array[Any]:
    array: pa.Array[Any] = pa.array(values) if good == len(values) else pa.array(values, mask=status != OK)
    return array


def _replace_values(array: pa.Array[Any], values: dict[int, Any], make: Callable[[Any], Any]) -> pa.Array[Any]:
    """Return ``array`` with the values of some rows replaced, in rising order of rows."""
    if not values:
        return array
    return _scatter_values(
        array, np.array(list(values)), pa.array([make(value) for value in values.values()], array.type)
    )


def _scatter_values(array: pa.Array[Any], rows: NDArray[Any], values: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``array`` with ``values`` at ``rows``, which are in rising order."""
    mask = np.zeros(len(array), bool)
    mask[rows] = True
    result: pa.Array[Any] = pc.replace_with_mask(array, pa.array(mask), values)
    return result
