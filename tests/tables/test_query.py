"""SQL over topics and tables: headers as columns, only what is named is read, topics are scanned as often as needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from lading import Producer, i16, read_arrow, read_batches, testing
from lading.model.errors import LocalError
from lading.tables.query import QuerySource, run_query

pytest.importorskip("duckdb")
MESSAGES = 300


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            for number in range(MESSAGES):
                headers = [("carrier", ("UA", "AA", "B6")[number % 3]), ("delay", i16(number - 100))]
                producer.send("air.flights", b"%d" % number, key=b"k%d" % (number % 7), headers=headers)
        yield broker.url


def query(sql: str, url: str, **options: Any) -> list[dict[str, Any]]:
    with run_query(sql, QuerySource(url, options.pop("tables", {}), **options)) as result:
        return result.read_all().to_pylist()


def test_headers_are_columns(url: str) -> None:
    rows = query('select carrier, count(*) as n, min(delay) as least from "air.flights" group by 1 order by 1', url)
    assert rows == [
        {"carrier": "AA", "n": 100, "least": -99},
        {"carrier": "B6", "n": 100, "least": -98},
        {"carrier": "UA", "n": 100, "least": -100},
    ]


def test_a_topic_is_scanned_twice(url: str) -> None:
    joined = 'select count(*) as n from "air.flights" a join "air.flights" b using ("partition", "offset")'
    assert query(joined, url) == [{"n": MESSAGES}]
    assert query('select count(*) as n from "air.flights"', url) == [{"n": MESSAGES}]


def test_a_star_has_every_column(url: str) -> None:
    (row,) = query('select * from "air.flights" where "offset" = 5', url)
    assert list(row) == ["partition", "offset", "timestamp", "key", "carrier", "delay", "payload"]
    assert (row["key"], row["carrier"], row["delay"], row["payload"]) == (b"k5", "B6", -95, b"5")


def test_tables_and_topics_together(url: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"carrier": ["UA", "AA"], "name": ["United", "American"]}), tmp_path / "names.parquet")
    sql = 'select name, count(*) as n from "air.flights" join names using (carrier) group by 1 order by 1'
    rows = query(sql, url, tables={"names": str(tmp_path)})
    assert rows == [{"name": "American", "n": 100}, {"name": "United", "n": 100}]


def test_partitions_are_columns(url: str, tmp_path: Path) -> None:
    rows = pa.table({"carrier": ["UA", None], "year": [2013, 2014], "name": ["United", "none"]})
    pq.write_to_dataset(rows, tmp_path, partition_cols=["carrier", "year"])
    found = query("select carrier, year, name from t order by year", url, tables={"t": str(tmp_path)})
    assert found == rows.to_pylist()


def test_a_delta_table_is_read(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(tmp_path / "names", pa.table({"carrier": ["UA", "AA"], "name": ["United", "American"]}))
    tables = {"names": f"delta:{tmp_path / 'names'}"}
    assert query("select name from names where carrier = 'AA'", url, tables=tables) == [{"name": "American"}]
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(
        LocalError,
        match=r"reading it needs the package deltalake.*; in the clone of Lading run: .* '\.\[delta\]'",
    ):
        query("select name from names", url, tables=tables)


def test_an_iceberg_table_is_read_by_its_directory(url: str, tmp_path: Path) -> None:
    place = tmp_path / "names"
    place.mkdir()
    catalog = load_catalog("names", type="sql", uri=f"sqlite:///{tmp_path}/names.db")
    catalog.create_namespace("n")
    rows = pa.table({"carrier": ["UA", "AA"], "name": ["United", "American"]})
    table = catalog.create_table("n.names", rows.schema, f"file://{place}")
    table.append(rows)
    tables = {"names": f"iceberg:{place}"}
    with pytest.raises(LocalError, match=r"version-hint.text, which names its newest metadata.* do not exist; name"):
        query("select count(*) as n from names", url, tables=tables)
    version = Path(table.metadata_location).name.removesuffix(".metadata.json")
    (place / "metadata" / "version-hint.text").write_text(version)
    assert query("select count(*) as n from names a join names b using (name)", url, tables=tables) == [{"n": 2}]
    sql = 'select name, count(*) as n from "air.flights" join names using (carrier) group by 1 order by 1'
    assert query(sql, url, tables=tables) == [{"name": "American", "n": 100}, {"name": "United", "n": 100}]


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("select 1; select 2", "2 statements"),
        ("select * frm x", "query: Parser Error"),
        ('select dely from "air.flights"', 'query: Binder Error.*\\nCandidate bindings: "delay"'),
        (
            "select payload->>'order' as x from \"air.flights\"",
            r"payload is bytes, .*; write decode\(payload\) ->> 'NAME'",
        ),
        ("select json_extract(t.key, '$.a') from \"air.flights\" t", r"key is bytes, .*; write decode\(key\)"),
        ('select value from "air.flights"', "query: Binder Error.*\\n.*\\nDid you mean 'payload'?"),
        (
            'select key from "air.flights" order by offset limit 1',
            '(?s)query: Parser Error.*in double quotes, "offset"',
        ),
        ('select * from "air.flight"', "did you mean 'air.flights'"),
        ("select * from nowhere", "topic 'nowhere' does not exist"),
    ],
)
def test_refusals(sql: str, sentence: str, url: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        query(sql, url)


def test_a_reader_gives_what_read_arrow_gives(url: str) -> None:
    columns = "offset, carrier string, delay int"
    whole = read_arrow(url, "air.flights", columns)
    with read_batches(url, "air.flights", columns) as reader:
        assert reader.schema == whole.schema
        assert pa.Table.from_batches(list(reader), reader.schema) == whole


def test_json_in_payloads_is_read_as_the_error_says(url: str) -> None:
    rows = query("""select decode(payload) ->> '$' as n from "air.flights" where "offset" = 5""", url)
    assert rows == [{"n": "5"}]
