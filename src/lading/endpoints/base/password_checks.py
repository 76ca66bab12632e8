"""Slow checks of passwords, one after another in a thread of their own, in turns by the address of the client."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ...model.errors import Reason, Refusal

CHECKS_MAX: Final = 256
"""Checks that wait, of all addresses; a check takes a fifth of a second of one thread."""
CHECKS_PER_ADDRESS_MAX: Final = 32

Check = Callable[[], bool]
_Waiting = tuple[Check, "asyncio.Future[bool]"]


class PasswordChecks:
    """Runs checks in a thread: each address has its turn, so that one with many checks makes no other one wait long.

    Threads: event loop only.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        """By address; the first one has the next turn."""
        self._count = 0
        self._thread: ThreadPoolExecutor | None = None
        self._is_running = self._is_closed = False

    async def run(self, address: str, check: Check) -> bool:
        """Return the result of ``check``, which runs in a thread. Raises Refusal if too many checks wait."""
        if self._is_closed:
            raise _stopping_error()
        self._make_room(address)
        result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append((check, result))
        self._count += 1
        self._start_next()
        return await result

    def close(self) -> None:
        """Run no more checks; those that wait are refused."""
        self._is_closed = True
        while (waiting := self._take_next()) is not None:
            waiting[1].set_exception(_stopping_error())
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _make_room(self, address: str) -> None:
        """Raises Refusal if there is no place for a check; one of the address with the most checks may make place."""
        own = len(self._waiting.get(address, ()))
        if own >= CHECKS_PER_ADDRESS_MAX:
            raise _too_many_error()
        if self._count < CHECKS_MAX:
            return
        longest = max(self._waiting.values(), key=len)
        if len(longest) <= own + 1:
            raise _too_many_error()
        _, result = longest.pop()
        self._count -= 1
        if not result.done():
            result.set_exception(_too_many_error())

    def _take_next(self) -> _Waiting | None:
        """Return the check whose turn it is, without those whose clients are gone."""
        while self._waiting:
            address, checks = self._waiting.popitem(last=False)
            check, result = checks.popleft()
            self._count -= 1
            if checks:
                self._waiting[address] = checks
            if not result.done():
                return check, result
        return None

    def _start_next(self) -> None:
        if self._is_running or (waiting := self._take_next()) is None:
            return
        check, result = waiting
        if self._thread is None:
            # its own: no number of logins takes the workers from those who read and write
            self._thread = ThreadPoolExecutor(1, "lading-login")
        self._is_running = True
        running = asyncio.get_running_loop().run_in_executor(self._thread, check)

        def finish(done: asyncio.Future[bool]) -> None:
            self._is_running = False
            if not result.done():
                if done.cancelled():
                    result.set_exception(_stopping_error())
                elif (error := done.exception()) is not None:
                    result.set_exception(error)
                else:
                    result.set_result(done.result())
            self._start_next()

        running.add_done_callback(finish)


def _too_many_error() -> Refusal:
    return Refusal(Reason.INVALID_CREDENTIALS, "too many logins wait; try again in a few seconds")


def _stopping_error() -> Refusal:
    return Refusal(Reason.STOPPING, "the broker is stopping")
