"""Benchmarks of nsqd answer its heartbeats, wherever one comes between responses or messages."""

from __future__ import annotations

import random
import socket
import struct
import threading

import pytest

from bench._nsq_frames import finish_messages, read_oks

OK = b"\0\0\0\x06\0\0\0\0OK"
HEARTBEAT = b"\0\0\0\x0f\0\0\0\0_heartbeat_"
TIMEOUT_S = 10.0


def send_in_parts(server: socket.socket, data: bytes, chance: random.Random) -> None:
    at = 0
    while at < len(data):
        size = chance.choice((1, 3, 9, 10, 11, 19, 20, 300, 5_000))
        server.sendall(data[at : at + size])
        at += size


@pytest.mark.parametrize("seed", range(20))
def test_a_heartbeat_is_no_response(seed: int) -> None:
    chance = random.Random(seed)
    frames = [OK] * 40 + [HEARTBEAT] * 5
    chance.shuffle(frames)
    ours, server = socket.socketpair()
    with ours, server:
        ours.settimeout(TIMEOUT_S)
        # what follows the last response is left to the next reader
        data = b"".join(frames).rpartition(OK)[0] + OK + b"next"
        beats = data.count(HEARTBEAT)
        sender = threading.Thread(target=send_in_parts, args=(server, data, chance))
        sender.start()
        read_oks(ours, 40)
        sender.join(TIMEOUT_S)
        assert ours.recv(100) == b"next"
        assert server.recv(1 << 16) == b"NOP\n" * beats


def test_an_error_is_no_response_of_ok() -> None:
    ours, server = socket.socketpair()
    with ours, server:
        ours.settimeout(TIMEOUT_S)
        server.sendall(OK + struct.pack(">II", 4 + len(b"E_BAD_TOPIC"), 1) + b"E_BAD_TOPIC")
        with pytest.raises(RuntimeError, match="not OK"):
            read_oks(ours, 2)


@pytest.mark.parametrize("seed", range(10))
def test_a_heartbeat_among_messages_is_answered_and_each_message_finished(seed: int) -> None:
    chance = random.Random(seed)
    body = b"x" * 100
    ids = [b"%016x" % number for number in range(500)]
    frames = [
        struct.pack(">IIqH", 4 + 8 + 2 + 16 + len(body), 2, 1, 1) + id_ + body for id_ in ids
    ]  # fmt: skip
    for _ in range(8):
        frames.insert(chance.randrange(len(frames)), HEARTBEAT)
    ours, server = socket.socketpair()
    with ours, server:
        ours.settimeout(TIMEOUT_S)
        server.settimeout(TIMEOUT_S)
        sender = threading.Thread(target=send_in_parts, args=(server, b"".join(frames), chance))
        sender.start()
        finish_messages(ours, len(ids), len(body))
        sender.join(TIMEOUT_S)
        ours.shutdown(socket.SHUT_WR)
        said = bytearray()
        while part := server.recv(1 << 16):
            said += part
    commands = bytes(said).split(b"\n")[:-1]
    assert [command.removeprefix(b"FIN ") for command in commands if command != b"NOP"] == ids
    assert commands.count(b"NOP") == 8
