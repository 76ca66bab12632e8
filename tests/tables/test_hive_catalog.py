"""Iceberg tables in a real Hive metastore: made, appended to by name, kept in shape, each message once."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from lading import testing
from lading.model.errors import LocalError, Unreachable
from lading.tables.formats.registry import open_table
from lading.tables.ingest import IngestReport, IngestSettings, ingest
from lading.tables.upkeep.optimize import optimize_table

from .direct import DirectExecutor
from .hive_metastore import START_S, run_metastore
from .logged_forms import NUMBERS, send

COLUMNS = "carrier string, delay int, timestamp"
TABLES = count()


@pytest.fixture(scope="module")
def metastore(full: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("thrift", reason="Thrift, which pyiceberg's Hive catalog needs, is not installed")
    if not full:
        pytest.skip("starts a JVM with Hive's metastore, 10 to 30 s: only with LADING_TEST_FULL=1")
    with run_metastore(tmp_path_factory.mktemp("hive")) as address:
        yield address


def name_catalog(monkeypatch: pytest.MonkeyPatch, uri: str) -> dict[str, str]:
    """Name a metastore ``hived`` in pyiceberg's settings, and return these."""
    # Hive 2 has no type for a timestamp with a time zone
    known = {"type": "hive", "uri": uri, "hive.hive2-compatible": "true"}
    monkeypatch.setattr(
        "pyiceberg.catalog.load_catalog",
        lambda name, **more: load_catalog(name, **({**known, **more} if name == "hived" else more)),
    )
    return known


@pytest.fixture
def catalog(metastore: str, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    return load_catalog("hived", **name_catalog(monkeypatch, metastore))


@pytest.mark.timeout(3 * START_S)
@pytest.mark.parametrize("is_adopted", [False, True], ids=["own", "of others"])
def test_a_table_in_a_hive_metastore(
    broker: testing.BrokerProcess, tmp_path: Path, catalog: Catalog, is_adopted: bool
) -> None:
    topic, table, name = f"hive{next(NUMBERS)}", tmp_path / "table", f"lake.flights{next(TABLES)}"
    send(broker, topic, range(10))

    def run() -> IngestReport:
        settings = IngestSettings(columns=COLUMNS, max_rows=5)
        return ingest(DirectExecutor(), broker.url, topic, f"iceberg:hived/{name}:{table}", settings)

    def read() -> list[int]:
        held: list[Any] = catalog.load_table(name).scan().to_arrow()["delay"].to_pylist()
        return sorted(held)

    before = [-1] if is_adopted else []
    if is_adopted:
        catalog.create_namespace_if_not_exists("lake")
        moment = pa.array([0], pa.timestamp("us", "UTC"))
        theirs = pa.table({"delay": pa.array([-1], pa.int64()), "timestamp": moment, "carrier": ["DL"]})
        catalog.create_table(name, theirs.schema, f"file://{table}").append(theirs)
    assert run().rows == 10
    assert read() == [*before, *range(10)]
    send(broker, topic, range(10, 15))
    assert (run().rows, run().rows) == (5, 0)
    optimize_table(open_table(table))
    assert read() == [*before, *range(15)]
    assert run().rows == 0


def test_a_metastore_that_is_away_is_named(
    broker: testing.BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("thrift", reason="Thrift, which pyiceberg's Hive catalog needs, is not installed")
    topic, settings = f"hive{next(NUMBERS)}", IngestSettings(columns=COLUMNS)
    send(broker, topic, range(3))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        uri = f"thrift://127.0.0.1:{closed.getsockname()[1]}"
    name_catalog(monkeypatch, uri)
    with pytest.raises(
        Unreachable, match=r"the Iceberg catalog 'hived' does not answer \(TTransportException\); start"
    ):
        ingest(DirectExecutor(), broker.url, topic, f"iceberg:hived/lake.away:{tmp_path / 'table'}", settings)
    assert not (tmp_path / "table").exists()


def test_a_catalog_without_its_packages_says_what_to_install(
    broker: testing.BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, settings = f"hive{next(NUMBERS)}", IngestSettings(columns=COLUMNS)
    send(broker, topic, range(3))
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.hive", None)
    name_catalog(monkeypatch, "thrift://127.0.0.1:1")
    with pytest.raises(
        LocalError, match=r"the Iceberg catalog 'hived' lacks its packages; .*pip install 'pyiceberg\[hive\]'$"
    ):
        ingest(DirectExecutor(), broker.url, topic, f"iceberg:hived/lake.away:{tmp_path / 'table'}", settings)
    assert not (tmp_path / "table").exists()
