"""One broker for the transports' tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from lading import testing

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[testing.BrokerProcess]:
    """A broker on free ports."""
    with testing.broker() as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A topic name nobody used before."""
    return f"transport-{next(_numbers)}"
