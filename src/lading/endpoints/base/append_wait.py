"""Waiting for an append or another result of the broker, for endpoints that respond with a coroutine."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ...broker.core.pending_append import Append
from ...broker.core.pending_result import PendingResult

T = TypeVar("T")


async def wait_acknowledged(append: Append) -> None:
    """Return when the messages are durable. Raises the error if they could not be made durable."""
    done = asyncio.Event()
    append.add_done_callback(lambda _append: done.set())
    await done.wait()
    if append.error is not None:
        raise append.error


async def wait_for_result(pending: PendingResult[T]) -> T:
    """Return the value when it is known. Raises the refusal, if there is one."""
    done = asyncio.Event()
    pending.add_done_callback(lambda _pending: done.set())
    await done.wait()
    return pending.value
