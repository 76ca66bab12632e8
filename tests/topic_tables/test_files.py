"""Parts of the tables without a server: the cut into files, bounds against pyiceberg's own, and the cache of files."""

from __future__ import annotations

import datetime as dt
import io
import os
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from lading.model.errors import LocalError, SettingError
from lading.topic_tables.file_facts import FactCollector, FileFacts, cut_lower, cut_upper
from lading.topic_tables.files import FileCache, write_parquet
from lading.topic_tables.layout import choose_seal_rows, cut_rows
from lading.topic_tables.server import own_state
from lading.topic_tables.table_schema import MESSAGE_COLUMNS, TableColumn, TableSchema, extend_schema

COLUMNS: list[tuple[pa.DataType, PrimitiveType, st.SearchStrategy[Any]]] = [
    (pa.int32(), IntegerType(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.int64(), LongType(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.float32(), FloatType(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), DoubleType(), st.floats(allow_nan=False)),
    (pa.bool_(), BooleanType(), st.booleans()),
    (pa.string(), StringType(), st.text(max_size=30)),
    (pa.binary(), BinaryType(), st.binary(max_size=30)),
    (pa.date32(), DateType(), st.dates()),
    (pa.decimal128(10, 2), DecimalType(10, 2), st.decimals(-99_999_999, 99_999_999, places=2)),
    (pa.decimal128(38), DecimalType(38, 0), st.integers(1 - 10**38, 10**38 - 1).map(Decimal)),
    (pa.timestamp("us", "UTC"), TimestamptzType(), st.datetimes(timezones=st.just(dt.UTC))),
]


@settings(deadline=None)
@given(st.data(), st.sampled_from(range(len(COLUMNS))))
def test_bounds_hold_for_every_value(data: st.DataObject, which: int) -> None:
    type_, iceberg, values = COLUMNS[which]
    rows = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=8))
    schema = TableSchema(0, (TableColumn("value", 100, type_),), "", 100)
    collector = FactCollector(schema)
    for at in range(0, len(rows), 3):
        collector.add(pa.record_batch([pa.array(rows[at : at + 3], type_)], schema=schema.arrow))
    facts = collector.finish()
    known = [_as_iceberg(value) for value in rows if value is not None]
    assert (facts.rows, facts.nulls[100]) == (len(rows), len(rows) - len(known))
    if not known:
        assert not facts.lower and not facts.upper
        return
    least = from_bytes(iceberg, facts.lower[100])
    assert all(least <= value for value in known)
    if 100 in facts.upper:
        most = from_bytes(iceberg, facts.upper[100])
        assert all(most >= value for value in known)
        assert isinstance(most, str | bytes) or most == max(known)
    else:
        # nothing of this length is greater
        assert max(known)[:16] in ("\U0010ffff" * 16, b"\xff" * 16)


def _as_iceberg(value: Any) -> Any:
    """Return a value in the form that pyiceberg reads a bound as."""
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def test_long_texts_have_short_bounds() -> None:
    assert cut_lower("a" * 40) == "a" * 16
    assert cut_upper("a" * 40) == "a" * 15 + "b"
    assert cut_upper(b"\xff" * 40) is None
    assert cut_upper(b"a" + b"\xff" * 40) == b"b"
    # the character after U+D7FF is U+E000
    assert cut_upper("a" * 15 + "\ud7ff" + "z") == "a" * 15 + "\ue000"


def test_nans_are_counted_and_bound_nothing() -> None:
    schema = TableSchema(0, (TableColumn("value", 100, pa.float64()),), "", 100)
    collector = FactCollector(schema)
    collector.add(pa.record_batch([pa.array([float("nan"), 1.0, None])], schema=schema.arrow))
    facts = collector.finish()
    assert facts.nans == {100: 1}
    bounds: list[Any] = [from_bytes(DoubleType(), bounds[100]) for bounds in (facts.lower, facts.upper)]
    assert bounds == [1.0, 1.0]
    assert FileFacts.parse(facts.to_document()) == facts


@settings(deadline=None)
@given(st.integers(0, 1 << 20), st.integers(0, 1 << 14), st.sampled_from([1 << 10, 1 << 14]))
def test_files_cover_rows_once_and_are_few(first: int, count: int, seal_rows: int) -> None:
    cuts = cut_rows(3, first, first + count, seal_rows)
    assert [offset for cut in cuts for offset in (cut.first, cut.end)][1:-1:2] == [cut.first for cut in cuts][1:]
    assert sum(cut.end - cut.first for cut in cuts) == count
    assert all(0 < cut.end - cut.first <= seal_rows and cut.partition == 3 for cut in cuts)
    # large ones, and a few smaller ones at the end
    assert len(cuts) <= count // seal_rows + 1 + 16 + 8


@settings(deadline=None)
@given(st.integers(0, 50_000), st.integers(1, 9_000))
def test_rows_that_were_sealed_stay_in_their_files(end: int, more: int) -> None:
    before, after = cut_rows(0, 0, end, 1 << 12), cut_rows(0, 0, end + more, 1 << 12)
    sealed = [cut for cut in before if cut.end - cut.first == 1 << 12]
    assert after[: len(sealed)] == sealed


def test_large_messages_make_smaller_files() -> None:
    assert choose_seal_rows(0, 0) == 1 << 20
    assert choose_seal_rows(1_000, 1_000 * 100) == 1 << 20
    assert choose_seal_rows(1_000, 1_000 * 10_000) == 1 << 13
    assert choose_seal_rows(10, 10 << 24) == 1 << 10


@pytest.mark.parametrize("words", [
    "offset", "key string", "carrier", "carrier string required", "a string, a int", "x struct<a int>", "a" * 70_000,
])  # fmt: skip
def test_columns_that_cannot_be(words: str) -> None:
    with pytest.raises(SettingError, match=r"name|write|leave|keeps|json|use|needs|known are"):
        extend_schema(None, words)


def test_the_same_rows_give_the_same_bytes_however_they_arrive() -> None:
    schema = TableSchema(0, MESSAGE_COLUMNS[:4], "", 99)
    rows = pa.record_batch(
        [
            pa.array([0] * 500, pa.int32()), pa.array(range(500)), pa.array([7] * 500, pa.timestamp("us", "UTC")),
            pa.array([b"k%d" % number for number in range(500)]),
        ],
        schema=schema.arrow,
    )  # fmt: skip
    whole, pieces = io.BytesIO(), io.BytesIO()
    facts = write_parquet(schema, [rows], whole)
    assert write_parquet(schema, [rows.slice(at, 7) for at in range(0, 500, 7)], pieces) == facts
    assert whole.getvalue() == pieces.getvalue()
    assert facts.splits == [4]
    assert pq.read_table(io.BytesIO(whole.getvalue())).num_rows == 500


def _write(body: bytes) -> Callable[[Any], FileFacts]:
    def render(stream: Any) -> FileFacts:
        stream.write(body)
        return FileFacts(1)

    return render


def test_old_files_go_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, workers=1, cache_bytes=250)
    for number in range(4):
        cache.get(f"t/{number}.parquet", _write(b"x" * 100)).result(10)
    now = time.time()
    cache.sweep(now)
    assert len(list(tmp_path.rglob("*.parquet"))) == 4, "what was used within the hour stays"
    for number in range(4):
        os.utime(tmp_path / f"t/{number}.parquet", (now, now - 7_200 + number))
    cache.sweep(now)
    assert sorted(path.name for path in tmp_path.rglob("*.parquet")) == ["2.parquet", "3.parquet"]
    # one that was deleted is made again
    assert cache.get("t/0.parquet", _write(b"x" * 100)).result(10).read(0, 3) == b"xxx"
    cache.close()


def test_a_file_cut_short_is_made_again(tmp_path: Path) -> None:
    first = FileCache(tmp_path, workers=1)
    first.get("t/a.parquet", _write(b"whole")).result(10)
    first.close()
    (tmp_path / "t/a.parquet").write_bytes(b"who")
    again = FileCache(tmp_path, workers=1)
    assert again.get("t/a.parquet", _write(b"whole")).result(10).read(0, 9) == b"whole"
    again.close()


def test_a_full_disk_serves_from_memory(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"no directory can be made of this name")
    cache = FileCache(tmp_path, workers=1)
    found = cache.get("t/a.parquet", _write(b"rows")).result(10)
    assert (found.read(0, 4), found.facts.size_bytes) == (b"rows", 4)
    cache.close()


def test_a_rendering_that_fails_is_tried_again(tmp_path: Path) -> None:
    def fail(stream: Any) -> FileFacts:
        raise SettingError("no rows")

    cache = FileCache(tmp_path, workers=1)
    with pytest.raises(SettingError, match="no rows"):
        cache.get("t/a.parquet", fail).result(10)
    assert cache.get("t/a.parquet", _write(b"rows")).result(10).read(0, 4) == b"rows"
    assert not list(tmp_path.rglob("*.new"))
    cache.close()


def test_large_messages_make_short_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading.topic_tables.files.GROUP_BYTES", 1_000)
    schema = TableSchema(0, (MESSAGE_COLUMNS[1], MESSAGE_COLUMNS[3]), "", 99)
    keys = [b"k" * (number % 300) for number in range(100)]
    rows = pa.record_batch([pa.array(range(100)), pa.array(keys)], schema=schema.arrow)
    whole, pieces = io.BytesIO(), io.BytesIO()
    facts = write_parquet(schema, [rows], whole)
    assert write_parquet(schema, [rows.slice(at, 7) for at in range(0, 100, 7)], pieces) == facts
    assert whole.getvalue() == pieces.getvalue()
    read = pq.ParquetFile(io.BytesIO(whole.getvalue()))
    assert read.read()["key"].to_pylist() == keys
    groups = [read.read_row_group(group)["key"].to_pylist() for group in range(read.num_row_groups)]
    sizes = [[len(key or b"") for key in group] for group in groups]
    assert len(sizes) == len(facts.splits) > 3
    assert all(sum(group[:-1]) < 1_000 <= sum(group) for group in sizes[:-1])


def test_memory_is_bounded_while_a_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading.topic_tables.files.MEMORY_BYTES", 250)
    (tmp_path / "t").write_bytes(b"no directory can be made of this name")
    cache = FileCache(tmp_path, workers=1)
    for number in range(5):
        assert cache.get(f"t/{number}.parquet", _write(b"x" * 100)).result(10).read(0, 3) == b"xxx"
    assert [cache.has(f"t/{number}.parquet") for number in range(5)] == [False, False, False, True, True]
    assert cache.get("t/0.parquet", _write(b"y" * 100)).result(10).read(0, 3) == b"yyy"
    cache.close()


def test_facts_of_few_files_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading.topic_tables.files.FUTURES_MAX", 3)
    cache = FileCache(tmp_path, workers=1)
    for number in range(5):
        cache.get(f"t/{number}.parquet", _write(b"%d" % number)).result(10)
    assert len(cache._files) <= 4
    assert cache.get("t/0.parquet", _write(b"again")).result(10).read(0, 9) == b"0", "the file is still there"
    cache.close()


def test_a_sweep_reports_deleted_files_and_takes_what_a_kill_left(tmp_path: Path) -> None:
    deleted: list[int] = []
    cache = FileCache(tmp_path, workers=1, cache_bytes=50, on_deleted=lambda: deleted.append(1))
    cache.get("t/a.parquet", _write(b"x" * 100)).result(10)
    (tmp_path / "t/b.7.new").write_bytes(b"half")
    cache.sweep(time.time())
    assert (deleted, (tmp_path / "t/b.7.new").exists()) == ([], True)
    cache.sweep(time.time() + 7_200)
    assert (deleted, list((tmp_path / "t").iterdir())) == ([1], [])
    cache.close()


def test_one_process_serves_a_directory(tmp_path: Path) -> None:
    held = own_state(tmp_path, 0)
    with pytest.raises(LocalError, match="give --state"):
        own_state(tmp_path, 0)
    held.close()
    own_state(tmp_path, 0).close()


def test_decimals_have_the_scale_of_their_column() -> None:
    schema = TableSchema(0, (TableColumn("value", 100, pa.decimal128(38, 4)),), "", 100)
    collector = FactCollector(schema)
    collector.add(pa.record_batch([pa.array([Decimal("-1.5000"), Decimal("2.2500")])], schema=schema.arrow))
    facts = collector.finish()
    assert from_bytes(DecimalType(38, 4), facts.lower[100]) == Decimal("-1.5")
    assert from_bytes(DecimalType(38, 4), facts.upper[100]) == Decimal("2.25")
