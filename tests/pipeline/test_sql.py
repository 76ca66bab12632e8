"""SQL steps under Spark: what they make is routed and published with the same manifest, whatever crashes."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading.model.errors import LocalError, SettingError
from lading.pipeline import run as pipeline_run
from lading.pipeline.check import check
from lading.pipeline.run import run
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.state import existing
from lading.pipeline.steps import select_step_columns
from tests.spark.conftest import ROOT
from tests.spark.faults import arm

from .conftest import PARTITIONS, ROWS, Place
from .faults import STEP_PHASES, FaultyWriter
from .flights import assert_every_message_once, fate, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STEPS = """
[[step]]
sql = "SELECT *, delay / 60 AS hours FROM messages"

[[step]]
sql = '''
  SELECT m.* EXCEPT (payload), a.name FROM messages m
  LEFT JOIN parquet.`{names}` a ON a.code = m.carrier
'''

[good]"""


def _steps(place: Place) -> str:
    names = place.base / "names.parquet"
    pq.write_table(pa.table({"code": ["UA", "AA"], "name": ["United", "American"]}), names)
    return STEPS.format(names=names)


@pytest.mark.turns(4, part=3)
def test_what_steps_make_is_published_once(spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_run, "PipelineWriter", FaultyWriter)
    state = place.tables / "flights"
    arm(state, "worker", "kill")
    arm(state, "task", "fail")
    arm(state, "steps", "fail")
    broken = random.Random(19).choice(("manifest", "renames", "errands", "published"))
    arm(state, broken, "fail")
    file = place.write(lambda text: text.replace("[good]", _steps(place)).replace('"delay > 60"', '"hours > 1"'))
    settings = PipelineSettings.load(file)
    assert check(settings, lambda: spark) == []
    with pytest.raises(Exception, match=f"injected: {broken}"):
        run(lambda: spark, settings)
    before = existing(settings).manifests.last()
    # the batch with a manifest is completed, those after it go through the step as it is now
    file.write_text(file.read_text().replace("delay / 60 AS", "delay / 60 + 0 AS"))
    report = run(lambda: spark, PipelineSettings.load(file))
    where = assert_every_message_once(place.tables, PARTITIONS, ROWS)
    counts = Counter(report.counts) + Counter({} if before is None else before.counts)
    assert counts["read"] == counts["passed"] + counts["quarantined"] == PARTITIONS * ROWS
    assert (counts["good"], counts["routed"]) == (where["flights"], where["late"])
    assert (counts["to.good"], counts["to.route 1"]) == (where["flights"], where["late"])
    late: Any = table(place.tables / "late")
    assert late.schema.names == [
        "topic", "partition", "offset", "timestamp", "key", "carrier", "delay", "hours", "name",
    ]  # fmt: skip
    assert late["hours"].to_pylist() == [delay / 60 for delay in late["delay"].to_pylist()]
    names = {"UA": "United", "AA": "American", "DL": None}
    assert late["name"].to_pylist() == [names[carrier] for carrier in late["carrier"].to_pylist()]
    assert not list(place.base.glob("**/_lading/staged/*"))
    assert all(file.kind != "passed" for file in existing(settings).manifests.read(1).files)
    # a step that counts makes other numbers of rows: one batch, three carriers
    place.transport.delete_topic(place.copies)
    counted = place.base / "counted"
    text = file.read_text().replace("./tables", str(counted)).replace('id = "flights"', 'id = "counted"')
    text = re.sub(r"(?s)\[\[step\]\].*?\[good\]", '[step]\nsql = "SELECT carrier, count(*) AS flights FROM messages '
                  'WHERE delay < 100 GROUP BY carrier"\n[good]', text)  # fmt: skip
    text = text.replace("hours > 1", "carrier = 'UA'").replace("max_rows = 1500", "max_rows = 100_000")
    file.write_text(text)
    counts = Counter(run(lambda: spark, PipelineSettings.load(file)).counts)
    rows = [row for row in range(ROWS) if fate(row) in ("flights", "late") and row % 200 < 100]
    expected = Counter(("UA", "AA", "DL")[row % 3] for row in rows for _ in range(PARTITIONS))
    found = table(counted / "flights").to_pylist() + table(counted / "late").to_pylist()
    assert {row["carrier"]: row["flights"] for row in found} == expected
    assert (counts["good"], counts["routed"]) == (2, 1)
    assert counts["read"] == counts["passed"] + counts["quarantined"] == PARTITIONS * ROWS


def test_steps_and_conditions_are_in_utc(spark: SparkSession, place: Place) -> None:
    step = '[step]\nsql = "SELECT offset, timestamp, hour(timestamp) AS hour FROM messages"\n\n[good]'
    condition = "hour(to_timestamp('2026-04-01 00:00:00')) <> hour(timestamp '2026-04-01 00:00:00Z')"
    file = place.write(partial(_with_step, step=step, where=condition), max_rows=100_000)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert run(lambda: spark, PipelineSettings.load(file)).counts.get("routed", 0) == 0
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    rows = table(place.tables / "flights")
    assert rows.num_rows and all(row["hour"] == row["timestamp"].hour for row in rows.to_pylist())


WRONG = {
    "grammar": ("SELECT * FORM messages WHERE", None, r"step\[1\].sql: Syntax error at or near 'messages'.\n.*\n +\^"),
    "column": ("SELECT delai FROM messages", None, r"`delai` cannot be resolved. Did you mean .*`delay`(.|\n)*\^{5}"),
    "view": ("SELECT 1 AS x FROM mesages", None, r"view 'mesages' does not exist .did you mean 'messages'(.|\n)*\^{7}"),
    "no query": ("DROP TABLE messages", None, "Syntax error at or near 'DROP'"),
    "types": ("SELECT carrier + true AS x FROM messages", None, r"data type mismatch(.|\n)*\^{14}"),
    "twice": ("SELECT delay, 1 AS DELAY FROM messages", None, "returns the column 'delay' twice"),
    "no type": ("SELECT NULL AS nothing FROM messages", None, "column 'nothing' of type void, which no table can hold"),
    "condition": ("SELECT carrier FROM messages", "dealy > 60", r"route\[1\].where: .*`dealy` cannot(.|\n)*\^{5}"),
}  # fmt: skip


def _with_step(text: str, step: str, where: str) -> str:
    return text.replace("[good]", step).replace("delay > 60", where)


def test_steps_that_are_wrong_are_told_before_anything_is_read(spark: SparkSession, place: Place) -> None:
    for sql, where, sentence in WRONG.values():
        step = f'[step]\nsql = """{sql}"""\n\n[good]'
        file = place.write(partial(_with_step, step=step, where=where or "true"))
        settings = PipelineSettings.load(file)
        (problem,) = check(settings, lambda: spark)
        assert problem.part == "step" and re.search(sentence, problem.sentence), problem.sentence
    with pytest.raises(SettingError, match=sentence):
        run(lambda: spark, settings)
    assert not place.tables.exists()
    # what only shows in the rows publishes nothing
    step = '[step]\nsql = "SELECT offset, 1 / (delay - 100) AS x FROM messages"\n\n[good]'
    file = place.write(lambda text: text.replace("[good]", step).replace("delay > 60", "x > 60"))
    with pytest.raises(LocalError, match=r"steps of .* failed: Division by zero(.|\n)*\^\nNothing of this batch was"):
        run(lambda: spark, PipelineSettings.load(file))
    assert not list(place.tables.glob("*/*.parquet")) and not list(place.base.glob("**/_lading/staged/*"))
    # the breaker comes before the steps
    broken = place.write(
        lambda text: text.replace("[good]", step).replace("[headers]", '[headers]\nnowhere = "string required"')
    )
    with pytest.raises(LocalError, match="stopped before publishing"):
        run(lambda: spark, PipelineSettings.load(broken))
    run(lambda: spark, PipelineSettings.load(place.write()))
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


@pytest.mark.timeout(3000)
def test_killed_drivers_with_steps(spark: SparkSession, place: Place, full: bool) -> None:
    if not full:
        pytest.skip("whole with LADING_TEST_FULL=1: each kill starts a JVM; the sample is among the runs above")
    for phase in STEP_PHASES:
        file = place.write(lambda text: text.replace("[good]", _steps(place)), max_rows=1300)
        arm(place.tables / "flights", phase, "kill")
        done = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.killed", str(file)],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300, capture_output=True,
        )  # fmt: skip
        assert done.returncode == -9, done.stderr[-2000:]
        run(lambda: spark, PipelineSettings.load(file))
        assert_every_message_once(place.tables, PARTITIONS, ROWS)
        assert not list(place.base.glob("**/_lading/staged/*"))
        print(f"driver killed in {phase} with steps, restarted: lost 0, twice 0 of {PARTITIONS * ROWS:,}")
        place.tables.rename(place.base / f"killed-{phase}")


STAGED = {
    "SELECT offset, delay FROM messages": "offset delay",
    "SELECT count(*) FROM messages WHERE Carrier = 'payload'": "offset carrier",
    "SELECT * FROM messages": "topic partition offset timestamp key carrier delay payload",
    "SELECT m.* FROM messages_all m": "topic partition offset timestamp key carrier delay payload state id checksum "
    "headers stream origin_timestamp",
    "SELECT delay FROM messages NATURAL JOIN other": "topic partition offset timestamp key carrier delay payload",
    "SELECT id, headers FROM messages_all": "offset id headers",
}


@pytest.mark.parametrize("sql", STAGED)
def test_only_columns_that_a_step_can_see_are_staged(sql: str) -> None:
    document = {"source": {"from": "x", "topic": "y"}, "headers": {"carrier": "string", "delay": "int"},
                "good": {"to": "parquet:./z"}}  # fmt: skip
    contract = PipelineSettings(document, ROOT, "x.toml").contract
    assert sorted(select_step_columns([sql], contract).order) == sorted(STAGED[sql].split())
