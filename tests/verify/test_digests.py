"""Digests of ranges: equal for equal messages however reads cut them, and for nothing else."""

from __future__ import annotations

import hashlib
import itertools
import struct
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.model.batch import SCHEMA
from lading.verify.digests import RangeDigest
from lading.verify.settings import Fact

FACTS: tuple[Fact, ...] = get_args(Fact)
Row = dict[str, Any]


def row(**named: Any) -> Row:
    made = {
        "offset": 0, "state": 1, "timestamp": 1_700_000_000_000_000, "id": None, "checksum": None, "key": b"k",
        "headers": [("a", 1, b"x"), ("a", 2, None)], "payload": b"p",
    }  # fmt: skip
    return made | named


def to_batch(rows: list[Row]) -> pa.RecordBatch:
    named = [
        one | {"headers": [{"key": key, "kind": kind, "value": value} for key, kind, value in one["headers"]]}
        for one in rows
    ]
    return pa.RecordBatch.from_pylist(named, schema=SCHEMA)


def digest(batches: list[pa.RecordBatch], facts: Any = FACTS, ignored: Any = ()) -> bytes:
    found = RangeDigest(facts, ignored)
    for batch in batches:
        found.add(batch)
    return found.digest()


BYTES = st.none() | st.binary(max_size=5)
ROWS = st.lists(
    st.builds(
        row,
        key=BYTES,
        payload=BYTES,
        id=st.none() | st.binary(min_size=16, max_size=16),
        state=st.sampled_from((1, 20)),
        timestamp=st.integers(0, 1 << 52),
        headers=st.lists(st.tuples(st.sampled_from(("", "a", "b")), st.integers(1, 15), BYTES), max_size=4),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 12), max_size=4), ignored=st.sampled_from(((), ("a",), ("a", "z"))))
def test_pieces_have_the_digest_of_the_whole(rows: list[Row], cuts: list[int], ignored: tuple[str, ...]) -> None:
    whole = to_batch(rows)
    places = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    pieces = [whole.slice(first, end - first) for first, end in itertools.pairwise(places)]
    copied = [to_batch(rows[first:end]) for first, end in itertools.pairwise(places)]
    if rows:
        assert digest([whole], ignored=ignored) == digest(pieces, ignored=ignored) == digest(copied, ignored=ignored)


@settings(deadline=None)
@given(rows=ROWS, others=ROWS)
def test_other_messages_have_another_digest(rows: list[Row], others: list[Row]) -> None:
    same = [one | {"timestamp": one["timestamp"] // 1000} for one in rows] == [
        one | {"timestamp": one["timestamp"] // 1000} for one in others
    ]
    assert (digest([to_batch(rows)]) == digest([to_batch(others)])) == same


def test_the_digest_is_the_one_that_the_module_describes() -> None:
    def of(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(parts)).digest()

    ints = struct.Struct("<2i").pack
    expected = of(
        of(ints(1, -1)), of(b"k"),  # keys
        of(ints(1, 0)), of(b"p"),  # payloads
        of(ints(2, 1)),  # headers of each message
        of(struct.pack("<3i", 1, 1, 1)), of(b"aab"),
        of(struct.pack("<3i", 1, -1, 0)), of(b"x"),
        of(bytes([1, 2, 3])),
    )  # fmt: skip
    batch = to_batch([row(), row(key=None, payload=b"", headers=[("b", 3, b"")])])
    assert digest([batch], ("headers", "kinds", "key", "payload")) == expected


@pytest.mark.parametrize(
    ("named", "fact"),
    [
        ({"key": None}, "key"), ({"key": b""}, "key"), ({"payload": b"q"}, "payload"), ({"state": 20}, "state"),
        ({"id": b"i" * 16}, "id"), ({"timestamp": 1_700_000_000_001_000}, "timestamp"),
        ({"headers": [("a", 2, None), ("a", 1, b"x")]}, "headers"), ({"headers": [("a", 1, b"x")]}, "headers"),
        ({"headers": [("a", 1, b"x"), ("a", 2, b"")]}, "headers"),
        ({"headers": [("a", 1, b"x"), ("a", 3, None)]}, "kinds"),
    ],
)  # fmt: skip
def test_a_fact_counts_only_if_it_is_compared(named: Row, fact: Fact) -> None:
    one, other = to_batch([row(), row()]), to_batch([row(), row(**named)])
    assert digest([one], (fact,)) != digest([other], (fact,))
    rest = [name for name in FACTS if name != fact and (name, fact) != ("kinds", "headers")]
    assert digest([one], rest) == digest([other], rest)


def test_an_ignored_header_may_differ_or_lack() -> None:
    one = to_batch([row(headers=[("a", 1, b"x"), ("trace", 2, b"1")]), row()])
    other = to_batch(
        [row(headers=[("trace", 2, b"2"), ("a", 1, b"x")]), row(headers=[*row()["headers"], ("trace", 1, b"")])]
    )
    assert digest([one]) != digest([other])
    assert digest([one], ignored=("trace",)) == digest([other], ignored=("trace",))
