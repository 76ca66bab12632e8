"""Listening, and the connections of a protocol over TCP: the half that is the same for every protocol.

Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

from ...settings.settings import Address
from ..base.peer import close_sending, origin_of
from ..base.services import LISTEN_BACKLOG
from ..base.session import Peer, ReceiveResult
from ..base.turn_queue import LONG_TURN_S, LONG_TURNS, NO_ALLOWANCE, SMALL_BYTES
from .connection import SessionConnection, SessionServer

_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""The option TCP_QUICKACK, which only Linux has."""
LISTENERS: Final = 32
"""Registrations of a listening socket with the event loop.

libuv from 1.45 on accepts one connection of each in a pass. A pass over thousands of busy connections takes
milliseconds: with one registration, 1,200 of 5,000 clients that connected at once waited six seconds to be accepted.
"""
_DONE: Final = ReceiveResult.DONE
"""A global, since Python looks up a member of an enumeration in its class each time."""


class Connection(SessionConnection, asyncio.BufferedProtocol):
    """One client connection: the only BufferedProtocol of the house."""

    def __init__(self, server: TcpServer) -> None:
        super().__init__(server)
        self._transport: asyncio.Transport | None = None
        self._turns = server.services.turns
        self._allowance = self._turns.allowance
        """The amount that may be taken at once; nothing if the last turns were long."""
        self._long_turns = 0
        """How many of the last turns were long."""
        self._is_held = False
        """Reading from the socket is paused."""
        self._has_ended = False
        """The client has sent its last byte."""
        self._is_parting = False
        """The last response is sent; further bytes from the client are discarded."""

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
        """Close the connection of a client that gets no place."""
        self._end_session()
        word = self.session.last_word()
        if word:
            transport.write(word)
            transport.close()
        else:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.session.is_lost:
            self._end_session()
            self._server.leave(self)
        self._transport = None
        self._cut_loose()

    def _end_session(self) -> None:
        self._is_parting = True
        super()._end_session()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.inbox.view[self.inbox.have :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._received_bytes[self._labels] += size_bytes
        # what comes after the end cannot be understood; what comes while the broker stops is not begun
        if not self.session.is_ended and not self._services.stopping:
            self.inbox.have += size_bytes
            allowance = self._allowance
            if allowance.left_bytes > 0:
                allowance.left_bytes -= size_bytes
                self._receive()
            else:
                self._wait_for_turn()

    def eof_received(self) -> bool:
        self._has_ended = True
        if self.session.is_resting and not self._is_parting:
            # take the bytes that arrived before the end first
            return True
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

    # -- what the session asks

    def origin(self) -> dict[str, str]:
        return origin_of(self._server.name, self._transport)

    def close(self) -> None:
        """Close the connection after all written bytes are sent."""
        if self._transport is not None:
            self.session.say_goodbye()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def unsent_bytes(self) -> int:
        """Return the number of written bytes that the client has not received yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def acknowledge_at_once(self) -> None:
        """Have the system acknowledge what was received, which it puts off by 40 ms for want of a response.

        A client that writes a request in two pieces, and has left Nagle's algorithm on, holds the second one back until
        the first is acknowledged. The system forgets the option with what comes next, so that it is set each time.
        """
        transport = self._transport
        own = None if transport is None or transport.is_closing() else transport.get_extra_info("socket")
        if _QUICKACK is not None and own is not None:
            with suppress(OSError):
                own.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    # -- requests

    def proceed(self) -> None:
        allowance, session = self._allowance, self.session
        if session.is_ended or self._services.stopping or self._is_receiving:
            self._receive()
        elif allowance.left_bytes > 0:
            # not known: a layer keeps what is unread itself
            allowance.left_bytes -= SMALL_BYTES
            self._receive()
        else:
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Have the session handle its complete requests in a later turn: it has used up its share of this pass."""
        if not self.session.is_resting:
            inbox = self.inbox
            is_small = inbox.have - inbox.at <= SMALL_BYTES and self._allowance is not NO_ALLOWANCE
            self._yield_turn(self._turns.add_with_little if is_small else self._turns.add)
        self._see_to_rest()

    def _continue_receiving(self) -> None:
        session, turns = self.session, self._turns
        begun_s = turns.clock()
        session.is_resting = False
        self._receive()
        if turns.clock() - begun_s <= LONG_TURN_S:
            self._long_turns, self._allowance = 0, turns.allowance
        else:
            self._long_turns += 1
            if self._long_turns >= LONG_TURNS:
                self._allowance = NO_ALLOWANCE
        session = self.session
        if self._has_ended and not (session.is_resting or session.is_ended):
            session.end()
            self._see_to_rest()

    def _receive(self) -> None:
        """Have the session handle complete requests; then manage the buffer, and the end of the connection."""
        session, inbox = self.session, self.inbox
        if self._is_receiving or session.is_lost:
            return
        if not session.is_resting:
            self._is_receiving = True
            try:
                self._result = session.receive(self._clock())
            except BaseException:
                # the caller logs it; a callback of the loop would leave the client waiting for its responses
                self.abort()
                raise
            finally:
                self._is_receiving = False
        is_all_taken = inbox.at == inbox.have and self._result is _DONE
        if not is_all_taken or session.is_ended or self._is_held or self._services.stopping:
            self._see_to_rest()
            return
        # nearly every read ends here: nothing waits, and the socket is read on
        session.responses.is_watched = False
        if inbox.is_large:
            inbox.make_room(False)
        else:
            inbox.at = inbox.have = 0

    def _see_to_rest(self) -> None:
        """After the session has handled requests: manage unread bytes, the socket, and the end of the connection."""
        session, inbox, result = self.session, self.inbox, self._result
        if result is ReceiveResult.HANDED_OVER:
            self._result = ReceiveResult.DONE
            self._receive()
            return
        is_ended, is_stopping = session.is_ended, self._services.stopping
        is_waiting = result is ReceiveResult.WAIT or result is ReceiveResult.TURN
        if not is_ended and not inbox.make_room(is_waiting):
            session.refuse_memory()
            is_ended = session.is_ended
        session.responses.is_watched = is_waiting or is_ended or is_stopping
        if result is ReceiveResult.TURN:
            self._yield_turn(self._turns.add)
        elif result is _DONE and not is_ended and inbox.holds_small_piece:
            self.acknowledge_at_once()
        # a full buffer has a whole request that waits at its front, or all of it was taken, or nothing of it matters
        # any more: more cannot be received, and asyncio takes an empty buffer for a fault
        is_full = (not self._has_ended if is_ended else is_waiting) and inbox.full
        is_held = is_full or (session.is_resting and session.limits.holds_at_turn and not is_ended)
        if is_held is not self._is_held:
            self._hold(is_held)
        if result is ReceiveResult.REST:
            self._pause_reading()
        if is_ended or is_stopping:
            self._end()

    def _pause_reading(self) -> None:
        """Stop reading for a while."""
        self._result = ReceiveResult.DONE
        if not (self._is_held or self.session.is_ended):
            self._hold(True)
            asyncio.get_running_loop().call_later(self.session.limits.rest_s, self._read_on)

    def _read_on(self) -> None:
        if self._is_held and not self.inbox.full:
            self._hold(False)

    def _hold(self, is_held: bool) -> None:
        """Stop reading from the socket, or continue."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._is_held = is_held
            if is_held:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _end(self) -> None:
        """Close when all responses are sent; linger if bytes may come that are not read."""
        session, transport = self.session, self._transport
        if session.is_busy or session.is_resting or self._is_parting or transport is None or transport.is_closing():
            return
        session.say_goodbye()
        limits, is_stopping = session.limits, self._services.stopping
        if not session.lingers or (is_stopping and not limits.lingers_at_stop):
            transport.close()
            return
        self._is_parting = True
        close_sending(transport)
        asyncio.get_running_loop().call_later(limits.linger_s, transport.abort)


class TcpServer(SessionServer):
    """The listening socket of an endpoint and its connections."""

    _listening: Sequence[asyncio.Server] = ()
    new_connection: Callable[[TcpServer], Connection] = Connection

    async def start(self, listener: socket.socket) -> None:
        """Accept from now on."""
        loop = asyncio.get_running_loop()
        listeners = [listener, *(listener.dup() for _ in range(LISTENERS - 1))]
        # asyncio calls listen() again, and would set its own default of 100
        self._listening = [
            await loop.create_server(lambda: self.new_connection(self), sock=each, backlog=LISTEN_BACKLOG)
            for each in listeners
        ]

    async def stop(self) -> None:
        """Accept no more, respond to whole requests, close; a client that does not read is disconnected."""
        for server in self._listening:
            server.close()
        await super().stop()
