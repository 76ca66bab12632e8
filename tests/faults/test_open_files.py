"""The process runs out of open files: partitions refuse and go on, and connections never take what logs need."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import lading
from lading.broker.core.pending_append import Append
from lading.dialects.protocols import ENDPOINTS
from lading.log.disk import File, RealDisk, sync_each
from lading.model.errors import Reason, Refusal
from lading.runtime.open_files import share_open_files
from tests.broker.room import NOW, append, fill, opened, payloads, read, topic_of


class ShortDisk(RealDisk):
    """A disk that opens no file while ``error`` is set."""

    def __init__(self) -> None:
        self.error: int | None = None

    def open(self, path: Path | str, *, write: bool = False) -> File:
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return super().open(path, write=write)

    def sync_paths(self, paths: Sequence[Path]) -> None:
        sync_each(self, paths)


def open_files_below(path: Path) -> int:
    """How many files this process has open there."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(entry.readlink()).startswith(f"{path}/topics")
    return count


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=lambda one: errno.errorcode[one])
def test_a_partition_that_cannot_open_a_file_takes_messages_again(tmp_path: Path, error: int) -> None:
    disk = ShortDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    disk.error = error
    refused: Append = append(broker, partition, b"lost")
    broker.appender.flush()
    assert isinstance(refused.error, Refusal) and refused.error.reason is Reason.DISK_FULL
    assert os.strerror(error) in str(refused.error)
    disk.error = None
    fill(broker, partition, 2)
    assert payloads(read(broker, partition)) == [b"0", b"1"] and partition.log.refusal is None
    broker.stop()


@pytest.mark.turns(2, part=1)
def test_partitions_that_rest_longest_close_their_files(tmp_path: Path) -> None:
    broker = opened(tmp_path, open_files_max=15)
    topic = topic_of(broker, 40)
    most = 0
    for round_ in range(3):
        for number in range(40):
            fill(broker, topic.partition(number), 2, prefix=f"{round_}-")
            broker.states.set(topic.partition(number), [(0, 1)], 20, now_us=NOW)
            for later in range(1, 60):
                broker.tick(NOW + (round_ * 40 + number) * 4_000_000 + later * 50_000)
            most = max(most, open_files_below(tmp_path))
    assert most <= 15
    for number in range(40):
        found = payloads(read(broker, topic.partition(number)))
        assert found == [f"{round_}-{one}".encode() for round_ in range(3) for one in range(2)]
        assert open_files_below(tmp_path) <= 15
    broker.stop()
    del broker, topic
    gc.collect()
    assert open_files_below(tmp_path) == 0
    again = opened(tmp_path, open_files_max=15)
    assert open_files_below(tmp_path) <= 15
    assert all(one.log.recovery.clean for one in again.topology.resolve("s.t").partitions)
    assert again.topology.resolve("s.t").partition(7).log.unavailable_ranges(0, 9) == [(0, 1, 20)]
    again.stop()


def test_a_partition_whose_files_are_closed_refuses_while_none_can_be_opened(tmp_path: Path) -> None:
    disk = ShortDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 2)
    for later in range(60):
        broker.tick(NOW + later * 50_000)
    assert partition.log.rest()
    disk.error = errno.EMFILE
    refused = append(broker, partition, b"lost")
    broker.appender.flush()
    assert refused.error is not None and refused.error.reason is Reason.DISK_FULL
    disk.error = None
    fill(broker, partition, 1, prefix="again-")
    assert payloads(read(broker, partition)) == [b"0", b"1", b"again-0"]
    broker.stop()
    assert opened(tmp_path).recoveries() == []


@pytest.mark.parametrize("limit", [256, 1024, 65_536, 1 << 20])
def test_shares_stay_below_the_limit(limit: int) -> None:
    for wanted in (None, 16, 1_000, 1 << 20):
        shares = share_open_files(limit, wanted)
        assert shares.log_files + shares.connections < limit and min(shares) >= 16


@contextlib.contextmanager
def served(home: Path, limit: int) -> Iterator[tuple[str, str]]:
    """A broker that may have ``limit`` files open; the addresses of admin and Kafka."""
    command = f"ulimit -n {limit}; exec {sys.executable} -m lading.cli.main serve --data {home / 'data'} --output json"
    # all of them: one that is left takes the port that another test, or another broker here, has
    others = sorted(ENDPOINTS.keys() - {"admin", "kafka"})
    off = " ".join(f"--set endpoints.{name}.enabled=false" for name in others)
    ports = "--set endpoints.admin.address=127.0.0.1:0 --set endpoints.kafka.address=127.0.0.1:0"
    with (home / "stderr.log").open("w") as stderr:
        process = subprocess.Popen(["sh", "-c", f"{command} {off} {ports}"], stdout=subprocess.PIPE, stderr=stderr)
        try:
            assert process.stdout is not None
            endpoints = json.loads(process.stdout.readline())["endpoints"]
            yield endpoints["admin"], endpoints["kafka"]
        finally:
            process.terminate()
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()


@pytest.mark.turns(2, part=0)
def test_idle_connections_leave_the_log_its_files(tmp_path: Path) -> None:
    with served(tmp_path, 300) as (admin, kafka), contextlib.ExitStack() as idle:
        host, _, port = kafka.rpartition(":")
        with lading.Producer(f"lading://{admin}") as producer:
            producer.send("before", b"1")
        for _ in range(400):
            idle.enter_context(contextlib.closing(socket.create_connection((host, int(port)))))
        with lading.Producer(f"lading://{admin}") as producer:
            for number in range(10):
                producer.send(f"new{number}", b"2")
        for topic in ("before", *(f"new{number}" for number in range(10))):
            assert lading.read_arrow(f"lading://{admin}", topic).num_rows == 1
    assert "read-only" not in (tmp_path / "stderr.log").read_text()
