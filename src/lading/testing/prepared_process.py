"""A process that imports what a broker needs before it learns which broker to be.

Imports are nine tenths of a start. So a process that will want a broker begins one at once, does its own imports
beside it, and hands the arguments over when it has them: one line of JSON on standard input, which stays open as long
as the broker is wanted (``lading.cli.prepared_serve`` is the other end).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

READ_WHEN_STARTED: Final = ("LADING_", "PYTEST_", "NOTIFY_SOCKET", "WATCHDOG_", "COLUMNS", "TMPDIR")
"""Prefixes of variables that nothing reads before a broker starts, so that they may change until then."""
END_TIMEOUT_S: Final = 60.0
"""A killed process has ended by then."""


class PreparedProcess:
    """A future broker; its process is a child of this one and ends with it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        """The process that may hand it over."""
        self._environment = dict(os.environ)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", "lading.cli.prepared_serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def hand_over(self, arguments: Sequence[str], environment: Mapping[str, str], log_file: Path) -> bool:
        """Have it run ``lading serve`` with these arguments, in this directory; false if it cannot.

        It cannot if it has ended, or if imports may differ in ``environment``. ``log_file`` is its
        standard error from then on, and is there once it has taken over.
        """
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": str(Path.cwd()),
            "log_file": str(log_file),
        }
        assert self.process.stdin is not None
        if read_early(environment) != read_early(self._environment):
            return False
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return False
        return True

    def end(self) -> None:
        """End the process unless it was handed over."""
        self.process.kill()
        self.process.wait(END_TIMEOUT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # the process ended before it read this
                with suppress(OSError):
                    pipe.close()


def read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that imports may look at."""
    return {name: value for name, value in environment.items() if not name.startswith(READ_WHEN_STARTED)}
