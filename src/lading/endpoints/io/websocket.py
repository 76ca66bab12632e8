"""WebSocket over TCP: a layer in which each binary message is one request or one response.

Text, frames without a mask, messages that are too long and messages that are not one request end the connection with
the close code for it, after the responses to earlier requests. Pages of other sites are refused in the handshake: a
browser lets them connect to every port of the machine it runs on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin

from ..base.deadlines import Stage
from ..base.peer import name_other_protocol
from ..base.responses import Bytes, Sink
from ..base.services import Services
from ..base.session import ConnectionHandle, ProtocolSession, ReceiveResult
from .layer import LayeredSession

log = logging.getLogger(__name__)

FRAMES_PER_TURN: Final = 32
"""Frames that are parsed before others have their turn: one without data costs the library some ten microseconds."""
FRAGMENTS_MAX: Final = 4096
"""At most this many fragments of one message."""
PARSED_BYTES_MIN: Final = 256
PARSED_BYTES_MAX: Final = 64 << 10
"""Bounds of the bytes that are parsed at a time. Fewer are while frames are small, as their number is unknown
before."""
READ_FIRST_BYTES: Final = 256 << 10
"""The inner session handles its inbox before more is added, once it has this many bytes."""

# it logs every frame and every mistake of a peer
logging.getLogger("websockets").setLevel(logging.CRITICAL)


class WebSocketSession(LayeredSession):
    """A client that sends its requests as messages of a WebSocket."""

    def __init__(
        self,
        services: Services,
        new_session: Callable[[ConnectionHandle], ProtocolSession],
        request_bytes_max: int,
        connection: ConnectionHandle,
    ) -> None:
        super().__init__(services, new_session, connection)
        self.responses.is_single = True
        origins = [None, *map(Origin, services.settings.http.origins)]
        self._protocol = ServerProtocol(origins=origins, extensions=None, max_size=request_bytes_max)
        self._sink: Sink | None = None
        self._frames: deque[Frame] = deque()
        """Whole frames that the session within has not got yet."""
        self._fragments: list[Bytes] = []
        """Parts of a message whose end has not come."""
        self._waiting_bytes = 0
        """Bytes in frames and fragments."""
        self._parsed_bytes = PARSED_BYTES_MIN
        """Bytes that are parsed at a time at present."""
        self._frames_left = FRAMES_PER_TURN
        self._unparsed_bytes = 0
        """Bytes of an incomplete frame, or of an incomplete handshake request."""
        self._goodbye: list[bytes] = []
        """The bytes to send after all responses."""

    # -- what the connection calls

    def wrap(self, sink: Sink) -> Sink:
        self._sink = sink
        return self.inner.wrap(self)

    def receive(self, now_us: int) -> ReceiveResult:
        if self.is_blocked:
            # pings have responses too
            return ReceiveResult.WAIT
        self._frames_left, self.is_turn_over = FRAMES_PER_TURN, False
        return super().receive(now_us)

    def fill(self) -> bool:
        while not self.is_ended:
            while self._frames:
                if self.inner.inbox.have - self.inner.inbox.at >= READ_FIRST_BYTES:
                    return True
                if not self._deliver(self._take_frame()):
                    return False
            if self.inbox.at == self.inbox.have:
                break
            if self._frames_left <= 0:
                self.is_turn_over = True
                break
            self._parse()
        return False

    def refuse_memory(self) -> None:
        self._fail(CloseCode.TRY_AGAIN_LATER, "no memory for this message", "no_memory")

    def release_memory(self) -> None:
        self._forget_messages()
        super().release_memory()

    def say_goodbye(self) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.GOING_AWAY)
            self._goodbye += self._protocol.data_to_send()
        goodbye, self._goodbye = b"".join(self._goodbye), []
        if goodbye and self._sink is not None:
            self._sink.write(goodbye)

    def stage(self) -> Stage:
        if self._protocol.state is State.CONNECTING:
            return Stage.FIRST
        stage = super().stage()
        if stage is Stage.IDLE and (self._fragments or self._unparsed_bytes):
            return Stage.PARTIAL if self.requests_count else Stage.FIRST
        return stage

    # -- the sink of responses

    def write(self, data: Bytes) -> None:
        """Send a response as a message."""
        if self._sink is not None:
            self._sink.write(Frame(Opcode.BINARY, data).serialize(mask=False))

    def writelines(self, list_of_data: Sequence[Bytes]) -> None:
        """Send the parts of a response as one message; nothing without parts."""
        if list_of_data:
            self.write(b"".join(list_of_data))

    # -- frames

    def _parse(self) -> None:
        """Have the library parse some of the received bytes, and handle its events."""
        inbox, protocol = self.inbox, self._protocol
        data = bytes(inbox.unread[: self._parsed_bytes])
        inbox.at += len(data)
        frames_left = self._frames_left
        is_first = protocol.state is State.CONNECTING and protocol.handshake_exc is None and not self._unparsed_bytes
        if is_first and (other := name_other_protocol(data, is_http=True)) is not None:
            log.info("closing the connection: %s", other, extra=self.connection.origin())
            self._say_goodbye((), is_opening=True)
            return
        at = 0
        while at < len(data):
            # of a handshake by lines: the library takes what follows it for frames, and refuses one that was ended by
            # wrong frames (the body of a POST) with an AssertionError
            is_head = protocol.state is State.CONNECTING and protocol.handshake_exc is None
            end = (data.find(b"\n", at) + 1 if is_head else 0) or len(data)
            protocol.receive_data(data[at:end])
            at = end
            self._take_events()
        frames = frames_left - self._frames_left
        if frames > FRAMES_PER_TURN // 4:
            self._parsed_bytes = PARSED_BYTES_MIN
        elif self._parsed_bytes < PARSED_BYTES_MAX:
            self._parsed_bytes *= 2
        self._unparsed_bytes = len(protocol.reader.buffer)
        if not self.inner.inbox.hold_elsewhere(self._waiting_bytes + self._unparsed_bytes):
            self.refuse_memory()
            return
        outgoing = protocol.data_to_send()
        if protocol.state in (State.OPEN, State.CONNECTING) and protocol.handshake_exc is None:
            if outgoing and self._sink is not None:
                self._sink.write(b"".join(outgoing))
        else:
            # one read may have a handshake that is accepted and wrong frames after it
            self._say_goodbye(
                outgoing, is_opening=protocol.state is State.CONNECTING or protocol.handshake_exc is not None
            )

    def _take_events(self) -> None:
        """Respond to the handshake, and keep frames with data."""
        protocol = self._protocol
        for event in protocol.events_received():
            self._frames_left -= 1
            if isinstance(event, Request):
                protocol.send_response(protocol.accept(event))
            elif isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                self._frames.append(event)
                self._waiting_bytes += len(event.data)

    def _say_goodbye(self, goodbye: Sequence[bytes], *, is_opening: bool) -> None:
        """Take nothing more; ``goodbye`` is sent after the responses to earlier requests."""
        if is_opening or self._protocol.parser_exc is not None:
            self.connection.count_dropped("handshake" if is_opening else "malformed")
            self.lingers = True
        self._goodbye += goodbye
        # frames before the one that ends it count
        while self._frames and self._deliver(self._take_frame()):
            pass
        if not self.is_ended:
            self.end()

    def _take_frame(self) -> Frame:
        frame = self._frames.popleft()
        self._waiting_bytes -= len(frame.data)
        return frame

    def _deliver(self, frame: Frame) -> bool:
        """Pass a message to the inner session, or keep a fragment. Return whether further frames may be handled."""
        if frame.opcode is Opcode.TEXT:
            return self._fail(CloseCode.UNSUPPORTED_DATA, "requests are binary", "text")
        data: Bytes = frame.data
        if self._fragments or not frame.fin:
            if len(self._fragments) >= FRAGMENTS_MAX:
                return self._fail(
                    CloseCode.MESSAGE_TOO_BIG, f"a message has at most {FRAGMENTS_MAX} parts", "fragments"
                )
            self._fragments.append(data)
            self._waiting_bytes += len(data)
            if not frame.fin:
                return True
            data = b"".join(self._fragments)
            self._fragments.clear()
            self._waiting_bytes -= len(data)
        if not self.inner.is_one_request(data):
            return self._fail(CloseCode.INVALID_DATA, "a message is one request", "malformed")
        self.inner.inbox.hold_elsewhere(self._waiting_bytes + self._unparsed_bytes)
        if not self.inner.inbox.append(data):
            self.refuse_memory()
            return False
        return True

    def _fail(self, code: CloseCode, reason: str, counted: str) -> bool:
        """Take nothing more, and close for a reason after the responses to earlier requests. Return False."""
        self.connection.count_dropped(counted)
        self.lingers = True
        if self._protocol.state is State.OPEN:
            self._protocol.fail(code, reason)
        self._goodbye += self._protocol.data_to_send()
        self._forget_messages()
        self.end()
        return False

    def _forget_messages(self) -> None:
        self._frames.clear()
        self._fragments.clear()
        self._waiting_bytes = self._unparsed_bytes = 0
