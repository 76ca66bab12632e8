"""Everything that is bad about an input: one sentence, what to do, nothing lost, nothing twice.

What is bad, and where it is held; what stands nowhere else is below.

* a catalog that is not there: `tests/tables/test_iceberg.py` (does not answer, refuses the login, its database is gone,
  is not set up), `tests/tables/test_refused_runs.py` (leaves nothing); `lading pipeline check` tells it: below
* a table of other columns: `test_columns_are_added_and_keep_their_types` in `tests/tables/test_delta.py` and
  `test_iceberg.py`, `test_run.py` (Parquet); files of others: `test_run.py`, `tests/tables/test_logged.py`
* a table that another writer changes between two batches: `tests/tables/test_delta.py` and `test_iceberg.py` (appends,
  adds columns, compacts), `test_rollbacks.py` (takes it back); drops it, changes its columns' types: below
* missing rights: `tests/tables/test_refused_runs.py` (to a topic), `tests/tables/test_objects.py` (to a bucket), here a
  disk that is full: `test_bad_input.py`; to directories: below
* an expectation that names an unknown header or cannot be typed: `test_expectations.py`
* `s3:` without credentials: `tests/tables/test_objects.py`; it leaves no state: below
* the profile of an empty topic: `test_profile.py`
* a mirror whose source loses messages: `tests/mirror/test_refusals.py` (retention, cut back, made anew); a pipeline's:
  `test_bad_input.py`, `test_run.py`
* a target that refuses a message: `tests/mirror/test_refusals.py`, `test_topic_targets.py` (what its protocol cannot
  hold is quarantined); a topic whose own limit is smaller: below
* a mistyped name: `tests/columns/test_field_names.py` (fields), `tests/client/test_declared_headers.py` (headers),
  `tests/spark/test_source.py` (schemas), `tests/cli/test_commands.py` (contracts); in a pipeline's condition: below
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lading import Producer, testing
from lading.cli.connection import absent_contract
from lading.model.errors import LocalError
from lading.pipeline.settings import PipelineSettings
from lading.tables.commit.state import PipelineStateDirectory
from tests import forked_command
from tests.tables.logged_forms import FORMS, LoggedForm, loaded, own_catalog
from tests.tables.logged_forms import run as run_form

from .conftest import Place
from .direct import Driver, checked

ROOT = Path(__file__).parents[2]
each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


def test_check_tells_of_a_catalog_that_is_not_there(place: Place) -> None:
    file = place.write(lambda text: text.replace("parquet:./tables/late", "iceberg:nobody17:./tables/late"))
    (problem,) = checked(file)
    assert problem.part == "table" and "the Iceberg catalog 'nobody17' is not set up" in problem.sentence
    assert not place.tables.exists()
    with pytest.raises(LocalError, match="the Iceberg catalog 'nobody17' is not set up"):
        Driver(file).run()


def test_check_tells_of_a_table_that_was_taken_back_and_of_a_log_that_is_damaged(place: Place) -> None:
    file = place.write(lambda text: text.replace("parquet:./tables/late", "delta:./tables/late"), max_rows=600)
    Driver(file).run()
    assert checked(file) == []
    table = place.tables / "late"
    DeltaTable(table).restore(1)
    (problem,) = checked(file)
    assert "was taken back by another writer (RESTORE in version" in problem.sentence
    assert problem.sentence.endswith(f"to put them back and continue: lading pipeline run {file} --resume")
    (table / "_delta_log" / f"{2:020d}.json").write_text("{")
    (problem,) = checked(file)
    assert "its log cannot be read or written: " in problem.sentence and "\n" not in problem.sentence


def test_conditions_that_name_a_header_that_no_message_has(place: Place) -> None:
    expect = '[[expect]]\nname = "e"\ncondition = "header(\'dely\') IS NULL OR delay > 0"\nelse = "warn"\n\n[[route]]'

    def mistype(text: str) -> str:
        return text.replace("delay > 60", "header('carier') = 'UA'").replace("[[route]]", expect)

    said = list(absent_contract(PipelineSettings.load(place.write(mistype))))
    assert [one.partition(" has a header ")[2].partition(";")[0] for one in said] == [
        "'carier' (did you mean 'carrier'?)", "'dely' (did you mean 'delay'?)",
    ]  # fmt: skip
    assert list(absent_contract(PipelineSettings.load(place.write()))) == []


def send(place: Place, topic: str, rows: range) -> None:
    with Producer(place.url) as producer:
        for row in rows:
            producer.send(topic, b"{}", headers={"carrier": "UA", "delay": row})


def drop(table: Path) -> Callable[[], object]:
    """Another tool drops the table, and its user brings it back."""
    if (table / "_delta_log").exists():
        away = table.with_name("log")
        (table / "_delta_log").rename(away)
        return lambda: away.rename(table / "_delta_log")
    identifier, metadata = ("lading", table.name), loaded(table).metadata_location
    own_catalog(table).drop_table(identifier)
    return lambda: own_catalog(table).register_table(identifier, metadata)


def change_types(table: Path) -> Callable[[], object]:
    """Another tool writes the column as text."""
    if (table / "_delta_log").exists():
        before = DeltaTable(table).version()
        held: Any = pa.table(DeltaTable(table).to_pyarrow_table())
        at = held.schema.get_field_index("delay")
        text = held.set_column(at, "delay", held["delay"].cast(pa.string()))
        write_deltalake(table, text, mode="overwrite", schema_mode="overwrite")
        return lambda: DeltaTable(table).restore(before)
    with loaded(table).update_schema() as update:
        update.rename_column("delay", "late")
        update.rename_column("carrier", "delay")

    def undo() -> None:
        with loaded(table).update_schema() as update:
            update.rename_column("delay", "carrier")
            update.rename_column("late", "delay")

    return undo


@pytest.mark.turns(3)
@each_form
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (drop, r"_delta_log is missing, .*; restore it|is not in its catalog 'lading' as lading.table, .*; restore it"),
        (change_types, r"has the column 'delay' as (large_)?string, and now it would be int.*: name the old type"),
    ],
)
def test_a_table_that_changes_between_two_batches(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: LoggedForm,
    change: Callable[[Path], Callable[[], object]], told: str,
) -> None:  # fmt: skip
    """Told before anything of the second is shown; when its user has mended it, the run goes on."""
    table, note, undo = tmp_path / "table", PipelineStateDirectory.note_published, list[Callable[[], object]]()
    broker: Any = place
    topic = f"{place.topic}-{form.name}"
    send(place, topic, range(30))

    def note_and_change(self: PipelineStateDirectory, number: int) -> None:
        note(self, number)
        if not undo:
            undo.append(change(table))

    with monkeypatch.context() as patch:
        patch.setattr(PipelineStateDirectory, "note_published", note_and_change)
        for _ in range(2):
            with pytest.raises(LocalError, match=told):
                run_form(form.name, broker, topic, table)
    undo[0]()
    run_form(form.name, broker, topic, table)
    assert form.delays(table) == list(range(30))


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("form", "log"), [("parquet", []), ("delta", ["_delta_log"]), ("iceberg", ["metadata"])], ids=lambda one: str(one)
)
def test_directories_that_may_not_be_written_to(
    place: Place, served: testing.BrokerProcess, tmp_path: Path, form: str, log: list[str]
) -> None:
    topic, table = f"{place.topic}-{form}", tmp_path / "table"
    send(place, topic, range(5))
    run_form(form, served, topic, table)
    send(place, topic, range(5, 10))
    read_only = [".", "_lading", "_lading/staged", "_lading/manifests", *log]
    command = [sys.executable, "-m", "tests.tables.read_only", place.url, topic, form, str(table), *read_only]
    done = forked_command.run(command, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for name, told in zip(read_only, json.loads(done.stdout), strict=True):
        assert told.startswith("LocalError: ") and str(table) in told, (name, told)
        assert "ermission denied" in told and "\n" not in told and "\x1b" not in told, (name, told)
    assert run_form(form, served, topic, table).rows in (0, 5)
    assert sorted(polars.read_parquet(f"{table}/*.parquet")["delay"]) == list(range(10))
    for logged in [one for one in FORMS if one.name == form]:
        assert logged.delays(table) == list(range(10))


def test_a_store_without_credentials_leaves_no_state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def to_bucket(text: str) -> str:
        return text.replace("parquet:./tables/late", "delta:s3://lake/late")

    file = place.write(to_bucket)
    (problem,) = checked(file)
    told = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
    assert problem.part == "table" and told in problem.sentence
    with pytest.raises(LocalError, match=told):
        Driver(file).run()
    assert not list(place.tables.rglob("*.json"))
