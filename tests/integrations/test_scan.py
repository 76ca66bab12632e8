"""A lazy scan of a topic, read unmodified by what takes Arrow's C stream interface, and by sources that push down."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lading
from lading import Admin, Producer, f64, i16, testing
from lading.client import bulk
from lading.client import scan as scan_module
from lading.integrations import duckdb as duckdb_source
from lading.integrations import polars as polars_source
from lading.integrations.arrow import TopicDataset
from lading.model.errors import LadingError, SettingError

MESSAGES = 240
COLUMNS = (
    "partition, offset, timestamp, key string, carrier string, delay int, ratio double, late boolean, "
    'at timestamp, "odd name" bigint from size, amount bigint from payload.amount'
)
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with testing.broker() as broker:
        with Admin(broker.url) as admin:
            admin.create_topic("scans", partitions=3)
        with Producer(broker.url) as producer:
            for number in range(MESSAGES):
                headers: list[tuple[str, Any]] = [("carrier", ("UA", "A'A", "B6 and 'x'")[number % 3])]
                headers.append(("delay", i16(number - 100) if number % 7 else "late"))
                headers.append(("ratio", f64((number - 50) / 8) if number % 11 else f64(float("nan"))))
                if number % 5:
                    headers.append(("late", number % 2 == 0))
                headers.append(("at", f"2026-01-01T00:{number % 60:02}:00.000001Z"))
                headers.append(("size", 10**12 + number))
                payload = json.dumps({"amount": number}).encode() if number % 13 else b"{"
                producer.send(
                    "scans", payload, key=b"k%d" % (number % 9), headers=headers, partition=number % 3,
                    timestamp=BEGINNING + timedelta(seconds=number),
                )  # fmt: skip
        yield broker.url


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that reads of scans yield."""
    counted: list[int] = []
    read = bulk.read_selection

    def count(*arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for batch in read(*arguments, **options):
            counted.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(scan_module, "read_selection", count)
    return counted


def test_whatever_reads_arrow_streams_reads_a_scan_again_and_again(url: str) -> None:
    flights = lading.scan(url, "scans", COLUMNS)
    expected = lading.read_arrow(url, "scans", COLUMNS)
    assert flights.schema.names == expected.schema.names
    for _ in range(2):
        # Arrow says that a NaN equals nothing, Polars that it equals itself
        found = pa.RecordBatchReader.from_stream(flights).read_all()
        assert pl.DataFrame(found).equals(pl.DataFrame(expected))
        assert pl.DataFrame(flights).height == MESSAGES
        assert duckdb.connect().from_arrow(flights).aggregate("count(*), max(delay)").fetchall() == [(MESSAGES, 139)]
    assert pa.table(flights).num_rows == MESSAGES
    assert len(flights.to_arrow().to_pandas()) == MESSAGES
    schema: Any = pa.schema
    assert schema(flights) == flights.schema
    assert lading.scan(url, "scans").to_arrow().schema.names == lading.read_arrow(url, "scans").schema.names


def test_columns_filters_and_limits_make_scans_of_less(url: str) -> None:
    flights = lading.scan(url, "scans", COLUMNS, where="delay > 5")
    late = flights.filter("carrier = 'UA'").select(["odd name", "offset"])
    table = late.to_arrow()
    assert table.schema.names == ["odd name", "offset"]
    expected = lading.read_arrow(url, "scans", COLUMNS, where="delay > 5 AND carrier = 'UA'")
    assert table["odd name"].to_pylist() == expected["odd name"].to_pylist()
    assert late.limit(3).to_arrow().num_rows == 3
    assert late.limit(0).to_arrow().num_rows == 0
    assert flights.select([]).to_arrow().num_rows == flights.to_arrow().num_rows
    assert sum(part.to_arrow().num_rows for part in late.split()) == expected.num_rows
    assert pickle.loads(pickle.dumps(late)).to_arrow().equals(table)
    with pytest.raises(SettingError, match=r"'ofset': the scan has no such column.*did you mean 'offset'"):
        flights.select(["ofset"])
    with pytest.raises(SettingError, match="the limit comes first; filter before it"):
        flights.limit(5).filter("carrier = 'UA'")
    with pytest.raises(SettingError, match="limit is 0 or more"):
        flights.limit(-1)
    with pytest.raises(LadingError, match=r"Unknown|does not exist"):
        lading.scan(url, "no_such_scan").to_arrow()
    with pytest.raises(SettingError, match="no argument or transport option 'wehre'"):
        lading.scan(url, "scans", wehre="x").to_arrow()


def test_a_scan_holds_no_more_than_a_few_batches(url: str, rows_read: list[int]) -> None:
    with lading.scan(url, "scans", COLUMNS).to_reader() as reader:
        reader.read_next_batch()
        assert len(rows_read) == 1


def test_polars_decodes_what_a_query_needs_and_applies_the_rest(url: str, rows_read: list[int]) -> None:
    frame = polars_source.to_lazy_frame(lading.scan(url, "scans", COLUMNS))
    whole = pl.DataFrame(lading.read_arrow(url, "scans", COLUMNS))
    assert frame.collect_schema() == whole.schema
    rows_read.clear()
    late = (pl.col("delay") > 60) & (pl.col("carrier") == "UA") & (pl.col("key").str.contains("k[1-5]"))
    assert frame.filter(late).select("offset", "ratio").collect().equals(whole.filter(late).select("offset", "ratio"))
    # the pattern is Polars' alone
    assert sum(rows_read) == whole.filter((pl.col("delay") > 60) & (pl.col("carrier") == "UA")).height
    assert frame.select(pl.len()).collect().item() == MESSAGES
    assert frame.head(5).collect().height == 5
    assert frame.head(5).filter(pl.col("delay") > -90).collect().equals(whole.head(5).filter(pl.col("delay") > -90))
    with pytest.raises(pl.exceptions.PolarsError):
        frame.select("no_such").collect()


def test_duckdb_pushes_projection_and_filters_down(url: str, rows_read: list[int]) -> None:
    columns = COLUMNS.replace('"odd name" bigint from size', "size bigint")
    flights = lading.scan(url, "scans", columns)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    duckdb_source.register(connection, "flights", flights)
    table = lading.read_arrow(url, "scans", columns)
    connection.register("whole", table)
    condition = "delay > 60 and carrier in ('UA', 'B6 and ''x''') and key is not null and amount % 2 = 0"
    query = 'select "offset", carrier from {} where ' + condition + " order by 1, 2"
    found = connection.execute(query.format("flights")).fetchall()
    assert found == connection.execute(query.format("whole")).fetchall()
    pushed = "delay > 60 and carrier in ('UA', 'B6 and ''x''')"
    assert sum(rows_read) == connection.execute(f"select count(*) from whole where {pushed}").fetchall()[0][0]
    relation = duckdb_source.to_relation(flights, connection)
    assert relation.filter("delay is null").aggregate("count(*)").fetchall() == [(35,)]
    rows_read.clear()
    assert connection.execute('select count(*) from flights where partition = 1 and "offset" >= 70').fetchall() == [
        (10,)
    ]
    assert sum(rows_read) == 10
    rows_read.clear()
    since = "timestamp >= '2026-01-01 00:03:00Z'"
    assert connection.execute(f"select count(*) from flights where {since}").fetchall() == [(60,)]
    assert sum(rows_read) == 60


COMPARED: dict[str, st.SearchStrategy[Any]] = {
    "partition": st.integers(-1, 4), "offset": st.integers(-1, 90), "delay": st.integers(-200, 200),
    "size": st.integers(10**12 - 1, 10**12 + 250), "amount": st.integers(-1, 300),
    "carrier": st.sampled_from(["UA", "A'A", "B6 and 'x'", 'q"', "", "\\", "A%", "é"]),
    "key": st.sampled_from(["k1", "k8", "K"]),
    "ratio": st.floats(-10, 30), "late": st.booleans(),
    "at": st.integers(-3, 70).map(lambda minute: BEGINNING + timedelta(minutes=minute, microseconds=minute % 2)),
    "timestamp": st.integers(-3, 250).map(lambda second: BEGINNING + timedelta(seconds=second)),
}  # fmt: skip
OPERATORS: dict[str, Any] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b, "<=": lambda a, b: a <= b,
}  # fmt: skip


@st.composite
def conditions(draw: Any, depth: int = 0) -> Any:
    """Return a function from ``col`` (of pyarrow or Polars) to a condition."""
    if depth < 3 and draw(st.booleans()):
        left, right, joined = draw(conditions(depth + 1)), draw(conditions(depth + 1)), draw(st.booleans())
        return lambda col: (left(col) & right(col)) if joined else (left(col) | right(col))
    if depth < 3 and draw(st.integers(0, 5)) == 0:
        inner = draw(conditions(depth + 1))
        return lambda col: ~inner(col)
    name = draw(st.sampled_from(sorted(COMPARED)))
    kind = draw(st.sampled_from(["compare", "compare", "null", "in"]))
    if kind == "null":
        return lambda col: col(name).is_null()
    if kind == "in" and name not in ("late", "ratio", "at", "timestamp", "amount"):
        values = draw(st.lists(COMPARED[name], min_size=1, max_size=4))
        return lambda col: col(name).is_in(values) if hasattr(col(name), "is_in") else col(name).isin(values)
    compare, value = draw(st.sampled_from(sorted(OPERATORS))), draw(COMPARED[name])
    if name == "late":
        compare = draw(st.sampled_from(["==", "!="]))
    return lambda col: OPERATORS[compare](col(name), value)


@pytest.fixture(scope="module")
def whole(url: str) -> pa.Table:
    return lading.read_arrow(url, "scans", COLUMNS.replace('"odd name" bigint from size', "size bigint"))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=conditions())
def test_pushed_conditions_lose_no_rows(condition: Any, url: str, whole: pa.Table) -> None:
    flights = lading.scan(url, "scans", COLUMNS.replace('"odd name" bigint from size', "size bigint"))
    expression = condition(pc.field)
    expected = whole.filter(expression).select(["partition", "offset"])
    found = TopicDataset(flights).scanner(columns=["partition", "offset"], filter=expression).to_table()
    assert found.cast(expected.schema).equals(expected), str(expression)
    frame = polars_source.to_lazy_frame(flights).filter(condition(pl.col)).select("partition", "offset").collect()
    assert frame.equals(pl.DataFrame(whole).filter(condition(pl.col)).select("partition", "offset"))
