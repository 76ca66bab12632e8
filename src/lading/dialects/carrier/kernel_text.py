"""Routines of carriers in kernels: their printable form, base64url without padding after a prefix. All by address."""

from __future__ import annotations

from lading.kernels.memory import load8, store8
from lading.kernels.signature import Data, inline, int64, routine

from .layout import TEXT_BYTES_MAX, TEXT_PREFIX, TEXT_PREFIX_BYTES

_PREFIX_0, _PREFIX_1, _PREFIX_2 = TEXT_PREFIX
_CAPITAL_A, _CAPITAL_Z, _A, _Z, _0, _9, _MINUS, _UNDERSCORE = b"AZaz09-_"


@inline
def _digit(six: int) -> int:
    """Return the digit of base64url for six bits."""
    if six < 26:
        return six + _CAPITAL_A
    if six < 52:
        return six - 26 + _A
    if six < 62:
        return six - 52 + _0
    return _MINUS if six == 62 else _UNDERSCORE


@inline
def _six(digit: int) -> int:
    """Return the six bits of a digit; -1 if it is not a digit."""
    if _A <= digit <= _Z:
        return digit - _A + 26
    if _CAPITAL_A <= digit <= _CAPITAL_Z:
        return digit - _CAPITAL_A
    if _0 <= digit <= _9:
        return digit - _0 + 52
    if digit == _MINUS:
        return 62
    return 63 if digit == _UNDERSCORE else -1


@routine
def put_text(out: Data, to: int, at: int, end: int) -> None:
    """Write ``out[at:end]`` in its printable form at ``to``. Both end at ``end``; bytes are read before they are
    overwritten."""
    # in bounds: ``to`` lies before ``at``, and what is written ends at ``end``
    store8(out, to, _PREFIX_0)
    store8(out, to + 1, _PREFIX_1)
    store8(out, to + 2, _PREFIX_2)
    to += TEXT_PREFIX_BYTES
    while end - at >= 3:
        bits = (int64(load8(out, at)) << 16) | (int64(load8(out, at + 1)) << 8) | int64(load8(out, at + 2))
        store8(out, to, _digit(bits >> 18))
        store8(out, to + 1, _digit((bits >> 12) & 63))
        store8(out, to + 2, _digit((bits >> 6) & 63))
        store8(out, to + 3, _digit(bits & 63))
        at += 3
        to += 4
    if end - at == 2:
        bits = (int64(load8(out, at)) << 16) | (int64(load8(out, at + 1)) << 8)
        store8(out, to, _digit(bits >> 18))
        store8(out, to + 1, _digit((bits >> 12) & 63))
        store8(out, to + 2, _digit((bits >> 6) & 63))
    elif end - at == 1:
        bits = int64(load8(out, at)) << 16
        store8(out, to, _digit(bits >> 18))
        store8(out, to + 1, _digit((bits >> 12) & 63))


@inline
def is_text(data: Data, start: int, size: int) -> bool:
    """Return whether ``size`` bytes of ``data`` begin as the printable form."""
    if size < TEXT_PREFIX_BYTES:
        return False
    first, second, third = load8(data, start), load8(data, start + 1), load8(data, start + 2)
    # in bounds: the first line has seen to ``size``
    begins: bool = first == _PREFIX_0 and second == _PREFIX_1 and third == _PREFIX_2
    return begins


@routine
def read_text(data: Data, start: int, end: int, out: Data) -> int:
    """Undo the printable form ``data[start:end]`` into ``out`` (PLAIN_BYTES_MAX, by address); the size, -1 if none."""
    digits = end - start - TEXT_PREFIX_BYTES
    if end - start > TEXT_BYTES_MAX or digits % 4 == 1:
        return -1
    # in bounds: TEXT_BYTES_MAX is what PLAIN_BYTES_MAX bytes become
    at = start + TEXT_PREFIX_BYTES
    bits, held, to = 0, 0, 0
    while at < end:
        six = _six(int64(load8(data, at)))
        if six < 0:
            return -1
        bits = (bits << 6) | six
        held += 6
        at += 1
        if held >= 8:
            held -= 8
            store8(out, to, (bits >> held) & 255)
            bits &= (1 << held) - 1
            to += 1
    # bits after the last byte would let one carrier be written in several ways
    return to if bits == 0 else -1
