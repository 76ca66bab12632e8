"""Execution of the tasks of a batch: on Spark, or in processes of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from .commit.table_commit import StagedRange
from .plan.ranges import OffsetRange

LOOK_INTERVAL_S: Final = 0.1
GIVEN_UP_WAIT_S: Final = 10.0
"""How long unwanted tasks have to end, and a batch with a manifest to be published."""

Stage = Callable[[OffsetRange, str], StagedRange]
"""Work of a task on a range; the text is the name of the attempt, which no other attempt has."""


class Executor(Protocol):
    """Runs the tasks of one run."""

    def write(self, stage: Stage, ranges: Sequence[OffsetRange]) -> list[StagedRange]:
        """Call ``stage`` with every range, in a task each, and return what they did.

        Of attempts that failed nothing comes back. Raises what tasks raised, as the executor wraps it.
        """

    def run_watched(self, work: Callable[[], None], on_poll: Callable[[], None]) -> None:
        """Run ``work``, which calls ``write``, and ``on_poll`` meanwhile; if that raises, the tasks are cancelled."""

    def original_error(self, error: Exception) -> Exception:
        """Return the error of ours inside what the executor raised, else ``error`` itself."""

    def close(self) -> None:
        """Release the workers; further calls do nothing."""


def watch_thread(work: Callable[[], None], on_poll: Callable[[], None], give_up: Callable[[], None]) -> None:
    """Do ``work`` in a thread of its own and call ``on_poll`` meanwhile.

    If ``on_poll`` raises, ``give_up`` is called, and a batch that is being published has a moment to end.
    """
    failed: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=do, name="lading batch", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_INTERVAL_S)
            on_poll()
    except BaseException:
        give_up()
        thread.join(GIVEN_UP_WAIT_S)
        raise
    if failed:
        raise failed[0]
