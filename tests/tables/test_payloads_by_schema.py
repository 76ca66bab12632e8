"""Members of payloads with a schema on the command line and in SQL: by a file, and by the ids in a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lading import Consumer, Producer, read_arrow, testing, write_arrow
from lading.cli.main import main
from lading.model.errors import LocalError
from lading.tables.query import QuerySource, run_query

PROTO = """syntax = "proto3"; package shop;
message Order { string order_id = 1; In in = 2; } message In { int64 amount = 1; }
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("by-schema") / "data") as running:
        table = pa.table({"order_id": ["a", "b", "c"], "n": pa.array([5, 0, 7], pa.int64()), "tenant": ["x", "x", "y"]})
        write_arrow(
            table, running.url, "orders", headers=["tenant"], payload_format="protobuf", schema=PROTO, message="Order",
            registry=f"http://{running.endpoints['schema_registry']}",
            payload_columns={"order_id": "order_id", "in.amount": "n"},
        )  # fmt: skip
        with Producer(running.url) as producer:
            for text in (b"one", b"two", b"\xff"):
                producer.send("texts", text, partition=0)
        yield running


def test_messages_are_polled_by_members(
    broker: testing.BrokerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    registry = f"http://{broker.endpoints['schema_registry']}"
    file = tmp_path / "order.proto"
    file.write_text(PROTO)
    by_file = ["--payload-format", "protobuf", "--payload-schema", str(file), "--payload-message", "Order"]
    for words in (["--registry", registry], by_file):
        with pytest.raises(SystemExit) as left:
            main(["message", "poll", "orders", "--where", "payload.in.amount > 1", "--format",
                  "%p{order_id} %p{in.amount} %h{tenant}", "--from", broker.url, *words])  # fmt: skip
        assert not left.value.code
        assert sorted(capsys.readouterr().out.split("\n")) == ["", "a 5 x", "c 7 y"]


def test_conditions_on_texts_are_not_taken_for_json(broker: testing.BrokerProcess) -> None:
    text = {"format": "text"}
    kept = read_arrow(broker.url, "texts", "offset", where="payload.text >= 'two'", payload=text)
    assert kept.to_pylist() == [{"offset": 1}]
    with Consumer(broker.url, "texts", where="payload.text = 'one'", payload=text, timeout_s=0) as consumer:
        assert [message.payload for message in consumer] == [b"one"]


def test_sql_reads_members_by_schema(broker: testing.BrokerProcess) -> None:
    registry = f"http://{broker.endpoints['schema_registry']}"
    source = QuerySource(broker.url, {}, payload={"format": "schema", "registry": registry})

    def ask(sql: str, source: QuerySource = source) -> list[dict[str, object]]:
        with run_query(sql, source) as result:
            return result.read_all().to_pylist()

    assert ask("select tenant, sum(payload.in.amount)::int as s from orders group by 1 order by 1") == [
        {"tenant": "x", "s": 5}, {"tenant": "y", "s": 7},
    ]  # fmt: skip
    assert ask("select o.payload.order_id from orders o where payload.in.amount = 0") == [{"payload.order_id": "b"}]
    texts = QuerySource(broker.url, {}, payload={"format": "text"})
    assert ask("select payload.text from texts where payload.text > 'p'", texts) == [{"payload.text": "two"}]
    for sql, sentence in (
        (
            "select payload.order_i from orders",
            "have no payload.order_i (did you mean 'payload.order_id'?)",
        ),
        ("select payload->>'order_id' from orders", "payload is not JSON but schema, which SQL cannot open"),
    ):
        with pytest.raises(LocalError) as raised:
            ask(sql)
        assert sentence in str(raised.value), json.dumps(str(raised.value))
