"""One Kafka client: frames in, responses out in the order of the requests, several in progress at a time
(kafka.md 3).
"""

from __future__ import annotations

import logging
import struct
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from ...broker.core.access.principal import Principal
from ...broker.core.access.quotas import QuotaMeter
from ...broker.core.callbacks import ignore
from ...dialects.kafka import versions
from ...dialects.kafka.fields import RowsExceeded
from ...dialects.kafka.requests import (
    HEAD,
    LENGTH_BYTES,
    RequestHeader,
    decode_request,
    encode_answer,
    encode_unsupported_versions,
    has_throttle_time,
    is_prepared,
    parse_request_header,
    prepare_codec,
)
from ...dialects.kafka.row_count import decode_bounded_request
from ...model.errors import MalformedMessage
from ..base.deadlines import Stage
from ..base.inbox import no_progress_error
from ..base.peer import name_iggy_client, name_other_protocol
from ..base.request_budget import ROW_BYTES, ROWS_MAX, MemoryReservation, weigh_request
from ..base.responses import Slot
from ..base.services import now_us
from ..base.session import ConnectionHandle, Peer, ProtocolSession, ReceiveResult, SessionLimits
from ..base.sizes import count_listed
from ..io.lent_lines import LoanCountdown
from .fetch import FRAME_BYTES_INLINE, answer_fetch, fetch_in_turns
from .fetcher import Fetcher
from .handling import (
    Answer,
    ConstantFields,
    Context,
    Fields,
    Framed,
    Handler,
    Request,
    Session,
    has_more_rows,
)
from .lent_produces import LentProduces
from .produce import ProduceHandler
from .request_context import ProduceHead

R = TypeVar("R")

log = logging.getLogger(__name__)

REQUESTS_PER_TURN: Final = 32
"""Produce and Fetch requests of one connection that begin before others have their turn."""
OTHER_REQUEST_COST: Final = 16
"""Any other request counts as this many of them."""
UNANSWERED_MAX: Final = 128
"""Requests of one connection that may be in progress; more begin when some are completed."""

ROWS_INLINE: Final = 200
"""A response with more rows than this is encoded by a worker: a thousand rows take five milliseconds."""

BODY_BYTES_INLINE: Final = 4 << 10
"""A longer body of a rare request is decoded by a worker: it has hundreds of names, which take ten
microseconds each.
"""

BEFORE_LOGIN: Final = frozenset({versions.API_VERSIONS, versions.SASL_HANDSHAKE, versions.SASL_AUTHENTICATE})
"""The error for a client that has to log in first."""

_FETCH: Final = versions.FETCH
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class KafkaHandlers:
    """Handlers of the requests of all sessions of one endpoint."""

    context: Context
    producer: ProduceHandler
    fetcher: Fetcher
    rare: Mapping[int, Handler]
    """Handlers by API key, for everything but Produce and Fetch."""
    advertised_keys: list[int]
    """Keys of the APIs that ApiVersions lists."""
    lent: LentProduces | None
    session_ids: Iterator[int] = field(default_factory=partial(count, 1))


class KafkaSession(ProtocolSession):
    """One client; produce and fetch see it as a ``RequestContext``."""

    limits = SessionLimits(unanswered_max=UNANSWERED_MAX, write_buffer_bytes=1 << 20)

    def __init__(self, handlers: KafkaHandlers, connection: ConnectionHandle) -> None:
        super().__init__(connection)
        self._services = services = handlers.context.services
        self._handlers = handlers
        self._request_bytes_max = handlers.context.settings.request_bytes_max
        self._requests = services.metrics.requests.values
        self._appender = services.broker.appender
        self._client: Session | None = None
        self._must_log_in = False
        """Whether only a login is served."""
        self._cancel_revoked: Callable[[], None] = ignore
        self._act_for("")
        self._is_old = False
        """Whether the log already says that the client is older than message format 2."""
        self._is_held = False
        """Whether requests wait for the one before them."""
        self._reservation: MemoryReservation | None = None
        """The memory reserved for the long request that begins next."""
        self._reservations: set[MemoryReservation] = set()
        """The memory of requests that end with the connection."""
        self.principal: Principal | None = None
        self.produce_head_bytes = 0
        self.produced: ProduceHead | None = None
        self._lent = handlers.lent
        self.loan = LoanCountdown()
        self.throttle_end_us = 0
        self.cancels: set[Any] = set()
        """Long polls that wait, each with ``cancel()``."""

    # -- what the connection calls

    def begin(self, peer: Peer, now_us: int) -> bool:
        context = self._handlers.context
        self._client = Session(next(self._handlers.session_ids), peer.host, peer.here, self._log_in, self.end)
        principal = context.broker.access.admit(is_open=context.settings.allow_unauthenticated)
        if principal is None:
            self._must_log_in = True
        else:
            self._log_in(principal)
        return True

    def accept_certificate(self, principal: Principal) -> None:
        self._log_in(principal)

    def _log_in(self, principal: Principal) -> None:
        assert self._client is not None
        self._cancel_revoked()
        self._client.principal = self.principal = principal
        self._must_log_in = False
        self._cancel_revoked = principal.add_revoked_callback(self.connection.abort)
        self._act_for(principal.name)

    def _act_for(self, user: str) -> None:
        """Use the routes and topics known for this user, which all its connections share."""
        self.produce_routes = self._handlers.producer.routes.of(user)
        self.fetch_topics = self._handlers.fetcher.topics.of(user)

    def receive(self, now_us: int) -> ReceiveResult:
        inbox, unanswered, requests_left = self.inbox, self.responses.waiting, REQUESTS_PER_TURN
        while inbox.have - inbox.at >= LENGTH_BYTES:
            (size,) = _SIZE.unpack_from(inbox.view, inbox.at)
            if not 0 <= size <= self._request_bytes_max:
                too_long = f"a request claims {size} bytes; the limit is {self._request_bytes_max}"
                self.close_on_error(name_other_protocol(inbox.unread) or too_long)
                break
            start = inbox.at + LENGTH_BYTES
            end = start + size
            if end > inbox.have:
                if not self.requests_count and (other := name_iggy_client(inbox.unread)) is not None:
                    self.close_on_error(other)
                break
            if (
                self.is_blocked
                or self.is_congested
                or self._is_held
                or self.is_ended
                or len(unanswered) >= UNANSWERED_MAX
            ):
                return ReceiveResult.WAIT
            if requests_left <= 0:
                return ReceiveResult.TURN
            # compare only the low byte of the API key: Produce and Fetch cost a tenth of other requests, even short
            # ones of which may have a long response
            requests_left -= 1 if size > 1 and inbox.view[start + 1] <= _FETCH else OTHER_REQUEST_COST
            if end <= inbox.at:
                raise no_progress_error()
            is_produce = size < HEAD.size or not (inbox.view[start] or inbox.view[start + 1])
            if size > BODY_BYTES_INLINE and not is_produce and not self._has_memory(size):
                return ReceiveResult.WAIT
            inbox.at = end
            self.requests_count += 1
            if self.requests_count == 1:
                self.connection.settle()
            try:
                if is_produce and self._reservation is not None:
                    self._handlers.producer.receive_many(self, start, end)
                elif self.principal is None or self.principal.meter is None:
                    self._begin_request(start, end)
                else:
                    self._begin_metered(self.principal.meter, start, end)
            except RowsExceeded:
                # a Produce of many partitions, of which nothing has begun: it is read again once its memory is reserved
                inbox.at = start - LENGTH_BYTES
                self.requests_count -= 1
                if not self._has_memory(size):
                    return ReceiveResult.WAIT
            except MalformedMessage as error:
                is_first = self.requests_count == 1
                other = name_iggy_client(inbox.view[start - LENGTH_BYTES : inbox.have]) if is_first else None
                self.close_on_error(other or str(error))
                break
            except Exception:
                log.exception("a request failed", extra=self.origin())
                self.close_on_error("the request failed")
                break
        if self.loan.requests_left <= 0 and self._lent is not None:
            self.loan.restart()
            self.connection.lend_soon(self)
        return ReceiveResult.DONE

    def find_line(self) -> int | None:
        principal, head = self.principal, self.produced
        is_metered = principal is not None and principal.meter is not None
        if self._lent is None or head is None or is_metered or self._must_log_in:
            return None
        return self._lent.add(head, self.produce_routes)

    def add_lent(self, requests_count: int, heard_us: int) -> None:
        self.requests_count += requests_count
        self.loan.note_used()

    def refuse_memory(self) -> None:
        self.close_on_error("memory for requests is used up")

    def lose(self) -> None:
        if self.inbox.have > self.inbox.at and not self.is_ended:
            self.connection.count_dropped("truncated")
        # in turns: hundreds of clients that leave together may have a hundred requests each
        self._services.partings.call(self._end_requests())
        self._cancel_revoked()
        if self._client is not None:
            callbacks, self._client.on_lost = self._client.on_lost, []
            for callback in callbacks:
                callback()
            # a login that ends later has no effect; and the two refer to each other, so that only the collector would
            # free them
            self._client.log_in, self._client.end = lambda principal: None, lambda: None
        self._cancel_revoked = ignore

    def _end_requests(self) -> Iterator[Callable[[], object]]:
        """Yield functions that end each waiting request and release its memory."""
        if self._reservation is not None:
            yield self._reservation.release
        while self._reservations:
            yield self._reservations.pop().release
        while self.cancels:
            yield self.cancels.pop().cancel

    def stage(self) -> Stage:
        unanswered = self.responses.waiting
        if self.is_congested or self._is_held or self.is_ended or len(unanswered) >= UNANSWERED_MAX:
            return Stage.BUSY
        if not self.requests_count:
            return Stage.FIRST
        if self.inbox.have > self.inbox.at:
            return Stage.PARTIAL
        return Stage.IDLE if self.responses.is_empty else Stage.BUSY

    @property
    def is_busy(self) -> bool:
        return self._is_held or not self.responses.is_empty

    # -- what produce and fetch see

    def origin(self) -> dict[str, str]:
        """Return the ``extra`` of log lines about this connection."""
        return self.connection.origin()

    def count(self, name: str, error: int) -> None:
        """Count a response in the metrics."""
        self._requests[self._handlers.context.name, name, str(error)] += 1

    def hold(self, is_held: bool) -> None:
        """Make later requests wait for the work of this one, or let them continue."""
        self._is_held = is_held
        if not is_held:
            self.connection.proceed()

    def run_in_worker(self, work: Callable[[], R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when a worker has done ``work``, unless the client disconnects before."""
        self.connection.run_in_worker(work, on_done)

    def run_to_end(self, work: Awaitable[R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when ``work`` is done, even if the client disconnects before."""
        self.connection.run_to_end(work, on_done)

    def take_reservation(self) -> MemoryReservation:
        """Return the memory reserved for the long request that begins; it is released by ``release`` or at the
        connection's end.
        """
        reservation = self._take_reservation()
        assert reservation is not None
        self._reservations.add(reservation)
        return reservation

    def release(self, reservation: MemoryReservation) -> None:
        """Release the memory of a completed request."""
        self._reservations.discard(reservation)
        reservation.release()

    def _take_reservation(self) -> MemoryReservation | None:
        reservation, self._reservation = self._reservation, None
        return reservation

    def _has_memory(self, size_bytes: int) -> bool:
        """Return whether there is memory for a long request once it is decoded; if not, the request begins when there
        is.
        """
        if self._reservation is None:
            on_granted = partial(self.hold, False)
            self._reservation = self._services.requests.reserve(weigh_request(size_bytes), on_granted)
        self._is_held = not self._reservation.is_granted
        return not self._is_held

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next pass of the event loop, even if the client has disconnected."""
        self.connection.call_soon(callback)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after ``delay_us``, even if the client has disconnected; call the returned function to
        cancel it.
        """
        return self.connection.call_later(delay_us, callback)

    def wait_for_disk(self) -> None:
        """Begin no further requests while the broker is congested; called after an append."""
        if self._appender.congested:
            self.connection.wait_for_disk()

    def tell_old_format(self, sentence: str) -> None:
        """Log once that the client is older than message format 2."""
        if not self._is_old:
            self._is_old = True
            log.warning("a client before message format 2 (Kafka 0.11) is refused: %s", sentence, extra=self.origin())

    def close_on_error(self, why: str) -> None:
        """Close the connection after the responses to earlier requests, as Kafka does."""
        if not self.is_ended:
            self.end()
            self.connection.count_dropped("closed")
            log.info("closing the connection: %s", why, extra=self.origin())

    def refuse(self, slot: Slot, why: str) -> None:
        """Send no response for a request: the connection is closed once all earlier responses are sent."""
        self.close_on_error(why)
        slot.fill(())

    # -- requests

    def _begin_request(self, start: int, end: int) -> None:
        view = self.inbox.view
        key = view[start] << 8 | view[start + 1] if end - start >= HEAD.size else -1
        if self._must_log_in and key not in BEFORE_LOGIN:
            raise MalformedMessage("a request came before a login; use SASL")
        if key == versions.PRODUCE:
            self._handlers.producer.receive(self, start, end)
        elif key == versions.FETCH:
            if end - start > FRAME_BYTES_INLINE:
                fetch_in_turns(self._handlers.fetcher, self, view[start:end])
            else:
                answer_fetch(self._handlers.fetcher, self, view[start:end])
        else:
            self._dispatch(view[start:end])

    def _begin_metered(self, meter: QuotaMeter, start: int, end: int) -> None:
        """Begin a request of a user with a quota; the user's next requests wait until the quota has room again."""
        begun_us = now_us()
        view = self.inbox.view
        if end - start >= HEAD.size and view[start] << 8 | view[start + 1] == versions.PRODUCE:
            # before the request begins: a response that is ready at once contains the throttle time
            self.throttle(meter.take_produced(end - start, begun_us))
        self._begin_request(start, end)
        if meter.times_requests:
            end_us = now_us()
            self.throttle(meter.take_time(end_us - begun_us, end_us))

    def throttle(self, delay_us: int) -> None:
        if delay_us:
            self.throttle_end_us = max(self.throttle_end_us, now_us() + delay_us)
            super().throttle(delay_us)

    @property
    def throttle_ms(self) -> int:
        """How long the client should send nothing, for the field ``throttle_time_ms``."""
        return max(0, -(-(self.throttle_end_us - now_us()) // 1_000))

    def _dispatch(self, frame: memoryview) -> None:
        head = parse_request_header(frame)
        handler = self._handlers.rare.get(head.key)
        served = versions.SERVED.get(head.key)
        if handler is None or served is None:
            raise MalformedMessage(f"API key {head.key} is not supported")
        if not served.low <= head.version <= served.high:
            if head.key != versions.API_VERSIONS:
                raise MalformedMessage(f"{served.name} version {head.version} is not supported")
            self.responses.add((encode_unsupported_versions(head.correlation, self._handlers.advertised_keys),))
            return
        body = frame[head.body_at :]
        if len(frame) > BODY_BYTES_INLINE or not is_prepared(head.key, head.version):
            reservation = self._take_reservation()
            # the received bytes are overwritten by the next ones
            work = self._decode_and_handle(handler, head, memoryview(bytes(body)), reservation)
            self._answer_later(head, work, reservation)
            return
        answer = self._handle(handler, head, decode_request(head.key, head.version, body))
        if isinstance(answer, Coroutine):
            self._answer_later(head, self._finish(head.key, answer))
        elif isinstance(answer, Awaitable):
            self._answer_later(head, answer)
        else:
            self._fill(self.responses.slot(), head.key, head.version, head.correlation, answer)

    def _handle(self, handler: Handler, head: RequestHeader, body: Any) -> Answer:
        assert self._client is not None
        return handler(self._client, Request(head.key, head.version, head.client_id, body))

    def _answer_later(
        self, head: RequestHeader, answer: Awaitable[Fields | Framed], reservation: MemoryReservation | None = None
    ) -> None:
        slot = self.responses.slot()
        on_answered = partial(self._on_answered, slot, head.key, head.version, head.correlation, reservation)
        self._is_held = isinstance(answer, Coroutine)
        self.connection.run_to_end(answer, on_answered)

    async def _decode_and_handle(
        self, handler: Handler, head: RequestHeader, body: memoryview, reservation: MemoryReservation | None
    ) -> Fields | Framed:
        """Return the response to a request that a worker decodes: a long one, or the first of its version.

        Later requests wait for the work of this one, but not for events that it waits for.
        """
        try:
            decode = partial(decode_bounded_request, head.key, head.version, ROWS_MAX)
            if not is_prepared(head.key, head.version):
                await self._services.run_in_worker(1, 0, partial(prepare_codec, head.key), head.version)
            decoded = await self._services.run_in_worker(len(body), BODY_BYTES_INLINE, decode, body)
            answer = self._handle(handler, head, decoded)
            if isinstance(answer, Coroutine):
                answer = await answer
        finally:
            self.hold(False)
        if isinstance(answer, Awaitable):
            if reservation is not None:
                # release its memory: it may wait for minutes, and no longer needs the request
                reservation.release()
            answer = await answer
        return answer

    async def _finish(self, key: int, work: Coroutine[Any, Any, Fields | Framed]) -> Fields | Framed:
        """Return the response of work in turns, or of a change; later requests wait.

        It waits for memory: even a short request may list everything that the broker has.
        """
        reservation = None
        try:
            if key not in BEFORE_LOGIN:
                rows_count = count_listed(self._handlers.context.broker)
                reservation = await self._services.requests.wait_for(ROW_BYTES * rows_count)
            return await work
        finally:
            if reservation is None:
                work.close()
            else:
                reservation.release()
            self.hold(False)

    def _on_answered(
        self, slot: Slot, key: int, version: int, correlation: int, reservation: MemoryReservation | None,
        answer: Future[Fields],
    ) -> None:  # fmt: skip
        if reservation is not None:
            # from here on the work ends with the connection
            self._reservations.add(reservation)
            if self.is_lost or answer.cancelled() or answer.exception() is not None:
                self.release(reservation)
        if answer.cancelled():
            return
        try:
            fields = answer.result()
            if not self.is_lost:
                self._fill(slot, key, version, correlation, fields, reservation)
        except Exception as error:
            if not isinstance(error, MalformedMessage):
                log.exception("%s failed", versions.SERVED[key].name, extra=self.origin())
            # break the cycle: the frames of the error, including this one, refer to it and would keep the connection
            error.__traceback__ = None
            self.refuse(slot, str(error))

    def _fill(
        self, slot: Slot, key: int, version: int, correlation: int, answer: Fields | Framed,
        reservation: MemoryReservation | None = None,
    ) -> None:  # fmt: skip
        """Fill the response's slot; a worker encodes a long response."""
        name = versions.SERVED[key].name
        encode: Callable[[], bytes]
        if isinstance(answer, Framed):
            error, encode = answer.error, partial(answer.frame, correlation)
            is_long = answer.rows_count > ROWS_INLINE
        else:
            error = answer.get("error_code", 0)
            if self.throttle_end_us and has_throttle_time(key):
                answer = {**answer, "throttle_time_ms": self.throttle_ms}
            if isinstance(answer, ConstantFields):
                is_long, encode = False, partial(answer.encode, key, version, correlation)
            else:
                is_long = has_more_rows(answer, ROWS_INLINE)
                encode = partial(encode_answer, key, version, correlation, answer)
        self.count(name, error)
        if not is_long:
            slot.fill((encode(),))
            if reservation is not None:
                self.release(reservation)
            return

        def finish(work: Future[bytes]) -> None:
            if reservation is not None:
                self.release(reservation)
            error = work.exception()
            if error is None:
                slot.fill((work.result(),))
            else:
                log.error("%s failed", name, exc_info=error, extra=self.origin())
                self.refuse(slot, str(error))

        self.connection.run_in_worker(encode, finish)
