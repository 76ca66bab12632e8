"""Long work of clients in separate threads, in turns by client: a client with much work does not delay others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from ...model.errors import Reason, Refusal
from ...runtime.turns import Turn, Turns

R = TypeVar("R")

TURN_S: Final = 0.05
"""Work that yields continues for about this long before the next client has its turn."""


class FairLimits(NamedTuple):
    """Limits of one kind of work, as data."""

    threads: int
    waiting_max: int
    client_waiting_max: int
    """At most this many jobs of one client wait."""
    reason: Reason
    """The reason of refusals once one of the two limits is reached."""
    sentence: str


class _Job(NamedTuple):
    work: Turns[Any]
    result: asyncio.Future[Any]


class FairRunner:
    """Runs work in turns: after each turn the next client has one. Threads: event loop only, except for the work
    itself.
    """

    def __init__(self, name: str, limits: FairLimits) -> None:
        """``name`` is the name of the threads."""
        self._name, self._limits = name, limits
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        """Waiting work by client; the first client has the next turn."""
        self._count = 0
        self._threads: ThreadPoolExecutor | None = None
        self._running_count = 0
        self._is_closed = False

    async def run(self, client: str, work: Turns[R]) -> R:
        """Return the result of ``work``, which runs in a thread. Raises Refusal if too much waits."""
        if self._is_closed:
            raise _stopping_error()
        self._make_room(client)
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(_Job(work, result))
        self._count += 1
        self._start_next()
        return await result

    def close(self) -> None:
        """Run nothing more; work that waits is refused."""
        self._is_closed = True
        while (job := self._take_next()) is not None:
            job[1].result.set_exception(_stopping_error())
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _make_room(self, client: str) -> None:
        """Make room for one more job; the client with the most jobs may lose its newest one. Raises Refusal if that
        fails.
        """
        own = len(self._waiting.get(client, ()))
        if own >= self._limits.client_waiting_max:
            raise self._too_many_error()
        if self._count < self._limits.waiting_max:
            return
        longest = max(self._waiting.values(), key=len)
        if len(longest) <= own + 1:
            raise self._too_many_error()
        job = longest.pop()
        self._count -= 1
        if not job.result.done():
            job.result.set_exception(self._too_many_error())

    def _too_many_error(self) -> Refusal:
        return Refusal(self._limits.reason, self._limits.sentence)

    def _take_next(self) -> tuple[str, _Job] | None:
        """Return the work whose turn it is, and its client; without work whose clients have disconnected."""
        while self._waiting:
            client, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            self._count -= 1
            if jobs:
                self._waiting[client] = jobs
            if not job.result.done():
                return client, job
        return None

    def _start_next(self) -> None:
        while self._running_count < self._limits.threads and (taken := self._take_next()) is not None:
            if self._threads is None:
                # their own: no number of clients takes the workers from those who read and write
                self._threads = ThreadPoolExecutor(self._limits.threads, self._name)
            self._running_count += 1
            turn = asyncio.get_running_loop().run_in_executor(self._threads, _take_turn, taken[1].work)
            turn.add_done_callback(self._finisher_of(*taken))

    def _finisher_of(self, client: str, job: _Job) -> Callable[[asyncio.Future[Any]], None]:
        def finish(turn: asyncio.Future[Any]) -> None:
            self._running_count -= 1
            if not job.result.done():
                self._take_result(client, job, turn)
            if not self._is_closed:
                self._start_next()

        return finish

    def _take_result(self, client: str, job: _Job, turn: asyncio.Future[Any]) -> None:
        if turn.cancelled() or (self._is_closed and turn.exception() is None and turn.result() is None):
            job.result.set_exception(_stopping_error())
        elif (error := turn.exception()) is not None:
            job.result.set_exception(error)
        elif (results := turn.result()) is not None:
            job.result.set_result(results[0])
        else:
            # it continues when its client has the next turn
            self._waiting.setdefault(client, deque()).appendleft(job)
            self._count += 1


def call_once(work: Callable[[], R]) -> Turns[R]:
    """Return work of one turn."""
    return work()
    yield


def _take_turn(work: Turns[R]) -> tuple[R] | None:
    """Continue the work for one turn. Return its result, or None if it is not done."""
    turn = Turn(TURN_S)
    try:
        next(work)
        while not turn.is_over():
            next(work)
    except StopIteration as end:
        return (end.value,)
    return None


def _stopping_error() -> Refusal:
    return Refusal(Reason.STOPPING, "the broker is stopping; connect again once it runs")
