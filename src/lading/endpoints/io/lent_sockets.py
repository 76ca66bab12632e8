"""A pass over lent sockets: reads all that are ready, takes their requests together, sends all responses.

Most clients wait for each response, and send the same kind of small request again. Once a session knows what the next
ones begin with, its connection lends its socket (``fast_connection``) to the pass of its endpoint, which has an epoll
of its own and kernels: some read all ready sockets and keep whole requests of the known line apart from all else, one
sends the responses to all. Between them the protocol appends all requests of a line at once.

Nothing else is done here. Bytes that are not exactly one known request go back with their socket to the connection,
which receives them as if the socket had never been lent; so does a socket that has ended, and one whose client does not
take its response. The meaning of a line is looked up again in each pass, so that no change of topics or rights is
missed.
Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import numpy as np

from ...kernels import engine
from ...kernels.arrays import Bytes, Longs, Table
from ...kernels.lent_layout import (
    COUNT,
    EVENT_BYTES,
    HEARD_US,
    IS_LENT,
    LINE,
    OTHER_COLUMNS,
    OWED,
    ROW_COLUMNS,
    SCRATCH_BYTES,
    SOCKETS_MAX,
)
from ..base.responses import Parts, ResponsePlace, Slot
from ..base.services import Services

log = logging.getLogger(__name__)

SOCKET_KERNELS: Final = "lading.kernels.socket_kernels"
_ROWS_MIN: Final = 256
SLOW_PASS_US: Final = 100_000
"""A pass that takes this long is reported: it serves 512 sockets at most, which takes a few milliseconds."""
SLOW_PASS_EVERY_US: Final = 60_000_000
"""Time between two such lines."""

Responses = Bytes
"""A table of bytes with a row for each response; all have one size."""


class PendingResponse(Protocol):
    """Requests that were begun together, and their responses."""

    answers: bytes
    """The response that each of them gets, or one for each in their order; see ``LentProtocol.has_own_responses``."""
    done: bool
    slots: list[ResponsePlace]


class LendingConnection(Protocol):
    """A connection whose socket is lent."""

    def take_back(self, received: Bytes | None = None) -> None:
        """Serve the socket again; ``received`` are the bytes that the borrower has read from it and not handled."""

    def take_back_with_unsent(self, response: bytes) -> None:
        """Serve the socket again, and send the rest of a response."""

    def wait_for_disk(self) -> None:
        """Begin no more requests until the disk has caught up."""

    def abort(self) -> None:
        """Close the connection at once."""


class PassBuffers:
    """The arrays of a pass, which its kernels fill."""

    __slots__ = ("events", "facts", "files", "others", "rows", "scratch", "spans", "unsent")

    def __init__(self, fact_columns: int) -> None:
        self.rows: Table = np.zeros((_ROWS_MIN, ROW_COLUMNS), np.int64)
        """A row for each socket, by its file number."""
        self.events: Bytes = np.zeros(SOCKETS_MAX * EVENT_BYTES, np.uint8)
        self.scratch: Bytes = np.zeros(SCRATCH_BYTES, np.uint8)
        self.files: Longs = np.zeros(SOCKETS_MAX, np.int64)
        self.spans: Table = np.zeros((SOCKETS_MAX, 2), np.int64)
        self.facts: Table = np.zeros((SOCKETS_MAX, fact_columns), np.int64)
        """The facts of each request, as its protocol has them."""
        self.others: Table = np.zeros((SOCKETS_MAX, OTHER_COLUMNS), np.int64)
        self.unsent: Table = np.zeros((SOCKETS_MAX, 2), np.int64)

    def grow(self, rows_count: int) -> None:
        """Have a row for each file number below ``rows_count``."""
        while len(self.rows) < rows_count:
            self.rows = np.vstack((self.rows, np.zeros_like(self.rows)))


class LentRequests:
    """Requests of one kind that a pass has read: their sockets, places in ``scratch`` and facts, in one order."""

    __slots__ = ("_is_whole", "facts", "files", "left", "scratch", "spans")

    def __init__(self, source: PassBuffers | LentRequests, chosen: Longs | slice) -> None:
        self.files: Longs = source.files[chosen]
        self.spans: Table = source.spans[chosen]
        self.facts: Table = source.facts[chosen]
        self.scratch: Bytes = source.scratch
        self._is_whole = isinstance(chosen, slice)
        self.left: LentRequests | None = None
        """The requests that ``keep`` has left out."""

    def keep(self, places: Sequence[int]) -> None:
        """Have only these requests begin: the connections handle the others themselves."""
        chosen = np.array(places, np.int64)
        self.left = LentRequests(self, np.setdiff1d(np.arange(len(self.files)), chosen))
        self.files, self.spans, self.facts = self.files[chosen], self.spans[chosen], self.facts[chosen]
        self._is_whole = False

    def join(self) -> Bytes:
        """Return the bytes of all requests, one after the other, of a protocol that has them so in ``scratch``."""
        if self._is_whole:
            return self.scratch[: self.spans[-1, 1]]
        return np.concatenate([self.scratch[start:end] for start, end in self.spans.tolist()])


class LentProtocol(Protocol):
    """The part of a protocol in a pass over sockets that its sessions have lent."""

    fact_columns: int
    """Columns of the facts of a request; 0 if a protocol needs none."""
    has_own_responses: bool
    """Whether each request has a response of its own, all of one size; else all get the same."""

    @property
    def is_ready(self) -> bool:
        """Whether its kernels are loaded, which asks for them."""

    def receive(self, epoll: int, buffers: PassBuffers, now_us: int) -> tuple[int, int, int, int, int]:
        """Read the sockets that are ready, and keep whole requests apart from all else.

        Returns how many requests there are, at the front of ``files``, ``spans`` and ``facts``, how many ``others``,
        the bytes of the requests, their kind, -1 if they have several, and a number below 0 after a failure.
        """

    def list_kinds(self, buffers: PassBuffers, count: int) -> Longs:
        """Return the kind of each of the first ``count`` requests: those of one kind are begun together."""

    def begin(self, kind: int, requests: LentRequests, now_us: int) -> PendingResponse | None:
        """Begin requests of one kind; return None if they are refused, and none of them was begun.

        Of ``requests`` it may ``keep`` some, and begin only those.
        """

    def release(self, line: int) -> None:
        """Note that a socket with this line has been taken back."""


class LentPlaces:
    """The places of the responses to requests of lent sockets, which wait for the disk: as a ``Slot``, for many."""

    __slots__ = ("_files", "_moved", "_number", "_pass")

    def __init__(self, owner: SocketPass, files: Longs, number: int) -> None:
        self._pass, self._files, self._number = owner, files, number
        self._moved: list[tuple[int, Slot]] = []

    def move(self, file: int, slot: Slot) -> None:
        """Fill this slot with the response to the request of a socket that has been taken back."""
        self._moved.append((self._files.tolist().index(file), slot))

    def fill(self, parts: Parts) -> None:
        """Send the responses to all of them."""
        responses = self._pass.divide(b"".join(parts), len(self._files))
        self._pass.fill(self._files, self._number, responses)
        for index, slot in self._moved:
            slot.fill((responses[min(index, len(responses) - 1)].tobytes(),))


class SocketPass:
    """The sockets that connections of one endpoint have lent, and the pass over them."""

    def __init__(self, services: Services, name: str, protocol: LentProtocol, clock: Callable[[], int]) -> None:
        self._services = services
        self._protocol = protocol
        self._clock = clock
        self._labels = (name,)
        self._received_bytes = services.metrics.received_bytes.values
        self._sent_bytes = services.metrics.sent_bytes.values
        self._epoll: select.epoll | None = None
        """Opened with the first socket that is lent."""
        self._buffers: PassBuffers
        self._connections: dict[int, LendingConnection] = {}
        self._places: dict[int, LentPlaces] = {}
        """Sockets that wait for the disk, by number."""
        self._places_count = 0
        self._next_report_us = 0
        """The time from which on a slow pass is reported again."""
        self._send: Any = None

    @property
    def is_ready(self) -> bool:
        """Whether sockets can be lent; if not, what is missing is loaded."""
        kernels = engine.get_loaded(SOCKET_KERNELS)
        if kernels is None or not self._protocol.is_ready:
            return False
        self._send = kernels.send_responses
        return True

    def lend(self, connection: LendingConnection, file: int, line: int) -> None:
        """Serve the socket ``file`` from the next pass on: its requests begin with ``line``. Raises OSError."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._buffers = PassBuffers(self._protocol.fact_columns)
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._serve)
        self._epoll.register(file, select.EPOLLIN)
        self._buffers.grow(file + 1)
        self._buffers.rows[file] = 1, line, 0, 0, 0
        self._connections[file] = connection

    def find(self, file: int) -> LendingConnection | None:
        """Return the connection that has lent this file, if one has."""
        return self._connections.get(file)

    def take_counts(self, file: int) -> tuple[int, int]:
        """Return how many requests of a lent socket were begun since the last call, and when the last one came."""
        row = self._buffers.rows[file]
        count, heard_us = int(row[COUNT]), int(row[HEARD_US])
        row[COUNT] = 0
        return count, heard_us

    def give_back(self, file: int) -> LentPlaces | None:
        """Serve the socket no longer. Return the places of its response, if it still waits for one."""
        row = self._buffers.rows[file]
        line, owed = int(row[LINE]), int(row[OWED])
        row[IS_LENT] = row[OWED] = 0
        del self._connections[file]
        assert self._epoll is not None
        with suppress(OSError):
            # a file that is closed is out already
            self._epoll.unregister(file)
        self._protocol.release(line)
        return self._places[owed] if owed else None

    def close(self) -> None:
        """Give all sockets back, and serve none any more."""
        for connection in list(self._connections.values()):
            connection.take_back()
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    # -- the pass

    def _serve(self) -> None:
        assert self._epoll is not None
        if self._services.stopping:
            # nothing new is begun
            for connection in list(self._connections.values()):
                connection.take_back()
            return
        buffers, now_us = self._buffers, self._clock()
        taken, rest, size_bytes, kind, _ = self._protocol.receive(self._epoll.fileno(), buffers, now_us)
        if taken:
            self._received_bytes[self._labels] += size_bytes
            if kind >= 0:
                self._begin(kind, LentRequests(buffers, slice(taken)), now_us)
            else:
                self._begin_each(taken, now_us)
        if rest:
            for file, start, end, _ in buffers.others[:rest].tolist():
                self._return(file, buffers.scratch[start:end])
        end_us = self._clock()
        if end_us - now_us >= SLOW_PASS_US and end_us >= self._next_report_us:
            self._next_report_us = end_us + SLOW_PASS_EVERY_US
            log.warning(
                "pass over lent sockets of %s: took %d ms for %d requests and %d sockets given back; look for a slow "
                "disk or a busy machine, or set fast_connections=false",
                self._labels[0], (end_us - now_us) // 1000, taken, rest,
            )  # fmt: skip

    def _begin_each(self, count: int, now_us: int) -> None:
        """Begin requests of several kinds, those of each kind at once."""
        kinds = self._protocol.list_kinds(self._buffers, count)
        for kind in np.unique(kinds).tolist():
            self._begin(kind, LentRequests(self._buffers, np.flatnonzero(kinds == kind)), now_us)

    def _begin(self, kind: int, requests: LentRequests, now_us: int) -> None:
        """Begin requests of one kind, and respond to them now or when they are durable."""
        files = requests.files
        try:
            begun = self._protocol.begin(kind, requests, now_us)
        except Exception:
            # no response would be true: disconnect them, as the loop does if a connection's own work fails
            log.exception("requests of %d lent sockets could not be begun", len(files))
            for file in files.tolist():
                self._connections[file].abort()
            return
        files = requests.files
        if begun is None:
            self._return_requests(requests)
        elif begun.done:
            self._answer(files, self.divide(begun.answers, len(files)))
        else:
            self._wait(files, begun)
        if requests.left is not None:
            self._return_requests(requests.left)

    def _return_requests(self, requests: LentRequests) -> None:
        """Have the connections handle their requests themselves: the line no longer has the same meaning."""
        files, spans = requests.files, requests.spans
        self._received_bytes[self._labels] -= int((spans[:, 1] - spans[:, 0]).sum())
        self._buffers.rows[files, COUNT] -= 1
        for file, (start, end) in zip(files.tolist(), spans.tolist(), strict=True):
            self._return(file, requests.scratch[start:end])

    def _return(self, file: int, received: Bytes) -> None:
        connection = self._connections.get(file)
        # another connection's work may have ended it
        if connection is not None:
            try:
                connection.take_back(received)
            except Exception:
                # it has closed itself; the bytes of others are still to be given back
                log.exception("a connection could not receive what was read of its lent socket")

    def _wait(self, files: Longs, begun: PendingResponse) -> None:
        self._places_count = number = self._places_count + 1
        # of this pass alone until here
        files = files.copy()
        places = self._places[number] = LentPlaces(self, files, number)
        self._buffers.rows[files, OWED] = number
        begun.slots.append(places)
        if self._services.broker.appender.congested:
            for file in files.tolist():
                connection = self._connections[file]
                connection.take_back()
                connection.wait_for_disk()

    def divide(self, answers: bytes, count: int) -> Responses:
        """Return the responses to ``count`` requests: one row for each, or a single one that all get."""
        return np.frombuffer(answers, np.uint8).reshape(count if self._protocol.has_own_responses else 1, -1)

    def fill(self, files: Longs, number: int, responses: Responses) -> None:
        """Send the responses to those of ``files`` that wait for them as group ``number``."""
        del self._places[number]
        rows = self._buffers.rows
        is_owed = rows[files, OWED] == number
        owed = files[is_owed]
        rows[owed, OWED] = 0
        if len(owed):
            self._answer(owed, responses[is_owed] if len(responses) > 1 else responses)

    def _answer(self, files: Longs, responses: Responses) -> None:
        size, unsent = responses.shape[1], self._buffers.unsent
        self._sent_bytes[self._labels] += size * len(files)
        failed = self._send(files, responses.ravel(), size, unsent)
        if failed:
            last = len(responses) - 1
            for index, sent_bytes in unsent[:failed].tolist():
                # what comes next is the transport's: it waits until the client reads, or has disconnected
                rest = responses[min(index, last), sent_bytes:].tobytes()
                self._connections[int(files[index])].take_back_with_unsent(rest)
