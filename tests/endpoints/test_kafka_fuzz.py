"""Mutated frames of real clients, all over the Kafka endpoint: an answer or a closed connection, never a hang.

The broker lives on with bounded memory, and nothing that was refused is in a log.
"""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading import testing
from tests.endpoints import kafka_rare
from tests.endpoints.health import Health
from tests.endpoints.kafka_frames import KafkaFrames, one_batch, produce

FRAMES = json.loads((Path(__file__).parents[1] / "vectors" / "kafka_requests.json").read_text())["frames"]
ROUNDS, ROUNDS_FULL = 8, 600
TIMEOUT_S = 10.0
GROWTH_KB_MAX = 400_000
NO_WAIT = {"Fetch": None, "JoinGroup": None, "SyncGroup": None}
"""APIs whose answer may wait for others: sent, not waited for."""


@pytest.fixture(scope="module")
def running() -> Iterator[testing.BrokerProcess]:
    with testing.broker(durability="os", endpoints__kafka__request_bytes_max="4MiB") as broker:
        yield broker


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """The frame with some of it changed: bytes, a number made extreme, cut, doubled, something put in."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 3)):
        if len(data) < 3:
            break
        at = chance.randrange(2, len(data))
        match chance.randrange(6):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                data[at : at + 4] = struct.pack(">i", chance.choice((-1, -2, 1 << 30, (1 << 31) - 1, -(1 << 31), 0)))
            case 2:
                del data[at : at + chance.randrange(1, 9)]
            case 3:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 4:
                data[at : at + 5] = b"\xff\xff\xff\xff\x0f"
            case 5:
                del data[at:]
    return bytes(data)


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.turns(2, part=1)
def test_mutated_frames_get_an_answer_or_a_close(running: testing.BrokerProcess, full: bool) -> None:
    address = running.endpoints["kafka"]
    first = KafkaFrames(address)
    asked = {"name": "kept", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    first.ask("CreateTopics", 4, topics=[asked, {**asked, "name": "t1"}], timeout_ms=1000, validate_only=False)
    assert (
        first.ask("Produce", 9, **produce("kept", one_batch(b"kept"))).responses[0].partition_responses[0].error_code
        == 0
    )
    before_kb = resident_kb(running.pid)
    chance = random.Random(11)
    answered = closed = waiting = 0
    health = Health(running)
    for frame in (*FRAMES, *kafka_rare.frames(first)):
        request = bytes.fromhex(frame["request_hex"])
        for _ in range(ROUNDS_FULL if full else ROUNDS):
            kafka = KafkaFrames(address)
            kafka.socket.settimeout(0.02 if frame["api"] in NO_WAIT or frame["api"] == "Produce" else TIMEOUT_S)
            try:
                kafka.send(mutated(request, chance))
                kafka.answer()
                answered += 1
            except TimeoutError:
                # a long poll, a group that waits for others, or acks 0
                assert frame["api"] in NO_WAIT or frame["api"] == "Produce", f"{frame['client']} {frame['api']} hangs"
                waiting += 1
            except ConnectionError:
                closed += 1
            finally:
                health.check((frame["client"], frame["api"]))
                kafka.close()
    health.close()
    print(f"{answered} answered, {closed} closed, {waiting} waiting")
    assert answered > 100 and closed > 100
    assert running.process.poll() is None
    assert resident_kb(running.pid) - before_kb < GROWTH_KB_MAX
    last = KafkaFrames(address)
    part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    end = last.ask("ListOffsets", 7, isolation_level=0, topics=[{"name": "kept", "partitions": [part]}])
    assert end.topics[0].partitions[0].offset == 1
    said = running.log_file.read_text()
    assert "Traceback" not in said, said[said.index("Traceback") :][:3000]


def test_noise_is_no_request(running: testing.BrokerProcess) -> None:
    host, port = running.endpoints["kafka"].rsplit(":", 1)
    chance = random.Random(7)
    for _ in range(50):
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as noise:
            noise.sendall(chance.randbytes(chance.randrange(1, 4000)))
            noise.shutdown(socket.SHUT_WR)
            try:
                while noise.recv(65536):
                    pass
            except ConnectionError:
                pass
    assert running.process.poll() is None
    said = running.log_file.read_text()
    assert "Traceback" not in said, said[said.index("Traceback") :][:3000]
