"""One Kafka client: frames in, answers out in the order of the requests, several under way at a time (kafka.md 3)."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ...dialects.kafka import versions
from ...dialects.kafka.requests import (
    HEAD,
    LENGTH_BYTES,
    decode_request,
    encode_answer,
    parse_request_header,
    unsupported_versions,
)
from ...model.errors import MalformedMessage
from ...settings import Address
from ..base.deadlines import Stage
from ..base.inbox import Inbox, no_progress_error
from ..base.peer import TLS_HELLO, is_tls_hello, origin_of
from ..io.gate import Guarded
from .handling import NAME, Fields, Framed, Request, Session
from .request_context import Bytes, ResponseSlot

if TYPE_CHECKING:
    from .server import KafkaServer

log = logging.getLogger(__name__)

UNANSWERED_MAX: Final = 128
"""Requests of one connection under way; more are read when some are answered."""

WRITE_BUFFER_BYTES: Final = 1 << 20
"""Requests of a client that does not read its answers wait once this much is on its way to it."""

SMALL_ANSWER_BYTES: Final = 16 << 10
"""Below this one copy is cheaper than one more buffer in a write."""

ROWS_INLINE: Final = 200
"""An answer of more rows is encoded by a worker: a thousand take five milliseconds."""

PIECE_BYTES: Final = 3 << 20
"""So much goes to the socket at once: the kernel copies it while the loop waits."""

_SIZE: Final = struct.Struct(">i")
_BY_ENDPOINT: Final = (NAME,)


class KafkaConnection(Guarded, asyncio.BufferedProtocol):
    """One client connection."""

    def __init__(self, endpoint: KafkaServer) -> None:
        self.endpoint = endpoint
        self.gate = endpoint.gate
        self._metrics = endpoint.services.metrics
        self._received_bytes = self._metrics.received_bytes.values
        self._sent_bytes = self._metrics.sent_bytes.values
        self._requests = self._metrics.requests.values
        self.session: Session | None = None
        self.inbox = Inbox(endpoint.services.receive)
        self._transport: asyncio.Transport | None = None
        self._slots: deque[ResponseSlot] = deque()
        self._outgoing: deque[Bytes] = deque()
        """Of large answers, what the socket did not get yet."""
        self._writing = False
        """The next piece of it is due."""
        self._taken = 0
        """Requests that were whole."""
        self._is_old = False
        """The client was told to be older than message format 2."""
        self._working = False
        self._paused = False
        """The client does not read its answers."""
        self._held = False
        """Reading from the socket is paused: the buffer is full of requests that must wait."""
        self._congested = False
        self._checking = False
        """Batches of this connection are being checked in a worker; requests behind them wait."""
        self._ended = False
        """No more is read; close when all that was asked is answered."""
        self.lost = False
        """The connection is gone."""
        self._tasks: set[asyncio.Future[None]] = set()
        """Handlers that are awaited."""
        self.produce_head_bytes = 0
        self.cancels: set[Any] = set()
        """Long polls that wait, each with ``cancel()``."""

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not its classes
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        host, port = transport.get_extra_info("sockname")[:2]
        peer = transport.get_extra_info("peername")
        host_there = str(peer[0]) if peer else ""
        self.inbox.open_account(host_there, self.give_way)
        self.session = self.endpoint.admit(self, host_there, Address(host, port))
        if self.session is None:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self.inbox.have > self.inbox.at and not self._ended:
            self.endpoint.dropped("truncated")
        for waiting in list(self.cancels):
            waiting.cancel()
        self.cancels.clear()
        self._slots.clear()
        self._outgoing.clear()
        self.inbox.drop()
        if self.session is not None:
            callbacks, self.session.on_lost = self.session.on_lost, []
            for callback in callbacks:
                callback()
            self.endpoint.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.inbox.view[self.inbox.have :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._received_bytes[_BY_ENDPOINT] += size_bytes
        # what comes after lost framing cannot be understood; what comes while the broker stops is not begun
        if not self._ended and not self.endpoint.services.stopping:
            self.inbox.have += size_bytes
            self.process_requests()

    def eof_received(self) -> bool:
        self._ended = True
        return bool(self._slots or self._outgoing)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write_on()
        self.process_requests()

    def origin(self) -> dict[str, str]:
        """Return what a logger takes as ``extra`` for a line about this connection."""
        return origin_of(NAME, self._transport)

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def tell_old_format(self, sentence: str) -> None:
        """Log once that the client is older than message format 2."""
        if not self._is_old:
            self._is_old = True
            log.warning("a client before message format 2 (Kafka 0.11) is refused: %s", sentence, extra=self.origin())

    # -- what the gate asks

    def stage(self) -> Stage:
        if self._paused:
            return Stage.BLOCKED
        if self._must_wait:
            return Stage.BUSY
        if not self._taken:
            return Stage.FIRST
        if self.inbox.have > self.inbox.at:
            return Stage.PARTIAL
        return Stage.BUSY if self._slots or self._outgoing else Stage.IDLE

    def progress(self) -> int:
        unsent_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return (self._taken << 40) - unsent_bytes

    def unread(self) -> memoryview:
        return self.inbox.unread

    def release_memory(self) -> None:
        self.inbox.drop()

    # -- requests

    def process_requests(self) -> None:
        """Begin the requests that are whole, as far as bounds allow; then see to the buffer, and to the end."""
        if self._working or self.lost:
            return
        self._working = True
        inbox = self.inbox
        size_max = self.endpoint.settings.request_bytes_max
        whole = False
        try:
            while inbox.have - inbox.at >= LENGTH_BYTES:
                (size,) = _SIZE.unpack_from(inbox.view, inbox.at)
                if not 0 <= size <= size_max:
                    too_long = f"a request claims {size} bytes; at most {size_max} are taken"
                    self.close_on_error(TLS_HELLO if is_tls_hello(inbox.view[inbox.at : inbox.have]) else too_long)
                    break
                end = inbox.at + LENGTH_BYTES + size
                whole = end <= inbox.have
                if not whole or self._must_wait:
                    break
                if end <= inbox.at:
                    raise no_progress_error()
                start = inbox.at + LENGTH_BYTES
                inbox.at = end
                self._taken += 1
                if self._taken == 1:
                    self.gate.settle(self)
                try:
                    self._request(start, end)
                except MalformedMessage as error:
                    self.close_on_error(str(error))
                    break
                except Exception:
                    log.exception("a request failed", extra=self.origin())
                    self.close_on_error("the request failed")
                    break
        finally:
            self._working = False
        if not self._ended and not inbox.make_room(whole):
            self.close_on_error("memory for requests is used up")
        self._hold(inbox.full and not self._ended)
        self._close_at_end()

    @property
    def _must_wait(self) -> bool:
        return self._paused or self._congested or self._checking or self._ended or len(self._slots) >= UNANSWERED_MAX

    def _request(self, start: int, end: int) -> None:
        view = self.inbox.view
        key = view[start] << 8 | view[start + 1] if end - start >= HEAD.size else -1
        if key == versions.PRODUCE:
            self.endpoint.producer.receive(self, start, end)
        elif key == versions.FETCH:
            self.endpoint.fetcher.fetch(self, view[start:end])
        else:
            self._dispatch(view[start:end])

    def _dispatch(self, frame: memoryview) -> None:
        head = parse_request_header(frame)
        handlers = self.endpoint.handlers
        handler = handlers.get(head.key)
        served = versions.SERVED.get(head.key)
        assert self.session is not None
        if handler is None or served is None:
            raise MalformedMessage(f"API key {head.key} is not supported")
        if not served.low <= head.version <= served.high:
            if head.key != versions.API_VERSIONS:
                raise MalformedMessage(f"{served.name} version {head.version} is not supported")
            self.slot().fill((unsupported_versions(head.correlation, self.endpoint.told),))
            return
        body = decode_request(head.key, head.version, frame[head.body_at :])
        answer = handler(self.session, Request(head.key, head.version, head.client_id, body))
        slot = self.slot()
        if isinstance(answer, Awaitable):
            task = asyncio.ensure_future(self._awaited(slot, head.key, head.version, head.correlation, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._fill(slot, head.key, head.version, head.correlation, answer)

    async def _awaited(
        self, slot: ResponseSlot, key: int, version: int, correlation: int, answer: Awaitable[Fields]
    ) -> None:
        try:
            fields = await answer
            if not self.lost:
                self._fill(slot, key, version, correlation, fields)
        except Exception as error:
            if not isinstance(error, MalformedMessage):
                log.exception("%s failed", versions.SERVED[key].name, extra=self.origin())
            slot.refuse(str(error))

    def _fill(self, slot: ResponseSlot, key: int, version: int, correlation: int, answer: Fields | Framed) -> None:
        """Give the slot its answer, where it is long by way of a worker."""
        name = versions.SERVED[key].name
        if isinstance(answer, Framed):
            self.count(name, answer.error)
            slot.fill((answer.frame(correlation),))
            return
        self.count(name, answer.get("error_code", 0))
        if _rows(answer) <= ROWS_INLINE:
            slot.fill((encode_answer(key, version, correlation, answer),))
            return

        def done(work: asyncio.Future[bytes]) -> None:
            error = work.exception()
            if error is None:
                slot.fill((work.result(),))
            else:
                log.error("%s failed", name, exc_info=error, extra=self.origin())
                slot.refuse(str(error))

        workers = self.endpoint.services.workers
        encoding = asyncio.get_running_loop().run_in_executor(workers, encode_answer, key, version, correlation, answer)
        encoding.add_done_callback(done)

    # -- answers

    def slot(self) -> ResponseSlot:
        """A place for the next answer."""
        slot = ResponseSlot(self)
        self._slots.append(slot)
        return slot

    def send_ready_responses(self) -> None:
        """Send the answers that are at the front, several small ones in one write."""
        slots = self._slots
        parts: list[Bytes] = []
        while slots and slots[0].parts is not None:
            parts += slots.popleft().parts or ()
        if parts and self._transport is not None and not self.lost:
            size_bytes = sum(map(len, parts))
            self._sent_bytes[_BY_ENDPOINT] += size_bytes
            if size_bytes > PIECE_BYTES or self._outgoing:
                self._outgoing += parts
                self._write_on()
            elif len(parts) == 1:
                self._transport.write(parts[0])
            elif size_bytes <= SMALL_ANSWER_BYTES:
                self._transport.write(b"".join(parts))
            else:
                self._transport.writelines(parts)
        waiting = self.inbox.have > self.inbox.at
        if not self._working and (waiting or self._ended or self.endpoint.services.stopping):
            self.process_requests()

    def _write_on(self) -> None:
        """Send the next piece of what is on its way; others have their turn before the one after."""
        outgoing, room = self._outgoing, PIECE_BYTES
        if self._transport is None or self._writing or self._paused or not outgoing:
            return
        piece: list[Bytes] = []
        while outgoing and room > 0:
            part = memoryview(outgoing.popleft())
            if len(part) > room:
                outgoing.appendleft(part[room:])
                part = part[:room]
            piece.append(part)
            room -= len(part)
        self._transport.writelines(piece)
        if outgoing:
            self._writing = True
            asyncio.get_running_loop().call_soon(self._written)
        else:
            self._close_at_end()

    def _written(self) -> None:
        self._writing = False
        self._write_on()

    def count(self, name: str, error: int) -> None:
        """Count an answer in the metrics."""
        self._requests[NAME, name, str(error)] += 1

    def checking(self, busy: bool) -> None:
        """Whether what was read is still being checked: requests behind it wait."""
        self._checking = busy
        if not busy:
            self.process_requests()

    def wait_for_disk(self) -> None:
        """After an append: read no more while the disk is far behind."""
        broker = self.endpoint.services.broker
        if broker.appender.congested:
            self._congested = True
            broker.appender.call_when_uncongested(self._relieve)

    def _relieve(self) -> None:
        self._congested = False
        self.process_requests()

    def close_on_error(self, why: str) -> None:
        """The client cannot be understood any more: close when all before is answered, as Kafka closes."""
        if not self._ended:
            self._ended = True
            self.endpoint.dropped("closed")
            log.info("closing the connection: %s", why, extra=self.origin())
        self._close_at_end()

    def _close_at_end(self) -> None:
        ending = self._ended or self.endpoint.services.stopping
        if ending and not (self._slots or self._outgoing or self._checking) and self._transport is not None:
            self._transport.close()

    def _hold(self, full: bool) -> None:
        transport = self._transport
        if full != self._held and transport is not None and not transport.is_closing():
            self._held = full
            if full:
                transport.pause_reading()
            else:
                transport.resume_reading()


def _rows(fields: Fields) -> int:
    """How many rows an answer has, in its lists and in those of their rows."""
    count = 0
    for rows in fields.values():
        if isinstance(rows, list):
            count += len(rows)
            for row in rows:
                if isinstance(row, Mapping):
                    count += sum(len(each) for each in row.values() if isinstance(each, list))
    return count
