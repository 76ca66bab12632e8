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
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.foreign.prepare import prepare
from tests.foreign.results import Comparison, compare, write_table
from tests.foreign.servers import SERVERS
from tests.foreign.suites import SUITES, Suite
from tests.interop import go_programs


def main() -> int:
    """Run what the command line names; print a table."""
    names = [suite.name for suite in SUITES]
    parser = argparse.ArgumentParser(prog="python -m tests.foreign", description=__doc__.partition("\n")[0])
    parser.add_argument("suite", nargs="*", help=f"of {', '.join(names)}; all if none is named")
    parser.add_argument("--control", action="store_true", help="run the suites against the real servers as well")
    parser.add_argument("--output", type=Path, help="write the table to this file, too")
    parser.add_argument("--keep", type=Path, help="keep the output of each suite and its server in this directory")
    given = parser.parse_args()
    if unknown := sorted(set(given.suite) - set(names)):
        parser.error(f"there is no suite {unknown[0]}; there are {', '.join(names)}")
    rows = []
    for suite in SUITES:
        if not given.suite or suite.name in given.suite:
            try:
                rows.append(compare_sides(suite, has_control=given.control, keep=given.keep))
            except go_programs.Unavailable as missing:
                print(f"{suite.name}: not run: {missing}", file=sys.stderr)
    table = write_table(rows, has_control=given.control)
    print(table)
    if given.output:
        given.output.write_text(table + "\n")
    return int(any(row.failed_here for row in rows))


def compare_sides(suite: Suite, *, has_control: bool, keep: Path | None = None) -> Comparison:
    """Return how a suite ends here, and with ``has_control`` on the real server, if there is one."""
    # built outside: a new network reaches no registry
    prepare(suite)
    ours = run_suite_apart(suite, "ours", keep)
    has_real = has_control and SERVERS[suite.server].serve_real is not None
    return compare(suite.name, suite.version, ours, run_suite_apart(suite, "real", keep) if has_real else None)


def run_suite_apart(suite: Suite, side: str, keep: Path | None = None) -> dict[str, str]:
    """Run a suite in a network of its own, its output in ``keep``.

    Raises Unavailable if there can be none, or the server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="lading-foreign-") as scratch:
        place = scratch if keep is None else str(keep.absolute() / f"{suite.name}-{side}")
        if keep is not None:
            # data of an earlier run
            shutil.rmtree(place, ignore_errors=True)
        Path(place).mkdir(parents=True, exist_ok=True)
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
