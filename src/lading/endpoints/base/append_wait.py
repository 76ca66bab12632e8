"""Waiting for an append or another result of the broker, for endpoints that respond with a coroutine."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ...broker.core.pending_append import Append
from ...broker.core.pending_result import PendingResult

T = TypeVar("T")


async def wait_acknowledged(append: Append) -> None:
    """Return when the messages last; raise what kept them from it."""
    done = asyncio.Event()
    append.add_done_callback(lambda _append: done.set())
    await done.wait()
    if append.error is not None:
        raise append.error


async def wait_for_result(pending: PendingResult[T]) -> T:
    """Return the value when it is there; raise the refusal."""
    done = asyncio.Event()
    pending.add_done_callback(lambda _pending: done.set())
    await done.wait()
    return pending.value
