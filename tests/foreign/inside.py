"""One suite against one server, as the only processes of a network: suites have the usual ports written into them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from tests.foreign.results import read_go_events
from tests.foreign.servers import SERVERS, open_loopback, serve_lading
from tests.foreign.suites import SUITES, GoSuite
from tests.interop import go_programs


def run_suite(suite: GoSuite, side: str, directory: Path) -> dict[str, str]:
    """Return the outcomes of a suite against ``ours`` or ``real``; its output is kept in ``directory``."""
    tests, place = go_programs.compile_tests(suite.module, suite.version, suite.package)
    server = SERVERS[suite.server]
    serving: AbstractContextManager[None]
    if side == "ours":
        serving = serve_lading(directory, place, server.settings)
    elif server.serve_real is not None:
        serving = server.serve_real(directory, place)
    else:
        raise go_programs.Unavailable(f"the real server of {suite.name} is in no registry")
    events = directory / "events.json"
    command = [
        "go", "tool", "test2json", "-t", str(tests), "-test.v=test2json", f"-test.timeout={suite.timeout_s}s",
        *([f"-test.skip=^({'|'.join(suite.not_run)})$"] if suite.not_run else []), *suite.arguments,
    ]  # fmt: skip
    with serving, events.open("w") as out:
        subprocess.run(
            command, cwd=place, env=os.environ | dict(suite.environment), stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, timeout=suite.timeout_s + 60, check=False,
        )  # fmt: skip
    return read_go_events(events.read_text(errors="replace").splitlines())


def main(name: str, side: str, directory: str) -> None:
    """Run the suite of this name and write its outcomes to ``outcomes.json`` of the directory."""
    open_loopback()
    (suite,) = (one for one in SUITES if one.name == name)
    place = Path(directory)
    (place / "outcomes.json").write_text(json.dumps(run_suite(suite, side, place)))


if __name__ == "__main__":
    main(*sys.argv[1:])
