"""Waiting for messages on behalf of a poll.

A poll is held for at most WAIT_US_MAX, even if it asks for longer, and then gets the messages that exist. Its client
polls again, and later requests of the connection are not delayed for longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from ....model.errors import Reason, Refusal
from ...base.loaded_read import attempt_when_loaded
from ...base.services import Services

if TYPE_CHECKING:
    from ....broker.core.topology import Partition

WAIT_US_MAX: Final = 500_000

Polled = TypeVar("Polled")


def require_minimum(count_min: int, count: int) -> None:
    """Raise Refusal if ``count_min``, the minimum that a poll of ``count`` messages waits for, is impossible."""
    if not 1 <= count_min <= count:
        raise Refusal(Reason.INVALID_COUNT, f"minimum of a poll is 1 to {count} messages, not {count_min}")


async def wait_for_messages(
    services: Services,
    watched: Sequence[Partition],
    wait_us: int,
    try_now: Callable[[], Awaitable[Polled]],
    has_messages: Callable[[Polled], bool],
) -> Polled:
    """Return the first attempt that has messages, or the last one when the wait is over.

    It does not wait for more: a poll may have moved its consumer's position, and must then not be repeated.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + min(wait_us, WAIT_US_MAX) / 1e6
    while True:
        arrived = asyncio.Event()
        with ExitStack() as watching:
            for partition in watched:
                watching.callback(partition.add_visible_callback(arrived.set))
            watching.callback(services.add_stop_callback(arrived.set))
            polled = await attempt_when_loaded(try_now)
            left_s = ends_s - loop.time()
            if has_messages(polled) or left_s <= 0 or services.stopping:
                return polled
            try:
                await asyncio.wait_for(arrived.wait(), left_s)
            except TimeoutError:
                return polled
