"""Filtered batches: condition, columns and states decided in the broker."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lading.broker.broker import Broker
from lading.broker.core.query import Query, Selected, parse_query, select
from lading.broker.core.topology import Partition
from lading.dialects.native.messages import encode_block
from lading.model.batch import SCHEMA
from lading.model.errors import FilterError, SettingError
from lading.model.scan_request import MAX_OFFSET
from lading.model.state import State
from lading.model.values import i32, string
from tests.broker.room import NOW, append_block, fill, opened, read, topic_of

ROWS = [
    {
        "offset": 0,
        "state": 1,
        "timestamp": NOW,
        "headers": [
            {"key": "carrier", "kind": 2, "value": string("UA" if number % 2 else "AA").data},
            {"key": "delay", "kind": 6, "value": i32(number * 10).data},
        ],
        "payload": f"m{number}".encode(),
    }
    for number in range(10)
]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


@pytest.fixture
def partition(broker: Broker) -> Partition:
    """Ten native messages with headers, then five of Iggy without."""
    partition = topic_of(broker).partition(0)
    append_block(broker, partition, encode_block(pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)))
    fill(broker, partition, 5)
    return partition


def ask(
    broker: Broker,
    partition: Partition,
    query: Query,
    offset: int = 0,
    end: int = MAX_OFFSET,
    max_rows: int | None = None,
) -> Selected:
    reading = read(broker, partition, offset, query.reader)
    return select(reading, query, partition, end=end, max_rows=max_rows)


def offsets(selected: Selected) -> list[int | None]:
    return [offset for batch in selected.batches for offset in batch.column("offset").to_pylist()]


def test_without_anything_it_is_the_whole_batch(broker: Broker, partition: Partition) -> None:
    selected = ask(broker, partition, parse_query())
    assert offsets(selected) == list(range(15))
    assert selected.end_offset == 15
    assert all(batch.schema == SCHEMA for batch in selected.batches)


def test_condition_and_columns(broker: Broker, partition: Partition) -> None:
    query = parse_query("carrier = 'UA' AND delay > 25", "offset, carrier string, delay int, partition")
    selected = ask(broker, partition, query)
    table = pa.Table.from_batches(selected.batches, query.schema)
    assert table.to_pydict() == {
        "offset": [3, 5, 7, 9],
        "carrier": ["UA"] * 4,
        "delay": [30, 50, 70, 90],
        "partition": [0] * 4,
    }
    assert selected.end_offset == 15


def test_rows_are_bounded_and_the_position_goes_on(broker: Broker, partition: Partition) -> None:
    query = parse_query("header('carrier') = 'UA'", "offset")
    first = ask(broker, partition, query, max_rows=2)
    assert (offsets(first), first.end_offset) == ([1, 3], 4)
    second = ask(broker, partition, query, first.end_offset, max_rows=2)
    assert (offsets(second), second.end_offset) == ([5, 7], 8)
    assert offsets(ask(broker, partition, query, second.end_offset, end=9)) == []
    assert ask(broker, partition, query, second.end_offset, end=9).end_offset == 9


def test_headers_only_leaves_the_payload_null(broker: Broker, partition: Partition) -> None:
    selected = ask(broker, partition, parse_query(headers_only=True))
    for batch in selected.batches:
        assert batch.schema == SCHEMA
        assert batch.column("payload").null_count == batch.num_rows
    assert selected.batches[0].column("headers").to_pylist()[1] == ROWS[1]["headers"]


def test_states(broker: Broker, partition: Partition) -> None:
    broker.states.set(partition, [(0, 3), (12, 13)], State.POISONED, now_us=NOW)
    assert offsets(ask(broker, partition, parse_query())) == [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14]
    every = ask(broker, partition, parse_query(states="all"))
    states = [state for batch in every.batches for state in batch.column("state").to_pylist()]
    assert states == [20, 20, 20, *[1] * 9, 20, 1, 1]
    poisoned = ask(broker, partition, parse_query("state = 'poisoned'", "offset", states="all"))
    assert offsets(poisoned) == [0, 1, 2, 12]


def test_wrong_texts_are_the_askers(broker: Broker) -> None:
    with pytest.raises(FilterError):
        parse_query("carrier = ")
    with pytest.raises(SettingError):
        parse_query(columns="carrier strin")
