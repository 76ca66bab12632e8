"""Iggy over HTTP: the JSON endpoint of the same commands, in the documents of each release (iggy.md A5, M5 to M7).

In addition to the real server's API, message states can be listed and set (docs/reference/http-states).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ....broker.core.access.rights import Right
from ....broker.core.topology import Partition
from ....dialects.iggy.classic import commands as c
from ....dialects.iggy.classic import later_commands as later
from ....dialects.iggy.classic.releases import RELEASES
from ....dialects.iggy.current.commands import DescribeOptions
from ....dialects.iggy.http.commands import (
    Answers,
    Part,
    encode_answer,
    parse_body,
    parse_query,
    require_known,
    states_of,
)
from ....dialects.iggy.http.commands import read_body as read_fields_of
from ....dialects.iggy.http.errors import BODY_TOO_LARGE, BodyError
from ....dialects.iggy.http.limits import BODY_BYTES_MAX, LOGIN_BYTES_MAX
from ....dialects.iggy.http.release_answers import SERVER_ANSWERS
from ....dialects.iggy.http.releases import BY_TOKEN, take_deferral
from ....dialects.iggy.http.text import dump
from ....model.errors import LadingError, Reason, Refusal
from ....settings.endpoints import IggyHttpListener
from ...base.services import Endpoint, Services
from ...http_shared.http import HttpEndpoint, InPieces, read_body
from ...http_shared.http_guard import client_of
from ...http_shared.quota_rest import PRINCIPAL
from ...http_shared.routing import Access, HttpRoute, Parameters, Router, parse_number
from ...http_shared.states import INLINE_BYTES_MAX, StateRequests, answer_states, parse_states
from ..refusal_facts import find_facts, find_partitioning, find_send_facts
from ..rights import login_refusal, requirement_of
from ..service import IggyService
from ..snapshot import name_attachment
from .callers import HttpCaller, HttpCallers, IggyHttpGuard
from .errors import refuse, refuse_caller
from .logins import HttpLogins, Route
from .messages import HttpMessages
from .routes import COMMAND_ROUTES, TOPIC, CommandRoute, read_fields

_NAMES: Final = RELEASES[-1].commands.row_by_request
"""Names of commands in metrics."""
C = TypeVar("C")
_SCOPES: Final = ("topic", "stream", "user")
CallerHandler = Callable[[HttpCaller, Request, Parameters], Awaitable[Response]]


class IggyHttp:
    """Handlers of the routes; Services in, Responses out."""

    def __init__(self, services: Services, name: str, settings: IggyHttpListener) -> None:
        self._services = services
        self._name = name
        self._service = IggyService(services)
        self._callers = HttpCallers(services, settings)
        self._logins = HttpLogins(self._callers, self._read_login)
        self._states_requests = StateRequests(services)
        self._messages = {release: HttpMessages(services, name, settings, release) for release in BY_TOKEN.values()}

    def routes(self) -> list[HttpRoute]:
        """Return the routes of Iggy's HTTP API."""
        return [
            # these come before the routes whose last part may be any word
            *self._plain_routes(self._logins.routes(), is_open=True),
            HttpRoute("GET", "/", "root", self._answer_root),
            HttpRoute("GET", "/ping", "ping", self._answer_ping),
            *(
                HttpRoute(
                    row.method,
                    row.pattern,
                    _NAMES[row.command].name,
                    self._for_caller(partial(self._run_command, row), has_query=row.source == "query"),
                    Access.ADMINISTRATE if row.method == "DELETE" else Access.USE,
                )
                for row in COMMAND_ROUTES
            ),
            *self._plain_routes(
                (
                    ("GET", f"{TOPIC}/messages", "message.poll", self._poll),
                    # since protocol 0.12; a poll that stores an offset is a POST, as proxies never repeat one
                    ("GET", f"{TOPIC}/messages/deferred", "message.poll_deferred", self._poll_deferred),
                    ("POST", f"{TOPIC}/messages/deferred", "message.poll_deferred", self._poll_deferred),
                    ("GET", f"{TOPIC}/partitions/{{partition_id}}/states", "states.get", self._list_states),
                ),
                has_query=True,
            ),
            *self._plain_routes(
                (
                    ("POST", f"{TOPIC}/messages", "message.send", self._send),
                    ("GET", f"{TOPIC}/messages/flush/{{partition_id}}/{{fsync}}", "message.flush", self._flush),
                    ("POST", "/snapshot", "snapshot", self._make_snapshot),
                    ("GET", "/options/{scope}", "options.describe", self._describe_options),
                    ("GET", "/cluster/metadata", "cluster.metadata", self._describe_cluster),
                )
            ),
            HttpRoute(
                "PUT",
                f"{TOPIC}/partitions/{{partition_id}}/states",
                "states.set",
                self._for_caller(self._set_states),
                Access.ADMINISTRATE,
            ),
        ]

    def _plain_routes(
        self, routes: Iterable[Route], *, is_open: bool = False, has_query: bool = False
    ) -> list[HttpRoute]:
        return [
            HttpRoute(method, path, name, self._for_caller(handler, is_open=is_open, has_query=has_query))
            for method, path, name, handler in routes
        ]

    def _for_caller(
        self, handler: CallerHandler, *, is_open: bool = False, has_query: bool = False
    ) -> Callable[[Request, Parameters], Awaitable[Response]]:
        """Return a handler that identifies the caller, and whose errors have the codes of the caller's release.

        Unless ``is_open``, a request without a login is refused before its body is read. Unless ``has_query``, a
        request with query parameters is refused, with the parameter's name.
        """

        async def answer(request: Request, path: Parameters) -> Response:
            try:
                caller = await self._callers.identify(request)
                request.scope[PRINCIPAL] = caller.client.principal
                if caller.client.principal is None and not is_open:
                    raise login_refusal()
            except LadingError as error:
                return refuse_caller(error, None)
            try:
                if not has_query:
                    require_known(request.query_params, ())
                return await handler(caller, request, path)
            except LadingError as error:
                return refuse_caller(error, caller)

        return answer

    async def _answer_root(self, request: Request, path: Parameters) -> Response:
        return PlainTextResponse("Iggy HTTP")

    async def _answer_ping(self, request: Request, path: Parameters) -> Response:
        return PlainTextResponse("pong")

    async def _run_command(self, row: CommandRoute, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        release = caller.release
        if row.command in later.UPKEEP_COMMANDS and not release.has_users:
            name = _NAMES[row.command].name
            raise Refusal(
                Reason.FEATURE_UNAVAILABLE,
                f"this server does not offer {name} to this release; use a client of a newer one",
            )
        fields = read_fields(path, caller)
        if "partition_id" in fields:
            fields["partition_id"] += 1 - release.release.first_partition
        command = await self._parse(row, caller, request, fields)
        is_told = row.status == HTTPStatus.OK or release.tells_created
        try:
            document = await self._ask(command, caller, release.answers if is_told else None)
            if document is None and row.status == HTTPStatus.OK:
                raise Refusal(Reason.OFFSET_NOT_FOUND, "nothing is stored for this consumer; store an offset first")
        except LadingError as error:
            return refuse_caller(error, caller, partial(find_facts, self._services.broker, command), row.command)
        if document is not None:
            return InPieces(document, media_type="application/json")
        return Response(status_code=HTTPStatus.OK if release.is_current and row.method == "POST" else row.status)

    async def _parse(self, row: CommandRoute, caller: HttpCaller, request: Request, fields: dict[str, Any]) -> Any:
        release, kind = caller.release, row.command
        if row.source == "body":
            if kind not in release.bodies:
                # releases since 0.1 have users, and clients that log in
                raise Refusal(Reason.UNAUTHENTICATED, "users and tokens need a login; log in before")
            return await self._parse_body(kind, request, caller, fields)
        if row.source == "query":
            return parse_query(kind, dict(request.query_params), release.queries, release.check, **fields)
        command = kind(**fields)
        if kind is not c.GetClient:
            # a client id of 0 is not refused here, but no client has it (iggy.md M6)
            release.check(command)
        return command

    async def _ask(self, command: Any, caller: HttpCaller, answers: Answers | None) -> bytes | None:
        """Carry out a command; return the document of its result, or None if nothing is returned."""
        answer = self._service.answer(command, caller.client, partial(_encode_result, answers))
        return await answer if isinstance(answer, Awaitable) else answer

    async def _send(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        fields = read_fields(path, caller)
        body = await self._read_body(request)
        try:
            sent = await self._messages[caller.release].send(caller.client, fields["stream"], fields["topic"], body)
        except BodyError:
            raise
        except LadingError as error:
            wanted = await self._services.run_in_worker(len(body), INLINE_BYTES_MAX, find_partitioning, body)
            return refuse_caller(error, caller, partial(find_send_facts, self._services.broker, fields, wanted))
        if sent is None:
            return Response(status_code=201)
        confirmations = dump({"confirmations": [sent._asdict()]})
        return Response(confirmations, 201, {"iggy-durability": "persisted"}, "application/json")

    async def _poll(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        query = dict(request.query_params)
        states = states_of(query.pop("state")) if "state" in query else None
        poll = partial(self._messages[caller.release].poll, states=states)
        return await self._answer_poll(caller, query, path, poll)

    async def _poll_deferred(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        query = dict(request.query_params)
        poll = partial(self._messages[caller.release].poll_deferred, deferral=take_deferral(query))
        return await self._answer_poll(caller, query, path, poll)

    async def _answer_poll(
        self, caller: HttpCaller, query: dict[str, str], path: Parameters, poll: Callable[..., Awaitable[bytes]]
    ) -> Response:
        command = parse_query(c.PollMessages, query, caller.release.queries, **read_fields(path, caller))
        try:
            document = await poll(caller.client, command)
        except LadingError as error:
            return refuse_caller(error, caller, partial(find_facts, self._services.broker, command))
        return Response(document, media_type="application/json")

    async def _flush(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        fields = read_fields({name: text for name, text in path.items() if name != "fsync"}, caller)
        number = fields.pop("partition_id") + 1 - caller.release.release.first_partition
        await self._ask(later.FlushMessages(**fields, partition_id=number, fsync=True), caller, None)
        return Response()

    async def _make_snapshot(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        command = await self._parse_body(later.GetSnapshot, request, caller, {})
        archive = self._service.answer(command, caller.client, bytes)
        assert isinstance(archive, Awaitable), "made in a worker"
        return Response(await archive, headers=name_attachment(), media_type="application/zip")

    async def _describe_options(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        scope = path["scope"]
        if scope not in _SCOPES:
            raise Refusal(Reason.MALFORMED, f"options have no scope {scope[:40]!r}; there are {', '.join(_SCOPES)}")
        document = await self._ask(DescribeOptions(_SCOPES.index(scope) + 1), caller, SERVER_ANSWERS)
        return Response(document, media_type="application/json")

    async def _describe_cluster(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        if not caller.release.is_current:
            raise Refusal(Reason.FEATURE_UNAVAILABLE, "this server is alone; leave requests about a cluster out")
        document = await self._ask(later.GetClusterMetadata(), caller, SERVER_ANSWERS)
        return Response(document, media_type="application/json")

    async def _list_states(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        partition = self._find_partition(path, caller, Right.READ)
        query = request.query_params
        require_known(query, ("first", "end"))
        first, end = (_parse_offset(query.get(name, default)) for name, default in (("first", "0"), ("end", str(_END))))
        return await answer_states(partition, first, end, self._services.requests)

    async def _set_states(self, caller: HttpCaller, request: Request, path: Parameters) -> Response:
        self._find_partition(path, caller, Right.ADMINISTRATE)
        body = await self._read_body(request)
        wanted = await self._services.run_in_worker(len(body), INLINE_BYTES_MAX, parse_states, body)
        sender = caller.client.user or client_of(request)
        progress = await self._states_requests.set(
            lambda: self._find_partition(path, caller, Right.ADMINISTRATE), wanted, sender
        )
        if wanted.where is None:
            return Response(status_code=204)
        return Response(json.dumps(progress.document(), separators=(",", ":")), media_type="application/json")

    def _find_partition(self, path: Parameters, caller: HttpCaller, right: Right) -> Partition:
        fields = read_fields(path, caller)
        if (require := requirement_of(self._services.broker, caller.client.principal)) is not None:
            require(fields["stream"], fields["topic"], right)
        topic = self._services.broker.topology.topic(fields["stream"], fields["topic"])
        return topic.partition(fields["partition_id"] - caller.release.release.first_partition)

    async def _parse_body(self, kind: type[C], request: Request, caller: HttpCaller, fields: dict[str, Any]) -> C:
        """Return the command of a body; a long one is parsed in a worker."""
        body = await self._read_body(request)

        def parse(body: bytes) -> C:
            return parse_body(kind, body, caller.release.bodies, caller.release.check, **fields)

        return await self._services.run_in_worker(len(body), INLINE_BYTES_MAX, parse, body)

    async def _read_login(self, parts: Sequence[Part], request: Request) -> dict[str, Any]:
        """Return the fields of a login, which needs no token; a long one is parsed in a worker."""
        body = await self._read_body(request, LOGIN_BYTES_MAX)
        return await self._services.run_in_worker(len(body), INLINE_BYTES_MAX, partial(read_fields_of, parts), body)

    async def _read_body(self, request: Request, limit_bytes: int = BODY_BYTES_MAX) -> bytes:
        self._services.metrics.received_bytes.values[(self._name,)] += int(request.headers.get("content-length") or 0)
        try:
            return await read_body(request, limit_bytes, self._services.receive)
        except Refusal as refusal:
            raise BODY_TOO_LARGE if refusal.reason is Reason.REQUEST_TOO_LARGE else refusal from None


def _encode_result(answers: Answers | None, result: Any) -> bytes | None:
    """Return the document of a result in a release; None if the release has none or does not return it."""
    return None if result is None or answers is None else encode_answer(result, answers)


_END: Final = (1 << 63) - 1


def _parse_offset(text: str) -> int:
    offset = parse_number(text, _END)
    if offset is None:
        raise Refusal(Reason.INVALID_OFFSET, f"an offset is a number from 0, not {text[:40]!r}")
    return offset


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint, or a listener of it; called by ``serve``."""
    settings = services.settings.endpoints.section(name)
    assert isinstance(settings, IggyHttpListener)
    face = IggyHttp(services, name, settings)
    guard = IggyHttpGuard(services, name)
    router = Router(name, face.routes(), refuse, services.metrics, guard)
    return HttpEndpoint(name, router, services, (settings.address.host,), frozenset({"/ping"}))
