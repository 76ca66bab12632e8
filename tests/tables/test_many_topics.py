"""Sources of several topics: by name and by pattern, topics that come later, that are deleted, and made again."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lading import testing
from lading.client.bulk import write_arrow
from lading.columns.contract import parse_columns
from lading.model.errors import DataLoss, LocalError, SettingError
from lading.spark.source import LadingReader
from lading.spark.stream_limits import LimitedStreamReader
from lading.spark.types import schema_of
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.local import LocalExecutor
from lading.tables.plan import source_planner
from lading.tables.plan.offsets import parse_document
from lading.tables.plan.options import SourceOptions
from lading.tables.plan.source_planner import SourcePlanner
from lading.tables.topic_tables import table_of_topic
from lading.transports.open import open_transport
from lading.transports.topics import UnknownTopic

from .logged_forms import loaded

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(data_dir=tmp_path_factory.mktemp("many") / "data") as running:
        yield running


def send(server: testing.BrokerProcess, topic: str, rows: int, partitions: int = 2) -> None:
    transport = open_transport(server.url)
    if topic not in {meta.name for meta in transport.topics()}:
        transport.create_topic(topic, partitions)
    transport.close()
    write_arrow(pa.table({"payload": [b"x"] * rows, "n": list(range(rows))}), server.url, topic, headers=["n"])


def delete(server: testing.BrokerProcess, topic: str) -> None:
    transport: Any = open_transport(server.url)
    transport.delete_topic(topic)
    transport.close()


def options(url: str, **more: Any) -> SourceOptions:
    return SourceOptions.parse({"from": url, **{name: str(value) for name, value in more.items()}})


def read(url: str, **more: Any) -> Counter[tuple[str, str]]:
    """Messages by stream and topic of a batch read, through the classes that Spark calls."""
    reader = LadingReader(options(url, **more), schema_of(parse_columns("stream, topic, partition, offset")))
    rows = [row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()]
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    return Counter((row["stream"], row["topic"]) for row in rows)


@pytest.fixture(scope="module")
def flights(server: testing.BrokerProcess) -> dict[tuple[str, str], int]:
    """Messages by stream and topic of all topics that ``air[.].*`` matches."""
    for topic, rows in {"air.europe": 30, "air.asia": 20, "sea.asia": 5, "air": 3}.items():
        send(server, topic, rows)
    return {("air", "europe"): 30, ("air", "asia"): 20}


@pytest.mark.parametrize("protocol", ["lading", "iggy", "kafka", "directory"])
def test_a_batch_reads_the_topics_that_match(
    server: testing.BrokerProcess, flights: dict[tuple[str, str], int], protocol: str
) -> None:
    url = {
        "lading": server.url,
        "iggy": f"iggy://{server.endpoints['iggy_tcp']}",
        "kafka": f"kafka://{server.endpoints['kafka']}",
        "directory": str(server.data_dir),
    }[protocol]
    # Kafka has no streams: the names of its topics are whole
    wanted = {("default", ".".join(name)): count for name, count in flights.items()} if protocol == "kafka" else flights
    if protocol == "directory":
        time.sleep(0.3)
    assert read(url, subscribePattern="air[.].*") == wanted
    assert read(url, topics="air.europe, air.asia, air.europe") == wanted
    assert read(url, subscribe="air.europe").total() == 30


def test_positions_by_topic(server: testing.BrokerProcess, flights: dict[tuple[str, str], int]) -> None:
    begin = {"air.europe": {"0": 4, "1": 0}}
    end = {"air.asia": {"0": 0, "1": "latest"}}
    every = read(server.url, topic_pattern="air[.].*")
    found = read(server.url, topic_pattern="air[.].*", startingOffsets=json.dumps(begin))
    assert every.total() - found.total() == 4
    ended = read(server.url, topics="air.europe,air.asia", endingOffsets=json.dumps(end))
    assert ended["air", "europe"] == 30 and ended["air", "asia"] < 20
    assert not read(server.url, topic_pattern="air[.].*", startingOffsets="latest")
    for value in ({"0": 4}, {"air.africa": {"0": 4}}):
        with pytest.raises(SettingError, match="by topic and partition, for example"):
            read(server.url, topic_pattern="air[.].*", startingOffsets=json.dumps(value))


def test_ranges_of_many_topics_parse_each_position_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 topics took 4 s of CPU: the positions of all were parsed again for each of them."""
    parse, parsed = parse_document, list[str]()

    def count(name: str, positions: Any) -> Any:
        parsed.append(name)
        return parse(name, positions)

    monkeypatch.setattr(source_planner, "parse_document", count)
    names = [f"air.{number}" for number in range(50)]
    start = {name: {"0": {"topic_id": None, "epoch": 0, "offset": 0}} for name in names}
    end = {name: {"0": {"topic_id": None, "epoch": 0, "offset": 5}} for name in names}
    planner = SourcePlanner(options("lading://127.0.0.1:1", topic_pattern="air[.].*"))
    assert [(piece.topic, piece.start, piece.end) for piece in planner.ranges(start, end)] == [
        (name, 0, 5) for name in names
    ]
    assert len(parsed) == 2 * len(names)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"topic": "air", "topic_pattern": "a"}, "both select topics; give one"),
        ({"topic_pattern": "air["}, "invalid regular expression"),
        ({"topics": " , "}, "names no topic"),
        ({}, "topics and topic_pattern take several"),
    ],
)
def test_what_selects_no_topics_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        options("lading://127.0.0.1:1", **given)


def test_a_queue_has_one_topic_a_source() -> None:
    for given in ({"topic_pattern": "a.*"}, {"topics": "a,b"}):
        with pytest.raises(SettingError, match="is a queue, and a source reads one topic of a queue"):
            options("nsq://127.0.0.1:1", **given)


def test_nothing_that_matches_is_an_error_with_what_exists(
    server: testing.BrokerProcess, flights: dict[tuple[str, str], int], tmp_path: Path
) -> None:
    with pytest.raises(UnknownTopic, match=r"topic_pattern 'rail.*': matches no topic at .*; there are .*'air.asia'"):
        read(server.url, topic_pattern="rail.*")
    with pytest.raises(UnknownTopic, match=r"'air\.africa' does not exist"):
        read(server.url, topics="air.europe,air.africa")
    executor = LocalExecutor(1)
    with pytest.raises(UnknownTopic, match="matches no topic"):
        ingest(executor, server.url, None, tmp_path / "t", IngestSettings(topic_pattern="rail.*"))
    assert not (tmp_path / "t").exists()


class Stream:
    """A stream as Spark would ask for it, with a checkpoint as JSON."""

    def __init__(self, url: str, **more: Any) -> None:
        self.reader = LimitedStreamReader(options(url, **more), schema_of(parse_columns("topic, partition, offset")))
        self.at = json.loads(json.dumps(self.reader.initialOffset()))

    def read(self) -> Counter[str]:
        end = json.loads(json.dumps(self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())))
        rows = [
            row
            for piece in self.reader.partitions(self.at, end)
            for batch in self.reader.read(piece)
            for row in batch.to_pylist()
        ]
        self.at = end
        return Counter(row["topic"] for row in rows)


def test_a_stream_finds_topics_and_notices_those_that_were_deleted_or_made_again(
    server: testing.BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Stream(server.url, topic_pattern="stream_[a-z]")
    assert waiting.at == {} and not waiting.read() and not waiting.read()
    assert [record.message for record in caplog.records if "waiting for the first one" in record.message] != []
    assert len(caplog.records) == 1
    send(server, "stream_a", 10)
    assert waiting.read() == {"stream_a": 10}
    latest = Stream(server.url, topic_pattern="stream_[a-z]", startingOffsets="latest")
    assert not latest.read()
    send(server, "stream_b", 7, partitions=3)
    send(server, "stream_a", 2)
    for stream in (waiting, latest):
        # what comes later is read from its beginning, whatever the start was
        assert stream.read() == {"stream_a": 2, "stream_b": 7}
        assert {topic: len(marks) for topic, marks in stream.at.items()} == {"stream_a": 2, "stream_b": 3}
    delete(server, "stream_b")
    with pytest.raises(DataLoss, match="topic 'stream_b': it was deleted"):
        latest.read()
    lenient = Stream(server.url, topic_pattern="stream_[a-z]", failOnDataLoss="false")
    lenient.at = latest.at
    send(server, "stream_a", 1)
    caplog.clear()
    assert lenient.read() == {"stream_a": 1} and not lenient.read()
    assert len([record for record in caplog.records if "'stream_b': it was deleted" in record.message]) == 1
    send(server, "stream_b", 4, partitions=3)
    with pytest.raises(DataLoss, match=r"topic 'stream_b', partition .: .*deleted and created again"):
        latest.read()
    caplog.clear()
    assert lenient.read() == {"stream_b": 4}
    assert any("deleted and created again" in record.message for record in caplog.records)
    other = Stream(server.url, topic_pattern="stream_[a-z]")
    other.at = {"elsewhere": {"0": {"topic_id": None, "epoch": 0, "offset": 1}}}
    with pytest.raises(SettingError, match="the checkpoint holds positions of 'elsewhere'"):
        other.read()


def test_the_progress_of_a_stream_has_the_lag_by_topic(server: testing.BrokerProcess) -> None:
    send(server, "lag_a", 100, partitions=3)
    send(server, "lag_b", 5)
    stream = Stream(server.url, topic_pattern="lag_.", maxRowsPerTrigger=40)
    stream.read()
    send(server, "lag_b", 10)
    reported = json.loads(json.dumps(stream.reader.reportLatestOffset()))
    left = {
        topic: sum(int(reported[topic][number]["offset"]) - mark["offset"] for number, mark in marks.items())
        for topic, marks in stream.at.items()
    }
    lags = {topic: marks["lag"] for topic, marks in reported.items()}
    assert {topic: lag["messages"] for topic, lag in lags.items()} == left
    assert left["lag_a"] > 50 and left["lag_b"] >= 10
    assert lags["lag_a"]["source"] == f"{server.url} lag_a (3 partitions)"
    for lag in lags.values():
        assert 0 < lag["seconds"] < 600 and lag["bytes"] > 10 * lag["messages"]
    # a position may be copied with the lag beside it
    every = read(server.url, topics="lag_a,lag_b", startingOffsets=json.dumps(reported))
    assert not every
    while stream.read():
        pass
    done = stream.reader.reportLatestOffset()
    assert done is not None
    for marks in done.values():
        assert (marks["lag"]["messages"], marks["lag"]["bytes"], marks["lag"]["seconds"]) == (0, 0, 0.0)


def test_a_batch_is_limited_over_all_topics(server: testing.BrokerProcess) -> None:
    send(server, "limit_a", 900)
    send(server, "limit_b", 100)
    stream = Stream(server.url, topic_pattern="limit_.", maxRowsPerTrigger=100)
    first = stream.read()
    assert 90 <= first["limit_a"] <= 92 and 8 <= first["limit_b"] <= 12
    total = first
    while more := stream.read():
        assert more.total() <= 104
        total += more
    assert total == {"limit_a": 900, "limit_b": 100}


def test_an_ingest_of_several_topics_goes_on_with_those_that_came_later(
    server: testing.BrokerProcess, tmp_path: Path
) -> None:
    send(server, "in_a", 50)
    executor = LocalExecutor(2)
    settings = IngestSettings(columns="topic, partition, offset, n bigint", topic_pattern="in_.", starting="latest")
    table = tmp_path / "t"

    def run(**more: Any) -> Counter[str]:
        ingest(executor, server.url, None, table, settings, **more)
        rows = pq.read_table(table, columns=["topic", "partition", "offset"]).to_pylist()
        assert len({tuple(row.values()) for row in rows}) == len(rows)
        return Counter(row["topic"] for row in rows)

    try:
        ingest(executor, server.url, None, table, settings)
        send(server, "in_a", 5)
        send(server, "in_b", 40)
        # a topic that was made between two runs begins at its beginning
        assert run() == {"in_a": 5, "in_b": 40}
        follow = IngestSettings(
            columns=settings.columns, topic_pattern="in_.", starting="latest", follow=True, interval_s=0.1
        )
        stop, counts = threading.Event(), Counter[str]()

        def note(progress: Any) -> None:
            counts["rows"] = progress.rows

        thread = threading.Thread(
            target=lambda: ingest(executor, server.url, None, table, follow, stopped=stop.is_set, on_progress=note)
        )
        thread.start()
        send(server, "in_c", 30)
        deadline = time.monotonic() + DEADLINE_S
        while counts["rows"] < 30 and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()
        thread.join(DEADLINE_S)
        assert run() == {"in_a": 5, "in_b": 40, "in_c": 30}
    finally:
        executor.close()


def test_a_list_of_an_ingest_may_grow(server: testing.BrokerProcess, tmp_path: Path) -> None:
    send(server, "list_a", 5)
    send(server, "list_b", 6)
    send(server, "list_c", 7)
    executor = LocalExecutor(1)
    try:
        for topics, rows in ((["list_a", "list_b"], 11), (["list_a", "list_b", "list_c"], 7)):
            report = ingest(
                executor, server.url, None, tmp_path / "t", IngestSettings(columns="topic, offset", topics=topics)
            )
            assert report.rows == rows
    finally:
        executor.close()


@pytest.mark.parametrize("form", ["parquet", "delta", "iceberg"])
def test_each_topic_has_a_table_of_its_own(server: testing.BrokerProcess, tmp_path: Path, form: str) -> None:
    for topic, rows in {f"own_{form}.a": 30, f"own_{form}.b": 20}.items():
        send(server, topic, rows)
    executor = LocalExecutor(2)
    settings = IngestSettings(columns="topic, partition, offset, n bigint", topic_pattern=f"own_{form}[.].")

    def run() -> dict[str, int]:
        ingest(executor, server.url, None, f"{form}:{tmp_path}/lake/{{topic}}", settings)
        tables = [path for path in (tmp_path / "lake").iterdir() if path.name != "_lading"]
        if form == "delta":
            return {path.name: DeltaTable(path).to_pyarrow_table().num_rows for path in tables}
        if form == "iceberg":
            return {path.name: loaded(path).scan().to_arrow().num_rows for path in tables}
        return {path.name: pq.read_table(path).num_rows for path in tables}

    try:
        assert run() == {f"own_{form}.a": 30, f"own_{form}.b": 20}
        send(server, f"own_{form}.c", 10)
        send(server, f"own_{form}.a", 1)
        assert run() == {f"own_{form}.a": 31, f"own_{form}.b": 20, f"own_{form}.c": 10}
        assert run() == {f"own_{form}.a": 31, f"own_{form}.b": 20, f"own_{form}.c": 10}
        with pytest.raises(SettingError, match=r"\{stream\} stands for nothing; \{topic\} is the name of a topic"):
            ingest(executor, server.url, None, f"{form}:{tmp_path}/lake/{{stream}}", settings)
    finally:
        executor.close()


def test_a_topic_whose_name_no_table_can_have_is_refused(tmp_path: Path) -> None:
    for topic in ("", ".", "..", "a/b", "_a", ".a", "ä"):
        with pytest.raises(LocalError, match="its name cannot be a part of the table"):
            table_of_topic(tmp_path / "{topic}", topic)
    assert table_of_topic(tmp_path / "x_{topic}", "air.europe-1_2") == tmp_path / "x_air.europe-1_2"


class CountingTransport:
    """Counts the calls that planning makes of a transport."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._transport, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return found(*arguments, **named)

        return call


def test_planning_lists_topics_once_however_many_there_are(
    server: testing.BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    transport = open_transport(server.url)
    for number in range(40):
        transport.create_topic(f"many_{number}", 3)
    transport.close()
    planner = SourcePlanner(options(server.url, topic_pattern="many_.*"))
    counting = CountingTransport(planner.transport)
    planner._connection._transport = counting
    caplog.set_level(logging.ERROR)
    assert planner.batch() == []
    positions = planner.initial_offsets()
    assert len(positions) == 40
    assert planner.next_offsets(positions, 1000, None, planner.end_offsets()) == positions
    assert counting.calls == {"topics": 4}
    planner.close()
