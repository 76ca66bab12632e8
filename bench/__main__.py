"""Run the benchmarks: ``python -m bench [NAME ...] [--quick]``; prints tables, writes JSON to bench/results/."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import time
from pathlib import Path

from lading.cli.output import Output, print_table

HERE = Path(__file__).parent
COMPARISON = "house"
"""Compares two work trees; its arguments are its own."""
NOT_BENCHES = (COMPARISON, "measure")
LONG = ("reliability", "soak")
"""They run only when they are named."""
TIMED = ("soak",)
"""They take --minutes."""
NAMES = sorted(path.stem for path in HERE.glob("[!_]*.py") if path.stem not in NOT_BENCHES)


def main() -> int:
    if sys.argv[1:2] == [COMPARISON]:
        status: int = importlib.import_module(f"bench.{COMPARISON}").main(sys.argv[2:])
        return status
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which to run: {', '.join(NAMES)}; all but {' and '.join(LONG)} unless given",
    )
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer rounds: does it run, not how fast")
    parser.add_argument("--minutes", type=float, help="how long `soak` runs; 30 unless given")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    (HERE / "results").mkdir(exist_ok=True)
    for name in arguments.names or [name for name in NAMES if name not in LONG]:
        module = importlib.import_module(f"bench.{name}")
        begun = time.monotonic()
        limits = {"minutes": arguments.minutes} if name in TIMED else {}
        rows = module.run(arguments.quick, **limits)
        print_table(
            rows,
            {key: key for key in dict.fromkeys(key for row in rows for key in row)},
            output=Output.TEXT,
            title=module.QUESTION,
        )
        print(f"  {name}: {time.monotonic() - begun:.0f} s\n", flush=True)
        result = {
            "question": module.QUESTION,
            "machine": platform.machine(),
            "python": platform.python_version(),
            "rows": rows,
        }
        (HERE / "results" / f"{name}.json").write_text(json.dumps(result, indent=2, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
