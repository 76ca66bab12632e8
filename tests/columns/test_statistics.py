"""The header table: every figure on a batch small enough to count by hand, and estimates on a large one."""

from __future__ import annotations

import json

import pyarrow as pa

from lading.columns.contract import parse_columns
from lading.columns.distinct import DistinctCount
from lading.columns.statistics import KEYS_MAX, HeaderStatistics
from lading.model.headers import Header, Headers, HeadersLike
from lading.model.kinds import Kind
from lading.model.values import f64, i32, u8, u64

from .values import headers_array


def batch(*messages: HeadersLike) -> pa.RecordBatch:
    return pa.record_batch([headers_array([list(Headers(one)) for one in messages])], names=["headers"])


FIRST = batch(
    [("carrier", "UA"), ("delay", i32(5)), ("via", "a"), ("via", "b")],
    [("carrier", "AA"), ("delay", None)],
    [("carrier", "UA"), ("note", b"")],
    [],
)
SECOND = batch([("carrier", "DL"), ("delay", u8(7)), ("raw", b"\xff")])


def test_every_figure_by_hand() -> None:
    table = HeaderStatistics()
    table.add(FIRST)
    table.add(SECOND)
    assert table.messages == 5
    rows = {row["key"]: row for row in table.rows()}
    assert next(iter(rows)) == "carrier"
    carrier = rows["carrier"]
    assert (carrier["messages"], carrier["share"], carrier["distinct"]) == (4, 80.0, 3)
    assert (carrier["size_bytes"], carrier["kinds"], carrier["examples"]) == (8, "string", "UA, AA, DL")
    delay = rows["delay"]
    assert (delay["messages"], delay["nulls"], delay["kind_counts"]) == (3, 1, {"int32": 1, "uint8": 1})
    assert (delay["type"], delay["example_values"], delay["size_bytes"]) == ("int", [5, 7], 5)
    assert (rows["via"]["messages"], rows["via"]["duplicates"], rows["via"]["distinct"]) == (1, 1, 2)
    assert (rows["note"]["empty"], rows["note"]["type"]) == (1, "string")
    assert (rows["raw"]["type"], rows["raw"]["examples"]) == ("binary", "0xff")
    json.dumps(table.rows(), allow_nan=False)


def test_merging_is_adding() -> None:
    whole, left, right = HeaderStatistics(), HeaderStatistics(), HeaderStatistics()
    for one in (FIRST, SECOND):
        whole.add(one)
    left.add(FIRST)
    right.add(SECOND)
    left.merge(right)
    assert left.rows() == whole.rows()
    assert left.messages == whole.messages


def test_suggested_columns_can_be_asked_for() -> None:
    table = HeaderStatistics()
    table.add(
        batch(
            [("carrier", "UA"), ("id", "x"), ("x y", u64(1)), ("mix", f64(1.5)), ("Carrier", True), ("n", None)],
            [("mix", i32(1)), ('q"q', "s")],
        )
    )
    columns = parse_columns(", ".join(table.suggest_columns()))
    assert [(one.name, one.header, str(one.type)) for one in columns.headers] == [
        ("carrier", "carrier", "string"), ("header_id", "id", "string"), ("x y", "x y", "decimal128(38, 0)"),
        ("mix", "mix", "double"), ("header_Carrier", "Carrier", "bool"), ("n", "n", "string"), ('q"q', 'q"q', "string"),
    ]  # fmt: skip


def test_no_messages_and_strange_values() -> None:
    table = HeaderStatistics()
    table.add(batch())
    assert table.rows() == []
    table.add(batch([Header("k", 99, b"a"), Header("i", Kind.INT32, b"x"), Header("f", *f64(float("inf")))]))
    rows = {row["key"]: row for row in table.rows()}
    assert rows["k"]["kinds"] == "kind 99"
    assert rows["i"]["examples"] == "x"
    assert rows["f"]["examples"] == "inf"


def test_made_up_keys_do_not_fill_the_memory() -> None:
    table = HeaderStatistics()
    table.add(batch([(f"key{at}", "x") for at in range(KEYS_MAX + 10)]))
    assert len(table.keys) == KEYS_MAX
    assert table.other_occurrences == 10


def test_one_message_of_many_keys_hides_no_others() -> None:
    """A client that sent 3,000 headers on one message took the places of all keys that came after it."""
    many = [(f"key{at}", "x") for at in range(KEYS_MAX * 3)]
    table = HeaderStatistics(wanted=["late"])
    table.add(batch([("early", "1")], many, [("usual", "1")], [("usual", "2"), ("key7", "y")]))
    assert [table.keys[key].messages for key in ("early", "usual", "key7")] == [1, 2, 2]
    table.add(batch([("new", "1")], [("new", "1"), ("key7", "z")], [("once", "1"), ("late", "1")]))
    assert [table.keys[key].messages for key in ("usual", "key7", "new", "late")] == [2, 3, 2, 1]
    assert "once" not in table.keys and len(table.keys) == KEYS_MAX
    counted = sum(one.occurrences for one in table.keys.values()) + table.other_occurrences
    assert counted == 1 + len(many) + 1 + 2 + 1 + 2 + 2
    merged = HeaderStatistics()
    merged.add(batch(many))
    merged.merge(table)
    assert [merged.keys[key].messages for key in ("usual", "key7", "new")] == [2, 4, 2]
    assert len(merged.keys) == KEYS_MAX
    assert sum(one.occurrences for one in merged.keys.values()) + merged.other_occurrences == counted + len(many)


def test_distinct_counts_are_exact_when_few_and_near_when_many() -> None:
    few, many, half = DistinctCount(), DistinctCount(), DistinctCount()
    few.add(b"%d" % (at % 1000) for at in range(3000))
    assert (few.count, few.exact) == (1000, True)
    many.add(b"%d" % at for at in range(60_000))
    half.add(b"%d" % at for at in range(40_000, 100_000))
    assert not many.exact
    assert abs(many.count - 60_000) < 6_000
    many.merge(half)
    assert abs(many.count - 100_000) < 10_000
    again = many.count
    many.merge(half)
    assert many.count == again


def test_an_estimate_is_never_above_what_there_is() -> None:
    above = 0
    for number in range(12):
        values = [b"%d-%d" % (number, at) for at in range(2000)]
        estimate = DistinctCount()
        estimate.add(values, seed=Kind.STRING)
        above += estimate.count > len(values)
        table = HeaderStatistics()
        table.add(batch(*([("id", value.decode())] for value in values)))
        (row,) = table.rows()
        assert not row["distinct_exact"]
        assert 1800 < row["distinct"] <= 2000
    assert above, "no estimate was too high: the test shows nothing"
