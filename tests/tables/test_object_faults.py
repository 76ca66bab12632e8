"""Exactly once into a store whose requests fail: refused, cut, answered to nobody, or gone for the rest of a run."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from lading import testing
from lading.model.errors import LadingError
from lading.tables.formats import delta
from lading.tables.formats.registry import open_table
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.storage import object_path
from lading.tables.storage.object_path import ObjectPath
from lading.tables.upkeep.deletion import find_rows
from lading.tables.upkeep.optimize import optimize_table

from .cloud_servers import CloudServer
from .deleting import delete_where
from .direct import DirectExecutor
from .logged_forms import COLUMNS, NUMBERS, send
from .object_faults import FAULTS, StoreFaults, run_faulty_store
from .object_forms import FORMS, point_to
from .object_server import ObjectServer

ROWS = 4
"""Messages that are sent before each point."""
POINTS, POINTS_SAMPLE = {"s3": 336, "gs": 48, "abfss": 48}, 6
"""For each form; three forms make 1,008 on S3, and 288 on the others, which go the same way through other libraries."""
POINTS_PER_TABLE = 24
"""A log that has grown is read by more requests: later points would all fall on these, and each take longer."""
KILLS = 24
"""For each form."""
RETRIES = {
    "max_retries": 2, "retry_timeout": timedelta(seconds=5),
    "backoff": {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 2},
}  # fmt: skip
OPTIONS = {"allow_http": "true", "max_retries": "2", "retry_timeout": "5s", "backoff_config.init_backoff": "1ms"}


@pytest.fixture(params=POINTS)
def scheme(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def server(request: pytest.FixtureRequest, scheme: str) -> ObjectServer | CloudServer:
    """The store of a scheme."""
    found: ObjectServer | CloudServer = request.getfixturevalue({"s3": "object_server"}.get(scheme, f"{scheme}_server"))
    return found


@pytest.fixture
def store(server: ObjectServer | CloudServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreFaults]:
    with run_faulty_store(server.url) as store:
        point_to(server, tmp_path, monkeypatch, store.url)
        monkeypatch.setattr(object_path, "RETRIES", RETRIES)
        monkeypatch.setattr(delta, "storage_options", lambda root: OPTIONS)
        yield store


@dataclass
class Table:
    """A topic and the table that it is written to, until its log has grown long."""

    form: str
    broker: testing.BrokerProcess
    server: ObjectServer | CloudServer
    directory: Path
    divided: bool
    topic: str = field(default_factory=lambda: f"faults{next(NUMBERS)}")
    sent: int = 0

    def __post_init__(self) -> None:
        self.url = f"{self.server.create_bucket(self.topic)}/{self.topic}"
        self.target = FORMS[self.form][0] + self.url
        self.state = self.directory / self.topic

    def send(self) -> None:
        """Send the messages of a point."""
        send(self.broker, self.topic, range(self.sent, self.sent + ROWS))
        self.sent += ROWS

    def run(self) -> None:
        """Write what waits into the table."""
        ingest(
            DirectExecutor(),
            self.broker.url,
            self.topic,
            self.target,
            IngestSettings(columns=COLUMNS, state_dir=self.state, partition_by=["carrier"] if self.divided else []),
        )

    def count(self) -> tuple[int, int]:
        """Return how many messages are lost and doubled, by a reader of the form."""
        self.run()
        delays = Counter(FORMS[self.form][1](self.url)["delay"].to_list())
        return self.sent - len(delays), sum(count - 1 for count in delays.values())


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make_table(
    broker: testing.BrokerProcess, server: ObjectServer | CloudServer, tmp_path: Path, form: str
) -> Callable[[], Table]:
    made = count()
    # every second one is partitioned
    return lambda: Table(form, broker, server, tmp_path, next(made) % 2 == 1)


def count_requests(table: Table, store: StoreFaults) -> int:
    """Write what is sent into the table, and return how many requests that took."""
    table.send()
    store.arm(1 << 30, "cut")
    table.run()
    return store.requests


@pytest.mark.turns(3)
@pytest.mark.timeout(900)
def test_every_message_is_there_once(
    make_table: Callable[[], Table], store: StoreFaults, form: str, scheme: str, full: bool
) -> None:
    if not full and form != "delta":
        pytest.skip("every form runs with LADING_TEST_FULL=1")
    chosen, points, failed = random.Random(f"17 {form}"), POINTS[scheme] if full else POINTS_SAMPLE, Counter[str]()
    counted, sent, lost, doubled = 0, 0, 0, 0
    while counted < points:
        table, until = make_table(), min(counted + POINTS_PER_TABLE, points)
        reached = requests = count_requests(table, store)
        while counted < until:
            table.send()
            fault = FAULTS[counted % len(FAULTS)]
            store.arm(chosen.randrange(requests), fault)
            try:
                table.run()
            except LadingError:
                failed[fault] += 1
            requests = max(reached // 2, store.requests if fault in FAULTS[:4] else requests)
            counted += store.heal()
        missing, repeated = table.count()
        sent, lost, doubled = sent + table.sent, lost + missing, doubled + repeated
    ended = ", ".join(f"{fault} {failed[fault]}" for fault in FAULTS)
    print(
        f"{scheme}, {form}: {counted} points, runs that they ended: {ended}; {sent:,} messages, lost {lost}, "
        f"doubled {doubled}"
    )
    assert (lost, doubled) == (0, 0)


def optimize(table: Table) -> None:
    """Write the table's files as one."""
    optimize_table(open_table(ObjectPath.parse(table.url)))


def delete(table: Table) -> None:
    """Delete the rows of the first messages."""
    delete_where(open_table(ObjectPath.parse(table.url)), f"delay < {ROWS}", dry_run=False)


@pytest.mark.turns(3)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", [optimize, delete])
def test_upkeep_whose_requests_fail(
    make_table: Callable[[], Table], store: StoreFaults, form: str, scheme: str, command: Callable[[Table], None],
    full: bool,
) -> None:  # fmt: skip
    """Each point is a command of which a request fails, next to a run whose messages wait; then both are repeated."""
    if scheme != "s3":
        pytest.skip("upkeep makes the same requests to every store")
    chosen, points, counted, failed = random.Random(f"23 {form} {command.__name__}"), 48 if full else 2, 0, 0
    while counted < points:
        table, until = make_table(), min(counted + 8, points)
        for _ in range(3):
            count_requests(table, store)
        store.arm(1 << 30, "cut")
        find_rows(open_table(ObjectPath.parse(table.url)), lambda batch: pa.array([True] * batch.num_rows))
        requests = 3 * store.requests
        while counted < until:
            table.send()
            store.arm(chosen.randrange(requests), FAULTS[counted % len(FAULTS)])
            try:
                command(table)
                table.run()
            except LadingError:
                failed += 1
            counted += store.heal()
            requests = max(10, min(requests, store.requests))
            table.run()
            command(table)
            found = sorted(FORMS[form][1](table.url)["delay"].to_list())
            assert found == list(range(ROWS if command is delete else 0, table.sent))
    print(f"{command.__name__} of {form}: {counted} points, {failed} ended by them; lost 0, doubled 0")


@pytest.mark.timeout(900)
def test_every_message_is_there_once_if_its_process_is_killed(
    make_table: Callable[[], Table], store: StoreFaults, form: str, scheme: str, full: bool
) -> None:
    """By SIGKILL, when a request arrives at the store: before it is passed on, or with its answer on the way."""
    if not full:
        pytest.skip("processes are started and killed with LADING_TEST_FULL=1")
    chosen, table, killed, counted = random.Random(f"17 killed {form}"), make_table(), 0, 0
    requests = count_requests(table, store)
    while counted < KILLS:
        table.send()
        given = [table.broker.url, table.topic, table.target, str(table.state)]
        with subprocess.Popen([sys.executable, "-m", "tests.tables.killed", *given], stderr=subprocess.PIPE) as process:
            store.arm(chosen.randrange(requests), ("gone", "gone after")[counted % 2], process.pid)
            _, told = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), told.decode()
        killed += process.returncode != 0
        counted += store.heal()
    lost, doubled = table.count()
    print(
        f"{scheme}, {form}: {counted} points, processes killed {killed}; {table.sent} messages, lost {lost}, "
        f"doubled {doubled}"
    )
    assert (lost, doubled) == (0, 0) and killed
