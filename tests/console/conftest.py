"""A broker with topics that are hard to show, and the console's application over it."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import lading
from lading import testing
from lading.client.producer import Producer
from lading.console.server import make_app
from lading.console.settings import ConsoleSettings
from lading.console.source import ConsoleSource
from lading.model.address import Address
from lading.pipeline.run import run
from lading.pipeline.settings import PipelineSettings
from lading.serve.local_server import listen
from lading.tables.local import LocalExecutor
from lading.transports.lading.transport import LadingTransport

with warnings.catch_warnings():
    # it prefers another HTTP client by now
    warnings.simplefilter("ignore", UserWarning)
    from starlette.testclient import TestClient as TestClient

SCRIPT = "<img src=x onerror=\"document.title='owned'\">"
"""Markup in a name and in values: shown as it is, and never run."""


@pytest.fixture(scope="session", autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No mirror that this user ran before is on the pages."""
    with pytest.MonkeyPatch.context() as here:
        here.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("user")))
        yield


@pytest.fixture(scope="session")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        fill(running.url)
        yield running


@pytest.fixture(scope="session")
def read(broker: testing.BrokerProcess) -> str:
    """A topic of two partitions with four and two messages, for groups of the tests."""
    with closing(LadingTransport(broker.url)) as admin:
        admin.create_topic("read", 2)
    with Producer(broker.url) as producer:
        for number in range(6):
            producer.send("read", b"%d" % number, partition=int(number > 3))
    return "read"


def fill(url: str) -> None:
    with Producer(url) as producer:
        for number in range(300):
            producer.send(
                "flights", f'{{"n": {number}, "big": 12345678901234567890}}', key=b"k%d" % (number % 7), partition=0,
                headers=[("carrier", "UA" if number % 3 else "AA"), ("delay", lading.i16(number - 20))],
                timestamp=1_356_998_400_000_000 + number * 60_000_000,
            )  # fmt: skip
        producer.send(
            "hostile",
            f"{SCRIPT}\x1b[2J",
            headers=[(SCRIPT, f"{SCRIPT}\x07\u202e"), ("raw", b"\xff\x00"), ("nul", None)],
        )
        producer.send(
            "hostile", b"\x00\xff", headers=[("big", "x" * 1_000_000), ("a", "1"), ("a", lading.u8(2)), ("a", "")]
        )
        producer.send("hostile", None, headers=[(f"h{number}", lading.u16(number)) for number in range(10_000)])


@pytest.fixture(scope="session")
def listener() -> Iterator[socket.socket]:
    with listen(Address("127.0.0.1", 0), "console") as bound:
        yield bound


@pytest.fixture(scope="session")
def page(
    broker: testing.BrokerProcess, listener: socket.socket, tmp_path_factory: pytest.TempPathFactory
) -> TestClient:
    """What the console answers, without a process."""
    settings = ConsoleSettings(broker.url, state=tmp_path_factory.mktemp("state"))
    return client(settings, listener)


def client(settings: ConsoleSettings, listener: socket.socket, key: str | None = None) -> TestClient:
    app = make_app([(settings, ConsoleSource(settings.url, settings.registry, masks=settings.masks))], listener, key)
    return TestClient(app, base_url="http://127.0.0.1:7071", follow_redirects=False)


def run_pipeline(url: str, place: Path) -> Path:
    """Run a pipeline over ``flights`` that quarantines the 100 messages of one carrier; return its file."""
    file = place / "flights.toml"
    file.write_text(
        f"[source]\nfrom = {url!r}\ntopic = 'flights'\n[quality]\nmax_failure_ratio = 1.0\n"
        "[headers]\ncarrier = { type = 'string', values = ['UA'] }\ndelay = { type = 'smallint' }\n"
        "[good]\nto = 'parquet:good'\n"
    )
    with closing(LocalExecutor(1)) as executor:
        run(lambda: pytest.fail("needs no Spark"), PipelineSettings.load(file), executor=executor)
    return file
