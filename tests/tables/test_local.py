"""Topics into tables in processes of this machine: the same tables as Spark's, and no worker outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from lading import testing
from lading.model.errors import LocalError
from lading.tables.commit.table_commit import StagedRange
from lading.tables.executor import Stage
from lading.tables.ingest import IngestProgress, IngestReport, IngestSettings, ingest
from lading.tables.local import LocalExecutor
from lading.tables.plan.ranges import OffsetRange
from tests.spark.conftest import IGGY_ROWS, NATIVE_ROWS
from tests.spark.test_tables import COLUMNS, ROWS, TOPIC, assert_every_message_once, staged, table_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    workers = LocalExecutor(2)
    yield workers
    workers.close()


THREE_BATCHES = IngestSettings(columns=COLUMNS, max_rows=30_000, max_rows_per_partition=8_000)
"""Of about four ranges each."""


def run(
    executor: LocalExecutor,
    broker: testing.BrokerProcess,
    table: Path,
    settings: IngestSettings = THREE_BATCHES,
    on_progress: Callable[[IngestProgress], None] | None = None,
) -> IngestReport:
    return ingest(executor, str(broker.data_dir), TOPIC, table, settings, on_progress=on_progress)


def test_a_topic_becomes_a_table_and_goes_on(
    executor: LocalExecutor, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    told: list[IngestProgress] = []
    report = run(executor, broker, tmp_path / "t", on_progress=told.append)
    assert_every_message_once(table_of(tmp_path / "t"))
    assert (report.rows, report.read, report.batches) == (ROWS, 2 * NATIVE_ROWS + IGGY_ROWS, 3)
    assert [now.rows + now.lag for now in told] == [ROWS] * 3
    assert staged(tmp_path / "t") == []
    assert run(executor, broker, tmp_path / "t").batches == 0


def test_what_a_task_raises_comes_as_it_was_raised_and_nothing_is_published(
    executor: LocalExecutor, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    with pytest.raises(LocalError, match=r"topic 'air\.flihgts' does not exist"):
        ingest(executor, str(broker.data_dir), "air.flihgts", tmp_path / "t")
    with pytest.raises(LocalError, match="tail"):
        run(executor, broker, tmp_path / "t", replace(THREE_BATCHES, columns="offset, tail int", on_bad_value="fail"))
    assert list((tmp_path / "t").glob("*.parquet")) == []
    assert staged(tmp_path / "t") == []


class _KilledInTask:
    """Takes the place of a stage: the worker is killed with the first range of partition 1."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def __call__(self, piece: OffsetRange, attempt: str) -> StagedRange:
        if piece.partition == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.stage(piece, attempt)


class _Killing(LocalExecutor):
    def write(self, stage: Stage, ranges: list[OffsetRange]) -> list[StagedRange]:  # type: ignore[override]
        return super().write(_KilledInTask(stage), ranges)


def test_a_worker_that_is_killed_ends_the_run_and_the_next_one_goes_on(
    executor: LocalExecutor, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    killing = _Killing(2)
    with pytest.raises(LocalError, match="worker process ended"):
        run(killing, broker, tmp_path / "t")
    killing.close()
    run(executor, broker, tmp_path / "t")
    assert_every_message_once(table_of(tmp_path / "t"))
    assert staged(tmp_path / "t") == []


FOLLOW = """
import sys
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.local import LocalExecutor

if __name__ == "__main__":
    executor = LocalExecutor(2)
    print("begun", flush=True)
    ingest(executor, sys.argv[1], sys.argv[2], sys.argv[3], IngestSettings(follow=True, interval_s=0.1),
           on_progress=lambda now: print(*(executor._pool._processes), flush=True))
"""


@pytest.mark.turns(2, part=0)
def test_workers_end_with_a_parent_that_is_killed(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    script = tmp_path / "follow.py"
    script.write_text(FOLLOW)
    arguments = [sys.executable, str(script), str(broker.data_dir), TOPIC, str(tmp_path / "t")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begun\n"
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert pids
        parent.kill()
    until = time.monotonic() + 20
    while (alive := [pid for pid in pids if _is_running(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.turns(2, part=1)
def test_the_room_needs_no_pyspark() -> None:
    code = (
        "import sys, pkgutil, importlib, lading.tables as room\n"
        "for one in pkgutil.walk_packages(room.__path__, 'lading.tables.'): importlib.import_module(one.name)\n"
        "import lading.pipeline.run\n"
        "sys.exit(any(name == 'pyspark' or name.startswith('pyspark.') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workers_have_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("before", "later"):
        monkeypatch.setenv("LADING_TEST_SECRET", value)
        executor = LocalExecutor(1)
        try:
            # each worker is asked for a variable: it stands for what credentials are read from
            seen: Any = executor.write(cast("Any", os.getenv), cast("Any", ["LADING_TEST_SECRET"]))
            assert seen == [value]
        finally:
            executor.close()
