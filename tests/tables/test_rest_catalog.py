"""Iceberg tables behind a catalog of the REST API: made, appended to, and committed once whatever the catalog says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from lading import testing
from lading.model.errors import LadingError, LocalError, Unreachable
from lading.tables.formats.registry import open_table
from lading.tables.ingest import IngestReport, IngestSettings, ingest
from lading.tables.upkeep.optimize import optimize_table

from .deleting import delete_where
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


def optimize(table: Path) -> None:
    optimize_table(open_table(table))


def delete(table: Path) -> None:
    delete_where(open_table(table), "delay < 3", dry_run=False)


@pytest.mark.parametrize("command", [None, optimize, delete], ids=["run", "optimize", "delete"])
def test_a_catalog_that_goes_away_at_any_request_loses_nothing(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, served: RestCatalog,
    command: Callable[[Path], None] | None, full: bool,
) -> None:  # fmt: skip
    """Each error is one sentence that names the catalog and says what to do; when it is back, the same line goes on."""
    table, sent, refused = tmp_path / "table", 10, 0
    run(broker, topic, table)
    for requests in count(0, 1 if full else 5):
        send(broker, topic, range(sent, sent + 5))
        sent += 5
        if command is not None:
            run(broker, topic, table)
        served.requests_left = requests
        try:
            run(broker, topic, table) if command is None else command(table)
        except LadingError as error:
            assert isinstance(error, LocalError | Unreachable), error
            assert "\n" not in str(error) and "rested" in str(error) and "; " in str(error), error
            refused += 1
        else:
            break
        finally:
            served.requests_left = None
        run(broker, topic, table)
        kept = delays(served)
        assert kept in (list(range(sent)), list(range(3 if command is delete else 0, sent)))
    assert refused >= (2 if full else 1)
    print(f"{refused} requests of {command.__name__ if command else 'a run'} failed: lost 0, doubled 0")
