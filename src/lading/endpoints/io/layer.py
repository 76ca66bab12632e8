"""A session around another one: what lies between the bytes of a connection and those of its protocol.

TLS, the frames of a WebSocket and compression are such layers. To its connection a layer is a session like any other,
so that admission, deadlines, memory, turns and the end of a connection are what they are without it; to the session
within it is the connection. Both share one queue of responses, whose sink is the layer. Threads: event loop only.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from ..base.deadlines import Stage
from ..base.inbox import Inbox
from ..base.services import Services
from ..base.session import (
    ConnectionHandle,
    LayerFactory,
    Peer,
    ProtocolSession,
    ReceiveResult,
    SessionFactory,
)

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal


class InnerConnection:
    """The connection as the session within a layer sees it."""

    def __init__(self, connection: ConnectionHandle, inbox: Inbox) -> None:
        self.inbox = inbox
        self._connection = connection
        self.layer: SessionLayer | None = None
        """The layer, until the connection is lost: its ``inner`` is the session whose connection this is."""
        self.proceed = connection.proceed
        self.settle = connection.settle
        self.acknowledge_at_once = connection.acknowledge_at_once
        self.run = connection.run
        self.run_to_end = connection.run_to_end
        self.run_in_worker = connection.run_in_worker
        self.tick_at = connection.tick_at
        self.call_soon = connection.call_soon
        self.call_later = connection.call_later
        self.unsent_bytes = connection.unsent_bytes
        self.close = connection.close
        self.abort = connection.abort
        self.origin = connection.origin
        self.count_dropped = connection.count_dropped
        self.start_tls = connection.start_tls
        self.encrypts = False
        """Whether the layer encrypts."""

    @property
    def is_encrypted(self) -> bool:
        """Whether the bytes from and to the client are encrypted."""
        return self.encrypts or self._connection.is_encrypted

    def change_session(self, session: ProtocolSession) -> None:
        """Have another session receive from now on."""
        assert self.layer is not None, "not lost"
        self.layer.inner = session

    def lend_soon(self, session: ProtocolSession) -> None:
        """Do nothing: the socket has the layer's bytes, not those of a protocol."""

    def count_lent(self) -> None:
        """Do nothing: a socket under a layer is never lent."""

    def wait_for_disk(self) -> None:
        """Begin no more requests until the disk has caught up."""
        if self.layer is not None:
            self.layer.inner.is_congested = True
        self._connection.wait_for_disk()

    def throttle(self, delay_us: int) -> None:
        """Begin no more requests for this long."""
        if self.layer is not None:
            self.layer.inner.is_congested = True
        self._connection.throttle(delay_us)

    def insert_layer(self, new_layer: LayerFactory) -> None:
        """Put one more layer around the session within; see ``ConnectionHandle.insert_layer``."""
        layer = self.layer
        if layer is not None:
            self.inbox = self.inbox.open_beside()
            layer.inner = new_layer(self, layer.inner)


class SessionLayer(ProtocolSession):
    """A layer; a subclass fills the inbox of the session within, and is the sink of its responses."""

    def __init__(self, connection: ConnectionHandle, inner: ProtocolSession) -> None:
        self.inner = inner
        self.limits = inner.limits
        super().__init__(connection)
        self.responses = inner.responses
        self.is_turn_over = False
        """Set by ``fill``: more could be moved, and others have their turn before."""

    @abstractmethod
    def fill(self) -> bool:
        """Move what was received into the inbox of the session within, as far as it is understood and there is room.

        Return whether more can be moved once that session has read what is there.
        """

    # -- what the connection calls

    def accept_certificate(self, principal: Principal) -> None:
        self.inner.accept_certificate(principal)

    def receive(self, now_us: int) -> ReceiveResult:
        self.inner.is_congested, self.inner.is_resting = self.is_congested, False
        while True:
            is_more = self.fill()
            # the session may have put one more layer around itself
            inner = self.inner
            result = inner.receive(now_us)
            if result is ReceiveResult.HANDED_OVER:
                inner = self.inner
                result = inner.receive(now_us)
            is_waiting = result is ReceiveResult.WAIT or result is ReceiveResult.TURN
            if not (inner.is_ended or inner.inbox.make_room(is_waiting)):
                inner.refuse_memory()
            self.requests_count = inner.requests_count
            inner.is_resting = result is ReceiveResult.TURN
            if inner.is_ended and not self.is_ended:
                self.lingers = inner.lingers
                self.end()
            if self.is_turn_over and not (is_waiting or self.is_ended):
                self.is_turn_over = False
                return ReceiveResult.TURN
            if not is_more or is_waiting or self.is_ended:
                if inner.inbox.holds_small_piece and not (is_waiting or self.is_ended):
                    self.connection.acknowledge_at_once()
                return result

    def refuse_memory(self) -> None:
        self.inner.refuse_memory()
        self.end()

    def release_memory(self) -> None:
        super().release_memory()
        self.inner.release_memory()

    def block(self, is_blocked: bool) -> None:
        super().block(is_blocked)
        self.inner.block(is_blocked)

    def tick(self, now_us: int) -> int | None:
        return self.inner.tick(now_us)

    def end(self) -> None:
        super().end()
        if not self.inner.is_ended:
            self.inner.end()

    def lose(self) -> None:
        self.inner.is_lost = True
        self.inner.lose()
        self.inner.is_ended = True
        self.inner.release_memory()

    # -- state for deadlines and for the end of the connection

    @property
    def unread(self) -> memoryview:
        return self.inner.unread

    def stage(self) -> Stage:
        return self.inner.stage()

    @property
    def is_busy(self) -> bool:
        return self.inner.is_busy


class LayeredSession(SessionLayer):
    """A layer that is there from the start of a connection: it creates the inner session and is its connection."""

    def __init__(self, services: Services, new_session: SessionFactory, connection: ConnectionHandle) -> None:
        self.inner_connection = InnerConnection(connection, Inbox(services.receive))
        super().__init__(connection, new_session(self.inner_connection))
        self.inner_connection.layer = self

    def begin(self, peer: Peer, now_us: int) -> bool:
        self.inner.inbox.share_account(self.inbox)
        return self.inner.begin(peer, now_us)

    def lose(self) -> None:
        super().lose()
        # else the two would refer to each other
        self.inner_connection.layer = None
