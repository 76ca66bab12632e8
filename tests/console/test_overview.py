"""The console's start page: what the broker reports of itself, and dead letters since a moment."""

from __future__ import annotations

import shutil
import socket
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lading import Producer, testing
from lading.console.overview import compute_rates, count_letters_since
from lading.console.settings import ConsoleSettings
from lading.transports.lading.transport import LadingTransport

from .conftest import TestClient, client


def test_a_broker_reports_its_disk_its_totals_and_its_age(
    page: TestClient, broker: testing.BrokerProcess, tmp_path: Path
) -> None:
    before = page.get("/api/overview").json()
    with Producer(broker.url) as producer:
        for _ in range(5):
            producer.send("counted", b"x")
    found = page.get("/api/overview").json()
    assert found["totals"]["messages_in"] - before["totals"]["messages_in"] >= 5
    assert (found["reported"], found["status"]) == (True, page.get("/api/overview").json()["status"])
    # the same disk as this one, whoever else writes there
    total_bytes = shutil.disk_usage(tmp_path).total
    assert found["disk"]["total_bytes"] == total_bytes and 0 < found["disk"]["free_bytes"] < total_bytes
    assert abs(found["now_s"] - time.time()) < 60
    assert 0 <= found["uptime_s"] < 3600
    assert found["certificates"] == []


def test_a_directory_reports_nothing(tmp_path: Path, listener: socket.socket) -> None:
    with testing.broker(data_dir=tmp_path / "data") as running, Producer(running.url) as producer:
        producer.send("t", b"x")
    directory = client(ConsoleSettings(str(tmp_path / "data")), listener)
    assert directory.get("/api/overview").json() == {"reported": False}


def test_dead_letters_are_counted_from_a_moment_on(broker: testing.BrokerProcess) -> None:
    now = datetime.now(UTC)
    with Producer(broker.url) as producer:
        for days in (3, 2, 0, 0):
            us = int((now - timedelta(days=days)).timestamp() * 1_000_000)
            producer.send("overview-dlq", b"letter", timestamp=us)
    with closing(LadingTransport(broker.url)) as admin:
        all_letters = count_letters_since(admin, now - timedelta(days=30))
        assert all_letters - count_letters_since(admin, now - timedelta(days=1)) >= 2
        assert count_letters_since(admin, now - timedelta(days=1)) >= 2
        assert count_letters_since(admin, now + timedelta(days=1)) == 0


@pytest.mark.parametrize(
    ("totals", "expected"),
    [([], []), ([(0.0, 5.0)], []), ([(0.0, 5.0), (10.0, 25.0), (15.0, 25.0)], [(10.0, 2.0), (15.0, 0.0)])],
)
def test_rates_are_the_steps_of_a_total(totals: list[tuple[float, float]], expected: list[tuple[float, float]]) -> None:
    assert compute_rates(totals) == expected
