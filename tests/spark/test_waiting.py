"""A stream waits for a broker that went away; actions on one DataFrame tell of absent headers once."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lading.columns.contract import parse_columns
from lading.model.errors import Unreachable
from lading.spark.source import LadingSource
from lading.spark.stream_limits import LimitedStreamReader
from lading.spark.types import schema_of
from lading.tables.plan.options import SourceOptions
from lading.testing.held_ports import PortHolder
from tests.tables.restarting import RestartingBroker, patience_lines

LIMIT = ReadAllAvailable()
ENDS_WITHIN_S = 60
SCHEMA = schema_of(parse_columns("offset, payload"))


@pytest.fixture
def restarting(tmp_path: Path, ports: PortHolder) -> Iterator[RestartingBroker]:
    made = RestartingBroker(tmp_path / "data", ports)
    made.send(b"0", b"1")
    yield made
    made.stop()


def reader_of(restarting: RestartingBroker, scheme: str) -> LimitedStreamReader:
    options = {"from": restarting.url(scheme), "topic": "t", "transport.retries": "0", "transport.timeout_s": "5"}
    return LimitedStreamReader(SourceOptions.parse(options), SCHEMA)


@pytest.mark.turns(3)
@pytest.mark.parametrize("scheme", ["lading", "iggy", "kafka"])
def test_a_stream_goes_on_when_the_broker_is_back(
    restarting: RestartingBroker, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    reader = reader_of(restarting, scheme)
    start = reader.initialOffset()
    end = reader.latestOffset(start, LIMIT)
    restarting.stop()
    assert [reader.latestOffset(end, LIMIT) for _ in range(2)] == [end, end]
    assert reader.reportLatestOffset() is None
    rows: list[bytes] = []
    failed: list[BaseException] = []

    def read() -> None:
        try:
            # a task has its own copy of the reader
            (piece,) = reader.partitions(start, end)
            for batch in pickle.loads(pickle.dumps(reader)).read(piece):
                rows.extend(batch.column("payload").to_pylist())
        except BaseException as error:
            failed.append(error)

    task = threading.Thread(target=read, daemon=True)
    task.start()
    until = time.monotonic() + ENDS_WITHIN_S
    while len(patience_lines(caplog)) < 2:
        assert task.is_alive() and time.monotonic() < until, failed
        time.sleep(0.02)
    restarting.start()
    task.join(ENDS_WITHIN_S)
    assert rows == [b"0", b"1"], failed
    restarting.send(b"2")
    while reader.latestOffset(end, LIMIT) == end:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert (
        sorted(patience_lines(caplog))
        == ["the server of topic 't' is away"] * 2 + ["the server of topic 't' is back"] * 2
    )
    reader.stop()


@pytest.mark.turns(2, part=1)
def test_a_broker_that_never_answered_is_no_reason_to_wait(restarting: RestartingBroker) -> None:
    start = reader_of(restarting, "lading").initialOffset()
    available = reader_of(restarting, "lading")
    available.latestOffset(start, LIMIT)
    available.prepareForTriggerAvailableNow()
    restarting.stop()
    with pytest.raises(Unreachable):
        reader_of(restarting, "lading").latestOffset(start, LIMIT)
    # nothing new would say that all is read
    with pytest.raises(Unreachable):
        available.latestOffset(start, LIMIT)
    restarting.start()


@pytest.mark.turns(2, part=0)
def test_absent_headers_are_told_once_for_all_actions_on_a_frame(
    restarting: RestartingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    schema = schema_of(parse_columns("offset, carier string"))

    def tell_of(frame: bytes) -> int:
        before = len(caplog.messages)
        assert len(pickle.loads(frame).reader(schema).partitions()) == 1
        return len([line for line in caplog.messages[before:] if "carier" in line])

    options = {"from": restarting.url("lading"), "topic": "t"}
    first, second = (pickle.dumps(LadingSource(options)) for _ in range(2))
    assert [tell_of(first), tell_of(first), tell_of(second), tell_of(second)] == [1, 0, 1, 0]
