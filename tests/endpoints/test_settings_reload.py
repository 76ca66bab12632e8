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
from pathlib import Path

import pytest

from lading.endpoints.base.broker_settings import RELOADED, SettingsReload, to_broker_settings
from lading.endpoints.base.deadlines import Stage
from lading.endpoints.base.services import Services
from lading.endpoints.http_shared.http_connection import make_context
from lading.endpoints.io.gate import Gate
from lading.metrics import Metrics
from lading.settings import Settings
from lading.settings_loading import keys, load
from lading.testing import FREE_PORT
from tests.broker.room import NOW, fill, opened, topic_of
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
    (section,) = re.findall(r"## Reloading\n(.*?)\n## ", PAGE.read_text(), re.DOTALL)
    assert {name for name in re.findall(r"`([a-z_.]+)`", section) if name in keys()} == RELOADED


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
    gate = Gate(services, "kafka", 100, blocked)
    http = make_context("admin", services, 10, frozenset())
    file = tmp_path / "lading.toml"
    file.write_text("[connections]\nidle_timeout_ms = 5000\nhttp_idle_timeout_ms = 3000\npeer_share = 0.02\n")
    SettingsReload(services, lambda: load(file).settings).reload()
    assert gate.watch._timeouts_s is gate._timeouts_s
    wanted = {Stage.FIRST: 30.0, Stage.HEAD: 7.0, Stage.PARTIAL: 60.0, Stage.IDLE: 5.0, Stage.BLOCKED: 5.0}
    assert gate._timeouts_s == wanted
    assert http.watch._timeouts_s[Stage.IDLE] == 3.0 and http.watch._timeouts_s[Stage.BLOCKED] == 60.0
    assert (gate._places._peer_max, http.places._peer_max) == (2, 1)


def test_a_signal_has_the_file_read_again(tmp_path: Path) -> None:
    file, said = tmp_path / "lading.toml", tmp_path / "stderr"
    command = [
        sys.executable,
        "-m",
        "lading.cli.main",
        "serve",
        "--data",
        str(tmp_path / "data"),
        "--config",
        str(file),
    ]
    file.write_text("")
    with said.open("wb") as stderr:
        listeners = listen_only(iggy_tcp=FREE_PORT)
        command += ["--with-parent", *(f"--set={key}={value}" for key, value in listeners.items())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
    try:
        assert process.stdout is not None and process.stdout.readline().startswith(b"ready")
        file.write_text("[retention]\nage_ms = 5000\n")
        os.kill(process.pid, signal.SIGHUP)
        deadline_s = time.monotonic() + 30
        while "SIGHUP: changed retention.age_ms" not in said.read_text() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert "SIGHUP: changed retention.age_ms" in said.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
