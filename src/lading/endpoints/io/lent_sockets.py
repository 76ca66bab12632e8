"""A pass over lent sockets: reads all that are ready, takes their requests together, sends all responses.

Most clients wait for each response, and send the same kind of small request again. Once a session knows what the next
ones begin with, its connection lends its socket (``fast_connection``) to the pass of its endpoint, which has an epoll
of its own and two kernels: one reads all ready sockets and keeps whole requests of the known line apart from all else,
the other sends the same response to all. Between them the protocol appends all requests of a line at once.

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
from collections.abc import Callable
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

_SEND_KERNELS: Final = "lading.kernels.socket_kernels"
_ROWS_MIN: Final = 256


class PendingResponse(Protocol):
    """Requests that were begun together, and the response that each of them gets."""

    answers: bytes
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

    __slots__ = ("events", "files", "others", "rows", "scratch", "spans", "unsent")

    def __init__(self) -> None:
        self.rows: Table = np.zeros((_ROWS_MIN, ROW_COLUMNS), np.int64)
        """A row for each socket, by its file number."""
        self.events: Bytes = np.zeros(SOCKETS_MAX * EVENT_BYTES, np.uint8)
        self.scratch: Bytes = np.zeros(SCRATCH_BYTES, np.uint8)
        self.files: Longs = np.zeros(SOCKETS_MAX, np.int64)
        self.spans: Table = np.zeros((SOCKETS_MAX, 2), np.int64)
        self.others: Table = np.zeros((SOCKETS_MAX, OTHER_COLUMNS), np.int64)
        self.unsent: Table = np.zeros((SOCKETS_MAX, 2), np.int64)

    def grow(self, rows_count: int) -> None:
        """Have a row for each file number below ``rows_count``."""
        while len(self.rows) < rows_count:
            self.rows = np.vstack((self.rows, np.zeros_like(self.rows)))


class LentProtocol(Protocol):
    """The part of a protocol in a pass over sockets that its sessions have lent."""

    @property
    def is_ready(self) -> bool:
        """Whether its kernels are loaded, which asks for them."""

    def receive(self, epoll: int, buffers: PassBuffers, now_us: int) -> tuple[int, int, int, int, int]:
        """Read the sockets that are ready; see ``lent_fallback.receive_publications``."""

    def begin(self, line: int, source: Bytes, count: int, now_us: int) -> PendingResponse | None:
        """Begin the ``count`` requests in ``source``; return None if they are refused, and none of them was begun."""

    def release(self, line: int) -> None:
        """Note that a socket with this line has been taken back."""

    def on_answered(self) -> None:
        """Take note that responses were sent."""


class LentPlaces:
    """The places of the responses to requests of lent sockets, which wait for the disk: as a ``Slot``, for many."""

    __slots__ = ("_files", "_moved", "_number", "_pass")

    def __init__(self, owner: SocketPass, files: Longs, number: int) -> None:
        self._pass, self._files, self._number = owner, files, number
        self._moved: list[Slot] = []

    def move(self, slot: Slot) -> None:
        """Fill this slot with the response too: its socket has been taken back."""
        self._moved.append(slot)

    def fill(self, parts: Parts) -> None:
        """Send the response to all of them."""
        self._pass.fill(self._files, self._number, b"".join(parts))
        for slot in self._moved:
            slot.fill(parts)


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
        self._send: Any = None

    @property
    def is_ready(self) -> bool:
        """Whether sockets can be lent; if not, what is missing is loaded."""
        kernels = engine.get_loaded(_SEND_KERNELS)
        if kernels is None or not self._protocol.is_ready:
            return False
        self._send = kernels.send_alike
        return True

    def lend(self, connection: LendingConnection, file: int, line: int) -> None:
        """Serve the socket ``file`` from the next pass on: its requests begin with ``line``. Raises OSError."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._buffers = PassBuffers()
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
        taken, rest, size_bytes, line, _ = self._protocol.receive(self._epoll.fileno(), buffers, now_us)
        if taken:
            self._received_bytes[self._labels] += size_bytes
            files, spans = buffers.files[:taken], buffers.spans[:taken]
            if line >= 0:
                self._begin(line, files, spans, buffers.scratch[:size_bytes], now_us)
            else:
                self._begin_each(files, spans, now_us)
        if rest:
            for file, start, end, _ in buffers.others[:rest].tolist():
                self._return(file, buffers.scratch[start:end])

    def _begin_each(self, files: Longs, spans: Table, now_us: int) -> None:
        """Begin requests that have several lines, those of each line at once."""
        buffers = self._buffers
        lines = buffers.rows[files, LINE]
        for line in np.unique(lines).tolist():
            chosen = np.flatnonzero(lines == line)
            pieces = [buffers.scratch[start:end] for start, end in spans[chosen].tolist()]
            self._begin(line, files[chosen], spans[chosen], np.concatenate(pieces), now_us)

    def _begin(self, line: int, files: Longs, spans: Table, source: Bytes, now_us: int) -> None:
        """Begin the requests that have this line, and respond to them now or when they are durable."""
        try:
            begun = self._protocol.begin(line, source, len(files), now_us)
        except Exception:
            # no response would be true: disconnect them, as the loop does if a connection's own work fails
            log.exception("requests of %d lent sockets could not be begun", len(files))
            for file in files.tolist():
                self._connections[file].abort()
            return
        if begun is None:
            self._return_requests(files, spans)
        elif begun.done:
            self._answer(files, begun.answers)
        else:
            self._wait(files, begun)

    def _return_requests(self, files: Longs, spans: Table) -> None:
        """Have the connections handle their requests themselves: the line no longer has the same meaning."""
        buffers = self._buffers
        self._received_bytes[self._labels] -= int((spans[:, 1] - spans[:, 0]).sum())
        buffers.rows[files, COUNT] -= 1
        for file, (start, end) in zip(files.tolist(), spans.tolist(), strict=True):
            self._return(file, buffers.scratch[start:end])

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

    def fill(self, files: Longs, number: int, response: bytes) -> None:
        """Send the response to those of ``files`` that wait for it as group ``number``."""
        del self._places[number]
        rows = self._buffers.rows
        owed = files[rows[files, OWED] == number]
        rows[owed, OWED] = 0
        if len(owed):
            self._answer(owed, response)

    def _answer(self, files: Longs, response: bytes) -> None:
        self._sent_bytes[self._labels] += len(response) * len(files)
        unsent = self._buffers.unsent
        failed = self._send(files, np.frombuffer(response, np.uint8), unsent)
        if failed:
            for file, sent_bytes in unsent[:failed].tolist():
                # what comes next is the transport's: it waits until the client reads, or finds that it is gone
                self._connections[file].take_back_with_unsent(response[sent_bytes:])
