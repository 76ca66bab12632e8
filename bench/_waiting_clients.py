"""A program that opens connections, each of which sends a request, waits for its response, and sends the next.

Arguments: host, port, connections, seconds, then in hex: the bytes that begin a connection, the request, the response,
or nothing if responses begin with their length (u32). Optional: start and end of a Kafka batch in the request, so that
each connection is a producer with an id, which numbers its batches (-1: none); and the bytes of the response to the
beginning of a connection. Prints requests, seconds, and the p50 and p99 of responses in us.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time

import google_crc32c

STALL_S = 30.0
CHECKED_AT, PRODUCER_AT, SEQUENCE_AT = 21, 43, 53


class Producer:
    """A producer with an id of its own, whose request has one batch of one record (kafka.md 2.1)."""

    def __init__(self, request: bytes, batch_at: int, batch_end: int, ident: int) -> None:
        self._request, self._at, self._end = bytearray(request), batch_at, batch_end
        struct.pack_into(">qhi", self._request, batch_at + PRODUCER_AT, ident, 0, 0)
        self._sequence = 0

    def next(self) -> bytes:
        """Return the request with the next number."""
        request, at = self._request, self._at
        struct.pack_into(">i", request, at + SEQUENCE_AT, self._sequence)
        checksum = google_crc32c.value(bytes(request[at + CHECKED_AT : self._end]))
        struct.pack_into(">I", request, at + CHECKED_AT - 4, checksum)
        self._sequence += 1
        return bytes(request)


def main(
    host: str, port: str, connections: str, seconds: str, first: str, request: str, response: str,
    batch_at: str = "-1", batch_end: str = "-1", greeting_bytes: str = "0",
) -> None:  # fmt: skip
    """Send until the time is over, then wait for the last responses."""
    begin, ask, answer = bytes.fromhex(first), bytes.fromhex(request), bytes.fromhex(response)
    producers: dict[int, Producer] = {}
    epoll = select.epoll()
    sockets: list[socket.socket] = []
    sent_ns: dict[int, int] = {}
    unread: dict[int, bytes] = {}
    for _ in range(int(connections)):
        sock = socket.create_connection((host, int(port)), timeout=STALL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if begin:
            sock.sendall(begin)
        left = int(greeting_bytes)
        while left:
            left -= len(sock.recv(left))
        if int(batch_at) >= 0:
            # ids that the broker has given to nobody, and others in each run
            ident = (os.getpid() << 16) + len(sockets)
            producers[sock.fileno()] = Producer(ask, int(batch_at), int(batch_end), ident)
        epoll.register(sock.fileno(), select.EPOLLIN)
        sockets.append(sock)
    took_us: list[float] = []
    clock_ns = time.monotonic_ns
    begun_ns = clock_ns()
    end_ns = begun_ns + int(float(seconds) * 1e9)
    for sock in sockets:
        number = sock.fileno()
        sent_ns[number] = clock_ns()
        sock.sendall(producers[number].next() if producers else ask)
    waiting = len(sockets)
    while waiting:
        ready = epoll.poll(STALL_S, 512)
        if not ready:
            raise TimeoutError(f"{waiting} connections have had no response for {STALL_S:g} s")
        for number, _ in ready:
            data = os.read(number, 1 << 16)
            if not data:
                raise ConnectionError("the server closed a connection")
            if number in unread:
                data = unread.pop(number) + data
            size = len(answer) or (4 + struct.unpack_from(">I", data)[0] if len(data) >= 4 else 4)
            if len(data) < size or not data.startswith(answer):
                if answer and not answer.startswith(data[: len(answer)]):
                    raise ValueError(f"not the response: {data[:100]!r}")
                unread[number] = data
                continue
            now_ns = clock_ns()
            took_us.append((now_ns - sent_ns[number]) / 1e3)
            if now_ns >= end_ns:
                waiting -= 1
                continue
            sent_ns[number] = now_ns
            os.write(number, producers[number].next() if producers else ask)
    seconds_taken = (clock_ns() - begun_ns) / 1e9
    took_us.sort()
    print(len(took_us), seconds_taken, took_us[len(took_us) // 2], took_us[len(took_us) * 99 // 100])


if __name__ == "__main__":
    main(*sys.argv[1:])
