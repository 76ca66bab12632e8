"""``insert into TOPIC select …``: rows become messages with typed headers, together or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lading import Admin, Consumer, Producer, i16, read_arrow, testing
from lading.model.errors import LadingError, LocalError
from lading.tables.insert import InsertStatement, parse_insert, run_insert
from lading.tables.query import QuerySource
from lading.transports.open import open_transport

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with testing.broker() as running:
        with Admin(running.url) as admin:
            for name in ("inserts", "inserts.copies", "inserts_narrow"):
                admin.create_topic(name, partitions=2)
        with Producer(running.url) as producer:
            for number in range(200):
                headers = [("carrier", ("UA", "AA")[number % 2]), ("delay", i16(number - 50))]
                producer.send("inserts", json.dumps({"n": number}).encode(), key=b"k%d" % number, headers=headers)
        yield running


def insert(broker: Any, sql: str, *, target: str | None = None, dry_run: bool = False) -> Any:
    statement = parse_insert(sql)
    assert statement is not None
    transport = open_transport(target or broker.url)
    try:
        return run_insert(statement, QuerySource(broker.url, {}), transport, dry_run=dry_run)
    finally:
        transport.close()


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("select 1", None),
        ("insert into t select 1 as a", InsertStatement("t", None, "select 1 as a")),
        ('INSERT INTO "a-b" (x, "y z") values (1, 2)', InsertStatement("a-b", ("x", "y z"), "values (1, 2)")),
        ("insert into a.b from c", InsertStatement("a.b", None, "from c")),
        ("insert into t (select 1 as a)", InsertStatement("t", None, "(select 1 as a)")),
        ("insert into t with x as (select 1) select * from x",
         InsertStatement("t", None, "with x as (select 1) select * from x")),
    ],
)  # fmt: skip
def test_inserts_have_a_topic_columns_and_a_query(sql: str, statement: InsertStatement | None) -> None:
    assert parse_insert(sql) == statement


@pytest.mark.parametrize(
    "sql", ["insert t select 1", "insert into", "insert into t", "insert or replace into t select 1"]
)
def test_another_form_of_an_insert_is_refused(sql: str) -> None:
    with pytest.raises(LocalError, match="write insert into TOPIC select"):
        parse_insert(sql)


def test_a_name_of_two_words_is_written_in_quotes(broker: Any) -> None:
    with pytest.raises(LocalError, match=r'insert into my topic: .*; write insert into "my topic" select'):
        parse_insert("insert into my topic select 1 as a")
    assert parse_insert('insert into "my topic" select 1 as a') == InsertStatement("my topic", None, "select 1 as a")


@pytest.mark.parametrize("protocol", ["admin", "iggy_tcp", "kafka"])
def test_a_missing_topic_is_named_with_what_to_do(broker: Any, protocol: str) -> None:
    scheme = {"admin": "lading", "iggy_tcp": "iggy", "kafka": "kafka"}[protocol]
    url = f"{scheme}://{broker.endpoints[protocol]}"
    with pytest.raises(LocalError, match=r"'insert' does not exist .*; to create it: lading topic create insert"):
        insert(broker, "insert into insert select 1 as a", target=url)


def test_columns_become_headers_by_name_and_type_and_fields(broker: Any) -> None:
    columns = (
        "key, carrier, delay, delay / 2.0 as half, delay > 0 as late, payload, timestamp, partition, null::blob as x"
    )
    query = f"insert into inserts.copies select {columns} from inserts where delay >= 100"
    tried = insert(broker, query, dry_run=True)
    assert (tried.messages, tried.is_atomic, tried.left_out) == (50, True, ("partition",))
    assert read_arrow(broker.url, "inserts.copies").num_rows == 0
    done = insert(broker, query)
    assert done == tried
    assert done.headers == {"carrier": "string", "delay": "int16", "half": "float64", "late": "bool", "x": "raw"}
    with Consumer(broker.url, "inserts.copies", end="latest") as consumer:
        messages = {message.key: message for message in consumer}
    with Consumer(broker.url, "inserts", where="delay >= 100", end="latest") as consumer:
        for before in consumer:
            after = messages.pop(before.key)
            assert (after.payload, after.timestamp) == (before.payload, before.timestamp)
            delay: Any = before.headers["delay"]
            assert after.headers["delay"] == delay
            assert after.headers["half"] == delay / 2
    assert not messages


def test_names_of_columns_are_those_of_the_statement(broker: Any) -> None:
    done = insert(broker, "insert into inserts.copies (key, \"trace-id\") select 'a', 5", dry_run=True)
    assert done.headers == {"trace-id": "int32"}
    with pytest.raises(LocalError, match="3 columns are named, and the query has 2"):
        insert(broker, "insert into inserts (a, b, c) select 1, 2")


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("select {'a': 1} as s", "column 's' is struct.*Cast it"),
        ("select 1 as a, 2 as a", "two columns are called 'a'"),
        ("select 1 as id", "'id' is what the target gives a message"),
        ("select 0 as partition", "no column becomes a part of a message"),
        ("select 'x' as timestamp", "rows 1 to 1: column 'timestamp' is string"),
    ],
)
def test_columns_that_no_message_can_have_are_refused_by_name(broker: Any, select: str, problem: str) -> None:
    with pytest.raises(LocalError, match=f"insert into 'inserts'.*{problem}"):
        insert(broker, f"insert into inserts {select}")


def test_a_refused_message_is_named_and_nothing_is_sent(broker: Any) -> None:
    query = (
        "insert into inserts_narrow select 'k' || i as key, repeat('x', case when i = 15000 then 300000000 else 3 end) "
        "as payload from range(20000) t(i)"
    )
    with pytest.raises(LadingError, match=r"insert into 'inserts_narrow', partition [01], row"):
        insert(broker, query)
    assert read_arrow(broker.url, "inserts_narrow").num_rows == 0


def test_an_unknown_topic_is_an_error(broker: Any) -> None:
    with pytest.raises(LadingError, match="inserts_missing"):
        insert(broker, "insert into inserts_missing select 1 as a")


@pytest.mark.parametrize(("protocol", "endpoint"), [("kafka", "kafka"), ("iggy", "iggy_tcp")])
def test_inserts_reach_other_protocols(broker: Any, protocol: str, endpoint: str) -> None:
    topic = f"inserts_{protocol}"
    with Admin(broker.url) as admin:
        admin.create_topic(topic, partitions=2)
    target = f"{protocol}://{broker.endpoints[endpoint]}"
    done = insert(broker, f"insert into {topic} select key, carrier, delay from inserts", target=target)
    assert (done.messages, done.is_atomic) == (200, protocol == "kafka")
    found = read_arrow(broker.url, topic, "key string, carrier string, delay int")
    expected = read_arrow(broker.url, "inserts", "key string, carrier string, delay int")
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == sorted(
        map(tuple, (row.values() for row in expected.to_pylist()))
    )
