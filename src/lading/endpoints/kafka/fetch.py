"""Fetch: stored batches are passed through; a fetch that finds too little waits until there is more (kafka.md 3).

Sessions are declined with session id 0, so that clients send full fetches (kafka.md 3.3). ``fetch.min.bytes`` is
counted over all partitions. Limits are those of the request and of ``answer_bytes_max``; the first batch of a response
is sent whole even if it is larger, so that a consumer with a small limit progresses. The ``Fetcher`` finds topics and
reads stored batches.

* Fetch 4-18. 5 first offset that is kept; 7 sessions (KIP-227); 9 leader epoch (KIP-320); 10 zstd (KIP-110); 11 rack
  of the client (KIP-392); 12 tagged fields, epoch of the last fetch (KIP-595); 13 topics by id (KIP-516); 14 tiered
  offsets (KIP-405), which this broker does not have; 15 state of a replica (KIP-903); 16 the new leader of a partition
  (KIP-951); for replicas 17 their directory (KIP-853), 18 their high watermark (KIP-1166).
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ...broker.core.append.pass_through import Ahead
from ...dialects.kafka.errors import UNKNOWN_SERVER_ERROR
from ...dialects.kafka.fetch import FetchedPartition, FetchPartition, FetchRequest, fetch_answer, parse_fetch_request
from ...dialects.kafka.requests import parse_request_header
from ...dialects.kafka.versions import FETCH, SERVED
from ...model.errors import MalformedMessage
from ...runtime.turns import ROWS_AT_ONCE, TurnCounter, Turns, take_turn
from ..base.request_budget import ROW_BYTES, ROWS_MAX, MemoryReservation
from ..base.responses import Slot
from ..base.services import now_us
from .fetch_reader import ConvertedBatches, PartitionRecords
from .fetcher import Fetcher, Place
from .filtered_fetch import FilteredFetch
from .request_context import RequestContext

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic

log = logging.getLogger(__name__)

SESSION_NOT_FOUND: Final = 70
WAIT_MS_MAX: Final = 300_000
ROWS_UNWEIGHED: Final = 4
"""A fetch that waits for at most this many partitions takes no more memory than its connection."""
FRAME_BYTES_INLINE: Final = 4 << 10
"""A request longer than this has more than a hundred partitions, and is handled in turns."""


def answer_fetch(fetcher: Fetcher, connection: RequestContext, frame: memoryview) -> None:
    """Handle the request in ``frame``. Raises MalformedMessage if the connection must be closed."""
    head = parse_request_header(frame)
    served = SERVED[FETCH]
    if not served.low <= head.version <= served.high:
        raise version_error(connection, head.version)
    request = parse_fetch_request(frame, head)
    slot = connection.responses.slot()
    if request.session_id != 0 and request.session_epoch > 0:
        refuse_session(connection, slot, request)
        return
    if fetcher.filters.of_clients:
        condition = fetcher.find_condition(connection, head.client_id)
        if condition is not None:
            FilteredFetch(fetcher, connection, slot, request, condition).begin()
            return
    by_id, topics = request.by_id, connection.fetch_topics
    places = [
        (name, topics.get((by_id, name)) or fetcher.find_topic(connection, name, by_id=by_id), wanted)
        for name, wanted in request.topics
    ]
    DelayedFetch(fetcher, connection, slot, request, places).try_now()


def version_error(connection: RequestContext, version: int) -> MalformedMessage:
    """Return why a version is not served."""
    sentence = f"version {version} of Fetch is not served"
    if version < SERVED[FETCH].low:
        connection.tell_old_format(f"{sentence}: older formats have no headers")
    return MalformedMessage(sentence)


def refuse_session(connection: RequestContext, slot: Slot, request: FetchRequest) -> None:
    """Refuse a request that relies on a session."""
    connection.count("Fetch", SESSION_NOT_FOUND)
    slot.fill(fetch_answer(request, (), SESSION_NOT_FOUND))


class DelayedFetch:
    """One Fetch from its request to its response."""

    def __init__(
        self, fetcher: Fetcher, connection: RequestContext, slot: Slot, request: FetchRequest, places: list[Place]
    ) -> None:
        self._fetcher = fetcher
        self._connection = connection
        self._slot = slot
        self._request = request
        self._places = places
        self._cancel_timer: Callable[[], None] | None = None
        """The timer that ends its wait; None while it does not wait."""
        self._unstop: Callable[[], None] | None = None
        self._watches: list[Callable[[], None]] = []
        self._waiting = self._is_over = False
        self._reservation: MemoryReservation | None = None
        """The memory reserved for the fetch while it waits for messages of many partitions."""
        self._rights_version = 0
        """The version of the rights when the fetch began to wait."""

    def try_now(self) -> None:
        """Respond, or wait for more messages."""
        self._begin_rows()
        for name, topic, wanted in self._places:
            rows: list[FetchedPartition] = []
            self._topics.append((name, rows))
            self._gather(rows, topic, wanted)
        if self._total_bytes >= self._request.min_bytes or self._may_answer():
            self._finish()
        else:
            self._wait(self._request.wait_ms)

    def _may_answer(self) -> bool:
        request = self._request
        return (
            self._is_refused
            or (self._has_more and self._total_bytes > 0)
            or request.wait_ms <= 0
            or self._is_over
            or self._fetcher.context.services.stopping
        )

    def _begin_rows(self) -> None:
        self._limit_bytes = self._fetcher.limit(self._request.max_bytes)
        self._ahead = Ahead(self._limit_bytes)
        self._total_bytes = self._count = 0
        self._is_refused = self._has_more = False
        """Whether a partition is refused, or there are more bytes than the limits allow. Then the response
        may not wait.
        """
        self._topics: list[tuple[bytes, list[FetchedPartition]]] = []
        self._to_make: list[tuple[int, int, PartitionRecords]] = []
        """The records still to be converted: index of the topic, index of the row, records."""

    def _gather(self, rows: list[FetchedPartition], topic: Topic | None, wanted: Sequence[FetchPartition]) -> None:
        """Add the rows of some partitions of the last topic."""
        committed, fetcher = self._request.committed, self._fetcher
        name, by_id = self._topics[-1][0], self._request.by_id
        for one in wanted:
            error, partition = fetcher.find_partition(self._connection, by_id, name, topic, one)
            if partition is None or error:
                self._is_refused = True
                rows.append(FetchedPartition(one.partition, error))
                continue
            room, total = self._limit_bytes - self._total_bytes, self._total_bytes
            batches = fetcher.read(partition, one, committed=committed, room=room, force=not total, ahead=self._ahead)
            self._total_bytes += batches.size_bytes
            log = partition.log
            if (batches.end_offset or one.offset) < (log.last_stable_offset if committed else log.high_watermark):
                self._has_more = True
            self._count += batches.count
            if batches.make is not None:
                self._to_make.append((len(self._topics) - 1, len(rows), batches))
            rows.append(self._describe_fetched(one, partition, batches))

    def _describe_fetched(
        self, wanted: FetchPartition, partition: Partition, batches: PartitionRecords
    ) -> FetchedPartition:
        log = partition.log
        aborted: Sequence[tuple[int, int]] = ()
        if self._request.committed and batches.end_offset > wanted.offset:
            aborted = self._fetcher.broker.producers.list_aborted(partition, wanted.offset, batches.end_offset)
        return FetchedPartition(
            wanted.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.first_offset,
            batches.parts,
            batches.size_bytes,
            aborted,
        )

    # -- waiting

    def _wait(self, wait_ms: int) -> None:
        rows_count = sum(len(wanted) for _, _, wanted in self._places)
        if self._reservation is None and rows_count > ROWS_UNWEIGHED:
            requests = self._fetcher.context.services.requests
            self._reservation = requests.hold(ROW_BYTES * rows_count, self._time_is_over)
        # release what was found, which occupies memory
        self._topics, self._to_make = [], []
        self._waiting = True
        self._begin_waiting(wait_ms)
        self._watches = [
            topic.partitions[one.partition].add_visible_callback(self._wake_up)
            for _, topic, wanted in self._places
            if topic is not None
            for one in wanted
        ]

    def _begin_waiting(self, wait_ms: int) -> None:
        if self._cancel_timer is None:
            self._rights_version = self._fetcher.broker.access.version
            delay_ms = wait_ms if wait_ms < WAIT_MS_MAX else WAIT_MS_MAX
            self._cancel_timer = self._connection.call_later(1_000 * delay_ms, self._time_is_over)
            self._connection.cancels.add(self)
            self._unstop = self._fetcher.context.services.add_stop_callback(self._time_is_over)

    def _wake_up(self) -> None:
        # read once, after this pass of the loop: several partitions may get messages in the same pass
        if self._waiting:
            self._waiting = False
            self._connection.call_soon(self._look_again)

    def _look_again(self) -> None:
        if self._cancel_timer is not None:
            self._unwatch()
            self._run_step(self._try_again)

    def _time_is_over(self) -> None:
        if self._cancel_timer is not None:
            self._is_over = True
            self._run_step(self._try_again)

    def _try_again(self) -> None:
        version = self._fetcher.broker.access.version
        if version != self._rights_version:
            self._rights_version = version
            self._find_again()
        self.try_now()

    def _find_again(self) -> None:
        """Find the topics again as for a new request: the right to read them may have been revoked during the wait."""
        by_id = self._request.by_id
        self._places = [
            (name, self._fetcher.find_topic(self._connection, name, by_id=by_id), wanted)
            for name, wanted in self._request.topics
        ]

    def _run_step(self, step: Callable[[], None]) -> None:
        """Run a step from a callback of the loop; if it fails, close the connection, so that the client does not wait
        for ever.
        """
        if self._connection.is_lost:
            self._end()
            return
        try:
            step()
        except Exception:
            log.exception("a fetch that waited failed")
            self._end()
            self._connection.refuse(self._slot, "a fetch that waited failed")

    def cancel(self) -> None:
        """Stop waiting: the client has disconnected."""
        self._end()

    def _unwatch(self) -> None:
        watches, self._watches = self._watches, []
        for cancel in watches:
            cancel()

    def _end(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
            if self._watches:
                self._unwatch()
            if self._unstop is not None:
                self._unstop()
            self._connection.cancels.discard(self)
            if self._reservation is not None:
                self._reservation.release()
                self._reservation = None

    # -- the response

    def _finish(self) -> None:
        if self._cancel_timer is not None:
            self._end()
        topics, to_make = self._topics, self._to_make
        if not to_make:
            self._answer(topics)
            return

        def make() -> list[ConvertedBatches]:
            return [batches.make() for _, _, batches in to_make if batches.make is not None]

        def made(future: Future[list[ConvertedBatches]]) -> None:
            self._run_step(partial(self._answer_made, topics, to_make, future))

        self._connection.run_in_worker(make, made)

    def _answer_made(
        self,
        topics: list[tuple[bytes, list[FetchedPartition]]],
        to_make: list[tuple[int, int, PartitionRecords]],
        future: Future[list[ConvertedBatches]],
    ) -> None:
        error = future.exception()
        if error is not None:
            log.error("a fetch across dialects failed", exc_info=error, extra=self._connection.origin())
        for number, (topic, row, batches) in enumerate(to_make):
            rows = topics[topic][1]
            if error is not None:
                rows[row] = FetchedPartition(rows[row].partition, UNKNOWN_SERVER_ERROR)
                continue
            done = future.result()[number]
            self._fetcher.batcher.keep(batches.key, done)
            self._fetcher.stubs(done.stubs)
            rows[row] = rows[row]._replace(parts=done.parts, size_bytes=done.size_bytes)
        self._answer(topics)

    def _answer(self, topics: Sequence[tuple[bytes, Sequence[FetchedPartition]]]) -> None:
        error = next((one.error for _, rows in topics for one in rows if one.error), 0)
        self._connection.count("Fetch", error)
        self._fetcher.messages_out(self._count)
        principal, throttle_ms = self._connection.principal, 0
        if principal is not None and principal.meter is not None:
            size_bytes = sum(one.size_bytes for _, rows in topics for one in rows)
            self._connection.throttle(principal.meter.take_read(size_bytes, now_us()))
            throttle_ms = self._connection.throttle_ms
        self._send(topics, throttle_ms)

    def _send(self, topics: Sequence[tuple[bytes, Sequence[FetchedPartition]]], throttle_ms: int) -> None:
        self._slot.fill(fetch_answer(self._request, topics, 0, throttle_ms))


def fetch_in_turns(fetcher: Fetcher, connection: RequestContext, frame: memoryview) -> None:
    """Handle the long request in ``frame``; later requests wait until it is read.

    Raises MalformedMessage if the connection must be closed.
    """
    head = parse_request_header(frame)
    if not SERVED[FETCH].low <= head.version <= SERVED[FETCH].high:
        raise version_error(connection, head.version)
    slot = connection.responses.slot()
    reservation = connection.take_reservation()
    # the received bytes are overwritten by the next ones
    parse = partial(parse_fetch_request, memoryview(bytes(frame)), head, ROWS_MAX)
    connection.hold(True)
    on_parsed = partial(_on_parsed, fetcher, connection, slot, reservation, head.client_id)
    connection.run_in_worker(parse, on_parsed)


def _on_parsed(
    fetcher: Fetcher,
    connection: RequestContext,
    slot: Slot,
    reservation: MemoryReservation,
    client_id: str | None,
    parsed: Future[FetchRequest],
) -> None:
    try:
        request = parsed.result()
        if request.session_id != 0 and request.session_epoch > 0:
            connection.release(reservation)
            refuse_session(connection, slot, request)
        elif (condition := fetcher.find_condition(connection, client_id)) is not None:
            connection.release(reservation)
            FilteredFetch(fetcher, connection, slot, request, condition).begin()
        else:
            rows_count = len(request.topics) + sum(len(wanted) for _, wanted in request.topics)
            reservation.shrink(ROW_BYTES * rows_count)
            LongFetch(fetcher, connection, slot, request, []).begin(reservation)
    except MalformedMessage as error:
        connection.release(reservation)
        connection.refuse(slot, str(error))
    finally:
        connection.hold(False)


class LongFetch(DelayedFetch):
    """One Fetch of hundreds of partitions: a worker parses and encodes it, its partitions are read in turns.

    Its client sees no difference, except that messages that arrive during the reads are in this response or the next.
    """

    _work: Turns[None]
    _held: MemoryReservation
    """Memory for its rows, held until the response."""
    _is_woken = _is_looking = False
    """Whether more arrived during the reads, which are then repeated, and whether the reads are in progress."""

    def begin(self, reservation: MemoryReservation) -> None:
        """Read for the first time."""
        self._held = reservation
        reservation.set_revocable(self._time_is_over)
        self._connection.cancels.add(self)
        self.try_now()

    def try_now(self) -> None:
        """Read all partitions, in turns; then respond, or wait."""
        self._is_looking, self._is_woken = True, False
        self._work = self._look()
        self._take_turn()

    def _take_turn(self) -> None:
        if not self._is_looking:
            return
        try:
            take_turn(self._work)
        except StopIteration:
            self._is_looking = False
            self._finish_or_wait()
        else:
            self._connection.call_soon(partial(self._run_step, self._take_turn))

    def _look(self) -> Turns[None]:
        turn = TurnCounter()
        if not self._places:
            yield from self._find_topics(turn)
        self._unwatch()
        if self._request.wait_ms > 0 and not self._is_over:
            # before the reads, so that messages that arrive after a partition's read are noticed
            self._begin_waiting(self._request.wait_ms)
            yield from self._watch(turn)
        self._begin_rows()
        for name, topic, wanted in self._places:
            rows: list[FetchedPartition] = []
            self._topics.append((name, rows))
            for at in range(0, len(wanted), ROWS_AT_ONCE):
                some = wanted[at : at + ROWS_AT_ONCE]
                self._gather(rows, topic, some)
                if turn.is_over(len(some)):
                    yield

    def _find_again(self) -> None:
        # the reads in progress are repeated, and find these messages
        self._places = []

    def _find_topics(self, turn: TurnCounter) -> Turns[None]:
        fetcher, by_id = self._fetcher, self._request.by_id
        for name, wanted in self._request.topics:
            known = self._connection.fetch_topics.get((by_id, name))
            topic = known or fetcher.find_topic(self._connection, name, by_id=by_id)
            self._places.append((name, topic, wanted))
            if turn.is_over():
                yield

    def _watch(self, turn: TurnCounter) -> Turns[None]:
        for _, topic, wanted in self._places:
            partitions = topic.partitions if topic is not None else ()
            for one in wanted:
                if 0 <= one.partition < len(partitions):
                    self._watches.append(partitions[one.partition].add_visible_callback(self._wake_up))
                if turn.is_over():
                    yield

    def _finish_or_wait(self) -> None:
        if self._total_bytes >= self._request.min_bytes or self._may_answer():
            self._end()
            self._finish()
        elif self._is_woken:
            self.try_now()
        else:
            # release what was found, which occupies memory
            self._topics, self._to_make = [], []
            self._waiting = True

    def _wake_up(self) -> None:
        self._is_woken = True
        super()._wake_up()

    def _look_again(self) -> None:
        # the fetch may have ended since this was called
        if not self._is_looking:
            super()._look_again()

    def _time_is_over(self) -> None:
        self._is_over = True
        # otherwise the reads in progress are the last
        if not self._is_looking:
            super()._time_is_over()

    def _end(self) -> None:
        self._is_looking = self._waiting = False
        super()._end()
        self._connection.cancels.discard(self)

    def _send(self, topics: Sequence[tuple[bytes, Sequence[FetchedPartition]]], throttle_ms: int) -> None:
        encode = partial(fetch_answer, self._request, topics, 0, throttle_ms)
        self._connection.run_in_worker(encode, self._on_encoded)

    def cancel(self) -> None:
        super().cancel()
        self._connection.release(self._held)

    def _on_encoded(self, encoded: Future[list[bytes | bytearray | memoryview]]) -> None:
        self._connection.release(self._held)
        self._run_step(lambda: self._slot.fill(encoded.result()))
