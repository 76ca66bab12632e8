"""The kernels of ``columns`` as plain Python, same names and signatures: for reading, testing and small requests."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Longs

from ..model.kinds import FIXED_SIZE_BYTES, Kind
from .rules import ABSENT, BAD, LEFT, OK, Raw, Text, read_float, read_integer

_DIGITS: Final = re.compile(rb"([+-]?)([0-9]+)(?:\.([0-9]+))?")
_DIGITS_EXACT: Final = 18
"""Numbers with this many decimal digits always fit an int64."""
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def take_integers(
    data: Bytes, start: Longs, length: Longs, kind: NDArray[np.int8], text: int, raw: int, width: int,
    low: int, high: int, values: Longs, status: Bytes,
) -> tuple[int, int]:  # fmt: skip
    """Read every value as a whole number in ``low`` to ``high`` into ``values``; LEFT if int64 cannot hold it.

    ``text`` and ``raw`` are codes of rules.Text and rules.Raw. Returns how many rows are OK and how many LEFT.
    """
    for row in range(len(length)):
        values[row] = 0
        if length[row] < 0:
            status[row] = ABSENT
            continue
        number = read_integer(int(kind[row]), _value(data, start, length, row), Text(text), Raw(raw), width)
        if number is None:
            status[row] = BAD
        elif not _INT64_MIN <= number <= _INT64_MAX:
            status[row] = LEFT
        elif not low <= number <= high:
            status[row] = BAD
        else:
            values[row], status[row] = number, OK
    return _counts(status)


def take_floats(
    data: Bytes, start: Longs, length: Longs, kind: NDArray[np.int8], raw: int, width: int,
    values: NDArray[np.float64], status: Bytes,
) -> tuple[int, int]:  # fmt: skip
    """Read every value as a double into ``values``. Returns how many rows are OK and how many LEFT."""
    for row in range(len(length)):
        values[row] = 0.0
        if length[row] < 0:
            status[row] = ABSENT
            continue
        number = read_float(int(kind[row]), _value(data, start, length, row), Raw(raw), width)
        if number is None:
            status[row] = BAD
        else:
            values[row], status[row] = number, OK
    return _counts(status)


def take_decimals(
    data: Bytes, start: Longs, length: Longs, kind: NDArray[np.int8], raw: int, scale: int, limit: int, words: Longs,
    status: Bytes,
) -> tuple[int, int]:  # fmt: skip
    """Read texts of digits, perhaps with a point inside, as numbers times 10 ** ``scale``, of two words each.

    Texts of more than 18 digits with ``scale``, of other forms or from ``limit`` on are LEFT, and so are values that
    are not texts. Returns how many rows are OK and how many LEFT.
    """
    words[:] = 0
    for row in range(len(length)):
        status[row] = ABSENT
        if length[row] < 0:
            continue
        status[row] = LEFT
        if int(kind[row]) in FIXED_SIZE_BYTES or (raw != Raw.TEXT and kind[row] != Kind.STRING):
            continue
        match = _DIGITS.fullmatch(_value(data, start, length, row))
        if match is None:
            continue
        sign, whole, fraction = match[1], match[2], match[3] or b""
        if len(whole) + scale > _DIGITS_EXACT or len(fraction) > scale:
            continue
        number = int(whole + fraction.ljust(scale, b"0"))
        if number < limit:
            words[2 * row] = -number if sign == b"-" else number
            words[2 * row + 1] = words[2 * row] >> 63
            status[row] = OK
    return _counts(status)


def take_bytes(
    data: Bytes, start: Longs, length: Longs, kind: NDArray[np.int8], text: bool,
    offsets: NDArray[np.int32], out: Bytes, status: Bytes,
) -> tuple[int, int]:  # fmt: skip
    """Copy every value to ``out`` one after the other, and their ends to ``offsets[1:]``.

    With ``text`` only UTF-8 is OK, and values of a number kind are LEFT. Returns how many rows are OK, how many LEFT.
    """
    end = 0
    offsets[0] = 0
    for row in range(len(length)):
        if length[row] < 0:
            status[row] = ABSENT
        elif text and int(kind[row]) in FIXED_SIZE_BYTES:
            status[row] = LEFT
        else:
            value = _value(data, start, length, row)
            status[row] = OK if not text or _is_text(value) else BAD
            if status[row] == OK:
                out[end : end + len(value)] = np.frombuffer(value, np.uint8)
                end += len(value)
        offsets[row + 1] = end
    return _counts(status)


def match_bytes(
    data: Bytes, start: Longs, length: Longs, kind: NDArray[np.int8], text: bool, wanted: Bytes, same: Bytes,
    valid: Bytes,
) -> tuple[int, int]:  # fmt: skip
    """Set bit ``row`` of ``same`` if a value has the bytes ``wanted``, which are a text if ``text`` is true.

    Bit ``row`` of ``valid`` is set if a value can be read: with ``text`` it has to be UTF-8. Returns the number of rows
    that can be read, and the number that were left: with ``text``, values of a number kind cannot be compared by their
    bytes.
    """
    equal, readable = np.zeros(len(length), np.bool_), np.zeros(len(length), np.bool_)
    sought, left = wanted.tobytes(), 0
    for row in range(len(length)):
        if length[row] < 0:
            continue
        if text and int(kind[row]) in FIXED_SIZE_BYTES:
            left += 1
            continue
        value = _value(data, start, length, row)
        equal[row] = value == sought
        readable[row] = not text or _is_text(value)
    same[:], valid[:] = np.packbits(equal, bitorder="little"), np.packbits(readable, bitorder="little")
    return int(readable.sum()), left


def take_places(
    data: Bytes, start: Longs, length: Longs, kind: NDArray[np.int8], text: bool,
    slots: NDArray[np.int32], hashes: NDArray[np.uint64], offsets: NDArray[np.int32], out: Bytes,
    places: NDArray[np.int32], status: Bytes,
) -> tuple[int, int]:  # fmt: skip
    """Copy every distinct value once to ``out``, its end to ``offsets[1:]``, and the index of each row's value to
    ``places``.

    ``slots``, filled with -1, and ``hashes`` are working memory; as many distinct values fit as there are hashes.
    Returns how many rows are OK and how many values are distinct. The second number is -1 if the memory is too small,
    or if with ``text`` a value is of a number kind, which cannot be compared by its bytes.
    """
    good, end = 0, 0
    known: dict[bytes, int] = {}
    offsets[0] = 0
    for row in range(len(length)):
        places[row] = 0
        if length[row] < 0:
            status[row] = ABSENT
            continue
        if text and int(kind[row]) in FIXED_SIZE_BYTES:
            return good, -1
        value = _value(data, start, length, row)
        if text and not _is_text(value):
            status[row] = BAD
            continue
        if value not in known:
            if len(known) == len(hashes) or len(value) > len(out) - end:
                return good, -1
            out[end : end + len(value)] = np.frombuffer(value, np.uint8)
            end += len(value)
            known[value] = len(known)
            offsets[len(known)] = end
        places[row], status[row] = known[value], OK
        good += 1
    return good, len(known)


def _value(data: Bytes, start: Longs, length: Longs, row: int) -> bytes:
    value: bytes = data[start[row] : start[row] + length[row]].tobytes()
    return value


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _counts(status: NDArray[Any]) -> tuple[int, int]:
    return int((status == OK).sum()), int((status == LEFT).sum())
