"""Fetch test suites of other projects and run them against Lading, and with --control against the real server.

    python -m tests.foreign                       # every suite
    python -m tests.foreign go-nsq --control      # one, beside nsqd
    python -m tests.foreign --control --output TABLE

Each runs in a network namespace of its own (``unshare -rn``), so that nothing else has the usual ports. Exit code 1 if
a test failed here that did not fail on the real server.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.foreign.results import Comparison, compare, write_table
from tests.foreign.servers import SERVERS
from tests.foreign.suites import SUITES, GoSuite
from tests.interop import go_programs


def main() -> int:
    """Run what the command line names; print a table."""
    names = [suite.name for suite in SUITES]
    parser = argparse.ArgumentParser(prog="python -m tests.foreign", description=__doc__.partition("\n")[0])
    parser.add_argument("suite", nargs="*", help=f"of {', '.join(names)}; all if none is named")
    parser.add_argument("--control", action="store_true", help="run the suites against the real servers as well")
    parser.add_argument("--output", type=Path, help="write the table to this file, too")
    given = parser.parse_args()
    if unknown := sorted(set(given.suite) - set(names)):
        parser.error(f"there is no suite {unknown[0]}; there are {', '.join(names)}")
    rows = []
    for suite in SUITES:
        if not given.suite or suite.name in given.suite:
            try:
                rows.append(compare_sides(suite, has_control=given.control))
            except go_programs.Unavailable as missing:
                print(f"{suite.name}: not run: {missing}", file=sys.stderr)
    table = write_table(rows, has_control=given.control)
    print(table)
    if given.output:
        given.output.write_text(table + "\n")
    return int(any(row.failed_here for row in rows))


def compare_sides(suite: GoSuite, *, has_control: bool) -> Comparison:
    # built outside: a new network reaches no registry
    go_programs.compile_tests(suite.module, suite.version, suite.package)
    ours = run_suite_apart(suite, "ours")
    has_real = has_control and SERVERS[suite.server].serve_real is not None
    return compare(suite.name, suite.version, ours, run_suite_apart(suite, "real") if has_real else None)


def run_suite_apart(suite: GoSuite, side: str) -> dict[str, str]:
    """Run a suite in a network of its own. Raises Unavailable if there can be none, or the server does not start."""
    with tempfile.TemporaryDirectory(prefix="lading-foreign-") as place:
        began_s = time.monotonic()
        command = ["unshare", "-rn", sys.executable, "-m", "tests.foreign.inside", suite.name, side, place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=suite.timeout_s + 300, check=False)
        if done.returncode:
            raise go_programs.Unavailable(done.stderr.strip().rpartition("\n")[2])
        outcomes: dict[str, str] = json.loads(Path(place, "outcomes.json").read_text())
        print(f"{suite.name} against {side}: {len(outcomes)} in {time.monotonic() - began_s:.0f} s", file=sys.stderr)
        return outcomes


if __name__ == "__main__":
    sys.exit(main())
