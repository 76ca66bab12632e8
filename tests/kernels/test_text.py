"""UTF-8 in kernels against Python's own decoder."""

from __future__ import annotations

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.kernels.text import UTF8_GOOD, ascii_only, store_hex, utf8_check

ascii_kernel = numba.njit(lambda array, at, size: ascii_only(array, at, size))

EDGES = [
    b"",
    b"\x7f",
    b"\x80",
    b"\xc0\x80",
    b"\xc1\xbf",
    b"\xc2\x80",
    b"\xc2",
    b"\xe0\x80\x80",
    b"\xe0\xa0\x80",
    b"\xed\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xef\xbf\xbf",
    b"\xf0\x80\x80\x80",
    b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"\xff",
    "żółć-航班-🛫".encode(),
]


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def agrees(data: bytes) -> bool:
    array = np.frombuffer(data + bytes(8), np.uint8)
    right = (utf8_check(array, 0, len(data)) == UTF8_GOOD) is is_utf8(data)
    return right and ascii_kernel(array, 0, len(data)) is data.isascii()


def test_every_edge_of_utf8() -> None:
    for data in EDGES:
        for around in (b"", b"a", b"1234567", b"123456789"):
            assert agrees(around + data + around), around + data


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=24), st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_utf8_is_what_python_decodes(data: bytes) -> None:
    assert agrees(data)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_hex_is_pythons(data: bytes) -> None:
    target = np.zeros(2 * len(data), np.uint8)
    store_hex(target, 0, np.frombuffer(data, np.uint8), 0, len(data))
    assert target.tobytes().decode() == data.hex()
