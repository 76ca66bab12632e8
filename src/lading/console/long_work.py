"""Work that tells how far it is by a callback, as a stream of documents that ends it when the page leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from .responses import Document

LOOK_S: Final = 0.2
"""So often it is told how far the work is."""
Advance = Callable[[int], None]


class PageLeft(Exception):
    """Ends work whose page was left; never seen by people."""


def run_with_progress(work: Callable[[Advance], Document]) -> Iterator[Document]:
    """Run ``work`` in a thread; yield what it did so far, and at the end what it returns. Raises what it raises.

    The work calls its argument with how many it has done since; that is where it ends if it is no longer wanted.
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
