"""Tables whose partitions others change: new files follow, none is shown in a partition that it was not written for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import StringType

from lading import Producer, testing
from lading.model.errors import LocalError
from lading.tables.formats import iceberg
from lading.tables.ingest import IngestSettings, ingest

from .direct import DirectExecutor
from .logged_forms import NUMBERS, loaded

COLUMNS = "partition, offset, timestamp, carrier string, delay int"
Meanwhile = Callable[[Callable[[], None]], None]
CARRIERS = ("UA", "DL", "AA")


@pytest.fixture
def topic(broker: testing.BrokerProcess) -> str:
    name = f"evolving{next(NUMBERS)}"
    send(broker, name, range(12))
    return name


def send(broker: testing.BrokerProcess, topic: str, rows: range) -> None:
    with Producer(broker.url) as producer:
        for row in rows:
            producer.send(topic, b"{}", headers={"carrier": CARRIERS[row % len(CARRIERS)], "delay": row})


def run(broker: testing.BrokerProcess, topic: str, table: Path, *levels: str) -> int:
    settings = IngestSettings(columns=COLUMNS, partition_by=levels)
    return ingest(DirectExecutor(), broker.url, topic, f"iceberg:{table}", settings).rows


def require_rows(table: Path, count: int) -> None:
    """Let pyiceberg and Polars read all rows, and those of each carrier, for which they skip files by partitions."""
    held = loaded(table)
    delays: list[Any] = held.scan().to_arrow()["delay"].to_pylist()
    assert sorted(delays) == list(range(count))
    assert sorted(polars.scan_iceberg(held).collect()["delay"]) == list(range(count))
    for at, carrier in enumerate(CARRIERS):
        delays = held.scan(row_filter=f"carrier = '{carrier}'").to_arrow()["delay"].to_pylist()
        assert sorted(delays) == list(range(at, count, len(CARRIERS)))


def files_by_spec(table: Path) -> dict[int, int]:
    """Return how many files there are for each spec."""
    specs: dict[int, int] = {}
    for task in loaded(table).scan().plan_files():
        specs[task.file.spec_id] = specs.get(task.file.spec_id, 0) + 1
    return specs


def add_carrier(table: Table) -> None:
    with table.update_spec() as spec:
        spec.add_identity("carrier")


def test_new_files_follow_the_partitions_that_others_add(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    run(broker, topic, table)
    add_carrier(loaded(table))
    send(broker, topic, range(12, 15))
    assert run(broker, topic, table) == 3
    assert files_by_spec(table) == {0: 1, 1: 3}
    # settings say what they said, or the new levels, and nothing else
    send(broker, topic, range(15, 18))
    assert run(broker, topic, table, "carrier") == 3
    with pytest.raises(LocalError, match="now it would be partitioned by delay"):
        run(broker, topic, table, "delay")
    with loaded(table).update_spec() as spec:
        spec.remove_field("carrier")
        spec.add_field("timestamp", DayTransform(), "day")
    send(broker, topic, range(18, 21))
    assert run(broker, topic, table) == 3
    assert files_by_spec(table) == {0: 1, 1: 6, 2: 1}
    require_rows(table, 21)


def test_as_many_buckets_as_the_table_has_now(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    run(broker, topic, table, "bucket(2, carrier)")
    with loaded(table).update_spec() as spec:
        spec.remove_field("carrier_bucket")
        spec.add_field("carrier", BucketTransform(64), "buckets")
    send(broker, topic, range(12, 18))
    assert run(broker, topic, table, "bucket(2, carrier)") == 6
    require_rows(table, 18)
    held = {task.file.partition[0] for task in loaded(table).scan().plan_files() if task.file.spec_id == 1}
    hashed = BucketTransform(64).transform(StringType())
    assert held == {hashed(carrier) for carrier in CARRIERS}


@pytest.fixture(params=["between", "while it commits"])
def evolve_before_commit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let something happen to the table after the files of the next batch are staged."""

    def evolve(meanwhile: Callable[[], None]) -> None:
        place, name = (
            (iceberg.IcebergTable, "_commit_log") if request.param == "between" else (SqlCatalog, "commit_table")
        )
        commit, left = getattr(place, name), [meanwhile]

        def commit_later(self: Any, *arguments: Any) -> Any:
            if left:
                left.pop()()
                if request.param == "between":
                    raise KeyboardInterrupt
            return commit(self, *arguments)

        monkeypatch.setattr(place, name, commit_later)

    return evolve


def test_files_stay_in_the_partitions_they_were_written_for(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, evolve_before_commit: Meanwhile
) -> None:
    """pyiceberg writes a manifest under the newest spec, whatever its files were written for."""
    table = tmp_path / "table"
    run(broker, topic, table, "bucket(2, carrier)")

    def evolve() -> None:
        with loaded(table).update_spec() as spec:
            spec.remove_field("carrier_bucket")
            spec.add_field("carrier", BucketTransform(64), "buckets")

    evolve_before_commit(evolve)
    send(broker, topic, range(12, 18))
    try:
        run(broker, topic, table, "bucket(2, carrier)")
    except KeyboardInterrupt:
        assert run(broker, topic, table, "bucket(2, carrier)") == 0
    require_rows(table, 18)
    assert loaded(table).spec().fields[0].transform == BucketTransform(64)
    assert set(files_by_spec(table)) == {0}
    send(broker, topic, range(18, 21))
    assert run(broker, topic, table, "bucket(2, carrier)") == 3
    assert set(files_by_spec(table)) == {0, 1}
    require_rows(table, 21)


def test_levels_that_the_rows_lack_are_told_and_left_out(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "table"
    run(broker, topic, table)
    with loaded(table).update_schema() as schema:
        schema.add_column("region", StringType())
    with loaded(table).update_spec() as spec:
        spec.add_identity("region")
    send(broker, topic, range(12, 15))
    with caplog.at_level(logging.WARNING, "lading.tables"):
        assert run(broker, topic, table) == 3
    assert "has new partitions, region, by which its rows cannot be divided" in caplog.text
    require_rows(table, 15)
