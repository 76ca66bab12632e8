"""Fixtures every test room shares."""

from __future__ import annotations

import gc
import os
import signal
import ssl
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from httpx._transports import default as httpx_transport

# a JVM of a test lives for seconds: optimising what it runs costs more CPU than it ever saves
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# as a broker sets it for itself, also if a test runs one in this process: without it NumPy makes threads that spin
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from lading import testing
from lading.testing.held_ports import PortHolder
from tests import case_turns, forked_broker, guard_pages, kernel_arguments, summary
from tests.interop import kafka_broker, shared_kafka
from tests.spark import class_archive

if TYPE_CHECKING:
    from tests.tables.cloud_servers import CloudServer
    from tests.tables.object_server import ObjectServer

kernel_arguments.install()
guard_pages.install_if_asked()

BUILT = frozenset({"object_server", "gs_server", "abfss_server"})
"""Fixtures of servers that are built from their sources, or installed."""
BUILD_TIMEOUT_S = 900


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether long suites run whole (``make test-full``) instead of as seeded samples."""
    return os.environ.get("LADING_TEST_FULL") == "1"


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> kafka_broker.RunningKafka:
    """One real Apache Kafka broker for all tests that ask for it; ours for those that ask for ``lading``.

    A module that holds both to the same answers says ``parametrize("kafka", ["apache", "lading"], indirect=True)``.
    """
    if getattr(request, "param", "apache") == "lading":
        ours: kafka_broker.RunningKafka = request.getfixturevalue("kafka_of_ours")
        return ours
    try:
        return shared_kafka.running()
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def kafka_of_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_broker.RunningKafka]:
    """Our broker as the fixture ``kafka`` shows it."""
    quick = {"broker.member_session_min_ms": 1000}
    with testing.broker(data_dir=tmp_path_factory.mktemp("lading") / "data", settings=quick) as ours:
        yield kafka_broker.RunningKafka(ours.endpoints["kafka"], ours.pid)


@pytest.fixture
def ports() -> Iterator[PortHolder]:
    """Addresses for brokers that a test starts again: nobody else gets them meanwhile."""
    with PortHolder() as holder:
        yield holder


@pytest.fixture
def same_endpoints(ports: PortHolder) -> dict[str, str]:
    """Settings of a broker that is found where it was when it is started again."""
    return testing.hold_endpoints(ports)


def share_tls_context(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """Have clients of httpx without TLS settings of their own share a context: each would read all root certificates.

    That takes 40 ms of CPU, also for ``http://``, and tests make many hundred such clients.
    """

    @cache
    def create_usual(*_environment: str | None) -> ssl.SSLContext:
        return create()

    def choose(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is True and cert is None and trust_env:
            return create_usual(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        return create(verify, cert, trust_env)

    return choose


def pytest_configure(config: pytest.Config) -> None:
    """The first process of a run begins what all of them share."""
    # what runs in the background of a shell script ignores Ctrl-C, and so does each command that a test interrupts
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # sources are compiled once, not in each of the processes that tests start
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    class_archive.use_archive()
    testing.launch = forked_broker.launch
    vars(httpx_transport)["create_ssl_context"] = share_tls_context(httpx.create_ssl_context)
    if not shared_kafka.PROCESS:
        shared_kafka.begin()
        case_turns.begin(config)
    case_turns.vary_examples()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded and collected stays: the search for garbage need not look through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish() -> None:
    """No module has changed the environment that brokers of tests are forked in."""
    forked_broker.require_same_environment()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fail the test that leaves a changed environment to the tests after it: their brokers would not be forks."""
    yield
    forked_broker.require_same_environment()


def pytest_unconfigure(config: pytest.Config) -> None:
    """And ends it."""
    if not shared_kafka.PROCESS:
        shared_kafka.end()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says what was left out and why."""
    summary.print_summary(terminalreporter, getattr(config, "cache", None))


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """An S3 server for all tests of a process."""
    from tests.tables.object_server import run_object_server

    with run_object_server(tmp_path_factory.mktemp("objects")) as running:
        yield running


@pytest.fixture(scope="session")
def gs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    """A server of Google Cloud Storage for all tests of a process."""
    from tests.tables.cloud_servers import run_google_server

    with run_google_server(tmp_path_factory.mktemp("google")) as running:
        yield running


@pytest.fixture(scope="session")
def abfss_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    """A server of Azure's blobs for all tests of a process."""
    from tests.tables.cloud_servers import run_azure_server

    with run_azure_server(tmp_path_factory.mktemp("azure")) as running:
        yield running


@pytest.fixture
def bucket(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of its own, and the environment that finds it, and a catalog for it."""
    from tests.tables.object_forms import point_to

    point_to(object_server, tmp_path, monkeypatch)
    return object_server.create_bucket(f"lake{len(list(object_server.buckets.iterdir()))}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who runs which file, where there are several processes."""
    from tests.together import Together

    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start Spark first: few tests, minutes long, at the end they would keep one process waiting."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    for item in items:
        if BUILT.intersection(getattr(item, "fixturenames", ())) and item.get_closest_marker("timeout") is None:
            # the first one waits until the server is built, once in a cache
            item.add_marker(pytest.mark.timeout(BUILD_TIMEOUT_S))
    case_turns.skip_others(items)
