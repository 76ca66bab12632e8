"""Admin: the filters of groups and channels: set, removed, previewed and explained."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.rights import Resource, ResourceKind, Right, flat_topic_resource, topic_resource
from ...broker.core.group_condition import GroupCondition, select_offsets
from ...broker.core.read import ReadResult, message_offsets, read
from ...broker.group_filters import FILTERED, to_filter_key
from ...broker.group_view import GroupView
from ...broker.kafka.group import KAFKA
from ...dialects.native import protocol as native_row
from ...model.errors import Reason, Refusal
from ...runtime.turns import Turn
from ..base.fair_runner import call_once
from ..base.services import Services
from ..http_shared.documents import GroupFilterPreview, NewGroupFilter, json_response, parse_body
from ..http_shared.http_guard import client_of, group_in_path, principal_of
from ..http_shared.routing import HttpRoute, Parameters
from .topics import require_name

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.topology import Partition, Topic

PREVIEW_BYTES: Final = 4 << 20
"""About how many bytes of a partition a preview reads."""
FindGroup = Callable[[Request, Parameters], Awaitable[GroupView]]


class AdminGroupFilters:
    """Handlers of the filters of groups and channels."""

    def __init__(self, services: Services, find_group: FindGroup) -> None:
        """``find_group`` returns the group that a path names. Raises GROUP_NOT_FOUND."""
        self._services = services
        self._broker = services.broker
        self._find_group = find_group

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router."""
        path = "/groups/{protocol}/{group}/filter"
        return [
            HttpRoute("GET", path, "group.filter.show", self._show, right=None),
            HttpRoute("PUT", path, "group.filter", self._set, right=None),
            HttpRoute("DELETE", path, "group.filter.remove", self._remove, right=None),
            HttpRoute("POST", f"{path}/preview", "group.filter.preview", self._preview_filter, right=None),
        ]

    async def _show(self, request: Request, path: Parameters) -> Response:
        return json_response(describe_filter(self._broker, await self._find(request, path)))

    async def _set(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(NewGroupFilter, request, self._services.receive)
        view = await self._find(request, path)
        # a filter skips messages for good, as a deletion of the group may
        self._broker.access.require(principal_of(request), Right.ADMINISTRATE, find_resource(view))
        require_name("group", view.name, Reason.INVALID_GROUP_ID)
        condition = await self._parse(request, wanted.where)
        self._broker.group_filters.set(to_filter_key(view), condition, wanted.client_ids, view.topic)
        return json_response(describe_filter(self._broker, view))

    async def _remove(self, request: Request, path: Parameters) -> Response:
        view = await self._find(request, path)
        self._broker.access.require(principal_of(request), Right.ADMINISTRATE, find_resource(view))
        self._broker.group_filters.remove(to_filter_key(view), view.topic)
        return Response(status_code=204)

    async def _preview_filter(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(GroupFilterPreview, request, self._services.receive)
        view = await self._find(request, path)
        condition = await self._parse(request, wanted.where)
        access, topology, principal = self._broker.access, self._broker.topology, principal_of(request)
        positions = {(one.topic, one.partition): one.position for one in view.progress}
        names = dict.fromkeys([*wanted.topics, *(one.topic for one in view.progress)])
        turn, rows = Turn(), []
        for name in names:
            access.require(principal, Right.READ, flat_topic_resource(topology, name))
            topic = topology.resolve(name)
            for partition in topic.partitions:
                position = positions.get((name, partition.number))
                if position is not None or name in wanted.topics:
                    reading = self._read(partition, position, wanted.messages)
                    count = call_once(partial(_count_selected, condition, topic, reading))
                    looked_at, selected = await self._services.filters.run(client_of(request), count)
                    rows.append(
                        {
                            "topic": name,
                            "partition": partition.number,
                            "first": reading.first_offset,
                            "end": reading.end_offset,
                            "messages": looked_at,
                            "selected": selected,
                        }
                    )
                await turn.give_way()
        return json_response(rows)

    async def _parse(self, request: Request, where: str) -> GroupCondition:
        parse = call_once(partial(self._broker.group_filters.parse, where))
        return await self._services.filters.run(client_of(request), parse)

    def _read(self, partition: Partition, position: int | None, messages: int) -> ReadResult:
        """Read the next messages of a group, or the last ones if it has read all."""
        end = partition.log.last_stable_offset
        first = position if position is not None and position < end else max(end - messages, 0)
        return read(
            partition, first, reader=native_row.AVAILABLE, max_messages=messages, max_bytes=PREVIEW_BYTES,
            counters=self._broker.counters,
        )  # fmt: skip

    async def _find(self, request: Request, path: Parameters) -> GroupView:
        """Return the group that a path names; one of Kafka may have its filter before its first member."""
        if path["protocol"] not in FILTERED:
            raise Refusal(
                Reason.GROUP_NOT_FOUND,
                f"groups of {path['protocol']} have no filters, those of {' and '.join(sorted(FILTERED))} do; "
                "give the condition to the reader itself",
            )
        try:
            return await self._find_group(request, path)
        except Refusal as refusal:
            if refusal.reason is not Reason.GROUP_NOT_FOUND or path["protocol"] != KAFKA:
                raise
        self._broker.access.require(principal_of(request), Right.DESCRIBE, group_in_path(request, path))
        return GroupView(KAFKA, path["group"], "Dead", 0, [], [])


def _count_selected(condition: GroupCondition, topic: Topic, reading: ReadResult) -> tuple[int, int]:
    """Return how many messages there are, and how many of them a condition selects."""
    found = condition.find_filter(topic)
    looked_at = selected = 0
    for run, first, end in reading.pieces:
        offsets = message_offsets(run, first, end)
        matching = select_offsets(run, first, end, found)
        looked_at += len(offsets)
        selected += len(offsets) if matching is None else len(matching)
    return looked_at, selected


def find_resource(view: GroupView) -> Resource:
    """Return the resource on which a group's rights are checked: its topic if it belongs to one, else the group."""
    if view.topic is None:
        return Resource(ResourceKind.GROUP, view.name)
    return topic_resource(view.topic.stream.name, view.topic.name)


def describe_filter(broker: Broker, view: GroupView) -> dict[str, Any]:
    """Return the filter of a group under ``filter``, or nothing if it has none.

    ``headers`` and ``fields`` are what it reads of a message; ``unfiltered_members`` are members of a Kafka group that
    get everything, because their client.id does not say that they are of it.
    """
    found = broker.group_filters.find(to_filter_key(view))
    if found is None:
        return {}
    of_json = found.condition.of_json
    client_ids = broker.coordinated_groups.list_client_ids(view.name) if view.protocol == KAFKA else {}
    unfiltered = [
        member
        for member, client_id in client_ids.items()
        if (claim := broker.group_filters.find_for_client(client_id)) is None or claim.key != found.key
    ]
    about = {"headers": list(of_json.header_keys), "fields": sorted(of_json.fields)}
    return {"filter": {**found.document, **about, "unfiltered_members": unfiltered}}
