"""One client over QUIC: a stream is a request and its response, all streams share one session.

A stream is held until its last byte is there. Whole ones go to the session in the order in which they became whole, one
at a time, and each response goes back on the stream of its request. A stream that is not exactly one request is refused
without effect on other streams. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from aioquic.quic import events
from aioquic.quic.packet import QuicErrorCode, QuicFrameType
from aioquic.tls import AlertDescription

from ...runtime.log_lines import origin
from ...settings.settings import Address
from ..base.deadlines import Stage
from ..base.responses import Bytes
from ..base.services import Services
from ..base.session import Peer, ReceiveResult, SessionFactory
from .connection import SessionConnection, SessionServer
from .datagrams import DatagramSocket, NetworkAddress
from .gate import Gate
from .quic_bounds import BoundedQuicConnection
from .quic_certificates import CertificateRefused, check_certificates, log_in_by_certificate
from .quic_requests import StreamRequests

log = logging.getLogger(__name__)

REQUESTS_PER_TURN: Final = 64
"""Requests of one connection that are begun before others have their turn."""
REFUSED: Final = 1
"""The error code of invalid streams, and of connections that are closed for a reason."""
WAITING_BYTES_MAX: Final = 1 << 20
"""A client with this much in whole requests that wait is granted no more until some have begun."""
RESPONSES_LITTLE: Final = 4
"""A connection that sends so few responses at once has little to do."""
TIMER_S_MIN: Final = 0.001
"""The event loop's timers know no shorter times."""


class QuicConnections(SessionServer):
    """The part of the server that connections call: a socket, and to be found by the ids in datagrams."""

    datagrams: DatagramSocket
    here: Address
    request_bytes_max: int
    names_clients: bool
    """Whether a client's certificate says who it is."""

    def __init__(self, services: Services, name: str, gate: Gate, new_session: SessionFactory) -> None:
        super().__init__(services, name, gate, new_session)
        self._by_id: dict[bytes, QuicClientConnection] = {}
        self._handshakes: set[QuicClientConnection] = set()

    def add_id(self, connection_id: bytes, connection: QuicClientConnection) -> None:
        """Have datagrams with this id brought to a connection."""
        self._by_id[connection_id] = connection

    def remove_id(self, connection_id: bytes) -> None:
        """Drop datagrams with this id from now on."""
        self._by_id.pop(connection_id, None)

    def settle_handshake(self, connection: QuicClientConnection) -> None:
        """Note that a handshake is over, one way or another."""
        self._handshakes.discard(connection)


class QuicClientConnection(SessionConnection):
    """A connection; ``receive`` is called with each of its datagrams."""

    is_encrypted = True

    def __init__(self, server: QuicConnections, quic: BoundedQuicConnection, address: NetworkAddress) -> None:
        super().__init__(server)
        self._side = server
        self._quic = quic
        self._loop_time = asyncio.get_running_loop().time
        """The clock of the loop's timers: what is due by this one is due by them."""
        self._address = Address(str(address[0]), int(address[1]))
        self._ids: set[bytes] = set()
        self._requests = StreamRequests()
        self._refused: set[int] = set()
        """Refused streams; further bytes on them are discarded."""
        self._asked: deque[int] = deque()
        """Streams of requests that the session has, in the order of their responses."""
        self._written_bytes = 0
        """Upper bound of the bytes on their way to the client."""
        self._is_open = False
        """The handshake is done, and the session knows its client."""
        self._is_closing = False
        """The session wants no more: close when all is sent."""
        self._is_transmit_due = False
        self._responses_count = 0
        """Responses since datagrams were sent last."""
        self._quic_timer: asyncio.TimerHandle | None = None
        self._is_timer_queued = False
        self.inbox.open_account(self._address.host, self.give_way)

    # -- datagrams

    def receive(self, data: bytes, address: NetworkAddress) -> None:
        """Take a datagram."""
        self._received_bytes[self._labels] += len(data)
        self._advance(lambda now_s: self._quic.receive_datagram(data, address, now_s))

    def add_id(self, connection_id: bytes) -> None:
        """Receive datagrams with this connection id from now on."""
        self._ids.add(connection_id)
        self._side.add_id(connection_id, self)

    def _advance(self, advance: Callable[[float], object]) -> None:
        """Let the state of the connection advance, and do what follows from it."""
        if self.session.is_lost:
            return
        try:
            advance(self._loop_time())
            while not self.session.is_lost and (event := self._quic.next_event()) is not None:
                self._handle(event)
            self._hold_memory()
            self.proceed()
        except Exception:
            # asyncio would continue with a connection whose state is unknown
            log.exception("closing the connection: its datagrams cannot be handled", extra=self.origin())
            self._forget_connection()
            return
        self._transmit_soon()

    def _handle(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.StreamDataReceived):
            self._on_data(event.stream_id, event.data, event.end_stream)
        elif isinstance(event, events.StreamReset):
            self._quic.count_read(self._quic.unread_bytes_of(event.stream_id))
            self._refused.discard(event.stream_id)
            self._refuse(event.stream_id, "reset")
        elif isinstance(event, events.HandshakeCompleted):
            self._open()
        elif isinstance(event, events.ConnectionIdIssued):
            self.add_id(event.connection_id)
        elif isinstance(event, events.ConnectionIdRetired):
            self._ids.discard(event.connection_id)
            self._side.remove_id(event.connection_id)
        elif isinstance(event, events.ConnectionTerminated):
            self._forget_connection()

    def _open(self) -> None:
        """Begin the session after the handshake, which has shown that the client can be reached at its address."""
        self._side.settle_handshake(self)
        try:
            check_certificates(self._quic.client_certificates, self._quic.configuration)
        except CertificateRefused as refused:
            self._refuse_certificate(refused.alert, str(refused))
            return
        self._is_open = True
        session = self.session
        call_soon = asyncio.get_running_loop().call_soon
        session.responses.is_single = True
        sent_bytes = self._services.metrics.sent_bytes.values
        session.responses.open(session.wrap(self), sent_bytes, self._labels, call_soon, self.proceed)
        peer = Peer(self._address.host, self._address.port, self._side.here)
        if not session.begin(peer, self._clock()):
            self.abort()
        elif self._side.names_clients:
            try:
                log_in_by_certificate(self._quic.client_certificates, session, self._services.broker.access)
            except CertificateRefused as refused:
                self._refuse_certificate(refused.alert, str(refused))

    def _refuse_certificate(self, alert: AlertDescription, reason: str) -> None:
        """Close the connection with TLS's word for why, as RFC 9001 section 4.8 has it."""
        self.count_dropped("tls")
        log.info("closing the connection: %s", reason, extra=self.origin())
        self._quic.close(QuicErrorCode.CRYPTO_ERROR + alert, QuicFrameType.CRYPTO, alert.name)
        self._forget_connection()

    # -- requests

    def _on_data(self, stream_id: int, data: bytes, is_end: bool) -> None:
        self._quic.count_read(len(data))
        if self._services.stopping or self.session.is_ended:
            # what comes while the broker stops is not begun
            return
        if stream_id in self._refused:
            if is_end:
                self._refused.discard(stream_id)
            return
        if self._requests.add(stream_id, data) > self._side.request_bytes_max:
            self._refuse(stream_id, "request_too_large")
            if is_end:
                self._refused.discard(stream_id)
        elif is_end:
            self._requests.complete(stream_id)

    def _refuse(self, stream_id: int, reason: str) -> None:
        """Take no more of a stream, and send no response on it."""
        is_known = self._requests.drop(stream_id)
        self.count_dropped(reason)
        if reason != "reset" and is_known:
            self._refused.add(stream_id)
            self._quic.stop_stream(stream_id, REFUSED)
        self._quic.reset_stream(stream_id, REFUSED)

    def _hold_memory(self) -> None:
        """Count the memory of received bytes; refuse the longest half requests if memory is used up."""
        if self.session.is_lost:
            return
        while not self.inbox.hold_elsewhere(self._requests.held_bytes + self._quic.unordered_bytes):
            if not self._requests.arriving:
                self.session.refuse_memory()
                return
            self._refuse(self._requests.find_longest(), "no_memory")
        self._quic.is_withholding = self._requests.whole_bytes > WAITING_BYTES_MAX

    def proceed(self) -> None:
        """Have the session handle complete requests; then end the connection if that is due."""
        session = self.session
        if self._is_receiving or session.is_lost or not self._is_open:
            return
        self._is_receiving = True
        try:
            is_waiting = self._take_whole()
        except BaseException:
            self.abort()
            raise
        finally:
            self._is_receiving = False
        session = self.session
        session.responses.is_watched = is_waiting or session.is_ended or self._services.stopping
        if session.is_ended or self._is_closing or self._services.stopping:
            self._end()

    def _take_whole(self) -> bool:
        """Let the session take whole requests, one after the other. Return whether one of them waits."""
        session, inbox, requests_left = self.session, self.inbox, REQUESTS_PER_TURN
        while not (session.is_resting or session.is_lost):
            if inbox.at == inbox.have and not self._next_request():
                return False
            if not requests_left:
                self._yield_turn(self._services.turns.add)
                break
            requests_left -= 1
            self._result = session.receive(self._clock())
            if self._result is ReceiveResult.HANDED_OVER:
                session = self.session
                self._result = session.receive(self._clock())
            inbox.make_room(True)
            if self._result is ReceiveResult.TURN:
                self._yield_turn(self._services.turns.add)
            elif inbox.at < inbox.have:
                return True
        return bool(self._requests.whole)

    def _next_request(self) -> bool:
        """Give the session the next whole request. Return whether there is one."""
        while self._requests.whole and not self.session.is_ended:
            stream_id, data = self._requests.take()
            if not self.session.is_one_request(data):
                self._refuse(stream_id, "malformed")
            elif not self.inbox.append(data):
                self._refuse(stream_id, "no_memory")
            else:
                self._asked.append(stream_id)
                return True
        return False

    # -- the sink of responses

    def write(self, data: Bytes) -> None:
        """Send the response to the request that waits longest."""
        stream_id = self._asked.popleft()
        if not self._quic.wants_response(stream_id):
            return
        self._quic.send_stream_data(stream_id, bytes(data), end_stream=True)
        self._responses_count += 1
        self._written_bytes += len(data)
        if self._written_bytes > self.session.limits.write_buffer_bytes:
            self._look_at_reading()
        self._transmit_soon()

    def writelines(self, list_of_data: Sequence[Bytes]) -> None:
        """Send the response to the request that waits longest, in parts."""
        self.write(b"".join(list_of_data))

    def _look_at_reading(self) -> None:
        """Update the number of unacknowledged bytes; no more requests of a client that does not read are begun."""
        self._written_bytes = self._quic.count_unacknowledged_bytes()
        is_blocked = self._written_bytes > self.session.limits.write_buffer_bytes
        if is_blocked is not self.session.is_blocked:
            self.session.block(is_blocked)
            if not is_blocked:
                self.proceed()

    def _transmit_soon(self) -> None:
        """Send in the next pass of the event loop, or in a later one: others that send have their turn too."""
        if not self._is_transmit_due:
            self._is_transmit_due = True
            self._services.turns.add_with_little(self._begin_transmit)

    def _begin_transmit(self) -> None:
        """Send at once if it is little, else after all that wait: 20 responses take some milliseconds."""
        if self._responses_count <= RESPONSES_LITTLE:
            self._transmit()
        else:
            self._services.turns.add(self._transmit)

    def _transmit(self) -> None:
        """Send the datagrams that are due, once for all that came in a pass of the event loop."""
        self._is_transmit_due = False
        self._responses_count = 0
        if not self.session.is_lost:
            if self._written_bytes:
                self._look_at_reading()
            self._send()

    def _send(self) -> None:
        now_s = self._loop_time()
        self._quic.acknowledge_now(now_s)
        self._side.datagrams.send(self._quic.datagrams_to_send(now_s))
        if self._quic_timer is not None:
            self._quic_timer.cancel()
            self._quic_timer = None
        due_s = self._quic.get_timer()
        if due_s is not None:
            delay_s = max(due_s - now_s, TIMER_S_MIN)
            self._quic_timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._quic_timer = None
        # the timers of many connections end in the same pass
        if not self._is_timer_queued:
            self._is_timer_queued = True
            self._services.turns.add(self._handle_timer)

    def _handle_timer(self) -> None:
        self._is_timer_queued = False
        self._advance(self._quic.handle_timer)

    # -- what the session and the gate ask

    def origin(self) -> dict[str, str]:
        return origin(self._server.name, str(self._address))

    def unsent_bytes(self) -> int:
        return self._quic.count_unacknowledged_bytes()

    def stage(self) -> Stage:
        if not self._is_open:
            return Stage.FIRST
        stage = super().stage()
        if stage is Stage.BUSY and (self.session.is_ended or self._is_closing) and self._written_bytes:
            return Stage.BLOCKED
        if stage is Stage.IDLE and self._requests.arriving:
            return Stage.PARTIAL if self.session.requests_count else Stage.FIRST
        return stage

    def give_way(self) -> None:
        """Give back the memory of half requests: they are refused on their streams, and the connection stays."""
        for stream_id in list(self._requests.arriving):
            self._refuse(stream_id, "no_memory")
        if not self.unread():
            self.release_memory()
        self._hold_memory()
        self._transmit_soon()

    def close(self) -> None:
        """Close the connection after all written bytes are sent."""
        self._is_closing = True
        self._end()

    def abort(self) -> None:
        """Close the connection at once."""
        if not self.session.is_lost:
            self._quic.close(REFUSED)
            self._forget_connection()

    def _end(self) -> None:
        """Close when all responses are sent, and the client has them."""
        session = self.session
        if session.is_lost or session.is_busy or (self._requests.whole and not session.is_ended):
            return
        if self._quic.count_unacknowledged_bytes():
            return
        session.say_goodbye()
        self._quic.close()
        self._forget_connection()

    def _forget_connection(self) -> None:
        """Send the last word of a connection that has ended, and forget it."""
        if self.session.is_lost:
            return
        self.session.is_lost = True
        try:
            self._send()
        except Exception:
            log.debug("no last word", exc_info=True)
        if self._quic_timer is not None:
            self._quic_timer.cancel()
            self._quic_timer = None
        for connection_id in self._ids:
            self._side.remove_id(connection_id)
        self._ids.clear()
        self._requests.clear()
        self._side.settle_handshake(self)
        self._end_session()
        self._side.leave(self)
        self._cut_loose()
