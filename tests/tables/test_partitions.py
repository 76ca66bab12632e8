"""Partitioned tables of each form, read back by the readers of Polars, DuckDB, deltalake, pyiceberg and Arrow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from lading import Producer, testing
from lading.model.errors import LocalError, SettingError
from lading.tables.formats.partitions import Partitions, shorten_directory
from lading.tables.formats.registry import new_table
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.query import QuerySource, run_query

from .direct import DirectExecutor

LEVELS = ["day(timestamp)", "carrier"]
COLUMNS = "partition, offset, timestamp, carrier string, delay int, payload"
CARRIERS = ["UA", "A/ B%", None, "ü=1"]
Row = tuple[int, str | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("partitions") / "data") as running:
        with Producer(running.url) as producer:
            for row in range(40):
                carrier = CARRIERS[row % 4]
                headers: dict[str, Any] = {"delay": row} | ({} if carrier is None else {"carrier": carrier})
                producer.send("flights", b"{}", headers=headers)
        yield running


def run(broker: testing.BrokerProcess, target: str, levels: list[str], columns: str = COLUMNS) -> int:
    return ingest(
        DirectExecutor(),
        broker.url,
        "flights",
        target,
        IngestSettings(columns=columns, partition_by=levels, max_rows=15),
    ).rows


WANTED = {(row, CARRIERS[row % 4]) for row in range(40)}


def pairs(rows: Any) -> set[Row]:
    return set(zip(rows["delay"].to_pylist(), rows["carrier"].to_pylist(), strict=True))


def select(query: str, **tables: Any) -> list[Any]:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(query).fetchall()


def iceberg(table: Path) -> Table:
    catalog = load_catalog("lading", type="sql", uri=f"sqlite:///{table}/_lading/catalog.db")
    return catalog.load_table(("lading", table.name))


def test_parquet_by_day_and_carrier(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    table = tmp_path / "table"
    assert (run(broker, str(table), LEVELS), run(broker, str(table), LEVELS)) == (40, 0)
    today = datetime.now(UTC).date()
    names = {path.parent.name for path in table.glob("timestamp_day=*/carrier=*/*.parquet")}
    assert names == {"carrier=UA", "carrier=A%2F%20B%25", "carrier=__HIVE_DEFAULT_PARTITION__", "carrier=%C3%BC%3D1"}
    made: Any = ds.partitioning
    columns: list[Any] = [pa.field("timestamp_day", pa.date32()), pa.field("carrier", pa.string())]
    hive = made(pa.schema(columns), flavor="hive")
    read = ds.dataset(table, partitioning=hive).to_table()
    assert pairs(read) == WANTED and read.num_rows == 40
    by_polars = polars.scan_parquet(f"{table}/**/*.parquet", hive_partitioning=True).collect()
    assert pairs(by_polars.to_arrow()) == WANTED and by_polars.height == 40
    assert set(by_polars["timestamp_day"]) <= {today, today - timedelta(days=1)}
    query = f"SELECT delay, carrier FROM read_parquet('{table}/*/*/*.parquet', hive_partitioning = true)"
    assert set(select(query)) == WANTED


def test_delta_by_day_and_carrier(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    table = tmp_path / "table"
    assert (run(broker, f"delta:{table}", LEVELS), run(broker, f"delta:{table}", LEVELS)) == (40, 0)
    held = DeltaTable(table)
    assert held.metadata().partition_columns == ["timestamp_day", "carrier"]
    assert pairs(held.to_pyarrow_table()) == WANTED
    assert pairs(polars.read_delta(str(table)).to_arrow()) == WANTED
    chosen = polars.scan_delta(str(table)).filter(polars.col("carrier") == "A/ B%").collect()
    assert sorted(chosen["delay"]) == list(range(1, 40, 4))
    assert len(held.file_uris([("carrier", "=", "UA")])) == 3
    assert set(select("SELECT delay, carrier FROM read", read=held.to_pyarrow_dataset())) == WANTED
    held.optimize.compact()
    assert pairs(DeltaTable(table).to_pyarrow_table()) == WANTED


def test_iceberg_by_every_transform(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    levels = [
        "month(timestamp)",
        "hour(timestamp)",
        "bucket(4, carrier)",
        "truncate(1, carrier)",
        "truncate(10, delay)",
    ]
    for at, some in enumerate((LEVELS, levels)):
        table = tmp_path / f"table{at}"
        assert (run(broker, f"iceberg:{table}", some), run(broker, f"iceberg:{table}", some)) == (40, 0)
        held = iceberg(table)
        assert pairs(held.scan().to_arrow()) == WANTED
        chosen = held.scan(row_filter="carrier = 'A/ B%'")
        assert pairs(chosen.to_arrow()) == {pair for pair in WANTED if pair[1] == "A/ B%"}
        assert pairs(held.scan(row_filter="carrier is null").to_arrow()) == {p for p in WANTED if p[1] is None}
        assert pairs(held.scan(row_filter="delay = 17").to_arrow()) == {(17, CARRIERS[1])}
        assert pairs(polars.scan_iceberg(held).collect().to_arrow()) == WANTED
        # what readers skip is what the partitions say: a file of one carrier, and of one ten
        assert len(list(chosen.plan_files())) < len(list(held.scan().plan_files()))


@pytest.mark.parametrize("form", ["", "delta:", "iceberg:"])
def test_a_table_keeps_its_partitions(broker: testing.BrokerProcess, tmp_path: Path, form: str) -> None:
    target = f"{form}{tmp_path / 'table'}"
    run(broker, target, ["partition"])
    with pytest.raises(LocalError, match=r"is partitioned by partition, and now it would be without partitions"):
        run(broker, target, [])
    with pytest.raises(LocalError, match=r"now it would be partitioned by delay"):
        run(broker, target, ["delay"])


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        (["carier"], r"no column 'carier' \(did you mean 'carrier'\?\)"),
        (["days(timestamp)"], "is none of .*did you mean 'day'"),
        (["day(carrier)"], "takes a timestamp, and 'carrier' is string"),
        (["timestamp"], r"name a unit, such as day\("),
        (["payload"], "cannot be a partition, as 'payload' is binary"),
        (["bucket(carrier)"], r"write it as bucket\(16, carrier\)"),
        (["carrier", "carrier"], "named twice"),
        (["day(timestamp"], "write them as in partition_by"),
        (["bucket(4, carrier)"], "takes an Iceberg table, and this is parquet:"),
    ],
)
def test_what_is_no_partition(broker: testing.BrokerProcess, tmp_path: Path, levels: list[str], told: str) -> None:
    with pytest.raises(SettingError, match=told):
        run(broker, str(tmp_path / "table"), levels)


def test_too_many_partitions(broker: testing.BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading.tables.commit.staging.PARTITIONS_MAX", 5)
    with pytest.raises(LocalError, match=re.escape("partition by fewer values, such as day instead of hour")):
        run(broker, str(tmp_path / "table"), ["delay"])
    assert not list((tmp_path / "table" / "_lading" / "staged").iterdir())


def test_units_of_time() -> None:
    """Expected values from the specification of Iceberg's transforms (Appendix B: -1 is before 1970)."""
    stamps = pa.array([-1, 0, 1510871468_000_000], pa.timestamp("us", tz="UTC"))
    for word, texts, numbers in (
        ("year", ["1969", "1970", "2017"], [-1, 0, 47]),
        ("month", ["1969-12", "1970-01", "2017-11"], [-1, 0, 574]),
        ("day", ["1969-12-31", "1970-01-01", "2017-11-16"], [-1, 0, 17486]),
        ("hour", ["1969-12-31-23", "1970-01-01-00", "2017-11-16-22"], [-1, 0, 419686]),
    ):
        [field] = Partitions.parse([f"{word}(timestamp)"]).fields
        assert field.texts(stamps).to_pylist() == texts
        assert [field.number(text, stamps.type) for text in texts] == numbers
    assert new_table("parquet", Path("/nowhere")).partitions == Partitions()


LONG = "\u6771\u4eac" * 20
"""Forty characters of three bytes, nine bytes each in a path."""
WORD = "__HIVE_DEFAULT_PARTITION__"
ODD_VALUES = ["Oslo", LONG, LONG + "2", WORD, "", "%5F", "../x", None]


@pytest.fixture(scope="module")
def odd(broker: testing.BrokerProcess) -> testing.BrokerProcess:
    with Producer(broker.url) as producer:
        for value in ODD_VALUES:
            producer.send("odd", b"{}", headers={} if value is None else {"city": value})
    return broker


def copy_odd(odd: testing.BrokerProcess, target: str, **options: Any) -> Any:
    return ingest(
        DirectExecutor(),
        odd.url,
        "odd",
        target,
        IngestSettings(columns="offset, city string", partition_by=["city"], **options),
    )


def test_logs_keep_values_that_no_directory_can_have(odd: testing.BrokerProcess, tmp_path: Path) -> None:
    delta, ice = tmp_path / "delta", tmp_path / "ice"
    for target in (f"delta:{delta}", f"iceberg:{ice}"):
        report = copy_odd(odd, target)
        assert (report.rows, report.long_values) == (len(ODD_VALUES), 0)
        assert copy_odd(odd, target).rows == 0
    # an empty text is null in every Delta table, by its protocol
    expected = {row: value or None for row, value in enumerate(ODD_VALUES)}
    read = DeltaTable(delta).to_pyarrow_table()
    assert dict(zip(read["offset"].to_pylist(), read["city"].to_pylist(), strict=True)) == expected
    read = iceberg(ice).scan().to_arrow()
    assert dict(zip(read["offset"].to_pylist(), read["city"].to_pylist(), strict=True)) == dict(enumerate(ODD_VALUES))
    for table in (delta, ice):
        names = [path.name for path in table.iterdir() if path.name.startswith("city")]
        assert max(map(len, names)) <= 255 and sum(len(name) == len("city=") + 32 for name in names) == 2


def test_columns_with_an_underscore_in_front_are_read_from_their_directories(
    odd: testing.BrokerProcess, tmp_path: Path
) -> None:
    """Arrow passes over directories whose name begins with it, and the table had no rows."""
    with Producer(odd.url) as producer:
        producer.send("underscored", b"{}", headers={"_tenant": "a"})
        producer.send("underscored", b"{}")
    settings = IngestSettings(columns="offset, _tenant string", partition_by=["_tenant"])
    ingest(DirectExecutor(), odd.url, "underscored", str(tmp_path / "table"), settings)
    sql = 'select "offset", _tenant from t order by 1'
    assert read_by_sql(sql, odd.url, tmp_path / "table") == [(0, "a"), (1, None)]


def read_by_sql(sql: str, url: str, table: Path) -> list[tuple[Any, ...]]:
    with run_query(sql, QuerySource(url, tables={"t": f"parquet:{table}"})) as reader:
        return list(zip(*(column.to_pylist() for column in reader.read_all().columns), strict=True))


def test_directories_have_null_for_values_that_no_name_can_hold(odd: testing.BrokerProcess, tmp_path: Path) -> None:
    table = tmp_path / "table"
    report = copy_odd(odd, str(table))
    assert (report.rows, report.long_values) == (len(ODD_VALUES), 2)
    query = f"SELECT \"offset\", city FROM read_parquet('{table}/*/*.parquet', hive_partitioning = true) ORDER BY 1"
    expected = [None if value in (LONG, LONG + "2") else value for value in ODD_VALUES]
    # DuckDB and Spark take the word for null before they undo escapes; Arrow and Polars after it
    assert select(query) == list(enumerate(expected))
    assert read_by_sql('select "offset", city from t order by 1', odd.url, table) == list(enumerate(expected))
    with pytest.raises(LocalError, match=r"partition 0, offset 1: a value by which the table is divided"):
        copy_odd(odd, str(tmp_path / "other"), on_bad_value="fail")


def test_deep_partitions_stay_below_the_bound_of_a_path() -> None:
    name = "/".join(f"level{number}={'v' * 200}" for number in range(9))
    short = shorten_directory(name)
    assert len(short) <= 600 and short.count("/") == 8 and shorten_directory(name) == short
