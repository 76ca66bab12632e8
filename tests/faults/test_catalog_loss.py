"""The catalog is damaged, lost or exchanged after kill -9: every topic is there again, and the log says what is not."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import lading
from lading import testing
from lading.testing import BrokerProcess
from tests.listeners import ADMIN_ONLY

TOPICS = [f"topic{number}" for number in range(5)]


def start(home: Path) -> BrokerProcess:
    return testing.start(home / "data", ADMIN_ONLY, home / "stderr.log")


def send(running: BrokerProcess, topic: str, count: int) -> None:
    with lading.Producer(running.url) as producer:
        for number in range(count):
            producer.send(topic, f"{topic}-{number}".encode())


def stop(running: BrokerProcess) -> None:
    running.kill()
    if running.process.stdout is not None:
        running.process.stdout.close()


def flip_a_bit(data: Path) -> None:
    path = data / "catalog.sqlite-wal"
    # in the first page that the log holds
    wal = bytearray(path.read_bytes())
    wal[200] ^= 4
    path.write_bytes(wal)


def delete_the_log(data: Path) -> None:
    (data / "catalog.sqlite-wal").unlink()


def empty(data: Path) -> None:
    for path in data.glob("catalog.sqlite*"):
        path.write_bytes(b"")


def cut_in_half(data: Path) -> None:
    path = checkpointed(data)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_zeros(data: Path) -> None:
    path = checkpointed(data)
    path.write_bytes(bytes(path.stat().st_size))


def damage_a_page(data: Path) -> None:
    path = checkpointed(data)
    content = bytearray(path.read_bytes())
    content[4096 : 2 * 4096] = b"\xa5" * 4096
    path.write_bytes(content)


def checkpointed(data: Path) -> Path:
    """The catalog with all of its log moved into it, as a broker that was stopped leaves it."""
    path = data / "catalog.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def put_back(data: Path) -> None:
    for path in data.glob("catalog.sqlite*"):
        path.unlink()
    for path in (data.parent / "old").iterdir():
        shutil.copy(path, data / path.name)


DAMAGES = [flip_a_bit, delete_the_log, empty, put_back, cut_in_half, write_zeros, damage_a_page]


@pytest.mark.turns(3)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_topics_come_back_and_the_loss_is_told(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    running = start(tmp_path)
    send(running, "topic0", 10)
    if damage is put_back:
        assert running.stop() == 0
        (tmp_path / "old").mkdir()
        shutil.copy(tmp_path / "data" / "catalog.sqlite", tmp_path / "old" / "catalog.sqlite")
        running = start(tmp_path)
    for topic in TOPICS[1:]:
        send(running, topic, 10)
    stop(running)
    ids = {path.name for path in (tmp_path / "data" / "topics").iterdir()}
    damage(tmp_path / "data")
    (tmp_path / "stderr.log").unlink()
    running = start(tmp_path)
    try:
        for topic in TOPICS:
            send(running, topic, 1)
            messages = lading.read_arrow(running.url, topic, columns="payload")
            payloads = [one.as_py() for one in messages.column("payload")]
            assert payloads == [*(f"{topic}-{number}".encode() for number in range(10)), f"{topic}-0".encode()]
        told = (tmp_path / "stderr.log").read_text()
    finally:
        stop(running)
    assert "was not in the catalog and was added" in told and "'topic4'" in told
    assert "positions" in told
    is_set_aside = damage in (cut_in_half, write_zeros, damage_a_page)
    assert ("was damaged" in told and "catalog.sqlite.damaged-1" in told) == is_set_aside
    assert (tmp_path / "data" / "catalog.sqlite.damaged-1").exists() == is_set_aside
    assert {path.name for path in (tmp_path / "data" / "topics").iterdir()} == ids
