"""The pytest plugin: fixtures that give tests a real broker (docs/how-to/testing.md).

pytest imports this module in every run where Lading is installed, so that it imports nothing until a test asks for a
fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .broker_fixture import LadingBroker


@pytest.fixture(scope="session")
def lading_broker_options() -> dict[str, Any]:
    """Arguments of the broker of this run; override it in a ``conftest.py`` (arguments of ``LadingBroker``)."""
    return {}


@pytest.fixture(scope="session")
def lading_broker(lading_broker_options: dict[str, Any]) -> Iterator[LadingBroker]:
    """One broker for the whole run (with pytest-xdist, for each worker), started for the first test that asks."""
    from .broker_fixture import LadingBroker
    from .model.errors import LadingError

    with ExitStack() as closing:
        try:
            broker, problem = closing.enter_context(LadingBroker.of(lading_broker_options)), None
        except LadingError as error:
            problem = str(error)
        if problem is not None:
            # what is wrong is in a conftest.py, so that a traceback through Lading would only hide it
            pytest.fail(f"lading_broker_options: {problem}", pytrace=False)
        yield broker


@pytest.fixture
def clean_lading_broker(lading_broker: LadingBroker) -> LadingBroker:
    """The broker of the run without any topic, for a test whose topics have fixed names."""
    lading_broker.reset()
    return lading_broker


@pytest.fixture
def lading_topic(lading_broker: LadingBroker) -> str:
    """The name of a new topic with one partition, which no other test has."""
    return lading_broker.create_topic()
