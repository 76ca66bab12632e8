"""Responses of NSQ's HTTP endpoints, in both of their styles (nsq.md 5.1).

The present style (V1) has JSON, plain text or nothing, and errors with their own status. The old one wraps JSON in
``status_code``, ``status_txt`` and ``data``, and makes every error a 500; the fork keeps it as the default.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ....broker.core.access.rights import CLUSTER, Resource, Right
from ....dialects.nsq.errors import NsqProtocolError
from ....model.errors import LadingError, MalformedMessage, Reason, Refusal
from ....runtime.turns import finish_in_turns
from ...http_shared.documents import encode_in_turns
from ...http_shared.http import InPieces
from ...http_shared.routing import Access, Handler, HttpRoute, MissingResponder, Parameters
from .node import Node
from .query import read_query

USED: Final = frozenset({"create", "creat"})
"""Verbs in paths of changes that take nothing away from other clients."""

V1: Final = "application/vnd.nsq; version=1.0"
_V1_HEADERS: Final = {"X-NSQ-Content-Type": "nsq; version=1.0"}
_JSON: Final = "application/json; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"

STATUS: Final = {
    "MSG_TOO_BIG": 413,
    "BODY_TOO_BIG": 413,
    "E_TOPIC_NOT_EXIST": 404,
    "E_UNAUTHORIZED": 403,
    "TOPIC_NOT_FOUND": 404,
    "CHANNEL_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "E_PUB_TOO_MUCH_WAITING": 429,
    "E_PUB_FAILED": 503,
    "E_MPUB_FAILED": 503,
    "E_DPUB_FAILED": 503,
    "DISK_FULL": 503,
    "READ_ONLY": 503,
    "EXITING": 503,
    "INTERNAL_ERROR": 500,
}
"""The status of a code in V1 style, if it is not 400."""

OF_FAULT: Final = {"E_BAD_MESSAGE": "MSG_TOO_BIG", "E_BAD_TOPIC": "INVALID_TOPIC", "E_BAD_CHANNEL": "INVALID_CHANNEL"}
"""The code over HTTP for each code of the TCP protocol, if they differ."""

OF_REASON: Final = {
    Reason.TOPIC_NAME_NOT_FOUND: "E_TOPIC_NOT_EXIST",
    Reason.STREAM_NAME_NOT_FOUND: "E_TOPIC_NOT_EXIST",
    Reason.PARTITION_NOT_FOUND: "E_TOPIC_NOT_EXIST",
    Reason.REQUEST_TOO_LARGE: "BODY_TOO_BIG",
    Reason.INVALID_CHANNEL_NAME: "INVALID_ARG_CHANNEL",
    Reason.INVALID_TOPIC_NAME: "INVALID_TOPIC",
    Reason.TOO_MANY_PARTITIONS: "INVALID_ARG_TOPIC_PARTITION_NUM",
    Reason.UNAUTHORIZED: "E_UNAUTHORIZED",
    Reason.DISK_FULL: "DISK_FULL",
    Reason.READ_ONLY: "READ_ONLY",
    # the fork's text, which is not a code
    Reason.TOPIC_NAME_EXISTS: "already exist",
    Reason.STOPPING: "EXITING",
}


class HttpFault(LadingError):
    """A refusal in the words of NSQ's HTTP; ``status`` is set if it differs from that of the code."""

    def __init__(self, code: str, status: int | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.status = STATUS.get(code, 400) if status is None else status


Work = Callable[[Request, Parameters], Awaitable[Any]]
"""A handler that returns the data of its response: a document, a text, or None for nothing."""


_RIGHTS: Final[Mapping[str, Right | None]] = {
    "/info": None,
    "/pub": Right.WRITE,
    "/pub_ext": Right.WRITE,
    "/pubtrace": Right.WRITE,
    "/mpub": Right.WRITE,
    "/stats": Right.DESCRIBE,
    "/channel/create": Right.READ,
    "/topic/create": Right.CREATE,
    "/topic/creat": Right.CREATE,
    "/topic/delete": Right.DELETE,
    "/topic/empty": Right.DELETE,
    "/lookup": Right.DESCRIBE,
    "/topics": Right.DESCRIBE,
    "/channels": Right.DESCRIBE,
    "/nodes": Right.DESCRIBE,
    "/listlookup": Right.DESCRIBE,
}
"""The right that a user needs for a path, if it is not ADMINISTRATE."""

OF_NODE: Final = frozenset({"/topics", "/nodes", "/listlookup", "/config/{option}"})
"""Paths that show or change the whole node even if the query names a topic, so that they need a right on the cluster.
"""


def find_parameter(request: Request, name: str) -> str | None:
    """Return a parameter of the query, or None if it is missing. Raises HttpFault if the query is invalid."""
    query = read_query(request)
    if not query.is_valid:
        raise HttpFault("INVALID_REQUEST")
    return query.values.get(name)


def read_parameter(request: Request, name: str, default: str = "") -> str:
    """Return a parameter of the query, or the default. Raises HttpFault if the query is invalid."""
    value = find_parameter(request, name)
    return default if value is None else value


def make_route(node: Node, method: str, path: str, handler: Handler) -> HttpRoute:
    """Return a route with the right that it needs: on the topic of the query, or on the cluster if the query names
    none.

    Paths in ``OF_NODE`` take no topic, so naming one does not decide their right.
    """

    def find_resource(request: Request, parameters: Parameters) -> Resource:
        # also called for an invalid query, which its handler refuses
        name = "" if path in OF_NODE else read_query(request).values.get("topic", "")
        return node.resource_of(name) if name else CLUSTER

    right = _RIGHTS.get(path, Right.ADMINISTRATE)
    return HttpRoute(method, path, path.strip("/"), handler, access_of(method, path), right, find_resource)


def access_of(method: str, path: str) -> Access:
    """Return the operation that a route is: every change of topics, channels and options is administration."""
    if path == "/ping":
        return Access.HEALTH
    verb = path.strip("/").partition("/")[2]
    return Access.ADMINISTRATE if verb and method != "GET" and verb not in USED else Access.USE


def is_v1(request: Request, strict: bool) -> bool:
    """Return whether the client gets the present style (V1); without ``strict`` every client does."""
    return not strict or request.headers.get("accept", "") == V1


def make_handler(work: Work, *, strict: bool, always_v1: bool = False) -> Handler:
    """Return the handler of a route, which sends the responses and refusals of ``work`` in the client's style."""

    async def handle(request: Request, parameters: Parameters) -> Response:
        modern = always_v1 or is_v1(request, strict)
        try:
            return await make_response(await work(request, parameters), modern)
        except LadingError as error:
            return error_response(fault_of(error), modern)

    return handle


async def respond_ping(request: Request, parameters: Parameters) -> Response:
    """Return the response of ``/ping``, which has no style."""
    return Response("OK", media_type=_TEXT)


async def make_response(data: Any, modern: bool) -> Response:
    """Return a response of success; other clients have their turn while a long document is encoded and sent."""
    headers = _V1_HEADERS if modern else None
    if data is None:
        return Response(b"", headers=headers, media_type=None)
    if isinstance(data, str):
        return Response(data, headers=headers, media_type=_TEXT)
    document = data if modern else {"status_code": 200, "status_txt": "OK", "data": data}
    body = await finish_in_turns(encode_in_turns(document, ascii_only=False))
    return InPieces(body, headers=headers, media_type=_JSON)


def error_response(fault: HttpFault, modern: bool) -> Response:
    """Return the response for a refusal."""
    if modern:
        return Response(_dump({"message": fault.code}), fault.status, _V1_HEADERS, _JSON)
    return Response(_dump({"status_code": 500, "status_txt": fault.code, "data": None}), 500, media_type=_JSON)


def refuse(error: LadingError) -> Response:
    """Return the response to a request that is refused before it reaches a handler."""
    return error_response(fault_of(error), True)


def missing(strict: bool) -> MissingResponder:
    """Return the response for a path or method that does not exist; OPTIONS names the methods of a path."""

    def respond(request: Request, allowed: Sequence[str]) -> Response:
        if not allowed:
            return error_response(HttpFault("NOT_FOUND"), is_v1(request, strict))
        if request.method == "OPTIONS":
            response = Response(b"", media_type=None)
        else:
            response = error_response(HttpFault("METHOD_NOT_ALLOWED"), is_v1(request, strict))
        response.headers["allow"] = ", ".join(sorted((*allowed, "OPTIONS")))
        return response

    return respond


def fault_of(error: LadingError) -> HttpFault:
    """Return an error in the words of NSQ's HTTP."""
    if isinstance(error, HttpFault):
        return error
    if isinstance(error, NsqProtocolError):
        code = OF_FAULT.get(error.code, error.code)
        return HttpFault(code)
    if isinstance(error, Refusal | MalformedMessage):
        return HttpFault(OF_REASON.get(error.reason, "E_PUB_FAILED"))
    return HttpFault("INTERNAL_ERROR")


def _dump(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
