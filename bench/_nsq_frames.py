"""What benchmarks read from nsqd over a plain socket: a heartbeat is answered, and is no response and no message."""

from __future__ import annotations

import socket
import struct
from typing import Final

import numpy as np

OK_FRAME: Final = struct.pack(">II", 6, 0) + b"OK"
HEARTBEAT_FRAME: Final = struct.pack(">II", 15, 0) + b"_heartbeat_"
NOP: Final = b"NOP\n"
MESSAGE: Final = 2
"""The type of a frame that is a message."""
READY: Final = 2_500


def read_oks(connection: socket.socket, count: int) -> None:
    """Read the responses to ``count`` commands. Raises RuntimeError if one is not OK."""
    rest = b""
    while count:
        # never beyond the last response: what follows belongs to the next reader
        is_beat = bool(rest) and not OK_FRAME.startswith(rest)
        wanted = (len(HEARTBEAT_FRAME) if is_beat else count * len(OK_FRAME)) - len(rest)
        rest += _receive(connection, wanted)
        at = 0
        while True:
            if rest.startswith(OK_FRAME, at):
                count, at = count - 1, at + len(OK_FRAME)
            elif rest.startswith(HEARTBEAT_FRAME, at):
                connection.sendall(NOP)
                at += len(HEARTBEAT_FRAME)
            else:
                break
        rest = rest[at:]
        if not (OK_FRAME.startswith(rest) or HEARTBEAT_FRAME.startswith(rest)):
            raise RuntimeError(f"a response that is not OK: {rest!r}")


def finish_messages(connection: socket.socket, messages: int, body_bytes: int) -> None:
    """Read so many messages, all with bodies of one size, and finish those of each read in one step.

    Raises RuntimeError for a frame that is neither a message nor a heartbeat.
    """
    frame_bytes = 4 + 4 + 8 + 2 + 16 + body_bytes
    buffer = bytearray(READY * frame_bytes)
    view, array = memoryview(buffer), np.frombuffer(buffer, np.uint8)
    fins = np.tile(np.frombuffer(b"FIN " + bytes(16) + b"\n", np.uint8), (READY, 1))
    have = done = 0
    while done < messages:
        received = connection.recv_into(view[have:])
        if not received:
            raise RuntimeError(f"closed after {done} messages")
        have += received
        at = 0
        while True:
            whole = (have - at) // frame_bytes
            frames = array[at : at + whole * frame_bytes].reshape(whole, frame_bytes)
            others = np.flatnonzero(frames[:, 7] != MESSAGE)
            count = int(others[0]) if len(others) else whole
            if count:
                fins[:count, 4:20] = frames[:count, 18:34]
                connection.sendall(fins[:count].data)
                done, at = done + count, at + count * frame_bytes
            # frames behind a heartbeat do not begin at multiples of their size
            if view[at:have][: len(HEARTBEAT_FRAME)] != HEARTBEAT_FRAME:
                break
            connection.sendall(NOP)
            at += len(HEARTBEAT_FRAME)
        if have - at >= frame_bytes:
            raise RuntimeError(f"a frame that is no message: {bytes(view[at:have][:64])!r}")
        view[: have - at] = bytes(view[at:have])
        have -= at


def _receive(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data
