"""Delta tables, read back by the readers of deltalake and Polars."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable

from lading import Producer, testing
from lading.tables.ingest import IngestReport, ingest

from .direct import DirectExecutor

COLUMNS = "partition, offset, timestamp, carrier string, delay int, headers, payload"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.Running]:
    with testing.broker(tmp_path_factory.mktemp("delta") / "data") as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"flights{next(_numbers)}"


def send(broker: testing.Running, topic: str, rows: range) -> None:
    with Producer(broker.url) as producer:
        for row in rows:
            producer.send(topic, b"{}", headers={"carrier": "UA", "delay": row})


def run(broker: testing.Running, topic: str, table: Path, columns: str = COLUMNS) -> IngestReport:
    return ingest(DirectExecutor(), broker.url, topic, f"delta:{table}", columns=columns, max_rows=10)


def delays(table: Path) -> list[int]:
    """What both readers give, in order."""
    by_deltalake: list[Any] = DeltaTable(table).to_pyarrow_table(columns=["delay"])["delay"].to_pylist()
    by_polars = polars.read_delta(str(table), columns=["delay"])["delay"].to_list()
    assert sorted(by_deltalake) == sorted(by_polars)
    return sorted(by_polars)


def test_a_topic_becomes_a_delta_table_and_goes_on(broker: testing.Running, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(25))
    report = run(broker, topic, table)
    assert (report.rows, report.batches) == (25, 3)
    assert delays(table) == list(range(25))
    send(broker, topic, range(25, 30))
    assert (run(broker, topic, table).rows, run(broker, topic, table).rows) == (5, 0)
    assert delays(table) == list(range(30))
    rows = polars.read_delta(str(table)).sort("offset")
    assert rows["offset"].to_list() == list(range(30)) and set(rows["carrier"]) == {"UA"}
    assert rows["payload"].to_list() == [b"{}"] * 30
