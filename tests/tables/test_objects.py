"""Tables on an S3 server, read back by readers nobody here wrote."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.model.errors import LocalError, RemoteError, SettingError
from lading.tables.formats import delta, directory, iceberg
from lading.tables.formats.registry import open_table
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.local import LocalExecutor
from lading.tables.query import QuerySource, run_query
from lading.tables.storage.object_path import ObjectPath
from lading.tables.upkeep.optimize import optimize_table
from lading.tables.upkeep.vacuum import vacuum_table

from .deleting import delete_where
from .direct import DirectExecutor
from .logged_forms import COLUMNS, NUMBERS, Crash, crash, send
from .object_faults import run_faulty_store
from .object_forms import FORMS, point_to, read_delta
from .object_server import ObjectServer


@pytest.fixture
def topic() -> str:
    return f"objects{next(NUMBERS)}"


def run(broker: testing.BrokerProcess, topic: str, target: str, state: Path, **options: Any) -> int:
    """Write what waits in a topic into a table, at most ten messages a batch; returns how many rows."""
    given: dict[str, Any] = {"columns": COLUMNS, "max_rows": 10, "state_dir": state, **options}
    return ingest(DirectExecutor(), broker.url, topic, target, IngestSettings(**given)).rows


forms = pytest.mark.parametrize("form", FORMS)


def delays(form: str, table: str) -> list[int]:
    """What readers give, in order."""
    return sorted(FORMS[form][1](table)["delay"].to_list())


@pytest.mark.turns(3)
@forms
def test_a_topic_becomes_a_table_in_a_bucket_and_goes_on(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path, form: str
) -> None:
    table = f"{bucket}/tables/{topic}"
    target = FORMS[form][0] + table
    send(broker, topic, range(25))
    assert run(broker, topic, target, tmp_path / "state") == 25
    assert delays(form, table) == list(range(25))
    send(broker, topic, range(25, 30))
    assert [run(broker, topic, target, tmp_path / "state") for _ in range(2)] == [5, 0]
    rows = FORMS[form][1](table).sort("offset")
    assert rows["offset"].to_list() == list(range(30)) and set(rows["carrier"]) == {"UA"}
    assert not list((ObjectPath.parse(table) / "_lading" / "staged").glob("*"))


def query(sql: str, table: str) -> list[dict[str, Any]]:
    with run_query(sql, QuerySource("lading://127.0.0.1:1", {"t": table})) as result:
        return result.read_all().to_pylist()


@pytest.mark.turns(3)
@forms
def test_a_table_in_a_bucket_is_queried(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path, form: str
) -> None:
    table = f"{bucket}/tables/{topic}"
    target = FORMS[form][0] + table
    send(broker, topic, range(25))
    run(broker, topic, target, tmp_path / "state", partition_by=["carrier", "partition"])
    joined = "select a.carrier, a.partition + 1 as p, count(*) as n from t a join t b using (delay) group by 1, 2"
    for named in {target, f"{form}:{table}"}:
        assert query("select count(*) as n from t", named) == [{"n": 25}]
        assert query(joined, named) == [{"carrier": "UA", "p": 1, "n": 25}]
    with pytest.raises(LocalError, match="no objects below this name; name a table"):
        query("select count(*) as n from t", f"{form}:{bucket}/nothing")
    if form != "parquet":
        with pytest.raises(LocalError, match=f"table {bucket}/tables: .*; name"):
            query("select count(*) as n from t", f"{form}:{bucket}/tables")


SAMPLE = [(delta.DeltaTable, "_commit_log"), (ObjectPath, "replace")]
"""Where runs end in a short run of the tests: where a commit is half done."""


@pytest.mark.parametrize(
    ("form", "method"),
    [
        ("parquet", (ObjectPath, "replace")),
        ("parquet", (directory.DirectoryTable, "commit")),
        ("delta", (delta.DeltaTable, "_commit_log")),
        ("iceberg", (iceberg.IcebergTable, "_commit_log")),
        ("iceberg", (iceberg.IcebergTable, "_note_version")),
    ],
)
def test_a_run_that_ended_in_a_commit_is_completed(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    form: str, method: tuple[Any, str], full: bool,
) -> None:  # fmt: skip
    if not full and method not in SAMPLE:
        pytest.skip("every place runs with LADING_TEST_FULL=1")
    table = f"{bucket}/{topic}"
    target = FORMS[form][0] + table
    send(broker, topic, range(10))
    run(broker, topic, target, tmp_path / "state")
    send(broker, topic, range(10, 30))
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(*method, crash)
        run(broker, topic, target, tmp_path / "state")
    run(broker, topic, target, tmp_path / "state")
    assert delays(form, table) == list(range(30))


@forms
def test_a_second_run_with_a_copy_of_the_state_is_refused(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path, form: str, full: bool
) -> None:
    """Both are past their start when the other commits: an object that one alone can put tells them apart."""
    if not full and form != "parquet":
        pytest.skip("every form runs with LADING_TEST_FULL=1")
    table = f"{bucket}/{topic}"
    target, first, second = FORMS[form][0] + table, tmp_path / "first", tmp_path / "second"
    send(broker, topic, range(10))
    run(broker, topic, target, first)
    shutil.copytree(first, second)
    send(broker, topic, range(10, 20))

    class Overtaken(DirectExecutor):
        def write(self, stage: Any, ranges: Any) -> Any:
            staged = super().write(stage, ranges)
            send(broker, topic, range(20, 25))
            assert run(broker, topic, target, first, max_rows=100) == 15
            return staged

    with pytest.raises(LocalError, match="a second run with a copy of its state wrote it"):
        ingest(Overtaken(), broker.url, topic, target, IngestSettings(columns=COLUMNS, state_dir=second))
    assert delays(form, table) == list(range(25))


@forms
def test_a_state_that_is_older_takes_over_what_the_table_has(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path, form: str, full: bool
) -> None:
    if not full and form != "parquet":
        pytest.skip("every form runs with LADING_TEST_FULL=1")
    table = f"{bucket}/{topic}"
    target, state, backup = FORMS[form][0] + table, tmp_path / "state", tmp_path / "backup"
    send(broker, topic, range(10))
    run(broker, topic, target, state)
    shutil.copytree(state, backup)
    send(broker, topic, range(10, 30))
    run(broker, topic, target, state)
    with pytest.raises(LocalError, match=r"continue where it ends: lading ingest .* --resume"):
        run(broker, topic, target, backup)
    assert run(broker, topic, target, backup, resume=True) == 0
    send(broker, topic, range(30, 35))
    assert run(broker, topic, target, backup) == 5
    assert delays(form, table) == list(range(35))


def test_workers_of_their_own_write_partitions_with_any_name(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path
) -> None:
    from lading import Producer

    carriers = ["UA", "a b", "50%", "x=y", "é"]
    with Producer(broker.url) as producer:
        for row in range(50):
            producer.send(topic, b"{}", headers={"carrier": carriers[row % 5], "delay": row})
    table = f"{bucket}/{topic}"
    executor = LocalExecutor(1)
    try:
        given: dict[str, Any] = {"columns": COLUMNS, "state_dir": tmp_path, "partition_by": ["carrier"]}
        assert ingest(executor, broker.url, topic, f"delta:{table}", IngestSettings(**given)).rows == 50
    finally:
        executor.close()
    rows = read_delta(table)
    assert {(one, two) for one, two in rows.select("carrier", "delay").iter_rows()} == {
        (carriers[row % 5], row) for row in range(50)
    }


def test_what_is_missing_is_one_sentence(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, topic, range(1))
    with pytest.raises(SettingError, match=r"the state directory \(--state\) .*: the state .* is kept in a direct"):
        ingest(DirectExecutor(), broker.url, topic, f"{bucket}/a", IngestSettings(columns=COLUMNS))
    with pytest.raises(SettingError, match="name a bucket and a prefix below it, such as s3://BUCKET/flights"):
        run(broker, topic, "s3://lake", tmp_path)
    with pytest.raises(SettingError, match=r"tables are written to a directory, or to an object store \(s3, gs, abf"):
        run(broker, topic, "hdfs://lake/a", tmp_path)
    with pytest.raises(LocalError, match="the bucket s3://nowhere does not exist; create it, or name another one"):
        run(broker, topic, "s3://nowhere/a", tmp_path)
    with pytest.raises(
        LocalError, match=r"an Iceberg table on an object store needs a catalog, .*: iceberg:CATALOG:s3"
    ):
        run(broker, topic, f"iceberg:{bucket}/a", tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        with pytest.raises(RemoteError, match=r"refuses these credentials \(SignatureDoesNotMatch\); they come from"):
            run(broker, topic, f"delta:{bucket}/a", tmp_path)
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(LocalError, match="no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the"):
            run(broker, topic, f"delta:{bucket}/a", tmp_path)
    assert run(broker, topic, f"delta:{bucket}/a", tmp_path) == 1


def test_a_put_whose_answer_was_lost_is_ours(bucket: str) -> None:
    place = ObjectPath.parse(f"{bucket}/a/b")
    place.create_bytes(b"mine")
    place.create_bytes(b"mine")
    with pytest.raises(FileExistsError):
        place.create_bytes(b"another's")
    assert place.read_bytes() == b"mine"


def test_a_put_that_meets_another_one_of_which_nothing_comes_is_repeated(
    bucket: str, object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 answers 409 ConditionalRequestConflict then: an Iceberg commit failed with it, as if the object were there."""
    with run_faulty_store(object_server.url) as store:
        point_to(object_server, tmp_path, monkeypatch, store.url)
        place = ObjectPath.parse(f"{bucket}/a/b")
        store.arm(0, "conflict")
        place.create_bytes(b"mine")
        assert store.heal() and place.read_bytes() == b"mine"


@pytest.mark.turns(3)
@forms
def test_upkeep_of_a_table_in_a_bucket(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path, form: str
) -> None:
    table = f"{bucket}/tables/{topic}"
    send(broker, topic, range(25))
    run(broker, topic, FORMS[form][0] + table, tmp_path / "state")
    place = ObjectPath.parse(table)
    assert optimize_table(open_table(place)).added_files == 1
    assert delays(form, table) == list(range(25))
    assert delete_where(open_table(place), "delay >= 20", dry_run=False).rows == 5
    assert delays(form, table) == list(range(20))
    assert not list((place / "_lading" / "staged").glob("*"))
    open_table(place).expire_snapshots(2e9, dry_run=False)
    assert len(vacuum_table(open_table(place), -10.0, is_forced=True, dry_run=False)) >= 4
    assert delays(form, table) == list(range(20))
    send(broker, topic, range(25, 30))
    assert run(broker, topic, FORMS[form][0] + table, tmp_path / "state") == 5
    assert delays(form, table) == [*range(20), *range(25, 30)]


@pytest.mark.turns(3)
@forms
def test_one_table_a_topic_in_a_bucket(
    broker: testing.BrokerProcess, topic: str, bucket: str, tmp_path: Path, form: str
) -> None:
    for name, rows in (("north", range(8)), ("south", range(8, 12))):
        send(broker, f"{topic}.{name}", rows)
    target = f"{FORMS[form][0]}{bucket}/{{topic}}"
    pattern: dict[str, Any] = {"topic_pattern": rf"{topic}\..*", "columns": f"topic, {COLUMNS}"}
    settings = IngestSettings(max_rows=10, state_dir=tmp_path / "state", **pattern)
    counts = [ingest(DirectExecutor(), broker.url, None, target, settings).rows for _ in range(2)]
    send(broker, f"{topic}.west", range(12, 15))
    assert [*counts, ingest(DirectExecutor(), broker.url, None, target, settings).rows] == [12, 0, 3]
    found = [delays(form, f"{bucket}/{topic}.{name}") for name in ("north", "south", "west")]
    assert found == [list(range(8)), list(range(8, 12)), list(range(12, 15))]
