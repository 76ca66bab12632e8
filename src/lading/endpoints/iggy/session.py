"""Iggy classic over TCP: frames in, frames out, in order (iggy.md A1, M).

What a client may count on, and where this differs from the real server on purpose: an intact frame that cannot
be understood or is refused gets its error status and the connection stays (the real server drops it); where
framing itself is lost (a length below 4 or over ``FRAME_BYTES_MAX``) a status is sent and the connection closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ...broker.core.pending_append import Append
from ...dialects.iggy_classic.commands import ROW_BY_CODE, encode_response, error_frame, ok_frame, parse_request
from ...dialects.iggy_classic.errors import CODE_OF, GENERIC, code_of
from ...dialects.iggy_classic.limits import REQUEST_HEADER_VALUES_BYTES_MAX, REQUEST_PAYLOADS_BYTES_MAX
from ...dialects.iggy_classic.responses import TRANSPORT_TCP
from ...model.errors import LadingError, Reason
from ...settings import Address
from ..base.deadlines import Stage
from ..base.inbox import no_progress_error
from ..base.peer import TLS_HELLO, is_tls_hello, origin_of
from ..base.services import Endpoint, Services
from ..io.gate import Gate, Guarded
from .clients import Client
from .poll import POLL, Answer, Poller
from .send import SEND, Sender
from .service import IggyService
from .states import SETTING_STATES, StateSetter

if TYPE_CHECKING:
    from ...model.errors import Refusal

log = logging.getLogger(__name__)

NAME: Final = "iggy_tcp"

_KEYS_BYTES_MAX: Final = REQUEST_HEADER_VALUES_BYTES_MAX * (255 + 9)
FRAME_BYTES_MAX: Final = REQUEST_PAYLOADS_BYTES_MAX + REQUEST_HEADER_VALUES_BYTES_MAX + _KEYS_BYTES_MAX
"""The longest request: 10 MiB of payloads, 100 KiB of header values, and as many of the longest keys as there can be
values of one byte (37,621,760). Requests of millions of messages below 4 bytes can meet it before Iggy's own limits."""

BUFFER_BYTES: Final = 16 << 10
IDLE_BUFFER_BYTES_MAX: Final = 1 << 20
"""A buffer that grew beyond this is given back when it is empty."""

COMMANDS_PER_TURN: Final = 8
"""So many commands that are no messages are answered before others have their turn."""

UNANSWERED_MAX: Final = 64
"""Sends of one connection that may wait for the disk; more are read when some are answered."""

WRITE_BUFFER_BYTES: Final = 256 << 10
"""Requests of a client that does not read its answers wait once this much is on its way to it."""

SMALL_ANSWER_BYTES: Final = 8 << 10
"""Below this one copy is cheaper than one more buffer in a write."""

DRAIN_TIMEOUT_S: Final = 5.0
LINGER_S: Final = 2.0

FRAMING: Final = -1
"""Stands for the command where there is none."""

_U32 = struct.Struct("<I")
_POLLED_HEAD = struct.Struct("<III")
_OK: Final = ok_frame()
_BY_ENDPOINT: Final = (NAME,)
_LABELS: Final = {
    (code, status): (NAME, row.name, str(status))
    for code, row in ROW_BY_CODE.items()
    for status in (0, *CODE_OF.values())
}
"""Labels of the requests metric, made once."""


class IggyConnection(Guarded, asyncio.BufferedProtocol):
    """One client. Requests are answered one after another; only sends may wait for the disk side by side."""

    def __init__(self, endpoint: IggyTcp) -> None:
        self._turn = 0
        """Commands answered since others had their turn."""
        self._endpoint = endpoint
        self.gate = endpoint.gate
        self._account = endpoint.services.receive.open()
        self._requests = endpoint.services.metrics.requests.values
        self._sent_bytes = endpoint.services.metrics.sent_bytes.values
        self._received_bytes = endpoint.services.metrics.received_bytes.values
        self._client: Client | None = None
        self._transport: asyncio.Transport | None = None
        self._unanswered: deque[Append] = deque()
        self._pending: asyncio.Future[Any] | None = None
        """A poll or a command that is answered later; what comes behind it waits."""
        self._working = False
        """Inside ``_work``: what completes at once must not begin it again."""
        self._taken = 0
        """Requests that were whole."""
        self._paused = False
        """The client does not read its answers."""
        self._held = False
        """Reading from the socket is paused: the buffer is full of requests that must wait."""
        self._congested = False
        self._ended = False
        """The client sends no more that can be understood: close when all before it is answered."""
        self._farewell = 0
        """The status to end with, where framing is lost."""
        self._parting = False
        """That status is sent; what still comes is thrown away."""
        self._lost = False
        """The connection is gone."""
        self._at = self._have = 0
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._array = np.frombuffer(self._view, np.uint8)

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not its classes
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        host, port = transport.get_extra_info("peername")[:2]
        client = Client(str(Address(host, port)), TRANSPORT_TCP)
        self._account = self._endpoint.services.receive.open(host, self.give_way)
        if self._endpoint.admit(self, client, host):
            self._client = client
        else:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self._have > self._at and not self._lost:
            self._endpoint.dropped("truncated")
        if self._pending is not None:
            self._pending.cancel()
        self._lost = True
        self._unanswered.clear()
        self._resize(BUFFER_BYTES, keep=False)
        if self._client is not None:
            self._endpoint.leave(self, self._client)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._received_bytes[_BY_ENDPOINT] += size_bytes
        # what comes after lost framing cannot be understood; what comes while the broker stops is not begun
        if not self._farewell and not self._endpoint.services.stopping:
            self._have += size_bytes
            self._work()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool:
        self._ended = True
        return self._busy and not self._parting

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._work()

    # -- what the gate asks

    def stage(self) -> Stage:
        if self._paused:
            return Stage.BLOCKED
        if self._ended or self._congested or self._unanswered or self._pending is not None:
            return Stage.BUSY
        if self._have > self._at:
            return Stage.PARTIAL if self._taken else Stage.FIRST
        # a client may connect long before it has something to ask
        return Stage.IDLE

    def progress(self) -> int:
        unsent_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return (self._taken << 40) - unsent_bytes

    def unread(self) -> memoryview:
        return self._view[self._at : self._have]

    def origin(self) -> dict[str, str]:
        return origin_of(NAME, self._transport)

    def release_memory(self) -> None:
        self._at = self._have = 0
        self._resize(BUFFER_BYTES, keep=False)

    # -- requests

    @property
    def _busy(self) -> bool:
        waiting = self._have > self._at and (self._paused or self._congested)
        return bool(self._unanswered) or self._pending is not None or waiting

    def _work(self) -> None:
        """Answer what is whole, as far as order and bounds allow; then see to the buffer, and to the end."""
        if self._working or self._lost:
            return
        self._working = True
        try:
            while self._have - self._at >= 4 and not (self._paused or self._congested or self._pending is not None):
                (length,) = _U32.unpack_from(self._view, self._at)
                if not 4 <= length <= FRAME_BYTES_MAX:
                    self._fail_framing(Reason.MALFORMED if length < 4 else Reason.REQUEST_TOO_LARGE)
                    break
                end = self._at + 4 + length
                if end > self._have:
                    if not self._taken and is_tls_hello(self.unread()):
                        log.info("closing the connection: %s", TLS_HELLO, extra=self.origin())
                        self._fail_framing(Reason.MALFORMED)
                    break
                self._taken += 1
                if self._taken == 1:
                    self.gate.settle(self)
                (code,) = _U32.unpack_from(self._view, self._at + 4)
                if self._unanswered and (code != SEND or len(self._unanswered) >= UNANSWERED_MAX):
                    break
                if end <= self._at:
                    raise no_progress_error()
                self._answer(code, self._at + 8, end)
                self._at = end
        finally:
            self._working = False
        self._tend_buffer()
        if (self._ended or self._endpoint.services.stopping) and not self._busy and self._transport is not None:
            if self._farewell and not self._parting:
                self._part(self._transport)
            elif not self._farewell:
                self._transport.close()

    def _answer(self, code: int, start: int, end: int) -> None:
        try:
            if code == SEND:
                who = self if end == self._have else None
                append = self._endpoint.sender.send(self._view[start:end], self._array, start, who)
                self._unanswered.append(append)
                append.add_done_callback(self._acknowledge)
                self._congested = self._endpoint.wait_for_disk(self._relieve)
            elif code == POLL:
                answer = self._endpoint.poller.poll(self._view[start:end], self._client)
                if isinstance(answer, Answer):
                    self._write_polled(answer)
                else:
                    self._pending = answer
                    answer.add_done_callback(self._polled)
            else:
                command = parse_request(code, self._view[start:end])
                if isinstance(command, SETTING_STATES):
                    self._pending = asyncio.ensure_future(self._endpoint.states.set(command))
                    self._pending.add_done_callback(partial(self._answer_late, code))
                    return
                body = encode_response(command, self._endpoint.service.answer(command, self._client))
                self._write(ok_frame(body), code, 0)
                self._rest_after_turn()
        except LadingError as error:
            if self._unanswered:
                # behind the sends before it, which wait for the disk
                refused = Append(0, 0, 0, 0)
                refused.finish(cast("Refusal", error))
                self._unanswered.append(refused)
                return
            status = code_of(error)
            self._write(error_frame(status), code, status)
        except Exception:
            # such as memory that cannot be had: said to this client, and no reason to leave it without an answer
            log.exception("a request failed", extra=self.origin())
            self._write(error_frame(GENERIC), code, GENERIC)

    def _answer_late(self, code: int, pending: asyncio.Future[bytes]) -> None:
        """Answer a command that waited for the disk or a worker."""
        self._pending = None
        if pending.cancelled() or self._lost:
            return
        error = pending.exception()
        if error is None:
            self._write(ok_frame(pending.result()), code, 0)
        else:
            self._write_error(error, code)
        self._work()

    def _rest_after_turn(self) -> None:
        """Let others have their turn after some commands that are no messages: each may look at every topic."""
        self._turn += 1
        if self._turn >= COMMANDS_PER_TURN:
            self._turn = 0
            self._congested = True
            asyncio.get_running_loop().call_soon(self._relieve)

    def _acknowledge(self, _append: Append) -> None:
        unanswered = self._unanswered
        while unanswered and unanswered[0].done:
            error = unanswered.popleft().error
            if error is None:
                self._write(_OK, SEND, 0)
            else:
                status = code_of(error)
                self._write(error_frame(status), SEND, status)
        self._work()

    def _relieve(self) -> None:
        self._congested = False
        self._work()

    def _polled(self, polling: asyncio.Future[Answer]) -> None:
        self._pending = None
        if polling.cancelled() or self._lost:
            return
        error = polling.exception()
        if error is None:
            try:
                self._write_polled(polling.result())
            except Exception as failed:
                # such as memory that cannot be had: the client must not wait for ever
                self._write_error(failed, POLL)
        else:
            self._write_error(error, POLL)
        self._work()

    # -- answers

    def _write(self, frame: bytes, code: int, status: int) -> None:
        self._requests[_LABELS.get((code, status)) or (NAME, "unknown", str(status))] += 1
        self._sent_bytes[_BY_ENDPOINT] += len(frame)
        if self._transport is not None:
            self._transport.write(frame)

    def _write_error(self, error: BaseException, code: int) -> None:
        status = code_of(error) if isinstance(error, LadingError) else GENERIC
        if not isinstance(error, LadingError):
            log.error("a request failed", exc_info=error, extra=self.origin())
        self._write(error_frame(status), code, status)

    def _write_polled(self, answer: Answer) -> None:
        head = _POLLED_HEAD.pack(0, 4 + answer.size_bytes, answer.count)
        self._requests[_LABELS[POLL, 0]] += 1
        self._sent_bytes[_BY_ENDPOINT] += len(head) + answer.size_bytes
        if answer.stubs:
            self._endpoint.dropped("unholdable", answer.stubs)
        if self._transport is None:
            return
        if answer.size_bytes <= SMALL_ANSWER_BYTES:
            self._transport.write(b"".join((head, *answer.parts)))
        else:
            self._transport.writelines((head, *answer.parts))

    def _fail_framing(self, reason: Reason) -> None:
        """Framing is lost: say it where the protocol can, and close when what came before is answered."""
        self._endpoint.dropped(reason.value)
        self._farewell = CODE_OF[reason]
        self._ended = True
        self._at = self._have = 0

    def _part(self, transport: asyncio.Transport) -> None:
        """Say the status, then read on for a while: closing on unread bytes would take the status back (RST)."""
        self._parting = True
        self._write(error_frame(self._farewell), FRAMING, self._farewell)
        transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    # -- the buffer

    def _tend_buffer(self) -> None:
        """Room for more, in step with what has really arrived; reading rests while the buffer is full of requests."""
        if self._at == self._have:
            self._at = self._have = 0
            if len(self._view) > IDLE_BUFFER_BYTES_MAX:
                self._resize(BUFFER_BYTES, keep=False)
        elif self._have == len(self._view):
            if self._at:
                self._resize(len(self._view), keep=True)
            elif not self._whole_frame and not self._resize(2 * len(self._view), keep=True):
                self._fail_framing(Reason.REQUEST_TOO_LARGE)
        full = self._have == len(self._view)
        if full != self._held and self._transport is not None and not self._transport.is_closing():
            self._held = full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def _whole_frame(self) -> bool:
        (length,) = _U32.unpack_from(self._view, self._at)
        return bool(4 + length <= self._have - self._at)

    def _resize(self, size_bytes: int, *, keep: bool) -> bool:
        """Another buffer, with what is unread at its front; False where memory for requests is used up."""
        more = size_bytes - len(self._view)
        if more > 0 and not self._account.take(more):
            return False
        if more < 0:
            self._account.give(-more)
        unread = self._view[self._at : self._have] if keep else b""
        try:
            fresh = memoryview(bytearray(size_bytes))
        except MemoryError:
            self._account.give(more)
            return False
        fresh[: len(unread)] = unread
        self._at, self._have = 0, len(unread)
        self._view, self._array = fresh, np.frombuffer(fresh, np.uint8)
        return True


class IggyTcp:
    """The endpoint: the listening socket and its connections."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.service = IggyService(services)
        self.sender = Sender(services, NAME)
        self.states = StateSetter(services)
        self.poller = Poller(services, NAME, services.settings.endpoints.iggy_tcp)
        settings = services.settings.endpoints.iggy_tcp
        idle = (settings.idle_timeout_ms, "endpoints.iggy_tcp.idle_timeout_ms")
        self.gate = Gate(services, NAME, settings.connections_max, {Stage.IDLE: idle})
        self._connections: set[IggyConnection] = set()
        self._server: asyncio.Server | None = None
        self._all_gone = asyncio.Event()

    async def start(self, listener: socket.socket) -> None:
        """Accept from now on."""
        self._server = await asyncio.get_running_loop().create_server(lambda: IggyConnection(self), sock=listener)

    async def stop(self) -> None:
        """Accept no more, answer what is whole, close; a client that does not read is cut."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection._work()
        with contextlib.suppress(TimeoutError):
            if self._connections:
                await asyncio.wait_for(self._all_gone.wait(), DRAIN_TIMEOUT_S)
        for connection in list(self._connections):
            connection.abort()

    def admit(self, connection: IggyConnection, client: Client, host: str) -> bool:
        """Whether there is room for one more, and its id is not that of another address."""
        if not self.services.clients.add(client):
            self.dropped("client_id_taken")
            return False
        if not self.gate.admit(connection, host):
            self.services.clients.remove(client)
            return False
        self._connections.add(connection)
        return True

    def leave(self, connection: IggyConnection, client: Client) -> None:
        """The client is gone, from its groups too."""
        self._connections.discard(connection)
        self.gate.leave(connection)
        self.services.clients.remove(client)
        self.services.broker.groups.leave_all(client.id)
        if not self._connections:
            self._all_gone.set()

    def wait_for_disk(self, relieved: Callable[[], None]) -> bool:
        """Whether the disk is so far behind that no request may be read; ``relieved`` is called when it is not."""
        if not self.services.broker.appender.congested:
            return False
        self.services.broker.appender.call_when_uncongested(relieved)
        return True

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count what nobody could be told in the protocol."""
        self.services.metrics.dropped.values[NAME, reason] += count


def endpoint(services: Services) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    return IggyTcp(services)
