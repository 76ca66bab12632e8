"""The pytest plugin: fixtures that give tests a real broker (docs/how-to/testing.md).

pytest imports this module in every run if Lading is installed, so it imports nothing until a test asks for a fixture.
Once pytest collects one that does, the process of the broker begins its imports during the rest of the collection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .testing.broker_fixture import LadingBroker

BROKER: Final = "lading_broker"
"""The fixture that all others here need."""
TOPIC: Final = "lading_topic"
is_prepared = pytest.StashKey[bool]()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """Prepare a broker before a module of tests is imported whose text names it: clients take long to import, too."""
    source = module_path.read_bytes()
    if BROKER.encode() in source or TOPIC.encode() in source:
        _prepare(parent.config)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Prepare a broker for a test that gets it by way of another fixture."""
    if _needs_broker(item):
        _prepare(item.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """End the prepared broker if no selected test needs one."""
    if is_prepared in session.config.stash and not any(_needs_broker(item) for item in session.items):
        _forget()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End a prepared broker that no test has used, as in a run that stops at its first failure."""
    if is_prepared in config.stash:
        _forget()


def _needs_broker(item: pytest.Item) -> bool:
    return BROKER in getattr(item, "fixturenames", ())


def _prepare(config: pytest.Config) -> None:
    # of the many workers of pytest-xdist, which all collect all tests, few may run one that needs a broker
    if is_prepared in config.stash or config.getoption("collectonly", default=False) or hasattr(config, "workerinput"):
        return
    from .testing import prepare

    config.stash[is_prepared] = True
    prepare()


def _forget() -> None:
    from .testing import forget_prepared

    forget_prepared()


@pytest.fixture(scope="session")
def lading_broker_options() -> dict[str, Any]:
    """Arguments of the broker of this run; override it in a ``conftest.py`` (arguments of ``LadingBroker``)."""
    return {}


@pytest.fixture(scope="session")
def lading_broker(lading_broker_options: dict[str, Any]) -> Iterator[LadingBroker]:
    """One broker for the whole run (with pytest-xdist, for each worker), started for the first test that asks."""
    from .model.errors import LadingError
    from .testing.broker_fixture import LadingBroker

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
