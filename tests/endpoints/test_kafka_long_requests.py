"""Long requests of Kafka clients: worked at in turns and by workers, and what is asked behind a change sees it."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lading.broker.core import positions
from lading.dialects.kafka.requests import prepare_codec
from lading.dialects.kafka.row_count import decode_bounded_request
from lading.dialects.kafka.versions import METADATA
from lading.endpoints.kafka.fetcher import Fetcher
from lading.log.catalog import Catalog
from lading.runtime import turns
from lading.runtime.turns import ROWS_AT_ONCE
from tests.endpoints.kafka_frames import message, one_batch, produce, request_frame
from tests.house.scripted import ScriptedConnection
from tests.house.test_hot_path import connected

PARTITIONS = 300


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ScriptedConnection]:
    with connected(tmp_path, "kafka", "os") as client:
        topic = {"num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
        ask(client, "CreateTopics", 4, topics=[{"name": "t", **topic}], timeout_ms=1000, validate_only=False)
        yield client


def framed(name: str, version: int, **fields: Any) -> bytes:
    frame = request_frame(name, version, 7, **fields)
    return struct.pack(">i", len(frame)) + frame


def answers(client: ScriptedConnection, *asked: tuple[str, int]) -> list[Any]:
    """All answers that were sent, which are to these requests."""
    data, found, at = client.transport.take(), [], 0
    for name, version in asked:
        (size,) = struct.unpack_from(">i", data, at)
        found.append(message(name + "Response").decode(data[at + 4 : at + 4 + size], version=version, header=True))
        at += 4 + size
    assert at == len(data)
    return found


def ask(client: ScriptedConnection, name: str, version: int, **fields: Any) -> Any:
    client.send(framed(name, version, **fields))
    (answer,) = answers(client, (name, version))
    return answer


def watch_passes(client: ScriptedConnection, count: Callable[[], int]) -> list[int]:
    """What ``count`` gives in each pass of the event loop until something is answered."""
    seen: list[int] = []

    def look() -> None:
        seen.append(count())
        if not client.transport.written and len(seen) < 10_000:
            client.loop.call_soon(look)

    client.loop.call_soon(look)
    return seen


def most_at_once(seen: list[int]) -> int:
    return max(later - before for before, later in itertools.pairwise(seen))


def fetch_of_all(wait_ms: int = 0, min_bytes: int = 0, offsets: tuple[int, ...] = (0,) * PARTITIONS) -> dict[str, Any]:
    partitions = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for number, offset in enumerate(offsets)
    ]
    return {
        "replica_id": -1, "max_wait_ms": wait_ms, "min_bytes": min_bytes, "max_bytes": 1 << 20, "isolation_level": 0,
        "topics": [{"topic": "t", "partitions": partitions}],
    }  # fmt: skip


def put(client: ScriptedConnection, partition: int) -> None:
    ask(client, "Produce", 7, **produce("t", one_batch(b"x" * 100), partition=partition))


def sizes(answer: Any) -> dict[int, int]:
    """Bytes of the partitions of a Fetch that have some."""
    assert [row.error_code for row in answer.responses[0].partitions] == [0] * PARTITIONS
    return {row.partition_index: len(row.records) for row in answer.responses[0].partitions if row.records}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that were read for fetches."""
    read, rows = Fetcher.read, []

    def count(self: Fetcher, partition: Any, *arguments: Any, **named: Any) -> Any:
        rows.append(partition.number)
        return read(self, partition, *arguments, **named)

    monkeypatch.setattr(Fetcher, "read", count)
    return rows


@pytest.mark.turns(3, part=2)
def test_others_have_their_turn_within_a_fetch_of_many_partitions(
    client: ScriptedConnection, fetched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the time of each turn is over when it is looked at
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    put(client, 0)
    put(client, PARTITIONS - 1)
    seen = watch_passes(client, lambda: len(fetched))
    answer = ask(client, "Fetch", 4, **fetch_of_all())
    assert fetched == list(range(PARTITIONS))
    assert most_at_once(seen) <= ROWS_AT_ONCE
    assert sizes(answer).keys() == {0, PARTITIONS - 1}


@pytest.mark.turns(2)
@pytest.mark.parametrize("partition", [0, PARTITIONS - 1])
def test_a_long_fetch_is_told_of_what_comes_while_it_waits(client: ScriptedConnection, partition: int) -> None:
    client.send(framed("Fetch", 4, **fetch_of_all(wait_ms=1_000, min_bytes=1)))
    assert not client.transport.written
    put(client.loop.connect(), partition)
    client.loop.turn()
    (answer,) = answers(client, ("Fetch", 4))
    assert sizes(answer).keys() == {partition}


@pytest.mark.parametrize("partition", [0, PARTITIONS - 1])
@pytest.mark.turns(2)
def test_a_long_fetch_is_told_of_what_comes_while_it_looks(
    client: ScriptedConnection, partition: int, fetched: list[int]
) -> None:
    other = client.loop.connect()

    def put_within() -> None:
        if len(fetched) < PARTITIONS // 2:
            client.loop.call_soon(put_within)
        else:
            put(other, partition)

    client.loop.call_soon(put_within)
    client.send(framed("Fetch", 4, **fetch_of_all(wait_ms=1_000, min_bytes=1)))
    (answer,) = answers(client, ("Fetch", 4))
    assert sizes(answer).keys() == {partition}


@pytest.mark.turns(3, part=0)
def test_a_long_fetch_that_finds_nothing_is_answered_when_its_time_is_over(client: ScriptedConnection) -> None:
    client.send(framed("Fetch", 4, **fetch_of_all(wait_ms=1_000, min_bytes=1)))
    client.loop.advance(0.9)
    assert not client.transport.written
    client.loop.advance(0.2)
    (answer,) = answers(client, ("Fetch", 4))
    assert sizes(answer) == {}


@pytest.mark.turns(3, part=1)
def test_a_long_fetch_whose_client_is_gone_is_forgotten(client: ScriptedConnection, fetched: list[int]) -> None:
    other = client.loop.connect()
    client.send(framed("Fetch", 4, **fetch_of_all(wait_ms=1_000, min_bytes=1)))
    client.close()
    before = len(fetched)
    put(other, 0)
    client.loop.advance(2)
    assert len(fetched) == before


def test_a_long_fetch_that_is_cut_short_closes_the_connection(client: ScriptedConnection) -> None:
    frame = request_frame("Fetch", 4, 7, **fetch_of_all())[:-1]
    client.send(struct.pack(">i", len(frame)) + frame)
    assert client.transport.events[-1] == "close"


@pytest.mark.turns(3, part=0)
def test_positions_of_a_long_commit_are_written_in_turns(
    client: ScriptedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    put_positions = Catalog.put_positions

    def count(self: Catalog, rows: Any) -> None:
        listed = list(rows)
        written.append(len(listed))
        put_positions(self, listed)

    # every turn is over at the first look at the clock
    monkeypatch.setattr(positions, "WRITE_S", 0)
    monkeypatch.setattr(Catalog, "put_positions", count)
    seen = watch_passes(client, lambda: sum(written))
    partitions = [{"partition_index": number, "committed_offset": 0} for number in range(PARTITIONS)]
    alone = {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    topics = [{"name": "t", "partitions": partitions}]
    answer = ask(client, "OffsetCommit", 2, group_id="g", **alone, topics=topics)
    assert {row.error_code for row in answer.topics[0].partitions} == {0}
    # what was answered is written, no more than so many in one pass
    assert sum(written) == PARTITIONS
    assert most_at_once(seen) <= ROWS_AT_ONCE < PARTITIONS


@pytest.mark.turns(3, part=1)
def test_a_long_request_is_decoded_and_its_answer_encoded_by_a_worker(
    client: ScriptedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the first request of a version goes to a worker, however short it is
    prepare_codec(METADATA, 4)
    works: list[Any] = []
    run = client.loop.run_in_executor

    def record(executor: Any, work: Any, *arguments: Any) -> Any:
        works.append(work)
        return run(executor, work, *arguments)

    monkeypatch.setattr(client.loop, "run_in_executor", record)
    names = [{"name": f"{number:0100}"} for number in range(PARTITIONS)]
    answer = ask(client, "Metadata", 4, topics=names, allow_auto_topic_creation=False)
    assert [row.name for row in answer.topics] == [one["name"] for one in names]
    assert [getattr(work, "func", None) for work in works[:1]] == [decode_bounded_request]
    assert len(works) == 2
    ask(client, "Metadata", 4, topics=names[:2], allow_auto_topic_creation=False)
    assert len(works) == 2


CONFIGS = [{"name": "retention.ms", "value": "60000"}]
MORE = {
    "topics": [{"name": "t", "count": PARTITIONS + 1, "assignments": None}],
    "timeout_ms": 1,
    "validate_only": False,
}
RESOURCE = {"resource_type": 2, "resource_name": "t"}
DESCRIBE = {"resources": [{**RESOURCE, "configuration_keys": ["retention.ms"]}], "include_synonyms": False}


@pytest.mark.parametrize(
    ("change", "question", "seen"),
    [
        (
            ("DeleteTopics", 1, {"topic_names": ["t"], "timeout_ms": 1_000}),
            ("Metadata", 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}),
            lambda answer: answer.topics[0].error_code == 3,
        ),
        (
            ("CreatePartitions", 0, MORE),
            ("Metadata", 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}),
            lambda answer: len(answer.topics[0].partitions) == PARTITIONS + 1,
        ),
        (
            ("AlterConfigs", 0, {"resources": [{**RESOURCE, "configs": CONFIGS}], "validate_only": False}),
            ("DescribeConfigs", 1, DESCRIBE),
            lambda answer: answer.results[0].configs[0].value == "60000",
        ),
    ],
    ids=["DeleteTopics", "CreatePartitions", "AlterConfigs"],
)
@pytest.mark.turns(3)
def test_what_is_asked_behind_a_change_sees_it(
    client: ScriptedConnection, change: Any, question: Any, seen: Callable[[Any], bool]
) -> None:
    client.send(b"".join(framed(name, version, **fields) for name, version, fields in (change, question)))
    _, answer = answers(client, change[:2], question[:2])
    assert seen(answer)
