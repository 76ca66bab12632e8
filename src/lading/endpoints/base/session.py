"""The protocol's half of a connection: bytes and the time in, responses out; no loop, no socket, no clock.

A session takes whole requests out of its inbox, as far as order and bounds allow, and gives responses to its queue. The
other half (``endpoints/io``) is the same for all protocols; what differs there is ``SessionLimits``. To put a protocol
on it: subclass ``ProtocolSession``, begin with ``receive``, and hand the class to ``TcpServer``. Threads: event loop
only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from ...model.lazy_dataclass import lazy_dataclass
from ...settings.settings import Address
from .deadlines import Stage
from .inbox import Inbox
from .responses import Bytes, ResponseQueue, Sink

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal

R = TypeVar("R")

PIECE_BYTES: Final = 3 << 20
"""How much goes to a socket at once: the kernel copies it while the loop waits."""


@lazy_dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits that differ between the connections of protocols, as data."""

    unanswered_max: int
    """Requests under way at most; more are begun when some are completed."""
    write_buffer_bytes: int
    """Requests of a client that does not read its responses wait once this much is on its way to it."""
    joined_bytes: int = 16 << 10
    """Responses that become ready together are joined up to this: one copy is cheaper than one more buffer."""
    piece_bytes: int = PIECE_BYTES
    """Longer responses leave in pieces of this size, and others have their turn between them."""
    linger_s: float = 2.0
    """Time after the last response in which what a client still sends is read and discarded."""
    lingers_at_stop: bool = True
    """Whether it is also while the broker stops."""
    holds_at_turn: bool = False
    """Whether the socket is not read while others have their turn."""
    rest_s: float = 0.0
    """How long after REST a client is read again."""


class ReceiveResult(Enum):
    """Why a session takes no more of what was received."""

    DONE = "done"
    """All that is whole was taken."""
    WAIT = "wait"
    """A whole request waits for its turn or a bound: no room is needed after it."""
    TURN = "turn"
    """Others have their turn; the session continues after them."""
    HANDED_OVER = "handed over"
    """Another session has the connection now, see ``ProtocolSession.hand_over``: it receives what is there."""
    REST = "rest"
    """All that is whole was taken, and more comes in small pieces: read again after ``rest_s``."""


class Peer(NamedTuple):
    """Client of a connection, and the address it reached."""

    host: str
    port: int
    here: Address
    """Address at which the client reached this broker."""

    def __str__(self) -> str:
        return str(Address(self.host, self.port)) if self.host else ""


class ConnectionHandle(Protocol):
    """A connection as its session sees it."""

    inbox: Inbox
    """Bytes that were received and are not parsed yet."""

    @property
    def is_encrypted(self) -> bool:
        """Whether what the client sends and gets is encrypted."""

    def start_tls(self) -> None:
        """Encrypt from here on what the client sends and gets; only of a listener that offers it."""

    def change_session(self, session: ProtocolSession) -> None:
        """Have another session receive from now on: the first bytes have shown which one serves the client."""

    def insert_layer(self, new_layer: LayerFactory) -> None:
        """Put a layer around the session, which keeps its inbox; the layer gets one of its own, for what follows.

        Called by the session while it receives, when all its responses are sent.
        """

    def proceed(self) -> None:
        """Have the session receive again, since the reason why requests waited has ended."""

    def settle(self) -> None:
        """Note that the first request is whole."""

    def lend_soon(self, session: ProtocolSession) -> None:
        """Lend the socket if it can be lent: ``session`` knows what the next requests begin with (``find_line``)."""

    def count_lent(self) -> None:
        """Have the session count the requests that were received from the socket since it was lent."""

    def acknowledge_at_once(self) -> None:
        """Acknowledge a piece of a request to the client's system now; the client may wait for that."""

    def wait_for_disk(self) -> None:
        """Begin no more requests until the disk has caught up."""

    def throttle(self, delay_us: int) -> None:
        """Begin no more requests for this long: the user of the connection has used up a quota."""

    def run(self, work: Awaitable[R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when ``work`` is done; if the client disconnects before, ``work`` is cancelled instead."""

    def run_to_end(self, work: Awaitable[R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when ``work`` is done, even if the client disconnects before."""

    def run_in_worker(self, work: Callable[[], R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when a worker has done ``work``, unless the client disconnects before."""

    def tick_at(self, due_us: int | None) -> None:
        """Have ``tick`` called then, instead of when it was due before; None is never."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next pass of the event loop, even if the client has disconnected."""

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after ``delay_us``, even if the client has disconnected; the returned function cancels it."""

    def unsent_bytes(self) -> int:
        """Return what was written and the client has not taken yet."""

    def close(self) -> None:
        """Close the connection when all that was written is sent."""

    def abort(self) -> None:
        """Close the connection at once."""

    def origin(self) -> dict[str, str]:
        """Return what a logger takes as ``extra`` for a line about this connection."""

    def count_dropped(self, reason: str, count: int = 1) -> None:
        """Count what could not be reported in the protocol."""


class ProtocolSession(ABC):
    """The session of one client of one protocol."""

    limits: SessionLimits
    """The limits of all sessions of a class, unless a session passes on those of another one."""

    def __init__(self, connection: ConnectionHandle) -> None:
        self.connection = connection
        self.inbox = connection.inbox
        self.responses = ResponseQueue(self.limits.joined_bytes, self.limits.piece_bytes)
        self.requests_count = 0
        """Requests that were whole; for the deadlines, any number that grows with them."""
        self.is_blocked = False
        """The client does not read its responses."""
        self.is_congested = False
        """The disk is too slow for the appends, or a quota is used up: no request begins."""
        self.is_resting = False
        """Others have their turn."""
        self.is_ended = False
        """The rest of the input cannot be understood: the connection is closed after the responses to earlier
        requests."""
        self.lingers = False
        """Whether a connection that has ended reads on a while: to close it on unread bytes would take the last
        response back (RST)."""
        self.is_lost = False
        """Whether the connection has ended."""

    # -- what the connection calls

    def begin(self, peer: Peer, now_us: int) -> bool:
        """Take note of the peer that has connected. Return whether the client may stay."""
        return True

    def accept_certificate(self, principal: Principal) -> None:  # noqa: B027 - most have logins of their own
        """Act for the user that the client's certificate names. Called after ``begin``, before anything is received."""

    def last_word(self) -> bytes:
        """Return the message for a client that gets no place."""
        return b""

    def wrap(self, sink: Sink) -> Sink:
        """Return the sink for responses: ``sink``, or one before it that changes their form."""
        return sink

    @abstractmethod
    def receive(self, now_us: int) -> ReceiveResult:
        """Take all that is whole and may begin."""

    def find_line(self) -> int | None:
        """Return the number of the line that the next requests begin with, for a pass over lent sockets, or None."""
        return None

    def add_lent(self, requests_count: int, heard_us: int) -> None:  # noqa: B027 - most sockets are never lent
        """Count requests that were received from the lent socket, the last one at ``heard_us``."""

    def is_one_request(self, received: Bytes) -> bool:
        """Return whether these bytes are exactly one request.

        Used if requests arrive one at a time, as messages of a WebSocket or streams of QUIC: others are refused there,
        so that each message or stream has one response.
        """
        raise NotImplementedError

    @property
    def unread(self) -> memoryview:
        """Return what was received and is not parsed yet."""
        return self.inbox.unread

    def hand_over(self, session: ProtocolSession) -> ReceiveResult:
        """Have another session of the connection receive from now on; return what ``receive`` returns then.

        It takes over the queue of responses and all that is known of the connection.
        """
        session.responses = self.responses
        session.is_blocked, session.is_congested = self.is_blocked, self.is_congested
        session.is_resting, session.is_ended = self.is_resting, self.is_ended
        self.connection.change_session(session)
        return ReceiveResult.HANDED_OVER

    def release_memory(self) -> None:
        """Forget what was received, and give the memory for it back."""
        self.inbox.drop()

    @abstractmethod
    def refuse_memory(self) -> None:
        """End: no memory is left for the request that is arriving."""

    def block(self, is_blocked: bool) -> None:
        """Note that the client does not read its responses, or reads them again."""
        self.is_blocked = is_blocked

    def tick(self, now_us: int) -> int | None:
        """Do what is due by now, such as a heartbeat. Return when to be called again, None for never."""
        return None

    def end(self) -> None:
        """Stop receiving: the client has sent its last byte, or sends something that cannot be parsed."""
        self.is_ended = self.responses.is_watched = True

    def say_goodbye(self) -> None:  # noqa: B027 - most have nothing to say
        """Send the last bytes of a connection that closes in order; all responses have been passed to the sink."""

    @abstractmethod
    def lose(self) -> None:
        """Leave groups and cancel waiting work: the connection has ended. Called once, also for refused clients."""

    def throttle(self, delay_us: int) -> None:
        """Begin no request for the delay that a ``QuotaMeter`` returned; nothing for 0."""
        if delay_us:
            self.connection.throttle(delay_us)

    # -- what deadlines and the end of the connection depend on

    @abstractmethod
    def stage(self) -> Stage:
        """Return what the client waits for; it reads its responses."""

    @property
    def is_busy(self) -> bool:
        """Whether a connection that ends still has something to do for its client."""
        return not self.responses.is_empty


SessionFactory = Callable[[ConnectionHandle], ProtocolSession]
LayerFactory = Callable[[ConnectionHandle, ProtocolSession], ProtocolSession]
"""Creates a session around another one, for a connection that has begun."""
