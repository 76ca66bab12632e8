"""Changes of streams and topics, made while requests are served: steps that wait for the disk run in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from ...runtime.turns import Turn

if TYPE_CHECKING:
    from ...broker.core.change import Change

R = TypeVar("R")


class ChangeRunner:
    """Runs changes on the event loop and their steps in workers."""

    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self._workers = workers
        self._running: set[asyncio.Task[object]] = set()
        self._turns: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()

    async def make(self, change: Change[R]) -> R:
        """Make a change; returns its result or raises its error. It is completed even if the caller is cancelled."""
        try:
            # the steps that need no disk are done at once, so that the next caller sees them
            step = next(change)
        except StopIteration as end:
            result: R = end.value
            return result
        return await self._shield(self._continue_change(change, step))

    async def make_in_turn(self, changed: object, change: Change[R], *also: object) -> R:
        """Make a change of a topic, or of users, when those of the same one before it have ended.

        ``also`` are others that it changes; all callers name several in the same order, users last.
        """
        return await self._shield(self._wait_and_make([changed, *also], change))

    async def _shield(self, work: Coroutine[None, None, R]) -> R:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # the caller has the error; if it waits no longer, asyncio must not warn of an error that was not retrieved
            task.exception()

    async def _wait_and_make(self, changed: list[object], change: Change[R]) -> R:
        async with AsyncExitStack() as turns:
            for one in changed:
                await turns.enter_async_context(self._turns.setdefault(one, asyncio.Lock()))
            return await self._continue_change(change, None)

    async def _continue_change(self, change: Change[R], step: Callable[[], object] | None) -> R:
        loop, turn = asyncio.get_running_loop(), Turn()
        try:
            while True:
                if step is None:
                    await turn.give_way()
                    step = next(change)
                    continue
                try:
                    await loop.run_in_executor(self._workers, step)
                except Exception as error:
                    step = change.throw(error)
                else:
                    turn, step = Turn(), next(change)
        except StopIteration as end:
            result: R = end.value
            return result
