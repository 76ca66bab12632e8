"""The crash matrix of writers: each into each target, ended at each moment of each step, and run again.

Nothing is lost, nothing is wrong, and nothing is there twice if the target promises that. ``steps`` has the moments,
``writers`` the writers and promises.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest

from lading import testing
from tests import case_turns
from tests.crashes.command_lines import BY_NAME, COMMANDS
from tests.crashes.writers import AT_LEAST_ONCE, MARKED, ONCE, ONCE_IN_A_PROCESS, WHOLE, WRITERS, Writer
from tests.interop import kafka_broker, shared_kafka

SEED: Final = 17
FACES: Final = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
TIMEOUT_S: Final = 3000
DRIVERS: Final = 3
"""Processes that run points side by side: a point often waits for its broker."""
POINTS_OF_CELL: Final = 32
"""Points of a writer and target in full, of up to 290 moments: all of them take hours."""
POINTS_OF_COMMAND: Final = 8
"""The same of a command and target: each of its runs reads the command line and imports what that needs."""
PAIRS: Final = 3
"""Points of each cell, in full, at which the run after the first one is ended, too."""
POINTS_OF_APACHE: Final = 24
PIECE, PIECES = map(int, os.environ.get("LADING_TEST_PIECE", "1/1").split("/"))
"""A full run takes long: with ``LADING_TEST_PIECE=2/4`` it is the second quarter of its cells, by the same points."""
SAMPLE: Final = (
    ("Spark stream", "kafka"), ("Spark stream", "iggy"), ("Spark batch", "lading"), ("mirror", "kafka"),
    ("mirror", "iggy"), ("mirror", "nsq"), ("redrive of dead letters", "lading"), ("redrive of a quarantine", "kafka"),
    ("routes to topics", "lading"), ("routes to topics", "nsq"), ("send_once", "kafka"), ("Producer", "lading"),
    ("spool", "directory"),
)  # fmt: skip
"""Writers and targets of an ordinary run, with one point each."""
SAMPLE_OF_COMMANDS: Final = (
    ("lading mirror", "lading"), ("lading message send", "kafka"), ("lading ingest --local", "table"),
)  # fmt: skip
Cell = tuple[str, str, Sequence[Any]]
LOST_BEFORE: Final[tuple[Cell, ...]] = (
    ("Spark stream", "lading", [("exit", [("commit", 1, "before", 0)]), ("kill", [("send", 2, "at", 1)])]),
    ("mirror", "lading", [("kill", [("commit", 1, "before", 0)]), ("exit", [("send", 2, "lost", 2)])]),
)
"""Points at which the broker once took what the next run sent for what the ended one had."""


@pytest.mark.timeout(TIMEOUT_S)
def test_writers_that_end_anywhere(tmp_path: Path, full: bool) -> None:
    """Every writer, our endpoints as targets."""
    if not full:
        cells: list[Cell] = [*((*cell, ()) for cell in (*SAMPLE, *SAMPLE_OF_COMMANDS)), *LOST_BEFORE]
        assert_promises(run_drivers([case_turns.choose_part(cells, 3)], tmp_path, share=1, pairs=0))
        return
    results = run_whole(WRITERS, tmp_path, POINTS_OF_CELL)
    assert len(results) >= 1000 or PIECES > 1


@pytest.mark.timeout(TIMEOUT_S)
def test_command_lines_that_end_anywhere(tmp_path: Path, full: bool) -> None:
    """The commands of ``lading`` that write; the ordinary run has a sample of them in the test above."""
    if not full:
        pytest.skip("runs with LADING_TEST_FULL=1")
    results = run_whole(COMMANDS, tmp_path, POINTS_OF_COMMAND)
    assert len(results) >= 200 or PIECES > 1


def run_whole(writers: Sequence[Writer], directory: Path, share: int) -> list[dict[str, Any]]:
    """Run the points of writers into all targets of ours, check their promises, and return their results."""
    targets = (*FACES, "directory", "table")
    cells = [(writer.name, target, ()) for writer in writers for target in writer.promises if target in targets]
    cells = cells[PIECE - 1 :: PIECES]
    results = run_drivers([cells[at::DRIVERS] for at in range(DRIVERS)], directory, share=share, pairs=PAIRS)
    assert_promises(results)
    return results


@pytest.mark.timeout(TIMEOUT_S)
def test_writers_into_apache_kafka(request: pytest.FixtureRequest, tmp_path: Path, full: bool) -> None:
    """The same into a real cluster, by a sample."""
    if not full:
        pytest.skip("runs with LADING_TEST_FULL=1")
    kafka: kafka_broker.RunningKafka = request.getfixturevalue("kafka")
    cells = [(writer.name, "apache", ()) for writer in (*WRITERS, *COMMANDS) if "apache" in writer.promises]
    cells = cells[PIECE - 1 :: PIECES]
    apache = {"apache": kafka.url}
    assert_promises(run_drivers([cells], tmp_path, share=POINTS_OF_APACHE, pairs=PAIRS, more_targets=apache))


def run_drivers(
    parts: Sequence[Sequence[Cell]], directory: Path, *, share: int | None, pairs: int,
    more_targets: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:  # fmt: skip
    """Run the cells of each part in a process with a broker of its own; return the results of all points."""
    with ExitStack() as held:
        started = []
        for number, cells in enumerate(parts):
            own = directory / f"d{number}"
            own.mkdir()
            # no broker ends here, so that nothing of it needs to be synced
            broker = held.enter_context(testing.broker(data_dir=own / "data", settings={"durability": "os"}))
            targets = {name: f"{name}://{broker.endpoints[face]}" for name, face in FACES.items()}
            asked = {
                "source": broker.url, "targets": targets | dict(more_targets), "directory": str(own), "cells": cells,
                "prefix": f"{shared_kafka.PROCESS}d{number}", "share": share, "pairs": pairs, "seed": SEED,
            }  # fmt: skip
            (own / "request").write_text(json.dumps(asked) + "\n")
            with (own / "request").open("rb") as request, (own / "results").open("wb") as results:
                command = [sys.executable, "-m", "tests.crashes.driver"]
                process = subprocess.Popen(command, stdin=request, stdout=results, stderr=subprocess.PIPE)
            held.callback(process.wait)
            held.callback(process.kill)
            started.append(process)
        for process in started:
            _, errors = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, errors.decode()
    texts = [(directory / f"d{number}" / "results").read_text() for number in range(len(parts))]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    print(f"crash matrix: {sum(row.get('cpu_s', 0) for row in found):.0f} s of CPU without brokers")
    return [row for row in found if "cpu_s" not in row]


def assert_promises(results: Sequence[dict[str, Any]]) -> None:
    """Print what was lost and what came twice by writer and target; each point keeps what its target promises."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        cells.setdefault((result["writer"], result["target"]), []).append(result)
    total: Counter[str] = Counter()
    broken = []
    for (name, target), points in cells.items():
        promise = BY_NAME[name].promises[target]
        kinds = Counter(point["point"][0] for point in points)
        ends = ", ".join(f"{count} by {kind}" for kind, count in kinds.items())
        lost, doubled = (sum(point[what] for point in points) for what in ("lost", "doubled"))
        total.update(points=len(points), lost=lost, broken=0)
        if promise == ONCE:
            total["once"] += doubled
        broken += [point for point in points if not PROMISES[promise](point)]
        print(f"{name} to {target} ({promise}): {len(points)} points ({ends}), lost {lost}, doubled {doubled}")
    print(
        f"crash matrix: {total['points']:,} points, lost {total['lost']}, "
        f"doubled where once is promised {total['once']}"
    )
    assert not broken, f"{len(broken)} of {len(results)} points: {broken[:5]}"


def _is_whole(point: dict[str, Any]) -> bool:
    """A job that was ended before its decision shows nothing, and one that was ended later all."""
    least, most = point["copies"]
    is_decided = any(step in ("commit", "decide") for step, *_ in point["point"][1])
    return bool(least == most and (most == 1 or (is_decided and most <= 1 + len(point["point"][1]))))


def _is_kept(point: dict[str, Any]) -> bool:
    return bool(not point["error"] and point["is_reached"] and not point["lost"] and not point["wrong"])


def _is_at_least_once(point: dict[str, Any]) -> bool:
    cell = (point["writer"], point["target"])
    return _is_kept(point) and (
        not point["doubled"] or cell not in ONCE_IN_A_PROCESS or point["point"][0] != "exception"
    )


PROMISES: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    ONCE: lambda point: _is_kept(point) and not point["doubled"],
    WHOLE: lambda point: _is_kept(point) and _is_whole(point),
    MARKED: lambda point: _is_kept(point) and not point["marks_doubled"] and not point["unmarked"],
    AT_LEAST_ONCE: _is_at_least_once,
}
