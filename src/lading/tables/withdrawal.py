"""Claims, state and directories that a run has created, to be removed if it is refused before its first batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ..model.errors import LadingError, RemoteError, Unreachable
from .engine import TableRun, claim_table
from .formats.directory import OWNER
from .formats.registry import open_table
from .storage.files import OWN, read_document, remove_empty
from .storage.object_path import TablePath

LOG: Final = logging.getLogger("lading.tables")


@contextmanager
def remove_made_directories(*places: TablePath) -> Iterator[None]:
    """Remove, if what is done inside fails, the directories that were created for ``places`` and are empty."""
    made = {
        directory
        for place in places
        if isinstance(place, Path)
        for directory in (place, *place.parents)
        if not directory.exists()
    }
    try:
        yield
    except Exception:
        # the innermost first
        remove_empty(*sorted(made, key=lambda one: len(one.parts), reverse=True))
        raise


class RunWithdrawal:
    """Leaves the state and the tables of a run as they were, if it is refused.

    Entered when the run has its lock. Until ``keep`` is called every error takes back the claims of this run, and
    the state, unless an earlier run began it. After that only a server's refusal does, if nothing was published and
    the run began at the start of its topics: another position, such as ``latest``, is that of the first run forever.
    """

    def __init__(self, run: TableRun) -> None:
        self._run = run
        self._fresh: list[TablePath] = []
        self._is_new = not run.state.has_begun
        self._kept = False

    def claim_tables(self) -> None:
        """Make the tables this run's own. Raises LocalError if a table holds data of another writer."""
        for table in self._run.schemas:
            if read_document(table / OWN / OWNER) is None:
                self._fresh.append(table)
            claim_table(self._run, table)

    def keep(self) -> None:
        """Note that the start of the run is found, and its tables are ready."""
        self._kept = True

    def __enter__(self) -> RunWithdrawal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or not self._applies_to(error):
            return
        # the error that is raised names the problem; leftovers do not deserve another one
        with suppress(OSError):
            left = [table for table in self._fresh if not self._withdraw(table)]
            if self._is_new and not left and not self._run.state.manifests.numbers():
                self._run.state.withdraw()

    def _applies_to(self, error: Exception) -> bool:
        if not self._kept:
            return True
        return (
            self._is_new
            and isinstance(error, RemoteError)
            and not isinstance(error, Unreachable)
            and all(planner.options.starting == "earliest" for planner in self._run.planners)
            and not self._run.state.manifests.numbers()
        )

    def _withdraw(self, table: TablePath) -> bool:
        try:
            return open_table(table).withdraw(self._run.state.pipeline)
        except (LadingError, OSError) as error:
            LOG.warning("the table %s stays this run's own, as that cannot be taken back: %s", table, error)
            return False
