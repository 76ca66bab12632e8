"""The broker is killed right after it acknowledged positions of Kafka groups: none goes back."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from lading import testing
from lading.broker.core.position import StoredPosition
from lading.log.disk import RealDisk
from lading.runtime.turns import ROWS_AT_ONCE
from tests.broker.room import NOW, SECOND, opened, topic_of
from tests.endpoints.kafka_frames import KafkaFrames
from tests.faults.faulty import FaultyDisk, failing

GROUPS, PARTITIONS = 7, 3
FILE_BYTES_MAX = 1024
"""Less than any page of the catalog needs."""
ALONE: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}


def make_topic(kafka: KafkaFrames) -> None:
    """Topic ``t``."""
    row = {"name": "t", "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
    made = kafka.ask("CreateTopics", 4, topics=[row], timeout_ms=5000, validate_only=False)
    assert made.topics[0].error_code == 0


def places(offset: int) -> list[dict[str, Any]]:
    """The same position in every partition, as a commit has it."""
    row = {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    return [{"name": "t", "partitions": [{"partition_index": number, **row} for number in range(PARTITIONS)]}]


def commit_codes(kafka: KafkaFrames, group: str, offset: int) -> set[int]:
    """Commit a position in every partition; the error codes of the answer."""
    answer = kafka.ask("OffsetCommit", 7, group_id=group, topics=places(offset), **ALONE)
    return {one.error_code for topic in answer.topics for one in topic.partitions}


def committed(kafka: KafkaFrames, group: str) -> set[int]:
    """The positions of a group in all partitions."""
    asked = [{"name": "t", "partition_indexes": list(range(PARTITIONS))}]
    answer = kafka.ask("OffsetFetch", 5, group_id=group, topics=asked)
    return {one.committed_offset for topic in answer.topics for one in topic.partitions}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.turns(2)
def test_positions_that_were_acknowledged_outlast_kill_9(
    tmp_path: Path, full: bool, record_figures: Callable[..., None], durability: str
) -> None:
    random = Random(139)
    expected: dict[str, int] = {}
    rounds, back = (40 if full else 3), 0
    for turn in range(rounds + 1):
        with testing.broker(tmp_path / "data", durability=durability) as broker:
            kafka = KafkaFrames(broker.endpoints["kafka"])
            if not turn:
                make_topic(kafka)
            back += sum(committed(kafka, group) != {offset} for group, offset in expected.items())
            for _ in range(random.randint(1, 2 * GROUPS)):
                group, offset = f"g{random.randrange(GROUPS)}", random.randrange(1 << 40)
                assert commit_codes(kafka, group, offset) == {0}
                expected[group] = offset
            broker.kill()
            kafka.close()
    record_figures("kill -9 right after an OffsetCommit", kills=rounds, groups=len(expected), went_back=back)
    assert back == 0


def test_many_groups_share_a_sync(tmp_path: Path) -> None:
    class Counted(RealDisk):
        syncs = 0

        def open(self, path: Path | str, *, write: bool = False) -> Any:
            disk, file = self, super().open(path, write=write)

            class Syncing:
                def sync(self) -> None:
                    disk.syncs += Path(path).name.endswith("-wal")
                    file.sync()

                def __getattr__(self, name: str) -> Any:
                    return getattr(file, name)

            return Syncing()

    disk = Counted()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    # those of the new topic are none of the groups'
    disk.syncs = 0
    done: list[int] = []
    for number in range(200):
        broker.coordinated_groups.store(f"g{number}", partition, StoredPosition(number, None, None, NOW))
        broker.catalog_commit.confirm().add_done_callback(lambda answer, number=number: done.append(number))  # type: ignore[misc]
    assert (done, disk.syncs) == ([], 0)
    for _ in range(200 // ROWS_AT_ONCE):
        # a pass of the event loop each: how many rows one writes is a matter of time
        broker.appender.flush()
    assert (len(done), disk.syncs) == (200, 1)
    broker.stop()


def test_a_sync_of_the_catalog_that_failed_is_not_acknowledged_and_mends_by_itself(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)

    def stored(offset: int) -> object:
        broker.coordinated_groups.store("g", partition, StoredPosition(offset, None, None, NOW))
        answer = broker.catalog_commit.confirm()
        broker.appender.flush()
        assert answer.done
        return answer.error

    assert stored(1) is None and broker.catalog.problem is None
    disk.fault = failing("sync", 0, at="-wal")
    assert "could not be synced" in str(stored(2))
    assert "could not be synced" in str(broker.catalog.problem)
    broker.tick(NOW + SECOND)
    assert broker.catalog.problem is None
    assert stored(3) is None
    broker.stop()


@pytest.mark.timeout(300)
def test_after_an_io_error_of_the_catalog_commits_go_on_and_health_told_it(tmp_path: Path) -> None:
    """The system refuses writes past the first bytes of any file, and takes them again: an I/O error that is mended."""
    with testing.broker(tmp_path / "data") as broker:
        kafka = KafkaFrames(broker.endpoints["kafka"])
        make_topic(kafka)
        health = f"http://{broker.endpoints['admin']}/health"
        for number in range(20):
            assert commit_codes(kafka, "g", number) == {0}
        assert httpx.get(health).json()["problems"] == {}
        unlimited = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, unlimited[1]))
        # the coordinator is not available: clients look for it anew and try again
        assert commit_codes(kafka, "g", 100) == {15}
        told = httpx.get(health).json()
        assert told["status"] == "degraded" and "cannot be written" in told["problems"]["catalog"]
        ready = httpx.get(health.replace("/health", "/ready"))
        assert ready.status_code == 503 and ready.json() == {"status": "not ready", "reasons": told["problems"]}
        assert httpx.get(health.replace("/health", "/live")).status_code == 200
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, unlimited)
        assert commit_codes(kafka, "g", 101) == {0}
        until = time.monotonic() + 30
        while httpx.get(health).json()["problems"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        broker.kill()
        kafka.close()
    with testing.broker(tmp_path / "data") as again:
        kafka = KafkaFrames(again.endpoints["kafka"])
        assert committed(kafka, "g") == {101}
        kafka.close()
