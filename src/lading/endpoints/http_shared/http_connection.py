"""HTTP connections: uvicorn's, with limits on a request's head and body in bytes, lines and time, and a place each.

Neither uvicorn nor httptools limits a head (h11 does, at several times the cost of a request): header lines were kept
without end, a value that never ended was copied at each arrival, and requests after one without a response were parsed
and kept. Here a head has at most ``http.head_bytes_max`` and LINES_MAX lines, trailers included, and nothing after a
whole request is read before its response is sent and the peer takes its responses. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ...runtime.metrics import Metrics
from ...runtime.open_files import open_files_limit, share_open_files
from ...settings.settings import ConnectionSettings, HttpSettings, Settings
from ..base.admission import Places
from ..base.deadlines import DeadlineWatch, Stage, timeouts_of
from ..base.peer import close_sending, name_other_protocol, origin_of
from ..base.receive_budget import ReceiveBudget
from ..base.turn_queue import SMALL_BYTES, TurnQueue

if TYPE_CHECKING:
    from ..base.services import Services

log = logging.getLogger(__name__)

LINES_MAX: Final = 256
PATH_BYTES_MAX: Final = 8 << 10
QUERY_FIELDS_MAX: Final = 256
"""A path and a query are taken apart in the event loop: many parts of few bytes would hold it up."""
SMALL_HEAD_BYTES: Final = 16 << 10
"""A larger head takes its memory from the budget for requests that are not whole."""
EVENTS_PER_TURN: Final = 512
"""Steps of the parser (heads, header lines, chunks) of one connection before others have their turn."""
STEP_BYTES_MIN: Final = 1 << 10
STEP_BYTES_MAX: Final = 64 << 10
"""How much of a chunked body is parsed at a time; less while chunks are small."""
PARTS_SMALL: Final = 16
REQUEST_S: Final = 0.0005
"""About how long a request takes, in the pass after the turn of its connection."""
REQUEST_BYTES: Final = 2 << 10
"""A request counts as this many more bytes of the allowance: eight take as long as a pass of the queue."""
PIPELINED_MAX: Final = 64
"""Requests in one packet after a chunked body, whose end cannot be found without reading on."""
RESERVED_PLACES: Final = 32
"""Connections beyond all places, for health."""
PROCESS_RECEIVE_BYTES_MAX: Final = 64 << 20
"""Memory for requests that are not whole, of a server that is a process of its own."""
LINGER_S: Final = 1.0
LINGER_BYTES_MAX: Final = 1 << 20
"""How much is read and dropped after a refusal: closing on unread bytes would take the refusal back (RST)."""
_HEAD_END: Final = b"\r\n\r\n"


class RequestRefused(httptools.HttpParserCallbackError):
    """A request is refused before it is routed. Raised in the parser's callbacks, which ends the parsing."""

    def __init__(self, status: HTTPStatus, sentence: str, reason: str = "head_too_large") -> None:
        """``reason`` is what metrics call it."""
        super().__init__(sentence)
        self.status, self.reason = status, reason


@dataclass(slots=True)
class HttpContext:
    """State shared by the connections of one HTTP endpoint."""

    name: str
    turns: TurnQueue
    receive: ReceiveBudget
    metrics: Metrics
    places: Places
    reserve: Places
    watch: DeadlineWatch
    reserved_paths: frozenset[str]
    """Paths that are also served when all places are taken."""
    head_bytes_max: int

    def drop(self, reason: str) -> None:
        """Count a connection that was closed, or a request that was refused before any route saw it."""
        self.metrics.dropped.values[self.name, reason] += 1


def make_context(name: str, services: Services, reserved_paths: frozenset[str]) -> HttpContext:
    """Return the context of an endpoint, or of a listener, as the settings have it."""
    settings, connections = services.settings, services.settings.connections
    connections_max = settings.endpoints.section(name).connections_max
    places = Places(connections_max, connections.peer_share, services.connection_budget)
    watch = DeadlineWatch(_http_timeouts_of(connections))

    def set_limits(changed: Settings) -> None:
        places.set_limits(changed.endpoints.section(name).connections_max, changed.connections.peer_share)
        watch.set_timeouts(_http_timeouts_of(changed.connections))

    services.limits_callbacks.append(set_limits)
    return HttpContext(
        name,
        services.turns,
        services.receive,
        services.metrics,
        places,
        Places(RESERVED_PLACES, 1.0),
        watch,
        reserved_paths,
        services.settings.http.head_bytes_max,
    )


def make_process_context(name: str) -> HttpContext:
    """Return the context of an HTTP server that is a process of its own, with the limits that a broker has by default.

    It bounds the same as a broker's: strangers reach such a server before any login.
    """
    settings = ConnectionSettings()
    places = Places(share_open_files(open_files_limit(), None).connections, settings.peer_share)
    return HttpContext(
        name,
        TurnQueue(),
        ReceiveBudget(PROCESS_RECEIVE_BYTES_MAX, settings.peer_share),
        Metrics(),
        places,
        Places(RESERVED_PLACES, 1.0),
        DeadlineWatch(_http_timeouts_of(settings)),
        frozenset(),
        HttpSettings().head_bytes_max,
    )


def _http_timeouts_of(settings: ConnectionSettings) -> dict[Stage, float]:
    return timeouts_of(settings) | {Stage.IDLE: settings.http_idle_timeout_ms / 1_000}


class HttpConnection(HttpToolsProtocol):
    """One connection. uvicorn makes it; ``context`` comes first, by functools.partial."""

    def __init__(
        self,
        context: HttpContext,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._context = context
        self._turns = context.turns
        self._place: Places | None = None
        self._requests_count = 0
        self._is_parting = False
        self._linger_bytes = LINGER_BYTES_MAX
        self._unread = b""
        """Bytes not parsed yet, from ``_unread_at`` on: they follow a whole request, or others have their turn."""
        self._unread_at = 0
        self._is_resting = False
        """Others have their turn."""
        self._step_bytes = STEP_BYTES_MIN
        self._body_parts: list[bytes] = []
        """Parts of the body that one step of the parser found."""
        self._is_in_message = self._is_in_head = False
        self._events = 0
        """Steps that the parser has made: bytes that make none are part of something that does not end."""
        self._loose_bytes = self._head_bytes = self._head_lines = self._hosts_count = 0
        self._body_left_bytes = 0
        self._granted_bytes = 0
        self._account = context.receive.open()

    # -- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place; beyond them, one of the reserve."""
        super().connection_made(transport)
        context = self._context
        peer = self.client[0] if self.client else ""
        self._account = context.receive.open(peer, self._give_way)
        if context.places.admit(self, peer):
            self._place = context.places
        elif context.reserve.admit(self, ""):
            self._place = context.reserve
            self.app = _restrict_to_reserved(self.app, context.reserved_paths)
        else:
            context.drop("connections_max")
            transport.abort()
            return
        context.watch.add(self)
        self._tell_count()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        if self._place is not None:
            self._place.leave(self)
            self._context.watch.remove(self)
            self._tell_count()
        self._unread, self._body_parts = b"", []
        self._give_back()
        # a cycle otherwise, which is only found when garbage is looked for everywhere
        self._account.close()

    def _tell_count(self) -> None:
        self._context.metrics.connections[self._context.name] = len(self._context.places)

    def stage(self) -> Stage:
        """Return what the connection waits for."""
        if self.transport.is_closing() or self.flow.write_paused:
            return Stage.BLOCKED
        if self._is_resting:
            return Stage.BUSY
        if self._is_in_head:
            return Stage.HEAD
        if self._is_in_message:
            return Stage.BUSY if self.flow.read_paused else Stage.PARTIAL
        if self.cycle is not None and not self.cycle.response_complete:
            return Stage.BUSY
        return Stage.IDLE if self._requests_count else Stage.FIRST

    def progress(self) -> int:
        """Return a number that changes with every whole request, and with every byte that a blocked peer reads."""
        return (self._requests_count << 40) + self.transport.get_write_buffer_size()

    def expire(self, stage: Stage) -> None:
        """Close: with 408 if something of a request came."""
        self._context.drop(stage.value)
        if stage in (Stage.HEAD, Stage.PARTIAL):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request is not whole in time; send it faster")
        elif stage is Stage.BLOCKED:
            self.transport.abort()
        else:
            self.transport.close()

    def is_evictable(self) -> bool:
        """Return whether nothing is lost for a client that may ask again: HTTP allows for that between two requests."""
        return self.stage() is not Stage.BUSY

    def evict(self) -> None:
        """Close at once."""
        self._context.drop("evicted")
        self._place = None
        self._context.watch.remove(self)
        self.transport.abort()

    # -- what arrives

    def data_received(self, data: bytes) -> None:
        """Parse the requests that may be served now."""
        if self._is_parting:
            self._linger_bytes -= len(data)
            if self._linger_bytes < 0:
                self.transport.abort()
            return
        if self._unread:
            self._unread, self._unread_at = self._unread[self._unread_at :] + data, 0
        else:
            self._unread, self._unread_at = data, 0
        allowance = self._turns.allowance
        if self._is_resting:
            self.flow.pause_reading()
        elif allowance.left_bytes > 0:
            allowance.left_bytes -= len(data) + REQUEST_BYTES
            self._parse()
        else:
            self._continue_later(REQUEST_S)

    def _parse(self) -> None:
        """Parse unread bytes, until a request waits for its response, or others have their turn."""
        # a step of empty lines makes no event
        data, events_max, steps_left = self._unread, self._events + EVENTS_PER_TURN, EVENTS_PER_TURN
        view, size = memoryview(data), len(data)
        while (at := self._unread_at) < size and not self.transport.is_closing():
            if not self._is_in_message and self.cycle is not None and not self.cycle.response_complete:
                self.flow.pause_reading()
                return
            if self._events >= events_max or not steps_left:
                self._continue_later(0.0)
                return
            steps_left -= 1
            end = self._unread_at = self._step_end(data, at)
            events = self._events
            try:
                self.parser.feed_data(view[at:end])
                self._pass_body()
            except httptools.HttpParserUpgrade:
                # the response is HTTP/1.1, and what follows would be something else
                self._is_in_message = False
                self.cycle.keep_alive = False
                break
            except httptools.HttpParserError as error:
                cause = error if isinstance(error, RequestRefused) else error.__context__
                if isinstance(cause, RequestRefused):
                    self._refuse(cause.status, str(cause), cause.reason)
                else:
                    other = None if self._requests_count else name_other_protocol(data, is_http=True)
                    why = other or "the request is not HTTP"
                    log.info("closing the connection: %s", why, extra=origin_of(self._context.name, self.transport))
                    self._refuse(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.", "invalid_request")
                break
            self._loose_bytes = self._loose_bytes + end - at if self._events == events else 0
            if self._loose_bytes > SMALL_HEAD_BYTES and not self._may_grow():
                break
        self._unread, self._unread_at = b"", 0

    def _continue_later(self, later_s: float) -> None:
        """Continue after others had their turn, with work of ``later_s`` that begins in the next pass of the loop."""
        self._is_resting = True
        self.flow.pause_reading()
        is_small = len(self._unread) - self._unread_at <= SMALL_BYTES
        wait = self._turns.add_with_little if is_small else self._turns.add
        wait(self._continue_parsing, later_s)

    def _continue_parsing(self) -> None:
        self._is_resting = False
        if not (self.transport.is_closing() or self._is_parting):
            self.flow.resume_reading()
            self._parse()

    def _step_end(self, data: bytes, at: int) -> int:
        """Return how far to parse: up to the end of a head or of a body, if it is known."""
        if self._is_in_message and not self._is_in_head:
            if self._body_left_bytes:
                return min(len(data), at + self._body_left_bytes)
            # chunks may have a byte each
            return min(len(data), at + self._step_bytes)
        found = data.find(_HEAD_END, at)
        return len(data) if found < 0 else found + len(_HEAD_END)

    def _pass_body(self) -> None:
        """Give the request what was found of its body, at once: to add each byte to all before would be quadratic."""
        parts = self._body_parts
        if parts:
            is_small = len(parts) > PARTS_SMALL
            self._step_bytes = STEP_BYTES_MIN if is_small else min(2 * self._step_bytes, STEP_BYTES_MAX)
            self._body_parts = []
            super().on_body(b"".join(parts))

    def _may_grow(self) -> bool:
        """Return whether a part of a request without an announced end is within its limit, and memory is left."""
        limit = self._context.head_bytes_max
        if self._loose_bytes + self._head_bytes > limit:
            self._refuse(_TOO_LARGE, f"a head has at most {limit} bytes; send less", "head_too_large")
            return False
        if not self._granted_bytes:
            if not self._account.take(limit):
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests; retry later", "memory")
                return False
            self._granted_bytes = limit
        return True

    def _give_back(self) -> None:
        if self._granted_bytes:
            self._account.give(self._granted_bytes)
            self._granted_bytes = 0

    def _give_way(self) -> None:
        """Refuse a request whose head is incomplete, and close the connection: another request needs its memory."""
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests; retry later", "evicted")

    # -- what the parser finds

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, "too many requests at once; wait for responses")
        self._events += 1
        self._is_in_message = self._is_in_head = True
        self._head_bytes = self._head_lines = self._hosts_count = self._body_left_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the URL."""
        self._count_head(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header line; a trailer is counted and dropped: it must not change a request under way."""
        self._head_lines += 1
        self._events += 1
        self._count_head(len(name) + len(value))
        if not self._is_in_head:
            return
        name = name.lower()
        if name == b"content-length" and value.isdigit():
            self._body_left_bytes = int(value[:20])
        elif name == b"host":
            self._hosts_count += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def _count_head(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > self._context.head_bytes_max:
            raise RequestRefused(_TOO_LARGE, f"a head has at most {self._context.head_bytes_max} bytes; send less")
        if self._head_lines > LINES_MAX:
            raise RequestRefused(_TOO_LARGE, f"a head has at most {LINES_MAX} lines; send fewer headers")

    def on_headers_complete(self) -> None:
        """Begin the request's work, or let it wait for that of the request before: the head is whole."""
        self._events += 1
        self._is_in_head = False
        self._give_back()
        self._check_host_count()
        if b"#" in self.url:
            # the parser drops it: a request for ``t#ephemeral`` would delete ``t``
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, "the URL of a request has no fragment; write # as %23", "invalid_request"
            )
        path, _, query = self.url.partition(b"?")
        if not path.startswith(b"/"):
            self._take_host_of_target(path)
        if len(path) > PATH_BYTES_MAX:
            raise RequestRefused(HTTPStatus.REQUEST_URI_TOO_LONG, f"a path has at most {PATH_BYTES_MAX} bytes")
        if query.count(b"&") >= QUERY_FIELDS_MAX:
            raise RequestRefused(HTTPStatus.REQUEST_URI_TOO_LONG, f"a query has at most {QUERY_FIELDS_MAX} fields")
        super().on_headers_complete()
        if self._place is self._context.reserve:
            self.cycle.keep_alive = False

    def _check_host_count(self) -> None:
        """Refuse a request with two hosts, or one of HTTP/1.1 with none (RFC 9112 3.2); Go's servers do the same."""
        if self._hosts_count > 1:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, "header Host: given more than once; send it once", "invalid_request"
            )
        if not self._hosts_count and self.parser.get_http_version() >= "1.1":
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, "missing required Host header; send it, or HTTP/1.0", "invalid_request"
            )

    def _take_host_of_target(self, target: bytes) -> None:
        """Have the host of a target in absolute form count, and not the header (RFC 9112 3.2.2): guards read that."""
        _, has_scheme, rest = target.partition(b"://")
        if has_scheme:
            self.headers[:] = [header for header in self.headers if header[0] != b"host"]
            self.headers.append((b"host", rest.partition(b"/")[0].partition(b"#")[0]))

    def on_chunk_header(self) -> None:
        """Count the beginning of a chunk of a body."""
        self._events += 1

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._events += 1
        self._body_left_bytes = max(0, self._body_left_bytes - len(body))
        self._body_parts.append(body)

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        self._pass_body()
        self._events += 1
        self._is_in_message = False
        self._give_back()
        if not self._requests_count and self._place is not None:
            self._place.settle(self)
        self._requests_count += 1
        super().on_message_complete()

    # -- responses

    def on_response_complete(self) -> None:
        """Continue with bytes that came meanwhile. Silence needs no timer: the watch sees it."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._unread and not self._is_resting:
            self._continue_later(REQUEST_S)

    def _refuse(self, status: HTTPStatus, sentence: str, reason: str | None = None) -> None:
        """Respond to a request that reaches no route, and close the connection."""
        if reason is not None:
            self._context.drop(reason)
        self._is_parting = True
        self._give_back()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        body = f"{sentence}\n".encode()
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", "content-type: text/plain; charset=utf-8"]
        lines += [f"content-length: {len(body)}", "connection: close", "", ""]
        self.transport.write("\r\n".join(lines).encode() + body)
        self.flow.resume_reading()
        close_sending(self.transport)
        self.loop.call_later(LINGER_S, self.transport.abort)


_TOO_LARGE: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def _restrict_to_reserved(app: ASGIApp, paths: frozenset[str]) -> Callable[[Scope, Receive, Send], Any]:
    """Return an application for connections of the reserve: 503 but for ``paths``."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        chosen: Any = app if scope["path"] in paths else service_unavailable
        await chosen(scope, receive, send)

    return answer
