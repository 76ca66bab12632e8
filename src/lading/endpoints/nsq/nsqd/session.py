"""One client of nsqd: commands in, responses out in order, message frames between them (nsq.md 1)."""

from __future__ import annotations

import logging
import time
from asyncio import Future
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ....broker.core.access.principal import Principal
from ....broker.core.access.quotas import QuotaMeter
from ....broker.core.access.rights import Right
from ....dialects.nsq import commands, publishing
from ....dialects.nsq.commands import ERROR, RESPONSE, ClientState, Line, frame
from ....dialects.nsq.errors import NsqProtocolError, fault_of
from ....dialects.nsq.identify import Features, Identity
from ....model.errors import LadingError
from ...base.deadlines import Stage
from ...base.inbox import no_progress_error
from ...base.metering import measure_request
from ...base.session import ConnectionHandle, Peer, ProtocolSession, ReceiveResult, SessionLimits
from .consume import NsqConsumer
from .handlers import HANDLERS, NsqdHandlers, require_state, take_body, take_magic
from .login import NsqdLogin
from .message_flow import MessageFlow
from .node import WorkNeeded
from .publication import Publication
from .publication_reader import PublicationReader

if TYPE_CHECKING:
    from ....broker.core.topology import Topic

log = logging.getLogger(__name__)

NAME: Final = "nsqd_tcp"
SILENT_HEARTBEATS: Final = 3
"""A client that sends no command for this many heartbeat intervals is disconnected."""
UNANSWERED_MAX: Final = 256
"""Publications of one connection that may be on their way to the disk; more are read when some are completed."""
WRITE_BUFFER_BYTES: Final = 1 << 20
"""A client that does not read gets no more messages once this much is on its way to it."""

NO_FEATURES: Final = Features()
_OK: Final = frame(RESPONSE, commands.OK)
_HEARTBEAT: Final = frame(RESPONSE, commands.HEARTBEAT)
_DONE: Final = ReceiveResult.DONE
_FIN: Final = b"FIN "
MUCH_IN_FLIGHT: Final = 512
FEW_BYTES: Final = 64 * 21
STEPS_MAX: Final = 128
"""Commands of one connection that are handled, or refused, before others have their turn."""
REFUSED_COST: Final = 8
"""A refused command counts as this many additional ones: each has a response of its own."""
FINS_MAX: Final = 128
"""Up to this many consecutive FINs count as one step."""
_FINS_BYTES_MAX: Final = 21 * FINS_MAX
GATHER_S: Final = 0.001
"""A client that has many messages in flight and sent little (64 FINs) is read again after this long.

Clients send each FIN by itself, and waking up for one costs as much as taking hundreds.
"""


class NsqdSession(ProtocolSession):
    """One client. Commands are taken in order, but several publications may wait for the disk at once."""

    limits = SessionLimits(
        unanswered_max=UNANSWERED_MAX,
        write_buffer_bytes=WRITE_BUFFER_BYTES,
        # responses are small, and a page of messages is written as soon as it is encoded
        joined_bytes=1 << 62,
        piece_bytes=1 << 62,
        lingers_at_stop=False,
        holds_at_turn=True,
        rest_s=GATHER_S,
    )

    def __init__(self, handlers: NsqdHandlers, connection: ConnectionHandle) -> None:
        super().__init__(connection)
        self.lingers = True
        self.services = handlers.services
        self.node = handlers.node
        self._requests = handlers.services.metrics.requests.values
        self.intake = PublicationReader(self, handlers.publisher, handlers.gathering, NAME, self._requests)
        self.login = NsqdLogin(handlers.login_rules, self.services, self.node, connection, self.intake)
        self.flow = MessageFlow(connection, self.responses, self.login, NAME, self.services.metrics.sent_bytes.values)
        self._lent = handlers.lent
        self.identity = Identity()
        self.features = NO_FEATURES
        self.state = ClientState.FRESH
        self.consumer: NsqConsumer | None = None
        self.connected_s = int(time.time())
        self.address = ""
        self.name = NAME
        self._has_greeted = False
        """Whether the client has sent the magic bytes of the protocol version."""
        self._is_creating = False
        """Whether the command at the front waits for its topic, which is being created, or for kernels."""
        self._has_input_ended = False
        """Whether the client has sent its last byte; the command at the front is handled first."""
        self._steps_left = STEPS_MAX
        self._unread_bytes = 0
        """Bytes of the incomplete command at the last check."""
        self._is_measured = False
        """Whether the session is in ``_receive_measured`` now."""
        self.now_us = 0
        """When the bytes that are being handled were received."""
        self._heard_us = 0

    # -- what the connection calls

    def begin(self, peer: Peer, now_us: int) -> bool:
        self.address = f"{peer.host}:{peer.port}" if peer.host else ""
        self.name = f"{NAME}/{self.address}"
        self._heard_us = now_us
        self.node.connections.add(self)
        self.login.begin(peer.host)
        return True

    def accept_certificate(self, principal: Principal) -> None:
        self.login.act_for(principal)

    def log_in(self, secret: str) -> None:
        """Check the secret of AUTH; later commands wait."""
        self._is_creating = True
        self.connection.run(self.login.check(secret), self._on_logged_in)

    def _on_logged_in(self, login: Future[Principal]) -> None:
        self._is_creating = False
        try:
            self.respond(self.login.accept(login))
        except NsqProtocolError as fault:
            self._refuse(fault)
        if self._has_input_ended:
            self.end()
        self.connection.proceed()

    def last_word(self) -> bytes:
        # a text without a code, as the real servers send it
        return frame(ERROR, b"too much client connections")

    def receive(self, now_us: int) -> ReceiveResult:
        principal = self.login.principal
        if principal is not None and principal.meter is not None and not self._is_measured:
            return self._receive_measured(principal.meter, now_us)
        self.now_us = now_us
        is_held_up = self.responses.waiting or self.is_blocked or self.is_congested or self.is_ended
        if is_held_up or self.consumer is not None or self.inbox.at:
            return self._take_all(now_us)
        # the usual read of a publisher that waits for each response: not a separate rule, only a shorter way
        try:
            publication = self.intake.take_repeated(now_us)
        except NsqProtocolError as fault:
            self._refuse(fault)
        else:
            if publication is None:
                return self._take_all(now_us)
            # the same as ``_answer_publication``, without a call
            if publication.done:
                self.responses.add((publication.answers,))
            else:
                publication.slots.append(self.responses.slot())
        self.requests_count += 1
        self._heard_us = now_us
        if self.intake.loan.requests_left <= 0 and self._lent is not None:
            self.intake.loan.restart()
            self.connection.lend_soon(self)
        return _DONE

    @property
    def published(self) -> Mapping[str, int]:
        """Return the number of published messages by topic."""
        self.connection.count_lent()
        return self.intake.published

    def find_line(self) -> int | None:
        principal = self.login.principal
        is_metered = principal is not None and principal.meter is not None
        if self._lent is None or self.consumer is not None or is_metered:
            return None
        return self.intake.find_lent_line(self._lent)

    def add_lent(self, requests_count: int, heard_us: int) -> None:
        self.intake.add_lent(requests_count)
        self.requests_count += requests_count
        self._heard_us = heard_us

    def _receive_measured(self, meter: QuotaMeter, now_us: int) -> ReceiveResult:
        """Receive from a user with a quota."""
        begun, published = self.inbox.at, sum(self.intake.published.values())
        self._is_measured = True
        try:
            with measure_request(self, meter) as request:
                result = self.receive(now_us)
                if sum(self.intake.published.values()) > published:
                    request.produced_bytes = self.inbox.at - begun
        finally:
            self._is_measured = False
        return result

    def _take_all(self, now_us: int) -> ReceiveResult:
        """Handle one command after the other, as far as order and bounds allow."""
        inbox, waiting = self.inbox, self.responses.waiting
        begun, unread_bytes, result = inbox.at, inbox.have - inbox.at, _DONE
        self._steps_left = STEPS_MAX
        while inbox.at < inbox.have and not self.is_ended:
            if (
                self.is_congested
                or self._is_creating
                or (waiting and len(waiting) >= UNANSWERED_MAX)
                or (self.is_blocked and self.flow.is_overfull())
            ):
                result = ReceiveResult.WAIT
                break
            if self._steps_left <= 0:
                result = ReceiveResult.TURN
                break
            self._steps_left -= 1
            at = inbox.at
            try:
                if not self._handle_next():
                    break
            except NsqProtocolError as fault:
                self._refuse(fault)
                self._steps_left -= REFUSED_COST
            except WorkNeeded as needed:
                inbox.at = at
                self._is_creating = True
                self.connection.run(needed.make(), self._on_created)
                result = ReceiveResult.WAIT
                break
            if inbox.at <= at and not self.is_ended:
                raise no_progress_error()
            if inbox.at - at > FEW_BYTES:
                # a whole run of publications is a turn
                self._steps_left -= (inbox.at - at) * STEPS_MAX // publishing.run_bytes_max()
        if inbox.at != begun:
            self.requests_count += 1
            self._heard_us = now_us
        if self.consumer is None:
            return result
        received_bytes, self._unread_bytes = unread_bytes - self._unread_bytes, inbox.have - inbox.at
        if 0 < received_bytes <= FEW_BYTES and result is _DONE and self.consumer.subscriber.in_flight >= MUCH_IN_FLIGHT:
            # wait, so that a client with many messages in flight can finish more of them before it is read again
            return ReceiveResult.REST
        return result

    def refuse_memory(self) -> None:
        self._refuse(NsqProtocolError("E_BAD_BODY", "the broker is receiving too much; retry later"))

    def block(self, is_blocked: bool) -> None:
        super().block(is_blocked)
        self.flow.block(is_blocked)

    @property
    def is_busy(self) -> bool:
        return self._is_creating or not self.responses.is_empty

    def tick(self, now_us: int) -> int | None:
        interval_us = self.identity.heartbeat_ms * 1_000
        # half an interval earlier, since a heartbeat may come a little early
        if self._is_creating:
            # the client is not read meanwhile, so its NOPs do not count: compiling kernels takes a minute
            self._heard_us = now_us
        elif now_us - self._heard_us >= (SILENT_HEARTBEATS - 0.5) * interval_us:
            self.connection.count_dropped("silent")
            self.connection.abort()
            return None
        if self.is_ended:
            return None
        self.responses.push(_HEARTBEAT)
        return now_us + interval_us

    def end(self) -> None:
        if self._is_creating:
            self._has_input_ended = True
            return
        super().end()
        if self.consumer is not None:
            self.consumer.close()

    def lose(self) -> None:
        self.login.forget()
        self.flow.close()
        if self.consumer is not None:
            self.consumer.close()
            # the timer refers to this session
            self.consumer = None
        self.node.connections.discard(self)

    def stage(self) -> Stage:
        waiting = self.responses.waiting
        if self.is_ended or self.is_congested or self._is_creating or len(waiting) >= UNANSWERED_MAX:
            return Stage.BUSY
        if not self._has_greeted:
            return Stage.FIRST
        if self.inbox.have > self.inbox.at:
            return Stage.PARTIAL
        # a client that gets heartbeats is disconnected if it does not respond; without them a reader may wait for ever
        is_kept = self.identity.heartbeat_ms > 0 or self.consumer is not None
        return Stage.BUSY if is_kept or waiting else Stage.IDLE

    # -- commands

    def _handle_next(self) -> bool:
        """Handle one command, or a run of equal ones; return False if the next is incomplete."""
        inbox = self.inbox
        if not self._has_greeted:
            return self._take_greeting()
        start, end = inbox.at, inbox.have
        if self.consumer is not None and end - start >= 21 and inbox.data.startswith(_FIN, start):
            if end - start > _FINS_BYTES_MAX:
                end = start + _FINS_BYTES_MAX
            inbox.at, faults = self.consumer.finish(inbox.array, start, end)
            for fault in faults:
                self._refuse(fault)
                self._steps_left -= REFUSED_COST
            # a FIN without a line feed at byte 21 is not part of the run: it is read like any other line
            if faults or inbox.at > start:
                return True
            end = inbox.have
        stop = inbox.data.find(b"\n", start, end) + 1
        known = bytes(inbox.view[start:stop])
        route = self.login.routes.get(known) if stop else None
        if route is not None:
            publication = self.intake.take(route, known, stop, self.now_us)
        else:
            reads_upstream = not self.node.strict and not self._has_binary_ids(start)
            read_line = commands.read_upstream_line if reads_upstream else commands.read_line
            line = read_line(inbox.view, start, inbox.have)
            if line is None:
                return False
            require_state(self, line.command)
            if reads_upstream:
                commands.require_parameters(line)
            if line.command.form is None:
                return self._answer(line)
            publication = self.intake.take_first(line, self.now_us)
        if publication is None:
            return False
        self._answer_publication(publication)
        return True

    def _has_binary_ids(self, start: int) -> bool:
        """Return whether the command at the front has a message id of the fork: 16 bytes, which may contain a line
        feed.
        """
        is_forked = self.identity.forked or (self.consumer is not None and not self.consumer.has_textual_ids)
        return is_forked and self.inbox.data.startswith((b"FIN ", b"REQ ", b"TOUCH "), start)

    def _answer_publication(self, publication: Publication) -> None:
        """Respond in the order of the commands: now, or when the messages are durable."""
        if publication.done:
            self.responses.add((publication.answers,))
            return
        publication.slots.append(self.responses.slot())

    def _take_greeting(self) -> bool:
        if not take_magic(self.inbox, self.connection):
            return False
        self._has_greeted = True
        if self.login.offers_tls and self.connection.is_encrypted:
            self.login.leave_plain()
        self.connection.settle()
        self.beat_later()
        return True

    def beat_later(self) -> None:
        """Send a heartbeat after the interval that the client asked for."""
        interval_us = self.identity.heartbeat_ms * 1_000
        self.connection.tick_at(self.now_us + interval_us if interval_us > 0 else None)

    def _answer(self, line: Line) -> bool:
        """Handle and respond to any command except a publication."""
        inbox = self.inbox
        body = b""
        if line.command.body is commands.Body.SIZED:
            taken = take_body(inbox, line)
            if taken is None:
                return False
            body = taken
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

    def require_subscription(self) -> None:
        """Refuse the subscription after its last message, and close, if the right to read was revoked."""
        if self.consumer is None or self.is_ended:
            return
        try:
            self.login.require_right("SUB", Right.READ, self.consumer.channel.topic.flat_name)
        except NsqProtocolError as fault:
            self._refuse(fault)
            self.connection.proceed()

    def is_encrypted(self) -> bool:
        """Return whether the connection uses TLS."""
        return self.connection.is_encrypted

    def topic_upgraded(self, topic: Topic) -> None:
        """Disconnect a reader of plain frames from a topic that is now extended, as the fork's nsqd does."""
        reads = self.consumer is not None and self.consumer.channel.topic is topic
        if reads and not self.identity.extend_support:
            self.connection.close()

    def channel_closed(self, reason: str) -> None:
        """Close the connection, because its channel was deleted."""
        self.connection.close()

    def _on_created(self, creation: Future[object]) -> None:
        """Handle the waiting command again: its topic was created or refused, or the kernels are loaded."""
        self._is_creating = False
        error = creation.exception()
        if error is None or isinstance(error, LadingError):
            self.node.retry(self.connection.proceed, error)
            if self._has_input_ended and not self._is_creating:
                self.end()
                self.connection.proceed()
            return
        log.error("what a command waits for could not be done", exc_info=error, extra=self.connection.origin())
        self.connection.abort()

    # -- responses

    def respond(self, data: bytes) -> None:
        """Send this response to a command, after the earlier ones."""
        self.responses.add((_OK if data == commands.OK else frame(RESPONSE, data),))

    def _refuse(self, fault: NsqProtocolError) -> None:
        self._requests[NAME, "refused", fault.code] += 1
        self._steps_left -= 1
        self.responses.add((frame(ERROR, str(fault).encode(errors="replace")),))
        if fault.fatal:
            # further input is thrown away: there must be room to receive it
            self.inbox.at = self.inbox.have = 0
            self.end()
