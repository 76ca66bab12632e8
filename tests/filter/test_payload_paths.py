"""Conditions over paths into payloads: typed as headers are, header conditions first, malformed payloads unknown."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading import Producer, read_arrow, testing
from lading.columns.assemble import to_decoded
from lading.columns.contract import parse_columns
from lading.filter.parse import parse
from lading.filter.values import Messages
from lading.model.batch import HEADERS_TYPE
from lading.model.errors import FilterError
from lading.model.kinds import Kind
from lading.model.run import Decoded
from lading.payloads.walk import walk_json_spans

PAYLOADS: list[bytes | None] = [
    b'{"order":{"amount":120.5,"n":5},"name":"A","paid":true,"at":"2024-05-01T12:00:00Z"}',
    b'{"order":{"amount":99,"n":"7"},"name":"B","paid":false}',
    b'{"order":{"amount":"x"},"name":null}',
    b'{"order":',
    None,
    b'{"order":7}',
]


def batch_of(payloads: list[bytes | None]) -> pa.RecordBatch:
    headers = [
        [{"key": "tenant", "kind": int(Kind.STRING), "value": b"ab"[row % 2 :][:1]}] for row in range(len(payloads))
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(headers, HEADERS_TYPE), pa.array(payloads, pa.binary())], names=["headers", "payload"]
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("payload.order.amount > 100", [True, False, None, None, None, None]),
        ("payload.order.n = 5", [True, False, None, None, None, None]),
        ("payload.order.n IN (5, 7)", [True, True, None, None, None, None]),
        ("payload.name = 'A'", [True, False, None, None, None, None]),
        ("payload.name IS NULL", [False, False, True, True, True, True]),
        ("payload.paid", [True, False, None, None, None, None]),
        ("payload.at >= '2024-05-01'", [True, None, None, None, None, None]),
        ("CAST(payload.at AS timestamp) < timestamp", None),
        ("payload.order.amount > 100 AND tenant = 'a'", [True, False, None, False, None, False]),
        ("tenant = 'b' OR payload.order.amount > 100", [True, True, None, True, None, True]),
        ("NOT (payload.order.amount > 100 OR tenant = 'b')", [False, False, None, False, None, False]),
        ('"payload.order.amount" > 100', [None] * 6),
        ("payload.\"name\" LIKE '_'", [True, True, None, None, None, None]),
        ("CAST(payload.order.n AS string) = '7'", [False, True, None, None, None, None]),
        ("CAST(payload.order.n AS double) < payload.order.amount", [True, True, None, None, None, None]),
    ],
)
def test_paths_are_compared_as_headers_are(text: str, expected: list[bool | None] | None) -> None:
    condition = parse(text if expected is not None else "payload.name = 'A'")
    if expected is not None:
        assert condition.mask(batch_of(PAYLOADS)).to_pylist() == expected
    assert condition.fields == (frozenset() if text.startswith('"') else {"payload"})


def test_declared_columns_have_their_types() -> None:
    contract = parse_columns("amount decimal(10,2) from payload.order.amount, tags array<string> from payload.tags")
    for text in ("amount > 100", "payload.order.amount > 100.00"):
        assert parse(text, contract).mask(batch_of(PAYLOADS)).to_pylist() == [True, False, None, None, None, None]
    with pytest.raises(FilterError, match=r"payload.tags is declared as array<string>, and a filter compares single"):
        parse("tags = 'x'", contract)
    with pytest.raises(FilterError, match=r"neither side has a type, so it is unknown whether numbers or texts"):
        parse("payload.a < payload.b")


def test_payloads_are_parsed_only_of_messages_that_headers_have_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    from lading.payloads import form

    walked: list[int] = []
    plain = walk_json_spans

    def count_payloads(data: Any, begin: Any, size: Any, paths: Any) -> Any:
        walked.append(int((size >= 0).sum()))
        return plain(data, begin, size, paths)

    monkeypatch.setattr(form, "walk_json_spans", count_payloads)
    batch = batch_of([b'{"a":%d,"b":1}' % row for row in range(10)])
    for text, counts in (
        ("payload.a > 3 AND tenant = 'a' AND payload.b = 1", [5]),
        ("tenant = 'c' AND payload.a > 3", []),
        ("tenant IN ('a', 'b') OR payload.a > 3", []),
        ("tenant = 'a' OR (tenant = 'b' AND payload.a > 3)", [5]),
        ("payload.a > 3 AND payload.b = 1", [10]),
    ):
        walked.clear()
        parse(text).mask(batch)
        assert walked == counts, text


def test_messages_keep_what_was_found_for_the_next_condition() -> None:
    decoded = to_decoded(batch_of(PAYLOADS), ["tenant"])
    messages = Messages(Decoded(decoded.count, decoded.columns, decoded.located))
    first = parse("payload.order.amount > 100").mask(messages)
    partly = parse("tenant = 'b' AND payload.order.amount > 100").mask(messages)
    assert first.to_pylist() == parse("payload.order.amount > 100").mask(messages).to_pylist()
    assert partly.to_pylist() == [False, False, False, None, False, None]


def test_any_condition_is_that_of_python_row_by_row() -> None:
    rng = random.Random(7)
    rows = [{"a": rng.choice([1, 2.5, "3", None, "x"]), "b": rng.choice(["p", "q", None])} for _ in range(500)]
    held = batch_of(
        [json.dumps({key: value for key, value in row.items() if rng.random() < 0.9}).encode() for row in rows]
    )
    documents = [json.loads(payload.as_py()) for payload in held.column("payload")]

    def number(value: Any) -> float | None:
        try:
            return None if value is None else float(value)
        except ValueError:
            return None

    mask = parse("payload.a >= 2 AND payload.b = 'p'").selects(held).to_pylist()
    assert mask == [(number(row.get("a")) or 0) >= 2 and row.get("b") == "p" for row in documents]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("paths") / "data") as running:
        with Producer(running.url) as producer:
            for row, payload in enumerate(PAYLOADS):
                producer.send("orders", payload or b"", partition=0, headers={"tenant": "ab"[row % 2]})
        yield running


def test_the_broker_and_the_client_select_the_same(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    where = "tenant = 'a' AND payload.order.amount > 100"
    assert read_arrow(broker.url, "orders", "offset", where=where)["offset"].to_pylist() == [0]
    columns = "offset, amount double from payload.order.amount"
    assert read_arrow(broker.url, "orders", columns, where="amount < 100").to_pylist() == [
        {"offset": 1, "amount": 99.0}
    ]
    everything = read_arrow(broker.url, "orders", where=where)
    assert everything["payload"].to_pylist() == [PAYLOADS[0]]
