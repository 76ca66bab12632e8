"""Waiting for an append, where an endpoint answers with a coroutine."""

from __future__ import annotations

import asyncio

from ...broker.core.pending_append import Append


async def wait_acknowledged(append: Append) -> None:
    """Return when the messages last; raise what kept them from it."""
    done = asyncio.Event()
    append.add_done_callback(lambda _append: done.set())
    await done.wait()
    if append.error is not None:
        raise append.error
