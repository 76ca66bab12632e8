"""Runs points of the matrix, each in processes of its own: ``python -m tests.crashes.driver`` with a request on stdin.

The request is JSON: ``source`` and ``targets`` (URLs), ``directory``, ``prefix`` of all names, ``cells`` ([writer,
target, more points], …), and for each cell how many points run (``share``, null for one at each moment), how many with
two ends (``pairs``), and the ``seed``. Each line of the output is the result of one point. A process of a point is a
fork of this one, which opens nothing itself, so that a run costs no imports.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import pyarrow.parquet as pq

from lading import read_arrow
from lading.dialects.kafka import requests, versions
from lading.kernels import engine
from lading.tables.plan.options import DEDUPE_HEADER
from lading.transports.lading.transport import LadingTransport
from tests.crashes.command_lines import BY_NAME
from tests.crashes.steps import EXIT_CODE, KINDS, Moment, StepTracer
from tests.crashes.writers import Place, Row, Servers, Writer, fill_sources

RUNS_MAX: Final = 3
"""A writer that was ended once has all messages at their target after so many runs."""
RUN_TIMEOUT_S: Final = 240


class Point(NamedTuple):
    """How a run ends and at which moment; with more moments, the runs after it, too."""

    kind: str
    moments: tuple[Moment, ...]


@dataclass(slots=True)
class Result:
    """What a target has after the last run."""

    is_reached: bool = True
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    """Messages that were never sent, have another content, or another order."""
    marks_doubled: int = 0
    """Messages that came twice with two marks."""
    unmarked: int = 0
    """Messages without a mark."""
    copies: tuple[int, int] = (1, 1)
    """How often the message came that came least often, and the one that came most often."""
    error: str = ""


def main() -> int:
    """Run the cells of the request."""
    asked = json.loads(sys.stdin.readline())
    servers = Servers(asked["source"], asked["targets"], asked["prefix"])
    directory = Path(asked["directory"])
    load_kernels()
    call_in_fork(lambda: fill_sources(servers))
    prefix = asked["prefix"]
    for cell, (name, target, more) in enumerate(asked["cells"]):
        writer = BY_NAME[name]
        chance = random.Random(f"{asked['seed']} {name} {target}")
        moments, modules = call_in_fork(lambda: list_moments(writer, servers, target, f"{prefix}c{cell}m", directory))  # noqa: B023
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()
        turn = chance.randrange(len(KINDS))
        points = [Point(KINDS[(turn + at) % len(KINDS)], (Moment(*moment),)) for at, moment in enumerate(moments)]
        if asked["share"] is not None:
            points = chance.sample(points, min(len(points), asked["share"]))
        # a run that repairs what another one left is ended, too
        points += [
            Point(chance.choice(KINDS), tuple(Moment(*chance.choice(moments)) for _ in range(2)))
            for _ in range(asked["pairs"])
        ]
        points += [Point(kind, tuple(Moment(*moment) for moment in given)) for kind, given in more]
        for number, point in enumerate(points):
            result = run_point(writer, servers, target, f"{prefix}c{cell}p{number}", directory, point)
            print(json.dumps({"writer": name, "target": target, "point": point, **result}), flush=True)
    seconds = [sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"cpu_s": round(sum(seconds), 1)}), flush=True)
    return 0


def load_kernels() -> None:
    """Load what every point would load again."""
    requests.prepare_codecs(versions.SERVED)
    if (engine.cache_dir() / "complete").exists():
        for home in engine.list_kernel_modules():
            engine.load(home)


def list_moments(
    writer: Writer, servers: Servers, target: str, name: str, directory: Path
) -> tuple[list[Moment], list[str]]:
    """Run a writer to its end; return every moment where it could have been ended, and the modules that it imported."""
    before = set(sys.modules)
    place, tracer = make_place(servers, target, name, directory), StepTracer()
    if writer.prepare is not None:
        writer.prepare(place)
    tracer.install()
    tracer.arm(None)
    writer.run(place)
    moments = list(dict.fromkeys(tracer.moments))
    result = judge(writer, place)
    assert (result.lost, result.doubled, result.wrong) == (0, 0, 0), (writer.name, target, result)
    return moments, sorted(name for name in set(sys.modules) - before if importlib.util.find_spec(name) is not None)


def run_point(
    writer: Writer, servers: Servers, target: str, name: str, directory: Path, point: Point
) -> dict[str, Any]:
    """End runs at the moments of a point, run the writer until it says that it is done, and look at the target."""
    ended = 0
    try:
        while True:
            found = call_in_fork(
                lambda: run_rest(writer, make_place(servers, target, name, directory), point, ended),  # noqa: B023
                may_end=ended < len(point.moments),
            )
            if found is not None:
                return cast("dict[str, Any]", found)
            ended += 1
    except ForkFailed as error:
        return asdict(Result(error=str(error)))


def run_rest(writer: Writer, place: Place, point: Point, ended: int) -> dict[str, Any]:
    """Run the writer in this process, from the run on that follows ``ended`` ones; return what the target has then."""
    tracer = StepTracer()
    if not ended and writer.prepare is not None:
        writer.prepare(place)
    tracer.install()
    is_done = False
    for number, moment in enumerate(point.moments[ended:], ended):
        tracer.arm(moment, point.kind)
        try:
            writer.run(place)
            is_done = True
        except Exception:
            if not tracer.has_struck:
                raise
        if is_done and not writer.has_state and tracer.has_struck:
            break
        if number == 0 and not tracer.has_struck:
            return asdict(Result(is_reached=False))
    tracer.arm(None)
    # a writer with a state may run again after its end, as it then has nothing to do
    for left in range(0 if is_done and not writer.has_state else RUNS_MAX, 0, -1):
        try:
            writer.run(place)
            break
        except Exception:
            if left == 1:
                raise
    return asdict(judge(writer, place))


def make_place(servers: Servers, target: str, name: str, directory: Path) -> Place:
    """Return the place of a point, with its directory."""
    own = directory / name
    own.mkdir(exist_ok=True)
    return Place(servers, target, name, own)


# what arrived


def judge(writer: Writer, place: Place) -> Result:
    """Compare what is at the target with what was sent."""
    sent = writer.list_sent(place)
    release_open_transactions(place)
    marks: list[tuple[Row, bytes | None]] = []
    for topic in dict.fromkeys(row.topic for row in sent):
        marks += read_rows(place, topic)
    arrived = [row for row, _ in marks]
    wanted, found = Counter(sent), Counter(arrived)
    result = Result(
        lost=sum((wanted - found).values()),
        doubled=sum(found[row] - wanted[row] for row in wanted if found[row] > wanted[row]),
        wrong=sum(count for row, count in found.items() if row not in wanted),
        unmarked=sum(mark is None for _, mark in marks),
        copies=(min(found.values(), default=0), max(found.values(), default=0)),
    )
    if result.copies == (1, 1) and writer.is_ordered and not place.is_queue:
        result.wrong += _by_partition(arrived) != _by_partition(sent)
    result.marks_doubled = sum(len({mark for row, mark in marks if row == one}) - 1 for one in found)
    return result


def read_rows(place: Place, topic: str) -> list[tuple[Row, bytes | None]]:
    """Return the messages of a topic, or of the spool, that a reader gets, with their marks."""
    if place.target == "table":
        return read_table(place.directory / "table")
    url = place.servers.source if place.target != "apache" else place.url
    if place.target == "directory":
        url = str(place.directory / "spool")
        topic = place.topic("queue")
    columns = "partition, offset, key, payload, headers"
    found = []
    for message in read_arrow(url, topic, columns, verify_checksum=False).to_pylist():
        headers = {header["key"]: header["value"] for header in message["headers"]}
        shown = "" if place.target == "directory" else topic
        row = Row(shown, message["partition"], message["payload"], message["key"], headers.get("row"))
        found.append((row, headers.get(DEDUPE_HEADER)))
    return found


def read_table(directory: Path) -> list[tuple[Row, bytes | None]]:
    """Return the rows of a table of Parquet files, as its readers find them."""
    rows = pq.read_table(directory, columns=["partition", "key", "payload", "row"]).to_pylist()
    return [
        (Row("", row["partition"], row["payload"], row["key"], row["row"].to_bytes(4, "little")), None) for row in rows
    ]


def release_open_transactions(place: Place) -> None:
    """Abort what a job that was killed left open, as the broker does after an hour, so that readers go on."""
    if place.target != "lading":
        return
    transport = LadingTransport(place.url)
    last = transport.begin()
    transport.abort(range(1, last + 1))
    transport.close()


def _by_partition(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.topic, row.partition), []).append(row)
    return found


# processes


class ForkFailed(Exception):
    """A process of a point ended in a way that nobody asked for."""


def call_in_fork(call: Callable[[], Any], *, may_end: bool = False) -> Any:
    """Return what a call returns in a fork; None if it ended at its point, where it may. Raises ForkFailed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(RUN_TIMEOUT_S)
        try:
            outcome = {"value": call()}
        except BaseException:
            outcome = {"error": traceback.format_exc()[-3000:]}
        with os.fdopen(write, "w") as file:
            json.dump(outcome, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    if may_end and not text and os.waitstatus_to_exitcode(status) in (-signal.SIGKILL, EXIT_CODE):
        return None
    answer = json.loads(text) if text else {"error": f"the process ended with status {status}"}
    if "error" in answer:
        raise ForkFailed(answer["error"])
    return answer["value"]


if __name__ == "__main__":
    sys.exit(main())
