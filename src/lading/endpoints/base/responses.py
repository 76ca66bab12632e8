"""Responses of one connection in the order of their requests, whenever each is ready.

Small ones that become ready together leave in one write; large ones leave in pieces, since the kernel copies while the
event loop waits. Without I/O: bytes go to a sink, and what comes later is handed to a callback. Threads: event loop
only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from typing import Protocol

from ...runtime.metrics import Labels

Bytes = bytes | bytearray | memoryview
Parts = Sequence[Bytes]
"""A whole response, in pieces; empty if its request gets no response."""


class Sink(Protocol):
    """Destination of responses: a transport of asyncio, or a list in a test."""

    def write(self, data: Bytes) -> object:
        """Send ``data``."""

    def writelines(self, list_of_data: Sequence[Bytes]) -> object:
        """Send all of these, one after the other."""


class Slot:
    """The place of one response among those of its connection; ``ResponseQueue.slot`` makes it."""

    __slots__ = ("parts", "queue")

    queue: ResponseQueue
    parts: Parts | None
    """The response; None until it is ready."""

    def fill(self, parts: Parts) -> None:
        """Give the place its response, which is sent when all before it are."""
        queue = self.queue
        waiting = queue.waiting
        if parts and len(waiting) == 1 and waiting[0] is self and not queue.is_watched:
            # as ``flush_ready`` does it, without a call: nearly every client waits for each of its responses
            waiting.popleft()
            queue.send(parts)
            return
        self.parts = parts
        queue.flush_ready()


class ResponsePlace(Protocol):
    """The place of a response, or of the same one of many connections."""

    def fill(self, parts: Parts) -> None:
        """Give the place its response."""


class ResponseQueue:
    """The responses that a connection still has to send, in order; closed until ``open``, and again after ``close``."""

    __slots__ = (
        "_call_soon", "_is_blocked", "_is_piece_due", "_joined_bytes", "_labels", "_on_flushed", "_outgoing",
        "_piece_bytes", "_sent_bytes", "_sink", "is_single", "is_watched", "waiting",
    )  # fmt: skip

    def __init__(self, joined_bytes: int, piece_bytes: int) -> None:
        """Join what is ready together up to ``joined_bytes``; send more than ``piece_bytes`` in pieces of this size."""
        self._joined_bytes, self._piece_bytes = joined_bytes, piece_bytes
        self._sink: Sink | None = None
        self.waiting: deque[Slot] = deque()
        """Places of responses that are not sent yet; the first one has none."""
        self.is_watched = False
        """Whether something waits for responses to be sent: later requests, or the end of the connection."""
        self.is_single = False
        """Whether the sink gets each response whole and by itself, in one call, also if it is empty."""
        self._outgoing: deque[Bytes] = deque()
        """The parts of large responses that the sink did not get yet."""
        self._is_piece_due = self._is_blocked = False

    def open(
        self,
        sink: Sink,
        sent_bytes: MutableMapping[Labels, float],
        labels: Labels,
        call_soon: Callable[[Callable[[], None]], object],
        on_flushed: Callable[[], None],
    ) -> None:
        """Send from now on. ``on_flushed`` is called after responses were sent, while ``is_watched``.

        ``call_soon`` calls back in the next pass of the event loop; bytes are counted in ``sent_bytes[labels]``.
        """
        self._sink = sink
        self._sent_bytes, self._labels = sent_bytes, labels
        self._call_soon, self._on_flushed = call_soon, on_flushed

    def wrap_sink(self, wrap: Callable[[Sink], Sink]) -> None:
        """Send from now on to what ``wrap`` makes of the sink; called while nothing is left to send."""
        if self._sink is not None:
            self._sink = wrap(self._sink)

    def close(self) -> None:
        """Drop everything: the client has disconnected."""
        self._sink = None
        self.is_watched = False
        self.waiting.clear()
        self._outgoing.clear()

    def change_sink(self, sink: Sink) -> None:
        """Send to this sink from now on; all that was sent is with the one before."""
        self._sink = sink

    @property
    def is_empty(self) -> bool:
        """Whether all responses are with the sink."""
        return not (self.waiting or self._outgoing)

    def slot(self) -> Slot:
        """Return a place for the next response."""
        # a constructor would be one more call of Python for each response that waits
        slot = Slot()
        slot.queue, slot.parts = self, None
        self.waiting.append(slot)
        return slot

    def add(self, parts: Parts) -> None:
        """Add a response that is ready; it is sent when all before it are."""
        if self.waiting:
            self.slot().parts = parts
        else:
            self.send(parts)

    def push(self, data: Bytes) -> None:
        """Send bytes that belong to no request, between responses; the caller counts them, if they are counted."""
        if self._outgoing:
            self._outgoing.append(data)
        elif self._sink is not None:
            self._sink.write(data)

    def flush_ready(self) -> None:
        """Send the responses at the front that are ready."""
        waiting = self.waiting
        if waiting and (parts := waiting[0].parts) is not None:
            waiting.popleft()
            if self.is_single:
                self.send(parts)
                while waiting and (parts := waiting[0].parts) is not None:
                    waiting.popleft()
                    self.send(parts)
            else:
                if waiting and waiting[0].parts is not None:
                    parts = list(parts)
                    while waiting and (more := waiting[0].parts) is not None:
                        parts += more
                        waiting.popleft()
                if parts:
                    self.send(parts)
        if self.is_watched:
            self._on_flushed()

    def block(self, is_blocked: bool) -> None:
        """Keep what is left of large responses while the client does not read."""
        self._is_blocked = is_blocked
        if not is_blocked:
            self._send_piece()

    def send(self, parts: Parts) -> None:
        """Send a response before which nothing waits."""
        sink = self._sink
        if sink is None:
            return
        is_whole = len(parts) == 1
        size_bytes = len(parts[0]) if is_whole else sum(map(len, parts))
        self._sent_bytes[self._labels] += size_bytes
        if self.is_single:
            sink.writelines(parts)
        elif size_bytes > self._piece_bytes or self._outgoing:
            self._outgoing += parts
            self._send_piece()
        elif is_whole:
            sink.write(parts[0])
        elif size_bytes <= self._joined_bytes:
            # one copy is cheaper than one more buffer in a write
            sink.write(b"".join(parts))
        else:
            sink.writelines(parts)

    def _send_piece(self) -> None:
        """Send the next piece of what is on its way; others have their turn before the one after."""
        outgoing, room = self._outgoing, self._piece_bytes
        if self._is_piece_due or self._is_blocked or not outgoing or self._sink is None:
            return
        piece: list[Bytes] = []
        while outgoing and room > 0:
            part = memoryview(outgoing.popleft())
            if len(part) > room:
                outgoing.appendleft(part[room:])
                part = part[:room]
            piece.append(part)
            room -= len(part)
        self._sink.writelines(piece)
        if outgoing:
            self._is_piece_due = True
            self._call_soon(self._on_piece_due)
        elif self.is_watched:
            self._on_flushed()

    def _on_piece_due(self) -> None:
        self._is_piece_due = False
        self._send_piece()
