"""nsqlookupd over HTTP: lookup and creation of topics (nsq.md 5.3)."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ....model.errors import LadingError, Refusal
from ....runtime.turns import TurnCounter, Turns, finish_in_turns
from ...http_shared.http_guard import principal_of
from ...http_shared.root_page import make_root_route
from ...http_shared.routing import HttpRoute, Parameters
from ..fork import EXTENDED, PLAIN, VERSION, takes_ext
from ..nsqd.http_responses import HttpFault, find_parameter, make_handler, make_route, read_parameter, respond_ping
from ..nsqd.node import Node
from ..nsqd.parameters import channel_name, channel_of, number, require_parameter, topic_name, topic_of
from ..nsqd.query import read_query
from .lookup import Lookup

NAME: Final = "nsqlookupd_http"
PARTITIONS_MAX: Final = 254
REPLICATOR_MAX: Final = 5
"""Bounds of Youzan's nsqlookupd."""
_ACCESS: Final = ("", "r", "w")


class LookupHttp:
    """The handlers of nsqlookupd's routes."""

    def __init__(self, node: Node, lookup: Lookup) -> None:
        self._node = node
        self._lookup = lookup

    def routes(self) -> list[HttpRoute]:
        """Return the table of routes; clients spell ``/topic/create`` in two ways."""
        creating = ("/topic/create", "/topic/creat")
        rows: list[tuple[str, str, Any]] = [
            ("GET", "/info", self._show_info),
            ("GET", "/lookup", self._look_up),
            ("GET", "/topics", self._list_topics),
            ("GET", "/channels", self._list_channels),
            ("GET", "/nodes", self._list_nodes),
            ("GET", "/listlookup", self._list_lookups),
            *((method, path, self._create) for method in ("POST", "PUT") for path in creating),
            ("POST", "/topic/meta/update", self._update),
            ("POST", "/topic/delete", self._delete),
            ("POST", "/topic/tombstone", self._tombstone_topic),
            ("POST", "/channel/create", self._channel_create),
            ("POST", "/channel/delete", self._channel_delete),
        ]
        strict = self._node.strict
        return [
            make_root_route("the HTTP API of an nsqlookupd: a Lading broker."),
            make_route(self._node, "GET", "/ping", respond_ping),
            *(make_route(self._node, method, path, make_handler(work, strict=strict)) for method, path, work in rows),
        ]

    async def _show_info(self, request: Request, path: Parameters) -> dict[str, Any]:
        return {"version": VERSION, "ha_support": False}

    async def _look_up(self, request: Request, path: Parameters) -> dict[str, Any]:
        name = require_parameter(request, "topic")
        if read_parameter(request, "access") not in _ACCESS:
            raise HttpFault("INVALID_ACCESS_MODE")
        partition = number(request, "partition", "INVALID_ARG_TOPIC_PARTITION", -1)
        found = self._lookup.lookup(name, partition)
        if not self._node.strict and not self._lookup.knows(name):
            raise HttpFault("TOPIC_NOT_FOUND")
        if not self._node.strict or read_parameter(request, "metainfo"):
            found["meta"] = self._describe_meta(name)
        return found

    def _describe_meta(self, name: str) -> dict[str, Any]:
        """Return the facts that the fork's clients use, such as the number of partitions."""
        try:
            topic = self._node.find(name)
        except Refusal:
            return {"partition_num": 0, "replica": 0, "extend_support": False}
        return {
            "partition_num": len(topic.partitions),
            "replica": 1,
            "extend_support": takes_ext(topic),
            "ordered": False,
            "multi_part": len(topic.partitions) > 1,
            "disable_channel_auto_create": False,
        }

    async def _list_topics(self, request: Request, path: Parameters) -> dict[str, Any]:
        names = await finish_in_turns(self._lookup.topics())
        document: dict[str, Any] = {"topics": names}
        # nsqlookupd accepts an invalid query here, since these requests have no parameters
        if read_query(request).values.get("metaInfo") == "true":
            document["meta_info"] = await finish_in_turns(self._describe(names))
        return document

    def _describe(self, names: list[str]) -> Turns[list[dict[str, Any]]]:
        rows, turn = [], TurnCounter()
        for name in names:
            rows.append(
                {"topic_name": name, **self._describe_meta(name), "registered_channels": self._lookup.channels(name)}
            )
            if turn.is_over(10):
                yield
        return rows

    async def _list_channels(self, request: Request, path: Parameters) -> dict[str, Any]:
        return {"channels": self._lookup.channels(require_parameter(request, "topic"))}

    async def _list_nodes(self, request: Request, path: Parameters) -> dict[str, Any]:
        return {"producers": await finish_in_turns(self._lookup.nodes())}

    async def _list_lookups(self, request: Request, path: Parameters) -> None:
        """Return no other lookups: there is only this one, which the client knows already."""

    async def _create(self, request: Request, path: Parameters) -> None:
        """Create a topic with a number of partitions, extended or plain; it always has one copy.

        For an existing topic the response is the fork's: 200 if nothing differs, else 400 "already exist".
        """
        name = topic_name(request)
        default = None if self._node.strict else 1
        partitions = number(request, "partition_num", "INVALID_ARG_TOPIC_PARTITION_NUM", default)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise HttpFault("INVALID_ARG_TOPIC_PARTITION_NUM")
        if not 1 <= number(request, "replicator", "INVALID_ARG_TOPIC_REPLICATOR", default) <= REPLICATOR_MAX:
            raise HttpFault("INVALID_ARG_TOPIC_REPLICATOR")
        # a client that sends a number of partitions uses the fork's form of the request, in which a topic is plain by
        # default
        counted = bool(read_parameter(request, "partition_num"))
        is_extended, is_plain = (
            read_parameter(request, "extend") == "true",
            find_parameter(request, "extend") is not None,
        )
        form = EXTENDED if is_extended else PLAIN if counted or is_plain else None
        await self._node.declare(name, partitions if counted else None, form, principal_of(request))

    async def _update(self, request: Request, path: Parameters) -> None:
        topic = topic_of(self._node, topic_name(request))
        if read_parameter(request, "upgradeext") == "true" and topic.settings.header_form != EXTENDED:
            await self._node.upgrade(topic)

    async def _delete(self, request: Request, path: Parameters) -> None:
        if self._node.strict and read_parameter(request, "partition") != "**":
            raise HttpFault("MISSING_ARG_TOPIC_PARTITION")
        name = require_parameter(request, "topic")
        was_registered = self._lookup.forget(name)
        if not self._node.exists(name) and (was_registered or not self._node.strict):
            # upstream's nsqlookupd forgets a topic that it does not know
            return
        topic = topic_of(self._node, name)
        await self._node.delete(topic)
        self._node.record_deletion(topic.flat_name)

    async def _tombstone_topic(self, request: Request, path: Parameters) -> None:
        """Leave this node out of lookups of the topic for a while; with ``restore`` put it back at once."""
        name, address = require_parameter(request, "topic"), require_parameter(request, "node")
        (self._lookup.remove_tombstone if read_parameter(request, "restore") == "true" else self._lookup.tombstone)(
            name, address
        )

    async def _channel_create(self, request: Request, path: Parameters) -> None:
        name, channel = topic_name(request), channel_name(request)
        try:
            topic = self._node.find(name)
        except LadingError:
            self._node.require_creation(principal_of(request), name)
            topic = await self._node.create(name)
        await self._node.create_channel(topic, channel)

    async def _channel_delete(self, request: Request, path: Parameters) -> None:
        was_registered = self._lookup.forget(topic_name(request), channel_name(request))
        try:
            channel = channel_of(self._node, request)
        except HttpFault:
            # delete the channel on other nodes even if the topic here lacks it
            if was_registered:
                return
            raise HttpFault("CHANNEL_NOT_FOUND") from None
        self._node.channels.delete(channel)
        await self._node.confirm_channels()
        self._node.record_deletion(channel.topic.flat_name, channel.name)
