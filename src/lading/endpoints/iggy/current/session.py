"""The current generation over a connection: frames of a 256-byte header and a body, in order (iggy-current.md B1).

Clients may rely on this: an intact frame that cannot be understood or is refused gets its status and the connection
stays; a refused login, and a request before one, get a header with the reason (an eviction), after which the connection
is closed. So does a frame of an impossible length, because the start of the next one is unknown.
"""

from __future__ import annotations

import logging
import struct
from asyncio import Future
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ....dialects.iggy.classic.errors import GENERIC, StatusError
from ....dialects.iggy.current import headers, limits, operations, responses
from ....dialects.iggy.current.checksums import hash_bytes
from ....dialects.iggy.current.headers import HEADER_BYTES, Eviction, FrameHeader
from ....dialects.iggy.current.operations import CANCEL, NON_REPLICATED, PING, POLL, REGISTER, SEND_MESSAGES
from ....dialects.iggy.current.releases import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    V_0_11,
    ProtocolVersion,
    find_version,
)
from ....model.errors import LadingError, MalformedMessage, NotLoaded, Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass
from ...base.inbox import no_progress_error
from ...base.loaded_read import poll_when_loaded
from ...base.metering import measure_request
from ...base.responses import Parts, Slot
from ...base.services import now_us as clock_us
from ...base.session import ConnectionHandle, ReceiveResult
from ..client_session import COMMANDS_PER_TURN, REQUESTS_PER_TURN, UNANSWERED_MAX, ClientSession, is_long_command
from ..clients import Client, Clients
from ..logins import Logins
from ..rights import requirement_of
from ..send import Require
from ..service import IggyService
from .fetch import WAITING
from .patches import to_update
from .poll import CurrentPoller, PolledBatches
from .send import CurrentSender, encode_place

if TYPE_CHECKING:
    from ....broker.broker import Broker
    from ....broker.core.pending_append import Append
    from ....broker.core.topology import Partition
    from ....dialects.iggy.classic.command_table import CommandSpec
    from ....dialects.iggy.current.commands import Register
    from ....runtime.metrics import Labels

log = logging.getLogger(__name__)

R = TypeVar("R")

UNAUTHENTICATED: Final = 40
_OK: Final = 0
_U32 = struct.Struct("<I")


@lazy_dataclass(frozen=True, slots=True)
class CurrentHandlers:
    """Handlers of the requests of all connections of one endpoint."""

    name: str
    """The endpoint's."""
    broker: Broker
    requests: dict[Labels, float]
    """Counter of requests by endpoint, operation and status."""
    service: IggyService
    sender: CurrentSender
    poller: CurrentPoller
    logins: Logins
    make_messages: Callable[[Require], tuple[CurrentSender, CurrentPoller]]
    """Returns the sender and the poller of one user's messages."""

    def of(self, client: Client) -> CurrentHandlers:
        """Return the handlers of a client that is logged in."""
        require = requirement_of(self.broker, client.principal)
        if require is None:
            return self
        sender, poller = self.make_messages(require)
        return replace(self, sender=sender, poller=poller)


class EvictionError(LadingError):
    """The client is disconnected for this reason (an eviction)."""

    def __init__(self, reason: Eviction, message: str) -> None:
        super().__init__(message)
        self.reason = reason


_EVICTIONS: Final = {
    Reason.INVALID_TOKEN: Eviction.INVALID_TOKEN,
    Reason.TOKEN_EXPIRED: Eviction.INVALID_TOKEN,
    Reason.USER_INACTIVE: Eviction.USER_INACTIVE,
}


def _to_eviction(refusal: Refusal) -> EvictionError:
    """Return the eviction for a refused login."""
    return EvictionError(_EVICTIONS.get(refusal.reason, Eviction.INVALID_CREDENTIALS), str(refusal))


class CurrentSession(ClientSession):
    """One client of the current generation, handed over by the session of the classic framing."""

    def __init__(
        self, connection: ConnectionHandle, handlers: CurrentHandlers, clients: Clients, client: Client
    ) -> None:
        super().__init__(connection, clients, handlers.broker.groups)
        self._client = self._caller = client
        self._first = handlers
        self._handlers = handlers
        """The handlers of the user; before the login, those of a client without a user."""
        self._version = V_0_11
        """The version of its login; before the login any version would do."""
        client.release = V_0_11.release

    def receive(self, now_us: int) -> ReceiveResult:
        inbox, unanswered = self.inbox, self.responses.waiting
        requests_left, self._commands_in_turn = REQUESTS_PER_TURN, 0
        while inbox.have - inbox.at >= HEADER_BYTES:
            start = inbox.at
            header = headers.parse_request_header(inbox.view, start)
            if header.kind != headers.REQUEST or not HEADER_BYTES <= header.size_bytes <= limits.FRAME_BYTES_MAX:
                self._evict(header, Eviction.INVALID_BODY_SIZE)
                break
            end = start + header.size_bytes
            if end > inbox.have:
                break
            if self.is_blocked or self.is_congested or self._is_pending:
                return ReceiveResult.WAIT
            if unanswered and (header.operation != SEND_MESSAGES or len(unanswered) >= UNANSWERED_MAX):
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
            principal = self._caller.principal
            if principal is None or principal.meter is None:
                self._answer(header, start + HEADER_BYTES, end, now_us)
            else:
                with measure_request(self, principal.meter, end - start if header.operation == SEND_MESSAGES else 0):
                    self._answer(header, start + HEADER_BYTES, end, now_us)
            if self.is_ended:
                break
        return ReceiveResult.DONE

    def refuse_memory(self) -> None:
        header = headers.parse_request_header(self.inbox.view, self.inbox.at)
        self._evict(header, Eviction.INVALID_BODY_SIZE)

    # -- requests

    def _answer(self, header: FrameHeader, start: int, end: int, now_us: int) -> None:
        inbox = self.inbox
        body = inbox.view[start:end]
        row = operations.find_command(header.operation, header.code)
        try:
            self._check(header, row, body)
            if header.operation == SEND_MESSAGES:
                self._send(header, body, start, end, now_us)
            elif header.operation == NON_REPLICATED and header.code == POLL:
                polled = self._handlers.poller.poll(body, self._caller, now_us)
                if isinstance(polled, PolledBatches):
                    self.responses.add(self._to_parts(header, polled))
                else:
                    self.connection.run_in_worker(polled, self._hold_place(header, partial(self._to_parts, header)))
            elif header.operation != NON_REPLICATED or header.code != CANCEL:
                assert row is not None, "checked"
                self._answer_command(header, row, body)
        except NotLoaded:
            loaded = self._poll_when_loaded(memoryview(bytes(body)))
            self.connection.run(loaded, self._hold_place(header, partial(self._to_parts, header)))
        except EvictionError as eviction:
            log.info("evicting a client: %s", eviction, extra=self.connection.origin())
            self._evict(header, eviction.reason)
        except LadingError as error:
            self.responses.add(self._to_error(header, error))
        except Exception:
            # such as memory that cannot be allocated: this client gets an error, so that it is not left without a
            # response
            log.exception("a request failed", extra=self.connection.origin())
            self.responses.add(self._to_status(header, GENERIC))

    def _check(self, header: FrameHeader, row: CommandSpec | None, body: memoryview) -> None:
        """Check that a request arrived whole, and that its client has logged in if the operation needs that.

        Raises EvictionError, StatusError or MalformedMessage.
        """
        if not any(header.client) or header.operation == 0:
            raise EvictionError(Eviction.INVALID_OPERATION, "a request has no client or no operation")
        if row is None and header.operation != NON_REPLICATED:
            raise EvictionError(Eviction.INVALID_OPERATION, f"there is no operation {header.operation}")
        is_ping = header.operation == NON_REPLICATED and header.code == PING
        if self._caller.user is None and header.operation != REGISTER and not is_ping:
            if header.operation == NON_REPLICATED:
                raise StatusError(UNAUTHENTICATED, "a request came before a login")
            raise EvictionError(Eviction.NO_SESSION, "a request came before a login")
        if row is None:
            raise MalformedMessage(f"there is no command {header.code}", reason=Reason.UNKNOWN_COMMAND)
        # a login begins with its version
        version = _version_of(body) if header.operation == REGISTER else self._version
        if version is None or not version.hashes_bodies:
            return
        if header.checksum and (any(header.checksum_rest) or hash_bytes(body) != header.checksum):
            raise MalformedMessage("the body does not have the checksum of its header")

    async def _poll_when_loaded(self, body: memoryview) -> PolledBatches:
        poller = self._handlers.poller

        def poll() -> PolledBatches | Callable[[], PolledBatches]:
            return poller.poll(body, self._caller, clock_us())

        return await poll_when_loaded(poll, poller.services.workers)

    def _answer_command(self, header: FrameHeader, row: CommandSpec, body: memoryview) -> None:
        commands = self._caller.release.commands
        is_plain = row.request not in WAITING and header.operation not in (REGISTER, operations.LOGOUT)
        if is_long_command(len(body)) and is_plain:
            answered = self._answer_long(header.operation, row, bytes(body))
            self.connection.run(answered, self._hold_place(header, partial(self._to_frame, header)))
            return
        command = commands.parse_request(row.code, body)
        if (wait := WAITING.get(row.request)) is not None:
            waiting = wait(self._handlers.poller, command, self._caller)
            self.connection.run(waiting, self._hold_place(header, partial(self._to_parts, header)))
            return
        answer: bytes | Awaitable[bytes]
        if header.operation == REGISTER:
            answer = self._register(command)
        elif header.operation == operations.LOGOUT:
            answer = self._log_out()
        else:
            answer = self._carry_out(header.operation, command)
        if isinstance(answer, bytes):
            self.responses.add(self._to_frame(header, answer))
        else:
            self.connection.run(answer, self._hold_place(header, partial(self._to_frame, header)))
        self._commands_in_turn += 1

    async def _answer_long(self, operation: int, row: CommandSpec, body: bytes) -> bytes:
        """Return the body of the response to a command that a worker parses."""
        parse = partial(self._caller.release.commands.parse_request, row.code, memoryview(body))
        answer = self._carry_out(operation, await self._handlers.service.parse_in_worker(parse))
        return answer if isinstance(answer, bytes) else await answer

    def _carry_out(self, operation: int, command: Any) -> bytes | Awaitable[bytes]:
        commands = self._caller.release.commands
        command = to_update(command) if operation == operations.UPDATE_RESOURCE else command
        return self._handlers.service.answer(command, self._caller, partial(commands.encode_response, command))

    def _register(self, command: Register) -> bytes | Awaitable[bytes]:
        spoken, rest = find_version(command.version), memoryview(command.rest)
        if spoken is None:
            raise EvictionError(
                Eviction.INCOMPATIBLE_PROTOCOL,
                f"{command.sdk_name} {command.sdk_version} speaks version {command.version:#x} of the protocol",
            )
        try:
            if spoken.binds_sessions:
                # nothing to bind: each connection of a session logs in by itself in the same way
                rest = rest[operations.SECRET_BYTES :]
            name, secret = operations.parse_login(rest)
        except MalformedMessage as error:
            raise EvictionError(Eviction.MALFORMED_LOGIN, str(error)) from None
        logins, client = self._first.logins, self._caller
        self._version, client.release = spoken, spoken.release
        try:
            if name is not None and logins.try_at_once(client, name, secret):
                return self._begin_session()
        except Refusal as refusal:
            raise _to_eviction(refusal) from None
        return self._log_in(
            logins.log_in_with_token(client, secret) if name is None else logins.log_in(client, name, secret)
        )

    async def _log_in(self, login: Awaitable[None]) -> bytes:
        try:
            await login
        except Refusal as refusal:
            raise _to_eviction(refusal) from None
        return self._begin_session()

    def _begin_session(self) -> bytes:
        client, version = self._caller, self._version
        session = self._handlers.broker.iggy_producers.take_session(clock_us())
        self._handlers = self._first.of(client)
        return responses.login_block(max(client.user_id - 1, 0), session, version.number, version.server)

    def _log_out(self) -> bytes:
        client = self._caller
        client.log_in(self._first.logins.admit(), None)
        self._handlers = self._first
        self._first.broker.groups.leave_all(client.id)
        return b""

    def _send(self, header: FrameHeader, body: memoryview, start: int, end: int, now_us: int) -> None:
        inbox = self.inbox
        source = self if end == inbox.have else None
        append, partition = self._handlers.sender.send(body, inbox.array, start, source, now_us)
        if append.done and append.error is None:
            self.responses.add(self._to_frame(header, encode_place(partition, append.base_offset)))
        else:
            acknowledge = partial(self._acknowledge, header, partition, self.responses.slot())
            append.add_done_callback(acknowledge)
        if self._handlers.broker.appender.congested:
            self.connection.wait_for_disk()

    def _acknowledge(self, header: FrameHeader, partition: Partition, slot: Slot, append: Append) -> None:
        if self.is_lost:
            return
        if append.error is None:
            slot.fill(self._to_frame(header, encode_place(partition, append.base_offset)))
        else:
            slot.fill(self._to_error(header, append.error))

    def _hold_place(self, header: FrameHeader, encode: Callable[[R], Parts]) -> Callable[[Future[R]], None]:
        """Keep a response's place until the disk or a worker is done; return the callback that fills it.

        Later requests wait.
        """
        slot = self.responses.slot()
        self._is_pending = True

        def finish(done: Future[R]) -> None:
            self._is_pending = False
            try:
                slot.fill(encode(done.result()))
            except EvictionError as eviction:
                log.info("evicting a client: %s", eviction, extra=self.connection.origin())
                self._count_eviction(eviction.reason)
                self.end()
                slot.fill(self._to_eviction(header, eviction.reason))
            except LadingError as error:
                slot.fill(self._to_error(header, error))
            except Exception:
                # such as memory that cannot be allocated: the client must not wait for ever
                log.exception("a request failed", extra=self.connection.origin())
                slot.fill(self._to_status(header, GENERIC))

        return finish

    # -- responses

    def _to_frame(self, header: FrameHeader, body: bytes) -> Parts:
        self._count(header, _OK)
        if _has_result(header.operation):
            body = responses.OK + body
        return headers.reply_header(header, len(body)), body

    def _to_parts(self, header: FrameHeader, polled: PolledBatches) -> Parts:
        self._count(header, _OK)
        if polled.stubs:
            self.connection.count_dropped("unholdable", polled.stubs)
        size_bytes = sum(map(len, polled.parts))
        principal = self._caller.principal
        if principal is not None and principal.meter is not None:
            self.throttle(principal.meter.take_read(size_bytes, clock_us()))
        return headers.reply_header(header, size_bytes), *polled.parts

    def _to_error(self, header: FrameHeader, error: LadingError) -> Parts:
        """Encode a refusal: in the result section if the request could be parsed, else as the status in the header."""
        release, row = self._caller.release, operations.find_command(header.operation, header.code)
        request = None if row is None else row.request
        if release.is_missing(request, error):
            return self._to_frame(header, release.commands.encode_response(request))
        code = release.code_of(error, request)
        in_body = operations.RESULT_FIRST <= header.operation <= operations.RESULT_LAST
        # segments belong to a partition: the real server looks the partition up first, as for a send
        if header.operation == operations.DELETE_SEGMENTS:
            in_body = False
        if in_body and not isinstance(error, MalformedMessage | StatusError):
            self._count(header, code)
            body = responses.rejection(code)
            return headers.reply_header(header, len(body)), body
        return self._to_status(header, code)

    def _to_status(self, header: FrameHeader, code: int) -> Parts:
        self._count(header, code)
        return (headers.reply_header(header, 0, code),)

    def _count(self, header: FrameHeader, status: int) -> None:
        row = operations.find_command(header.operation, header.code)
        self._handlers.requests[self._handlers.name, "unknown" if row is None else row.name, str(status)] += 1

    def _evict(self, header: FrameHeader, reason: Eviction) -> None:
        """After the responses to earlier requests, send the reason of the eviction and close."""
        self._count_eviction(reason)
        self.responses.add(self._to_eviction(header, reason))
        self.end()

    def _count_eviction(self, reason: Eviction) -> None:
        self.connection.count_dropped(f"evicted_{reason.name.lower()}")
        self.inbox.at = self.inbox.have = 0
        self.lingers = True

    def _to_eviction(self, header: FrameHeader, reason: Eviction) -> Parts:
        return (headers.eviction_header(header.client, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, reason),)


def _version_of(body: memoryview) -> ProtocolVersion | None:
    """Return the protocol version that a login names, or None if it is not known here."""
    return find_version(_U32.unpack_from(body)[0]) if len(body) >= _U32.size else None


def _has_result(operation: int) -> bool:
    in_body = operations.RESULT_FIRST <= operation <= operations.RESULT_LAST
    return in_body or operation in (REGISTER, operations.STORE_OFFSET, operations.DELETE_OFFSET)
