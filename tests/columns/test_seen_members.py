"""Members of JSON payloads: every figure by hand, proposals that read all that was seen, and limits that are kept."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from lading.columns import seen_members
from lading.columns.assemble import assemble, to_decoded
from lading.columns.contract import FIELD_TYPES, Projection, parse_payload_column
from lading.columns.seen_members import DEPTH_MAX, PATHS_MAX, PayloadStatistics


def batch(payloads: list[bytes | None], first: int = 0) -> pa.RecordBatch:
    rows = len(payloads)
    return pa.record_batch(
        {
            "partition": pa.array([2] * rows, pa.int32()),
            "offset": pa.array(range(first, first + rows), pa.int64()),
            "payload": pa.array(payloads, pa.binary()),
        }
    )


def survey(payloads: list[bytes | None]) -> PayloadStatistics:
    found = PayloadStatistics()
    found.add(batch(payloads))
    return found


def types(payloads: list[bytes | None]) -> dict[str, str]:
    return {row["path"]: row["type"] for row in survey(payloads).rows()}


def test_every_figure_by_hand() -> None:
    found = survey(
        [
            b'{"order_id": "A-1", "order": {"amount": 12.5, "tags": ["new", null]}, "at": "2024-05-01T12:30:00Z"}',
            b'{"order_id": "A-2", "order": {"amount": 3, "tags": []}, "at": null, "paid": true}',
            b'{"order_id": "A-1", "order": null, "paid": 1, "paid": false}',
            None,
            b'{"order_id": ',
            b"[1]",
        ]
    )
    assert (found.messages, found.nulls, found.objects, found.malformed) == (6, 1, 3, 2)
    assert found.describe() == [
        "2 of 5 payloads are not JSON objects: the first, in partition 2 at offset 4, ends too early (byte 13)"
    ]
    rows = {row["path"]: row for row in found.rows()}
    # an object that is sometimes null is its members all the same
    assert list(rows) == [
        "payload.order_id",
        "payload.order.amount",
        "payload.order.tags",
        "payload.at",
        "payload.paid",
    ]
    order_id = rows["payload.order_id"]
    assert (order_id["type"], order_id["share"], order_id["nulls"], order_id["required"]) == ("string", 100.0, 0, True)
    assert (order_id["examples"], order_id["kinds"]) == ("A-1, A-2", "string")
    amount = rows["payload.order.amount"]
    assert (amount["type"], amount["messages"], amount["required"]) == ("decimal(10,2)", 2, False)
    assert (rows["payload.order.tags"]["type"], rows["payload.order.tags"]["kinds"]) == ("array<string>", "array")
    assert (rows["payload.at"]["type"], rows["payload.at"]["nulls"]) == ("timestamp", 1)
    # the last of two members of a name counts
    assert (rows["payload.paid"]["type"], rows["payload.paid"]["kind_counts"]) == ("boolean", {"boolean": 2})
    json.dumps(found.document(), allow_nan=False)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (["1", "-7", "9223372036854775807"], "bigint"), (["9223372036854775808"], "decimal(38,0)"),
        (["1", "2.5"], "decimal(10,2)"),
        (["123456789.25"], "decimal(18,2)"), (["0.125"], "double"), (["1e3"], "double"), (["9" * 39], "string"),
        (["true", "false"], "boolean"), (['"2024-05-01"'], "date"), (['"2024-05-01T10:00:00Z"'], "timestamp"),
        (['"2024-05-01"', '""'], "string"), (['"12"', "12"], "string"), (["null"], "string"), (["[]"], "array<string>"),
        (["[1, 2]", "[2.5]"], "array<decimal(10,2)>"), (["{}"], "json"), (['"a"', "[1]"], "json"),
        (['[{"sku": "s", "unit price": 1}]'], "array<struct<sku:string,`unit price`:bigint>>"),
        (["[[1], [2]]"], "array<array<bigint>>"), (['[1, {"a": 2}]'], "array<string>"), ([r'"\ud800"'], "string"),
    ],
)  # fmt: skip
def test_types(values: list[str], word: str) -> None:
    payloads: list[bytes | None] = [f'{{"v": {value}}}'.encode() for value in values]
    assert types(payloads) == {"payload.v": word}


def test_numbers_of_thousands_of_digits_are_counted() -> None:
    least, beyond = b'{"a":-9223372036854775808}', b'{"a":' + b"1" * 5_000 + b"}"
    assert types([least]) == {"payload.a": "bigint"}
    assert types([beyond, least]) != types([least])


def test_an_object_with_many_names_is_a_map() -> None:
    random.seed(1)
    payloads: list[bytes | None] = [
        json.dumps({"stock": {f"sku-{random.randrange(1000)}": number}, "n": {"a": 1}}).encode()
        for number in range(200)
    ]
    found = PayloadStatistics()
    for at in range(0, 200, 40):
        found.add(batch(payloads[at : at + 40]))
    assert {row["path"]: row["type"] for row in found.rows()} == {
        "payload.stock": "map<string,bigint>",
        "payload.n.a": "bigint",
    }


def test_limits_are_kept_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = json.dumps({f"m{number}": number for number in range(1000)}).encode()
    found = survey([wide, wide])
    assert len(found.rows()) == PATHS_MAX
    assert found.describe() == [f"{2 * (1000 - PATHS_MAX):,} values of members after the first 200 paths are left out"]
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    (row,) = survey([deep]).rows()
    assert (row["path"], row["type"]) == ("payload." + ".".join("a" * DEPTH_MAX), "json")
    monkeypatch.setattr(seen_members, "BYTES_MAX", 25)
    found = PayloadStatistics()
    found.add(batch([b'{"a": 1}'] * 2))
    found.add(batch([b'{"a": 1}'] * 4, 2))
    assert (found.messages, found.describe()) == (3, ["members of the payload are those of the first 3 messages"])


def value(depth: int) -> Any:
    kind = random.randrange(9 if depth < 4 else 6)
    if kind < 6:
        options = (
            None,
            True,
            random.randrange(-5, 10**12),
            round(random.random() * 10 ** random.randrange(9), random.randrange(5)),
        )
        return random.choice((*options, "2024-05-01", "text", "", "\ud800" if random.random() < 0.1 else "é"))
    if kind == 6:
        return [value(depth + 1) for _ in range(random.randrange(3))]
    return {
        name: value(depth + 1)
        for name in random.sample(["a", "b b", 'c"', "d.e", "é", "", "offset", "payload", "x,y<"], 3)
    }


@pytest.mark.parametrize("seed", range(30))
def test_every_proposed_column_reads_all_that_was_seen(seed: int) -> None:
    """Values that no column could read but half surrogates, whose rows are left out."""
    random.seed(seed)
    texts = [json.dumps({name: value(1) for name in random.sample("abcdef", 3)}) for _ in range(random.randrange(1, 6))]
    payloads: list[bytes | None] = [text.encode() for text in texts if "ud800" not in text]
    found = survey(payloads)
    taken = {name.lower() for name in FIELD_TYPES}
    columns = found.propose_columns(taken)
    made = assemble(to_decoded(batch(payloads).select(["payload"])), Projection(payload=tuple(columns)))
    made.batch.validate(full=True)
    assert made.bad == {}
    for column in columns:
        assert not column.required or not made.batch.column(column.name).null_count
        # as it is written in a contract
        words = f"{column.word} {'required ' * column.required}from {column.text}"
        assert parse_payload_column(column.name, words) == column
