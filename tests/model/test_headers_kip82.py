"""The cases of Kafka's RecordHeadersTest, restated for Headers, and what real code trips on beside them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lading.model.errors import HeadersSealed, LocalError
from lading.model.headers import Header, Headers
from lading.model.kinds import Kind


def test_the_last_of_two_keys_is_found_and_the_first_comes_first() -> None:
    headers = Headers().add("key", b"value")
    assert next(iter(headers)) == Header("key", Kind.RAW, b"value")
    headers.add("key2", b"value2")
    assert headers.last("key2") == Header("key2", Kind.RAW, b"value2")
    assert len(headers) == 2


def test_insertion_order_is_iteration_order() -> None:
    headers = Headers().add("b", b"1").add("a", b"2").add("c", b"3")
    assert [header.key for header in headers] == ["b", "a", "c"]


def test_remove_leaves_nothing() -> None:
    headers = Headers().add("key", b"value").remove("key")
    assert list(headers) == []
    assert Headers([("key", b"value")]).remove("absent").keys() == ["key"]


def test_order_survives_removals_between_adds() -> None:
    headers = Headers().add("k1", b"1").add("k2", b"2").add("k3", b"3")
    headers.remove("k1")
    assert headers.keys() == ["k2", "k3"]
    headers.add("k4", b"4").remove("k3")
    assert headers.keys() == ["k2", "k4"]


def test_counts_and_last_are_right_at_every_step() -> None:
    headers = Headers()
    headers.add("key", b"value")
    assert (len(headers), headers["key"]) == (1, b"value")
    headers.add("key2", b"value2")
    assert (len(headers), headers["key2"]) == (2, b"value2")
    headers.add("key", b"value3")
    assert (len(headers), headers["key"]) == (3, b"value3")
    headers.remove("key")
    assert (len(headers), headers.last("key")) == (1, None)
    headers.remove("key2")
    assert len(headers) == 0
    headers.add("key3", b"value4")
    assert headers["key3"] == b"value4"


def test_last_of_three_values_under_one_key() -> None:
    headers = Headers().add("key", b"1").add("key", b"2").add("key", b"3")
    assert headers["key"] == b"3"
    assert len(headers) == 3


def test_all_gives_one_keys_values_in_order_and_only_those() -> None:
    headers = Headers([("a", b"1"), ("b", b"x"), ("a", b"2"), ("c", b"y"), ("a", b"3")])
    assert [header.value for header in headers.all("a")] == [b"1", b"2", b"3"]
    assert headers.get_all("b") == [b"x"]
    assert list(headers.all("none")) == []


def test_the_iterator_of_one_key_cannot_remove() -> None:
    assert not hasattr(Headers([("a", b"1")]).all("a"), "remove")


def test_nothing_changes_after_seal() -> None:
    headers = Headers([("key", b"value")])
    before = iter(headers)
    assert headers.seal() is headers
    changes: list[Callable[[], object]] = [
        lambda: headers.add("key", b"x"),
        lambda: headers.add(Header("key", Kind.RAW, b"x")),
        lambda: headers.remove("key"),
        lambda: headers.remove("absent"),
    ]
    for change in changes:
        with pytest.raises(HeadersSealed, match="Headers"):
            change()
    assert [header.value for header in before] == [b"value"]
    assert headers.sealed


def test_an_iterator_sees_the_headers_as_they_were_when_it_was_made() -> None:
    headers = Headers([("a", b"1"), ("b", b"2")])
    seen = []
    for header in headers:
        seen.append(header.key)
        headers.remove(header.key)
        headers.add("new", b"")
    assert seen == ["a", "b"]
    assert headers.keys() == ["new"]


def test_a_copy_of_sealed_headers_can_change_and_the_original_stays() -> None:
    original = Headers([("key", b"value")]).seal()
    copy = Headers(original).add("key", b"value2")
    assert (len(original), len(copy)) == (1, 2)
    assert not copy.sealed


@pytest.mark.parametrize("wrong", [None, 5, "key", ("one",), ("a", "b", "c")])
def test_what_is_no_header_is_refused(wrong: object) -> None:
    with pytest.raises(LocalError):
        Headers([wrong])  # type: ignore[list-item]


def test_none_as_headers_is_empty() -> None:
    assert len(Headers(None)) == 0


@pytest.mark.parametrize("key", [None, b"key", 5])
def test_a_key_is_a_text(key: Any) -> None:
    headers = Headers([("a", b"1")])
    for use in (headers.add, headers.remove, headers.last, headers.all, headers.get, headers.__getitem__):
        with pytest.raises(LocalError, match="header key"):
            use(key)


def test_a_key_that_utf8_cannot_hold_is_refused_when_it_is_added() -> None:
    with pytest.raises(LocalError, match="UTF-8"):
        Headers().add("\ud800", b"")


def test_null_is_not_empty_and_both_are_kept() -> None:
    headers = Headers([("null", None), ("empty", b""), ("text", "")])
    assert [(header.key, header.value) for header in headers] == [("null", None), ("empty", b""), ("text", b"")]
    assert "null" in headers
    assert headers["null"] is None
    assert headers["text"] == ""


def test_equality_heeds_order_kind_and_duplicates_but_not_the_seal() -> None:
    a, b = ("a", b"1"), ("b", b"2")
    assert Headers([a, b]) == Headers([a, b]).seal()
    assert Headers([a, b]) != Headers([b, a])
    assert Headers([a]) != Headers([a, a])
    assert Headers([("a", "1")]) != Headers([("a", b"1")])


def test_existing_headers_can_be_handed_on_in_any_form() -> None:
    headers = Headers([("a", 1), ("a", None)])
    assert Headers(headers) == Headers(list(headers)) == Headers(iter(headers)) == headers
    assert Headers({"a": 1, "b": "x"}).items() == [("a", 1), ("b", "x")]


def test_a_missing_key_is_a_key_error_and_get_has_a_default() -> None:
    headers = Headers([("a", None)])
    with pytest.raises(KeyError):
        headers["b"]
    assert headers.get("b", 7) == 7
    assert headers.get("a", 7) is None


@pytest.mark.parametrize("value", [b"value", None])
def test_sixteen_threads_read_one_header(value: bytes | None) -> None:
    header = Header("key", Kind.STRING, value)
    expected = None if value is None else "value"
    with ThreadPoolExecutor(16) as pool:
        found = pool.map(lambda _: (header.key, header.value, header.typed), range(1600))
    assert set(found) == {("key", value, expected)}
