"""The failure scripts: each drives one server through one kind of failure, and counts what became of its messages."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench._reliability_clients import (
    CLIENTS,
    LARGE_BYTES,
    READY,
    ROUND_TRIPS,
    TOPIC,
    LiveReader,
    NumberPublisher,
    ProtocolClients,
)
from bench._reliability_servers import FailingServer, Volume
from lading.model.errors import LocalError
from tests.interop import go_programs, kafka_broker

LOAD_S = 1.0
PAUSE_S = 3.0
SERVED_TIMEOUT_S = 90.0
FULL_S, FREED_S = 4.0, 5.0
VOLUME_MB, TMPFS_MB, LEFT_BYTES = 512, 3_000, 8 << 20
LARGE_REST_S = 0.003
"""So that nothing but the ballast fills the disk."""
HALVES, SLOW_READERS, TRIPS = 50, 50, 300
MUCH_BYTES = 20 << 20
NOT_SERVED = (LocalError, go_programs.Unavailable, kafka_broker.Unavailable, TimeoutError)
"""What ends a script early: a server does not start again, or serves nothing."""


@dataclass
class Outcome:
    """What became of the messages of one script on one server.

    ``doubled``: in the log, or in a channel that was read once, more than once. ``redelivered``: came again after it
    was finished or committed. ``again_s``: until the first message was served again, or all that a killed client had;
    amid a failure that does not end, round trips of an honest client.
    """

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    redelivered: int = 0
    again_s: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Scene:
    """A server with its clients, under load."""

    server: FailingServer
    clients: ProtocolClients
    publisher: NumberPublisher
    reader: LiveReader
    outcome: Outcome
    rounds: int

    def load(self) -> None:
        """Let the clients work for a while."""
        time.sleep(LOAD_S)

    def wait_served(self, since_s: float, timeout_s: float = SERVED_TIMEOUT_S) -> bool:
        """Note when the first message is served again; False if none is in time."""
        took_s = self.reader.served_again_s(since_s, timeout_s)
        if took_s is not None:
            self.outcome.again_s.append(took_s)
        return took_s is not None

    def start_again(self) -> None:
        """Start a server that has ended, and wait for the first message."""
        self.reader.wait_quiet()
        since_s = time.monotonic()
        self.server.start()
        if not self.wait_served(since_s):
            raise TimeoutError(f"{self.server.name}: nothing is served after a start")


@contextmanager
def _scene(server: FailingServer, rounds: int, *, large: bool = False) -> Iterator[Scene]:
    """Start a server and its clients; in the end count what is there of what was acknowledged."""
    server.start()
    clients = CLIENTS[server.protocol](server)
    clients.create(TOPIC)
    publisher = clients.publisher(server.address, *((LARGE_BYTES, LARGE_REST_S) if large else ()))
    reader = clients.reader(server.address)
    scene = Scene(server, clients, publisher, reader, Outcome(), rounds)
    reader.start()
    publisher.start()
    if not reader.served_again_s(time.monotonic(), SERVED_TIMEOUT_S):
        raise TimeoutError(f"{server.name}: no message came: {publisher.failure!r}, {reader.failure!r}")
    yield scene
    scene.load()
    publisher.stop()
    reader.wait_quiet()
    reader.stop()
    count(scene.outcome, publisher.acknowledged, clients)
    scene.outcome.redelivered = reader.redelivered


def count(outcome: Outcome, acknowledged: set[int], clients: ProtocolClients) -> None:
    """Read all there is, and hold it against what was acknowledged."""
    found = clients.drain()
    outcome.acknowledged = len(acknowledged)
    outcome.lost = len(acknowledged - found.keys())
    outcome.doubled = found.total() - len(found)


def kill_9(server: FailingServer, directory: Path, rounds: int) -> Outcome:
    """Killed under load, started again."""
    return _end_and_start(server, rounds, server.kill)


def restart(server: FailingServer, directory: Path, rounds: int) -> Outcome:
    """Stopped in order under load, started again."""
    return _end_and_start(server, rounds, server.stop)


def _end_and_start(server: FailingServer, rounds: int, end: Callable[[], object]) -> Outcome:
    with _scene(server, rounds) as scene:
        for _ in range(rounds):
            scene.load()
            end()
            scene.start_again()
    return scene.outcome


def cut_power(server: FailingServer, directory: Path, rounds: int) -> Outcome:
    """Started again on what had reached the block device."""
    with _volume(server, directory, VOLUME_MB, in_memory=False) as volume, _scene(server, rounds) as scene:
        for _ in range(rounds):
            # files of the first start and of the last one have been there for long when the power goes
            volume.sync()
            scene.load()
            volume.cut_power(server)
            scene.start_again()
    return scene.outcome


def pause(server: FailingServer, directory: Path, rounds: int) -> Outcome:
    """SIGSTOP, and SIGCONT after three seconds."""
    with _scene(server, rounds) as scene:
        for _ in range(rounds):
            scene.load()
            server.pause()
            time.sleep(PAUSE_S)
            since_s = time.monotonic()
            server.go_on()
            if not scene.wait_served(since_s):
                raise TimeoutError(f"{server.name}: nothing is served after a pause")
    return scene.outcome


def fill_disk(server: FailingServer, directory: Path, rounds: int) -> Outcome:
    """A file system with 8 MiB left is filled and freed; a server that does not go on by itself is started again."""
    with _volume(server, directory, TMPFS_MB, in_memory=True) as volume, _scene(server, 1, large=True) as scene:
        volume.fill(LEFT_BYTES)
        time.sleep(FULL_S)
        scene.reader.wait_quiet()
        since_s = time.monotonic()
        volume.free()
        if server.is_alive and scene.wait_served(since_s, FREED_S):
            scene.outcome.notes.append("goes on by itself")
        else:
            scene.outcome.notes.append("needs a start" if server.is_alive else "ends, needs a start")
            server.kill()
            scene.start_again()
    return scene.outcome


@contextmanager
def _volume(server: FailingServer, directory: Path, size_mb: int, *, in_memory: bool) -> Iterator[Volume]:
    volume = Volume(directory, size_mb, in_memory=in_memory)
    server.place(directory / "home", volume.path / "data")
    try:
        yield volume
    finally:
        server.kill()
        volume.close()


def kill_client(server: FailingServer, directory: Path, rounds: int) -> Outcome:
    """A client that has messages is killed; another one gets them."""
    outcome = Outcome()
    server.start()
    clients = CLIENTS[server.protocol](server)
    clients.create(TOPIC)
    publisher, reader = clients.publisher(server.address), clients.reader(server.address)
    publisher.start()
    deadline = time.monotonic() + SERVED_TIMEOUT_S
    while len(publisher.acknowledged) < READY and time.monotonic() < deadline:
        time.sleep(0.01)
    publisher.stop()
    victim = clients.start_victim()
    since_s = time.monotonic()
    victim.kill()
    victim.wait()
    assert victim.stdout is not None
    victim.stdout.close()
    reader.start()
    while publisher.acknowledged - reader.seen and time.monotonic() < since_s + SERVED_TIMEOUT_S:
        time.sleep(0.005)
    outcome.again_s.append(reader.served_s[-1] - since_s)
    reader.stop()
    outcome.acknowledged = len(publisher.acknowledged)
    outcome.lost = len(publisher.acknowledged - reader.seen)
    outcome.redelivered = reader.redelivered
    return outcome


def send_halves(server: FailingServer, directory: Path, rounds: int) -> Outcome:
    """Fifty clients send half a request, half of them go away; others publish and read."""
    with _scene(server, 1) as scene:
        scene.clients.create(ROUND_TRIPS)
        held = [scene.clients.send_half() for _ in range(HALVES)]
        for connection in held[::2]:
            connection.close()
        scene.publisher.stop()
        scene.outcome.again_s += itertools.islice(scene.clients.round_trips(), TRIPS)
        for connection in held[1::2]:
            connection.close()
    return scene.outcome


def read_slowly(server: FailingServer, directory: Path, rounds: int) -> Outcome:
    """Fifty clients ask for all there is and read nothing; others publish and read."""
    with _scene(server, 1, large=True) as scene:
        deadline = time.monotonic() + 60
        while len(scene.publisher.acknowledged) * LARGE_BYTES < MUCH_BYTES and time.monotonic() < deadline:
            time.sleep(0.05)
        scene.publisher.stop()
        scene.clients.create(ROUND_TRIPS)
        before_mb = server.memory_mb
        held = [scene.clients.read_nothing() for _ in range(SLOW_READERS)]
        time.sleep(LOAD_S)
        scene.outcome.again_s += itertools.islice(scene.clients.round_trips(), TRIPS)
        scene.outcome.notes.append(f"memory {server.memory_mb - before_mb:+.0f} MB")
        for connection in held:
            with suppress(OSError):
                connection.close()
        time.sleep(LOAD_S)
    return scene.outcome


Script = Callable[[FailingServer, Path, int], Outcome]
SCRIPTS: dict[str, Script] = {
    "kill -9 under load": kill_9,
    "power cut under load": cut_power,
    "stop and start under load": restart,
    "SIGSTOP for 3 s": pause,
    "disk full, then freed": fill_disk,
    "client killed with messages": kill_client,
    "half a request, 50 clients": send_halves,
    "50 readers that do not read": read_slowly,
}
AMID = ("half a request, 50 clients", "50 readers that do not read")
"""Scripts whose failure does not end: their time is the longest round trip of an honest client."""


def summary_s(script: str, times_s: list[float]) -> float | None:
    """Return the figure of a script's times: the median of its rounds, or the longest round trip."""
    if not times_s:
        return None
    return max(times_s) if script in AMID else statistics.median(times_s)
