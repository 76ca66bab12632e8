"""One suite against one server, as the only processes of a network: suites have the usual ports written into them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.foreign.prepare import prepare
from tests.foreign.servers import SERVERS, open_loopback
from tests.foreign.suites import SUITES, Suite
from tests.interop import go_programs


def run_suite(suite: Suite, side: str, directory: Path) -> dict[str, str]:
    """Return the outcomes of a suite against ``ours`` or ``real``; its output is kept in ``directory``."""
    prepared = prepare(suite)
    server = SERVERS[suite.server]
    serving: AbstractContextManager[Mapping[str, str]]
    if side == "ours":
        serving = server.serve_ours(directory, prepared.directory)
    elif server.serve_real is not None:
        serving = server.serve_real(directory, prepared.directory)
    else:
        raise go_programs.Unavailable(f"the real server of {suite.name} is in no registry")
    output = directory / "output.txt"
    with serving as environment, output.open("w") as out:
        try:
            subprocess.run(
                prepared.command, cwd=prepared.directory, env={**os.environ, **prepared.environment, **environment},
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=suite.timeout_s + 60,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{suite.name} did not end within {suite.timeout_s + 60} s", file=sys.stderr)
    return prepared.read(output.read_text(errors="replace"))


def main(name: str, side: str, directory: str) -> None:
    """Run the suite of this name and write its outcomes to ``outcomes.json`` of the directory."""
    open_loopback()
    (suite,) = (one for one in SUITES if one.name == name)
    place = Path(directory)
    (place / "outcomes.json").write_text(json.dumps(run_suite(suite, side, place)))


if __name__ == "__main__":
    main(*sys.argv[1:])
