"""Conversion of the broker's results, now or later, to the fields of a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ...broker.core.pending_result import PendingResult
from ...dialects.kafka.errors import COORDINATOR_NOT_AVAILABLE, code_of
from ...model.errors import Reason, Refusal
from .handling import Fields

T = TypeVar("T")


_PASSING: Final = frozenset({Reason.STOPPING, Reason.DISK_FULL, Reason.READ_ONLY})
"""Sent for failures that pass: clients look up the coordinator again and repeat the request, as after storage errors of
the real one; any other storage error would be final for them, in a transaction even for the producer.
"""


def coordinator_code(error: Refusal) -> int:
    """Return the code for a refusal of the coordinator."""
    return COORDINATOR_NOT_AVAILABLE if error.reason in _PASSING else code_of(error)


def complete_with(
    answer: PendingResult[T], fields: Callable[[T], Fields], refused: Callable[[Refusal], Fields]
) -> Fields | Awaitable[Fields]:
    """Return the fields of a response, at once if the result is already known."""

    def made(done: PendingResult[T]) -> Fields:
        return fields(done.value) if done.error is None else refused(done.error)

    if answer.done:
        return made(answer)
    future: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()

    def finish(done: PendingResult[T]) -> None:
        if future.done():
            return
        try:
            future.set_result(made(done))
        except Exception as error:
            # the caller logs it and closes the connection; if a callback raised, the client would wait for ever
            future.set_exception(error)

    answer.add_done_callback(finish)
    return future
