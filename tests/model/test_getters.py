"""Typed getters: the 15 kinds, every boundary, and errors that name header, kind and limit."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from lading.model.errors import CorruptError, LocalError
from lading.model.headers import Header, Headers
from lading.model.kinds import Kind
from lading.model.values import (
    HeaderValue,
    boolean,
    encode_value,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    i128,
    raw,
    string,
    u8,
    u16,
    u32,
    u64,
    u128,
)  # fmt: skip

INTEGERS: dict[str, tuple[Callable[[int], HeaderValue], int, int]] = {
    "i8": (i8, -(2**7), 2**7 - 1),
    "i16": (i16, -(2**15), 2**15 - 1),
    "i32": (i32, -(2**31), 2**31 - 1),
    "i64": (i64, -(2**63), 2**63 - 1),
    "i128": (i128, -(2**127), 2**127 - 1),
    "u8": (u8, 0, 2**8 - 1),
    "u16": (u16, 0, 2**16 - 1),
    "u32": (u32, 0, 2**32 - 1),
    "u64": (u64, 0, 2**64 - 1),
    "u128": (u128, 0, 2**128 - 1),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_each_integer_kind_holds_its_range_and_no_more(name: str) -> None:
    make, low, high = INTEGERS[name]
    for value in (low, high, 0, 1):
        assert getattr(make(value), f"as_{name}")() == make(value).typed == value
    for outside in (low - 1, high + 1):
        with pytest.raises(LocalError, match=str(high)):
            make(outside)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("other", INTEGERS)
def test_an_integer_of_another_kind_is_given_when_it_fits(name: str, other: str) -> None:
    _, low, high = INTEGERS[name]
    make, other_low, other_high = INTEGERS[other]
    for value in (other_low, other_high, 1):
        header = Header("size", *make(value))
        if low <= value <= high:
            assert getattr(header, f"as_{name}")() == value
        else:
            with pytest.raises(LocalError, match=rf"header 'size'.*{value}.*\({low} to {high}\)"):
                getattr(header, f"as_{name}")()


@pytest.mark.parametrize("make", [f32, f64])
def test_a_whole_float_is_an_integer_and_others_are_not(make: Callable[[float], HeaderValue]) -> None:
    assert make(12.0).as_u8() == 12
    for value in (12.5, math.nan, math.inf, -1.0, 300.0):
        with pytest.raises(LocalError, match="uint8"):
            make(value).as_u8()


def test_floats_keep_nan_infinities_and_the_sign_of_zero() -> None:
    for make, get in ((f32, "as_f32"), (f64, "as_f64")):
        assert math.isnan(getattr(make(math.nan), get)())
        assert getattr(make(-math.inf), get)() == -math.inf
        assert math.copysign(1, getattr(make(-0.0), get)()) == -1
    assert math.isnan(f64(math.nan).as_f32())


def test_numbers_become_floats_where_they_are_in_range() -> None:
    assert f64(0.1).as_f32() == np.float32(0.1)
    assert u8(7).as_f64() == 7.0
    assert u128(2**128 - 1).as_f64() == float(2**128 - 1)
    for value in (f64(1e39), u128(2**128 - 1)):
        with pytest.raises(LocalError, match="float32"):
            value.as_f32()
    with pytest.raises(LocalError, match="float32"):
        f32(1e39)
    with pytest.raises(LocalError, match="float64"):
        f64(10**400)


def test_text_bytes_and_truth() -> None:
    assert string("grüße").as_str() == "grüße"
    assert raw(b"plain").as_str() == "plain"
    assert raw(b"\xff").as_raw() == b"\xff"
    assert boolean(True).as_bool() is True
    for value, get in (
        (raw(b"\xff"), "as_str"), (string("x"), "as_raw"), (string("true"), "as_bool"), (u8(1), "as_bool"),
        (boolean(True), "as_u8"), (string("5"), "as_i32"), (raw(b"5"), "as_f64"), (u8(1), "as_str"),
    ):  # fmt: skip
        with pytest.raises(LocalError, match=Kind(value.kind).word):
            getattr(value, get)()


@pytest.mark.parametrize("get", ["as_raw", "as_str", "as_bool", "as_u16", "as_f32"])
def test_null_is_refused_by_name(get: str) -> None:
    with pytest.raises(LocalError, match="header 'gone' is null"):
        getattr(Header("gone", Kind.UINT16, None), get)()


@pytest.mark.parametrize(
    ("kind", "data", "get"),
    [(Kind.UINT16, b"\x01", "as_u16"), (Kind.BOOL, b"\x02", "as_bool"), (Kind.STRING, b"\xff", "as_str")],
)
def test_bytes_that_are_not_their_kind_are_corrupt(kind: Kind, data: bytes, get: str) -> None:
    header = Header("x", kind, data)
    with pytest.raises(CorruptError):
        getattr(header, get)()
    with pytest.raises(CorruptError):
        _ = header.typed


def test_an_unknown_kind_gives_its_bytes() -> None:
    header = Header("x", 99, b"ab")
    assert header.typed == header.as_raw() == b"ab"
    with pytest.raises(LocalError, match="99"):
        header.as_u8()


def test_wrong_python_types_are_refused() -> None:
    wrong_uses: list[tuple[Any, Any]] = [
        (raw, 3),
        (raw, "x"),
        (string, b"x"),
        (boolean, 1),
        (u8, True),
        (u8, 1.0),
        (f64, "1"),
        (f32, True),
    ]
    for make, wrong in wrong_uses:
        with pytest.raises(LocalError):
            make(wrong)
    with pytest.raises(LocalError, match="list"):
        encode_value([1])  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="128 bits"):
        encode_value(2**128)
    with pytest.raises(LocalError, match="UTF-8"):
        string("\ud800")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", Kind.STRING), (b"x", Kind.RAW), (True, Kind.BOOL), (1.5, Kind.FLOAT64), (None, Kind.RAW),
        (2**63 - 1, Kind.INT64), (-(2**63), Kind.INT64), (2**63, Kind.UINT64), (2**64, Kind.INT128),
        (-(2**63) - 1, Kind.INT128), (2**127, Kind.UINT128),
        (UUID(int=1), Kind.STRING), (datetime(2024, 1, 1, tzinfo=UTC), Kind.STRING),
        (np.int16(3), Kind.INT16), (np.uint64(3), Kind.UINT64), (np.float32(0.5), Kind.FLOAT32),
        (np.bool_(True), Kind.BOOL),
    ],
)  # fmt: skip
def test_the_kind_of_plain_values(value: Any, kind: Kind) -> None:
    encoded = encode_value(value)
    assert encoded.kind == kind
    if not isinstance(value, UUID | datetime):
        assert encoded.typed == value


def test_values_and_headers_stay_tuples_that_pickle() -> None:
    header = Headers([("a", u16(3))]).last("a")
    assert header == ("a", Kind.UINT16, b"\x03\x00")
    assert pickle.loads(pickle.dumps(header)) == header
    assert pickle.loads(pickle.dumps(u16(3))) == u16(3)
    key, kind, value = header
    assert (key, kind, value) == ("a", 10, b"\x03\x00")
