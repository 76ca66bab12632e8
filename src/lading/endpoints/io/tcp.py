"""Listening, and the connections of a protocol over TCP: the half that is the same for every protocol.

A connection fills the inbox of its session, calls it when something has come or what held it up is over, and sees to
the buffer and to the end. It has no branch for a protocol: what differs is ``SessionLimits`` and the session's methods.
Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

from ...settings import Address
from ..base.deadlines import Stage
from ..base.inbox import Inbox
from ..base.peer import origin_of
from ..base.services import Services, now_us
from ..base.session import Peer, ProtocolSession, ReceiveResult, SessionFactory, SessionLimits
from .gate import Gate, Guarded

R = TypeVar("R")

DRAIN_TIMEOUT_S: Final = 5.0
"""When the broker stops, a client that does not read its responses is cut after this."""


_DONE: Final = ReceiveResult.DONE
"""As a global: Python looks a member of an enumeration up in its class each time."""


class _LostSession(ProtocolSession):
    """What all connections that are gone have in place of their sessions."""

    limits = SessionLimits(unanswered_max=0, write_buffer_bytes=0)

    def __init__(self) -> None:
        self.is_lost = self.is_ended = True
        self.is_resting = self.is_congested = False

    def receive(self, now_us: int) -> ReceiveResult:
        return ReceiveResult.DONE

    def refuse_memory(self) -> None:
        """Nothing is received."""

    def lose(self) -> None:
        """It is lost."""

    def stage(self) -> Stage:
        return Stage.BUSY


_LOST: Final = _LostSession()


class Connection(Guarded, asyncio.BufferedProtocol):
    """One client connection: the only BufferedProtocol of the house."""

    def __init__(self, server: TcpServer) -> None:
        self._server = server
        self._services = server.services
        self._clock = server.clock
        self.gate = server.gate
        self._labels = (server.name,)
        self._received_bytes = server.services.metrics.received_bytes.values
        self._transport: asyncio.Transport | None = None
        self.inbox = Inbox(server.services.receive)
        self.session: ProtocolSession = server.new_session(self)
        self._result = ReceiveResult.DONE
        """Why the session takes no more."""
        self._is_receiving = False
        """Within the session: what completes at once must not call it again."""
        self._is_held = False
        """Reading from the socket is paused."""
        self._has_ended = False
        """The client has sent its last byte."""
        self._is_parting = False
        """Nothing follows any more; what still comes is thrown away."""
        self._works: set[asyncio.Future[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not its classes
        self._transport = transport = cast("asyncio.Transport", transport)
        session, limits = self.session, self.session.limits
        transport.set_write_buffer_limits(limits.write_buffer_bytes)
        peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        host, port = (str(peer[0]), peer[1]) if peer else ("", 0)
        self.inbox.open_account(host, self.give_way)
        call_soon = asyncio.get_running_loop().call_soon
        sent_bytes = self._services.metrics.sent_bytes.values
        session.responses.open(session.wrap(transport), sent_bytes, self._labels, call_soon, self.proceed)
        if not (session.begin(Peer(host, port, Address(*here[:2])), self._clock()) and self._server.admit(self, host)):
            self._refuse(transport)

    def _refuse(self, transport: asyncio.Transport) -> None:
        """There is no place for this client."""
        self._lose()
        word = self.session.last_word()
        if word:
            transport.write(word)
            transport.close()
        else:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.session.is_lost:
            self._lose()
            self._server.leave(self)
        # what refers to each other would stay until somebody looks for cycles, and there may be thousands a minute
        self._transport, self.session = None, _LOST
        self.inbox.close()

    def _lose(self) -> None:
        session = self.session
        session.is_lost = self._is_parting = True
        session.lose()
        session.is_ended = True
        session.responses.close()
        works, self._works = self._works, set()
        for work in works:
            work.cancel()
        self.tick_at(None)
        self.inbox.drop()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.inbox.view[self.inbox.have :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._received_bytes[self._labels] += size_bytes
        # what comes after the end cannot be understood; what comes while the broker stops is not begun
        if not self.session.is_ended and not self._services.stopping:
            self.inbox.have += size_bytes
            self.proceed()

    def eof_received(self) -> bool:
        self._has_ended = True
        self.session.end()
        return self.session.is_busy and not self._is_parting

    def pause_writing(self) -> None:
        self._block(True)

    def resume_writing(self) -> None:
        self._block(False)
        self.proceed()

    def _block(self, is_blocked: bool) -> None:
        self.session.block(is_blocked)
        self.session.responses.block(is_blocked)

    # -- what the gate asks

    def stage(self) -> Stage:
        return Stage.BLOCKED if self.session.is_blocked else self.session.stage()

    def progress(self) -> int:
        return (self.session.requests_count << 40) - self.unsent_bytes()

    def unread(self) -> memoryview:
        return self.session.unread

    def release_memory(self) -> None:
        self.session.release_memory()

    def stop_reading(self) -> None:
        self.session.end()

    # -- what the session asks

    def origin(self) -> dict[str, str]:
        return origin_of(self._server.name, self._transport)

    def close(self) -> None:
        """Close the connection when all that was written is sent."""
        if self._transport is not None:
            self.session.say_goodbye()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def unsent_bytes(self) -> int:
        """Return what was written and the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def settle(self) -> None:
        """Note that the first request is whole."""
        self.gate.settle(self)

    def count_dropped(self, reason: str, count: int = 1) -> None:
        """Count what nobody could be told in the protocol."""
        self.gate.count_dropped(reason, count)

    def wait_for_disk(self) -> None:
        """Begin no more requests until the disk has caught up; the caller has seen that it has not."""
        self.session.is_congested = True
        self._services.broker.appender.call_when_uncongested(self._on_disk_ready)

    def _on_disk_ready(self) -> None:
        self.session.is_congested = False
        self.proceed()

    def run(self, work: Awaitable[R], on_done: Callable[[asyncio.Future[R]], None]) -> None:
        """Call back when ``work`` is done; if the client is gone before, ``work`` is cancelled instead."""
        future = asyncio.ensure_future(work)
        works = cast("set[asyncio.Future[R]]", self._works)
        works.add(future)

        def finish(done: asyncio.Future[R]) -> None:
            works.discard(done)
            if not (done.cancelled() or self.session.is_lost):
                on_done(done)

        future.add_done_callback(finish)

    def run_to_end(self, work: Awaitable[R], on_done: Callable[[asyncio.Future[R]], None]) -> None:
        """Call back when ``work`` is done, also if the client is gone before."""
        future = asyncio.ensure_future(work)
        # a task that nobody refers to may be collected before it is done
        works = cast("set[asyncio.Future[R]]", self._server.works)
        works.add(future)
        future.add_done_callback(works.discard)
        future.add_done_callback(on_done)

    def run_in_worker(self, work: Callable[[], R], on_done: Callable[[asyncio.Future[R]], None]) -> None:
        """Call back when a worker has done ``work``, unless the client is gone before."""
        self.run(asyncio.get_running_loop().run_in_executor(self._services.workers, work), on_done)

    def tick_at(self, due_us: int | None) -> None:
        """Have the session's ``tick`` called then, instead of when it was due before; None is never."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_us is not None:
            delay_s = max(due_us - self._clock(), 0) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        due_us = self.session.tick(self._clock())
        if due_us is not None and not self.session.is_lost:
            self.tick_at(due_us)

    # -- requests

    def proceed(self) -> None:
        """Let the session take what is whole; then see to the buffer, and to the end."""
        session, inbox = self.session, self.inbox
        if self._is_receiving or session.is_lost:
            return
        if not session.is_resting:
            self._is_receiving = True
            try:
                self._result = session.receive(self._clock())
            finally:
                self._is_receiving = False
        result, is_ended = self._result, session.is_ended
        is_stopping = self._services.stopping
        if result is _DONE and inbox.at == inbox.have and not (is_ended or is_stopping or self._is_held):
            # nearly every read ends here: all was taken, nothing waits, and the socket is read on
            session.responses.is_watched = False
            if inbox.is_large:
                inbox.make_room(False)
            else:
                inbox.at = inbox.have = 0
            return
        is_waiting = result is ReceiveResult.WAIT or result is ReceiveResult.TURN
        if not is_ended and not inbox.make_room(is_waiting):
            session.refuse_memory()
            is_ended = session.is_ended
        session.responses.is_watched = is_waiting or is_ended or is_stopping
        if result is ReceiveResult.TURN:
            self._yield_turn()
        # a full buffer has a whole request that waits at its front, or all of it was taken, or nothing of it matters
        # any more: more cannot be received, and asyncio takes an empty buffer for a fault
        is_full = (not self._has_ended if is_ended else is_waiting) and inbox.full
        is_held = is_full or (session.is_resting and session.limits.holds_at_turn and not is_ended)
        if is_held is not self._is_held:
            self._hold(is_held)
        if result is ReceiveResult.REST:
            self._rest()
        if is_ended or is_stopping:
            self._end()

    def _yield_turn(self) -> None:
        """Let others have their turn: go on in the next pass of the event loop."""
        self._result = ReceiveResult.WAIT
        self.session.is_resting = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def _rest(self) -> None:
        """Read on after a while."""
        self._result = ReceiveResult.DONE
        if not (self._is_held or self.session.is_ended):
            self._hold(True)
            asyncio.get_running_loop().call_later(self.session.limits.rest_s, self._read_on)

    def _go_on(self) -> None:
        self.session.is_resting = False
        self.proceed()

    def _read_on(self) -> None:
        if self._is_held and not self.inbox.full:
            self._hold(False)

    def _hold(self, is_held: bool) -> None:
        """Read no more from the socket, or read on."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._is_held = is_held
            if is_held:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _end(self) -> None:
        """Close when everything is answered; linger where bytes may come that nobody reads."""
        session, transport = self.session, self._transport
        if session.is_busy or self._is_parting or transport is None or transport.is_closing():
            return
        session.say_goodbye()
        limits, is_stopping = session.limits, self._services.stopping
        if not session.lingers or (is_stopping and not limits.lingers_at_stop):
            transport.close()
            return
        self._is_parting = True
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(limits.linger_s, transport.abort)


class TcpServer:
    """The listening socket of an endpoint and its connections."""

    def __init__(
        self,
        services: Services,
        name: str,
        gate: Gate,
        new_session: SessionFactory,
        *,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.services = services
        self.name = name
        self.gate = gate
        self.new_session = new_session
        self.clock = clock
        self.works: set[asyncio.Future[object]] = set()
        """What is done for clients that may be gone."""
        self._connections: set[Connection] = set()
        self._listening: asyncio.Server | None = None
        self._all_gone = asyncio.Event()

    async def start(self, listener: socket.socket) -> None:
        """Accept from now on."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: Connection(self), sock=listener)

    async def stop(self) -> None:
        """Accept no more, answer what is whole, close; a client that does not read is cut."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.proceed()
        with contextlib.suppress(TimeoutError):
            if self._connections:
                await asyncio.wait_for(self._all_gone.wait(), DRAIN_TIMEOUT_S)
        for connection in list(self._connections):
            connection.abort()

    def admit(self, connection: Connection, host: str) -> bool:
        """Return whether there is a place for one more."""
        if not self.gate.admit(connection, host):
            return False
        self._connections.add(connection)
        # set when the last one before has left: a stop has to wait for this one
        self._all_gone.clear()
        return True

    def leave(self, connection: Connection) -> None:
        """Take the place of a connection that is gone back."""
        self._connections.discard(connection)
        self.gate.leave(connection)
        if not self._connections:
            self._all_gone.set()
