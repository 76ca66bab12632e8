"""nsqd over HTTP: publishing, topics, channels and statistics (nsq.md 5.2)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from starlette.requests import Request

from ....dialects.nsq import commands, json_text, limits, publishing
from ....dialects.nsq.commands import COMMANDS, Command
from ....dialects.nsq.errors import fault_of
from ....dialects.nsq.identify import OUTPUT_BUFFER_BYTES_MAX, OUTPUT_BUFFER_MS_MAX
from ....model.errors import LadingError, Reason, Refusal
from ....runtime.turns import finish_in_turns
from ...base.append_wait import wait_acknowledged
from ...base.services import now_us
from ...http_shared.http import hold_body, read_body
from ...http_shared.http_guard import principal_of
from ...http_shared.root_page import make_root_route
from ...http_shared.routing import HttpRoute, Parameters
from ..fork import EXTENDED, PLAIN, VERSION
from .http_responses import HttpFault, find_parameter, make_handler, make_route, read_parameter, respond_ping
from .node import Node, TopicNeeded, wait_for_kernels
from .parameters import channel_name, channel_of, require_parameter, topic_name, topic_of
from .publication import Publication
from .publication_reader import BatchWalk
from .publish import Publisher, PublishRoute
from .statistics import statistics, statistics_text
from .subscribe import parse_start, seek_channel

if TYPE_CHECKING:
    from ....broker.channels import Channel
    from ....broker.core.topology import Topic

NAME: Final = "nsqd_http"
INLINE_BYTES_MAX: Final = 16 << 10
"""The lines of a body longer than this are split in a worker."""
PIECE_BYTES: Final = 64 << 10
"""Bytes of a longer body that are split at a time."""
EXT_HEADER: Final = b"x-nsqext-"
_TRUE: Final = frozenset({"true", "1"})
_FALSE: Final = frozenset({"false", "0"})
_BATCH_FAULTS: Final[Mapping[str, str]] = {"E_BAD_BODY": "BAD_BODY", "E_BAD_MESSAGE": "BAD_MESSAGE"}
"""nsqd's texts, sent with status 413, for faults of a body in the form of MPUB."""
_PLACE_BYTES_MAX: Final = 64
_DIGITS: Final = re.compile(r"[0-9]{1,20}")
_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,32}")
_U64_MAX: Final = (1 << 64) - 1
_TOLD: Final = ("max_heartbeat_interval", "max_output_buffer_size", "max_output_buffer_timeout", "max_deflate_level")
"""Further members of upstream's ``/info``."""
_MS_NS: Final = 1_000_000
OPTIONS: Final[Mapping[str, Callable[[Node], Any]]] = {
    "auth_http_addresses": lambda node: [],
    "broadcast_address": lambda node: address.host if (address := node.tcp_address()) else "",
    "deflate": lambda node: node.services.settings.endpoints.nsqd_tcp.deflate,
    "http_address": lambda node: str(node.http or ""),
    "max_body_size": lambda node: limits.REQUEST_BYTES_MAX,
    "max_deflate_level": lambda node: node.services.settings.endpoints.nsqd_tcp.deflate_level_max,
    "max_heartbeat_interval": lambda node: limits.HEARTBEAT_MS_MAX * _MS_NS,
    "max_msg_size": lambda node: limits.MESSAGE_BYTES_MAX,
    "max_msg_timeout": lambda node: limits.MESSAGE_TIMEOUT_MS_MAX * _MS_NS,
    "max_output_buffer_size": lambda node: OUTPUT_BUFFER_BYTES_MAX,
    "max_output_buffer_timeout": lambda node: OUTPUT_BUFFER_MS_MAX * _MS_NS,
    "max_rdy_count": lambda node: limits.READY_MAX,
    "max_req_timeout": lambda node: limits.REQUEUE_MS_MAX * _MS_NS,
    "msg_timeout": lambda node: limits.MESSAGE_TIMEOUT_MS * _MS_NS,
    "nsqlookupd_tcp_addresses": lambda node: [],
    "snappy": lambda node: node.services.settings.endpoints.nsqd_tcp.snappy,
    "tcp_address": lambda node: str(node.tcp or ""),
}


class NsqdHttp:
    """The handlers of nsqd's routes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._publisher = Publisher(node, NAME)

    def routes(self) -> list[HttpRoute]:
        """Return the table of routes. The fork creates and deletes topics at its nsqlookupd only."""
        channel_work: dict[str, Callable[[Channel], Any]] = {
            "empty": lambda channel: channel.empty(),
            "pause": lambda channel: channel.pause(),
            "unpause": lambda channel: channel.unpause(),
            "skip": lambda channel: channel.skip(),
            "unskip": lambda channel: channel.unskip(),
        }
        topic_work: dict[str, Callable[[Topic], Any]] = {
            "pause": lambda topic: self._node.channels.set_paused(topic, True),
            "unpause": lambda topic: self._node.channels.set_paused(topic, False),
        }
        rows: list[tuple[str, str, Any, bool]] = [
            ("GET", "/info", self._show_info, False),
            ("POST", "/pub", self._pub, False),
            ("POST", "/pub_ext", self._pub_ext, False),
            ("POST", "/pubtrace", self._pubtrace, True),
            ("POST", "/mpub", self._mpub, False),
            ("GET", "/stats", self._show_stats, False),
            ("POST", "/channel/create", self._channel_create, True),
            ("POST", "/channel/delete", self._channel_delete, True),
            ("POST", "/channel/setorder", self._channel_order, True),
            ("POST", "/channel/setoffset", self._channel_offset, True),
            *(
                ("POST", f"/channel/{verb}", partial(self._change_channel, work), True)
                for verb, work in channel_work.items()
            ),
        ]
        if not self._node.strict:
            rows.append(("GET", "/config/{option}", self._show_option, True))
            rows.append(("PUT", "/config/{option}", self._set_option, True))
            rows.append(("POST", "/topic/create", self._topic_create, True))
            rows.append(("POST", "/topic/delete", self._topic_delete, True))
            rows.append(("POST", "/topic/empty", self._topic_empty, True))
            rows += [
                ("POST", f"/topic/{verb}", partial(self._change_topic, work), True) for verb, work in topic_work.items()
            ]
        strict = self._node.strict
        return [
            make_root_route("the HTTP API of an nsqd: a Lading broker."),
            make_route(self._node, "GET", "/ping", respond_ping),
            *(
                make_route(self._node, method, path, make_handler(work, strict=strict, always_v1=always))
                for method, path, work, always in rows
            ),
        ]

    async def _show_info(self, request: Request, path: Parameters) -> dict[str, Any]:
        node = self._node
        tcp, http = node.tcp_address(), node.http_address()
        return {
            "version": VERSION,
            "broadcast_address": (tcp or http).host if tcp or http else "",  # type: ignore[union-attr]
            "hostname": node.hostname,
            "http_port": http.port if http else 0,
            "tcp_port": tcp.port if tcp else 0,
            "start_time": node.started_s,
            **({} if node.strict else {name: option(node, name) for name in _TOLD}),
            "ha_support": False,
        }

    # -- publishing

    async def _pub(self, request: Request, path: Parameters) -> str:
        body = await self._body(request, limits.MESSAGE_BYTES_MAX, "MSG_TOO_BIG")
        is_deferred = find_parameter(request, "defer") is not None and not self._node.strict
        await self._publish_body(request, COMMANDS[b"DPUB" if is_deferred else b"PUB"], body)
        return "OK"

    async def _pub_ext(self, request: Request, path: Parameters) -> Any:
        data = self._build_ext(request)
        body = await self._body(request, limits.MESSAGE_BYTES_MAX, "MSG_TOO_BIG")
        if len(data) > limits.EXT_BYTES_MAX:
            raise HttpFault("E_INVALID_JSON_HEADER")
        if 2 + len(data) + len(body) > limits.MESSAGE_BYTES_MAX:
            raise HttpFault("MSG_TOO_BIG")
        return await self._publish_body(request, COMMANDS[b"PUB_EXT"], len(data).to_bytes(2, "big") + data + body)

    async def _pubtrace(self, request: Request, path: Parameters) -> Any:
        text = read_parameter(request, "trace_id")
        if _DIGITS.fullmatch(text) is None or int(text) > _U64_MAX:
            raise HttpFault("INVALID_TRACE_ID")
        body = await self._body(request, limits.MESSAGE_BYTES_MAX - 8, "MSG_TOO_BIG")
        return await self._publish_body(request, COMMANDS[b"PUB_TRACE"], int(text).to_bytes(8, "big") + body)

    async def _mpub(self, request: Request, path: Parameters) -> str:
        command, strict = COMMANDS[b"MPUB"], self._node.strict
        _require_bytes_max(request, limits.REQUEST_BYTES_MAX, "BODY_TOO_BIG")
        # as in nsqd: the topic is created even if the body is then refused
        await self._route_of(request, command)
        binary = find_parameter(request, "binary")
        is_binary = binary is not None and (strict or binary not in _FALSE)
        body = await self._read_body(request, limits.REQUEST_BYTES_MAX, "BODY_TOO_BIG")
        if not is_binary:
            body = await self._node.services.run_in_worker(len(body), INLINE_BYTES_MAX, frame_lines, body)
        if not body and is_binary:
            raise self._empty_fault() if strict else HttpFault("BAD_BODY", 413)
        if not body:
            if strict:
                raise self._empty_fault()
            return "OK"
        if publishing.needs_kernels(int.from_bytes(body[:4], "big"), len(body), command.form):
            # waiting messages count in a memory budget of their own until then, as arriving ones do
            with hold_body(len(body), self._node.services.receive):
                await wait_for_kernels()
        await self._publish_body(request, command, body)
        return "OK"

    def _build_ext(self, request: Request) -> bytes:
        """Return the ext of a publication: the ``ext`` parameter, with members from headers, which replace its own."""
        added = {
            name[len(EXT_HEADER) :]: value
            for name, value in reversed(request.headers.raw)
            if name.startswith(EXT_HEADER)
        }
        text = read_parameter(request, "ext")
        if not text and (self._node.strict or not added):
            raise HttpFault("E_INVALID_JSON_HEADER")
        try:
            # strict parsing first: numbers, escapes and everything else; null counts as an empty object
            document = json.loads(text or "{}", parse_constant=_no_constant)
            if not isinstance(document, dict) and document is not None:
                raise ValueError("no object")
        except (ValueError, RecursionError):
            raise HttpFault("E_INVALID_JSON_HEADER") from None
        data = (text if document is not None and text else "{}").encode(errors="replace")
        if not added:
            return data
        kept = [member for member in json_text.members(data) or () if _name_of(member.name) not in added]
        told = [b'"' + member.name + b'":' + member.value for member in kept]
        # bytes as received, as in the fork: HTTP does not say in which encoding they are
        told += [json_text.quote(name) + b":" + json_text.quote(value) for name, value in sorted(added.items())]
        return b"{" + b",".join(told) + b"}"

    async def _body(self, request: Request, bytes_max: int, fault: str) -> bytes:
        _require_bytes_max(request, bytes_max, fault)
        body = await self._read_body(request, bytes_max, fault)
        if not body:
            raise self._empty_fault()
        return body

    async def _read_body(self, request: Request, bytes_max: int, fault: str) -> bytes:
        try:
            return await read_body(request, bytes_max, self._node.services.receive)
        except Refusal as refusal:
            raise HttpFault(fault) if refusal.reason is Reason.REQUEST_TOO_LARGE else refusal from None

    def _empty_fault(self) -> HttpFault:
        return HttpFault("MSG_EMPTY", 406 if self._node.strict else 400)

    async def _publish_body(self, request: Request, command: Command, body: bytes) -> Any:
        """Publish the body of a command; return the response when the messages are durable."""
        route = await self._route_of(request, command)
        try:
            taken = self._take(request, route, command, body)
            assert taken.append is not None
            await wait_acknowledged(taken.append)
        except LadingError as error:
            raise self._failure_of(command, error) from None
        answer = commands.read_trace_answer(taken.answers[8:])
        if answer is None or command.batch:
            return "OK"
        return {
            "status": "OK",
            "id": answer.internal_id,
            "trace_id": str(answer.trace_id),
            "queue_offset": answer.queue_offset,
            "rawsize": answer.raw_bytes,
        }

    async def _route_of(self, request: Request, command: Command) -> PublishRoute:
        """Return the route of a publication, to a topic that is created if it is missing."""
        number = _parse_partition(request)
        if self._node.strict:
            name = read_parameter(request, "topic")
            if not limits.is_name(name):
                raise HttpFault("E_TOPIC_NOT_EXIST")
        else:
            name = topic_name(request, "INVALID_TOPIC")
        try:
            return self._publisher.to(await self._find_publishable(name, number), command, number)
        except LadingError as error:
            raise self._failure_of(command, error) from None

    def _failure_of(self, command: Command, error: LadingError) -> LadingError:
        """Return why a publication failed."""
        if isinstance(error, HttpFault):
            return error
        fault = fault_of(error, command.failure_code)
        if command.batch and not self._node.strict and fault.code in _BATCH_FAULTS:
            return HttpFault(_BATCH_FAULTS[fault.code], 413)
        return fault

    async def _find_publishable(self, name: str, number: int) -> Topic:
        try:
            return self._node.publishable(name, number)
        except TopicNeeded as needed:
            await needed.make()
            return self._node.publishable(name, number)

    def _take(self, request: Request, route: PublishRoute, command: Command, body: bytes) -> Publication:
        if command.batch:
            source = np.frombuffer(body, np.uint8)
            # nsqd ignores bytes after the last item
            end = BatchWalk().find_end(source, 0, source.size) or source.size
            return self._publisher.publish(route, source, 0, 0, end, end, now_us=now_us())
        data = commands.write(command.name, body=body)
        source, body_at = np.frombuffer(data, np.uint8), len(data) - len(body)
        delay_us = _delay_us(request) if command.lacking else 0
        return self._publisher.publish(
            route, source, 0, body_at, source.size, source.size, now_us=now_us(), delay_us=delay_us
        )

    # -- topics, channels, statistics

    async def _topic_create(self, request: Request, path: Parameters) -> None:
        name = topic_name(request, "INVALID_TOPIC")
        told = read_parameter(request, "extend").lower()
        form = None if not told else EXTENDED if told in _TRUE else PLAIN
        await self._node.declare(name, None, form, principal_of(request))

    async def _change_topic(self, work: Callable[[Topic], Any], request: Request, path: Parameters) -> None:
        work(topic_of(self._node, require_parameter(request, "topic")))
        await self._node.confirm_channels()

    async def _topic_empty(self, request: Request, path: Parameters) -> None:
        self._node.channels.empty_topic(topic_of(self._node, topic_name(request, "INVALID_TOPIC")))
        await self._node.confirm_channels()

    async def _topic_delete(self, request: Request, path: Parameters) -> None:
        name = require_parameter(request, "topic")
        if not self._node.was_deleted(name):
            await self._node.delete(topic_of(self._node, name))

    async def _channel_create(self, request: Request, path: Parameters) -> None:
        topic, name = topic_name(request), channel_name(request)
        await self._node.create_channel(topic_of(self._node, topic), name)

    async def _channel_delete(self, request: Request, path: Parameters) -> None:
        if not self._node.was_deleted(topic_name(request), channel_name(request)):
            self._node.channels.delete(channel_of(self._node, request))
            await self._node.confirm_channels()

    async def _change_channel(self, work: Callable[[Channel], Any], request: Request, path: Parameters) -> None:
        work(channel_of(self._node, request))
        await self._node.confirm_channels()

    async def _channel_order(self, request: Request, path: Parameters) -> None:
        """Set whether a channel is ordered. SUB_ORDERED makes it ordered; only this request ends that (nsq.md 4.3)."""
        channel = channel_of(self._node, request)
        order = read_parameter(request, "order").lower()
        if order not in (*_TRUE, *_FALSE):
            raise HttpFault("INVALID_ARG_ORDER")
        channel.set_ordered(order in _TRUE)

    async def _channel_offset(self, request: Request, path: Parameters) -> None:
        """Move the position of a channel, also while clients read it.

        The body is a start in the form of SUB_ADVANCED.
        """
        channel, number = channel_of(self._node, request), _parse_partition(request)
        if number >= len(channel.topic.partitions):
            raise HttpFault("E_TOPIC_NOT_EXIST", 404)
        start = parse_start((await self._body(request, _PLACE_BYTES_MAX, "BODY_TOO_BIG")).decode(errors="replace"))
        if start is None:
            raise HttpFault("INVALID_OFFSET")
        seek_channel(channel, number if number >= 0 else None, start)

    async def _show_option(self, request: Request, path: Parameters) -> Any:
        return option(self._node, path["option"])

    async def _set_option(self, request: Request, path: Parameters) -> None:
        """Refuse the change: options are set when the broker starts, not over HTTP."""
        raise HttpFault("INVALID_OPTION")

    async def _show_stats(self, request: Request, path: Parameters) -> Any:
        wanted = read_parameter(request, "include_clients", read_parameter(request, "needClients", "true"))
        topic, channel = read_parameter(request, "topic"), read_parameter(request, "channel")
        work = statistics(self._node, topic, channel, clients=wanted.lower() not in ("false", "0"))
        document = await finish_in_turns(work)
        if read_parameter(request, "format") == "json":
            return document
        return await finish_in_turns(statistics_text(document, time.time()))


def _name_of(name: bytes) -> bytes:
    return json_text.unescape(name).lower()


def frame_lines(body: bytes) -> bytes:
    """Return lines as the body of an MPUB; empty ones are left out. From any thread.

    They are split piece by piece: millions of lines at once take 40 times their bytes, and block all other threads
    until they are split. Returns nothing without lines. Raises HttpFault if a line is too long.
    """
    parts, count, at = [b""], 0, 0
    while at < len(body):
        end = body.rfind(b"\n", at, at + PIECE_BYTES) + 1 or body.find(b"\n", at) + 1 or len(body)
        lines = [line for line in body[at:end].split(b"\n") if line]
        if max(map(len, lines), default=0) > limits.MESSAGE_BYTES_MAX:
            raise HttpFault("MSG_TOO_BIG")
        parts.append(b"".join(len(line).to_bytes(4, "big") + line for line in lines))
        count, at = count + len(lines), end
    if not count:
        return b""
    parts[0] = count.to_bytes(4, "big")
    return b"".join(parts)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _require_bytes_max(request: Request, bytes_max: int, fault: str) -> None:
    """Raise HttpFault ``fault`` if the Content-Length of a request is larger than allowed."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > bytes_max:
        raise HttpFault(fault)


def _delay_us(request: Request) -> int:
    text = read_parameter(request, "defer")
    if _SIGNED.fullmatch(text) is None or not 0 <= int(text) <= limits.DEFER_MS_MAX:
        raise HttpFault("INVALID_DEFER")
    return int(text) * 1_000


def _parse_partition(request: Request) -> int:
    text = read_parameter(request, "partition")
    if not text:
        return -1
    if re.fullmatch(r"-1|[0-9]{1,9}", text) is None:
        raise HttpFault("INVALID_ARG_TOPIC_PARTITION")
    return int(text)


def option(node: Node, name: str) -> Any:
    """Return the value of an option. Raises HttpFault for an unknown one."""
    if name not in OPTIONS:
        raise HttpFault("INVALID_OPTION")
    return OPTIONS[name](node)
