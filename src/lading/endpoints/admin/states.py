"""Admin: message states of whole topics, and what retention is about to delete."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.rights import Right
from ...broker.core.upkeep.retention import forecast, rule_of
from ...runtime.clock import date_us
from ...runtime.turns import Turns, finish_in_turns, map_in_turns
from ..base.services import Services
from ..http_shared.documents import RangeQuery, RetentionQuery, json_response, parse_body, parse_query
from ..http_shared.http import read_body
from ..http_shared.http_guard import client_of
from ..http_shared.partitions import partition_of
from ..http_shared.routing import HttpRoute, Parameters
from ..http_shared.states import (
    BODY_BYTES_MAX,
    INLINE_BYTES_MAX,
    WORK_S,
    StateChangeProgress,
    StateRequests,
    TopicStatesDocument,
    answer_states,
    clip_ranges,
    count_states,
    parse_states,
    state_of,
)

if TYPE_CHECKING:
    from ...broker.core.topology import Partition
    from ...broker.core.upkeep.retention import ExpiringRange

_TOPIC = "/topics/{stream}/{topic}"


class AdminStates:
    """Handlers of message states and retention."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._requests = StateRequests(services)

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router."""
        return [
            HttpRoute("GET", f"{_TOPIC}/states", "topic.states.get", self._count_all_states, right=Right.READ),
            HttpRoute("PUT", f"{_TOPIC}/states", "topic.states.set", self._set_in_topic, right=Right.ADMINISTRATE),
            HttpRoute("GET", f"{_TOPIC}/retention", "topic.retention", self._preview_retention, right=Right.DESCRIBE),
            HttpRoute("GET", f"{_TOPIC}/{{partition}}/states", "states.get", self._list_states, right=Right.READ),
            HttpRoute("PUT", f"{_TOPIC}/{{partition}}/states", "states.set", self._set, right=Right.ADMINISTRATE),
        ]

    async def _list_states(self, request: Request, path: Parameters) -> Response:
        query = parse_query(RangeQuery, request.query_params)
        return await answer_states(partition_of(self._broker, path), query.first, query.end, self._services.requests)

    async def _set(self, request: Request, path: Parameters) -> Response:
        partition_of(self._broker, path)
        body = await read_body(request, BODY_BYTES_MAX, self._services.receive)
        wanted = await self._services.run_in_worker(len(body), INLINE_BYTES_MAX, parse_states, body)
        progress = await self._requests.set(lambda: partition_of(self._broker, path), wanted, client_of(request))
        return json_response(progress.document())

    async def _count_all_states(self, request: Request, path: Parameters) -> Response:
        topic = self._broker.topology.topic(path["stream"], path["topic"])
        return json_response([await finish_in_turns(_count_states(one)) for one in list(topic.partitions)])

    async def _set_in_topic(self, request: Request, path: Parameters) -> Response:
        topic = self._broker.topology.topic(path["stream"], path["topic"])
        wanted = await parse_body(TopicStatesDocument, request, self._services.receive)
        state = state_of(wanted.state)
        client = client_of(request)
        query = await self._requests.query(wanted.where, client, topic)
        done = StateChangeProgress()
        left: dict[str, list[int]] = {}
        until_s = time.monotonic() + WORK_S
        for number, first, end in clip_ranges(wanted.ranges, topic.partitions):
            at = first
            # the first one always gets on, so that a request that is repeated comes to its end
            if first < end and (time.monotonic() < until_s or not done.seen):
                part = await self._requests.by_filter(
                    lambda number=number: self._broker.topology.topic(path["stream"], path["topic"]).partition(number),  # type: ignore[misc]
                    query, first, end, state, wanted.reason, wanted.dry_run, until_s, client,
                )  # fmt: skip
                done.seen += part.seen
                done.matched += part.matched
                done.changed += part.changed
                at = part.first
            if at < end:
                left[str(number)] = [at, end]
        document = {"seen": done.seen, "matched": done.matched, "changed": done.changed}
        return json_response(document | {"ranges": left, "done": not left})

    async def _preview_retention(self, request: Request, path: Parameters) -> Response:
        query = parse_query(RetentionQuery, request.query_params)
        topic = self._broker.topology.topic(path["stream"], path["topic"])
        settings = self._broker.settings
        time_us = date_us()

        def document(partition: Partition) -> dict[str, Any]:
            going = forecast(partition, settings, time_us, query.within_ms * 1_000)
            return {"partition": partition.number, "going": [_to_document(one) for one in going]}

        rule = rule_of(topic, settings) if topic.partitions else None
        return json_response(
            {
                "now_us": time_us,
                "age_us": rule and rule.age_us,
                "size_bytes": rule and rule.size_bytes,
                "mark_us": rule and rule.mark_us,
                "check_us": settings.retention_check_us,
                "partitions": await map_in_turns(document, topic.partitions),
            }
        )


def _count_states(partition: Partition) -> Turns[dict[str, Any]]:
    states = yield from count_states(partition)
    return {
        "partition": partition.number,
        "first_offset": partition.log.first_offset,
        "next_offset": partition.log.next_offset,
        "states": states,
    }


def _to_document(one: ExpiringRange) -> dict[str, Any]:
    return one._asdict()
