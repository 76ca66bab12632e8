"""A data directory read without its broker: the same messages, the same limits of sight, clear words for errors."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lading import Consumer, Producer, read_arrow
from lading.client.outgoing import complete
from lading.model.errors import DataLoss, LadingError, LocalError
from lading.model.state import State
from lading.testing import BrokerProcess, broker
from lading.transports.files import FilesTransport
from lading.transports.lading.transport import LadingTransport

WAIT_S = 10.0
"""Bound of every wait for the watermark; it lags 100 ms."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that a broker wrote and left: two topics, states, an aborted and an open transaction."""
    directory = tmp_path_factory.mktemp("data")
    with broker(directory) as running:
        fill(running)
    return directory


def fill(running: BrokerProcess) -> None:
    transport = LadingTransport(running.url)
    transport.create_topic("ships.arrivals", 2)
    # without a linger time, batches end where batch_count says, however slow the machine
    with Producer(running.url, batch_count=10, linger_ms=None) as producer:
        for number in range(100):
            producer.send("ships.arrivals", b"%d" % number, headers={"n": number}, timestamp=1_000_000 * (number + 1))
        producer.send("other", b"alone", headers=[("via", None), ("via", "x")], key=b"k")
    transport.set_state("ships.arrivals", 1, 5, 8, State.POISONED)
    batch = complete(1, {"payload": pa.array([b"dropped"], pa.binary())})
    dropped, unfinished = transport.begin(), transport.begin()
    transport.writer(transaction_id=dropped).send("other", 0, batch)
    transport.abort([dropped])
    transport.send("other", 0, complete(1, {"payload": pa.array([b"last"], pa.binary())}))
    transport.writer(transaction_id=unfinished).send("other", 0, batch)
    transport.close()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.turns(3, part=2)
def test_topics_and_messages(data: Path) -> None:
    transport = FilesTransport(str(data))
    assert sorted(meta.name for meta in transport.topics()) == ["other", "ships.arrivals"]
    meta = transport.topic("ships.arrivals")
    assert (meta.stream, meta.topic, len(meta.partitions)) == ("ships", "arrivals", 2)
    assert [(part.first_offset, part.end_offset) for part in meta.partitions] == [(0, 50), (0, 50)]
    found = list(Consumer(str(data), "ships.arrivals", timeout_s=0, states="all"))
    assert sorted(int(message.payload or b"") for message in found) == list(range(100))
    assert all(message.headers["n"] == int(message.payload or b"") for message in found)


def test_states_hide(data: Path) -> None:
    shown = [message.offset for message in Consumer(data.as_uri(), "ships.arrivals", start={1: 3}, end=10)]
    assert shown == [3, 4, 8, 9]


def test_open_and_aborted_transactions_are_not_seen(data: Path) -> None:
    messages = list(Consumer(str(data), "other", timeout_s=0))
    assert [message.payload for message in messages] == [b"alone", b"last"]
    assert messages[0].headers.items() == [("via", None), ("via", "x")]
    assert messages[0].key == b"k"


def test_filters_and_columns_run_here(data: Path) -> None:
    table = read_arrow(str(data), "ships.arrivals", "n int, partition", where="n BETWEEN 40 AND 43")
    assert set(table.column("n").to_pylist()) == {40, 41, 42, 43}


def test_offset_at(data: Path) -> None:
    transport = FilesTransport(str(data))
    # partition 0 has the even numbers, n at second n + 1
    for second, offset in ((0, 0), (1, 0), (2, 1), (3, 1), (99, 49), (100, 50)):
        assert transport.offset_at("ships.arrivals", 0, second * 1_000_000) == offset


def test_a_topic_or_a_partition_may_be_named_alone(data: Path) -> None:
    (topic_directory,) = [path.parent for path in data.glob("topics/*/1")]
    assert [meta.name for meta in FilesTransport(str(topic_directory)).topics()] == ["ships.arrivals"]
    (meta,) = FilesTransport(str(topic_directory / "1")).topics()
    assert [part.number for part in meta.partitions] == [1]
    assert len(list(Consumer(str(topic_directory / "1"), "ships.arrivals", timeout_s=0, states="all"))) == 50


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path / "nowhere", "does not exist; a server is named"),
        (lambda path: path, "is not a log"),
    ],
)
def test_a_directory_that_is_no_log_is_named(tmp_path: Path, make: Callable[[Path], Path], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        FilesTransport(str(make(tmp_path)))


def test_what_a_directory_cannot_do_is_explained(data: Path) -> None:
    with Producer(str(data)) as producer, pytest.raises(LocalError, match=r"only read.*lading serve"):
        producer.send("new", b"")
    with pytest.raises(LocalError, match="no consumer groups"):
        Consumer(str(data), "other", group="g")
    with pytest.raises(LocalError, match="did you mean 'other'"):
        Consumer(str(data), "othr")
    with pytest.raises(LocalError, match="no partition 7; there are 0"):
        FilesTransport(str(data)).fetch("other", 7, 0)


def test_a_partition_that_is_being_made_is_waited_for(data: Path, tmp_path: Path) -> None:
    copy, aside = tmp_path / "data", tmp_path / "aside"
    shutil.copytree(data, copy)
    (description,) = (
        path for path in copy.glob("topics/*/topic.json") if json.loads(path.read_text())["topic"] == "other"
    )
    partition = description.parent / "0"
    partition.rename(aside)
    partition.mkdir()

    def make() -> None:
        partition.rmdir()
        aside.rename(partition)

    timer = threading.Timer(0.2, make)
    timer.start()
    assert read_arrow(str(copy), "other").column("payload").to_pylist()[0] == b"alone"
    timer.join()


def test_a_damaged_watermark_is_named(data: Path, tmp_path: Path) -> None:

    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    for path in copy.glob("topics/*/0/watermark"):
        path.write_bytes(b"nonsense")
    with pytest.raises(LadingError, match="watermark"):
        Consumer(str(copy), "other")


@pytest.mark.turns(3, part=1)
def test_damage_is_a_loss_with_its_offsets(data: Path, tmp_path: Path) -> None:

    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    (log,) = copy.glob("topics/*/1/0*.log")
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    log.write_bytes(raw)
    with broker(copy) as running:
        for url in (str(copy), running.url):
            with pytest.raises(DataLoss, match="partition 1: offsets 20 to 29 are damaged"):
                list(Consumer(url, "ships.arrivals", start={1: 0}, timeout_s=0, states="all"))
            found = list(Consumer(url, "ships.arrivals", start={1: 0}, timeout_s=0, states="all", on_loss="skip"))
            assert [message.offset for message in found] == [*range(20), *range(30, 50)]
            assert all(message.headers["n"] == int(message.payload or b"") for message in found)


@pytest.mark.turns(3, part=0)
def test_a_directory_is_followed_while_its_broker_writes(tmp_path: Path) -> None:
    with broker(tmp_path) as running, Producer(running.url) as producer:
        producer.send("live", b"0")
        producer.flush()
        transport = FilesTransport(str(tmp_path))
        eventually(lambda: transport.topic("live").partitions[0].end_offset == 1)
        consumer = Consumer(str(tmp_path), "live", timeout_s=WAIT_S)
        assert next(consumer).payload == b"0"
        for number in range(1, 4):
            producer.send("live", b"%d" % number)
            producer.flush()
            assert next(consumer).payload == b"%d" % number
