"""Upkeep of tables of every form: the same rows in fewer files, rows deleted, and a run that goes on next to it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import StaticTable

from lading import Producer, testing
from lading.model.errors import LocalError
from lading.tables.formats import data_files
from lading.tables.formats.directory import DirectoryTable
from lading.tables.formats.interface import Overtaken
from lading.tables.formats.registry import FORMATS as FORMS_BY_NAME
from lading.tables.formats.registry import open_table
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.upkeep import optimize
from lading.tables.upkeep.optimize import optimize_table
from lading.tables.upkeep.rewrite import StagedRewrite
from lading.tables.upkeep.schedule import INTERVALS_S, UpkeepRecord
from lading.tables.upkeep.shape import measure_shape
from lading.tables.upkeep.sorting import sort_batches
from lading.tables.upkeep.vacuum import KEPT_S, vacuum_table

from .deleting import delete_where
from .direct import DirectExecutor
from .logged_forms import NUMBERS, Crash, crash, loaded, send

FORMS = ("parquet", "delta", "iceberg")
COLUMNS = "partition, offset, timestamp, carrier string, delay int, headers, payload"


@pytest.fixture
def topic() -> str:
    return f"upkeep{next(NUMBERS)}"


class Kept:
    """A topic kept as a table, ten messages a file."""

    def __init__(self, form: str, broker: testing.BrokerProcess, topic: str, table: Path, by: tuple[str, ...]) -> None:
        self.form, self.broker, self.topic, self.path, self.by = form, broker, topic, table, by
        self.sent = 0

    def add(self, rows: int) -> None:
        """Send messages, and write them into the table."""
        send(self.broker, self.topic, range(self.sent, self.sent + rows))
        self.sent += rows
        self.run()

    def run(self) -> None:
        """Write what waits into the table."""
        settings = IngestSettings(columns=COLUMNS, max_rows=10, partition_by=self.by)
        ingest(DirectExecutor(), self.broker.url, self.topic, f"{self.form}:{self.path}", settings)

    @property
    def delays(self) -> list[int]:
        """What every reader of the form gives, sorted; all of them the same."""
        return all_equal(self.form, self.path)


def all_equal(form: str, path: Path) -> list[int]:
    found: list[Any] = []
    if form == "delta":
        found += [DeltaTable(path).to_pyarrow_table(columns=["delay"])["delay"].to_pylist()]
        found += [polars.read_delta(str(path), columns=["delay"])["delay"].to_list()]
        files = DeltaTable(path).file_uris()
    elif form == "iceberg":
        found += [loaded(path).scan(selected_fields=("delay",)).to_arrow()["delay"].to_pylist()]
        found += [StaticTable.from_metadata(str(path)).scan(selected_fields=("delay",)).to_arrow()["delay"].to_pylist()]
        files = [task.file.file_path.removeprefix("file://") for task in loaded(path).scan().plan_files()]
    else:
        found += [ds.dataset(path, format="parquet", partitioning="hive").to_table()["delay"].to_pylist()]
        found += [polars.read_parquet(path / "**" / "*.parquet")["delay"].to_list()]
        files = [str(one) for one in path.rglob("*.parquet") if "_lading" not in one.parts]
    found += [duckdb.read_parquet(files).to_arrow_table()["delay"].to_pylist()]
    held = [sorted(rows) for rows in found]
    assert held.count(held[0]) == len(held)
    return list(held[0])


@pytest.fixture(params=[*FORMS, *(pytest.param(f"{form} by carrier", marks=pytest.mark.turns(3)) for form in FORMS)])
def kept(request: pytest.FixtureRequest, broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> Iterator[Kept]:
    form, divided, _ = request.param.partition(" by ")
    table = Kept(form, broker, topic, tmp_path / "table", ("carrier",) if divided else ())
    send(broker, topic, range(30))
    table.sent = 30
    table.run()
    yield table


def test_optimize_leaves_the_same_rows_in_one_file_in_order(kept: Kept) -> None:
    table = open_table(kept.path)
    shape = measure_shape(table)
    assert (shape.files, shape.small_files, shape.files_after) == (3, 3, 1)
    report = optimize_table(table)
    assert (report.removed_files, report.added_files, report.rows, report.commits) == (3, 1, 30, 1)
    assert kept.delays == list(range(30))
    (file,) = open_table(kept.path).list_files().files
    listing = table.list_files()
    rows: list[Any] = [
        offset for batch in table.read_file(listing, file) for offset in batch.column("offset").to_pylist()
    ]
    assert rows == sorted(rows)
    assert optimize_table(open_table(kept.path)).commits == 0
    # the run that owns the table goes on
    kept.add(10)
    assert kept.delays == list(range(40))
    assert optimize_table(open_table(kept.path)).added_files == 1
    assert kept.delays == list(range(40))


def test_two_optimizers_at_once_and_a_run_between(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one finds its files replaced when it commits, and makes its plan anew."""
    write, turns = StagedRewrite.write, iter(range(2))

    def write_and_be_overtaken(self: StagedRewrite, *given: Any, **more: Any) -> int:
        if next(turns, None) == 0:
            optimize_table(open_table(kept.path))
            kept.add(10)
        return write(self, *given, **more)

    monkeypatch.setattr(StagedRewrite, "write", write_and_be_overtaken)
    report = optimize_table(open_table(kept.path))
    assert (report.removed_files, report.added_files) == (2, 1)
    assert kept.delays == list(range(40))
    assert not list((kept.path / "_lading" / "staged").glob("*"))


def test_rows_deleted_by_a_condition(kept: Kept) -> None:
    table = open_table(kept.path)
    found = delete_where(table, "delay BETWEEN 5 AND 12 AND carrier = 'UA'", dry_run=True)
    assert (found.rows, len(found.files)) == (8, 2)
    assert kept.delays == list(range(30))
    assert delete_where(table, "delay BETWEEN 5 AND 12 AND carrier = 'UA'", dry_run=False).rows == 8
    left = [row for row in range(30) if not 5 <= row <= 12]
    assert kept.delays == left
    # a whole file, and nothing
    assert delete_where(open_table(kept.path), "delay >= 20", dry_run=False).rows == 10
    assert delete_where(open_table(kept.path), "delay >= 20", dry_run=False).rows == 0
    kept.add(10)
    assert kept.delays == [row for row in left if row < 20] + list(range(30, 40))


def test_files_of_partitions_that_others_changed_keep_theirs(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    kept = Kept("iceberg", broker, topic, tmp_path / "table", ())
    kept.add(20)
    with loaded(kept.path).update_spec() as update:
        update.add_identity("carrier")
    kept.add(20)
    shape = measure_shape(open_table(kept.path))
    assert (shape.files, shape.files_after, shape.partitions) == (4, 2, 2)
    assert optimize_table(open_table(kept.path)).commits == 1
    assert delete_where(open_table(kept.path), "delay % 2 = 1", dry_run=False).rows == 20
    assert kept.delays == list(range(0, 40, 2))
    specs = {task.file.spec_id: len(task.file.partition) for task in loaded(kept.path).scan().plan_files()}
    assert specs == {0: 0, 1: 1}
    assert loaded(kept.path).scan("carrier = 'UA' and delay < 10").to_arrow().num_rows == 5


def test_a_crash_at_every_step_of_a_change(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends before the commit, in it, and between the moves of a directory: the next one goes on or not."""
    steps = {
        "parquet": ["create_document", "move_file", "sync_directory", "write_document"],
        "delta": ["move_file"], "iceberg": ["move_file"],
    }[kept.form]  # fmt: skip
    module = "directory" if kept.form == "parquet" else "logged"
    for step in steps:
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(f"lading.tables.formats.{module}.{step}", crash)
            patch.setattr(StagedRewrite, "__exit__", lambda *_: None)
            optimize_table(open_table(kept.path))
        kept.add(10)
        assert kept.delays == list(range(kept.sent))
    optimize_table(open_table(kept.path))
    assert kept.delays == list(range(kept.sent))
    assert len(open_table(kept.path).list_files().files) == 1


def test_a_full_disk_loses_nothing(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "x.parquet")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(data_files, "sync_file", refuse)
        optimize_table(open_table(kept.path))
    assert kept.delays == list(range(30))
    assert not list((kept.path / "_lading" / "staged").glob("*"))


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("custmer = 'x'", "has no column 'custmer'; its files have"),
        ("delay = ", "cannot be read as a condition"),
        ("1 = 1", "it names no column"),
        ("delay in (select 1)", "it is not a condition"),
        ("delay = 'x'", "Could not convert string 'x' to INT32"),
        ("max(delay) > 1", "see more than one row"),
        ("row_number() OVER () < 2 AND delay > 0", "see more than one row"),
        ("unnest([true, false]) AND delay = 1", "see more than one row"),
    ],
)
def test_conditions_that_are_refused(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, where: str, says: str
) -> None:
    kept = Kept("parquet", broker, topic, tmp_path / "table", ())
    kept.add(3)
    with pytest.raises(LocalError, match="--where") as refused:
        delete_where(open_table(kept.path), where, dry_run=False)
    assert says in str(refused.value)
    assert kept.delays == [0, 1, 2]


def test_pieces_on_disk_are_merged_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading.tables.upkeep.sorting.PIECE_BYTES", 200)
    monkeypatch.setattr("lading.tables.upkeep.sorting.MERGE_ROWS", 3)
    numbers = [(at * 7919) % 1000 for at in range(200)]
    batches = [
        pa.record_batch({"a": pa.array([None if n % 50 == 0 else n for n in numbers[at : at + 20]], pa.int64()),
                         "b": pa.array([str(n) for n in numbers[at : at + 20]])})
        for at in range(0, 200, 20)
    ]  # fmt: skip
    found = list(sort_batches(batches, ("a", "missing"), tmp_path, "run"))
    rows: list[Any] = [value for batch in found for value in batch.column("a").to_pylist()]
    assert rows == sorted((None if n % 50 == 0 else n for n in numbers), key=lambda n: (n is None, n or 0))
    others: list[Any] = [value for batch in found for value in batch.column("b").to_pylist()]
    assert sorted(others) == sorted(map(str, numbers))
    assert max(batch.num_rows for batch in found) <= 90
    assert not list(tmp_path.iterdir())


def test_pieces_with_other_columns_are_merged_into_one_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each batch whose columns differ from those before would begin a new file."""
    monkeypatch.setattr("lading.tables.upkeep.sorting.PIECE_BYTES", 100)
    monkeypatch.setattr("lading.tables.upkeep.sorting.MERGE_ROWS", 3)
    batches = [
        pa.record_batch({"a": pa.array(range(at, 200, 10))} | ({"late": pa.array([at] * 20)} if at % 2 else {}))
        for at in range(10)
    ]
    found = list(sort_batches(batches, ("a",), tmp_path, "run"))
    assert {tuple(batch.schema.names) for batch in found} == {("a", "late")}
    late = {row["a"]: row["late"] for batch in found for row in batch.to_pylist()}
    assert list(late) == list(range(200))
    assert late == {value: value % 10 if value % 2 else None for value in range(200)}


def test_optimize_refuses_a_column_that_the_table_does_not_have(kept: Kept) -> None:
    kept.add(20)
    with pytest.raises(LocalError, match=r"--sort-by dealy: the table .* has no such column .did you mean 'delay'"):
        optimize_table(open_table(kept.path), sort_by=["offset", "dealy"])
    assert optimize_table(open_table(kept.path), sort_by=["carrier", "delay"]).rows == kept.sent


def test_partitions_of_delta_are_compared_by_their_type(tmp_path: Path) -> None:
    rows = pa.table({"size": pa.array([5, 9, 10, 70, None], pa.int32()), "name": list("abcde")})
    write_deltalake(tmp_path / "sizes", rows, partition_by=["size"])
    table = FORMS_BY_NAME["delta"](tmp_path / "sizes")
    assert delete_where(table, "size > 9", dry_run=True).rows == 2
    assert delete_where(table, "size > 9", dry_run=False).rows == 2
    left: list[Any] = DeltaTable(tmp_path / "sizes").to_pyarrow_table()["name"].to_pylist()
    assert sorted(left) == ["a", "b", "e"]


def test_an_error_of_arrow_does_not_end_the_run_that_optimizes(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    kept = Kept("parquet", broker, topic, tmp_path / "table", ())
    kept.add(20)

    def fail(*_: Any, **__: Any) -> None:
        raise pa.ArrowInvalid("a page of a file is damaged")

    monkeypatch.setattr("lading.tables.upkeep.schedule.optimize_table", fail)
    assert UpkeepRecord(kept.path / "_lading").optimize_if_due([kept.path], INTERVALS_S["daily"], 2e9)
    assert "is not optimized: a page of a file is damaged" in caplog.text


def test_a_change_that_is_overtaken_for_ever_says_so(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise Overtaken("files were replaced")

    monkeypatch.setattr(type(open_table(kept.path)), "replace_files", refuse)
    with pytest.raises(Overtaken):
        optimize_table(open_table(kept.path))
    assert optimize.ROUNDS == 5 and issubclass(type(open_table(kept.path)), DirectoryTable)
    assert not list((kept.path / "_lading" / "staged").glob("*"))


def test_many_small_files_are_said_once_and_optimized_when_due(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("lading.tables.upkeep.schedule.SMALL_FILES_MAX", 2)
    kept = Kept("parquet", broker, topic, tmp_path / "table", ())
    kept.add(20)
    assert "lading table optimize" not in caplog.text
    kept.add(10)
    kept.add(10)
    assert caplog.text.count(f"the table {kept.path} has 3 files below 16 MiB in one partition") == 1
    assert caplog.text.count("lading table optimize") == 1
    record = UpkeepRecord(kept.path / "_lading")
    assert record.optimize_if_due([kept.path], INTERVALS_S["daily"], 2e9)
    assert len(open_table(kept.path).list_files().files) == 1
    assert not UpkeepRecord(kept.path / "_lading").optimize_if_due([kept.path], INTERVALS_S["daily"], 2e9 + 60_000)
    assert kept.delays == list(range(40))


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_reader_in_flight_keeps_its_files(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: str
) -> None:
    """Rows are old, and were replaced a moment ago: a reader that began before still needs their files."""
    kept = Kept(form, broker, topic, tmp_path / "table", ())
    for _ in range(3):
        kept.add(10)
    # what a reader holds that has planned and not read yet
    rows: Any = DeltaTable(kept.path).to_pyarrow_dataset() if form == "delta" else loaded(kept.path).scan()
    before_s = time.time()
    while time.time_ns() // 1_000_000 <= before_s * 1_000:
        pass
    assert optimize_table(open_table(kept.path)).removed_files == 3
    old_s = time.time() - 30 * 86_400
    for path in kept.path.rglob("*.parquet"):
        os.utime(path, (old_s, old_s))
    # two snapshots were replaced before the reader began, and the one that it reads was not
    assert open_table(kept.path).expire_snapshots(before_s, dry_run=False) == (2 if form == "iceberg" else 0)
    assert vacuum_table(open_table(kept.path), KEPT_S, is_forced=False, dry_run=False) == []
    read: Any = rows.to_table() if form == "delta" else rows.to_arrow()
    assert sorted(read["delay"].to_pylist()) == list(range(30))
    assert kept.delays == list(range(30))


def test_files_of_an_interrupted_run_are_not_vacuumed(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form, step in (("delta", "_commit_log"), ("iceberg", "_commit_log")):
        kept = Kept(form, broker, topic, tmp_path / form, ())
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(type(FORMS_BY_NAME[form](tmp_path)), step, crash)
            kept.add(5)
        with pytest.raises(LocalError, match="is not committed yet, as the run that wrote it was interrupted"):
            vacuum_table(open_table(kept.path), 0.0, is_forced=True, dry_run=False)
        kept.run()
        assert len(kept.delays) >= 5
        staged = [kept.path / "_lading" / "staged" / name for name in ("replacing-range-1.parquet", "replacing-1.part")]
        for path in staged:
            path.touch()
        vacuum_table(open_table(kept.path), 0.0, is_forced=True, dry_run=False)
        assert len(kept.delays) >= 5
        # a manifest may list the first, and nothing lists the second
        assert [path.exists() for path in staged] == [True, False]


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_partitions_of_any_text_are_kept_apart(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: str
) -> None:
    """The log of Delta has paths as URLs, and the text None is another partition than null."""
    values = ["None", None, "x y/z%"]
    with Producer(broker.url) as producer:
        for at in range(12):
            value = values[at % 3]
            producer.send(topic, b"{}", headers={"delay": at} | ({} if value is None else {"carrier": value}))
    kept = Kept(form, broker, topic, tmp_path / "table", ("carrier",))
    kept.run()
    kept.sent = 12

    def read_carriers() -> dict[Any, Any]:
        found = DeltaTable(kept.path).to_pyarrow_table() if form == "delta" else loaded(kept.path).scan().to_arrow()
        return dict(zip(found["delay"].to_pylist(), found["carrier"].to_pylist(), strict=True))

    assert read_carriers() == {at: values[at % 3] for at in range(12)}
    optimize_table(open_table(kept.path))
    assert read_carriers() == {at: values[at % 3] for at in range(12)}
    assert len(open_table(kept.path).list_files().files) == 3
    assert delete_where(open_table(kept.path), "carrier IS NULL AND delay < 6", dry_run=False).rows == 2
    assert read_carriers() == {at: values[at % 3] for at in range(12) if at not in (1, 4)}


def test_a_staged_file_that_is_missing_never_takes_the_place_of_others(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept("parquet", broker, topic, tmp_path / "table", ())
    kept.add(20)
    replace = StagedRewrite.replace

    def delete_and_replace(self: StagedRewrite, *given: Any) -> None:
        vacuum_table(open_table(kept.path), 0.0, is_forced=True, dry_run=False)
        replace(self, *given)

    monkeypatch.setattr(StagedRewrite, "replace", delete_and_replace)
    with pytest.raises(LocalError, match="was deleted before it took the place of other files"):
        optimize_table(open_table(kept.path))
    assert kept.delays == list(range(20))


def test_a_condition_on_a_column_that_came_later(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    """Readers see null in the rows of before, and so does the condition; case of names does not matter."""
    send(broker, topic, range(5))
    for columns in ("partition, offset, delay int", "partition, offset, delay int, carrier string"):
        ingest(DirectExecutor(), broker.url, topic, tmp_path / "table", IngestSettings(columns=columns))
        send(broker, topic, range(5, 10))
    table = open_table(tmp_path / "table")
    assert delete_where(table, "Carrier = 'UA' AND delay = 7", dry_run=False).rows == 1
    assert delete_where(table, "carrier IS NULL", dry_run=False).rows == 5
    assert all_equal("parquet", tmp_path / "table") == [5, 6, 8, 9]


def test_files_of_other_writers_have_other_types_of_text(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Polars notes views of texts in its files, which Arrow does not put together with plain ones."""
    kept = Kept("delta", broker, topic, tmp_path / "table", ())
    send(broker, topic, range(10))
    settings = IngestSettings(columns="partition, offset, carrier string, delay int")
    ingest(DirectExecutor(), broker.url, topic, f"delta:{kept.path}", settings)
    polars.read_delta(str(kept.path)).write_delta(kept.path, mode="append")
    assert optimize_table(open_table(kept.path)).removed_files == 2
    assert kept.delays == sorted([*range(10), *range(10)])
    assert delete_where(open_table(kept.path), "carrier = 'UA' AND delay > 4", dry_run=False).rows == 10


def test_a_file_that_others_named_without_a_scheme_is_not_vacuumed(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    kept = Kept("iceberg", broker, topic, tmp_path / "table", ())
    kept.add(10)
    theirs = kept.path / "theirs.parquet"
    theirs.write_bytes(next(kept.path.glob("*.parquet")).read_bytes())
    loaded(kept.path).add_files([str(theirs)])
    vacuum_table(open_table(kept.path), 0.0, is_forced=True, dry_run=False)
    assert theirs.exists()
    assert loaded(kept.path).scan().to_arrow().num_rows == 20
