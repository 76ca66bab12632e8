"""Delta tables, read back by the readers of deltalake and Polars."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from lading import testing
from lading.model.errors import CorruptLog, LocalError
from lading.tables.commit.state import PipelineStateDirectory
from lading.tables.formats import delta
from lading.tables.formats.delta import file_statistics
from lading.tables.formats.manifest import read_manifest, write_manifest
from lading.tables.ingest import IngestSettings, ingest

from .direct import DirectExecutor
from .logged_forms import COLUMNS, NUMBERS, Crash, crash, send
from .logged_forms import delta_delays as delays
from .logged_forms import run as run_form

run = partial(run_form, "delta")


@pytest.fixture
def topic() -> str:
    return f"flights{next(NUMBERS)}"


def test_a_topic_becomes_a_delta_table_and_goes_on(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(25))
    report = run(broker, topic, table)
    assert (report.rows, report.batches) == (25, 3)
    assert delays(table) == list(range(25))
    send(broker, topic, range(25, 30))
    assert (run(broker, topic, table).rows, run(broker, topic, table).rows) == (5, 0)
    assert delays(table) == list(range(30))
    rows = polars.read_delta(str(table)).sort("offset")
    assert rows["offset"].to_list() == list(range(30)) and set(rows["carrier"]) == {"UA"}
    assert rows["payload"].to_list() == [b"{}"] * 30


def test_a_state_that_is_older_takes_over_what_the_table_has(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, state, backup = tmp_path / "table", tmp_path / "state", tmp_path / "backup"
    send(broker, topic, range(10))
    run(broker, topic, table, state=state)
    shutil.copytree(state, backup)
    send(broker, topic, range(10, 30))
    run(broker, topic, table, state=state)
    with pytest.raises(LocalError, match=r"continue where it ends: lading ingest .* --resume") as told:
        run(broker, topic, table, state=backup)
    assert str(backup) in str(told.value)
    target = f"delta:{table}"
    again: dict[str, Any] = {"columns": COLUMNS, "max_rows": 10, "state_dir": backup}
    assert ingest(DirectExecutor(), broker.url, topic, target, IngestSettings(resume=True, **again)).rows == 0
    assert "is taken over from" in caplog.text
    send(broker, topic, range(30, 35))
    assert ingest(DirectExecutor(), broker.url, topic, target, IngestSettings(**again)).rows == 5
    # the run whose state is behind now is the one that is refused
    with pytest.raises(LocalError, match="holds manifest 4"):
        run(broker, topic, table, state=state)
    assert delays(table) == list(range(35))


def test_a_state_takes_over_a_batch_that_the_log_does_not_have_yet(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ended between its manifest, of which the table has a copy, and the commit: two of three are shown."""
    table, state, backup = tmp_path / "table", tmp_path / "state", tmp_path / "backup"
    send(broker, topic, range(10))
    run(broker, topic, table, state=state)
    shutil.copytree(state, backup)
    send(broker, topic, range(10, 20))
    run(broker, topic, table, state=state)
    send(broker, topic, range(20, 30))
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(delta.DeltaTable, "_commit_log", crash)
        run(broker, topic, table, state=state)
    assert delays(table) == list(range(20))
    send(broker, topic, range(30, 35))
    options: dict[str, Any] = {"columns": COLUMNS, "state_dir": backup, "resume": True}
    assert ingest(DirectExecutor(), broker.url, topic, f"delta:{table}", IngestSettings(**options)).rows == 5
    assert delays(table) == list(range(35))


def test_what_another_run_left_beside_the_table_is_not_taken_over(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    table, state, backup = tmp_path / "table", tmp_path / "state", tmp_path / "backup"
    send(broker, topic, range(10))
    run(broker, topic, table, state=state)
    shutil.copytree(state, backup)
    send(broker, topic, range(10, 20))
    run(broker, topic, table, state=state)
    copy = table / "_lading" / "last-manifest.json"
    held = read_manifest(copy)
    write_manifest(copy, dataclasses.replace(held, files=[dataclasses.replace(held.files[0], hash="xxh3-128:00")]))
    with pytest.raises(LocalError, match="with other files than this one's"):
        ingest(
            DirectExecutor(),
            broker.url,
            topic,
            f"delta:{table}",
            IngestSettings(columns=COLUMNS, state_dir=backup, resume=True),
        )
    copy.unlink()
    with pytest.raises(LocalError, match="restore them, or write another table"):
        run(broker, topic, table, state=backup)
    assert delays(table) == list(range(20))


def test_others_may_append_and_compact(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(20))
    run(broker, topic, table)
    write_deltalake(table, DeltaTable(table).to_pyarrow_table().slice(0, 1), mode="append")
    send(broker, topic, range(20, 25))
    run(broker, topic, table)
    assert len(delays(table)) == 26
    held = DeltaTable(table)
    assert held.optimize.compact()["numFilesRemoved"] == 4
    held.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    send(broker, topic, range(25, 30))
    run(broker, topic, table)
    # what was compacted away is not missing
    assert not caplog.records
    assert len(delays(table)) == 31 and set(delays(table)) == set(range(30))
    next(path for path in table.glob("*.parquet") if path.name in held.file_uris()[0]).unlink()
    (newest,) = table.glob(f"{topic}-*-00000004-*.parquet")
    newest.unlink()
    with pytest.raises(CorruptLog, match="has lost rows"):
        run(broker, topic, table)
    assert [record.getMessage() for record in caplog.records if newest.name in record.getMessage()]


def test_a_commit_that_a_change_of_columns_overtakes_is_tried_again(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(10))
    run(broker, topic, table)
    send(broker, topic, range(10, 15))
    commit = DeltaTable.create_write_transaction
    overtaken: list[bool] = []

    def commit_and_be_overtaken(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        if not overtaken:
            overtaken.append(True)
            DeltaTable(table).alter.add_columns([Field("note", PrimitiveType("string"))])
        commit(self, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_be_overtaken)
    run(broker, topic, table)
    assert overtaken and delays(table) == list(range(15))
    assert "note" in DeltaTable(table).schema().to_arrow().names


def test_two_runners_of_one_batch_show_it_once(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(10))
    run(broker, topic, table)
    send(broker, topic, range(10, 15))
    commit, commit_log, done = DeltaTable.create_write_transaction, delta.DeltaTable._commit_log, list[bool]()

    def commit_and_be_overtaken(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        if not done:
            done.append(True)
            files = PipelineStateDirectory.open(table, topic).manifests.last()
            assert files is not None
            commit_log(delta.DeltaTable(table), DeltaTable(table), (files.pipeline, files.number), files.files)
        commit(self, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_be_overtaken)
    run(broker, topic, table)
    assert done and delays(table) == list(range(15))


def test_log_and_files_are_on_disk_before_the_state_knows(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after that finds them whole: each was synced at its full size, and their directories."""
    table = tmp_path / "table"
    synced: dict[int, int] = {}
    sync, note, looked = os.fsync, PipelineStateDirectory.note_published, list[int]()

    def sync_and_remember(fd: int) -> None:
        sync(fd)
        synced[os.fstat(fd).st_ino] = os.fstat(fd).st_size

    def look_and_note(self: PipelineStateDirectory, number: int) -> None:
        held = DeltaTable(table)
        logged = list((table / "_delta_log").glob("*.json"))
        assert len(logged) == held.version() + 1
        for path in (*logged, *map(Path, held.file_uris())):
            assert synced.get(path.stat().st_ino) == path.stat().st_size, path
        assert {table.stat().st_ino, (table / "_delta_log").stat().st_ino} <= synced.keys()
        looked.append(number)
        note(self, number)

    monkeypatch.setattr(os, "fsync", sync_and_remember)
    monkeypatch.setattr(PipelineStateDirectory, "note_published", look_and_note)
    send(broker, topic, range(25))
    run(broker, topic, table)
    assert looked == [1, 2, 3]


def test_columns_are_added_and_keep_their_types(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(3))
    run(broker, topic, table, "offset, delay int")
    send(broker, topic, range(3, 5))
    run(broker, topic, table, "offset, delay int, carrier string, partition")
    rows = polars.read_delta(str(table)).sort("offset")
    assert rows["carrier"].to_list() == [None] * 3 + ["UA"] * 2
    assert rows["partition"].to_list() == [None] * 3 + [0] * 2
    assert delays(table) == list(range(5))
    DeltaTable(table).alter.add_columns([Field("tail", PrimitiveType("string"))])
    all_columns = "offset, delay int, carrier string, partition"
    with pytest.raises(
        LocalError, match=r"has the column 'tail' as string, and now it would be integer; a table keeps"
    ):
        run(broker, topic, table, f"{all_columns}, tail int")
    with pytest.raises(LocalError, match=r"has the column 'tail', and 'Tail' differs from it in case alone"):
        run(broker, topic, table, f"{all_columns}, Tail string")
    with pytest.raises(LocalError, match=r"has the column 'delay' as int32, and now it would be int64"):
        run(broker, topic, table, "offset, delay bigint, carrier string, partition")


def test_statistics_are_those_that_deltalake_writes(tmp_path: Path) -> None:
    """Of the same file; but that the upper bound of a time is not cut below the times that it bounds."""
    moment = datetime(2024, 2, 29, 12, 0, 1, 123_456, tzinfo=UTC)
    table = pa.table({
        "number": pa.array([3, None, -7], pa.int64()),
        "small": pa.array([1, 2, 3], pa.int8()),
        "text": ["b", "\u00e9", None],
        "day": [date(2024, 1, 2), date(1969, 1, 1), None],
        "moment": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
        "nothing": pa.array([None] * 3, pa.int32()),
    })  # fmt: skip
    write_deltalake(tmp_path, table)
    (path,) = tmp_path.glob("*.parquet")
    (line,) = (
        json.loads(line)["add"] for line in (tmp_path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        if "add" in json.loads(line)
    )  # fmt: skip
    expected, found = json.loads(line["stats"]), json.loads(file_statistics(pq.read_metadata(path)))
    assert expected["maxValues"].pop("moment") == "2024-02-29T12:00:01.123Z"
    assert found["maxValues"].pop("moment") == "2024-02-29T12:00:01.124Z"
    assert found == expected


def test_readers_skip_files_and_no_rows(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(30))
    run(broker, topic, table)
    held = DeltaTable(table)
    times = sorted(held.to_pyarrow_table(columns=["timestamp"])["timestamp"].to_pylist(), key=str)
    for low in (times[0], times[-1]):
        rows = held.to_pyarrow_dataset().to_table(filter=ds.field("timestamp") == low)
        assert rows.num_rows == times.count(low)
    assert held.to_pyarrow_dataset().to_table(filter=ds.field("offset") >= 25)["offset"].to_pylist() == [*range(25, 30)]
    assert polars.scan_delta(str(table)).filter(polars.col("offset") >= 25).collect().height == 5
