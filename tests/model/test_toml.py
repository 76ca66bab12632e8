"""What is written as TOML reads back as it was."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.model.toml import toml_key, toml_text, toml_value

VALUES = st.recursive(
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.text(), VALUES)
def test_keys_and_values_read_back(key: str, value: Any) -> None:
    line = f"{toml_key(key)} = {toml_value(value)}"
    assert line.isascii() and "\n" not in line
    assert tomllib.loads(line) == {key: value}


@pytest.mark.parametrize("text", ["😀", "\x1b\x7f\x9b", "a\nb", '"\\', "\u202e"])
def test_strange_texts_are_strings_of_one_line(text: str) -> None:
    assert tomllib.loads(f"k = {toml_text(text)}") == {"k": text}


def test_what_is_no_unicode_is_replaced() -> None:
    assert tomllib.loads(f"k = {toml_text(chr(0xD800))}") == {"k": "\ufffd"}
