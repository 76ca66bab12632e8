"""What goes wrong outside: a disk that takes no more, at every step of a batch; a log that a recovery cut back."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lading import testing
from lading.model.errors import DataLoss, LocalError
from lading.tables.storage.files import read_document
from lading.transports.lading.transport import LadingTransport

from .conftest import PARTITIONS, ROWS, Place
from .direct import Driver
from .flights import assert_every_message_once, fill, found, messages

STEPS = ("begun", "task", "manifest", "errands")


@pytest.fixture(autouse=True)
def modules_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python cuts compiled modules off at the limit as well, and fails on them ever after."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@contextmanager
def no_file_above(size_bytes: int) -> Iterator[None]:
    """The operating system refuses to let a file of this process grow further, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.turns(3)
@pytest.mark.parametrize("step", STEPS)
def test_a_full_disk_publishes_nothing_half(place: Place, step: str) -> None:
    """While a task writes; then after the tasks: the manifest; what is published; that it is delivered."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_up(phase: str) -> None:
        if phase == step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))

    try:
        with pytest.raises(LocalError) as refused, no_file_above(4096 if step == "begun" else -1):
            Driver(place.write(), fill_up).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "File too large" in str(refused.value), refused.value
    manifests = list((place.tables / "flights" / "_lading" / "manifests").glob("*.json"))
    if step in ("begun", "task"):
        assert not manifests and not list(place.tables.glob("*/*.parquet"))
        assert not list(place.tables.glob("*/_lading/staged/*")) or step == "task"
    else:
        assert len(manifests) == 1 and read_document(manifests[0])["counts"]["read"] == 1500
    Driver(place.write()).run()
    assert_every_message_once(place.tables, PARTITIONS, ROWS)
    assert not list(place.tables.glob("*/_lading/staged/*"))
    print(f"disk full at {step}, freed, run again: lost 0, twice 0 of {PARTITIONS * ROWS:,}")


def _written_bytes(log: Path) -> int:
    """The space behind the messages is set aside."""
    return len(log.read_bytes().rstrip(b"\0"))


def test_a_source_that_a_crash_cut_back(tmp_path: Path) -> None:
    """A new epoch below the position: what was published and is gone from the log is told, not skipped over."""
    with testing.broker(tmp_path / "data", durability="os") as first:
        before = LadingTransport(first.url)
        fill(before, "air.flights", 1, ROWS // 2)
        before.send("air.flights", 0, messages(0, ROWS).slice(ROWS // 2))
        place = Place(tmp_path, first.url, "air.flights", before)
        Driver(place.write()).run()
        before.close()
        first.kill()
        # the others are the quarantine topic's
        log = max((tmp_path / "data").rglob("0*.log"), key=_written_bytes)
        os.truncate(log, _written_bytes(log) - 100)
        (log.parent / "watermark").unlink()
    with testing.broker(tmp_path / "data", durability="os") as again:
        after = LadingTransport(again.url)
        place = Place(tmp_path, again.url, "air.flights", after)
        assert after.topic("air.flights").partitions[0].end_offset == ROWS // 2
        with pytest.raises(
            DataLoss, match=r"partition 0: messages from offset 1200 and later are lost: .*failOnDataLoss"
        ):
            Driver(place.write()).run()
        assert len(found(place.tables)) == ROWS
        after.send("air.flights", 0, messages(0, 50))
        accepted = place.write(lambda text: text.replace("[headers]", "fail_on_data_loss = false\n\n[headers]"))
        assert Driver(accepted).run()["read"] == 50
        after.close()
