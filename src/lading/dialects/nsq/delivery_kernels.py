"""Kernels of delivery: stored messages -> frames, and bursts of FIN.

``send_fallback.py`` says what each does, name by name, and gives the same bytes.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs
from lading.kernels.big_endian import big16, big64, byte, put_big16, put_big32, put_big64
from lading.kernels.memory import base, load32, memcpy, store8
from lading.kernels.signature import (
    BYTES,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_LONGS,
    Data,
    int64,
    kernel,
    routine,
    several,
    step,
)

from .layout import (
    ATTEMPTS,
    EXT,
    EXT_VERSION,
    HEAD_BYTES,
    ID,
    NO_EXT,
    OFFSET_BITS,
    PLAIN_BODY,
    RECORD_BYTES_MIN,
    TIMESTAMP,
)
from .send_kernels import raw_bytes
from .send_layout import DETAIL_BYTES, FIN, FIN_BYTES, ID_BYTES, MESSAGE

_FIN = int.from_bytes(FIN, "little")
_LINE_FEED, _0, _9, _A, _F = b"\n09af"


@step
def _put_digits(out: Data, at: int, ident: int) -> None:
    """Write an id as ID_BYTES lower-case hexadecimal digits."""
    # in bounds: the caller has the whole head of a frame at ``out``
    for place in range(ID_BYTES):
        digit = (ident >> (60 - 4 * place)) & 15
        store8(out, at + place, digit + (_0 if digit < 10 else _A - 10))


@kernel(LONG(BYTES, *[LONGS] * 5, *[LONG] * 4, OUT_BYTES))
def frames(
    region: Bytes,
    starts: Longs,
    sizes: Longs,
    offsets: Longs,
    picked: Longs,
    attempts: Longs,
    partition: int,
    with_ext: int,
    detail: int,
    textual: int,
    target: Bytes,
) -> int:
    # in bounds: ``survey`` found the records whole, and the caller made ``target`` as large as they and the details are
    data, out = base(region), base(target)
    to = 0
    for index in range(picked.size):
        message = picked[index]
        at, size, offset = starts[message], sizes[message], offsets[message]
        body = at + RECORD_BYTES_MIN
        if byte(data, at + EXT_VERSION) != NO_EXT:
            body = at + EXT + big16(data, at + RECORD_BYTES_MIN)
        stop = to + PLAIN_BODY
        if with_ext != 0 and detail == 0:
            memcpy(out, to + TIMESTAMP, data, at + TIMESTAMP, size - HEAD_BYTES)
            stop = to + size
        else:
            memcpy(out, to + TIMESTAMP, data, at + TIMESTAMP, PLAIN_BODY - TIMESTAMP)
            if with_ext != 0:
                memcpy(out, stop, data, at + EXT_VERSION, body - at - EXT_VERSION)
                stop += body - at - EXT_VERSION
            if detail != 0:
                put_big64(out, stop, offset)
                put_big32(out, stop + 8, raw_bytes(size, with_ext))
                stop += DETAIL_BYTES
            memcpy(out, stop, data, body, at + size - body)
            stop += at + size - body
        put_big32(out, to, stop - to - 4)
        put_big32(out, to + 4, MESSAGE)
        put_big16(out, to + ATTEMPTS, attempts[index])
        ident = (partition << OFFSET_BITS) | (offset + 1)
        if textual != 0:
            _put_digits(out, to + ID, ident)
        else:
            put_big64(out, to + ID, ident)
        to = stop
    return to


@routine
def _textual_id(data: Data, at: int) -> int:
    """Read an id of hexadecimal digits; -1 if it is invalid."""
    ident = 0
    for place in range(ID_BYTES):
        letter = int64(byte(data, at + place))
        if _0 <= letter <= _9:
            digit = letter - _0
        elif _A <= letter <= _F:
            digit = letter - _A + 10
        else:
            return int64(-1)
        ident = (ident << 4) | digit
    return ident


@kernel(several(2)(BYTES, LONG, LONG, LONG, OUT_LONGS))
def take_fins(source: Bytes, at: int, end: int, textual: int, ids: Longs) -> tuple[int, int]:
    data = base(source)
    count = 0
    # in bounds: a command is looked at only if it lies before ``end``
    while at + FIN_BYTES <= end and count < ids.size:
        if int64(load32(data, at)) != _FIN or byte(data, at + FIN_BYTES - 1) != _LINE_FEED:
            break
        ids[count] = _textual_id(data, at + len(FIN)) if textual != 0 else big64(data, at + len(FIN))
        count += 1
        at += FIN_BYTES
    return at, count
