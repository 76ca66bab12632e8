"""Durable responses for catalog writes without a sync of their own: one sync for all requests that arrive meanwhile.

As with messages, requests that arrive during a sync are written and synced together after it, so that the disk sets the
number of syncs, not the number of clients, and the event loop waits for none.
"""

from __future__ import annotations

from collections.abc import Callable

from ...log.catalog import Catalog
from ...log.interface import Commit
from ...model.errors import Reason, Refusal
from ...runtime.turns import CallbackQueue
from .pending_result import PendingResult


class CatalogCommit:
    """Group commit of the catalog's writes at level NORMAL."""

    def __init__(
        self,
        catalog: Catalog,
        commit: Commit,
        call_at_end_of_pass: Callable[[Callable[[], None]], None],
        write_some: Callable[[], bool],
        completions: CallbackQueue,
    ) -> None:
        """``write_some`` writes to the catalog what waits in memory and says whether there is more; it may raise
        Refusal. ``completions`` calls those that wait for a sync, a few in each pass of the loop."""
        self._catalog = catalog
        self._commit = commit
        self._call_at_end_of_pass = call_at_end_of_pass
        self._write_some = write_some
        self._completions = completions
        self._next: PendingResult[None] | None = None
        """The result of all callers whose sync has not begun."""
        self._is_running = False

    def confirm(self) -> PendingResult[None]:
        """Return a response that is done when all writes made or pending so far are durable.

        It is refused if the disk refuses the write or the sync. Many callers share one response.
        """
        if self._next is None:
            self._next = PendingResult()
            if not self._is_running:
                self._call_at_end_of_pass(self._begin)
        return self._next

    def _begin(self) -> None:
        answer = self._next
        if answer is None:
            return
        self._is_running = True
        try:
            if self._write_some():
                # others have their turn; those who ask meanwhile share the sync that follows
                self._call_at_end_of_pass(self._begin)
                return
            self._next = None
            self._commit.submit(self._catalog.wal, lambda error: self._finish(answer, error))
        except (Refusal, OSError) as error:
            self._is_running, self._next = False, None
            answer.refuse(error if isinstance(error, Refusal) else self._make_refusal(error), self._completions)

    def _finish(self, answer: PendingResult[None], error: OSError | None) -> None:
        self._is_running = False
        # begin the next before the callbacks: they take time, and the disk would be idle
        self._begin()
        if error is None:
            answer.finish(None, self._completions)
        else:
            answer.refuse(self._make_refusal(error), self._completions)

    def _make_refusal(self, error: OSError) -> Refusal:
        return Refusal(
            Reason.READ_ONLY,
            f"the catalog {self._catalog.path} could not be synced: {error.strerror}; check the disk, then start again",
        )
