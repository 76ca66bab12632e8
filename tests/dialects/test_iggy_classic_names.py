"""Names of streams and topics as the real server takes and stores them (iggy.md A6, M7)."""

from __future__ import annotations

import pytest

from lading.dialects.iggy.classic.validation import is_name, normalise_name


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("str1", "str1"),
        ("My  Stream", "my.stream"),
        ("  padded\t", "padded"),
        ("a \t\n b", "a.b"),
        ("Straße-1_x.y", "straße-1_x.y"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("42", "42"),
        ("日本", "日本"),
    ],
)
def test_stored_form(given: str, stored: str) -> None:
    assert is_name(given)
    assert normalise_name(given) == stored


@pytest.mark.parametrize("name", ["", " ", "a/b", "a!", "a" * 256, "é" * 128, "a\x00b", "\x1c", "☃", "\ud800"])
def test_refused(name: str) -> None:
    assert not is_name(name)


def test_longest() -> None:
    assert is_name("a" * 255)
