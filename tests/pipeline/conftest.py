"""A broker for all tests of this room; each test has topics and tables of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lading import testing
from lading.transports.lading.transport import LadingTransport
from tests.spark.conftest import spark

from .flights import QUARANTINE, TOML, fill

__all__ = ["spark"]

ROWS, PARTITIONS = 1200, 2
_numbers = itertools.count()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    """A broker."""
    with testing.broker(data_dir=tmp_path_factory.mktemp("pipeline") / "data") as running:
        yield running


@dataclass(frozen=True)
class Place:
    """One topic with flights, and the directory of one pipeline over it."""

    base: Path
    url: str
    topic: str
    transport: LadingTransport

    @property
    def copies(self) -> str:
        """The quarantine topic."""
        return f"{self.topic}-quarantine"

    @property
    def tables(self) -> Path:
        """Where the tables lie."""
        return self.base / "tables"

    def write(self, change: Callable[[str], str] = lambda text: text, max_rows: int = 1500) -> Path:
        """The pipeline's file, with changes."""
        text = TOML.format(source=self.url, topic=self.topic, server=self.url, max_rows=max_rows)
        file = self.base / "flights.toml"
        file.write_text(change(text + QUARANTINE.format(topic=self.copies)))
        return file


@pytest.fixture
def place(served: testing.BrokerProcess, tmp_path: Path) -> Iterator[Place]:
    """A topic of two partitions with 1,200 messages each."""
    transport = LadingTransport(served.url)
    topic = f"air.flights{next(_numbers)}"
    fill(transport, topic, PARTITIONS, ROWS)
    yield Place(tmp_path, served.url, topic, transport)
    transport.close()
