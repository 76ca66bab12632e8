"""Clients of gateways, each a process that may be killed at any time: what it prints is what it knows.

``python -m tests.interop.gateway_clients send NAME TOPIC PARTITIONS URL…`` sends numbers with headers and prints
``tried``, ``stored`` and ``failed`` with a number and a count; a number is sent once. ``publish NAME TOPIC HOST:PORT…``
does so by NSQ's protocol, and ``drain TOPIC HOST:PORT…`` prints ``got``, then ``finished`` with a message's body, and
``refused`` if its FIN was. Each goes on at the next address after an error.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count, cycle
from typing import Any, Final

import lading
from lading.client.outgoing import BatchBuilder
from lading.model.errors import LadingError
from lading.model.headers import Headers
from lading.transports.open import open_transport

TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 0.05
PACE_S: Final = 0.02
"""The pause after each send: consumers that finish one message after the other keep up."""
RESPONSE, ERROR, MESSAGE = range(3)


def make_headers(name: str, number: int) -> list[tuple[str, Any]]:
    """Return the headers of a number: they differ in kinds, number and order."""
    rows: list[tuple[str, Any]] = [
        ("sender", name),
        ("number", lading.u32(number)),
        ("sender", "again"),
        ("half", lading.f32(number / 2)),
        ("raw", number.to_bytes(4, "big")),
    ]
    return rows[: 1 + number % len(rows)]


def make_body(name: str, number: int) -> bytes:
    """Return the payload of a number."""
    return f"{name} {number}".encode()


class NsqClient:
    """A client of nsqd's TCP protocol, as its specification has it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.send(b"  V2")

    def send(self, data: bytes) -> None:
        """Send as it is."""
        self._socket.sendall(data)

    def receive(self) -> tuple[int, bytes]:
        """Return kind and data of the next frame that is not a heartbeat."""
        while True:
            size, kind = struct.unpack(">ii", self._read(8))
            data = self._read(size - 4)
            if data != b"_heartbeat_":
                return kind, data
            self.send(b"NOP\n")

    def _read(self, size: int) -> bytes:
        found = self._socket.recv(size, socket.MSG_WAITALL) if size else b""
        if len(found) < size:
            raise ConnectionResetError("the gateway closed the connection")
        return found

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def send(name: str, topic: str, partitions: int, urls: Sequence[str]) -> None:
    """Send numbers, a few at a time, to one partition after the other."""
    numbers = iter(_number_blocks())
    for url in cycle(urls):
        try:
            with closing(open_transport(url, retries=0, timeout_s=TIMEOUT_S)) as transport:
                for turn, (first, end) in numbers:
                    builder = BatchBuilder()
                    for number in range(first, end):
                        builder.add(None, Headers(make_headers(name, number)), make_body(name, number), None, 0)
                    say("tried", first, end)
                    try:
                        transport.send(topic, turn % partitions, builder.batch())
                    except LadingError as error:
                        say("failed", first, end, error)
                        raise
                    say("stored", first, end)
                    time.sleep(PACE_S)
        except (LadingError, OSError):
            time.sleep(PAUSE_S)


def publish(name: str, topic: str, addresses: Sequence[str]) -> None:
    """Publish numbers, by PUB and MPUB."""
    numbers = iter(_number_blocks())
    for address in cycle(addresses):
        try:
            client = NsqClient(address)
            for _, (first, end) in numbers:
                say("tried", first, end)
                bodies = [make_body(name, number) for number in range(first, end)]
                if len(bodies) == 1:
                    client.send(b"PUB %s\n" % topic.encode() + _prefix_size(bodies[0]))
                else:
                    rest = struct.pack(">i", len(bodies)) + b"".join(map(_prefix_size, bodies))
                    client.send(b"MPUB %s\n" % topic.encode() + _prefix_size(rest))
                kind, data = client.receive()
                say("stored" if (kind, data) == (RESPONSE, b"OK") else "failed", first, end, data.decode())
                time.sleep(PACE_S)
        except OSError:
            time.sleep(PAUSE_S)


def drain(topic: str, in_flight: int, addresses: Sequence[str]) -> None:
    """Finish every message of the channel ``ch``."""
    for address in cycle(addresses):
        try:
            client = NsqClient(address)
            client.send(b"SUB %s ch\n" % topic.encode())
            kind, data = client.receive()
            if kind == ERROR:
                raise ConnectionError(data.decode())
            client.send(b"RDY %d\n" % in_flight)
            bodies: dict[bytes, bytes] = {}
            while True:
                kind, data = client.receive()
                if kind == MESSAGE:
                    ident, body = data[10:26], data[26:]
                    bodies[ident] = body
                    say("got", *body.decode().split())
                    client.send(b"FIN " + ident + b"\n")
                    say("finished", *body.decode().split())
                elif data.startswith(b"E_FIN_FAILED"):
                    ident = data.split()[2]
                    say("refused", *bodies.get(ident, b"? ?").decode().split())
                else:
                    say("told", *data.decode().split())
        except OSError as error:
            say("ended", type(error).__name__)
            time.sleep(PAUSE_S)


def say(*words: object) -> None:
    """Print a line at once, whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def _number_blocks() -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield ranges of 1 to 5 numbers, each with its own number."""
    first = 0
    for turn in count():
        end = first + 1 + turn % 5
        yield turn, (first, end)
        first = end


def _prefix_size(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class ClientProcess:
    """One client as a process, and the lines that it has printed."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.lines: list[list[str]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.gateway_clients", *map(str, arguments)], stdout=subprocess.PIPE
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def count_lines(self, *words: str) -> int:
        """Return the number of lines that begin with one of the words."""
        return sum(line[0] in words for line in list(self.lines))

    def kill(self) -> None:
        """End it at once, and read what it printed before."""
        self._process.kill()
        self._process.wait()
        self._reading.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            for line in out:
                if line.endswith(b"\n"):
                    self.lines.append(line.decode().split())


def main() -> None:
    """Do what the arguments say, without end."""
    role, *rest = sys.argv[1:]
    if role == "send":
        send(rest[0], rest[1], int(rest[2]), rest[3:])
    elif role == "publish":
        publish(rest[0], rest[1], rest[2:])
    else:
        drain(rest[0], int(rest[1]), rest[2:])


if __name__ == "__main__":
    main()
