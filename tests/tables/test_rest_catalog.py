"""Iceberg tables behind a catalog of the REST API: made, appended to, and committed once whatever the catalog says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from lading import testing
from lading.model.errors import LadingError, LocalError, Unreachable
from lading.tables.ingest import IngestReport, IngestSettings, ingest

from .direct import DirectExecutor
from .logged_forms import NUMBERS, send
from .rest_catalog import RestCatalog, serve_rest_catalog

COLUMNS = "carrier string, delay int"


@pytest.fixture
def topic(broker: testing.BrokerProcess) -> str:
    name = f"rest{next(NUMBERS)}"
    send(broker, name, range(10))
    return name


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RestCatalog]:
    with serve_rest_catalog(tmp_path) as (uri, catalog):
        known = {"rested": {"type": "rest", "uri": uri}}
        monkeypatch.setattr(
            "pyiceberg.catalog.load_catalog", lambda name, **more: load_catalog(name, **{**known.get(name, {}), **more})
        )
        yield catalog


def run(broker: testing.BrokerProcess, topic: str, table: Path) -> IngestReport:
    settings = IngestSettings(columns=COLUMNS, max_rows=5)
    return ingest(DirectExecutor(), broker.url, topic, f"iceberg:rested/lake.flights:{table}", settings)


def delays(served: RestCatalog) -> list[int]:
    held: list[Any] = served.catalog.load_table("lake.flights").scan().to_arrow()["delay"].to_pylist()
    return sorted(held)


@pytest.mark.parametrize("is_adopted", [False, True], ids=["own", "of others"])
def test_a_table_behind_a_rest_catalog(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, served: RestCatalog, is_adopted: bool
) -> None:
    table = tmp_path / "table"
    before = [-1] if is_adopted else []
    if is_adopted:
        served.catalog.create_namespace("lake")
        theirs = pa.table({"delay": pa.array([-1], pa.int64()), "region": ["x"], "carrier": ["DL"]})
        served.catalog.create_table("lake.flights", theirs.schema, f"file://{table}").append(theirs)
    assert run(broker, topic, table).rows == 10
    assert delays(served) == [*before, *range(10)]
    send(broker, topic, range(10, 15))
    assert (run(broker, topic, table).rows, run(broker, topic, table).rows) == (5, 0)
    assert delays(served) == [*before, *range(15)]
    assert any(request.startswith("POST /v1/namespaces/lake/tables/flights") for request in served.requests)


def test_a_commit_whose_response_is_lost_is_made_once(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, served: RestCatalog
) -> None:
    table = tmp_path / "table"
    run(broker, topic, table)
    send(broker, topic, range(10, 20))
    served.lost_responses = 1
    try:
        run(broker, topic, table)
    except LadingError as error:
        assert isinstance(error, LocalError | Unreachable) and "; " in str(error), error
    run(broker, topic, table)
    assert delays(served) == list(range(20))
