"""Header functions, and the filter as a Column: equal to Arrow's evaluation over random headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lading.columns.contract import Projection
from lading.filter.filter import Filter
from lading.filter.parse import parse
from lading.model.errors import FilterError, SettingError
from lading.model.headers import Headers
from lading.model.state import State
from lading.model.values import u16
from tests.filter.oracle import Row
from tests.properties.test_filter import CONTRACT, batch_of, condition, row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
HEADERS = "array<struct<key string, kind tinyint, value binary>>"


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    rows = [
        (1, [("a", 2, b"UA"), ("n", 6, (7).to_bytes(4, "little")), ("a", 2, b"AA"), ("z", 1, None)]),
        (2, [("n", 1, b"12"), ("a", 1, b"\xff")]),
        (3, []),
    ]
    return spark.createDataFrame(rows, f"id int, headers {HEADERS}").coalesce(1)


def test_column_functions(frame: DataFrame) -> None:
    from lading.spark.functions import header_get, header_value, header_values

    found = frame.orderBy("id").select(
        header_value("headers", "a"),
        header_values("headers", "a"),
        header_get("headers", "n", "int"),
        header_get("headers", "a"),
        header_get("headers", "z"),
    )
    assert [tuple(one) for one in found.collect()] == [
        (b"AA", [b"UA", b"AA"], 7, "AA", None),
        (b"\xff", [b"\xff"], 12, None, None),
        (None, [], None, None, None),
    ]


def test_sql_functions(spark: SparkSession, frame: DataFrame) -> None:
    frame.createOrReplaceTempView("messages")
    found = spark.sql(
        "SELECT header_str(headers, 'a'), header_value(headers, 'a'), size(header_values(headers, 'a')), "
        "header_int(headers, 'n'), header_double(headers, 'n'), header_bigint(headers, 'none') "
        "FROM messages ORDER BY id"
    ).collect()
    assert [tuple(one) for one in found] == [
        ("AA", b"AA", 2, 7, 7.0, None), (None, b"\xff", 1, 12, 12.0, None), (None, None, 0, None, None, None),
    ]  # fmt: skip


def test_headers_and_states_are_printed_as_python_prints_them(spark: SparkSession) -> None:
    from lading.spark.functions import show_headers, state_word

    headers = Headers({"delay": u16(12), "late": True, "carrier": "UA", "none": None, "bytes": b"\xff"})
    # Spark takes plain integers alone, no enums
    entries = [(key, int(kind), value) for key, kind, value in headers]
    rows = [(1, 1, entries), (2, 30, []), (3, 7, None), (4, None, None)]
    frame = spark.createDataFrame(rows, f"id int, state tinyint, headers {HEADERS}")
    expected = [
        (["delay = uint16: 12", "late = bool: true", "carrier = string: UA", "none = raw: null", "bytes = raw: 0xff"],
         "available"),
        ([], "marked_for_deletion"), ([], None), ([], None),
    ]  # fmt: skip
    assert expected[0] == ([str(header) for header in headers], str(State.AVAILABLE))
    columns = frame.orderBy("id").select(show_headers("headers"), state_word("state"))
    assert [tuple(one) for one in columns.collect()] == expected
    frame.createOrReplaceTempView("printed")
    found = spark.sql("SELECT show_headers(headers), state_word(state) FROM printed ORDER BY id")
    assert [tuple(one) for one in found.collect()] == expected
    # Spark's Kafka connector has no kinds
    kafka = spark.createDataFrame([([("n", b"12")],)], "headers array<struct<key string, value binary>>")
    assert [tuple(one) for one in kafka.select(show_headers("headers")).collect()] == [(["n = raw: 12"],)]


def test_typed_frames_of_any_header_array(spark: SparkSession, frame: DataFrame) -> None:
    from lading.spark.functions import typed

    made = typed(frame, "id, a string, number bigint from n").orderBy("id")
    assert [tuple(one) for one in made.collect()] == [(1, "AA", 7), (2, None, 12), (3, None, None)]
    # Spark's Kafka connector has no kinds, and null where there are no headers
    rows = [(1, [("n", b"12")]), (2, None)]
    kafka = spark.createDataFrame(rows, "id int, headers array<struct<key string, value binary>>")
    assert [tuple(one) for one in typed(kafka, "n int").collect()] == [(12,), (None,)]
    with pytest.raises(SettingError, match="no column 'offset'"):
        typed(frame, "offset, a string")


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data(), st.lists(row(), min_size=20, max_size=30), st.sampled_from([None, CONTRACT]))
@pytest.mark.turns(2, part=0)
def test_the_filter_column_agrees_with_arrow(
    spark: SparkSession, full: bool, data: st.DataObject, rows: list[Row], contract: Projection | None
) -> None:
    from lading.spark.filter import column

    filters: list[Filter] = []
    for _ in range(200 if full else 25):
        try:
            filters.append(parse(data.draw(condition(contract is not None)), contract))
        except FilterError:
            continue
    batch = batch_of(rows)
    frame: Any = spark.createDataFrame(spark_table(batch)).coalesce(1)
    found = frame.select(*(column(one).alias(f"c{at}") for at, one in enumerate(filters))).toArrow()
    for at, one in enumerate(filters):
        assert found[f"c{at}"].to_pylist() == one.mask(batch).to_pylist(), one.text
    print(f"{len(filters)} filters over {len(rows)} messages: Spark and Arrow agree")


def spark_table(batch: pa.RecordBatch) -> pa.Table:
    """The batch in types that Spark takes."""
    wide = {"id": pa.binary(), "checksum": pa.int64()}
    columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.table({name: column.cast(wide.get(name, column.type)) for name, column in columns.items()})
