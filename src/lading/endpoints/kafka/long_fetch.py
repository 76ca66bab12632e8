"""A Fetch of hundreds of partitions: a worker parses and encodes it, its partitions are read in turns.

Its client sees no difference, except that messages that arrive during the reads are in this response or the next.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from functools import partial
from typing import Final

from ...dialects.kafka.fetch import FetchedPartition, FetchRequest, fetch_answer, parse_fetch_request
from ...dialects.kafka.requests import parse_request_header
from ...dialects.kafka.versions import FETCH, SERVED
from ...model.errors import MalformedMessage
from ...runtime.turns import ROWS_AT_ONCE, TurnCounter, Turns, take_turn
from ..base.request_budget import ROW_BYTES, ROWS_MAX, MemoryReservation
from ..base.responses import Slot
from .fetch import DelayedFetch, refuse_session, version_error
from .fetcher import Fetcher
from .request_context import RequestContext

FRAME_BYTES_INLINE: Final = 4 << 10
"""A longer request has more than a hundred partitions."""


def fetch_in_turns(fetcher: Fetcher, connection: RequestContext, frame: memoryview) -> None:
    """Handle the long request in ``frame``; later requests wait until it is read.

    Raises MalformedMessage if the connection must be closed.
    """
    head = parse_request_header(frame)
    if not SERVED[FETCH].low <= head.version <= SERVED[FETCH].high:
        raise version_error(connection, head.version)
    slot = connection.responses.slot()
    reservation = connection.take_reservation()
    # what was received is overwritten by what comes next
    parse = partial(parse_fetch_request, memoryview(bytes(frame)), head, ROWS_MAX)
    connection.hold(True)
    connection.run_in_worker(parse, partial(_on_parsed, fetcher, connection, slot, reservation))


def _on_parsed(
    fetcher: Fetcher,
    connection: RequestContext,
    slot: Slot,
    reservation: MemoryReservation,
    parsed: Future[FetchRequest],
) -> None:
    try:
        request = parsed.result()
        if request.session_id != 0 and request.session_epoch > 0:
            connection.release(reservation)
            refuse_session(connection, slot, request)
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
    """One Fetch of many partitions."""

    _work: Turns[None]
    _held: MemoryReservation
    """Memory for its rows, until the response."""
    _is_woken = _is_looking = False
    """There was more while it looked; it looks."""

    def begin(self, reservation: MemoryReservation) -> None:
        """Look for the first time."""
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
            self._decide()
        else:
            self._connection.call_soon(partial(self._go_on, self._take_turn))

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
        # the look finds them, in turns
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
                    self._watches.append(partitions[one.partition].add_visible_callback(self._more))
                if turn.is_over():
                    yield

    def _decide(self) -> None:
        if self._total_bytes >= self._request.min_bytes or self._may_answer():
            self._end()
            self._finish()
        elif self._is_woken:
            self.try_now()
        else:
            # what was found keeps memory
            self._topics, self._to_make = [], []
            self._waiting = True

    def _more(self) -> None:
        self._is_woken = True
        super()._more()

    def _look_again(self) -> None:
        # its time may be over since this was called for
        if not self._is_looking:
            super()._look_again()

    def _time_is_over(self) -> None:
        self._is_over = True
        # else the look that is under way is the last
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
        self._go_on(lambda: self._slot.fill(encoded.result()))
