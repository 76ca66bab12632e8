"""Polls of the current Iggy that may wait, and polls of several partitions at once (iggy-current.md V).

Requests of a connection get their responses in order, so a poll that waits delays the requests after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ....dialects.iggy.current import responses
from ....dialects.iggy.current.commands import FetchMessages, PollDeferred
from ....dialects.iggy.current.limits import TARGETS_MAX
from ....model.errors import LadingError, Reason, Refusal
from ...base.loaded_read import attempt_when_loaded, read_when_loaded
from ...base.services import now_us as clock_us
from ..poll import STRATEGIES
from .poll import PolledBatches, PollRoute
from .waiting import require_minimum, wait_for_messages

if TYPE_CHECKING:
    from ....dialects.iggy.classic.primitives import Strategy
    from ..clients import Client
    from .poll import CurrentPoller

_OK: Final = 0


async def poll_deferred(poller: CurrentPoller, command: PollDeferred, client: Client) -> PolledBatches:
    """Poll once there are enough messages, or when the wait is over."""
    deferral = command.deferral
    require_minimum(deferral.count_min, command.count)
    route = poller.route_of(poller.topic_of(command), command.consumer, command.partition_id)
    topic = route.topic
    watched = topic.partitions if route.partition is None else [topic.partition(route.partition)]

    async def try_now() -> PolledBatches:
        return await _poll(
            poller, route, client, command.strategy, command.count, command.auto_commit, deferral.bytes_max
        )

    return await wait_for_messages(poller.services, watched, deferral.wait_us, try_now, _has_messages)


async def fetch(poller: CurrentPoller, command: FetchMessages, client: Client) -> PolledBatches:
    """Poll several partitions of a topic; the response is a table of them, then their messages in the same order."""
    targets = command.targets
    if not 1 <= len(targets) <= TARGETS_MAX or len({one.partition for one in targets}) != len(targets):
        raise Refusal(Reason.MALFORMED, f"{len(targets)} partitions; name 1 to {TARGETS_MAX} different ones")
    require_minimum(command.count_min, command.count)
    topic = poller.topic_of(command)

    async def try_now() -> PolledBatches:
        sections: list[bytes] = []
        records: list[bytes | memoryview] = []
        count, room, stubs = command.count, command.bytes_max, 0
        for one in targets:
            if count <= 0 or room <= 0:
                break
            try:
                route = poller.route_of(topic, command.consumer, one.partition + 1)
                poll_one = partial(
                    _poll, poller, route, client, one.strategy, count, command.auto_commit, min(one.bytes_max, room)
                )
                # poll each partition by itself: polling the earlier ones again would return the messages after theirs
                polled = await attempt_when_loaded(poll_one)
                following = polled.next_offset
                if not polled.count:
                    following = await read_when_loaded(partial(poller.next_of, route, one.strategy))
            except LadingError as error:
                sections.append(
                    responses.section_block(one.partition, client.release.code_of(error), 0, 0, one.incarnation, 0, 0)
                )
                continue
            found = polled.parts[1:]
            size_bytes = sum(map(len, found))
            count, room, stubs = count - polled.count, room - size_bytes, stubs + polled.stubs
            records += found
            last_offset = max(topic.partition(one.partition).log.high_watermark - 1, 0)
            sections.append(
                responses.section_block(
                    one.partition, _OK, last_offset, polled.count, topic.created_us, following, size_bytes
                )
            )
        head = responses.U32.pack(len(sections)) + b"".join(sections)
        return PolledBatches((head, *records), command.count - count, stubs=stubs)

    numbers = [one.partition for one in targets if one.partition < len(topic.partitions)]
    watched = [topic.partitions[number] for number in numbers]
    return await wait_for_messages(poller.services, watched, command.wait_us, try_now, _has_messages)


async def _poll(
    poller: CurrentPoller,
    route: PollRoute,
    client: Client,
    strategy: Strategy,
    count: int,
    auto_commit: bool,
    bytes_max: int,
) -> PolledBatches:
    """Poll one partition, in a worker if that may take long."""
    start = STRATEGIES[strategy.kind](strategy.value)
    bound = min(bytes_max, poller.answer_bytes_max)
    polled = poller.poll_route(route, client, start, count, auto_commit, bound, clock_us())
    if isinstance(polled, PolledBatches):
        return polled
    return await asyncio.get_running_loop().run_in_executor(poller.services.workers, polled)


def _has_messages(polled: PolledBatches) -> bool:
    return polled.count > 0


WAITING: Final[Mapping[type[Any], Callable[[CurrentPoller, Any, Client], Awaitable[PolledBatches]]]] = {
    PollDeferred: poll_deferred,
    FetchMessages: fetch,
}
"""The function that handles each command that may wait."""
