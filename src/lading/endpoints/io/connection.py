"""Connections and servers of all transports: everything but how bytes travel.

A connection fills the inbox of its session, calls the session when bytes have arrived or it need not wait any longer,
and manages the buffer and the end of the connection. It has no branch for a protocol: what differs is ``SessionLimits``
and the session's methods. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

from ..base.deadlines import Stage
from ..base.inbox import Inbox
from ..base.services import Services, now_us
from ..base.session import LayerFactory, ProtocolSession, ReceiveResult, SessionFactory, SessionLimits
from .gate import Gate, Guarded

R = TypeVar("R")

DRAIN_TIMEOUT_S: Final = 5.0
"""When the broker stops, a client that does not read its responses is disconnected after this time."""


class _LostSession(ProtocolSession):
    """The session of all connections that have ended."""

    limits = SessionLimits(unanswered_max=0, write_buffer_bytes=0)

    def __init__(self) -> None:
        self.is_lost = self.is_ended = True
        self.is_resting = self.is_congested = False

    def receive(self, now_us: int) -> ReceiveResult:
        return ReceiveResult.DONE

    def refuse_memory(self) -> None:
        """Do nothing: a lost session receives nothing."""

    def release_memory(self) -> None:
        """Do nothing: a lost session holds no memory."""

    @property
    def unread(self) -> memoryview:
        return memoryview(b"")

    def lose(self) -> None:
        """Do nothing: the session is lost already."""

    def stage(self) -> Stage:
        return Stage.BUSY


_LOST: Final = _LostSession()


class SessionConnection(Guarded):
    """One client connection, whatever carries it, and its session."""

    is_encrypted = False

    def __init__(self, server: SessionServer) -> None:
        self._server = server
        self._services = server.services
        self._clock = server.clock
        self.gate = server.gate
        self._labels = (server.name,)
        self._received_bytes = server.services.metrics.received_bytes.values
        self.inbox = Inbox(server.services.receive)
        self.session: ProtocolSession = server.new_session(self)
        self._result = ReceiveResult.DONE
        """The last result of the session: why it stopped taking requests."""
        self._is_receiving = False
        """Whether the session is being called now: a result that is ready at once must not call it again."""
        self._works: set[asyncio.Future[object]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._throttled: asyncio.TimerHandle | None = None
        """The timer that ends a throttle, while the user's quota is used up."""

    @abstractmethod
    def proceed(self) -> None:
        """Have the session handle complete requests; then manage the buffer, and the end of the connection."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection after all written bytes are sent."""

    @abstractmethod
    def unsent_bytes(self) -> int:
        """Return the number of written bytes that the client has not received yet."""

    def _end_session(self) -> None:
        """End the session: the client has disconnected, or is being disconnected."""
        session = self.session
        session.is_lost = True
        session.lose()
        session.is_ended = True
        session.responses.close()
        works, self._works = self._works, set()
        if works:
            self._services.partings.call([work.cancel for work in works])
        self.tick_at(None)
        if self._throttled is not None:
            self._throttled.cancel()
            self._throttled = None
        self.inbox.drop()

    def _cut_loose(self) -> None:
        """Drop the references to objects that refer to this lost connection.

        Objects in a cycle would stay until the garbage collector runs, and there may be thousands a minute.
        """
        self.session = _LOST
        self.inbox.close()

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

    def change_session(self, session: ProtocolSession) -> None:
        """Have another session receive from now on."""
        self.session = session

    def start_tls(self) -> None:
        """Raise an error: only a layer of TLS supports this."""
        raise NotImplementedError

    def insert_layer(self, new_layer: LayerFactory) -> None:
        """Put a layer around the session; see ``ConnectionHandle.insert_layer``."""
        self.inbox = self.inbox.open_beside()
        self.session = new_layer(self, self.session)

    def lend_soon(self, session: ProtocolSession) -> None:
        """Only TCP has sockets that can be lent."""

    def count_lent(self) -> None:
        """Do nothing: the socket of this transport is never lent."""

    def acknowledge_at_once(self) -> None:
        """Do nothing: only TCP delays its acknowledgements."""

    def settle(self) -> None:
        """Note that the first request is whole."""
        self.gate.settle(self)

    def count_dropped(self, reason: str, count: int = 1) -> None:
        """Count a closed connection whose reason could not be reported in the protocol."""
        self.gate.count_dropped(reason, count)

    def wait_for_disk(self) -> None:
        """Begin no more requests until the disk has caught up; the caller has seen that it has not."""
        self.session.is_congested = True
        self._services.broker.appender.call_when_uncongested(self._on_disk_ready)

    def _on_disk_ready(self) -> None:
        self.session.is_congested = self._throttled is not None
        self.proceed()

    def throttle(self, delay_us: int) -> None:
        """Begin no more requests for this long: the user of the connection has used up a quota.

        Data that the client sends meanwhile fills its own buffers. A broker that stops does not wait for quotas.
        """
        if self.session.is_lost or self._services.stopping:
            return
        self.session.is_congested = True
        loop = asyncio.get_running_loop()
        due_s = loop.time() + delay_us / 1e6
        if self._throttled is not None:
            if self._throttled.when() >= due_s:
                return
            self._throttled.cancel()
        self._throttled = loop.call_at(due_s, self.end_throttle)

    def end_throttle(self) -> None:
        """Begin requests again, unless the broker is congested: then the next append waits for the disk."""
        if self._throttled is not None:
            self._throttled.cancel()
            self._throttled = None
            self.session.is_congested = False
            self.proceed()

    def run(self, work: Awaitable[R], on_done: Callable[[asyncio.Future[R]], None]) -> None:
        """Call back when ``work`` is done; if the client disconnects before, ``work`` is cancelled instead."""
        future = asyncio.ensure_future(work)
        works = cast("set[asyncio.Future[R]]", self._works)
        works.add(future)

        def finish(done: asyncio.Future[R]) -> None:
            works.discard(done)
            if not (done.cancelled() or self.session.is_lost):
                on_done(done)
                if (error := done.exception()) is not None:
                    # its frames, of which that of ``on_done`` is one, refer to it: a cycle that keeps the connection
                    error.__traceback__ = None

        future.add_done_callback(finish)

    def run_to_end(self, work: Awaitable[R], on_done: Callable[[asyncio.Future[R]], None]) -> None:
        """Call back when ``work`` is done, even if the client disconnects before."""
        future = asyncio.ensure_future(work)
        # a task without a reference may be collected before it is done
        works = cast("set[asyncio.Future[R]]", self._server.works)
        works.add(future)
        future.add_done_callback(works.discard)
        future.add_done_callback(on_done)

    def run_in_worker(self, work: Callable[[], R], on_done: Callable[[asyncio.Future[R]], None]) -> None:
        """Call back when a worker has done ``work``, unless the client disconnects before."""
        self.run(asyncio.get_running_loop().run_in_executor(self._services.workers, work), on_done)

    def tick_at(self, due_us: int | None) -> None:
        """Have the session's ``tick`` called then, instead of when it was due before; None is never."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_us is not None:
            delay_s = max(due_us - self._clock(), 0) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next pass of the event loop, even if the client has disconnected."""
        asyncio.get_running_loop().call_soon(callback)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after ``delay_us``, even if the client has disconnected; return a function that cancels it."""
        return asyncio.get_running_loop().call_later(delay_us / 1e6, callback).cancel

    def _tick(self) -> None:
        self._timer = None
        due_us = self.session.tick(self._clock())
        if due_us is not None and not self.session.is_lost:
            self.tick_at(due_us)

    def _yield_turn(self, wait: Callable[[Callable[[], None]], None]) -> None:
        """Let others have their turn; ``wait`` is a method of ``TurnQueue``."""
        self._result = ReceiveResult.WAIT
        self.session.is_resting = True
        wait(self._continue_receiving)

    def _continue_receiving(self) -> None:
        self.session.is_resting = False
        self.proceed()


class SessionServer:
    """The connections of an endpoint; subclasses accept them from a transport."""

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
        """Running work of clients, some of which may have disconnected."""
        self._connections: set[SessionConnection] = set()
        self._all_gone = asyncio.Event()

    async def stop(self) -> None:
        """Respond to all complete requests, then close; connections of clients that do not read are aborted."""
        for connection in list(self._connections):
            connection.end_throttle()
            connection.proceed()
        with contextlib.suppress(TimeoutError):
            if self._connections:
                await asyncio.wait_for(self._all_gone.wait(), DRAIN_TIMEOUT_S)
        for connection in list(self._connections):
            connection.abort()

    def admit(self, connection: SessionConnection, host: str) -> bool:
        """Give a connection a place. Return whether there is one."""
        if not self.gate.admit(connection, host):
            return False
        self._connections.add(connection)
        # set when the last one before has left: a stop has to wait for this one
        self._all_gone.clear()
        return True

    def leave(self, connection: SessionConnection) -> None:
        """Release the place of a connection that has ended."""
        self._connections.discard(connection)
        self.gate.leave(connection)
        if not self._connections:
            self._all_gone.set()
