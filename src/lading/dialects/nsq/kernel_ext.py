"""Routines of ``kernels.py``: the headers of an ext that is one flat JSON object, noted in the table of layout.NAME_AT.

Rarer forms are left to ``ext.py``: nested values, numbers that float64 does not hold exactly, names with escapes.
"""

from __future__ import annotations

import numpy as np

from lading.kernels.big_endian import byte
from lading.kernels.json_text import (
    COMMA,
    ESCAPED,
    FALSE,
    NULL,
    OBJECT,
    OBJECT_END,
    PLAIN,
    SCALAR,
    TRUE,
    WIDE,
    decimal,
    integer,
    pass_member,
    read_member,
    skip_space,
    unescape,
)
from lading.kernels.memory import load64, store64
from lading.kernels.signature import Data, inline, int64, routine, step
from lading.kernels.text import UTF8_BAD, utf8_check
from lading.model.kinds import Kind

from .layout import (
    COPIED,
    FORM,
    HEADER_WORDS,
    KIND,
    NAME_AT,
    NAME_BYTES,
    NUMBER,
    UNESCAPED,
    VALUE,
    VALUE_BYTES,
    VALUE_END,
)
from .limits import CARRIER_NAME

_RAW, _STRING, _BOOL = int(Kind.RAW), int(Kind.STRING), int(Kind.BOOL)
_INT64, _FLOAT64 = int(Kind.INT64), int(Kind.FLOAT64)
_CARRIER_BYTES = len(CARRIER_NAME)
_CARRIER_LOW, _CARRIER_HIGH = np.frombuffer(CARRIER_NAME.encode(), np.uint64)
"""The reserved name is just two words."""


@routine
def _note(headers: Data, at: int, name: int, name_bytes: int, kind: int, form: int, value: int, size: int) -> None:
    """Note one header in the table, in the row that begins at byte ``at``; VALUE_END is the caller's."""
    # in bounds: ``scan`` goes on only if the table has a row for every header that the ext can have
    store64(headers, at + 8 * NAME_AT, name)
    store64(headers, at + 8 * NAME_BYTES, name_bytes)
    store64(headers, at + 8 * KIND, kind)
    store64(headers, at + 8 * FORM, form)
    store64(headers, at + 8 * VALUE, value)
    store64(headers, at + 8 * VALUE_BYTES, size)


@inline
def _is_name(data: Data, at: int, size: int, found: int) -> bool:
    """Return whether a name is its own text in a Batch: UTF-8 without escapes, and not that of a carrier."""
    # in bounds: ``read_member`` found ``size`` bytes, and the name of a carrier is two words
    if size == _CARRIER_BYTES and load64(data, at) == _CARRIER_LOW and load64(data, at + 8) == _CARRIER_HIGH:
        return False
    return found == PLAIN or (found == WIDE and utf8_check(data, at, size) != UTF8_BAD)


@step
def _note_value(
    data: Data, at: int, stop: int, found: int, name: int, name_bytes: int, headers: Data, row: int
) -> bool:
    """Note a header with the value ``data[at:stop]``; whether that could be done here."""
    # in bounds: ``read_member`` found name and value before the end of the ext
    if found in (PLAIN, WIDE):
        if found == WIDE and utf8_check(data, at + 1, stop - at - 2) == UTF8_BAD:
            return False
        _note(headers, row, name, name_bytes, _STRING, COPIED, at + 1, stop - at - 2)
    elif found == SCALAR:
        value, whole = integer(data, at, stop)
        if whole:
            _note(headers, row, name, name_bytes, _INT64, NUMBER, value, 8)
        else:
            number, exact = decimal(data, at, stop)
            if not exact:
                return False
            _note(headers, row, name, name_bytes, _FLOAT64, NUMBER, int64(np.float64(number).view(np.int64)), 8)
    elif found in (TRUE, FALSE):
        _note(headers, row, name, name_bytes, _BOOL, NUMBER, 1 if found == TRUE else 0, 1)
    elif found == NULL:
        _note(headers, row, name, name_bytes, _RAW, NUMBER, 0, -1)
    elif found == ESCAPED:
        value_bytes = unescape(0, 0, data, at + 1, stop - 1)
        if value_bytes < 0 or utf8_check(data, at + 1, stop - at - 2) == UTF8_BAD:
            return False
        _note(headers, row, name, name_bytes, _STRING, UNESCAPED, at + 1, value_bytes)
        store64(headers, row + 8 * VALUE_END, stop - 1)
    else:
        return False
    return True


@routine
def take_ext(data: Data, at: int, end: int, headers: Data, first: int) -> int:
    """Note the headers of a flat JSON object from row ``first`` on: how many, or -1 for what is left to Python."""
    row = first * (8 * HEADER_WORDS)
    count = 0
    at = skip_space(data, at, end)
    if at >= end or byte(data, at) != OBJECT:
        return -1
    at = skip_space(data, at + 1, end)
    if at < end and byte(data, at) == OBJECT_END:
        return 0 if skip_space(data, at + 1, end) == end else -1
    while True:
        name, name_end, name_found, at, stop, found = read_member(data, at, end)
        if stop < 0 or not _is_name(data, name, name_end - name, name_found):
            return -1
        if not _note_value(data, at, stop, found, name, name_end - name, headers, row):
            return -1
        row += 8 * HEADER_WORDS
        count += 1
        behind, at = pass_member(data, stop, end)
        if behind == OBJECT_END:
            return count if at == end else -1
        if behind != COMMA:
            return -1
