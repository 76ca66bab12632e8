"""SQL over topics and tables: headers as columns, only what is named is read, topics are scanned as often as needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from lading import Producer, i16, read_arrow, read_batches, testing
from lading.model.errors import LocalError
from lading.tables import query as query_module
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
            for number in range(20):
                order = {"id": f"A-{number}", "amount": number * 1.25, "order": {"unit price": number, "tags": ["x"]}}
                order |= {"at": "2024-05-01T12:30:00Z", "mixed": "a" if number % 2 else 1}
                producer.send("orders", json.dumps(order).encode(), headers={"tenant": "acme" if number % 2 else "b"})
            for number in range(12):
                producer.send("late", b'{"amount": %s}' % (b"1.25" if number < 11 else b"1.125"))
            producer.send("orders", b'{"id": ', headers={"tenant": "acme"})
            producer.send("orders", None, headers={"tenant": "acme"})
        yield broker.url


MEMBERS = [
    ("select sum(payload.amount) as x from orders", [Decimal("237.50")]),
    ('select payload.order."unit price" as x from orders where payload.amount > 22', [18, 19]),
    ('select o.payload.id as x from orders o join orders p using ("offset") where p.payload.amount = 2.5', ["A-2"]),
    ("select payload->>'id' as x from orders where payload->>'id' = 'A-3' and tenant = 'acme'", ["A-3"]),
    ("select json_extract_string(payload, '$.order.tags[0]') as x from orders limit 1", ["x"]),
    ("select (payload::json)->>'id' as x from orders limit 1", ["A-0"]),
    ("select payload.order.tags[1] as x from orders limit 1", ["x"]),
    ("select payload.order.tags as x from orders limit 1", [["x"]]),
    ("select extract(year from payload.at) as x from orders limit 1", [2024]),
    ("select distinct payload.mixed as x from orders order by 1", ["1", "a", None]),
    (
        "with o as (select payload, tenant from orders) select o.tenant as x from o where payload->>'id' = 'A-1'",
        ["acme"],
    ),
    ("with o as (select payload.id as id from orders) select id as x from o where id = 'A-1'", ["A-1"]),
    ("with o as (select '{\"a\": 5}' as payload) select payload->>'a' as x from o", ["5"]),
    ("select count(*) as x from orders group by payload.id is null order by 1", [2, 20]),
    ("select tenant as x from orders order by payload.amount desc nulls last limit 1", ["acme"]),
    ('select x from (select payload."order"."unit price" as x from orders) where x < 2', [0, 1]),
    ("select n.payload.a as x from (select {'a': 1} as payload) n", [1]),
]


@pytest.mark.parametrize(("sql", "values"), MEMBERS)
def test_members_of_payloads_are_typed(sql: str, values: list[Any], url: str) -> None:
    assert [row["x"] for row in query(sql, url)] == values


def test_members_are_read_beside_a_star_and_what_cannot_be_read_is_counted(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = query("select *, payload->>'id' as id, payload.amount from orders", url)
    assert list(rows[0]) == ["partition", "offset", "timestamp", "key", "tenant", "payload", "id", "payload.amount"]
    assert [row["id"] for row in rows[-3:]] == ["A-19", None, None]
    monkeypatch.setattr(query_module, "SAMPLE_MESSAGES", 10)
    assert query("select sum(payload.amount) as x from late", url) == [{"x": Decimal("13.75")}]
    assert [record.getMessage() for record in caplog.records] == [
        "payloads that are not JSON objects, and have no members: 1",
        "values of payload.amount that are not decimal(10,2), as those of the first messages are, and are null: 1; "
        "read them by payload ->> '…', or declare a type by --columns 'NAME TYPE from payload.amount'",
    ]


def test_members_by_declared_columns(url: str) -> None:
    columns = "amount double from payload, payload.order.tags array<string>, id2 string from payload.id"
    sql = "select amount, payload.order.tags, o.payload.id as id from orders o where amount = 5"
    assert query(sql, url, columns=columns) == [{"amount": 5.0, "payload.order.tags": ["x"], "id": "A-4"}]
    with pytest.raises(LocalError, match=r"payload\.at: the payload is not among --columns as bytes; add `payload`"):
        query("select payload.at from orders", url, columns=columns)
    assert query("select payload->>'id' as x from orders limit 1", url, columns="payload string") == [{"x": "A-0"}]
    assert query("select payload.id as x from orders limit 1", url, columns="payload, offset") == [{"x": "A-0"}]


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
            'select payload.x from "air.flights"',
            "payload.x: topic 'air.flights' has no JSON objects as payloads; 300 of",
        ),
        ("select payload.amuont from orders", r"none of the first 20 payloads.* \(did you mean 'payload.amount'\?\)"),
        (
            "select payload.amount from orders, lookup",
            "payload may be of a topic or of a table; .*such as orders.payload",
        ),
        ("select json_extract(t.key, '$.a') from \"air.flights\" t", r"key is bytes, .*; write decode\(key\)"),
        ('select value from "air.flights"', "query: Binder Error.*\\n.*\\nDid you mean 'payload'?"),
        (
            'select key from "air.flights" order by offset limit 1',
            '(?s)query: Parser Error.*in double quotes, "offset"',
        ),
        ('select offset, key from "air.flights"', '(?s)query: Parser Error.*in double quotes, "offset"'),
        ('select key, offset from "air.flights"', '(?s)query: Parser Error.*in double quotes, "offset"'),
        ('select * from "air.flight"', "did you mean 'air.flights'"),
        ("select * from nowhere", "topic 'nowhere' does not exist"),
    ],
)
def test_refusals(sql: str, sentence: str, url: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        query(sql, url, tables={"lookup": "./lookup"} if "lookup" in sql else {})


def test_names_that_differ_in_case_are_no_silent_twins(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """DuckDB folds the case of names, in quotes too: the column of one header was read for both, and so was a topic."""
    with Producer(url) as producer:
        for topic in ("Cased", "CASED"):
            producer.send(topic, topic.encode(), headers=[("tenant", "a"), ("Tenant", "b"), ("Offset", "c")])
    source = QuerySource(url, {})
    with run_query('select tenant, "Tenant" as other from "Cased"', source) as result:
        assert result.read_all().to_pylist() == [{"tenant": "a", "other": "a"}]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "'Tenant'" in said and said.endswith("whose column is header_Tenant")
    caplog.clear()
    with run_query('select header_Tenant as t, "header_Offset" as o, tenant, "offset" from "Cased"', source) as result:
        assert result.read_all().to_pylist() == [{"t": "b", "o": "c", "tenant": "a", "offset": 0}]
    assert not caplog.records
    for sql in ('select * from "Cased" a, "CASED" b', 'select 1 from "CASED" union select "offset" from cased'):
        with (
            pytest.raises(LocalError, match=r"'CASED' and '[Cc]ased' differ only in case.* one at a time"),
            run_query(sql, source),
        ):
            pass


def test_a_directory_without_data_files_is_named(url: str, tmp_path: Path) -> None:
    """As after a run that ended before its first commit."""
    (tmp_path / "_lading").mkdir()
    with (
        pytest.raises(LocalError, match=r"table .*: there are no Parquet files below this name"),
        run_query("select * from t", QuerySource(url, {"t": f"parquet:{tmp_path}"})),
    ):
        pass


def test_a_reader_gives_what_read_arrow_gives(url: str) -> None:
    columns = "offset, carrier string, delay int"
    whole = read_arrow(url, "air.flights", columns)
    with read_batches(url, "air.flights", columns) as reader:
        assert reader.schema == whole.schema
        assert pa.Table.from_batches(list(reader), reader.schema) == whole


def test_json_in_payloads_is_read_as_the_error_says(url: str) -> None:
    rows = query("""select decode(payload) ->> '$' as n from "air.flights" where "offset" = 5""", url)
    assert rows == [{"n": "5"}]
