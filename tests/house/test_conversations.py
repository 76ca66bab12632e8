"""Connections do with the same bytes what they did before there was one core for them, however the bytes are cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.house.conversations import (
    LOGS,
    RECORDED,
    STREAMS,
    choose_conversations,
    converse,
    list_conversations,
    to_digest,
    warm_up,
)

# a cold cache of kernels is filled first
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """What is recorded is what a broker does once everything is loaded."""
    warm_up()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory in memory where the machine has one: brokers are made by the hundred, and their catalogs sync."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("endpoint", STREAMS)
@pytest.mark.turns(3)
def test_as_recorded(scratch: Path, endpoint: str, log: str, full: bool) -> None:
    """Whole with LADING_TEST_FULL=1, else two ways to cut each stream."""
    recorded = json.loads(RECORDED.read_text())
    chosen = choose_conversations(endpoint, log)
    if full:
        chosen = [each for each in list_conversations().values() if (each.endpoint, each.log) == (endpoint, log)]
    assert chosen
    numbers = itertools.count()
    digests = {each.name: to_digest(converse(each, scratch / str(next(numbers)))) for each in chosen}
    differing = [name for name, digest in digests.items() if digest != recorded[name]]
    assert not differing, f"{len(differing)} of {len(chosen)}; python -m tests.house.conversations --show shows one"
