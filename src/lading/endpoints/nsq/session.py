"""One client of nsqd: commands in, answers out in order, message frames between them (nsq.md 1)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from ...dialects.nsq import commands, limits
from ...dialects.nsq.commands import ERROR, RESPONSE, ClientState, Line, frame
from ...dialects.nsq.errors import NsqProtocolError, fault_of
from ...dialects.nsq.identify import Identity
from ...model.errors import LadingError
from ..base.deadlines import Stage
from ..base.inbox import IDLE_BUFFER_BYTES_MAX, Inbox, no_progress_error
from ..base.peer import TLS_HELLO, is_tls_hello, origin_of
from ..io.gate import Guarded
from .consume import NsqConsumer
from .handlers import HANDLERS, require_state
from .publication import Publication
from .publication_reader import PublicationReader

if TYPE_CHECKING:
    from ...broker.core.topology import Topic
    from .server import Nsqd

log = logging.getLogger(__name__)

NAME: Final = "nsqd_tcp"
LINGER_S: Final = 2.0
SILENT_HEARTBEATS: Final = 3
"""A client that says nothing for so many intervals is gone."""
UNANSWERED_MAX: Final = 256
"""Publications of one connection on their way to the disk; more are read when some are answered."""
WRITE_BUFFER_BYTES: Final = 1 << 20
"""A client that does not read gets no more messages once this much is on its way to it."""
ANSWERS_BYTES_MAX: Final = 256 << 10
"""Answers to a subscriber that does not read, besides its messages; then its commands wait."""

_BY_ENDPOINT: Final = (NAME,)
_OK: Final = frame(RESPONSE, commands.OK)
_HEARTBEAT: Final = frame(RESPONSE, commands.HEARTBEAT)
_FIN: Final = b"FIN "
MUCH_IN_FLIGHT: Final = 512
FEW_BYTES: Final = 64 * 21
STEPS_MAX: Final = 1024
"""Commands of one connection that are taken, or refused, before others have their turn."""
_FINS_BYTES_MAX: Final = 21 * STEPS_MAX
GATHER_S: Final = 0.001
"""Who has so much in hand and sent so little (64 FINs) is read again after this long: clients send each FIN by itself,
and to be woken for one costs as much as to take hundreds."""


class NsqdConnection(Guarded, asyncio.BufferedProtocol):
    """One client connection."""

    def __init__(self, endpoint: Nsqd) -> None:
        self.endpoint = endpoint
        self.gate = endpoint.gate
        self.node = endpoint.node
        self.services = endpoint.services
        metrics = endpoint.services.metrics
        self._received_bytes, self._sent_bytes = metrics.received_bytes.values, metrics.sent_bytes.values
        self._requests = metrics.requests.values
        self.inbox = Inbox(endpoint.services.receive)
        self.intake = PublicationReader(self, self.inbox, endpoint.publisher, endpoint.gathering, NAME, self._requests)
        self.published: Mapping[str, int] = self.intake.published
        self.identity = Identity()
        self.state = ClientState.FRESH
        self.consumer: NsqConsumer | None = None
        self.connected_s = int(time.time())
        self.address = ""
        self.name = NAME
        self._transport: asyncio.Transport | None = None
        self.waiting: deque[bytes | Publication] = deque()
        """Answers in their order: bytes that are ready, or publications under way."""
        self._spoken = False
        """The magic has come."""
        self._working = self._held = self._congested = False
        self._stalled = False
        """Something was received that had to wait."""
        self._paused = False
        """The client does not read."""
        self._full_bytes = 0
        """So much may be on its way to it then, before commands wait."""
        self._steps_left = STEPS_MAX
        self._resting = False
        """Others have their turn, and nothing is read."""
        self._ended = False
        """Nothing more is read: close when all that was asked is answered."""
        self._parting = False
        self._heard_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not its classes
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else ""
        self.name = f"{NAME}/{self.address}"
        host = str(peer[0]) if peer else ""
        self.inbox.open_account(host, self.give_way)
        if not self.endpoint.admit(self, host):
            # without a code, as servers say it
            transport.write(frame(ERROR, b"too much client connections"))
            transport.close()
            self._ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = self._parting = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self.waiting.clear()
        self.inbox.drop()
        if self.consumer is not None:
            self.consumer.close()
        self.endpoint.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        inbox = self.inbox
        return inbox.view[inbox.have :] if inbox.have else inbox.view

    def buffer_updated(self, size_bytes: int) -> None:
        self._received_bytes[_BY_ENDPOINT] += size_bytes
        # what comes after a fatal error is thrown away; what comes while the broker stops is not begun
        if not self._ended and not self.services.stopping:
            self.inbox.have += size_bytes
            if self.waiting or self._congested or self._paused or not self._take_repeated():
                self.process_commands()
                self._gather_finishes(size_bytes)

    def _take_repeated(self) -> bool:
        """Take a publication like the one before; return whether that was all that was received."""
        self._working = True
        try:
            publication = self.intake.take_repeated()
        except NsqProtocolError as fault:
            self._refuse(fault)
            return False
        finally:
            self._working = False
        if publication is None:
            return False
        if publication.done:
            self._send(publication.answers)
        else:
            self.waiting.append(publication)
        self._heard_s = time.monotonic()
        inbox = self.inbox
        if inbox.at < inbox.have or len(inbox.view) > IDLE_BUFFER_BYTES_MAX:
            return False
        inbox.at = inbox.have = 0
        return True

    def _gather_finishes(self, size_bytes: int) -> None:
        """Let a client that has much in hand finish more of it before it is read again."""
        if (
            size_bytes <= FEW_BYTES
            and self.consumer is not None
            and self.consumer.subscriber.in_flight >= MUCH_IN_FLIGHT
            and not (self._held or self._ended)
        ):
            self._hold(True)
            asyncio.get_running_loop().call_later(GATHER_S, self._read_on)

    def _read_on(self) -> None:
        if self._held and not self.inbox.full:
            self._hold(False)

    def eof_received(self) -> bool:
        self._end()
        return bool(self.waiting)

    def _end(self) -> None:
        self._ended = True
        if self.consumer is not None:
            self.consumer.close()

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._full_bytes = self._transport.get_write_buffer_size() + ANSWERS_BYTES_MAX
        if self.consumer is not None:
            self.consumer.subscriber.blocked = True

    def resume_writing(self) -> None:
        self._paused = False
        if self.consumer is not None:
            self.consumer.subscriber.blocked = False
        self.process_commands()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the gate asks

    def stage(self) -> Stage:
        if self._paused:
            return Stage.BLOCKED
        if self._ended or self._congested or len(self.waiting) >= UNANSWERED_MAX:
            return Stage.BUSY
        if not self._spoken:
            return Stage.FIRST
        if self.inbox.have > self.inbox.at:
            return Stage.PARTIAL
        # who is asked for heartbeats is cut for leaving them out; a reader may wait for messages as long as it likes
        is_kept = self.identity.heartbeat_ms > 0 or self.consumer is not None
        return Stage.BUSY if is_kept or self.waiting else Stage.IDLE

    def progress(self) -> int:
        unsent_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return int(self._heard_s * 1e9) - unsent_bytes

    def unread(self) -> memoryview:
        return self.inbox.unread

    def origin(self) -> dict[str, str]:
        return origin_of(NAME, self._transport)

    def release_memory(self) -> None:
        self.inbox.drop()

    # -- commands

    def process_commands(self) -> None:
        """Take the commands that are whole, as far as bounds allow; then see to the buffer, and to the end."""
        if self._working:
            return
        self._working = True
        inbox, waiting = self.inbox, self.waiting
        begun, whole = inbox.at, False
        try:
            while inbox.at < inbox.have and not self._ended:
                whole = (
                    self._congested
                    or len(waiting) >= UNANSWERED_MAX
                    or (self._paused and self._is_overfull())
                    or self._steps_left <= 0
                )
                if whole:
                    break
                self._steps_left -= 1
                at = inbox.at
                try:
                    if not self._step():
                        break
                except NsqProtocolError as fault:
                    self._refuse(fault)
                if inbox.at <= at and not self._ended:
                    raise no_progress_error()
        finally:
            self._working = False
        self._stalled = whole
        if self._steps_left <= 0 and whole:
            self._rest()
        self._steps_left = STEPS_MAX
        if inbox.at != begun:
            self._heard_s = time.monotonic()
        if not self._ended and not inbox.make_room(whole):
            self._refuse(NsqProtocolError("E_BAD_BODY", "the broker is receiving too much; ask again later"))
        hold = (inbox.full or self._resting) and not self._ended
        if hold != self._held:
            self._hold(hold)
        if self._ended or self.services.stopping:
            self._close_at_end()

    def _rest(self) -> None:
        """Go on in the next pass of the event loop."""
        if not self._resting:
            self._resting = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._resting = False
        self.process_commands()

    def _is_overfull(self) -> bool:
        """Whether a client that does not read has to before it is read: nothing may pile up that it is answered.

        A subscriber may go on a while, for what it finishes is not answered.
        """
        transport = self._transport
        return self.consumer is None or transport is None or transport.get_write_buffer_size() > self._full_bytes

    def _step(self) -> bool:
        """Take one command, or a run of equal ones; False where the next is not whole."""
        inbox = self.inbox
        if not self._spoken:
            return self._greet()
        if self.consumer is not None and inbox.have - inbox.at >= 21 and inbox.data.startswith(_FIN, inbox.at):
            start, end = inbox.at, inbox.have
            if end - start > _FINS_BYTES_MAX:
                end = start + _FINS_BYTES_MAX
            inbox.at, faults = self.consumer.finish(inbox.array, start, end)
            for fault in faults:
                self._refuse(fault)
            # a FIN whose 21st byte is no line feed is none of the run: it is read as any other line
            if faults or inbox.at > start:
                return True
        stop = inbox.data.find(b"\n", inbox.at, inbox.have) + 1
        known = bytes(inbox.view[inbox.at : stop])
        route = self.intake.publisher.routes.get(known) if stop else None
        if route is not None:
            return self._taken(self.intake.take(route, known))
        line = commands.read_line(inbox.view, inbox.at, inbox.have)
        if line is None:
            return False
        require_state(self, line.command)
        if line.command.form is not None:
            return self._taken(self.intake.take_first(line))
        return self._answer(line)

    def _greet(self) -> bool:
        inbox = self.inbox
        if inbox.have - inbox.at < len(commands.MAGIC):
            return False
        if bytes(inbox.view[inbox.at : inbox.at + 4]) != commands.MAGIC:
            if is_tls_hello(inbox.view[inbox.at : inbox.have]):
                log.info("closing the connection: %s", TLS_HELLO, extra=self.origin())
            raise NsqProtocolError("E_BAD_PROTOCOL")
        inbox.at += len(commands.MAGIC)
        self._spoken = True
        self.gate.settle(self)
        self.beat_later()
        return True

    def _taken(self, publication: Publication | None) -> bool:
        """Answer a publication when it lasts; None where it is not whole."""
        if publication is None:
            return False
        if publication.done and not self.waiting:
            self._send(publication.answers)
            return True
        self.waiting.append(publication)
        self._congested = self.services.broker.appender.congested and self.endpoint.wait_for_disk(self._relieve)
        return True

    def acknowledge(self) -> None:
        """A publication is done: answer what can be answered now."""
        self._settle()
        if self._stalled:
            self.process_commands()

    def _relieve(self) -> None:
        self._congested = False
        self.process_commands()

    def _answer(self, line: Line) -> bool:
        """Any command but a publication."""
        inbox = self.inbox
        body = b""
        if line.command.body is commands.Body.SIZED:
            size = commands.read_size(inbox.view, line.end, inbox.have)
            if size is None:
                return False
            if not 0 < size <= limits.IDENTIFY_BYTES_MAX:
                raise NsqProtocolError("E_BAD_BODY", f"{line.command.name} invalid body size {size}")
            if line.end + 4 + size > inbox.have:
                return False
            body = bytes(inbox.view[line.end + 4 : line.end + 4 + size])
            inbox.at = line.end + 4 + size
        else:
            inbox.at = line.end
        try:
            HANDLERS[line.command.name](self, line, body)
        except LadingError as error:
            raise fault_of(error, line.command.failure_code) from None
        self._requests[NAME, line.command.name, "OK"] += 1
        if line.command.leads_to is not None:
            self.state = line.command.leads_to
        return True

    def topic_upgraded(self, topic: Topic) -> None:
        """A reader of plain frames cannot go on with an extended topic: it is cut, as the server does it."""
        reads = self.consumer is not None and self.consumer.channel.topic is topic
        if reads and not self.identity.extend_support and self._transport is not None:
            self._transport.close()

    # -- answers

    def deliver(self, frames: NDArray[np.uint8]) -> None:
        """Send message frames."""
        if self._transport is not None and not self._parting:
            self._sent_bytes[_BY_ENDPOINT] += frames.size
            self._transport.write(frames.data)

    def respond(self, data: bytes) -> None:
        """Answer a command with this, behind what was asked before it."""
        self.waiting.append(_OK if data == commands.OK else frame(RESPONSE, data))
        self._settle()

    def _refuse(self, fault: NsqProtocolError) -> None:
        self._requests[NAME, "refused", fault.code] += 1
        self._steps_left -= 1
        self.waiting.append(frame(ERROR, str(fault).encode(errors="replace")))
        if fault.fatal:
            # what still comes is thrown away: there must be room to receive it
            self.inbox.at = self.inbox.have = 0
            self._end()
        self._settle()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._parting:
            self._sent_bytes[_BY_ENDPOINT] += len(data)
            self._transport.write(data)

    def _settle(self) -> None:
        """Send the answers at the front, all in one write."""
        waiting = self.waiting
        parts: list[bytes] = []
        while waiting:
            first = waiting[0]
            if not isinstance(first, bytes):
                if not first.done:
                    break
                first = first.answers
            parts.append(first)
            waiting.popleft()
        if parts:
            self._send(b"".join(parts))
        if not self._working and (self._ended or self.services.stopping):
            self._close_at_end()

    def _close_at_end(self) -> None:
        if self.waiting or self._parting or self._transport is None or self._working:
            return
        self._parting = True
        if self.services.stopping:
            self._transport.close()
            return
        # closing on unread bytes would take the last answer back (RST): say that nothing follows, and read on a while
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def channel_closed(self, reason: str) -> None:
        """What it reads is deleted."""
        if self._transport is not None:
            self._transport.close()

    def _hold(self, hold: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._held = hold
            if hold:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- heartbeats

    def beat_later(self) -> None:
        """A heartbeat after the interval that the client asked for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.identity.heartbeat_ms > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.identity.heartbeat_ms / 1e3, self._beat)

    def _beat(self) -> None:
        silent_s = time.monotonic() - self._heard_s
        interval_s = self.identity.heartbeat_ms / 1e3
        # half an interval less, since a beat may come a little early
        if silent_s >= (SILENT_HEARTBEATS - 0.5) * interval_s:
            self.endpoint.dropped("silent")
            self.abort()
            return
        if self._transport is not None and not self._ended:
            # the next one first: whatever this one ends with, a silent client is found
            self.beat_later()
            self._transport.write(_HEARTBEAT)
