"""Work that reports its progress by a callback, as a stream of documents; the work ends when the page is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from .responses import Document

LOOK_S: Final = 0.2
"""The time between two reports of progress."""
Advance = Callable[[int], None]


class PageLeft(Exception):
    """Ends work whose page was closed; no user sees it."""


def run_with_progress(work: Callable[[Advance], Document]) -> Iterator[Document]:
    """Run ``work`` in a thread; yield its progress, and at the end its result. Raises the errors of ``work``.

    The work calls its argument with the number of items done since the last call; the call ends the work if the page
    was closed.
    """
    done: dict[str, Any] = {"count": 0}
    left = threading.Event()

    def advance(count: int) -> None:
        done["count"] += count
        if left.is_set():
            raise PageLeft

    def run() -> None:
        try:
            done["result"] = work(advance)
        except PageLeft:
            done["result"] = {}
        except Exception as error:
            done["error"] = error

    thread = threading.Thread(target=run, name="lading-console-work", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_S)
            yield {"looked_at": done["count"]}
    finally:
        left.set()
    if "error" in done:
        raise done["error"]
    yield done["result"] | {"end": True}
