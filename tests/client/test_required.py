"""``required`` asks each message for a value: without a quarantine the first that has none ends the read, by offset."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading import Consumer, Producer, read_arrow, read_batches, testing
from lading.model.errors import LocalError
from lading.tables.ingest import IngestSettings, ingest
from tests.tables.direct import DirectExecutor

MESSAGES = 4
DEADLINE_S = 30
BREACHES: list[tuple[str, list[tuple[str, Any]]]] = [
    ("absent", [("other", "x")]),
    ("null", [("delay", None)]),
    ("unreadable", [("delay", "soon")]),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("required") / "data") as running:
        with Producer(running.url) as producer:
            for topic, headers in BREACHES:
                for each in ([("delay", "1")], [("delay", "2")], headers, [("delay", "4")]):
                    producer.send(topic, b"x", headers=each)
        deadline_s = time.monotonic() + DEADLINE_S
        for topic, _ in BREACHES:
            # a reader of the directory goes by the watermark in it, which the broker writes a moment later
            while read_arrow(str(running.data_dir), topic, "offset").num_rows < MESSAGES:
                assert time.monotonic() < deadline_s
        yield running


@pytest.mark.parametrize("topic", [topic for topic, _ in BREACHES])
@pytest.mark.parametrize("columns", ["offset, delay int required", "delay int required"])
def test_the_first_message_without_a_value_is_named(broker: testing.BrokerProcess, topic: str, columns: str) -> None:
    sentence = f"topic '{topic}', partition 0, offset 2: the column 'delay' is required"
    with pytest.raises(LocalError, match=sentence):
        read_arrow(broker.url, topic, columns)
    with pytest.raises(LocalError, match=sentence):
        read_batches(broker.url, topic, columns).read_all()
    with pytest.raises(LocalError, match=sentence):
        list(Consumer(broker.url, topic, timeout_s=0).batches(columns))
    # filtered by the client of a directory, and by a server
    with pytest.raises(LocalError, match=sentence):
        read_arrow(str(broker.data_dir), topic, columns, where="payload IS NOT NULL")
    with pytest.raises(LocalError, match=f"topic '{topic}', partition 0, .*the column 'delay' is required"):
        read_arrow(broker.url, topic, columns, where="payload IS NOT NULL")


def test_the_remedies_work(broker: testing.BrokerProcess) -> None:
    for topic, _ in BREACHES:
        assert read_arrow(broker.url, topic, "delay int").column("delay").to_pylist() == [1, 2, None, 4]
        found = read_arrow(broker.url, topic, "delay int required", where="delay is not null")
        assert found.column("delay").to_pylist() == [1, 2, 4]


def test_ingest_ends_and_writes_nothing_wrong(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="topic 'absent', partition 0, offset 2: the column 'delay' is required"):
        ingest(
            DirectExecutor(), broker.url, "absent", tmp_path / "t", IngestSettings(columns="offset, delay int required")
        )
    report = ingest(
        DirectExecutor(),
        broker.url,
        "absent",
        tmp_path / "t",
        IngestSettings(columns="offset, delay int required", where="delay is not null"),
    )
    assert report.rows == 3
