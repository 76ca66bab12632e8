"""Daft reads a topic, a task for each partition, with projection, filters and limit pushed down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading import Admin, Producer, i16, testing
from lading.client import bulk
from lading.client import scan as scan_module
from lading.integrations.daft import to_data_frame

daft: Any = pytest.importorskip("daft")


def test_daft_reads_what_a_query_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[int, list[str]]] = []
    read = bulk.read_selection

    def count(*arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for batch in read(*arguments, **options):
            counted.append((batch.num_rows, batch.schema.names))
            yield batch

    monkeypatch.setattr(scan_module, "read_selection", count)
    with testing.broker() as broker:
        with Admin(broker.url) as admin:
            admin.create_topic("daft_scans", partitions=3)
        with Producer(broker.url) as producer:
            for number in range(90):
                headers = [("carrier", ("UA", "AA")[number % 2]), ("delay", i16(number))]
                producer.send("daft_scans", b"x", headers=headers, partition=number % 3)
        flights = lading.scan(broker.url, "daft_scans", "partition, offset, timestamp, carrier string, delay int")
        frame = to_data_frame(flights)
        assert frame.count_rows() == 90
        counted.clear()
        late = frame.where((daft.col("delay") > 60) & daft.col("carrier").is_in(["UA"])).select("delay").sort("delay")
        assert late.to_pydict() == {"delay": list(range(62, 90, 2))}
        assert sum(rows for rows, _ in counted) == 14
        assert {name for _, names in counted for name in names} == {"carrier", "delay"}
        counted.clear()
        assert frame.where(daft.col("partition") == 1).count_rows() == 30
        assert sum(rows for rows, _ in counted) == 30
        assert len(frame.limit(4).to_pydict()["delay"]) == 4
