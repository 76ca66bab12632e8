"""What the target cannot hold is refused by name, before the headers are sealed; the rest becomes a batch as it is."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lading.client.outgoing import OUT_SCHEMA, BatchBuilder, normal, weigh
from lading.model.errors import LimitExceeded, LocalError
from lading.model.headers import Header, Headers
from lading.model.protocol import Capabilities

NARROW = Capabilities(
    name_bytes_min=1, name_bytes_max=255, value_bytes_max=255, values_sum_max=300, payload_bytes_max=10
)


@pytest.mark.parametrize(
    ("headers", "payload", "words"),
    [
        ([("k" * 256, "v")], b"", ("header key", "256", "255")),
        ([("", "v")], b"", ("header key ''", "0", "255")),
        ([("big", b"x" * 256)], b"", ("'big'", "256", "255")),
        ([("a", b"x" * 200), ("b", b"x" * 101)], b"", ("301", "300", "'a'")),
        ([], b"x" * 11, ("payload", "11", "10")),
    ],
)
def test_a_limit_error_names_the_part_and_the_limit(
    headers: list[tuple[str, str | bytes]], payload: bytes, words: tuple[str, ...]
) -> None:
    with pytest.raises(LimitExceeded) as raised:
        weigh(NARROW, None, Headers(headers), payload, None)
    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize(
    ("lack", "limits", "headers", "key", "payload"),
    [
        ("duplicate headers", Capabilities(duplicate_keys=False), [("a", 1), ("a", 1)], None, b"x"),
        ("null headers", Capabilities(nulls=False), [("a", None)], None, b"x"),
        ("empty headers", Capabilities(empties=False), [("a", b"")], None, b"x"),
        ("message key", Capabilities(key=False), [], b"k", b"x"),
        ("null payload", Capabilities(null_payload=False), [], None, None),
        ("empty payload", Capabilities(empty_payload=False), [], None, b""),
    ],
)
def test_what_strict_refuses_is_named(
    lack: str,
    limits: Capabilities,
    headers: list[tuple[str, bytes | int | None]],
    key: bytes | None,
    payload: bytes | None,
) -> None:
    with pytest.raises(LocalError, match=lack):
        weigh(limits, key, Headers(headers), payload, None)
    assert weigh(Capabilities(), key, Headers(headers), payload, None) > 0


def test_kinds_and_keys_that_no_batch_holds_are_refused() -> None:
    with pytest.raises(LocalError, match="kind 200"):
        weigh(Capabilities(), None, Headers([Header("a", 200, b"")]), b"", None)
    with pytest.raises(LocalError, match="UTF-8"):
        weigh(Capabilities(), None, Headers([("\ud800", "x")]), b"", None)


def test_a_batch_holds_what_was_gathered() -> None:
    gathering = BatchBuilder()
    gathering.add(b"k", Headers([("a", "1"), ("a", None)]), b"p", 5, 10)
    gathering.add(None, Headers(), None, None, 10)
    batch = gathering.batch()
    assert batch.schema == OUT_SCHEMA
    rows = batch.to_pylist()
    assert rows[0]["headers"] == [{"key": "a", "kind": 2, "value": b"1"}, {"key": "a", "kind": 1, "value": None}]
    assert [row["key"] for row in rows] == [b"k", None]
    assert [row["payload"] for row in rows] == [b"p", None]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [5, None]
    assert rows[1]["headers"] == []


def test_some_columns_are_enough_for_a_batch() -> None:
    (batch,) = normal(pa.table({"payload": ["a", "b"], "topic": ["x", "x"]}))
    assert batch.schema == OUT_SCHEMA
    assert batch.column("payload").to_pylist() == [b"a", b"b"]
    assert batch.column("headers").to_pylist() == [[], []]


def test_a_batch_with_strange_columns_is_refused() -> None:
    with pytest.raises(LocalError, match="'carrier'"):
        normal(pa.table({"payload": [b"a"], "carrier": ["UA"]}))
    with pytest.raises(LocalError, match="'payload' is double"):
        normal(pa.table({"payload": [1.5]}))
