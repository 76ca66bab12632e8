"""Ends mirrors at the commit of a work, and starts each again: ``end_driver SOURCE TOPIC STATES TARGET=NAME…``.

NAME is ``STEP_WAY``: before the commit, or after it and before the mirror knows that; by an exception, by ``os._exit``
or by kill -9. Each run is a fork of this process. Prints by name how the first run ended, and what the second one sent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from lading.client.delivery import LadingTransactionCommit, SentByTask
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings

RAISED, EXITED = 3, 4


class InjectedError(Exception):
    """The end of a process by an error that nothing catches."""


def _raise() -> NoReturn:
    raise InjectedError


WAYS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "exit": lambda: os._exit(EXITED),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}
STEPS = ("before", "after")


def main(arguments: list[str]) -> int:
    from_, topic, states = arguments[0], arguments[1], Path(arguments[2])
    figures = {}
    for pair in arguments[3:]:
        target, _, name = pair.partition("=")
        step, way = name.split("_")
        settings = MirrorSettings(from_, target, [topic], renames={topic: name}, state=states / name)
        status = run_until_commit(settings, step, WAYS[way])
        figures[name] = {"ended": status, "left": run_mirror(settings).messages}
    print(json.dumps(figures))
    return 0


def run_until_commit(settings: MirrorSettings, step: str, end: Callable[[], object]) -> int:
    """Run the mirror in a child that ends at its first commit; return its status as a shell would."""
    commit = LadingTransactionCommit.commit

    def ending(self: LadingTransactionCommit, work: str, sent: Sequence[SentByTask]) -> None:
        if step == "after":
            commit(self, work, sent)
        end()

    child = os.fork()
    if child == 0:
        status = 0
        try:
            with patch.object(LadingTransactionCommit, "commit", ending):
                run_mirror(settings)
        except InjectedError:
            status = RAISED
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
