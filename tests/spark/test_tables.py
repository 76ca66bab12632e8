"""The table path: every message in the table once, whatever fails and whatever changes in between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from lading import testing
from lading.model.errors import CorruptLog, LocalError, SettingError
from lading.spark.tables import ingest
from lading.tables import ingest as ingesting
from lading.tables.commit.state import PipelineStateDirectory
from lading.tables.formats.directory import hash_of
from lading.tables.formats.manifest import Manifests
from lading.tables.formats.parquet import ParquetTable
from lading.tables.ingest import IngestProgress, IngestReport

from .conftest import IGGY_ROWS, NATIVE_ROWS, ROOT
from .faults import PHASES, FaultyWriter, arm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
TOPIC = "air.flights"
COLUMNS = "partition, offset, carrier string, delay int"
ROWS = 2 * NATIVE_ROWS + IGGY_ROWS

Ingest = Callable[..., IngestReport]


@pytest.fixture
def run(spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ingest:
    """Ingest the topic into ``tmp_path / "table"``, in three batches of about four files each."""
    monkeypatch.setattr(ingesting, "TableWriter", FaultyWriter)

    def call(**changes: Any) -> IngestReport:
        options: dict[str, Any] = {"columns": COLUMNS, "max_rows": 30_000, "max_rows_per_partition": 8_000} | changes
        from_ = options.pop("from_", str(broker.data_dir))
        return ingest(spark, from_, TOPIC, tmp_path / "table", **options)

    return call


def table_of(directory: Path) -> pa.Table:
    return ds.dataset(directory, format="parquet").to_table()


def assert_every_message_once(table: pa.Table, rows: int = ROWS) -> None:
    places = table.select(["partition", "offset"]).group_by(["partition", "offset"]).aggregate([])
    assert (table.num_rows, places.num_rows) == (rows, rows)
    for partition, count in ((0, NATIVE_ROWS), (1, NATIVE_ROWS), (2, IGGY_ROWS)):
        mine = table.filter(pc.field("partition") == partition).sort_by("offset")
        assert mine["offset"].to_pylist() == list(range(count))
        # values follow from the offset: see conftest
        assert mine["delay"].to_pylist() == [None if at % 10 == 9 else at - 100 for at in range(count)]


def staged(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "_lading" / "staged").iterdir())


def test_a_topic_becomes_a_table_and_goes_on(
    run: Ingest, spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    told: list[IngestProgress] = []
    report = run(on_progress=told.append)
    table = tmp_path / "table"
    assert_every_message_once(table_of(table))
    assert (report.rows, report.read, report.batches, report.bad_values) == (ROWS, ROWS, 3, 0)
    files = sorted(table.glob("*.parquet"))
    assert (report.files, report.size_bytes) == (len(files), sum(path.stat().st_size for path in files))
    assert [now.batches for now in told] == [1, 2, 3]
    assert [now.rows + now.lag for now in told] == [ROWS] * 3
    assert staged(table) == []
    # the manifests say the same: each file's rows and hash, every offset covered
    manifests = [manifest_of(table).read(number) for number in (1, 2, 3)]
    listed = {file.name: file for manifest in manifests for file in manifest.files}
    assert {path.name: hash_of(path) for path in files} == {name: file.hash for name, file in listed.items()}
    assert [intervals for parts in manifests[-1].covered.values() for intervals in parts.values()] == [
        [(0, NATIVE_ROWS)], [(0, NATIVE_ROWS)], [(0, IGGY_ROWS)],
    ]  # fmt: skip
    # nothing new: nothing happens; from the network it is the same topic
    assert run().batches == 0
    assert run(from_=broker.url).batches == 0
    # Spark reads what the DataFrame path would show
    frame = spark.read.parquet(str(table)).orderBy("partition", "offset")
    direct = (
        spark.read.format("lading").schema("partition int, offset bigint, carrier string, delay int")
        .option("from", broker.url).option("topic", TOPIC).load().orderBy("partition", "offset")
    )  # fmt: skip
    assert frame.toArrow().cast(direct.toArrow().schema).equals(direct.toArrow())


def manifest_of(table: Path) -> Manifests:
    return PipelineStateDirectory.open(table, TOPIC).manifests


def test_where_and_all_columns(run: Ingest, tmp_path: Path) -> None:
    report = run(columns=None, where="CAST(delay AS int) >= 20000", file_bytes=10_000)
    table = table_of(tmp_path / "table")
    expected = sum(1 for at in range(NATIVE_ROWS) if at % 10 != 9 and at - 100 >= 20_000) * 2
    assert (report.rows, report.read, table.num_rows) == (expected, ROWS, expected)
    assert set(table.schema.names) >= {"stream", "topic", "headers", "payload", "checksum"}
    assert table["headers"][0].as_py()[0]["key"] == "carrier"
    assert {path.stat().st_size > 0 for path in (tmp_path / "table").glob("*.parquet")} == {True}


@pytest.mark.turns(2)
@pytest.mark.parametrize("phase", PHASES)
def test_a_failure_and_a_restart(run: Ingest, tmp_path: Path, phase: str) -> None:
    table = tmp_path / "table"
    arm(table, phase, "fail")
    if phase == "task":
        # Spark tries the task again by itself; its first file is never published
        run()
    else:
        with pytest.raises(Exception, match=f"injected: {phase}"):
            run()
        assert not (table / "_lading" / "faults" / phase).exists()
        run()
    assert_every_message_once(table_of(table))
    assert staged(table) == []
    print(f"failed in {phase}, restarted: {ROWS:,} of {ROWS:,} rows, each once")


def test_columns_and_ranges_changed_between_crash_and_restart(
    run: Ingest, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    arm(table, "renames", "fail")
    with pytest.raises(Exception, match="injected: renames"):
        run()
    published = len(list(table.glob("*.parquet")))
    first = manifest_of(table).read(1)
    assert 0 < published < len(first.files)
    more = f"{COLUMNS}, tail string"
    report = run(columns=more, from_=broker.url, max_rows=25_000, max_rows_per_partition=6_000, compression="zstd")
    # the batch that was interrupted is what its manifest says, under the old columns
    assert all(hash_of(table / file.name) == file.hash for file in first.files)
    assert manifest_of(table).read(1) == first
    assert_every_message_once(table_of(table))
    tails = [path.name for path in table.glob("*.parquet") if "tail" in ds.dataset(path).schema.names]
    assert {file.name for file in first.files}.isdisjoint(tails)
    assert len(tails) == report.files
    for changed, name in ((COLUMNS, "'tail'"), (more.replace("delay int", "delay bigint"), "'delay' as int32")):
        with pytest.raises(LocalError, match=name):
            run(columns=changed)


def test_a_killed_driver(run: Ingest, broker: testing.BrokerProcess, tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("whole with LADING_TEST_FULL=1: the sample is the killed driver of tests/pipeline, by the same way")
    for phase in PHASES:
        table = tmp_path / "table"
        arm(table, phase, "kill")
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.killed", str(table), str(broker.data_dir), TOPIC, COLUMNS],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=180, capture_output=True,
        )  # fmt: skip
        assert done.returncode == -9, done.stderr[-2000:]
        run()
        assert_every_message_once(table_of(table))
        assert staged(table) == []
        print(f"driver killed in {phase}, restarted: {ROWS:,} of {ROWS:,} rows, each once")
        table.rename(tmp_path / f"killed-{phase}")


def test_without_its_checkpoint_nothing_is_doubled(run: Ingest, tmp_path: Path) -> None:
    run(starting='{"0": 10000, "1": "latest", "2": "latest"}')
    table = tmp_path / "table"
    (table / "_lading" / "checkpoint").rename(tmp_path / "checkpoint")
    with pytest.raises(LocalError, match=r"checkpoint is missing") as refused:
        run()
    assert f"lading ingest {TOPIC} {table}" in str(refused.value)
    assert "--resume" in str(refused.value)
    assert run(resume=True).batches == 0
    assert table_of(table).num_rows == NATIVE_ROWS - 10_000


def test_a_checkpoint_that_is_too_old_doubles_nothing(run: Ingest, tmp_path: Path) -> None:
    table = tmp_path / "table"
    arm(table, "manifest", "fail")
    with pytest.raises(Exception, match="injected: manifest"):
        run()
    checkpoint = table / "_lading" / "checkpoint"
    copytree(checkpoint, tmp_path / "old")
    run()
    rmtree(checkpoint)
    (tmp_path / "old").rename(checkpoint)
    with pytest.raises(LocalError, match=r"published already .* --resume"):
        run()
    assert run(resume=True).batches == 0
    assert_every_message_once(table_of(table))


def test_what_is_not_ours_is_not_touched(
    run: Ingest, spark: SparkSession, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    table.mkdir()
    (table / "theirs.parquet").write_bytes(b"x")
    with pytest.raises(LocalError, match=r"'theirs.parquet', which Lading did not write"):
        run()
    (table / "theirs.parquet").unlink()
    run(where="offset < 100")
    with pytest.raises(LocalError, match=r"is written by pipeline 'air-flights-"):
        run(state_dir=tmp_path / "elsewhere")
    with pytest.raises(LocalError, match=r"belongs to topic 'air.flights', not to 'other'"):
        PipelineStateDirectory.open(table, "other")
    state = PipelineStateDirectory.open(table, TOPIC)
    with state.running(), pytest.raises(LocalError, match=f"another run writes .*process {os.getpid()}"):
        run()
    with pytest.raises(SettingError, match=r"\(--state\) .s3://bucket/table.: the state .* name a directory"):
        ingest(spark, str(broker.data_dir), TOPIC, "s3://bucket/table")
    with pytest.raises(LocalError, match=r"topic 'air.flight' does not exist"):
        ingest(spark, str(broker.data_dir), "air.flight", tmp_path / "other")


def test_a_run_that_was_replaced_publishes_nothing(tmp_path: Path) -> None:
    state = PipelineStateDirectory.open(tmp_path, TOPIC)
    with state.running() as old:
        pass
    with state.running() as new:
        with pytest.raises(LocalError, match="another run took over"), state.committing(old):
            pytest.fail("the old run got in")
        with state.committing(new):
            ParquetTable(tmp_path).claim(state.pipeline)


def test_a_file_that_was_changed_before_it_was_published_is_told(run: Ingest, tmp_path: Path) -> None:
    table = tmp_path / "table"
    arm(table, "renames", "fail")
    with pytest.raises(Exception, match="injected: renames"):
        run()
    victim = next((table / "_lading" / "staged").iterdir())
    victim.write_bytes(b"short")
    with pytest.raises(CorruptLog, match=victim.name):
        run()
    victim.unlink()
    with pytest.raises(CorruptLog, match="neither"):
        run()


def test_errors_in_workers_are_told_as_they_are(run: Ingest, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"topic 'air.flights', partition \d, offset \d+: header 'tail' has the value"):
        run(columns="offset, tail int", on_bad_value="fail")
    assert staged(tmp_path / "table") == []
