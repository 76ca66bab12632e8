"""A broker with topics of every kind of header, and catalogs over it in threads of this process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

import lading
from lading import testing
from lading.client.producer import Producer
from lading.endpoints.encryption.authority import make_certificate
from lading.topic_tables.callers import Callers
from lading.topic_tables.file_store import FileStore
from lading.topic_tables.keys import VendedKeys
from lading.topic_tables.server import make_app
from lading.topic_tables.tables import LiveTables

START_S = 10


class Clock:
    """The clock of this machine, ahead of it by as much as a test wants."""

    ahead_s = 0

    def __call__(self) -> float:
        """Return the seconds since 1970."""
        return time.time() + self.ahead_s


@contextmanager
def catalog(
    url: str,
    state: Path,
    columns: Mapping[str, str] | None = None,
    port: int = 0,
    keys: VendedKeys | None = None,
    clock: Callable[[], float] = time.time,
    store: FileStore | None = None,
) -> Iterator[str]:
    """Serve the topics at ``url`` as tables; gives the address of the catalog."""
    callers = Callers(url, columns or {})
    tables = LiveTables(callers.own.url, state, workers=2, store=store)
    with socket.create_server(("127.0.0.1", port)) as listener:
        config = uvicorn.Config(
            make_app(callers, tables, listener, keys, clock=clock), lifespan="off", log_config=None, ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        deadline = time.monotonic() + START_S
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the catalog did not start"
            time.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(START_S)
            tables.close()
            callers.close()


def write_certificate(directory: Path) -> Path:
    """Write a certificate and its key into a file; returns its path."""
    made = make_certificate("tables", ["localhost", "127.0.0.1", "tables.example"], 1)
    path = directory / "certificate.pem"
    path.write_bytes(made.to_pem() + made.key_to_pem())
    return path


@contextmanager
def encrypted_catalog(url: str, directory: Path, certificate: Path) -> Iterator[int]:
    """Run ``lading tables`` with TLS on all addresses; gives its port."""
    words = ["tables", "--from", url, "--address", "0.0.0.0:0", "--state", str(directory / "state"),
             "--certificate", str(certificate), "--output", "json", "--with-parent"]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield int(json.loads(process.stdout.readline())["endpoints"]["tables"].rpartition(":")[2])
        finally:
            process.terminate()
            assert process.wait(START_S) == 0


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def served(broker: testing.BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with catalog(broker.url, tmp_path_factory.mktemp("tables")) as address:
        yield address


def send(url: str, topic: str, first: int, count: int, partition: int | None = 0) -> None:
    """Send messages with numbers from ``first`` on, each with headers of several kinds."""
    with Producer(url) as producer:
        for number in range(first, first + count):
            producer.send(
                topic, b'{"n":%d}' % number, key=b"k%d" % (number % 7), partition=partition,
                headers=[("carrier", "UA" if number % 3 else "AA"), ("delay", lading.i16(number % 50 - 10)),
                         ("raw", b"\xff\x00"), ("nothing", None), ("raw", b"again")],
            )  # fmt: skip
