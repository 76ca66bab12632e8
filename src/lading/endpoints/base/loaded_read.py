"""Reads that wait until their messages are on this machine, for stores whose messages are elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

from ...model.errors import LadingError, NotLoaded

R = TypeVar("R")


async def wait_until_loaded(absent: NotLoaded) -> None:
    """Return when the read that raised ``absent`` can be made again. Raises the error if its messages cannot be had."""
    loaded: asyncio.Future[LadingError | None] = asyncio.get_running_loop().create_future()

    def finish(error: LadingError | None) -> None:
        if not loaded.done():
            loaded.set_result(error)

    absent.add_loaded_callback(finish)
    if (error := await loaded) is not None:
        raise error


async def read_when_loaded(read: Callable[[], R]) -> R:
    """Return what ``read`` returns, made again as long as messages that it needs are being loaded."""
    while True:
        try:
            return read()
        except NotLoaded as absent:
            await wait_until_loaded(absent)


async def attempt_when_loaded(attempt: Callable[[], Awaitable[R]]) -> R:
    """Return what ``attempt`` returns, as ``read_when_loaded`` does."""
    while True:
        try:
            return await attempt()
        except NotLoaded as absent:
            await wait_until_loaded(absent)


async def poll_when_loaded(poll: Callable[[], R | Callable[[], R]], workers: Executor) -> R:
    """Return the response to a poll, made in a worker if ``poll`` returns a function for that."""
    answer = await read_when_loaded(poll)
    return await asyncio.get_running_loop().run_in_executor(workers, answer) if callable(answer) else answer
