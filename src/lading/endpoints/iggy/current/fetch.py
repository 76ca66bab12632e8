"""Polls of the current Iggy that may wait, and those of several partitions at once (iggy-current.md V).

Requests of a connection are answered in their order, so a poll that waits holds up what comes behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ....dialects.iggy_current import responses
from ....dialects.iggy_current.errors import code_of
from ....dialects.iggy_current.operations import (
    FETCH,
    POLL_DEFERRED,
    READS,
    Deferral,
    FetchTarget,
    parse_body,
)
from ....model.errors import LadingError, Reason, Refusal
from ...base.services import now_us as clock_us
from ..poll import STRATEGIES
from .caller import from_wire
from .poll import PolledBatches, PollRoute
from .waiting import require_minimum, wait_for_messages

if TYPE_CHECKING:
    from ....dialects.iggy_classic.primitives import Strategy
    from .caller import CurrentCaller
    from .poll import CurrentPoller

TARGETS_MAX: Final = 1_000
"""Partitions of one fetch."""
_OK: Final = 0


async def poll_deferred(poller: CurrentPoller, body: bytes, caller: CurrentCaller) -> PolledBatches:
    """Poll once there are enough messages, or when the wait is over."""
    values = parse_body(READS[POLL_DEFERRED], memoryview(body))
    deferral: Deferral = values.pop("deferral")
    require_minimum(deferral.count_min, values["count"])
    topic = poller.topic_of(from_wire(values["stream"]), from_wire(values["topic"]))
    route = poller.route_of(topic, values["consumer"], values["partition"])
    watched = topic.partitions if route.partition is None else [topic.partition(route.partition)]

    async def try_now() -> PolledBatches:
        return await _poll(
            poller, route, caller, values["strategy"], values["count"], values["auto_commit"], deferral.bytes_max
        )

    return await wait_for_messages(poller.services, watched, deferral.wait_us, try_now, _has_messages)


async def fetch(poller: CurrentPoller, body: bytes, caller: CurrentCaller) -> PolledBatches:
    """Poll several partitions of a topic: a table of them, then their messages in its order."""
    values = parse_body(READS[FETCH], memoryview(body))
    targets: Sequence[FetchTarget] = values["targets"]
    if not 1 <= len(targets) <= TARGETS_MAX or len({one.partition for one in targets}) != len(targets):
        raise Refusal(Reason.MALFORMED, f"{len(targets)} partitions are not 1 to {TARGETS_MAX} different ones")
    require_minimum(values["count_min"], values["count"])
    topic = poller.topic_of(from_wire(values["stream"]), from_wire(values["topic"]))

    async def try_now() -> PolledBatches:
        sections: list[bytes] = []
        records: list[bytes | memoryview] = []
        count, room, stubs = values["count"], values["bytes_max"], 0
        for one in targets:
            if count <= 0 or room <= 0:
                break
            try:
                route = poller.route_of(topic, values["consumer"], one.partition)
                bytes_max = min(one.bytes_max, room)
                polled = await _poll(poller, route, caller, one.strategy, count, values["auto_commit"], bytes_max)
            except LadingError as error:
                sections.append(responses.section_block(one.partition, code_of(error), 0, 0, one.incarnation, 0, 0))
                continue
            found = polled.parts[1:]
            size_bytes = sum(map(len, found))
            count, room, stubs = count - polled.count, room - size_bytes, stubs + polled.stubs
            records += found
            following = polled.next_offset if polled.count else poller.next_of(route, one.strategy)
            last_offset = max(topic.partition(one.partition).log.high_watermark - 1, 0)
            sections.append(
                responses.section_block(
                    one.partition, _OK, last_offset, polled.count, topic.created_us, following, size_bytes
                )
            )
        head = responses.U32.pack(len(sections)) + b"".join(sections)
        return PolledBatches((head, *records), values["count"] - count, stubs=stubs)

    numbers = [one.partition for one in targets if one.partition < len(topic.partitions)]
    watched = [topic.partitions[number] for number in numbers]
    return await wait_for_messages(poller.services, watched, values["wait_us"], try_now, _has_messages)


async def _poll(
    poller: CurrentPoller,
    route: PollRoute,
    caller: CurrentCaller,
    strategy: Strategy,
    count: int,
    auto_commit: bool,
    bytes_max: int,
) -> PolledBatches:
    """Poll one partition, in a worker as far as that takes long."""
    start = STRATEGIES[strategy.kind](strategy.value)
    bound = min(bytes_max, poller.answer_bytes_max)
    polled = poller.poll_route(route, caller, start, count, auto_commit, bound, clock_us())
    if isinstance(polled, PolledBatches):
        return polled
    return await asyncio.get_running_loop().run_in_executor(poller.services.workers, polled)


def _has_messages(polled: PolledBatches) -> bool:
    return polled.count > 0


WAITING: Final[Mapping[int, Callable[[CurrentPoller, bytes, CurrentCaller], Awaitable[PolledBatches]]]] = {
    POLL_DEFERRED: poll_deferred,
    FETCH: fetch,
}
"""By command code."""
