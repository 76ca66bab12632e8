"""A UDP socket of the event loop that takes and sends several datagrams at a time.

The loop's own transport sends each in a system call of its own: the 200 datagrams of a long poll spent a third of the
broker's time there. Threads: event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ...runtime.turns import Turn

log = logging.getLogger(__name__)

NetworkAddress = tuple[Any, ...]
Datagram = tuple[bytes, NetworkAddress]

DATAGRAMS_PER_PASS: Final = 32
"""How many are taken before others of the event loop have their turn, and before any of them is acknowledged: with 4
the broker of a fast sender takes a half more CPU, with 1 three times as much."""
PASS_S: Final = 0.004
"""Fewer are taken if this time is over: the first datagram of a new client takes some milliseconds."""
RECEIVE_BYTES: Final = 4096
"""Longer datagrams are cut, which makes them invalid: QUIC's have at most 1,500 bytes here."""
UNSENT_BYTES_MAX: Final = 4 << 20
"""Datagrams that would wait beyond this for the kernel's buffer are dropped, as the network may drop any."""

UDP_SEGMENT: Final = 103
"""Linux' option by which the kernel cuts one message into datagrams of a size (udp(7)); unknown to ``socket``."""
SEGMENTS_MAX: Final = 64
SEGMENTED_BYTES_MAX: Final = 65_000
"""Bounds of one such message."""
_SIZE: Final = struct.Struct("H")


class DatagramSocket:
    """Owns a bound socket; ``on_datagram`` is called with each datagram and its sender's address."""

    def __init__(
        self,
        listener: socket.socket,
        on_datagram: Callable[[bytes, NetworkAddress], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._socket = listener
        self._socket.setblocking(False)
        self._on_datagram, self._clock = on_datagram, clock
        self._unsent: deque[Datagram] = deque()
        self._unsent_bytes = 0
        self._can_segment = hasattr(socket, "SOL_UDP") or hasattr(socket, "IPPROTO_UDP")
        self._is_closed = False
        asyncio.get_running_loop().add_reader(listener.fileno(), self._read)

    def send(self, datagrams: Sequence[Datagram]) -> None:
        """Send datagrams in their order, as far as the kernel takes them; the rest follows when it does again."""
        if self._is_closed:
            return
        for run in _group(datagrams):
            if self._unsent or not self._send_run(run):
                self._keep(run)

    def close(self) -> None:
        """Try to send the waiting datagrams once more, and close the socket."""
        if not self._is_closed:
            self._write()
            self._is_closed = True
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket.fileno())
            loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _read(self) -> None:
        turn = Turn(PASS_S, self._clock)
        for _ in range(DATAGRAMS_PER_PASS):
            # the loop calls again in its next pass if more is there
            if self._is_closed or turn.is_over():
                return
            try:
                data, address = self._socket.recvfrom(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # such as that the port of a client is closed; its connection ends by its time-out
                continue
            self._on_datagram(data, address)

    def _send_run(self, run: Sequence[Datagram]) -> bool:
        """Send datagrams to one address, equal in size but for a shorter last one. Return whether the kernel took them.

        Datagrams refused for another reason than a full buffer, such as an unreachable address, are dropped.
        """
        data, address = run[0]
        if len(run) > 1 and self._can_segment:
            size = [(socket.IPPROTO_UDP, UDP_SEGMENT, _SIZE.pack(len(data)))]
            try:
                self._socket.sendmsg([part for part, _ in run], size, 0, address)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                # not known here, or too long for the way: each by itself from now on
                self._can_segment = False
            else:
                return True
        for number, (part, _) in enumerate(run):
            try:
                self._socket.sendto(part, address)
            except (BlockingIOError, InterruptedError):
                self._keep(run[number:])
                return True
            except OSError:
                log.debug("a datagram to %s was refused", address, exc_info=True)
        return True

    def _keep(self, run: Sequence[Datagram]) -> None:
        if not self._unsent:
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._write)
        for datagram in run:
            if self._unsent_bytes <= UNSENT_BYTES_MAX:
                self._unsent.append(datagram)
                self._unsent_bytes += len(datagram[0])

    def _write(self) -> None:
        """Send the waiting datagrams one by one: this is rare, and the kernel has little room then."""
        while self._unsent:
            data, address = self._unsent[0]
            try:
                self._socket.sendto(data, address)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                log.debug("a datagram to %s was refused", address, exc_info=True)
            self._unsent.popleft()
            self._unsent_bytes -= len(data)
        asyncio.get_running_loop().remove_writer(self._socket.fileno())


def _group(datagrams: Sequence[Datagram]) -> Iterator[Sequence[Datagram]]:
    """Cut datagrams into runs that one message may hold: one address, one size, a shorter one only at the end."""
    start = 0
    while start < len(datagrams):
        data, address = datagrams[start]
        size_bytes = len(data)
        most = min(SEGMENTS_MAX, max(SEGMENTED_BYTES_MAX // max(size_bytes, 1), 1))
        end = start + 1
        while end < len(datagrams) and end - start < most:
            other, other_address = datagrams[end]
            if other_address != address or len(other) > size_bytes:
                break
            end += 1
            if len(other) < size_bytes:
                break
        yield datagrams[start:end]
        start = end
