"""The pipeline under Spark itself: a whole run, a task that fails, a driver and its workers killed in every phase."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lading import read_arrow, testing
from lading.model.errors import LocalError
from lading.pipeline import run as pipeline_run
from lading.pipeline.run import PipelineProgress, run
from lading.pipeline.settings import PipelineSettings
from lading.tables.formats import manifest
from tests.spark.conftest import ROOT
from tests.spark.faults import arm

from .conftest import PARTITIONS, ROWS, Place
from .faults import PHASES, FaultyWriter
from .flights import assert_every_message_once, fate, found, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
STATE = "flights"


def test_a_run_with_a_failing_task_and_a_killed_worker_then_two_sources(
    spark: SparkSession, served: testing.BrokerProcess, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_run, "PipelineWriter", FaultyWriter)
    arm(place.tables / STATE, "task", "fail")
    arm(place.tables / STATE, "worker", "kill")
    told: list[PipelineProgress] = []
    report = run(lambda: spark, PipelineSettings.load(place.write()), on_progress=told.append)
    where = assert_every_message_once(place.tables, PARTITIONS, ROWS)
    assert (report["read"], report["good"], report["routed"]) == (PARTITIONS * ROWS, where["flights"], where["late"])
    assert [now.batches for now in told] == [1, 2]
    assert [now.read + now.lag for now in told] == [PARTITIONS * ROWS] * 2
    assert not list(place.tables.glob("*/_lading/staged/*"))
    assert not list(place.tables.glob("*/_lading/faults/*"))
    print(f"a task failed, a worker was killed: lost 0, twice 0 of {PARTITIONS * ROWS:,}")
    # another topic joins, the first one goes on where it was; and the route sends to a topic of Kafka's now
    second = f"{place.topic}-more"
    place.transport.create_topic(second, 1)
    place.transport.send(second, 0, messages(0, 100))
    file = place.write(
        lambda text: (
            text.replace("[source]", "[[source]]")
            .replace("[headers]", f'[[source]]\nfrom = "{place.url}"\ntopic = "{second}"\n\n[headers]')
            .replace("parquet:./tables/late", f"kafka://{served.endpoints['kafka']}/{second}-late")
        )
    )
    report = run(lambda: spark, PipelineSettings.load(file))
    late = [row for row in range(100) if fate(row) == "late"]
    assert (report["read"], report["to.route 1"]) == (100, len(late))
    assert len(found(place.tables)) == PARTITIONS * ROWS
    assert sum(len(kinds) for kinds in found(place.tables).values()) == PARTITIONS * ROWS + 100 - len(late)
    sent = read_arrow(place.url, f"{second}-late", "payload").column(0).to_pylist()
    assert sent == [b'{"row": %d, "p": 0}' % row for row in late]


def test_a_full_disk_at_publishing_is_told_by_its_place(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, document: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    settings = PipelineSettings.load(place.write())
    with monkeypatch.context() as patched:
        patched.setattr(manifest, "write_document", full)
        with pytest.raises(
            LocalError, match=r"publishing a batch of .*-00000001.json cannot be written: No space left"
        ):
            run(lambda: spark, settings)
    assert not list(place.tables.glob("*/_lading/staged/*"))
    assert run(lambda: spark, settings)["read"] == PARTITIONS * ROWS
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


@pytest.mark.turns(4, part=1)
def test_killed_drivers(spark: SparkSession, place: Place, full: bool) -> None:
    for phase in PHASES if full else random.Random(17).sample(PHASES[1:], 1):
        file = place.write(max_rows=1300)
        arm(place.tables / STATE, phase, "kill")
        done = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.killed", str(file)],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300, capture_output=True,
        )  # fmt: skip
        assert done.returncode == -9, done.stderr[-2000:]
        run(lambda: spark, PipelineSettings.load(file))
        assert_every_message_once(place.tables, PARTITIONS, ROWS)
        assert not list(place.tables.glob("*/_lading/staged/*"))
        print(f"driver killed in {phase}, restarted: lost 0, twice 0 of {PARTITIONS * ROWS:,}")
        place.tables.rename(place.base / f"killed-{phase}")
