"""One broker that is source and target of every route, and messages with every fact that a target may lose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading import Headers, HeaderValue, Producer, i16, read_arrow, testing
from lading.mirror.run import MirrorReport, run_mirror
from lading.mirror.settings import MirrorSettings
from lading.transports.open import open_transport

COMPARED = ["key", "headers", "payload", "timestamp"]
FACES = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
PARTITIONS = 2
MESSAGES = 40


@pytest.fixture(scope="session")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        fill(running.url, "flights")
        yield running


@pytest.fixture
def urls(broker: testing.BrokerProcess) -> dict[str, str]:
    """The broker by every protocol, and its directory."""
    return {name: f"{name}://{broker.endpoints[face]}" for name, face in FACES.items()} | {"file": str(broker.data_dir)}


@pytest.fixture
def mirror(tmp_path: Path) -> Callable[..., MirrorReport]:
    """Run a mirror with a state of its own; a second call goes on."""

    def run(
        source: str, target: str, topic: str, name: str, *, is_stopped: Any = lambda: False, **settings: Any
    ) -> Any:
        settings.setdefault("state", tmp_path / "state")
        settings.setdefault("quiet_ms", 300)
        renames = {topic: name} if name != topic else {}
        return run_mirror(MirrorSettings(source, target, [topic], renames=renames, **settings), is_stopped=is_stopped)

    return run


def fill(url: str, topic: str, count: int = MESSAGES, first: int = 0, partitions: int = PARTITIONS) -> None:
    transport = open_transport(url)
    if topic not in {one.name for one in transport.topics()}:
        transport.create_topic(topic, partitions)
    transport.close()
    with Producer(url) as producer:
        for number in range(first, first + count):
            headers: list[tuple[str, HeaderValue | str | bytes | None]] = [
                ("a", i16(number)), ("a", "again"), ("n", None), ("e", ""), ("b", b"\xff"),
            ]  # fmt: skip
            payload = None if number % 10 == 3 else b"" if number % 10 == 4 else b"%d" % number
            producer.send(topic, payload, headers=Headers(headers), key=b"k%d" % number, partition=number % partitions)


def contents(url: str, topic: str, leave_out: tuple[str, ...] = ()) -> list[Any]:
    """The messages of a topic, as a list that does not depend on how partitions were read."""
    columns = [name for name in COMPARED if name not in leave_out]
    table: pa.Table = read_arrow(url, topic).select(columns)
    return sorted(repr(row) for row in table.to_pylist())
