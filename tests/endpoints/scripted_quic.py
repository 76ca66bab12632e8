"""A QUIC client and the socket of an endpoint in one process, without a network: datagrams arrive when a test says so.

Nothing is lost on the way, so that no timer of the endpoint has to come: those of the client are called if both wait.
"""

from __future__ import annotations

import ssl
import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any, Final

from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from tests.house.scripted import ScriptedLoop

NetworkAddress = tuple[str, int]
STREAMS_AT_ONCE: Final = 64
"""A client waits for the responses to these before it opens more streams: an endpoint allows 128."""
EXCHANGE_S: Final = 0.001
"""How long the way to the endpoint and back takes."""
EXCHANGES_MAX: Final = 100
"""Exchanges without any progress."""
_NOT_ENDED: Final = 1 << 31
_numbers = count(1_000_000)


def join_streams(streams: Sequence[bytes], *, are_ended: bool = True) -> bytes:
    """Return what ``ScriptedQuicConnection`` sends in a stream each; the last byte never comes unless ``are_ended``."""
    return b"".join(struct.pack(">I", len(data) | (0 if are_ended else _NOT_ENDED)) + data for data in streams)


def split_streams(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Return the streams that ``join_streams`` joined, and whether each ends."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        end = at + 4 + (size & ~_NOT_ENDED)
        yield data[at + 4 : end], not size & _NOT_ENDED
        at = end


class ScriptedListener:
    """A bound UDP socket of which the other side is this process."""

    def __init__(self) -> None:
        self._arrived: deque[tuple[bytes, NetworkAddress]] = deque()
        self._sent: defaultdict[NetworkAddress, list[bytes]] = defaultdict(list)
        self._number = next(_numbers)

    def deliver(self, data: bytes, sender: NetworkAddress) -> None:
        """Let a datagram arrive."""
        self._arrived.append((data, sender))

    def has_arrived(self) -> bool:
        """Return whether a datagram waits to be read."""
        return bool(self._arrived)

    def take(self, receiver: NetworkAddress) -> list[bytes]:
        """Return what was sent to an address since the last call."""
        return self._sent.pop(receiver, [])

    # -- what an endpoint asks of a socket

    def fileno(self) -> int:
        return self._number

    def getsockname(self) -> NetworkAddress:
        return "127.0.0.1", 1

    def setblocking(self, is_blocking: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *option: object) -> None:
        """It has no options."""

    def recvfrom(self, size_bytes: int) -> tuple[bytes, NetworkAddress]:
        if not self._arrived:
            raise BlockingIOError
        return self._arrived.popleft()

    def sendto(self, data: bytes, receiver: NetworkAddress) -> None:
        self._sent[receiver].append(data)

    def sendmsg(self, parts: Sequence[bytes], ancillary: object, flags: int, receiver: NetworkAddress) -> None:
        self._sent[receiver] += parts

    def close(self) -> None:
        """Nothing is left open."""


class _Responses:
    """What a client has of the endpoint, as ``ScriptedTransport`` shows it."""

    def __init__(self) -> None:
        self.is_forgetting = False
        self.written = bytearray()

    def take(self) -> bytes:
        data = bytes(self.written)
        self.written.clear()
        return data


class ScriptedQuicConnection:
    """A client of a QUIC endpoint; what it does itself is done within ``as_client``, and what the endpoint does not."""

    def __init__(
        self,
        loop: ScriptedLoop,
        listener: ScriptedListener,
        as_client: Callable[[], AbstractContextManager[None]] = nullcontext,
        measure_pass: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.loop, self.transport = loop, _Responses()
        self._listener, self._as_client, self._measure_pass = listener, as_client, measure_pass
        self._address = ("127.0.0.1", next(_numbers))
        self._open: set[int] = set()
        """Streams whose response has not ended."""
        self.is_closed = False
        configuration = QuicConfiguration(is_client=True, verify_mode=ssl.CERT_NONE, server_name="localhost")
        self._quic = QuicConnection(configuration=configuration)
        self._is_connected = False
        self._quic.connect(("127.0.0.1", 1), now=self.loop.time())
        self._exchange_until(lambda: self._is_connected)

    def ask(self, data: bytes) -> bytes:
        """Send ``data`` in a stream and return what is answered."""
        self.send(join_streams([data]))
        return self.transport.take()

    def send(self, data: bytes) -> None:
        """Send what ``join_streams`` returned, and wait until each stream that ends has its response."""
        is_ended = False
        for stream, is_ended in split_streams(data):
            self.open_streams([stream], is_ended=is_ended)
            if len(self._open) >= STREAMS_AT_ONCE:
                if not is_ended:
                    # it gets no response
                    self._exchange()
                    self._open.clear()
                self._exchange_until(lambda: len(self._open) < STREAMS_AT_ONCE // 2)
            if self.is_closed:
                return
        if is_ended:
            self.finish()
        else:
            self._exchange()

    def open_streams(self, streams: Iterable[bytes], *, is_ended: bool = True) -> None:
        """Write each to a stream of its own; ``deliver`` sends it."""
        with self._as_client():
            for stream in streams:
                stream_id = self._quic.get_next_available_stream_id()
                self._quic.send_stream_data(stream_id, stream, end_stream=is_ended)
                self._open.add(stream_id)

    def finish(self) -> None:
        """Go on until each stream has its response."""
        self._exchange_until(lambda: not self._open)

    def read_datagrams(self) -> None:
        """Let the endpoint read what has arrived."""
        while self._listener.has_arrived():
            if self._listener.fileno() not in self.loop.readers:
                # the first datagram has the endpoint load what it needs
                self.loop.turn()
            with self._measure_pass():
                self.loop.readers[self._listener.fileno()]()

    def deliver(self) -> bool:
        """Let what is due arrive, and no pass of the loop begin. Return whether there was anything."""
        with self._as_client():
            datagrams = self._quic.datagrams_to_send(now=self.loop.time())
            for data, _ in datagrams:
                self._listener.deliver(data, self._address)
        return bool(datagrams)

    def take(self) -> bool:
        """Take what the endpoint has sent. Return whether there was anything."""
        with self._as_client():
            datagrams = self._listener.take(self._address)
            for data in datagrams:
                self._quic.receive_datagram(data, ("127.0.0.1", 1), now=self.loop.time())
            while (event := self._quic.next_event()) is not None:
                self._handle(event)
        return bool(datagrams)

    def close(self) -> None:
        """Say goodbye."""
        if not self.is_closed:
            self._quic.close()
            self._exchange()

    def _exchange_until(self, is_over: Callable[[], bool]) -> None:
        idle_count = 0
        while not (is_over() or self.is_closed):
            if self._exchange():
                idle_count = 0
                continue
            idle_count += 1
            assert idle_count < EXCHANGES_MAX, "nothing comes"
            with self._as_client():
                due_s = self._quic.get_timer()
                assert due_s is not None
                self._quic.handle_timer(now=max(due_s, self.loop.time()))

    def _exchange(self) -> bool:
        """Let what is due arrive, the endpoint respond, and take its responses. Return whether anything moved."""
        has_moved = self.deliver()
        self.read_datagrams()
        self.loop.turn()
        # aioquic sends at a pace, so that nothing more is due until time has passed
        self.loop.advance(EXCHANGE_S)
        return self.take() or has_moved

    def _handle(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.HandshakeCompleted):
            self._is_connected = True
        elif isinstance(event, events.StreamDataReceived):
            if not self.transport.is_forgetting:
                self.transport.written += event.data
            if event.end_stream:
                self._open.discard(event.stream_id)
        elif isinstance(event, events.StreamReset):
            self._open.discard(event.stream_id)
        elif isinstance(event, events.ConnectionTerminated):
            self.is_closed = True


def open_listener(loop: ScriptedLoop, start: Callable[[Any], Any]) -> ScriptedListener:
    """Start a QUIC endpoint, given its ``start``, and return its socket."""
    listener = ScriptedListener()
    loop.finish(start(listener))
    return listener
