"""Iggy classic over a connection: frames in, frames out, in order (iggy.md A1, M).

Clients may rely on this, which differs from the real server on purpose: an intact frame that cannot be understood or is
refused gets its error status and the connection stays (the real server drops it); if framing itself is lost (a length
below 4 or over ``FRAME_BYTES_MAX``) a status is sent and the connection closed.
"""

from __future__ import annotations

import logging
import struct
from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ...dialects.iggy.classic.command_table import error_frame, ok_frame
from ...dialects.iggy.classic.commands import ROW_BY_CODE
from ...dialects.iggy.classic.errors import CODE_OF, GENERIC
from ...dialects.iggy.classic.later_commands import LoginUser, LoginWithToken
from ...dialects.iggy.classic.limits import REQUEST_HEADER_VALUES_BYTES_MAX, REQUEST_PAYLOADS_BYTES_MAX
from ...dialects.iggy.classic.releases import Release
from ...dialects.iggy.classic.responses import IdentityInfo
from ...model.errors import LadingError, MalformedMessage, NotLoaded, Reason
from ..base.inbox import no_progress_error
from ..base.loaded_read import poll_when_loaded
from ..base.metering import measure_request
from ..base.peer import is_kafka_request, is_tls_hello, name_other_protocol
from ..base.responses import Parts, Slot
from ..base.services import now_us as clock_us
from ..base.session import ConnectionHandle, Peer, ReceiveResult
from ..io.lent_lines import LoanCountdown
from .answers import Answer, encode_refusal
from .client_session import COMMANDS_PER_TURN, REQUESTS_PER_TURN, UNANSWERED_MAX, ClientSession, is_long_command
from .clients import Client, clients_of
from .current.session import CurrentSession
from .generations import NO_LENGTH, is_current
from .handlers import IggyHandlers
from .poll import POLL
from .send import SEND

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal
    from ...broker.core.pending_append import Append

log = logging.getLogger(__name__)

R = TypeVar("R")

_KEYS_BYTES_MAX: Final = REQUEST_HEADER_VALUES_BYTES_MAX * (255 + 9)
FRAME_BYTES_MAX: Final = REQUEST_PAYLOADS_BYTES_MAX + REQUEST_HEADER_VALUES_BYTES_MAX + _KEYS_BYTES_MAX
"""The longest request: 10 MiB of payloads, 100 KiB of header values, and as many of the longest keys as there can be
values of one byte (37,621,760). Requests of millions of messages below 4 bytes can meet it before Iggy's own limits."""

FRAMING: Final = -1
"""The command in metrics and statuses for a frame without one."""

_HEAD_BYTES: Final = 4
_FIRST_PAYLOAD_AT: Final = 2 * _HEAD_BYTES
"""The payload of a request at the front of the inbox: after length and command."""
_U32 = struct.Struct("<I")
_POLLED_HEAD = struct.Struct("<III")
_LATER_POLLED_HEAD = struct.Struct("<IIIQI")
_POLLED_HEAD_BYTES: Final = 16
_OK: Final = (ok_frame(),)


class IggySession(ClientSession):
    """One client of the classic framing, or one that has not shown yet which framing it speaks."""

    def __init__(self, handlers: IggyHandlers, connection: ConnectionHandle) -> None:
        self._broker = handlers.services.broker
        super().__init__(connection, clients_of(handlers.services), self._broker.groups)
        self._handlers = handlers
        self._handling = handlers.first
        self._requests = handlers.services.metrics.requests.values
        self._name = handlers.name
        self._sent_labels = (handlers.name, ROW_BY_CODE[SEND].name, "0")
        self._polled_labels = (handlers.name, ROW_BY_CODE[POLL].name, "0")
        self._lent = handlers.lent
        self.loan = LoanCountdown()
        self._sent_head = b""
        """The head of the last send that was alone, when the socket is to be lent."""

    # -- what the connection calls

    def begin(self, peer: Peer, now_us: int) -> bool:
        handlers = self._handlers
        client = Client(str(peer), handlers.transport, peer.here, handlers.release)
        self._clients.add(client)
        self._client = client
        client.abort = self.connection.abort
        client.log_in(handlers.logins.admit(), None)
        self._handling = handlers.of(client)
        return True

    def accept_certificate(self, principal: Principal) -> None:
        assert self._client is not None, "begun"
        self._client.log_in(principal, principal.name)
        self._handling = self._handlers.of(self._client)

    def receive(self, now_us: int) -> ReceiveResult:
        inbox, unanswered = self.inbox, self.responses.waiting
        requests_left, self._commands_in_turn = REQUESTS_PER_TURN, 0
        while inbox.have - inbox.at >= _HEAD_BYTES:
            (length,) = _U32.unpack_from(inbox.view, inbox.at)
            if not 4 <= length <= FRAME_BYTES_MAX:
                if length == NO_LENGTH and not self.requests_count:
                    return self._choose_framing()
                self._fail_framing(Reason.MALFORMED if length < 4 else Reason.REQUEST_TOO_LARGE)
                break
            start = inbox.at + 2 * _HEAD_BYTES
            end = inbox.at + _HEAD_BYTES + length
            if end > inbox.have:
                if not self.requests_count and (is_tls_hello(inbox.unread) or is_kafka_request(inbox.unread)):
                    self._fail_framing(Reason.MALFORMED)
                break
            if self.is_blocked or self.is_congested or self._is_pending:
                return ReceiveResult.WAIT
            (code,) = _U32.unpack_from(inbox.view, start - _HEAD_BYTES)
            if unanswered and (code != SEND or len(unanswered) >= UNANSWERED_MAX):
                return ReceiveResult.WAIT
            if not requests_left or self._commands_in_turn >= COMMANDS_PER_TURN:
                return ReceiveResult.TURN
            requests_left -= 1
            if end <= inbox.at:
                raise no_progress_error()
            self.requests_count += 1
            if self.requests_count == 1:
                self.connection.settle()
            inbox.at = end
            client = self._client
            if client is None or client.principal is None or client.principal.meter is None:
                self._answer(code, start, end, now_us)
            else:
                with measure_request(self, client.principal.meter, end - start if code == SEND else 0):
                    self._answer(code, start, end, now_us)
        return ReceiveResult.DONE

    def _choose_framing(self) -> ReceiveResult:
        """Hand the connection over to a session of the current generation if its first bytes show that framing."""
        is_other = is_current(self.inbox.unread)
        if not is_other:
            if is_other is not None:
                self._fail_framing(Reason.MALFORMED)
            return ReceiveResult.DONE
        assert self._client is not None, "begun"
        current = CurrentSession(self.connection, self._handlers.current, self._clients, self._client)
        return self.hand_over(current)

    def refuse_memory(self) -> None:
        self._fail_framing(Reason.REQUEST_TOO_LARGE)

    # -- requests

    def _answer(self, code: int, start: int, end: int, now_us: int) -> None:
        inbox = self.inbox
        payload = inbox.view[start:end]
        try:
            if code == SEND:
                self._send(payload, start, end, now_us)
            elif code == POLL:
                answer = self._handling.poller.poll(payload, self._client, now_us)
                if isinstance(answer, Answer):
                    self.responses.add(self._to_parts(answer))
                else:
                    self.connection.run_in_worker(answer, self._hold_place(code, self._to_parts))
            else:
                self._answer_command(code, payload)
        except NotLoaded:
            polled = self._poll_when_loaded(memoryview(bytes(payload)))
            self.connection.run(polled, self._hold_place(code, self._to_parts))
        except LadingError as error:
            if self._learn(code, payload, error):
                self._answer(code, start, end, now_us)
            else:
                self.responses.add(self._to_refusal(code, error))
        except Exception:
            # such as memory that cannot be allocated: this client gets an error, so that it is not left without a
            # response
            log.exception("a request failed", extra=self.connection.origin())
            self.responses.add(self._to_error(code, GENERIC))

    async def _poll_when_loaded(self, payload: memoryview) -> Answer:
        def poll() -> Answer | Callable[[], Answer]:
            return self._handling.poller.poll(payload, self._client, clock_us())

        return await poll_when_loaded(poll, self._handlers.services.workers)

    def _learn(self, code: int, payload: memoryview, error: LadingError) -> bool:
        """Return whether a malformed request shows another release of its client; it is then handled as of that
        release.

        Messages are sent and polled as the likeliest release does, without checking the others that a client may have.
        """
        client = self._client
        if client is None or not client.releases or not isinstance(error, MalformedMessage):
            return False
        if not self._handlers.learn(code, payload, client):
            return False
        self._handling = self._handlers.of(client)
        return True

    def _answer_command(self, code: int, payload: memoryview) -> None:
        handlers, client = self._handlers, self._client
        assert client is not None
        if is_long_command(len(payload)):
            answered = self._answer_long(code, memoryview(bytes(payload)), client)
            self.connection.run(answered, self._hold_place(code, partial(self._finish_command, code)))
            return
        command = handlers.parse(code, payload, client)
        if isinstance(command, LoginUser | LoginWithToken):
            login = handlers.log_in(command, client)
            if login is not None:
                self.connection.run(login, self._hold_place(code, partial(self._finish_login, code, command)))
                return
            body = client.release.commands.encode_response(command, IdentityInfo(client.user_id))
        else:
            answer = handlers.service.answer(command, client, partial(client.release.commands.encode_response, command))
            if not isinstance(answer, bytes):
                self.connection.run(answer, self._hold_place(code, partial(self._finish_command, code)))
                return
            body = answer
        self._handling = handlers.of(client)
        self.responses.add(self._to_frame(code, body))
        self._commands_in_turn += 1

    async def _answer_long(self, code: int, payload: memoryview, client: Client) -> bytes:
        """Return the body of the response to a command that a worker parses."""
        handlers = self._handlers
        command = await handlers.parse_in_worker(code, payload, client)
        if isinstance(command, LoginUser | LoginWithToken):
            if (login := handlers.log_in(command, client)) is not None:
                await login
            return client.release.commands.encode_response(command, IdentityInfo(client.user_id))
        answer = handlers.service.answer(command, client, partial(client.release.commands.encode_response, command))
        return answer if isinstance(answer, bytes) else await answer

    def _finish_login(self, code: int, command: LoginUser | LoginWithToken, _none: None) -> Parts:
        client = self._client
        assert client is not None
        self._handling = self._handlers.of(client)
        answer = client.release.commands.encode_response(command, IdentityInfo(client.user_id))
        return self._to_frame(code, answer)

    def _finish_command(self, code: int, body: bytes) -> Parts:
        # the client that created the first user is its administrator now
        assert self._client is not None
        self._handling = self._handlers.of(self._client)
        return self._to_frame(code, body)

    def _send(self, payload: memoryview, start: int, end: int, now_us: int) -> None:
        inbox = self.inbox
        source = self if end == inbox.have else None
        append = self._handling.sender.send(payload, inbox.array, start, source, now_us)
        if append.done and append.error is None:
            self._requests[self._sent_labels] += 1
            self.responses.add(_OK)
        else:
            append.add_done_callback(partial(self._acknowledge, self.responses.slot()))
        if self._broker.appender.congested:
            self.connection.wait_for_disk()
        if source is not None and start == _FIRST_PAYLOAD_AT and self._lent is not None:
            self.loan.requests_left -= 1
            if self.loan.requests_left <= 0:
                self.loan.restart()
                self._sent_head = self._handling.sender.find_head(payload)
                self.connection.lend_soon(self)

    def find_line(self) -> int | None:
        client = self._client
        is_metered = client is not None and client.principal is not None and client.principal.meter is not None
        if self._lent is None or is_metered:
            return None
        return self._lent.add(self._sent_head, self._handling.sender)

    def add_lent(self, requests_count: int, heard_us: int) -> None:
        self.requests_count += requests_count
        self.loan.note_used()

    def _acknowledge(self, slot: Slot, append: Append) -> None:
        if self.is_lost:
            return
        if append.error is None:
            self._requests[self._sent_labels] += 1
            slot.fill(_OK)
        else:
            slot.fill(self._to_refusal(SEND, append.error))

    def _hold_place(self, code: int, encode: Callable[[R], Parts]) -> Callable[[Future[R]], None]:
        """Keep the place of a response until the disk or a worker is done; return the callback that fills it.

        Later requests wait.
        """
        slot = self.responses.slot()
        self._is_pending = True

        def finish(done: Future[R]) -> None:
            self._is_pending = False
            try:
                slot.fill(encode(done.result()))
            except LadingError as error:
                slot.fill(self._to_refusal(code, error))
            except Exception:
                # such as memory that cannot be allocated: the client must not wait for ever
                log.exception("a request failed", extra=self.connection.origin())
                slot.fill(self._to_error(code, GENERIC))

        return finish

    # -- responses

    def _to_frame(self, code: int, body: bytes) -> Parts:
        self._count(code, 0)
        return (ok_frame(body),)

    def _to_refusal(self, code: int, error: LadingError) -> Parts:
        status, encoded = encode_refusal(self._release, code, error)
        self._count(code, status)
        return (encoded,)

    def _to_error(self, code: int, status: int, text: str = "") -> Parts:
        self._count(code, status)
        return (error_frame(status, text if self._release.tells_errors else None),)

    def _to_parts(self, answer: Answer) -> Parts:
        if self._handling.release.tells_partition:
            size_bytes = _POLLED_HEAD_BYTES + answer.size_bytes
            head = _LATER_POLLED_HEAD.pack(0, size_bytes, *answer.place, answer.count)
        else:
            head = _POLLED_HEAD.pack(0, 4 + answer.size_bytes, answer.count)
        self._requests[self._polled_labels] += 1
        client = self._client
        if client is not None and client.principal is not None and client.principal.meter is not None:
            self.throttle(client.principal.meter.take_read(answer.size_bytes, clock_us()))
        if answer.stubs:
            self.connection.count_dropped("unholdable", answer.stubs)
        return (head, *answer.parts)

    @property
    def _release(self) -> Release:
        """Return the release of the client, as far as it is known."""
        return self._handling.release if self._client is None else self._client.release

    def _count(self, code: int, status: int) -> None:
        self._requests[self._name, self._release.commands.name_of(code), str(status)] += 1

    def _fail_framing(self, reason: Reason) -> None:
        """Report, if the protocol can, that framing is lost; close after the responses to earlier requests."""
        self.connection.count_dropped(reason.value)
        if not self.requests_count and (other := name_other_protocol(self.inbox.unread)) is not None:
            log.info("closing the connection: %s", other, extra=self.connection.origin())
        self.inbox.at = self.inbox.have = 0
        self.lingers = True
        self.responses.add(self._to_error(FRAMING, CODE_OF[reason]))
        self.end()
