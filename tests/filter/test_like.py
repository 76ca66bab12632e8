"""LIKE: the same rows as Arrow's, and work in proportion to the text, whatever the pattern."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.filter import like
from lading.filter.like import ARROW_CHARACTERS_MAX, PATTERN_CHARACTERS_MAX, LikePattern, match_like
from lading.filter.parse import parse
from lading.model.errors import FilterError

TEXTS = st.text(st.sampled_from("abü%_\\\n𝔸"), max_size=12)
PIECES = st.lists(st.sampled_from(["a", "b", "ü", "𝔸", "\n", "%", "_", r"\%", r"\_", r"\\", "ab", "%%"]), max_size=10)


@settings(deadline=None, max_examples=60)
@given(TEXTS, PIECES)
def test_the_same_as_arrow(text: str, pieces: list[str]) -> None:
    pattern = "".join(pieces)
    assert LikePattern(pattern).matches(text) == pc.match_like(pa.scalar(text), pattern).as_py()


def test_nulls_and_scalars() -> None:
    pattern = "%" * (ARROW_CHARACTERS_MAX + 1) + "b%_"
    texts = pa.array(["abc", None, "b", "xxbü", "abc"])
    assert match_like(texts, pattern).to_pylist() == [True, None, False, True, True]
    assert match_like(texts.dictionary_encode().dictionary, pattern).to_pylist() == [True, False, True]
    assert match_like(pa.scalar("abc"), pattern).as_py() is True
    assert match_like(pa.scalar(None, pa.string()), pattern).as_py() is None
    assert match_like(pa.array([], pa.string()), pattern).to_pylist() == []


ADVERSARIES = {
    "parts that are found": lambda size: ("%" + "a%" * (size // 2), "a"),
    "an end that is not": lambda size: ("%" + "a%" * (size // 2 - 1) + "b", "a"),
    "a part that nearly fits": lambda size: ("%" + "a" * (size - 3) + "b%", "a"),
    "any characters": lambda size: ("%" + "_%" * (size // 2), "a"),
    "characters with gaps": lambda size: ("%" + "a_" * (size // 2 - 2) + "b%", "a"),
    "two texts": lambda size: ("%" + "a_b%" * (size // 4), "ab"),
}  # fmt: skip


@pytest.mark.parametrize("adversary", ADVERSARIES.values(), ids=ADVERSARIES)
def test_the_pattern_does_not_multiply_the_work(adversary: Callable[[int], tuple[str, str]]) -> None:
    """A pattern of 60 times the length takes less than 20 times the time: RE2 took up to 100 times as long."""

    def measure_cpu_s(characters: int, text: pa.Array[pa.StringScalar]) -> float:
        pattern, _ = adversary(characters)
        matcher = LikePattern(pattern)
        best = float("inf")
        for _ in range(3):
            begun = time.thread_time()
            matcher.matches(text[0].as_py())
            best = min(best, time.thread_time() - begun)
        return best

    _, letters = adversary(8)
    text = pa.array([letters * (20_000 // len(letters))])
    least = measure_cpu_s(ARROW_CHARACTERS_MAX, text)
    assert measure_cpu_s(PATTERN_CHARACTERS_MAX, text) < max(20 * least, 0.02)


def test_a_pattern_is_bounded() -> None:
    parse(f"carrier LIKE '{'%a' * (PATTERN_CHARACTERS_MAX // 2)}'")
    with pytest.raises(FilterError, match=r"4,097 characters; at most 4,096") as refused:
        parse(f"carrier LIKE '{'%' * (PATTERN_CHARACTERS_MAX + 1)}'")
    assert refused.value.at == len("carrier LIKE ")


def test_short_patterns_are_arrows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(like, "LikePattern", None)
    assert match_like(pa.array(["UA", "UAL"]), "UA_%").to_pylist() == [False, True]


def test_every_short_pattern_and_text_is_as_in_duckdb() -> None:
    """Patterns of this length are Arrow's in a query: this asks the matcher of long ones, which has the same rules."""
    patterns = ["".join(letters) for size in range(6) for letters in itertools.product("ab_%", repeat=size)]
    texts = ["".join(letters) for size in range(5) for letters in itertools.product("ab", repeat=size)]
    given = {"patterns": pa.table({"pattern": patterns}), "texts": pa.table({"text": texts})}
    with duckdb.connect() as connection:
        for name, table in given.items():
            connection.register(name, table)
        matched = connection.sql("select pattern, text from patterns, texts where text like pattern").fetchall()
    by_pattern: dict[str, set[str]] = {}
    for pattern, text in matched:
        by_pattern.setdefault(pattern, set()).add(text)
    for pattern in patterns:
        found = LikePattern(pattern)
        assert {text for text in texts if found.matches(text)} == by_pattern.get(pattern, set()), pattern


@pytest.mark.parametrize("gap", range(58, 70))
def test_long_patterns_with_gaps_are_as_in_duckdb(gap: int) -> None:
    """Segments of ``_`` alone, and of letters that repeat between them, around the longest patterns of Arrow."""
    patterns = [f"a%{'_' * gap}%b", f"%{'_' * gap}", f"{'_' * gap}%", f"%{'ab_' * (gap // 3)}%b_", f"a%{'_' * gap}b"]
    texts = pa.array(
        [letter * (gap + more) + end for letter in ("a", "ab", "b") for more in range(-2, 4) for end in ("", "b")]
    )
    held = pa.table({"text": texts})
    with duckdb.connect() as connection:
        connection.register("held", held)
        for pattern in patterns:
            expected = [row for (row,) in connection.execute("select text like $1 from held", [pattern]).fetchall()]
            assert match_like(texts, pattern).to_pylist() == expected, pattern
            assert [LikePattern(pattern).matches(text or "") for text in texts.to_pylist()] == expected, pattern
