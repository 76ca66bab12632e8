"""Zigzag varints in plain Python: what ``varint.py`` does inside kernels, name by name."""

from __future__ import annotations

from typing import Any


def varint32(array: Any, at: int, end: int) -> tuple[int, int]:
    """The 32-bit number at ``at`` and the position after it; a position of -1 if it is longer, or cut off."""
    value, at = _read_unsigned(array, at, min(end, at + 5))
    return ((value >> 1) ^ -(value & 1), at) if at >= 0 and value < 1 << 32 else (0, -1)


def varint64(array: Any, at: int, end: int) -> tuple[int, int]:
    """The 64-bit number at ``at`` and the position after it; -1 for that if it is too long or cut off."""
    value, at = _read_unsigned(array, at, min(end, at + 10))
    value &= (1 << 64) - 1
    return (value >> 1) ^ -(value & 1), at


def add_wrapping(first: int, second: int) -> int:
    """Return the sum as 64 bits hold it, which is how compiled kernels, and Kafka's brokers and clients, add."""
    return (first + second + (1 << 63)) % (1 << 64) - (1 << 63)


def store_varint(target: bytearray, value: int) -> None:
    """Append ``value`` to ``target``."""
    rest = (value << 1) ^ (value >> 63)
    while rest >= 0x80:
        target.append(rest & 0x7F | 0x80)
        rest >>= 7
    target.append(rest)


def _read_unsigned(array: Any, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while at < stop:
        byte = int(array[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1
