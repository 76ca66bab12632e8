"""Two work trees under the same benches, by turns in one run: ``python -m bench.house BEFORE AFTER [NAME ...]``.

The faces are driven side by side (``bench/_faces.py``), single requests by blocks (``bench/_request_turns.py``). Of
every other bench, each turn is one process a tree that runs ``bench/NAME.py`` of that tree on its own sources, so that
neither side profits from what the other loaded; the two take turns in being first. Figures are then medians over the
turns; ``spread`` is how far the turns of BEFORE lie apart, as a share of their median: a ratio within it says nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench._faces import EndedEarly, Row, compare_iggy, compare_kafka, compare_nsq
from bench._request_turns import compare_requests
from bench.measure import median, tree_environment
from lading.cli.output import Output, print_table

SIDE_BY_SIDE: Final = {
    "request_cost": compare_requests, "iggy_face": compare_iggy, "kafka_face": compare_kafka, "nsq_face": compare_nsq,
}  # fmt: skip
NAMES: Final = (*SIDE_BY_SIDE, "decode", "start_memory")
TURNS: Final = 5
_SCRIPT: Final = """
import contextlib, importlib, json, sys
with contextlib.redirect_stdout(sys.stderr):
    rows = importlib.import_module("bench." + sys.argv[1]).run(sys.argv[2] == "quick")
print(json.dumps(rows, default=str))
"""


def main(words: Sequence[str] | None = None) -> int:
    """Compare two work trees; ``words`` are the arguments, those of the process unless given."""
    parser = argparse.ArgumentParser(prog="python -m bench.house", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, help="a work tree")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which benches; {', '.join(NAMES)} unless given")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"how often each side runs; {TURNS} unless given")
    parser.add_argument("--whole", action="store_true", help="whole inputs in every turn; takes hours")
    arguments = parser.parse_args(words)
    signal.signal(signal.SIGTERM, _end_by_signal)
    for name in arguments.names or NAMES:
        title = f"{name}: {arguments.after} ÷ {arguments.before}"
        try:
            if name in SIDE_BY_SIDE:
                rows = SIDE_BY_SIDE[name](arguments.before.resolve(), arguments.after.resolve(), arguments.turns)
            else:
                rows = compare(arguments.before, arguments.after, name, arguments.turns, arguments.whole)
        except EndedEarly as ended:
            # a run takes long, and its whole turns are worth their time
            _print_rows(ended.rows, f"{title}, ended early")
            raise
        _print_rows(rows, title)
    return 0


def _print_rows(rows: Sequence[Row], title: str) -> None:
    columns = {key: key for key in dict.fromkeys(key for row in rows for key in row)}
    print_table(rows, columns, output=Output.TEXT, title=title)
    sys.stdout.flush()


def _end_by_signal(number: int, frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def compare(before: Path, after: Path, name: str, turns: int, whole: bool) -> list[Row]:
    """Run one bench on both trees by turns; return a row for each figure of each of its rows."""
    trees = (before.resolve(), after.resolve())
    runs: dict[Path, list[list[Row]]] = {tree: [] for tree in trees}
    for turn in range(turns):
        for tree in trees if turn % 2 == 0 else trees[::-1]:
            runs[tree].append(_run(tree, name, whole))
            print(f"  {name}, turn {turn + 1} of {turns}: {tree.name}", file=sys.stderr, flush=True)
    return ratios(runs[trees[0]], runs[trees[1]])


def ratios(before: Sequence[Sequence[Row]], after: Sequence[Sequence[Row]]) -> list[Row]:
    """Return medians, ratio and spread of each figure; what is the same in every run names the case."""
    every = [*before, *after]
    if len({len(run) for run in every}) != 1:
        raise ValueError(f"the runs have {sorted({len(run) for run in every})} rows; they must measure the same cases")
    found: list[Row] = []
    for number in range(len(every[0])):
        rows = [run[number] for run in every]
        # a column that a tree lacks is not compared
        shared = [key for key in rows[0] if all(key in row for row in rows)]
        case = [f"{key} {rows[0][key]}" for key in shared if len({str(row[key]) for row in rows}) == 1]
        for key in shared:
            if f"{key} {rows[0][key]}" in case or not all(isinstance(row[key], int | float) for row in rows):
                continue
            taken = [run[number][key] for run in before]
            old, new = median(taken), median(run[number][key] for run in after)
            found.append(
                {
                    "case": ", ".join(case),
                    "figure": key,
                    "before": old,
                    "after": new,
                    "ratio": round(new / old, 3) if old else None,
                    "spread": round((max(taken) - min(taken)) / old, 3) if old else None,
                }
            )
    return found


def _run(tree: Path, name: str, whole: bool) -> list[Row]:
    command = [sys.executable, "-c", _SCRIPT, name, "whole" if whole else "quick"]
    done = subprocess.run(command, cwd=tree, env=tree_environment(tree), stdout=subprocess.PIPE, text=True, check=True)
    rows: list[Row] = json.loads(done.stdout)
    return rows


if __name__ == "__main__":
    sys.exit(main())
