"""``lading table``: what it shows, does and refuses."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lading import Producer, testing
from lading.tables.ingest import IngestSettings, ingest
from tests.tables.direct import DirectExecutor
from tests.tables.test_upkeep import FORMS, all_equal

from .conftest import Run, documents

COLUMNS = "partition, offset, carrier string, delay int"


@pytest.fixture(params=FORMS)
def kept(request: pytest.FixtureRequest, broker: testing.BrokerProcess, tmp_path: Path) -> tuple[str, Path]:
    """A table of 30 rows in three files."""
    form, topic = request.param, f"table_{request.param}"
    with Producer(broker.url) as producer:
        # the broker is that of all tests
        for row in range(30 if not (done := topic in _FILLED) else 0):
            producer.send(topic, b"{}", headers={"carrier": "UA" if row % 2 else "AA", "delay": row})
    if not done:
        _FILLED.add(topic)
    table = tmp_path / "table"
    settings = IngestSettings(columns=COLUMNS, max_rows=10)
    ingest(DirectExecutor(), broker.url, topic, f"{form}:{table}", settings)
    return form, table


_FILLED = set[str]()


def test_a_table_from_show_to_vacuum(lading: Run, kept: tuple[str, Path]) -> None:
    form, table = kept
    (shown,) = documents(lading("table", "show", str(table), "--output", "json"))
    assert (shown["form"], shown["files"], shown["small_files"], shown["files_after"]) == (form, 3, 3, 1)
    assert "3 files would become 1" in lading("table", "optimize", str(table), "--dry-run").stderr
    assert "3 files replaced by 1: 30 rows" in lading("table", "optimize", f"{form}:{table}").stderr
    assert lading("table", "optimize", str(table)).stderr.startswith("0 files replaced by 0")
    where = ("--where", "carrier = 'UA'")
    assert "15 rows in 1 file would be deleted" in lading("table", "delete", str(table), *where, "--dry-run").stderr
    assert "Delete 15 rows? Not a terminal" in lading("table", "delete", str(table), *where, code=2).stderr
    assert all_equal(form, table) == list(range(30))
    assert "15 rows in 1 file deleted" in lading("table", "delete", str(table), *where, "--yes").stderr
    assert all_equal(form, table) == list(range(0, 30, 2))
    # nothing of what a reader may need goes, unless it is forced
    assert "0 files" in lading("table", "vacuum", str(table)).stderr
    assert (
        "a reader that began before may still need"
        in lading("table", "vacuum", str(table), "--older-than", "1h", code=2).stderr
    )
    expired = documents(lading("table", "expire", str(table), "--older-than", "0s", "--output", "json"))
    assert expired[0]["expired"] == {"parquet": 0, "delta": 0, "iceberg": 4}[form]
    for path in table.rglob("*"):
        os.utime(path, (time.time() - 1000, time.time() - 1000))
    gone = ("table", "vacuum", str(table), "--older-than", "0s", "--unsafe", "--output", "json")
    (would,) = documents(lading(*gone, "--dry-run"))
    (done,) = documents(lading(*gone))
    # three files of the run and the one of the optimize; Iceberg's manifests too
    assert would["files"] == done["files"] and done["files"] >= 4
    assert done["files"] == 4 or form == "iceberg"
    assert all_equal(form, table) == list(range(0, 30, 2))
    names = [path for path in table.rglob("*") if path.name.endswith((".parquet", ".replaced", ".part"))]
    names = [path for path in names if path.parent.name != "_delta_log"]
    assert len(names) == 1


def test_what_is_refused(lading: Run, tmp_path: Path, kept: tuple[str, Path]) -> None:
    form, table = kept
    assert "is not a table that Lading writes" in lading("table", "show", str(tmp_path), code=2).stderr
    other = next(one for one in FORMS if one != form)
    assert (
        f"is of the form {form}, not {other}" in lading("table", "optimize", f"{other}:{table}", code=2).stderr
        or other == "parquet"
    )
    assert "has no column 'x'" in lading("table", "delete", str(table), "--where", "x = 1", "--yes", code=2).stderr
    assert all_equal(form, table) == list(range(30))
