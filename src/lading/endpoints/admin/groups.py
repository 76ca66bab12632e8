"""Admin: groups of all protocols with their lag, native groups with their positions, and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.rights import Right, flat_topic_resource
from ...broker.group_changes import GroupPosition
from ...broker.group_view import GroupView
from ...broker.native.groups import Assignment
from ...broker.native.transactions import ABORTED_AT_ONCE
from ...model.errors import Reason, Refusal
from ...runtime.metrics import Gauge, GaugeRow
from ...runtime.turns import Turn, finish_in_turns, map_in_turns
from ..base.append_wait import wait_for_result
from ..base.loaded_read import read_when_loaded
from ..base.services import Services, now_us
from ..http_shared.documents import (
    AbortTransactions,
    CommitTransactions,
    GroupMemberDocument,
    GroupPositionDocument,
    NewGroupPositions,
    NewPosition,
    NewTransaction,
    answer_document,
    answer_rows,
    json_response,
    parse_body,
    parse_rows,
)
from ..http_shared.http_guard import group_in_path, principal_of
from ..http_shared.partitions import partition_of
from ..http_shared.routing import HttpRoute, Parameters
from .group_filters import AdminGroupFilters, describe_filter, find_resource
from .topics import require_name

if TYPE_CHECKING:
    from ...broker.broker import Broker

_POSITION = "/groups/{group}/positions/{stream}/{topic}/{partition}"


class AdminGroups:
    """Handlers of native groups: their members, assignments and positions."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._groups = services.broker.native_groups
        for gauge in _list_gauges(services.broker):
            services.metrics.add(gauge)

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router."""
        return [
            HttpRoute("GET", "/groups", "group.list", self._list, right=None),
            HttpRoute("GET", "/groups/{protocol}/{group}", "group.show", self._show, right=None),
            HttpRoute("PUT", "/groups/{protocol}/{group}/positions", "group.reset", self._reset, right=None),
            HttpRoute("DELETE", "/groups/{protocol}/{group}", "group.delete", self._delete, right=None),
            *AdminGroupFilters(self._services, self._find).routes(),
            HttpRoute(
                "POST", "/groups/{group}/join", "group.join", self._join, right=Right.READ, resource=group_in_path
            ),
            HttpRoute(
                "POST",
                "/groups/{group}/heartbeat",
                "group.heartbeat",
                self._heartbeat,
                right=Right.READ,
                resource=group_in_path,
            ),
            HttpRoute(
                "POST", "/groups/{group}/leave", "group.leave", self._leave, right=Right.READ, resource=group_in_path
            ),
            HttpRoute("GET", _POSITION, "position.get", self._show_position, right=Right.READ),
            HttpRoute("PUT", _POSITION, "position.store", self._store_position, right=Right.READ),
            HttpRoute("POST", "/transactions", "transaction.begin", self._begin, right=Right.WRITE),
            HttpRoute("POST", "/transactions/commit", "transaction.commit", self._commit, right=Right.WRITE),
            HttpRoute("POST", "/transactions/abort", "transaction.abort", self._abort, right=Right.WRITE),
        ]

    async def _list(self, request: Request, path: Parameters) -> Response:
        shown = await self._list_visible(request)
        return await answer_rows(
            shown, lambda view: _summarize(view) | {"members": len(view.members)}, self._services.requests
        )

    async def _list_visible(self, request: Request) -> list[GroupView]:
        """Return the groups that the caller may see, each with the topics that the caller may see."""
        access, topology, principal = self._broker.access, self._broker.topology, principal_of(request)
        views = await finish_in_turns(self._broker.group_views.list_all())
        if access.is_administrator(principal):
            return views

        def is_visible(name: str) -> bool:
            return access.allows(principal, Right.DESCRIBE, flat_topic_resource(topology, name))

        turn, visible = Turn(), []
        for view in views:
            if access.allows(principal, Right.DESCRIBE, find_resource(view)):
                visible.append(view._replace(progress=[one for one in view.progress if is_visible(one.topic)]))
            await turn.give_way()
        return visible

    async def _show(self, request: Request, path: Parameters) -> Response:
        view = await self._find(request, path)
        document = {"members": view.members, "partitions": [one._asdict() for one in view.progress]}
        document |= describe_filter(self._broker, view)
        return await answer_document(_summarize(view) | document)

    async def _reset(self, request: Request, path: Parameters) -> Response:
        view = await self._find(request, path)
        wanted = await parse_body(NewGroupPositions, request, self._services.receive)
        rows = await parse_rows(GroupPositionDocument, wanted.positions, "positions")
        access, topology, principal = self._broker.access, self._broker.topology, principal_of(request)
        # as who stores a position with the protocol itself
        access.require(principal, Right.READ, find_resource(view))
        turn = Turn()
        for name in dict.fromkeys(row.topic for row in rows):
            access.require(principal, Right.READ, flat_topic_resource(topology, name))
            await turn.give_way()
        positions = await map_in_turns(
            lambda row: GroupPosition(topology.resolve(row.topic).partition(row.partition), row.offset), rows
        )
        reset = partial(self._broker.group_changes.reset, view, positions, now_us=now_us())
        for pending in await read_when_loaded(reset):
            await wait_for_result(pending)
        await wait_for_result(self._broker.catalog_commit.confirm())
        return Response(status_code=204)

    async def _delete(self, request: Request, path: Parameters) -> Response:
        view = await self._find(request, path)
        self._broker.access.require(principal_of(request), Right.ADMINISTRATE, find_resource(view))
        changes = self._broker.changes
        await self._services.changes.make(changes.write_all_to_catalog(self._broker.group_changes.delete(view)))
        for pending in self._broker.channels.take_unconfirmed():
            await wait_for_result(pending)
        return Response(status_code=204)

    async def _find(self, request: Request, path: Parameters) -> GroupView:
        """Return the group that a path names, with the topics that the caller may see."""
        protocol, group = path["protocol"], path["group"]
        for view in await self._list_visible(request):
            if (view.protocol, view.name) == (protocol, group):
                return view
        # only callers who may see the group learn whether it exists
        self._broker.access.require(principal_of(request), Right.DESCRIBE, group_in_path(request, path))
        raise Refusal(Reason.GROUP_NOT_FOUND, f"{protocol} group {group!r} does not exist; lading group list shows all")

    async def _join(self, request: Request, path: Parameters) -> Response:
        call = await parse_body(GroupMemberDocument, request, self._services.receive)
        access, topology = self._broker.access, self._broker.topology
        turn = Turn()
        for name in call.topics:
            access.require(principal_of(request), Right.READ, flat_topic_resource(topology, name))
            await turn.give_way()
        topics = await map_in_turns(topology.resolve, call.topics)
        require_name("group", path["group"], Reason.INVALID_GROUP_ID)
        return _assignment_response(self._groups.join(path["group"], call.member, topics, now_us=now_us()))

    async def _heartbeat(self, request: Request, path: Parameters) -> Response:
        call = await parse_body(GroupMemberDocument, request, self._services.receive)
        return _assignment_response(
            self._groups.heartbeat(path["group"], call.member, generation=call.generation, now_us=now_us())
        )

    async def _leave(self, request: Request, path: Parameters) -> Response:
        call = await parse_body(GroupMemberDocument, request, self._services.receive)
        self._groups.leave(path["group"], call.member, now_us=now_us())
        return json_response({})

    async def _show_position(self, request: Request, path: Parameters) -> Response:
        self._require_member(request, path)
        partition = partition_of(self._broker, path)
        stored = await read_when_loaded(lambda: self._groups.position(path["group"], partition))
        return json_response({"offset": stored and stored.offset, "epoch": stored and stored.epoch})

    def _require_member(self, request: Request, path: Parameters) -> None:
        """Raise Refusal unless the caller may be in the group; the route has checked the right on the topic."""
        self._broker.access.require(principal_of(request), Right.READ, group_in_path(request, path))

    async def _store_position(self, request: Request, path: Parameters) -> Response:
        self._require_member(request, path)
        wanted = await parse_body(NewPosition, request, self._services.receive)
        pending = self._groups.store_position(
            path["group"],
            partition_of(self._broker, path),
            wanted.offset,
            wanted.epoch,
            wanted.generation,
            now_us=now_us(),
        )
        if pending is not None:
            await wait_for_result(pending)
        return Response(status_code=204)

    async def _begin(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(NewTransaction, request, self._services.receive)
        timeout_us = None if wanted.timeout_ms is None else wanted.timeout_ms * 1_000
        transaction_id = self._broker.native_transactions.begin(
            scope=wanted.scope, timeout_us=timeout_us, now_us=now_us()
        )
        return json_response({"transaction_id": transaction_id}, 201)

    async def _commit(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(CommitTransactions, request, self._services.receive)
        done = self._broker.native_transactions.commit(
            wanted.key, wanted.transactions, scope=wanted.scope, now_us=now_us()
        )
        return json_response({"committed": list(done.committed), "repeated": done.repeated})

    async def _abort(self, request: Request, path: Parameters) -> Response:
        wanted = await parse_body(AbortTransactions, request, self._services.receive)
        rest = iter(wanted.transactions)
        while some := list(islice(rest, ABORTED_AT_ONCE)):
            self._broker.native_transactions.abort(some, now_us=now_us())
            await asyncio.sleep(0)
        return json_response({})


def _list_gauges(broker: Broker) -> Iterator[Gauge]:
    def lag() -> Iterator[GaugeRow]:
        for view in (yield from broker.group_views.list_all()):
            for one in view.progress:
                yield (view.protocol, view.name, one.topic, str(one.partition)), float(one.lag)

    def members() -> Iterator[GaugeRow]:
        for view in (yield from broker.group_views.list_all()):
            yield (view.protocol, view.name), float(len(view.members))

    group = ("protocol", "group")
    yield Gauge(
        "lading_group_lag",
        "Messages a group of any protocol has not read, or an NSQ channel has not finished.",
        (*group, "topic", "partition"),
        lag,
    )
    yield Gauge("lading_group_members", "Members of a group.", group, members)


def _summarize(view: GroupView) -> dict[str, Any]:
    return {
        "protocol": view.protocol,
        "group": view.name,
        "state": view.state,
        "generation": view.generation,
        "lag": view.lag,
    }


def _assignment_response(assignment: Assignment) -> Response:
    return json_response(
        {"generation": assignment.generation, "partitions": [list(place) for place in assignment.partitions]}
    )
