"""What all tests of the simulation share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.seeds import prepare


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep quiet about what is meant to go wrong, in these tests alone: others look at what is logged."""
    log = logging.getLogger("lading")
    level = log.level
    prepare()
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)
