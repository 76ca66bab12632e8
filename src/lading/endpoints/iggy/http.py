"""Iggy classic over HTTP: the JSON face of the same commands (iggy.md A5, M5 to M7).

Beside what the real server has: message states, listed and set (docs/reference/http-states).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import numpy as np
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ...broker.core.read import ReadResult
from ...broker.core.states import list_states
from ...broker.core.topology import Partition
from ...dialects.iggy_classic import commands as c
from ...dialects.iggy_classic.encode import encode_sent
from ...dialects.iggy_classic.records import validate
from ...dialects.json.commands import encode_answer, identifier, parse_body, parse_query, require_known, states_of
from ...dialects.json.documents import U32
from ...dialects.json.errors import BODY_TOO_LARGE, BodyError, error_document
from ...dialects.json.limits import BODY_BYTES_MAX
from ...dialects.json.messages import SendDocument, encode_polled, parse_send
from ...model.errors import LadingError, Reason, Refusal
from ..base.append_wait import wait_acknowledged
from ..base.carrying import Fit
from ..base.services import Endpoint, Services, now_us
from ..http_shared.bearer import guard_administration
from ..http_shared.http import HttpEndpoint, InPieces, TextResponse, read_body
from ..http_shared.routing import Access, HttpRoute, Parameters, Router, parse_number
from ..http_shared.states import StateRequests, parse_states, states_document
from .answers import batch_of
from .poll import Poller
from .send import Sender, choice_of
from .service import CHANGES, SURVEYS, IggyService

NAME: Final = "iggy_http"

INLINE_BYTES_MAX: Final = 16 << 10
"""JSON longer than this is read and written in a worker, not in the event loop."""

_TOPIC: Final = "/streams/{stream}/topics/{topic}"


@dataclass(frozen=True, slots=True)
class _Row:
    """One route that a command answers; ``make`` says where its fields come from beside the path."""

    method: str
    pattern: str
    command: type[Any]
    status: int = 200
    source: str = "path"


_ROWS: Final = (
    _Row("GET", "/stats", c.Stats),
    _Row("GET", "/clients", c.GetClients),
    _Row("GET", "/clients/{client_id}", c.GetClient),
    _Row("GET", "/streams", c.GetStreams),
    _Row("POST", "/streams", c.CreateStream, 201, "body"),
    _Row("GET", "/streams/{stream}", c.GetStream),
    _Row("DELETE", "/streams/{stream}", c.DeleteStream, 204),
    _Row("GET", "/streams/{stream}/topics", c.GetTopics),
    _Row("POST", "/streams/{stream}/topics", c.CreateTopic, 201, "body"),
    _Row("GET", _TOPIC, c.GetTopic),
    _Row("DELETE", _TOPIC, c.DeleteTopic, 204),
    _Row("POST", f"{_TOPIC}/partitions", c.CreatePartitions, 201, "body"),
    _Row("DELETE", f"{_TOPIC}/partitions", c.DeletePartitions, 204, "query"),
    _Row("GET", f"{_TOPIC}/consumer-offsets", c.GetOffset, 200, "query"),
    _Row("PUT", f"{_TOPIC}/consumer-offsets", c.StoreOffset, 204, "body"),
    _Row("GET", f"{_TOPIC}/consumer-groups", c.GetGroups),
    _Row("POST", f"{_TOPIC}/consumer-groups", c.CreateGroup, 201, "body"),
    _Row("GET", f"{_TOPIC}/consumer-groups/{{group_id}}", c.GetGroup),
    _Row("DELETE", f"{_TOPIC}/consumer-groups/{{group_id}}", c.DeleteGroup, 204),
)
"""Every route that a command of the binary dialect answers (iggy.md A5)."""


def _number(text: str) -> int:
    try:
        return int(U32.from_text(text))
    except ValueError as error:
        raise BodyError(f"Invalid URL: Cannot parse {error}", status=HTTPStatus.BAD_REQUEST) from None


_PATH_FORMS: Final[dict[str, Callable[[str], Any]]] = {
    "stream": identifier,
    "topic": identifier,
    "group_id": _number,
    "client_id": _number,
    "partition_id": _number,
}


class IggyHttp:
    """Handlers of the routes; Services in, Responses out."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._service = IggyService(services)
        self._sender = Sender(services, NAME)
        self._states_requests = StateRequests(services)
        self._poller = Poller(services, NAME, services.settings.endpoints.iggy_http)

    def routes(self) -> list[HttpRoute]:
        """The table for the router."""
        return [
            HttpRoute("GET", "/", "root", self._root),
            HttpRoute("GET", "/ping", "ping", self._ping),
            *(
                HttpRoute(
                    row.method,
                    row.pattern,
                    c.ROW_BY_REQUEST[row.command].name,
                    partial(self._command, row),
                    Access.ADMINISTRATE if row.method == "DELETE" else Access.USE,
                )
                for row in _ROWS
            ),
            HttpRoute("GET", f"{_TOPIC}/messages", "message.poll", self._poll),
            HttpRoute("POST", f"{_TOPIC}/messages", "message.send", self._send),
            HttpRoute("GET", f"{_TOPIC}/partitions/{{partition_id}}/states", "states.get", self._states),
            HttpRoute(
                "PUT",
                f"{_TOPIC}/partitions/{{partition_id}}/states",
                "states.set",
                self._set_states,
                Access.ADMINISTRATE,
            ),
        ]

    async def _root(self, request: Request, path: Parameters) -> Response:
        return PlainTextResponse("Iggy HTTP")

    async def _ping(self, request: Request, path: Parameters) -> Response:
        return PlainTextResponse("pong")

    async def _command(self, row: _Row, request: Request, path: Parameters) -> Response:
        fields = _fields(path)
        if row.source == "body":
            command = parse_body(row.command, await self._body(request), **fields)
        elif row.source == "query":
            command = parse_query(row.command, dict(request.query_params), **fields)
        else:
            require_known(request.query_params, ())
            command = row.command(**fields)
            if row.command is not c.GetClient:
                # a client id of 0 is not refused here but found by nobody (iggy.md M6)
                validate(command)
        try:
            if isinstance(command, CHANGES):
                await self._service.change(command, lambda created: None)
                return Response(status_code=row.status)
            if type(command) in SURVEYS:
                document = await self._service.survey(command, None, encode_answer)
                return InPieces(document, media_type="application/json")
            answer = self._service.answer(command)
        except LadingError as error:
            return self._refusal(error, command)
        if row.status != 200:
            return Response(status_code=row.status)
        return Response(encode_answer(answer), media_type="application/json")

    async def _send(self, request: Request, path: Parameters) -> Response:
        fields = _fields(path)
        body = await self._body(request)
        document, sent = await self._services.run_in_worker(len(body), INLINE_BYTES_MAX, _parse_and_encode, body)
        command = c.SendMessages(fields["stream"], fields["topic"], document.partitioning, sent)
        try:
            topic = self._service.topic(command)
            source = np.frombuffer(sent, np.uint8)
            append = self._sender.append(topic, choice_of(document.partitioning), source, 0, len(sent), now_us())
            await wait_acknowledged(append)
        except LadingError as error:
            return self._refusal(error, command)
        return Response(status_code=201)

    async def _poll(self, request: Request, path: Parameters) -> Response:
        query = dict(request.query_params)
        states = states_of(query.pop("state", "all"))
        command = parse_query(c.PollMessages, query, **_fields(path))
        try:
            found = self._poller.read(command, None, now_us(), states)
        except LadingError as error:
            return self._refusal(error, command)
        if found is None or not found[0].pieces:
            return Response(b"[]", media_type="application/json")
        reading, fit = found
        document_of = partial(_polled_document, fit=fit)
        document, stubs = await self._services.run_in_worker(reading.size_bytes, INLINE_BYTES_MAX, document_of, reading)
        if stubs:
            self._services.metrics.dropped.values[NAME, "unholdable"] += stubs
        return Response(document, media_type="application/json")

    async def _states(self, request: Request, path: Parameters) -> Response:
        partition = self._partition(path)
        query = request.query_params
        require_known(query, ("first", "end"))
        first, end = (_offset(query.get(name, default)) for name, default in (("first", "0"), ("end", str(_END))))
        document = states_document(list_states(partition, first, end))
        return Response(json.dumps(document, separators=(",", ":")), media_type="application/json")

    async def _set_states(self, request: Request, path: Parameters) -> Response:
        self._partition(path)
        wanted = parse_states(await self._body(request))
        progress = await self._states_requests.set(lambda: self._partition(path), wanted)
        if wanted.where is None:
            return Response(status_code=204)
        return Response(json.dumps(progress.document(), separators=(",", ":")), media_type="application/json")

    def _partition(self, path: Parameters) -> Partition:
        fields = _fields(path)
        return self._services.broker.topology.topic(fields["stream"], fields["topic"]).partition(
            fields["partition_id"] - 1
        )

    async def _body(self, request: Request) -> bytes:
        self._services.metrics.received_bytes.values[(NAME,)] += int(request.headers.get("content-length") or 0)
        try:
            return await read_body(request, BODY_BYTES_MAX, self._services.receive)
        except Refusal as refusal:
            raise BODY_TOO_LARGE if refusal.reason is Reason.REQUEST_TOO_LARGE else refusal from None

    def _refusal(self, error: LadingError, command: Any) -> Response:
        if isinstance(error, BodyError):
            return refuse(error)
        status, document = error_document(error, self._service.facts(command))
        return Response(document, status, media_type="application/json")


_END: Final = (1 << 63) - 1


def _fields(path: Parameters) -> dict[str, Any]:
    return {name: _PATH_FORMS[name](text) for name, text in path.items()}


def _offset(text: str) -> int:
    offset = parse_number(text, _END)
    if offset is None:
        raise Refusal(Reason.INVALID_OFFSET, f"an offset is a number from 0, not {text[:40]!r}")
    return offset


def _parse_and_encode(body: bytes) -> tuple[SendDocument, bytes]:
    document = parse_send(body)
    return document, encode_sent(document.batch)


def _polled_document(reading: ReadResult, fit: Fit) -> tuple[bytes, int]:
    batch, stubs = batch_of(reading, fit)
    return encode_polled(batch), stubs


def refuse(error: LadingError) -> Response:
    """The answer to a request that was refused before anybody knew what it names."""
    if isinstance(error, BodyError):
        return TextResponse(str(error), error.status)
    status, document = error_document(error, {})
    return Response(document, status, media_type="application/json")


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    face = IggyHttp(services)
    settings = services.settings.endpoints.iggy_http
    guard = guard_administration(services.settings.endpoints, NAME)
    router = Router(NAME, face.routes(), refuse, services.metrics, guard)
    return HttpEndpoint(
        NAME, router, services, settings.connections_max, (settings.address.host,), frozenset({"/ping"})
    )
