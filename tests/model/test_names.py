"""Flat names and their spellings, and the escapes of header keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.model.errors import MalformedMessage
from lading.model.names import flat_name, key_bytes, key_text, spellings

NAMES = st.text("ab.", min_size=1, max_size=6)


def test_a_plain_name_is_a_topic_of_the_default_stream() -> None:
    assert spellings("flights") == [("default", "flights")]
    assert flat_name("default", "flights") == "flights"


def test_each_dot_may_part_stream_and_topic() -> None:
    assert spellings("a.b.c") == [("default", "a.b.c"), ("a", "b.c"), ("a.b", "c")]
    assert spellings(".x.") == [("default", ".x."), (".x", "")][:1]
    assert spellings("default.t") == [("default", "default.t")]


@given(NAMES, NAMES)
def test_every_pair_is_among_the_spellings_of_its_flat_name(stream: str, topic: str) -> None:
    assert (stream, topic) in spellings(flat_name(stream, topic))


@given(NAMES)
def test_every_spelling_has_the_flat_name(name: str) -> None:
    assert {flat_name(*pair) for pair in spellings(name)} == {name}


@pytest.mark.parametrize(
    ("key", "kind", "text"),
    [
        (b"carrier", 2, "carrier"),
        ("grüße".encode(), 2, "grüße"),
        (b"", 2, ""),
        (b"\\x", 2, "\\\\x"),
        (b"\xff\x00", 2, "\\xff00"),
        (b"\x01\x00", 10, "\\k10:0100"),
        (b"", 1, "\\k1:"),
    ],
)
def test_escapes_of_header_keys(key: bytes, kind: int, text: str) -> None:
    assert key_text(key, kind) == text
    assert key_bytes(text) == (key, kind)


@given(st.binary(max_size=12) | st.text(max_size=6).map(str.encode), st.integers(1, 255))
def test_key_bytes_undoes_key_text(key: bytes, kind: int) -> None:
    assert key_bytes(key_text(key, kind)) == (key, kind)


@given(st.binary(max_size=8) | st.text(max_size=4).map(lambda text: ("\\" + text).encode()))
def test_different_keys_have_different_texts(key: bytes) -> None:
    assert key_text(key) != key_text(key + b"\\")
    assert key_bytes(key_text(key)) == (key, 2)


@pytest.mark.parametrize(
    "text", ["\\", "\\y", "\\xf", "\\xzz", "\\k", "\\k:00", "\\k0:00", "\\k256:00", "\\k+2:00", "\\k2", "\ud800"]
)
def test_wrong_escapes_are_refused(text: str) -> None:
    with pytest.raises(MalformedMessage, match="escape"):
        key_bytes(text)
