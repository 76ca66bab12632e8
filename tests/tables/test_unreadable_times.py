"""One message with a time outside the years 1 to 9999 stops no table, report, query or listing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from lading import Consumer, Producer, read_arrow, testing
from lading.model.errors import LocalError
from lading.pipeline.profile import read_profile
from lading.pipeline.profile_page import profile_page
from lading.tables.ingest import IngestReport, IngestSettings, ingest
from lading.tables.query import QuerySource, run_query
from lading.tables.scan import schema as table_schema_module

from .direct import DirectExecutor

NOW_US = 1_764_193_926_000_000
WRONG_US = NOW_US * 1000
"""Microseconds in a field of milliseconds: the year 57,875."""
LAST_US = 253_402_300_799_999_999
ROWS, WRONG_AT, LAST_AT = 8, 3, 5
COLUMNS = "offset, timestamp, carrier string"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("times") / "data") as running:
        with Producer(running.url) as producer:
            for row in range(ROWS):
                time_us = {WRONG_AT: WRONG_US, LAST_AT: LAST_US}.get(row, NOW_US)
                producer.send("flights", b"{}", headers={"carrier": "UA"}, timestamp=time_us)
        yield running


def copy(broker: testing.BrokerProcess, target: str, levels: tuple[str, ...] = (), **options: Any) -> IngestReport:
    return ingest(
        DirectExecutor(), broker.url, "flights", target, IngestSettings(columns=COLUMNS, partition_by=levels, **options)
    )


def read(form: str, table: Path) -> pa.Table:
    if form == "delta:":
        return DeltaTable(table).to_pyarrow_table()
    if form == "iceberg:":
        catalog = load_catalog("lading", type="sql", uri=f"sqlite:///{table}/_lading/catalog.db")
        return catalog.load_table(("lading", table.name)).scan().to_arrow()
    return ds.dataset(table).to_table()


@pytest.mark.turns(4)
@pytest.mark.parametrize("levels", [(), ("day(timestamp)",), ("year(timestamp)",), ("hour(timestamp)",)])
@pytest.mark.parametrize("form", ["", "delta:", "iceberg:"])
def test_tables_have_null_and_all_else(
    broker: testing.BrokerProcess, tmp_path: Path, form: str, levels: tuple[str, ...]
) -> None:
    table = tmp_path / "table"
    report = copy(broker, f"{form}{table}", levels)
    assert (report.rows, report.unreadable_times, report.bad_values) == (ROWS, 1, 0)
    assert copy(broker, f"{form}{table}", levels).rows == 0
    rows = {row["offset"]: row["timestamp"] for row in read(form, table).select(["offset", "timestamp"]).to_pylist()}
    assert [offset for offset, time in rows.items() if time is None] == [WRONG_AT]
    assert len(rows) == ROWS and rows[LAST_AT].year == 9999
    if levels and form != "iceberg:":
        names = {path.parent.name.partition("=")[2] for path in table.glob("timestamp_*/*.parquet")}
        assert {name[:4] for name in names} == {"2025", "9999", "__HI"}


@pytest.mark.parametrize("form", ["", "delta:", "iceberg:"])
def test_tables_of_earlier_releases_take_null_from_now_on(
    broker: testing.BrokerProcess, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say that the column is never null."""
    table = tmp_path / "table"
    with monkeypatch.context() as earlier:
        earlier.setattr(table_schema_module, "TIME_FIELDS", frozenset())
        assert copy(broker, f"{form}{table}", where=f"offset < {WRONG_AT}").rows == WRONG_AT
    if form == "delta:":
        assert not next(field for field in DeltaTable(table).schema().fields if field.name == "timestamp").nullable
    with Producer(broker.url) as producer:
        producer.send("flights", b"{}", headers={"carrier": "UA"}, timestamp=WRONG_US)
    before = read(form, table).num_rows
    assert copy(broker, f"{form}{table}", where=f"offset >= {ROWS}").rows > 0
    rows = read(form, table)
    assert rows.num_rows > before and rows.column("timestamp").null_count == rows.num_rows - before


def test_a_run_that_is_to_fail_names_message_and_number(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=rf"offset {WRONG_AT}: the timestamp of the message is {WRONG_US} µs"):
        copy(broker, str(tmp_path / "table"), on_bad_value="fail")


def test_arrow_has_null_and_messages_the_number(
    broker: testing.BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for columns in (None, "offset, timestamp"):
            rows = read_arrow(broker.url, "flights", columns, end=ROWS).select(["offset", "timestamp"])
            assert [row["offset"] for row in rows.to_pylist() if row["timestamp"] is None] == [WRONG_AT]
            assert rows.to_pandas()["timestamp"].isna().sum() == 1
    assert caplog.text.count("1 message has a time outside the years 1 to 9999") == 2
    times = [message.timestamp_us for message in Consumer(broker.url, "flights", end=ROWS, timeout_s=0)]
    assert (times[WRONG_AT], times[LAST_AT]) == (WRONG_US, LAST_US)
    (whole,) = list(Consumer(broker.url, "flights", end=ROWS, timeout_s=0).batches())
    assert whole.column("timestamp").cast(pa.int64()).to_pylist() == times


@pytest.mark.parametrize("where, expected", [
    ("timestamp IS NULL", [WRONG_AT]), ("timestamp > '9000-01-01'", [LAST_AT]),
])  # fmt: skip
def test_filters_see_what_the_column_shows(broker: testing.BrokerProcess, where: str, expected: list[int]) -> None:
    found = read_arrow(broker.url, "flights", "offset", where=f"{where} AND offset < {ROWS}")
    assert found.column("offset").to_pylist() == expected


def test_queries_and_profiles_pass_over_it(broker: testing.BrokerProcess) -> None:
    sql = f'select "offset", timestamp from flights where "offset" < {ROWS} order by 1'
    with run_query(sql, QuerySource(broker.url, {})) as result:
        rows = result.read_all().to_pylist()
    assert [row["offset"] for row in rows if row["timestamp"] is None] == [WRONG_AT]
    profile = read_profile(broker.url, "flights", limit=ROWS)
    document = profile.document("flights", broker.url)
    assert document["unreadable_times"] == 1
    assert sum(interval["messages"] for interval in document["intervals"]) == ROWS - 1
    assert json.dumps(document) and profile_page(document, "")


def test_duckdb_reads_a_delta_table_with_it(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    copy(broker, f"delta:{tmp_path / 'table'}", ("day(timestamp)",))
    flights = DeltaTable(tmp_path / "table").to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("flights", flights)
        days = connection.execute("select timestamp_day, count(*) from flights group by 1 order by 1").fetchall()
    assert [(None if day is None else day.year, count > 0) for day, count in days] == [
        (2025, True), (9999, True), (None, True),
    ]  # fmt: skip
    # other writers may still append to it
    write_deltalake(str(tmp_path / "table"), flights.to_table(), mode="append")
