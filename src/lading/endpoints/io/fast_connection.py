"""A connection over TCP that lends its socket to the pass of its endpoint while nothing but known requests comes.

The transport of the event loop keeps the socket, and does not read it meanwhile. Whatever a session or the gate does
with the connection takes the socket back first: a write, a close, a call of ``proceed``. So the session, the buffer and
the transport are always as they are when a connection rests, and continue as if the socket had never been lent.
Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Sequence
from functools import partial
from typing import Final

from ...kernels.arrays import Bytes as Array
from ..base.responses import Bytes
from ..base.services import Services
from ..base.session import ProtocolSession, SessionFactory
from .gate import Gate
from .lent_sockets import LentProtocol, SocketPass
from .tcp import Connection, TcpServer

_TRIES_MAX: Final = 3
"""Passes of the loop in which a connection that is to be lent waits for its last response to leave."""


class FastConnection(Connection):
    """One client connection, whose socket may be lent."""

    def __init__(self, server: TcpServer, socket_pass: SocketPass) -> None:
        super().__init__(server)
        self._pass = socket_pass
        self._file = -1
        """The number of the socket, while it is lent."""
        self._is_to_lend = False
        """``_lend`` is called in the next pass of the loop, or when the last response is sent."""
        self._tries_left = 0

    # -- what the session asks

    def lend_soon(self, session: ProtocolSession) -> None:
        if self.session is session and self._pass.is_ready:
            self._tries_left = _TRIES_MAX
            self._try_soon()

    def _try_soon(self) -> None:
        if not self._is_to_lend and self._tries_left:
            self._is_to_lend = True
            self._tries_left -= 1
            asyncio.get_running_loop().call_soon(self._lend)

    def count_lent(self) -> None:
        if self._file >= 0:
            count, heard_us = self._pass.take_counts(self._file)
            if count:
                self.session.add_lent(count, heard_us)

    def _lend(self) -> None:
        """Lend the socket if the connection rests: all was taken, and all responses are sent."""
        self._is_to_lend = False
        session, transport = self.session, self._transport
        if transport is None or transport.is_closing() or self._file >= 0 or self._is_at_work():
            return
        if not session.responses.is_empty:
            # a response waits for the disk: when it is sent, ``proceed`` is called
            session.responses.is_watched = True
            return
        if transport.get_write_buffer_size() or self.inbox.have:
            self._try_soon()
            return
        own = transport.get_extra_info("socket")
        line = session.find_line() if own is not None else None
        if line is None:
            return
        file = own.fileno()
        transport.pause_reading()
        try:
            self._pass.lend(self, file, line)
        except OSError:
            transport.resume_reading()
            return
        self._file = file
        session.responses.change_sink(self)

    def _is_at_work(self) -> bool:
        """Whether the connection does anything but wait for requests, or ends."""
        session = self.session
        is_held_up = session.is_resting or session.is_blocked or session.is_congested or self._is_held
        return self._is_receiving or is_held_up or session.is_ended or self._has_ended or self._services.stopping

    def take_back(self, received: Array | None = None) -> None:
        """Serve the connection as any other from now on; ``received`` are bytes read from it and not handled yet."""
        self.count_lent()
        file, self._file = self._file, -1
        places = self._pass.give_back(file)
        session, transport = self.session, self._transport
        assert transport is not None
        session.responses.change_sink(transport)
        if places is not None:
            places.move(file, session.responses.slot())
        if not transport.is_closing():
            transport.resume_reading()
        if received is not None and len(received):
            self.get_buffer(-1)[: len(received)] = received.data
            self.buffer_updated(len(received))

    def take_back_with_unsent(self, response: bytes) -> None:
        """Take the socket back, and have the transport send the rest of a response that is counted already."""
        self.take_back()
        transport = self._transport
        if transport is not None:
            transport.write(response)

    # -- what takes the socket back

    def write(self, data: Bytes) -> None:
        """Send what the session sends while the socket is lent, as the sink of its responses."""
        self.take_back()
        assert self._transport is not None
        self._transport.write(data)

    def writelines(self, list_of_data: Sequence[Bytes]) -> None:
        """Send all of these, as ``write``."""
        self.take_back()
        assert self._transport is not None
        self._transport.writelines(list_of_data)

    def proceed(self) -> None:
        if self._file >= 0:
            self.take_back()
        super().proceed()
        self._try_soon()

    def close(self) -> None:
        if self._file >= 0:
            self.take_back()
        super().close()

    def abort(self) -> None:
        if self._file >= 0:
            self.take_back()
        super().abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        own = transport.get_extra_info("socket")
        before = self._pass.find(own.fileno()) if own is not None else None
        if before is not None:
            # its socket is closed, as its number is this one's now
            before.take_back()
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._file >= 0:
            self.take_back()
        super().connection_lost(error)

    def progress(self) -> int:
        self.count_lent()
        return super().progress()

    def _tick(self) -> None:
        self.count_lent()
        super()._tick()


def can_lend(services: Services) -> bool:
    """Return whether the sockets of this broker may be lent: the system has epoll, and the setting says so."""
    return services.settings.fast_connections and hasattr(select, "epoll")


class LendingServer(TcpServer):
    """A listening socket whose connections may lend their sockets."""

    def __init__(
        self, services: Services, name: str, gate: Gate, new_session: SessionFactory, lent: LentProtocol | None
    ) -> None:
        super().__init__(services, name, gate, new_session)
        self._pass = None if lent is None else SocketPass(services, name, lent, self.clock)
        if self._pass is not None:
            self.new_connection = partial(FastConnection, socket_pass=self._pass)

    async def stop(self) -> None:
        """Accept no more, respond to whole requests, close."""
        await super().stop()
        if self._pass is not None:
            self._pass.close()
