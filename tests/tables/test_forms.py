"""A second form of tables: a class and a row, and ingest writes it. The toy of this test writes CSV."""

from __future__ import annotations

from collections.abc import Mapping
from io import RawIOBase
from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pytest

from lading import Producer, testing
from lading.model.errors import LocalError
from lading.pipeline.settings import PipelineSettings
from lading.tables.formats import registry
from lading.tables.formats.directory import DirectoryTable
from lading.tables.formats.interface import FileLayout
from lading.tables.ingest import IngestSettings, ingest

from .direct import DirectExecutor


class CsvTable(DirectoryTable):
    """One directory of CSV files."""

    form = "csv"

    def open_file(self, sink: RawIOBase, layout: FileLayout) -> CsvFile:
        return CsvFile(sink, layout)


class CsvFile:
    """A CSV file that is being written."""

    def __init__(self, sink: RawIOBase, layout: FileLayout) -> None:
        self._schema = layout.plain_schema
        file: Any = sink
        self._writer = pc.CSVWriter(file, self._schema)

    def write(self, rows: Any) -> None:
        self._writer.write(rows.cast(self._schema))

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        """A CSV file needs no end."""


@pytest.fixture(autouse=True)
def forms(monkeypatch: pytest.MonkeyPatch) -> None:
    both: Mapping[str, Any] = {**registry.FORMATS, CsvTable.form: CsvTable}
    monkeypatch.setattr(registry, "FORMATS", both)
    monkeypatch.setattr("lading.pipeline.targets.FORMATS", both)


def test_ingest_writes_the_form_that_the_target_names(tmp_path: Path) -> None:
    with testing.broker(tmp_path / "data") as broker:
        with Producer(broker.url) as producer:
            for number in range(10):
                producer.send("t", b"", headers={"number": number})
        table = tmp_path / "table"

        def run(target: str) -> int:
            return ingest(DirectExecutor(), broker.url, "t", target, IngestSettings(columns="offset, number int")).rows

        assert (run(f"csv:{table}"), run(f"csv:{table}")) == (10, 0)
        (file,) = table.glob("*.csv")
        assert file.read_text().splitlines() == ['"offset","number"', *(f"{number},{number}" for number in range(10))]
        with pytest.raises(LocalError, match=f"table {table} is of the form csv, not parquet"):
            run(str(table))
    assert isinstance(registry.open_table(table), CsvTable)


def test_a_form_that_is_not_here_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CsvTable(tmp_path / "table").claim("somebody")
    monkeypatch.undo()
    known = ", ".join(registry.FORMATS)
    with pytest.raises(LocalError, match=f"the form 'csv' is not supported; this Lading has {known}$"):
        registry.open_table(tmp_path / "table")


def test_settings_of_a_pipeline_take_it(tmp_path: Path) -> None:
    document = {"source": {"from": "lading://h:1", "topic": "t"}, "good": {"to": "csv:./good"}}
    settings = PipelineSettings(document, tmp_path, "p.toml")
    assert settings.forms == {str(tmp_path / "good"): "csv"}
