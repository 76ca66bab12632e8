"""One queue drained by members of a share group and clients of NSQ while the broker and clients are killed.

Each message carries its number. A member that has a response to its acknowledgement notes the numbers as accepted: none
may be noted twice. At the end the queue is empty, and each number was accepted, or its acknowledgement was under way at
a kill. A client of NSQ gets no response to FIN: what it finished may come again after a kill.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lading import testing
from tests.endpoints.kafka_frames import KafkaFrames, batch, record
from tests.endpoints.nsq_client import NsqClient, message_of
from tests.endpoints.test_kafka_share_groups import ACCEPT, Member, configure

TOPIC, GROUP = "killed-queue", "killed"
TIMEOUT_S = 120.0


class Drain:
    """What all clients have accepted, and the broker that they talk to now."""

    def __init__(self, batch_size: int) -> None:
        """Members take ``batch_size`` messages at a time."""
        self.batch_size = batch_size
        self.address: dict[str, str] = {}
        self.topic = UUID(int=0)
        self.lock = threading.Lock()
        self.accepted: Counter[int] = Counter()
        self.uncertain: set[int] = set()
        self.nsq_count = self.nsq_before_last_start = 0
        """Messages that clients of NSQ finished."""
        self.is_over = False

    @property
    def seen(self) -> int:
        with self.lock:
            return len(self.accepted.keys() | self.uncertain)

    def note(self, numbers: list[int], *, is_certain: bool) -> None:
        with self.lock:
            if is_certain:
                self.accepted.update(numbers)
            else:
                self.uncertain.update(numbers)

    def read_as_member(self, name: str) -> None:
        """Fetch and accept, with another session after each failure; every tenth session is left without a word."""
        while not self.is_over:
            under_way: list[int] = []
            try:
                member = Member(self.address["kafka"], GROUP, self.topic, name)
                for turn in range(10):
                    got = member.fetch(max_wait_ms=200, max_records=self.batch_size)
                    numbers = [number for first, last, _ in got for number in range(first, last + 1)]
                    if not numbers:
                        if self.is_over:
                            break
                        continue
                    under_way = numbers
                    code = member.settle(*((first, last, [ACCEPT]) for first, last, _ in got))
                    assert code == 0, code
                    self.note(numbers, is_certain=True)
                    under_way = []
                    if turn == 9:
                        member.fetch(max_records=20)
                member.close()
            except (OSError, EOFError, KeyError, AssertionError):
                # it is not known whether the acknowledgement is durable
                self.note(under_way, is_certain=False)
                time.sleep(0.05)

    def read_as_nsq(self) -> None:
        """Finish messages, with another connection after each failure; after 200 it goes with some in flight."""
        while not self.is_over:
            try:
                with closing(NsqClient(self.address["nsqd_tcp"])) as client:
                    assert client.ask(b"SUB %s %s\n" % (TOPIC.encode(), GROUP.encode())) == b"OK"
                    client.send(b"RDY 20\n")
                    for _ in range(200):
                        message = message_of(client.frame(timeout_s=0.5)[1], extended=client.extended)
                        client.fin(message)
                        self.note([int(message.body)], is_certain=False)
                        self.nsq_count += 1
            except (OSError, EOFError, KeyError, AssertionError, ValueError):
                time.sleep(0.05)


def write(address: str, count: int) -> UUID:
    frames = KafkaFrames(address)
    row = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    (made,) = frames.ask("CreateTopics", 7, topics=[row], timeout_ms=10_000, validate_only=False).topics
    for first in range(0, count, 10_000):
        end = min(first + 10_000, count)
        records = b"".join(record(number - first, b"%d" % number) for number in range(first, end))
        data: Any = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch(records, end - first)}]}]
        got = frames.ask("Produce", 9, transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=data)
        assert got.responses[0].partition_responses[0].error_code == 0
    frames.close()
    return UUID(str(made.topic_id))


def find_lag(address: str) -> int:
    """Return how many messages are not settled."""
    frames = KafkaFrames(address)
    got = frames.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": GROUP, "topics": None}])
    frames.close()
    lag: int = got.groups[0].topics[0].partitions[0].lag
    return lag


@pytest.mark.timeout(1500)
def test_no_message_is_lost_or_accepted_twice_over_kills(tmp_path: Path, full: bool) -> None:
    # of a short queue members would have taken all before a client of NSQ has subscribed
    count, kills, batch_size = (1_000_000, 10, 500) if full else (3_000, 2, 10)
    drain = Drain(batch_size)
    threads = [threading.Thread(target=drain.read_as_member, args=(f"member-{number}",)) for number in range(3)]
    threads.append(threading.Thread(target=drain.read_as_nsq))
    for turn in range(kills + 1):
        with testing.broker(tmp_path / "data") as running:
            drain.address = dict(running.endpoints)
            drain.nsq_before_last_start = drain.nsq_count
            if not turn:
                drain.topic = write(running.endpoints["kafka"], count)
                configure(running.endpoints["kafka"], GROUP, auto_offset_reset="earliest", delivery_count_limit="10")
                for thread in threads:
                    thread.start()
            until = time.monotonic() + (1_000 if full else TIMEOUT_S)
            goal = count * (turn + 1) // (kills + 1) if turn < kills else count
            while drain.seen < goal and time.monotonic() < until:
                time.sleep(0.01)
            if turn < kills:
                running.kill()
            else:
                # what was under way at a kill may be still to come
                while find_lag(running.endpoints["kafka"]) and time.monotonic() < until:
                    time.sleep(0.1)
                assert find_lag(running.endpoints["kafka"]) == 0
                drain.is_over = True
                for thread in threads:
                    thread.join(30)
    twice = {number: times for number, times in drain.accepted.items() if times > 1}
    lost = set(range(count)) - drain.accepted.keys() - drain.uncertain
    print(f"messages {count}, kills {kills}, lost {len(lost)}, accepted twice {len(twice)}, under way at a kill "
          f"or finished over NSQ {len(drain.uncertain - drain.accepted.keys())}")  # fmt: skip
    assert 0 < drain.nsq_before_last_start < drain.nsq_count, "clients of NSQ drain it before and after a kill"
    assert drain.accepted, "members of the share group drain it too"
    assert not twice
    assert not lost
