"""Tables of every form with a log of its own: a batch is in them once, and what is not theirs is refused."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest

from lading import testing
from lading.model.errors import CorruptLog, LocalError
from lading.tables.commit.state import PipelineStateDirectory
from lading.tables.formats.manifest import DataFile
from lading.tables.formats.registry import FORMATS, open_table
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.query import QuerySource, run_query
from lading.tables.upkeep.optimize import optimize_table

from .direct import DirectExecutor
from .logged_forms import COLUMNS, FORMS, NUMBERS, Crash, LoggedForm, crash, owner, run, send

each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


@pytest.fixture
def topic() -> str:
    return f"logged{next(NUMBERS)}"


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("form", "home", "name"),
    [
        pytest.param(form, home, name, id=f"{form.name}-{name}")
        for form in FORMS
        for home, name in (*form.crash_points, (PipelineStateDirectory, "note_published"))
    ],
)
def test_a_batch_that_is_committed_again_is_in_the_table_once(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: LoggedForm,
    home: type, name: str,
) -> None:  # fmt: skip
    table = tmp_path / "table"
    send(broker, topic, range(10))
    run(form.name, broker, topic, table)
    send(broker, topic, range(10, 20))
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(home, name, crash)
        run(form.name, broker, topic, table)
    run(form.name, broker, topic, table)
    assert form.delays(table) == list(range(20))
    form.check_commits(table)


@each_form
def test_a_state_that_is_older_than_its_table_is_refused(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: LoggedForm
) -> None:
    table, state, backup = tmp_path / "table", tmp_path / "state", tmp_path / "backup"
    send(broker, topic, range(10))
    run(form.name, broker, topic, table, state=state)
    shutil.copytree(state, backup)
    send(broker, topic, range(10, 20))
    run(form.name, broker, topic, table, state=state)
    with pytest.raises(LocalError, match=r"table .* holds manifest 2 of pipeline .* is 1: .*; restore them"):
        run(form.name, broker, topic, table, state=backup)
    assert form.delays(table) == list(range(20))


@each_form
@pytest.mark.parametrize("by_run", [True, False], ids=["of a run", "of upkeep"])
def test_a_data_file_that_was_deleted_is_an_error_that_names_it(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: LoggedForm, by_run: bool
) -> None:
    """A run adds what is new first, then it fails; a query and upkeep fail, too."""
    table = tmp_path / "table"
    for start in (0, 10):
        send(broker, topic, range(start, start + 10))
        run(form.name, broker, topic, table)
    if not by_run:
        # its file is in no manifest
        assert optimize_table(open_table(table)).added_files == 1
    [file] = [one.name for one in open_table(table).list_files().files][:1]
    (table / file).unlink()
    send(broker, topic, range(20, 30))
    named = rf"table file {re.escape(str(table / file))} is missing, "
    with pytest.raises(CorruptLog, match=rf"has lost rows, and what is new was added: {named}"):
        run(form.name, broker, topic, table)
    assert sum(one.name != file for one in open_table(table).list_files().files) == (2 if by_run else 1)
    with pytest.raises(CorruptLog, match=rf"^{named}which the table's log lists; restore it$"):
        optimize_table(open_table(table))
    source = QuerySource(broker.url, {"t": f"{form.name}:{table}"})
    with pytest.raises(LocalError, match=rf"^query: {named}which the table's log lists; restore it$"):  # noqa: SIM117
        with run_query("select sum(delay) from t", source) as result:
            result.read_all()


@pytest.mark.parametrize("form", ["parquet", *(form.name for form in FORMS)])
def test_a_data_file_that_was_cut_is_an_error_and_a_query_is_told_in_a_line(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: str
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(10))
    run(form, broker, topic, table)
    [file] = [table / one.name for one in open_table(table).list_files().files]
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(
        CorruptLog, match=rf"has lost rows, .*: table file {re.escape(str(file))} has 300 bytes instead"
    ):
        run(form, broker, topic, table)
    source = QuerySource(broker.url, {"t": f"{form}:{table}"})
    with pytest.raises(LocalError, match=r"^query: [^\n]*not a parquet file[^\n]*$") as told:  # noqa: SIM117
        with run_query("select sum(delay) from t", source) as result:
            result.read_all()
    assert "Traceback" not in str(told.value)


@pytest.mark.parametrize("form", ["parquet", *(form.name for form in FORMS)])
def test_a_state_that_is_lost_is_told_and_mended_as_far_as_the_table_knows(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: str
) -> None:
    table, state = tmp_path / "table", tmp_path / "state"
    given: dict[str, Any] = {"columns": COLUMNS, "state_dir": state, "max_rows": 10}

    def go_on(**options: Any) -> int:
        return ingest(DirectExecutor(), broker.url, topic, f"{form}:{table}", IngestSettings(**given | options)).rows

    send(broker, topic, range(20))
    go_on()
    shutil.rmtree(state)
    send(broker, topic, range(20, 25))
    with pytest.raises(LocalError, match=r"continue where the table ends: lading ingest .* --resume .*/state"):
        go_on()
    assert (go_on(resume=True), go_on()) == (5, 0)
    assert polars.read_parquet(sorted(table.glob("*.parquet")))["delay"].sort().to_list() == list(range(25))
    shutil.rmtree(table / "_lading")
    for resume in (False, True):
        with pytest.raises(LocalError, match=r"has files of pipeline 'logged.* is gone; restore _lading from a backup"):
            go_on(resume=resume, state_dir=tmp_path / "other")


@each_form
def test_a_second_run_with_the_same_number_and_other_files_is_refused(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: LoggedForm
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(10))
    run(form.name, broker, topic, table)
    other = DataFile(".", "b.parquet", "other.parquet", 10, 100, "xxh3-128:00")
    with pytest.raises(LocalError, match=r"has manifest 1 of pipeline .* with other files"):
        open_table(table).commit((owner(table), 1), [other], os.replace)
    assert form.delays(table) == list(range(10))


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("form", "begun", "change", "sentence"),
    [
        pytest.param(form, *damage, id=f"{form.name}-{damage[1].__name__}")
        for form in FORMS
        for damage in form.damages
    ],
)  # fmt: skip
def test_what_is_no_table_of_this_run_is_refused(
    broker: testing.BrokerProcess,
    topic: str,
    tmp_path: Path,
    form: LoggedForm,
    begun: bool,
    change: Callable[[Path], None],
    sentence: str,
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(3))
    if begun:
        run(form.name, broker, topic, table)
    change(table)
    with pytest.raises(LocalError, match=sentence):
        run(form.name, broker, topic, table)


@each_form
def test_without_the_library_it_is_named(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: LoggedForm
) -> None:
    send(broker, topic, range(1))
    monkeypatch.setitem(sys.modules, form.package, None)
    with pytest.raises(LocalError, match=form.without_package):
        run(form.name, broker, topic, tmp_path / "table")


@each_form
def test_columns_are_compared_once_however_many_files_a_batch_has(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: LoggedForm
) -> None:
    """A batch of many partitions took 15 ms for each of its files."""
    home, calls = type(FORMATS[form.name](tmp_path)), list[str]()
    compare = home._add_columns  # type: ignore[attr-defined]

    def count(self: Any, *arguments: Any) -> Any:
        calls.append("compared")
        return compare(self, *arguments)

    monkeypatch.setattr(home, "_add_columns", count)
    send(broker, topic, range(12))
    settings = IngestSettings(columns="carrier string, delay int", partition_by=["delay"])
    report = ingest(DirectExecutor(), broker.url, topic, f"{form.name}:{tmp_path / 'table'}", settings)
    assert (report.rows, report.files) == (12, 12)
    assert len(calls) <= 2
