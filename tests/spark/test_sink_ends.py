"""Writes of real Spark into topics, ended before, at and after each step of the sink, and run again.

A stream goes on from its checkpoint; a job is run again as a whole. The whole matrix of writers is ``tests/crashes``,
with this sink without a JVM.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from lading import read_arrow, testing
from lading.spark.source import LadingSource
from lading.transports.lading.transport import LadingTransport
from lading.transports.open import open_transport
from tests.crashes.steps import EXIT_CODE, Moment
from tests.crashes.writers import messages

from . import ended_sink
from .conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3000)]
SOURCE, PARTITIONS, ROWS = "to.send", 2, 60
RUNS_MAX: Final = 4
KILLED_TIMEOUT_S: Final = 900
"""A driver starts in 10 s, and on a machine with much other work in minutes."""
FACES: Final = {"lading": "admin", "kafka": "kafka"}
STEPS: Final = {"lading": ("open", "send", "commit"), "kafka": ("open", "send", "prepare", "decide", "commit")}
"""What a target's tasks and its commit do, in order."""
EXPECTED: Final = ("the matrix of crashes", "Python worker exited", f"exit code {EXIT_CODE}", "EOFException")


class Point(NamedTuple):
    """A stream or a job into a target, and how it ends, and at which moment."""

    run: str
    target: str
    kind: str
    moment: Moment


def list_moments(target: str) -> list[Moment]:
    """Return each step with its moments; the response to its first request is the one that is lost."""
    # head and body of a request over lading:// go out one after the other
    request = 2 if target == "lading" else 1
    return [
        Moment(step, 1, when, number)
        for step in STEPS[target]
        for when, number in (("before", 0), ("at", 1), ("lost", request), ("after", 0))
        if step != "prepare" or not number
    ]


MATRIX: Final = [
    Point(run, target, kind, moment)
    for run in ended_sink.RUNS
    for turn, target in enumerate(FACES)
    for at, moment in enumerate(list_moments(target))
    for kind in (("exception", "exit")[(turn + at + (run == "batch")) % 2],)
]
"""Ends of one of Spark's Python processes, of which the driver may know: each moment once."""
KILLED: Final = [
    Point(run, target, "kill", moment)
    for run in ended_sink.RUNS
    for target in FACES
    for moment in random.Random(f"{run} {target}").sample(list_moments(target), 3)
]
"""Ends of the driver with its JVM. Each starts one of its own, which costs 20 s of CPU: none in the ordinary run."""
SAMPLE: Final = [
    Point("stream", "lading", "exception", Moment("commit", 1, "before")),
    Point("batch", "kafka", "exit", Moment("decide", 1, "lost", 1)),
]


@pytest.fixture(scope="module")
def source(broker: testing.BrokerProcess) -> str:
    """The URL of a broker with the messages that are sent."""
    transport = open_transport(broker.url)
    transport.create_topic(SOURCE, PARTITIONS)
    for partition in range(PARTITIONS):
        transport.send(SOURCE, partition, messages(partition, range(ROWS)))
    transport.close()
    return broker.url


@pytest.fixture
def ended(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose sinks are ended."""
    spark.dataSource.register(ended_sink.EndedSource)
    yield spark
    spark.dataSource.register(LadingSource)


@pytest.mark.turns(6, part=3)
def test_writes_that_end_anywhere(
    ended: SparkSession, source: str, broker: testing.BrokerProcess, tmp_path: Path, full: bool
) -> None:
    sent = Counter(rows_of(source, SOURCE))
    results: dict[tuple[str, str], Counter[str]] = {}
    broken = []
    for number, point in enumerate(MATRIX + KILLED if full else SAMPLE):
        state = tmp_path / str(number)
        state.mkdir()
        topic = f"ended{number}"
        transport = open_transport(source)
        transport.create_topic(topic, PARTITIONS)
        transport.close()
        options = {"to": f"{point.target}://{broker.endpoints[FACES[point.target]]}", "topic": topic}
        if point.target == "kafka":
            options["transactionalId"] = topic
        run_to_its_end(ended, point, state, (source, SOURCE, options))
        abort_open_transactions(source)
        arrived = Counter(rows_of(source, topic))
        lost, doubled = (sent - arrived).total(), (arrived - sent).total()
        is_reached = (state / "ended").exists()
        result = results.setdefault((point.run, point.target), Counter())
        result.update({"points": 1, point.kind: 1, "lost": lost, "doubled": doubled, "reached": is_reached})
        # a job that is run again after its commit is a new one: all of it is there twice, never a part
        is_again = point.run == "batch" and arrived == sent + sent and point.moment.step in ("commit", "decide")
        if lost or not is_reached or (doubled and not is_again):
            broken.append((point, lost, doubled, is_reached))
    for (run, target), result in results.items():
        kinds = ", ".join(f"{result[kind]} by {kind}" for kind in ("exception", "exit", "kill") if result[kind])
        print(f"Spark {run} to {target}: {result['points']} ends ({kinds}), lost {result['lost']}, "
              f"doubled {result['doubled']}")  # fmt: skip
    assert broken == []


def run_to_its_end(spark: SparkSession, point: Point, state: Path, arguments: tuple[str, str, dict[str, str]]) -> None:
    """Run it until a run ends by itself; one that is killed has a driver of its own."""
    (state / "end").write_text(json.dumps([point.kind, point.moment]))
    if point.kind == "kill":
        source, topic, options = arguments
        command = [
            sys.executable, "-m", "tests.spark.ended_sink", point.run, str(state), source, topic, json.dumps(options),
        ]  # fmt: skip
        # workers that outlive the JVM for a moment hold its streams
        with (state / "log").open("wb") as log:
            ended = subprocess.run(
                command, cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
                timeout=KILLED_TIMEOUT_S, stdout=log, stderr=log, check=False,
            )  # fmt: skip
        assert ended.returncode == -9, (point, (state / "log").read_text()[-3000:])
    for left in range(RUNS_MAX, 0, -1):
        try:
            ended_sink.RUNS[point.run](spark, state, *arguments)
            return
        except Exception as error:
            if left == 1 or not any(words in str(error) for words in EXPECTED):
                raise


def abort_open_transactions(source: str) -> None:
    """Abort what a job that was killed left open, as the broker does after an hour, so that readers go on."""
    transport = LadingTransport(source)
    last = transport.begin()
    transport.abort(range(1, last + 1))
    transport.close()


def rows_of(url: str, topic: str) -> list[Any]:
    """Return the messages of a topic, whole."""
    rows = read_arrow(url, topic, "partition, key, payload, headers").to_pylist()
    return [(row["partition"], row["key"], row["payload"], repr(row["headers"])) for row in rows]
