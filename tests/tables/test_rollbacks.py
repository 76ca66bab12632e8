"""Another writer takes the table back to before a batch: that is told, with the command that puts its rows back.

The other writers are deltalake and pyiceberg; what Spark's RESTORE notes is taken from Delta's sources.
"""

from __future__ import annotations

import inspect
import itertools
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.table.snapshots import ancestors_of

from lading import testing
from lading.model.errors import LocalError
from lading.tables.commit.state import PipelineStateDirectory
from lading.tables.formats import delta
from lading.tables.formats.logged import LoggedTable
from lading.tables.formats.rollback import LoggedCommit, find_rollback
from lading.tables.ingest import IngestSettings, ingest

from .direct import DirectExecutor
from .logged_forms import COLUMNS, FORMS, NUMBERS, LoggedForm, loaded, owner, run, send
from .object_forms import PLAIN, read_delta


@pytest.fixture
def topic() -> str:
    return f"rollback{next(NUMBERS)}"


def restore_by_version(table: Path, batches: int) -> None:
    DeltaTable(table).restore(_version_after(table, batches))


def restore_by_time(table: Path, batches: int) -> None:
    changed = (table / "_delta_log" / f"{_version_after(table, batches):020d}.json").stat().st_mtime_ns
    DeltaTable(table).restore(datetime.fromtimestamp((changed // 1_000_000 + 1) / 1000, UTC))


def _version_after(table: Path, batches: int) -> int:
    return next(
        (int(one["version"]) for one in DeltaTable(table).history() if one.get("lading.manifest") == batches), 0
    )


def roll_back(table: Path, batches: int) -> None:
    held = loaded(table)
    ancestors = [one.snapshot_id for one in ancestors_of(held.current_snapshot(), held.metadata)]
    held.manage_snapshots().rollback_to_snapshot(ancestors[-batches]).commit()


def roll_back_and_forget(table: Path, batches: int) -> None:
    roll_back(table, batches)
    held = loaded(table)
    ancestors = [one.snapshot_id for one in ancestors_of(held.current_snapshot(), held.metadata)]
    for snapshot in [one for one in held.snapshots() if one.snapshot_id not in ancestors]:
        held.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()


BACK: list[Any] = [
    pytest.param(FORMS[0], restore_by_version, id="restore-version"),
    pytest.param(FORMS[0], restore_by_time, id="restore-time"),
    pytest.param(FORMS[1], roll_back, id="rollback"),
    pytest.param(FORMS[1], roll_back_and_forget, id="rollback-expire"),
]
back = pytest.mark.parametrize(("form", "take_back"), BACK)


def delays(form: LoggedForm, table: Path) -> list[int]:
    """What readers of the log give, in order; a directory's newest metadata are those that a rollback leaves behind."""
    if form.name == "delta":
        return form.delays(table)
    held: list[Any] = loaded(table).scan(selected_fields=("delay",)).to_arrow()["delay"].to_pylist()
    return sorted(held)


Taking = Callable[[Path, int], None]


def resume(command: str) -> None:
    """Do what a refusal says to do, in this process."""
    words = shlex.split(command)
    assert words[:2] == ["lading", "ingest"] and "--resume" in words
    given = dict(itertools.pairwise(words))
    ingest(
        DirectExecutor(),
        given["--from"],
        words[2],
        words[3],
        IngestSettings(columns=given["--columns"], resume=True, state_dir=given.get("--state")),
    )


def command_in(error: LocalError) -> str:
    text = str(error)
    assert "\n" not in text
    return text.partition(" put them back and continue: ")[2]


@pytest.mark.turns(3)
@back
def test_a_table_that_was_taken_back_is_refused_and_mended_by_the_command(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: LoggedForm, take_back: Taking
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(30))
    run(form.name, broker, topic, table)
    take_back(table, 1)
    assert delays(form, table) == list(range(10))
    send(broker, topic, range(30, 35))
    for _ in range(2):
        with pytest.raises(
            LocalError,
            match=r"was taken back by another writer \(.*\) to before the 20 rows of manifests 2 to 3 of pipeli",
        ) as refused:
            run(form.name, broker, topic, table)
    assert delays(form, table) == list(range(10))
    resume(command_in(refused.value))
    assert delays(form, table) == list(range(35))
    assert run(form.name, broker, topic, table).rows == 0
    # and again, to before what was put back in between
    take_back(table, 2)
    assert len(delays(form, table)) < 35
    with pytest.raises(LocalError, match="was taken back by another writer") as refused:
        run(form.name, broker, topic, table)
    resume(command_in(refused.value))
    assert delays(form, table) == list(range(35))


@pytest.mark.turns(3)
@back
def test_between_two_batches_of_a_run(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: LoggedForm,
    take_back: Taking,
) -> None:  # fmt: skip
    table, note = tmp_path / "table", PipelineStateDirectory.note_published
    send(broker, topic, range(40))

    def take_back_the_second(self: PipelineStateDirectory, number: int) -> None:
        note(self, number)
        if number == 2:
            take_back(table, 1)

    with monkeypatch.context() as patch:
        patch.setattr(PipelineStateDirectory, "note_published", take_back_the_second)
        with pytest.raises(LocalError, match="to before the 10 rows of manifest 2 of pipeline") as refused:
            run(form.name, broker, topic, table)
    assert delays(form, table) == list(range(10))
    with pytest.raises(LocalError, match="to before the 10 rows of manifest 2 of pipeline"):
        run(form.name, broker, topic, table)
    resume(command_in(refused.value))
    assert delays(form, table) == list(range(40))
    assert run(form.name, broker, topic, table).rows == 0


@pytest.mark.turns(3)
@pytest.mark.parametrize(("form", "take_back"), BACK[:3])
def test_a_change_that_overtakes_a_commit_is_told_by_the_next(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: LoggedForm,
    take_back: Taking,
) -> None:  # fmt: skip
    """Between the look at the log and the commit; neither format refuses to append then."""
    table, commit_log, done = tmp_path / "table", LoggedTable._find_rollback, list[bool]()
    send(broker, topic, range(20))
    run(form.name, broker, topic, table)
    send(broker, topic, range(20, 30))

    def be_overtaken(self: Any, *arguments: Any) -> Any:
        found = commit_log(self, *arguments)
        if not done and self._read_last_number(self._load(), arguments[1]) == 2 and _is_in_commit():
            done.append(True)
            take_back(table, 1)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(LoggedTable, "_find_rollback", be_overtaken)
        with pytest.raises(LocalError, match="to before the 10 rows of manifest 2 of pipeline") as refused:
            run(form.name, broker, topic, table)
    assert done and delays(form, table) == [*range(10), *range(20, 30)]
    resume(command_in(refused.value))
    assert delays(form, table) == list(range(30)) and run(form.name, broker, topic, table).rows == 0


def _is_in_commit() -> bool:
    return any(frame.function == "commit" and "logged" in frame.filename for frame in inspect.stack())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_table_that_its_user_brings_forward_again_is_in_order(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: LoggedForm
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(20))
    run(form.name, broker, topic, table)
    if form.name == "delta":
        restore_by_version(table, 1)
        restore_by_version(table, 2)
    else:
        newest = loaded(table).metadata.current_snapshot_id
        roll_back(table, 1)
        loaded(table).manage_snapshots().set_current_snapshot(newest).commit()
    send(broker, topic, range(20, 25))
    assert run(form.name, broker, topic, table).rows == 5
    assert delays(form, table) == list(range(25))


@pytest.mark.turns(2, part=1)
def test_rows_that_others_deleted_and_snapshots_that_expired_are_no_rollback(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    table, other = tmp_path / "iceberg", tmp_path / "delta"
    send(broker, topic, range(30))
    run("iceberg", broker, topic, table)
    run("delta", broker, topic, other, state=tmp_path / "state")
    held = loaded(table)
    held.manage_snapshots().create_tag(held.snapshots()[0].snapshot_id, "first").commit()
    held.overwrite(held.scan().to_arrow().slice(0, 25))
    for snapshot in loaded(table).snapshots()[1:3]:
        held.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    # of ours there is one, which a tag keeps and no chain leads to
    assert len([one for one in loaded(table).snapshots() if one.summary and one.summary["lading.manifest"]]) == 1
    DeltaTable(other).delete("delay < 5")
    DeltaTable(other).optimize.compact()
    send(broker, topic, range(30, 35))
    assert run("iceberg", broker, topic, table).rows == 5
    assert run("delta", broker, topic, other, state=tmp_path / "state").rows == 5
    assert DeltaTable(other).to_pyarrow_table().num_rows == 30


@pytest.mark.turns(3)
@back
def test_what_cannot_be_put_back(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: LoggedForm, take_back: Taking
) -> None:
    """A file that is gone."""
    table = tmp_path / "table"
    send(broker, topic, range(20))
    run(form.name, broker, topic, table)
    take_back(table, 1)
    (file,) = table.glob(f"{owner(table)}-00000002-*.parquet")
    held = file.read_bytes()
    file.unlink()
    before = delays(form, table)
    with pytest.raises(LocalError, match=r"00000002.*, which .* took out of it .*, is missing and cannot be put back"):
        ingest(
            DirectExecutor(), broker.url, topic, f"{form.name}:{table}", IngestSettings(columns=COLUMNS, resume=True)
        )
    file.write_bytes(held)
    assert delays(form, table) == before
    ingest(DirectExecutor(), broker.url, topic, f"{form.name}:{table}", IngestSettings(columns=COLUMNS, resume=True))
    assert delays(form, table) == list(range(20))


@pytest.mark.turns(2, part=0)
def test_a_table_in_a_bucket(broker: testing.BrokerProcess, topic: str, tmp_path: Path, bucket: str) -> None:
    table = f"{bucket}/table"
    given: dict[str, Any] = {"columns": COLUMNS, "max_rows": 10, "state_dir": tmp_path}
    send(broker, topic, range(20))
    ingest(DirectExecutor(), broker.url, topic, f"delta:{table}", IngestSettings(**given))
    DeltaTable(table, storage_options=PLAIN).restore(1)
    assert read_delta(table)["delay"].sort().to_list() == list(range(10))
    with pytest.raises(LocalError, match=r"\(RESTORE in version 3\) to before the 10 rows of manifest 2 of") as refused:
        ingest(DirectExecutor(), broker.url, topic, f"delta:{table}", IngestSettings(**given))
    resume(command_in(refused.value))
    assert read_delta(table)["delay"].sort().to_list() == list(range(20))


def commits(*rows: tuple[int, bool | None]) -> list[LoggedCommit]:
    notes = [{"lading.pipeline": "p", "lading.manifest": str(number)} for number, _ in rows]
    return [LoggedCommit(note, there, "a test") for note, (_, there) in zip(notes, rows, strict=True)]


def test_logs_that_were_cleaned_up_tell_nothing() -> None:
    assert find_rollback([], "p", 7) is None
    assert find_rollback(commits((3, None), (2, None)), "p", 7) is None
    assert find_rollback([LoggedCommit({"operation": "OPTIMIZE"}, True), *commits((7, True))], "p", 7) is None
    assert find_rollback(commits((7, True), (5, False), (3, True), (2, False)), "p", 7) is not None
    found = find_rollback(commits((5, False), (4, True), (3, True), (2, False)), "p", 5)
    assert found is not None and found.numbers == (5,) and found.by == "a test"


@pytest.mark.parametrize(
    ("parameters", "there"),
    [
        # DeltaOperations.Restore writes both, the one that its user did not give as null or not at all
        ({"version": "1", "timestamp": None}, [False, True, True]),
        ({"timestamp": "1970-01-01 00:00:02+00:00"}, [False, True, True]),
        ({"timestamp": "the day before yesterday"}, [None, None, None]),
        ({}, [None, None, None]),
    ],
)
def test_what_spark_notes_of_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any], there: list[bool | None]
) -> None:
    history: list[dict[str, Any]] = [{"version": 3, "timestamp": 4000, "operation": "RESTORE"}]
    history[0]["operationParameters"] = parameters
    history += [{"version": version, "timestamp": 1000 * version + 1000} for version in (2, 1, 0)]
    monkeypatch.setattr(delta, "_read_history", lambda table: iter(history))
    found: Any = delta.DeltaTable(tmp_path)._list_commits(None)  # type: ignore[arg-type]
    assert [commit.in_table for commit in found] == [True, *there]
