"""What print shows of header values and states."""

from __future__ import annotations

import json

import pytest

from lading import Header, HeaderValue, State, boolean, f64, raw, string, u16


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (u16(12), "uint16: 12"),
        (string("UA"), "string: UA"),
        (boolean(True), "bool: true"),
        (f64(1.5), "float64: 1.5"),
        (raw(b"text"), "raw: text"),
        (raw(b"\xff\x00"), "raw: 0xff00"),
        (string("a\x1b[2J"), "string: a\\x1b[2J"),
        (HeaderValue(10, b"\1"), "uint16: 0x01"),
        (HeaderValue(77, b"\xfe"), "kind 77: 0xfe"),
        (HeaderValue(2, None), "string: null"),
    ],
)
def test_a_header_value_shows_kind_and_value(value: HeaderValue, shown: str) -> None:
    assert str(value) == shown
    assert str(Header("k", *value)) == f"k = {shown}"


def test_a_state_shows_its_word_and_stays_a_number() -> None:
    assert [str(state) for state in State] == ["available", "unavailable", "poisoned", "marked_for_deletion"]
    assert f"{State.POISONED} {State.POISONED:>10}|{State.POISONED:d}" == "poisoned   poisoned|20"
    assert json.dumps(State.POISONED) == "20"
