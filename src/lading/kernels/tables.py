"""Constants of the CRC kernels: slice-by-16 tables and powers of x for folding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IEEE = 0x104C11DB7
CASTAGNOLI = 0x11EDC6F41
CASTAGNOLI_REFLECTED = 0x82F63B78
"""The same without its highest bit, from the other end: as a CRC is shifted bit by bit."""


def slices(polynomial: int) -> NDArray[np.uint32]:
    """Slice-by-16 tables of a reflected CRC: row k is the CRC of a byte followed by k zero bytes."""
    reflected = np.uint32(int(f"{polynomial & 0xFFFFFFFF:032b}"[::-1], 2))
    table = np.zeros((16, 256), np.uint32)
    table[0] = np.arange(256)
    for _ in range(8):
        table[0] = (table[0] >> 1) ^ np.where(table[0] & 1, reflected, np.uint32(0))
    for row in range(1, 16):
        table[row] = (table[row - 1] >> 8) ^ table[0, table[row - 1] & 255]
    return table


def power(exponent: int, polynomial: int) -> np.uint64:
    """x^exponent mod polynomial, bit-reflected and aligned for carry-less multiplication."""
    remainder = 1
    for _ in range(exponent):
        remainder = (remainder << 1) ^ (polynomial if remainder >> 31 & 1 else 0)
    return np.uint64(int(f"{remainder & 0xFFFFFFFF:032b}"[::-1], 2) << 1)
