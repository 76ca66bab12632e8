"""``key string`` and ``payload string`` are text; what is not UTF-8 is null and counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lading import Consumer, Producer, read_arrow, read_batches, testing
from lading.columns.contract import parse_columns
from lading.columns.statistics import HeaderStatistics
from lading.model.errors import LocalError, SettingError
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.query import QuerySource, run_query
from lading.tables.scan.schema import table_schema

from .direct import DirectExecutor

PAYLOADS = [b'{"n": "1"}', b"\xff\xfe", b"citt\xc3\xa0", b"", b"\xed\xa0\x80"]
"""The second one, and the last, a surrogate, are not UTF-8."""
TEXTS = ['{"n": "1"}', None, "città", "", None]
KEYS = [b"a", None, b"\xc0\x80", b"b", b"a"]
KEY_TEXTS = ["a", None, None, "b", "a"]
COLUMNS = "offset, key string, delay int, payload text"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("texts") / "data") as running:
        with Producer(running.url) as producer:
            for row, (key, payload) in enumerate(zip(KEYS, PAYLOADS, strict=True)):
                producer.send("orders", payload, key=key, partition=0, headers={"delay": str(row), "payload.n": "7"})
        yield running


def columns_of(table: pa.Table) -> tuple[Any, Any]:
    assert table.schema.field("payload").type == table.schema.field("key").type == pa.string()
    return table.column("key").to_pylist(), table.column("payload").to_pylist()


def test_readers_have_texts(broker: testing.BrokerProcess) -> None:
    expected = (KEY_TEXTS, TEXTS)
    assert columns_of(read_arrow(broker.url, "orders", COLUMNS)) == expected
    assert columns_of(read_arrow(broker.url, "orders", COLUMNS, where="offset >= 0")) == expected
    assert columns_of(pa.Table.from_batches(list(read_batches(broker.url, "orders", COLUMNS)))) == expected
    assert columns_of(pa.Table.from_batches(list(Consumer(broker.url, "orders", timeout_s=0).batches(COLUMNS)))) == (
        expected
    )


def test_conditions_see_the_bytes(broker: testing.BrokerProcess) -> None:
    found = read_arrow(broker.url, "orders", "offset, payload string", where="payload = 'città'")
    assert found.to_pylist() == [{"offset": 2, "payload": "città"}]


@pytest.mark.parametrize("where", [None, "delay >= 0"])
def test_tables_have_texts_and_count_what_is_none(
    broker: testing.BrokerProcess, tmp_path: Path, where: str | None
) -> None:
    """With a condition the broker selects the messages."""
    executor = DirectExecutor()
    report = ingest(executor, broker.url, "orders", f"{tmp_path}/t", IngestSettings(columns=COLUMNS, where=where))
    assert report.bad_values == 3
    table = ds.dataset(tmp_path / "t").to_table()
    assert columns_of(table) == (KEY_TEXTS, TEXTS)
    assert table_schema(parse_columns(COLUMNS)).equals(table.schema)
    with pytest.raises(LocalError, match=r"partition 0, offset [12]: the (key|payload) of the message is not UTF-8"):
        ingest(
            executor,
            broker.url,
            "orders",
            f"{tmp_path}/u",
            IngestSettings(columns=COLUMNS, where=where, on_bad_value="fail"),
        )


def test_queries_open_text_payloads(broker: testing.BrokerProcess) -> None:
    source = QuerySource(broker.url, {}, "offset, payload string")
    sql = "select payload->>'n' as n from orders where \"offset\" = 0"
    with run_query(sql, source) as reader:
        assert reader.read_all().to_pylist() == [{"n": "1"}]
    # the bytes of a payload open as well as its text does
    with run_query(sql, QuerySource(broker.url, {})) as reader:
        assert reader.read_all().to_pylist() == [{"n": "1"}]


def test_a_member_of_the_payload_is_a_column_and_so_is_a_header_of_that_name(broker: testing.BrokerProcess) -> None:
    assert read_arrow(broker.url, "orders", "payload.n int").column(0).to_pylist() == [1, None, None, None, None]
    # members of keys are columns too; these keys are not JSON objects
    assert read_arrow(broker.url, "orders", "key.n int").column(0).to_pylist() == [None] * len(PAYLOADS)
    for form in ('"payload.n" int', 'n int from "payload.n"', 'payload.n int from "payload.n"'):
        assert read_arrow(broker.url, "orders", form).column(0).to_pylist() == [7] * len(PAYLOADS)
    statistics = HeaderStatistics()
    for batch in read_arrow(broker.url, "orders").to_batches():
        statistics.add(batch)
    assert parse_columns(", ".join(statistics.suggest_columns())).header_keys == ("delay", "payload.n")


@pytest.mark.parametrize("words", ["binary", "string required", "int", "string json", "string from payload"])
def test_only_text_is_another_type_of_a_field(words: str) -> None:
    with pytest.raises(SettingError, match=r"'payload' is a message field .* alone, `payload string`, or name the"):
        parse_columns(f"payload {words}")
