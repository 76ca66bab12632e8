"""Forms of tables with a log of their own, for the tests that all of them have to pass."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform

from lading import Producer, testing
from lading.tables.formats import delta, iceberg
from lading.tables.ingest import IngestReport, IngestSettings, ingest

from .direct import DirectExecutor

COLUMNS = "partition, offset, timestamp, carrier string, delay int, headers, payload"
NUMBERS = itertools.count()
"""So that each test has a topic of its own."""


class Crash(BaseException):
    """The process ends here."""


def crash(*arguments: Any) -> Any:
    """Stand for a method in which the process ends."""
    raise Crash


def send(broker: testing.BrokerProcess, topic: str, rows: range) -> None:
    with Producer(broker.url) as producer:
        for row in rows:
            producer.send(topic, b"{}", headers={"carrier": "UA", "delay": row})


def run(
    form: str, broker: testing.BrokerProcess, topic: str, table: Path, columns: str = COLUMNS,
    state: Path | None = None, catalog: str = "",
) -> IngestReport:  # fmt: skip
    """Write what waits in a topic into a table, at most ten messages a batch."""
    target = f"{form}:{catalog}{table}"
    return ingest(
        DirectExecutor(), broker.url, topic, target, IngestSettings(columns=columns, max_rows=10, state_dir=state)
    )


def owner(table: Path) -> str:
    """Return the pipeline that owns a table."""
    document: dict[str, str] = json.loads((table / "_lading" / "owner.json").read_text())
    return document["pipeline"]


def delta_delays(table: Path) -> list[int]:
    """What both readers give, in order."""
    by_deltalake: list[Any] = DeltaTable(table).to_pyarrow_table(columns=["delay"])["delay"].to_pylist()
    by_polars = polars.read_delta(str(table), columns=["delay"])["delay"].to_list()
    assert sorted(by_deltalake) == sorted(by_polars)
    return sorted(by_polars)


def _check_delta_commits(table: Path) -> None:
    assert [commit.get("lading.manifest") for commit in DeltaTable(table).history()] == [2, 1, None]
    assert DeltaTable(table).transaction_version(owner(table)) == 2


def _delta_of_others(table: Path) -> None:
    write_deltalake(table, pa.table({"a": [1]}))


def _log_deleted(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")


def _log_damaged(table: Path) -> None:
    (table / "_delta_log" / f"{1:020d}.json").write_text("{")


def own_catalog(table: Path) -> Catalog:
    """The catalog in the table's directory, as a user opens it."""
    return load_catalog("lading", type="sql", uri=f"sqlite:///{table}/_lading/catalog.db")


def loaded(table: Path) -> Table:
    return own_catalog(table).load_table(("lading", table.name))


def iceberg_delays(table: Path) -> list[int]:
    """What readers give, in order: with the catalog, and with the directory alone."""
    held = loaded(table)
    by_scan: list[Any] = held.scan(selected_fields=("delay",)).to_arrow()["delay"].to_pylist()
    by_directory: list[Any] = StaticTable.from_metadata(str(table)).scan().to_arrow()["delay"].to_pylist()
    by_polars = polars.scan_iceberg(held, reader_override="native").select("delay").collect()["delay"].to_list()
    assert sorted(by_scan) == sorted(by_polars) == sorted(by_directory)
    return sorted(by_scan)


def _check_iceberg_commits(table: Path) -> None:
    held = loaded(table)
    summaries = [snapshot.summary for snapshot in held.snapshots()]
    assert [one.additional_properties["lading.manifest"] for one in summaries if one is not None] == ["1", "2"]
    assert held.properties[f"lading.manifest.{owner(table)}"] == "2"


def _iceberg_of_others(table: Path) -> None:
    (table / "_lading").mkdir(parents=True)
    catalog = own_catalog(table)
    catalog.create_namespace("theirs")
    catalog.create_table("theirs.table", pa.schema([("a", pa.int64())]), location=f"file://{table}")


def _catalog_deleted(table: Path) -> None:
    (table / "_lading" / "catalog.db").unlink()


def _catalog_damaged(table: Path) -> None:
    (table / "_lading" / "catalog.db").write_bytes(b"no database" * 1000)


def _metadata_damaged(table: Path) -> None:
    Path(loaded(table).metadata_location.removeprefix("file://")).write_text("{")


def _made_anew(table: Path) -> None:
    held = loaded(table)
    held.catalog.drop_table(held.name())
    by_carrier = PartitionField(held.schema().find_field("carrier").field_id, 1000, IdentityTransform(), "carrier")
    held.catalog.create_table(held.name(), held.schema(), held.location(), PartitionSpec(by_carrier))


def _metadata_deleted(table: Path) -> None:
    shutil.rmtree(table / "metadata")


@dataclass(frozen=True)
class LoggedForm:
    """A form of tables with a log of its own."""

    name: str
    delays: Callable[[Path], list[int]]
    """Gives what its readers read, in order."""
    crash_points: tuple[tuple[type, str], ...]
    """Methods in which a process may end while a batch is committed."""
    check_commits: Callable[[Path], None]
    """Asserts that the log has the commits of manifests 1 and 2, once each."""
    damages: tuple[tuple[bool, Callable[[Path], None], str], ...]
    """Whether a table is begun before, what happens to it, and how the next run refuses it."""
    package: str
    without_package: str


FORMS = (
    LoggedForm(
        "delta",
        delta_delays,
        ((delta.DeltaTable, "_commit_log"),),
        _check_delta_commits,
        (
            (False, _delta_of_others, "which another writer made, has no column 'partition'; add the column to it"),
            (True, _log_deleted, "_delta_log is missing, .*; restore it, or name another table"),
            (True, _log_damaged, "its log cannot be read or written: .*; fix that"),
        ),
        "deltalake",
        r"needs the package deltalake; in the clone of Lading run: pip install -c constraints\.txt '\.\[delta\]'",
    ),
    LoggedForm(
        "iceberg",
        iceberg_delays,
        (
            (iceberg.IcebergTable, "_commit_log"),
            (iceberg.IcebergTable, "_note_version"),
            (SqlCatalog, "commit_table"),
        ),
        _check_iceberg_commits,
        (
            (False, _iceberg_of_others, "holds an Iceberg table that Lading did not make, .*; name another directory"),
            (True, _catalog_deleted, "is not in its catalog 'lading' as lading.table, .*; restore it, or"),
            (True, _catalog_damaged, "its log cannot be read or written: .*; fix that"),
            (True, _metadata_damaged, "its log cannot be read or written: .*; fix that"),
            (True, _made_anew, "is partitioned by 'carrier', .*; restore its partition spec, or write another"),
            (True, _metadata_deleted, "its log cannot be read or written: .*; fix that"),
        ),
        "pyiceberg",
        r"is an Iceberg table, which needs the package pyiceberg; in the clone of Lading run: "
        r"pip install -c constraints\.txt '\.\[iceberg\]'",
    ),
)
