"""Runs that end before the end of their topic, and the ranges that they read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from lading import Producer, read_arrow
from lading.model.errors import LocalError, SettingError
from lading.pipeline.replace import ReplaceReport, replace_range
from lading.pipeline.run import run
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.state import existing
from lading.tables.commit import table_commit
from lading.tables.commit.table_commit import find_changed_files
from lading.tables.formats.registry import open_table
from lading.tables.upkeep.optimize import optimize_table
from tests.tables.direct import DirectExecutor

from .conftest import PARTITIONS, ROWS, Place
from .direct import Driver, no_session
from .flights import assert_every_message_once, fate, found


def test_a_run_ends_where_the_file_says_and_the_next_continues(place: Place) -> None:
    counts = Driver(
        place.write(lambda text: text.replace("[headers]", "starting = 100\nending = 700\n\n[headers]"))
    ).run()
    assert counts["read"] == PARTITIONS * 600
    assert {offset for _, offset in found(place.tables)} == set(range(100, 700))
    counts = Driver(place.write()).run()
    assert counts["read"] == PARTITIONS * (ROWS - 700)


def test_the_command_line_bounds_every_source(place: Place) -> None:
    settings = PipelineSettings.load(place.write()).with_range("10", "2026-01-31T12:00")
    assert [(one.starting, one.ending) for one in settings.document.source] == [("10", "2026-01-31T12:00")]
    with pytest.raises(SettingError, match="a run with --follow has no end"):
        run(no_session, settings, follow=True)
    Driver(place.write()).run()
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


def test_read_arrow_takes_the_same_expressions(place: Place) -> None:
    def offsets(start: object, end: object) -> list[object]:
        table = read_arrow(place.url, place.topic, "partition, offset", start=start, end=end, verify_checksum=False)  # type: ignore[arg-type]
        return [row["offset"] for row in table.to_pylist() if row["partition"] == 0]

    assert offsets("5", 8) == [5, 6, 7]
    assert offsets("-2", "now") == offsets(-2, "latest") == [ROWS - 2, ROWS - 1]
    assert offsets("earliest", "2020-01-31T12:00") == offsets("earliest", datetime(2020, 1, 31, 12, tzinfo=UTC)) == []
    with pytest.raises(SettingError, match="begins at offset 8 and ends before it, at offset 5"):
        offsets(8, "5")
    with pytest.raises(SettingError, match="write earliest, latest"):
        offsets("soon", "latest")


def test_a_range_that_cannot_be_replaced_says_why(place: Place) -> None:
    def refused(change: Callable[[str], str], starting: str, ending: str) -> str:
        with pytest.raises((LocalError, SettingError)) as error:
            replace_range(PipelineSettings.load(place.write(change)), DirectExecutor(), starting, ending)
        return str(error.value)

    def same(text: str) -> str:
        return text

    assert "has not run yet" in refused(same, "0", "now")
    Driver(place.write(lambda text: text.replace("[headers]", "ending = 300\n\n[headers]"))).run()
    assert "no message from 300 to now is published" in refused(same, "300", "now")
    assert "begins at offset 9 and ends before it, at offset 3" in refused(same, "9", "3")
    assert "begins at 2026-02-01T00:00:00+00:00 and ends" in refused(same, "2026-02-01", "2026-01-01")
    assert "it takes earliest, latest" in refused(same, "yesterday", "now")
    assert "SQL steps" in refused(lambda text: f"{text}\n[[step]]\nsql = 'select * from messages'\n", "0", "now")
    assert len(found(place.tables)) == PARTITIONS * 300


def test_offsets_that_a_topic_gave_twice_are_not_replaced(place: Place) -> None:
    """Rows of the topic of before have the same places, and nothing can read them again."""

    def change(text: str) -> str:
        return text.replace("[headers]", "fail_on_data_loss = false\n\n[headers]")

    Driver(place.write(lambda text: change(text).replace("[headers]", "ending = 100\n\n[headers]"))).run()
    place.transport.delete_topic(place.topic)
    place.transport.create_topic(place.topic, PARTITIONS)
    with Producer(place.url) as producer:
        for number in range(20):
            producer.send(place.topic, b"{}", partition=0, headers={"carrier": f"U{number}"})
    file = place.write(change)
    assert Driver(file).run()["read"] == 20
    with pytest.raises(LocalError, match="its offsets from 0 to 99 were given to other messages before") as refused:
        replace_range(PipelineSettings.load(file), DirectExecutor(), "0", "now")
    assert "begin at offset 100 or later" in str(refused.value)
    assert len(found(place.tables)) == PARTITIONS * 100


def test_a_dry_run_changes_nothing_and_a_time_is_that_of_the_messages(place: Place) -> None:
    file = place.write()
    Driver(file).run()
    before = sorted(place.tables.rglob("*.parquet"))
    settings = PipelineSettings.load(file)
    report = replace_range(settings, DirectExecutor(), "2020-01-01", "2999-01-01", dry_run=True)
    assert report.read == PARTITIONS * ROWS and report.manifest is None
    assert (
        sum(gone for gone, _ in report.tables.values()) == sum(new for _, new in report.tables.values()) == report.read
    )
    assert sorted(place.tables.rglob("*.parquet")) == before
    report = replace_range(settings, DirectExecutor(), "100", '{"0": 150, "1": 100}')
    assert [(piece.partition, piece.start, piece.end) for piece in report.ranges] == [(0, 100, 150)]
    assert report.manifest == 3
    state = existing(settings)
    last = state.manifests.read(3)
    assert (last.replaces, last.counts["replaced.read"]) == (report.ranges, 50)
    assert last.positions == state.manifests.read(2).positions
    assert_every_message_once(place.tables, PARTITIONS, ROWS)
    assert not list(place.tables.glob("*/_lading/staged/*"))


def test_rows_of_deleted_files_come_back_by_a_replacement(place: Place) -> None:
    """Until then each run ends with the problems that are found here."""
    file = place.write()
    Driver(file).run()
    settings = PipelineSettings.load(file)
    state = existing(settings)
    for path in (place.tables / "flights").rglob("*.parquet"):
        path.unlink()
    assert [problem.loses_rows for problem in find_changed_files(state)] == [True] * len(state.manifests.numbers())
    replace_range(settings, DirectExecutor(), "100", "now")
    [first] = find_changed_files(state)
    assert "that manifest 1 of pipeline" in first.sentence
    replace_range(settings, DirectExecutor(), "earliest", "now")
    assert not find_changed_files(state)
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


@pytest.mark.parametrize(("older_s", "is_found"), [(60.0, True), (0.0, False)])
def test_manifests_before_the_newest_thousand_are_checked_while_there_is_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, older_s: float, is_found: bool
) -> None:
    """A directory of Parquet has no log: a file of its first run that is gone was never missed after 1,000 runs."""
    file = place.write()
    Driver(file).run()
    settings = PipelineSettings.load(file)
    state = existing(settings)
    assert len(state.manifests.numbers()) > 1
    for _, path in sorted((path.stat().st_mtime_ns, path) for path in (place.tables / "flights").rglob("*.parquet"))[
        :1
    ]:
        path.unlink()
    monkeypatch.setattr(table_commit, "MANIFESTS_CHECKED", 1)
    monkeypatch.setattr(table_commit, "OLDER_CHECKED_S", older_s)
    assert [problem.loses_rows for problem in find_changed_files(state)] == [True] * is_found


@pytest.mark.parametrize("form", ["parquet", "delta", "iceberg"])
def test_runs_go_on_between_the_steps_of_a_replacement(place: Place, form: str) -> None:
    """A run begins, sweeps what nothing needs, publishes and ends after the range was staged; an optimize does, too."""

    def change(text: str) -> str:
        return text.replace('to = "parquet:./tables/flights"', f'to = "{form}:./tables/flights"')

    Driver(place.write(lambda text: change(text).replace("[headers]", "ending = 600\n\n[headers]"))).run()
    file = place.write(change)

    def go_on(report: ReplaceReport) -> None:
        assert report.read == PARTITIONS * 600
        Driver(file).run()
        optimize_table(open_table(place.tables / "flights"))

    report = replace_range(PipelineSettings.load(file), DirectExecutor(), "earliest", "now", confirm=go_on)
    assert report.read == PARTITIONS * 600
    assert_every_message_once(place.tables, PARTITIONS, ROWS)
    assert not list(place.tables.glob("*/_lading/staged/*"))
    assert Driver(file).run() == {}
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


@pytest.mark.turns(2, part=0)
def test_a_replacement_that_is_killed(place: Place) -> None:
    """``kill -9`` of the command at moments spread over its run; the next command completes it, or nothing was done."""
    Driver(place.write()).run()
    file = place.write(lambda text: text.replace("delay > 60", "delay > 100"))
    program = (
        "import sys; from lading.pipeline.replace import ReplaceReport, replace_range\n"
        "from lading.pipeline.settings import PipelineSettings\n"
        "from tests.tables.direct import DirectExecutor\n"
        "print('begun', flush=True)\n"
        "replace_range(PipelineSettings.load(__import__('pathlib').Path(sys.argv[1])), DirectExecutor(), '0', '800')"
    )
    for delay_s in (0.05, 0.2, 0.4):
        process = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        with suppress(subprocess.TimeoutExpired):
            process.wait(delay_s)
        process.kill()
        process.wait()
        process.stdout.close()
        Driver(file).run()
        kinds = found(place.tables)
        assert len(kinds) == PARTITIONS * ROWS and all(len(held) == 1 for held in kinds.values())
        late = {row for (_, row), held in kinds.items() if held == ["late"] and row < 800}
        assert late in ({row for row in range(800) if fate(row) == "late"},
                        {row for row in range(800) if fate(row) == "late" and row % 200 > 100})  # fmt: skip


def test_rows_of_a_table_that_others_made_are_not_replaced(place: Place) -> None:
    """Rows of others may have the same partitions and offsets as those of a range."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    columns = ["partition", "offset", "carrier"]
    theirs = pa.table([pa.array([0], pa.int32()), pa.array([5], pa.int64()), pa.array(["XX"])], names=columns)
    write_deltalake(place.tables / "theirs", theirs)

    def change(text: str) -> str:
        head, good, rest = text.partition("[good]\n")
        _, _, others = rest.partition("\n[")
        return f"{head}{good}to = 'delta:{place.tables}/theirs'\ncolumns = {columns}\n\n[{others}"

    settings = PipelineSettings.load(place.write(change))
    Driver(place.write(change)).run()
    rows = DeltaTable(place.tables / "theirs").to_pyarrow_table()
    assert rows.num_rows > 1
    with pytest.raises(LocalError, match="was made by another writer, whose rows may have the same places"):
        replace_range(settings, DirectExecutor(), "0", "10")
    assert DeltaTable(place.tables / "theirs").to_pyarrow_table().num_rows == rows.num_rows
