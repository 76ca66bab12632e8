"""SIGHUP: settings that can change while a broker runs do, and the others are named."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from lading.endpoints.base.broker_settings import RELOADED, SettingsReload, to_broker_settings
from lading.endpoints.base.deadlines import Stage
from lading.endpoints.base.services import Services
from lading.endpoints.http_shared.http_connection import make_context
from lading.endpoints.io.gate import Gate
from lading.runtime.metrics import Metrics
from lading.settings.loading import keys, load
from lading.settings.settings import Settings
from lading.testing import FREE_PORT
from tests.broker.room import NOW, fill, opened, topic_of
from tests.endpoints.connection import Connection
from tests.endpoints.frames import Frames
from tests.listeners import listen_only

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    broker = opened(tmp_path, segment_bytes=100)
    level = logging.getLogger().level
    with ThreadPoolExecutor(1) as workers:
        yield Services(broker, Settings(data=tmp_path), Metrics(), workers)
    logging.getLogger().setLevel(level)
    broker.stop()


def test_the_page_lists_what_is_reloaded() -> None:
    named = {re.sub(r"^endpoints\.[a-z_]+", "endpoints.*", key) for key in keys()}
    (section,) = re.findall(r"## Reloading\n(.*?)\n## ", PAGE.read_text(), re.DOTALL)
    assert {name for name in re.findall(r"`([a-z_.*]+)`", section) if name in named} == RELOADED


def said_by_lading(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, without what clients of other tests of this process log as soon as the level is debug."""
    return [record.message for record in caplog.records if record.name.startswith("lading")]


def test_retention_and_limits_hold_at_once(
    services: Services, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = services.broker
    partition = topic_of(broker).partition(0)
    for _ in range(5):
        fill(broker, partition, 20)
    file = tmp_path / "lading.toml"
    file.write_text(
        f'data = "{tmp_path}"\nlog_level = "debug"\ndurability = "os"\n[retention]\nsize_bytes = 100\nmark_ms = 1\n'
        "[broker]\ngroup_members_max = 3\n"
    )
    reloading = SettingsReload(services, lambda: load(file).settings)
    with caplog.at_level(logging.DEBUG, "lading"):
        reloading.reload()
    said = said_by_lading(caplog)
    assert "SIGHUP: changed broker.group_members_max, log_level, retention.mark_ms, retention.size_bytes" in said
    assert "SIGHUP: restart the broker to change durability" in said
    assert services.settings.durability == "fsync" and services.settings.retention.size_bytes == 100
    assert broker.settings == to_broker_settings(services.settings)
    assert broker.coordinated_groups._settings.group_members_max == 3
    assert logging.getLogger().level == logging.DEBUG
    for second in range(4):
        broker.tick(NOW + second * 60_000_000)
    assert partition.log.first_offset > 0
    # again: nothing has changed, but for what needs a restart
    caplog.clear()
    reloading.reload()
    assert said_by_lading(caplog) == ["SIGHUP: restart the broker to change durability"]


def test_an_invalid_file_changes_nothing(services: Services, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "lading.toml"
    file.write_text("[retention]\nsize_bytes = 100\nage = 3\n")
    before = services.settings
    SettingsReload(services, lambda: load(file).settings).reload()
    assert services.settings is before
    (said,) = said_by_lading(caplog)
    assert "unknown setting retention.age" in said and "all settings stay as they are" in said


def test_deadlines_and_shares_of_connections_hold_at_once(services: Services, tmp_path: Path) -> None:
    blocked = {Stage.BLOCKED: (600_000, "connections.idle_timeout_ms"), Stage.HEAD: (7_000, "endpoints.own_ms")}
    gate = Gate(services, "kafka", blocked)
    http = make_context("admin", services, frozenset())
    file = tmp_path / "lading.toml"
    file.write_text(
        "[connections]\nidle_timeout_ms = 5000\nhttp_idle_timeout_ms = 3000\npeer_share = 0.02\n"
        'receive_bytes_max = "1MiB"\n[endpoints]\nkafka.connections_max = 100\nadmin.connections_max = 10\n'
    )
    SettingsReload(services, lambda: load(file).settings).reload()
    assert gate.watch._timeouts_s is gate._timeouts_s
    wanted = {Stage.FIRST: 30.0, Stage.HEAD: 7.0, Stage.PARTIAL: 60.0, Stage.IDLE: 5.0, Stage.BLOCKED: 5.0}
    assert gate._timeouts_s == wanted
    assert http.watch._timeouts_s[Stage.IDLE] == 3.0 and http.watch._timeouts_s[Stage.BLOCKED] == 60.0
    assert (gate._places._peer_max, http.places._peer_max) == (2, 1)


class Served:
    """A broker whose settings stand in a file that the test writes."""

    def __init__(self, directory: Path, file: Path, process: subprocess.Popen[bytes]) -> None:
        self._said, self._file, self.process = directory / "stderr", file, process
        assert process.stdout is not None
        word, *addresses = process.stdout.readline().decode().split()
        assert word == "ready"
        self.addresses = dict(address.split("=") for address in addresses)

    def reload(self, text: str, said: str) -> None:
        """Have it read ``text``; returns when it has logged ``said``."""
        self._file.write_text(text)
        seen = len(self._said.read_text())
        os.kill(self.process.pid, signal.SIGHUP)
        deadline_s = time.monotonic() + 30
        while said not in self._said.read_text()[seen:] and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert said in self._said.read_text()[seen:]


@contextmanager
def serving(directory: Path, text: str) -> Iterator[Served]:
    """Serve Iggy, with one more listener, and NSQ over HTTP by the settings in ``text``; stop it by SIGTERM."""
    file = directory / "lading.toml"
    file.write_text(text)
    listeners = listen_only(iggy_tcp=FREE_PORT, nsqd_http=FREE_PORT)
    listeners["endpoints.iggy_tcp.listeners.second.address"] = FREE_PORT
    command = [sys.executable, "-m", "lading.cli.main", "serve", "--data", str(directory / "data"), "--config"]
    command += [str(file), "--with-parent", *(f"--set={key}={value}" for key, value in listeners.items())]
    with (directory / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
    try:
        served = Served(directory, file, process)
        yield served
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def has_keepalive(connection: Connection) -> bool:
    """Whether the broker's kernel probes the peer of this connection: timer 02 of the server's side."""
    ends = [f":{each[1]:04X}" for each in (connection.socket.getpeername(), connection.socket.getsockname())]
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (timer,) = [line[5][:2] for line in table if [line[1][-5:], line[2][-5:]] == ends]
    return timer == "02"


def is_let_in(address: str) -> bool:
    """Whether another connection is answered; it is closed again."""
    connection = Frames(address)
    try:
        return connection.ask(1) == (0, b"")
    except ConnectionError:
        return False
    finally:
        connection.close()


PLACES = (
    '[connections]\npeer_share = 1.0\nkeepalive_s = {}\nreceive_bytes_max = "{}"\n'
    "[endpoints.iggy_tcp]\nconnections_max = {}\n"
)
LISTENER = "[endpoints.iggy_tcp.listeners.second]\nconnections_max = {}\n"


def test_limits_of_connections_are_raised_and_lowered(tmp_path: Path) -> None:
    with serving(tmp_path, PLACES.format(60, "1MiB", 2) + LISTENER.format(1)) as served:
        first, second = served.addresses["iggy_tcp"], served.addresses["iggy_tcp.second"]
        body, url = b"\n".join(3 * [bytes(1_000_000)]), f"http://{served.addresses['nsqd_http']}/mpub?topic=t"
        held = [Frames(first), Frames(first), Frames(second)]
        assert [one.ask(1) for one in held] == 3 * [(0, b"")]
        assert all(has_keepalive(one) for one in held)
        assert not is_let_in(first) and not is_let_in(second)
        places = "endpoints.iggy_tcp.connections_max, endpoints.iggy_tcp.listeners.second.connections_max"
        changed = f"SIGHUP: changed connections.keepalive_s, connections.receive_bytes_max, {places}"
        served.reload(PLACES.format(0, "64MiB", 3) + LISTENER.format(2), changed)
        # with the memory that it had, a body of this size is refused after 5 s
        assert is_let_in(second) and httpx.post(url, content=body).status_code == 200
        held.append(Frames(first))
        assert held[-1].ask(1) == (0, b"")
        assert [has_keepalive(one) for one in held] == [True, True, True, False]
        served.reload(PLACES.format(30, "64MiB", 1) + LISTENER.format(1), f"changed connections.keepalive_s, {places}")
        # those that are there stay, and have to go before another one comes
        assert [one.ask(1) for one in held] == 4 * [(0, b"")]
        assert not is_let_in(first) and not is_let_in(second)
        assert [has_keepalive(one) for one in held] == [True, True, True, False]
        for one in held:
            one.close()
        deadline_s = time.monotonic() + 30
        while not is_let_in(first) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        alone = Frames(first)
        assert alone.ask(1) == (0, b"") and has_keepalive(alone) and not is_let_in(first)
        # what is invalid changes nothing
        served.reload(PLACES.format(30, "1MiB", 0) + LISTENER.format(7), "all settings stay as they are")
        changed = "SIGHUP: changed connections.receive_bytes_max, endpoints.iggy_tcp.listeners.second.connections_max"
        served.reload(PLACES.format(30, "2MiB", 1) + LISTENER.format(2), changed)
        assert is_let_in(second) and not is_let_in(first)
        alone.close()
