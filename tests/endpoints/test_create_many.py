"""Topics of many partitions are created beside everything else: nobody waits for their files."""

from __future__ import annotations

import json
import select
import socket
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from tests.endpoints.kafka_frames import KafkaFrames, message

PARTITIONS = 300
TIMEOUT_S = 120
TOPIC_EXISTS = 36


def create(kafka: KafkaFrames, *names: str) -> None:
    """Ask for topics and wait for nothing."""
    rows = [
        {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
        for name in names
    ]
    kafka.socket.settimeout(TIMEOUT_S)
    kafka.send(kafka.request("CreateTopics", 4, topics=rows, timeout_ms=60_000, validate_only=False))


def codes(kafka: KafkaFrames) -> dict[str, int]:
    """The answer to it."""
    answer: Any = message("CreateTopicsResponse").decode(kafka.answer(), version=4, header=True)
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.turns(2, part=1)
@pytest.mark.timeout(300)
def test_others_are_answered_while_many_partitions_are_made(tmp_path: Path) -> None:
    with testing.broker(tmp_path / "data") as broker:
        first, second, other = (KafkaFrames(broker.endpoints["kafka"]) for _ in range(3))
        assert other.ask("ListGroups", 0).error_code == 0
        create(first, "t", "own")
        create(second, "t")
        for _ in range(5):
            assert other.ask("ListGroups", 0).error_code == 0
        # the files are still being made: nothing has been answered there
        assert select.select([first.socket, second.socket], [], [], 0)[0] == []
        told = [codes(first), codes(second)]
        # both have prepared it, one has it
        assert sorted(one["t"] for one in told) == [0, TOPIC_EXISTS] and told[0]["own"] == 0
        assert len(list((tmp_path / "data" / "topics").iterdir())) == 2
        for one in (first, second, other):
            one.close()
    with testing.broker(tmp_path / "data") as again:
        kafka = KafkaFrames(again.endpoints["kafka"])
        rows = kafka.ask("Metadata", 1, topics=None).topics
        assert {(topic.name, len(topic.partitions)) for topic in rows} == {("t", PARTITIONS), ("own", PARTITIONS)}
        kafka.close()


@pytest.mark.turns(2, part=0)
def test_others_are_answered_while_the_admin_endpoint_makes_many_partitions(tmp_path: Path) -> None:
    many = 1_000
    body = json.dumps({"partitions": many}).encode()
    with testing.broker(tmp_path / "data") as broker:
        other = KafkaFrames(broker.endpoints["kafka"])
        assert other.ask("ListGroups", 0).error_code == 0
        host, port = broker.endpoints["admin"].rsplit(":", 1)
        with socket.create_connection((host, int(port)), TIMEOUT_S) as admin:
            admin.sendall(
                b"POST /topics/default/t HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (host.encode(), port.encode(), len(body), body)
            )
            for _ in range(5):
                assert other.ask("ListGroups", 0).error_code == 0
            # the files are still being made
            assert select.select([admin], [], [], 0)[0] == []
            assert admin.makefile("rb").readline().split()[1] == b"201"
        (topic,) = other.ask("Metadata", 1, topics=None).topics
        assert len(topic.partitions) == many
        other.close()
