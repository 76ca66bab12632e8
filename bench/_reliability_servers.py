"""Servers to be killed, stopped and started again at one address: Apache Kafka, upstream's nsqd, and ours as either."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from bench.measure import anonymous_mb
from lading import testing
from tests.interop import go_programs, kafka_broker
from tests.listeners import listen_only

END_TIMEOUT_S = 60.0
SEGMENT_BYTES = 4 << 20
"""Of Lading and Kafka, so that a disk that is nearly full sees more than one."""


class FailingServer(ABC):
    """A server of one protocol with its data in a directory that may be changed between two starts."""

    protocol: str
    config: dict[str, str]
    """Settings of the topics that clients create."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.config = {}
        self.child: subprocess.Popen[bytes] | None = None

    def place(self, home: Path, data: Path) -> None:
        """Take the directories of what the server says and of its data, and a port that nobody listens on."""
        self.home, self.data, self.child = home, data, None
        self.address = f"127.0.0.1:{kafka_broker.free_ports(1)[0]}"
        home.mkdir(parents=True, exist_ok=True)
        self._prepare()

    def _prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def start(self) -> None:
        """Start it and return when it answers. Raises an error if it ends instead."""

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    @property
    def is_alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    @property
    def memory_mb(self) -> float:
        return anonymous_mb(self.pid)

    def kill(self) -> None:
        """End it as a crash does; nothing happens if it has ended."""
        if self.child is not None:
            with suppress(ProcessLookupError):
                self.child.kill()
            self._end()

    def stop(self) -> None:
        """End it in order."""
        assert self.child is not None
        self.child.terminate()
        self._end()

    def _end(self) -> None:
        assert self.child is not None
        self.child.wait(END_TIMEOUT_S)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()

    def pause(self) -> None:
        """Take all time from it."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)


class LadingServer(FailingServer):
    """Ours behind one listener."""

    def __init__(self, protocol: str, durability: str) -> None:
        super().__init__(f"Lading, {durability}")
        self.protocol, self._durability = protocol, durability

    def start(self) -> None:
        listener = {"kafka": "kafka", "nsq": "nsqd_tcp"}[self.protocol]
        wanted = listen_only(**{listener: self.address}, admin=testing.FREE_PORT)
        wanted |= {"durability": self._durability, "log.segment_bytes": SEGMENT_BYTES}
        self.child = testing.start(self.data / "lading", wanted, self.home / "stderr.log").process


class KafkaServer(FailingServer):
    """Apache Kafka, one node; ``is_synced``: topics with ``flush.messages=1``."""

    protocol = "kafka"

    def __init__(self, *, is_synced: bool) -> None:
        super().__init__("Kafka, flush.messages=1" if is_synced else "Kafka")
        self.config = {"flush.messages": "1"} if is_synced else {}

    def _prepare(self) -> None:
        port, (controller,) = self.address.rpartition(":")[2], kafka_broker.free_ports(1)
        one = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        kafka_broker.write_settings(
            self.home,
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(self.data / "kafka"),
                "log.segment.bytes": str(SEGMENT_BYTES),
                "group.initial.rebalance.delay.ms": "0",
                "transaction.state.log.min.isr": "1",
                "share.coordinator.state.topic.min.isr": "1",
                **{f"{name}.replication.factor": "1" for name in one},
                **{f"{name}.num.partitions": "1" for name in one},
            },
        )

    def start(self) -> None:
        self.child = kafka_broker.start(self.home)
        kafka_broker.wait_until_ready(self.child, self.home, int(self.address.rpartition(":")[2]))


class NsqdServer(FailingServer):
    """Upstream's nsqd; ``is_synced``: all messages to its disk queue, each synced."""

    protocol = "nsq"

    def __init__(self, *, is_synced: bool) -> None:
        super().__init__("nsqd, no memory queue, sync-every=1" if is_synced else "nsqd")
        self._options = ["-mem-queue-size=0", "-sync-every=1"] if is_synced else []

    def start(self) -> None:
        command = [str(go_programs.server("nsqd")), f"-tcp-address={self.address}", "-http-address=127.0.0.1:0"]
        command += [f"-data-path={self.data}", *self._options]
        with (self.home / "server.log").open("ab") as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            go_programs.wait_until_open(self.child, self.address)
        except go_programs.Unavailable:
            words = (self.home / "server.log").read_text(errors="replace").splitlines()
            raise go_programs.Unavailable(f"nsqd does not start: {words[-1:]}") from None


class Volume:
    """A file system of its own, to be filled or cut off; root alone can mount one."""

    def __init__(self, directory: Path, size_mb: int, *, in_memory: bool) -> None:
        """``in_memory``: a tmpfs; otherwise ext4 in a file, of which ``cut_power`` keeps what a disk would have."""
        self._directory, self._cuts = directory, 0
        self.path = directory / "volume"
        self.path.mkdir(parents=True)
        if in_memory:
            _run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(self.path))
            return
        self._image = directory / "image"
        with self._image.open("wb") as file:
            file.truncate(size_mb << 20)
        _run("mkfs.ext4", "-q", "-F", "-E", "root_owner=0:0", str(self._image))
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def sync(self) -> None:
        """Bring all to the block device, as time does."""
        _run("sync", "-f", str(self.path))

    def cut_power(self, server: FailingServer) -> None:
        """End the server; of its files there is what had been written to the block device at that moment."""
        server.pause()
        self._cuts += 1
        left = self._directory / f"left-{self._cuts}"
        _run("cp", "--sparse=always", str(self._image), str(left))
        server.kill()
        _run("umount", str(self.path))
        self._image.unlink()
        self._image = left
        self._mount()

    def fill(self, left_bytes: int) -> None:
        """Take all room but this."""
        piece = bytes(1 << 20)
        with (self.path / "ballast").open("wb", buffering=0) as file:
            # a server that writes meanwhile may be the first to find it full
            while shutil.disk_usage(self.path).free > left_bytes + len(piece):
                file.write(piece)

    def free(self) -> None:
        """Give the room back."""
        (self.path / "ballast").unlink()

    def close(self) -> None:
        """Unmount it."""
        deadline = time.monotonic() + 10
        while subprocess.run(["umount", str(self.path)], capture_output=True, timeout=60, check=False).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path} cannot be unmounted")
            time.sleep(0.1)


class CannotMount(Exception):
    """No file system can be mounted here."""


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError:
        raise CannotMount(f"{command[0]} is not installed") from None
    if done.returncode:
        raise CannotMount(f"{command[0]} fails here: {done.stderr.strip()}")
