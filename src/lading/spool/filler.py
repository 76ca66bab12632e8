"""The ingest loop: take from the queue, append to the spool, sync, and only then acknowledge to the queue.

Delivery is at least once: messages that were appended, but not finished when a process or connection ended, come again.
If the same node sends them again, with the same id and time, this process recognises them and leaves them out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..model.errors import LocalError
from ..transports.interface import QueueMembership
from ..transports.open import open_transport
from ..transports.redelivery import KnownMessages
from .spool_log import KEEP_S, Spool

WAIT_MS: Final = 250
BATCH_MESSAGES: Final = 10_000
QUIET_S: Final = 0.5
TRIM_S: Final = 5.0
CAUGHT_UP_S: Final = 10.0
"""``caught_up`` is called after QUIET_S without messages, and after this time at the latest."""


def fill_spool(
    url: str,
    topic: str,
    channel: str,
    directory: Path,
    *,
    is_stopped: Callable[[], bool],
    caught_up: Callable[[int], None],
    done: Callable[[], int | None] = lambda: 0,
    keep_s: float = KEEP_S,
    **options: Any,
) -> int:
    """Fill the spool until ``is_stopped``; return how many messages were appended.

    ``caught_up`` is called once, with the spool's end, when what waited in the queue at the start has been taken.
    ``done`` returns the offset up to which readers are done, None for all messages: those before it are deleted when
    they are older than ``keep_s``. Raises LadingError if the queue cannot be reached or the spool cannot be written;
    the messages then remain in the queue.
    """
    transport = open_transport(url, **options)
    try:
        membership = transport.join(channel, [topic])
        if not isinstance(membership, QueueMembership):
            raise LocalError(f"{url} is not a queue; read it directly, without a spool")
        spool = Spool(directory, topic)
        try:
            return _fill(spool, membership, is_stopped, caught_up, lambda: spool.trim(done(), keep_s))
        finally:
            membership.leave()
            spool.close()
    finally:
        transport.close()


def _fill(
    spool: Spool,
    queue: QueueMembership,
    stopped: Callable[[], bool],
    caught_up: Callable[[int], None],
    trim: Callable[[], None],
) -> int:
    known = KnownMessages()
    at = count = 0
    began = last = time.monotonic()
    has_caught_up = False
    trim_s = began
    while not stopped():
        queue.fetch(at, max_messages=1, wait_ms=WAIT_MS)
        messages = queue.messages(at, BATCH_MESSAGES)
        now = time.monotonic()
        if messages:
            fresh = [one for one in messages if not known.is_repeated(one)]
            if fresh:
                spool.append(queue.dialect, [one.stored for one in fresh], [one.timestamp_us for one in fresh])
            at += len(messages)
            count += len(fresh)
            queue.finish(at)
            last = now
        else:
            spool.maintain()
        if now >= trim_s:
            trim()
            trim_s = now + TRIM_S
        if not has_caught_up and (now - last >= QUIET_S or now - began >= CAUGHT_UP_S):
            has_caught_up = True
            caught_up(spool.end)
    # trim at the end too: a process that only runs for moments would otherwise never delete anything
    trim()
    return count
