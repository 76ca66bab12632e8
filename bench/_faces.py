"""Two work trees' brokers alive beside each other, driven by turns by the same clients.

A broker that runs alone for a minute is measured with what the machine did in that minute; drift of 20 % is common.
Here a turn of one side is followed at once by the same turn of the other, the two take turns in being first, each turn
has processes of its own, and what counts is the median of the ratios of such pairs. CPU seconds of the broker stand
beside the rates, which the clients bound. The clients, and what they ask for, are those of the tree that this file
belongs to.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import iggy_face, kafka_face, nsq_face
from bench.measure import median, threads_cpu_s, tree_environment
from tests.interop import go_programs, rust_client

Row = dict[str, Any]
Figures = dict[str, tuple[float, float]]
"""Messages/s and CPU seconds per million messages, by case."""
Taken = tuple[list[tuple[float, float]], list[tuple[float, float]]]
"""Figures of the turns of both sides."""
DURABILITIES: Final = ("os", "fsync")
START_TIMEOUT_S: Final = 180
_SERVE: Final = """
import json, sys
from lading import testing
from bench.measure import kernels_loaded
with testing.broker(durability=sys.argv[1]) as broker:
    kernels_loaded(broker)
    print(json.dumps([broker.pid, broker.endpoints]), flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class TreeBroker:
    """A broker that runs the sources of one work tree."""

    pid: int
    endpoints: dict[str, str]


@contextmanager
def run_broker(tree: Path, durability: str) -> Iterator[TreeBroker]:
    """Start the broker of a work tree, its kernels loaded; end it with the block."""
    environment = tree_environment(tree)
    command = [sys.executable, "-c", _SERVE, durability]
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the broker of {tree} did not start; its words are above")
            yield TreeBroker(*json.loads(line))
        finally:
            process.stdin.close()
            process.wait(START_TIMEOUT_S)


def compare_iggy(before: Path, after: Path, turns: int) -> list[Row]:
    """Sends and polls of the Rust client, by batch size and number of connections."""
    program = str(rust_client.build(release=True))
    topics = iter(range(1, 1 << 20))

    def turn_of(batch: int, count: int, connections: int) -> Callable[[TreeBroker], Figures]:
        def drive(broker: TreeBroker) -> Figures:
            address = broker.endpoints["iggy_tcp"]
            topic = next(topics)
            iggy_face.create(address, topic, connections)
            found = {}
            for what in ("send", "poll"):
                used_s = threads_cpu_s(broker.pid)
                rate = iggy_face.load(program, what, address, topic, batch, count, connections)["rate"]
                used = (threads_cpu_s(broker.pid) - used_s) / count * 1e6
                found[f"{what} of {batch}, {connections} connections"] = (rate, used)
            return found

        return drive

    return _compare(
        (before, after),
        turns,
        lambda durability: [
            turn_of(batch, _whole_batches(count // (4 if durability == "os" else 16), batch * connections), connections)
            for batch, count in iggy_face.MESSAGES.items()
            for connections in (1, 4)
        ],
    )


def _whole_batches(count: int, batch: int) -> int:
    return max(count // batch, 1) * batch


def compare_kafka(before: Path, after: Path, turns: int) -> list[Row]:
    """Produce and consume of kcat, plain and lz4."""
    messages = kafka_face.MESSAGES // 5
    with tempfile.TemporaryDirectory() as directory:
        lines = kafka_face.write_lines(Path(directory) / "lines", messages)

        def turn_of(codec: str) -> Callable[[TreeBroker], Figures]:
            def drive(broker: TreeBroker) -> Figures:
                side = kafka_face.KafkaSide("", broker.endpoints["kafka"], broker.pid, 0, {})
                kafka_face.drive(side, codec, lines, messages)
                return {
                    f"{what}, {codec}": (rates[0], side.cpu[what, codec][0]) for (what, _), rates in side.rates.items()
                }

            return drive

        return _compare((before, after), turns, lambda durability: [turn_of(codec) for codec in kafka_face.CODECS])


def compare_nsq(before: Path, after: Path, turns: int) -> list[Row]:
    """What go-nsq publishes and consumes, and a consumer over a plain socket."""
    with ExitStack() as stack:
        client = go_programs.Conversation(go_programs.client("load"))
        stack.callback(client.close)

        def drive(broker: TreeBroker) -> Figures:
            side = nsq_face.NsqSide("", broker.endpoints["nsqd_tcp"], broker.endpoints["nsqd_http"], broker.pid)
            nsq_face.drive(client, side, 5)
            nsq_face.consume_by_socket(side, nsq_face.SOCKET_COUNT // 4)
            return {what: (rates[0], side.cpu[what][0]) for what, rates in side.rates.items()}

        return _compare((before, after), turns, lambda durability: [drive])


class EndedEarly(Exception):
    """A comparison was ended by a signal or by a failure, and has some rows already."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__("ended before all turns were taken")
        self.rows = rows


def _compare(
    trees: tuple[Path, Path], turns: int, drives: Callable[[str], Sequence[Callable[[TreeBroker], Figures]]]
) -> list[Row]:
    rows: list[Row] = []
    for durability in DURABILITIES:
        taken: dict[str, Taken] = defaultdict(lambda: ([], []))
        try:
            _take_turns(trees, turns, durability, drives, taken)
        except BaseException as error:
            raise EndedEarly([*rows, *_rows_of(taken, durability)]) from error
        rows += _rows_of(taken, durability)
    return rows


def _rows_of(taken: Mapping[str, Taken], durability: str) -> list[Row]:
    """Return a row for each case that both sides have run."""
    # a side that was ended in a turn has one figure less
    whole = {case: min(map(len, sides)) for case, sides in taken.items()}
    return [
        _row(f"{case}, {durability}", *(side[: whole[case]] for side in sides))
        for case, sides in taken.items()
        if whole[case]
    ]


def _take_turns(
    trees: tuple[Path, Path],
    turns: int,
    durability: str,
    drives: Callable[[str], Sequence[Callable[[TreeBroker], Figures]]],
    taken: dict[str, Taken],
) -> None:
    for turn in range(turns):
        # other processes for each turn: where one's memory lies makes it a tenth slower for all its life
        with run_broker(trees[0], durability) as before, run_broker(trees[1], durability) as after:
            for drive in drives(durability):
                order = (0, 1) if turn % 2 else (1, 0)
                # warms up: files, routes and memory of the sizes that this case needs
                for number in order:
                    drive((before, after)[number])
                for number in order:
                    for case, figures in drive((before, after)[number]).items():
                        taken[case][number].append(figures)
        print(f"  {durability}: turn {turn + 1} of {turns}", file=sys.stderr, flush=True)


def _row(case: str, before: list[tuple[float, float]], after: list[tuple[float, float]]) -> Row:
    rates = [new / old for (old, _), (new, _) in zip(before, after, strict=True)]
    # turned over, so that above 1 is better in both
    cpu = [old / new for (_, old), (_, new) in zip(before, after, strict=True) if new]
    return {
        "case": case,
        "before k/s": round(median(rate for rate, _ in before) / 1000, 1),
        "after k/s": round(median(rate for rate, _ in after) / 1000, 1),
        "rate ratio": round(median(rates), 2),
        "middle half": _quartiles(rates),
        "before CPU s/M": round(median(used for _, used in before), 2),
        "after CPU s/M": round(median(used for _, used in after), 2),
        "CPU ratio": round(median(cpu), 2) if cpu else None,
        "its middle half": _quartiles(cpu),
    }


def _quartiles(ratios: Sequence[float]) -> str | None:
    if len(ratios) < 2:
        return None
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{low:.2f}-{high:.2f}"
