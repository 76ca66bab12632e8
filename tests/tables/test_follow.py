"""A run that follows waits for a broker that went away, and goes on with the batch that it was at."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lading.model.errors import LadingError, LocalError, Unreachable
from lading.tables.ingest import IngestProgress, IngestReport, IngestSettings, ingest
from lading.tables.local import LocalExecutor
from lading.testing.held_ports import PortHolder

from .restarting import InterruptedExecutor, RestartingBroker, patience_lines

ENDS_WITHIN_S = 90


class _Following:
    """An ingest that follows, in a thread."""

    def __init__(self, executor: LocalExecutor, url: str, table: Path, **options: Any) -> None:
        self.rows = 0
        self.report: IngestReport | None = None
        self.error: BaseException | None = None
        self.ended = threading.Event()

        def on_progress(now: IngestProgress) -> None:
            self.rows = now.rows

        def run() -> None:
            try:
                self.report = ingest(
                    executor,
                    url,
                    "t",
                    table,
                    IngestSettings(columns="offset, payload", follow=True, interval_s=0.05, **options),
                    on_progress=on_progress,
                    stopped=self.ended.is_set,
                )
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + ENDS_WITHIN_S
        while not holds():
            assert self._thread.is_alive(), self.error
            assert time.monotonic() < until
            time.sleep(0.02)

    def end(self) -> None:
        self.ended.set()
        self._thread.join(ENDS_WITHIN_S)
        assert not self._thread.is_alive()


@pytest.fixture
def executor() -> Iterator[InterruptedExecutor]:
    workers = InterruptedExecutor()
    yield workers
    workers.close()


@pytest.fixture
def broker(tmp_path: Path, ports: PortHolder) -> Iterator[RestartingBroker]:
    restarting = RestartingBroker(tmp_path / "data", ports)
    yield restarting
    restarting.stop()


def _payloads(table: Path) -> list[bytes]:
    payloads: Any = pq.read_table(table).column("payload")
    return sorted(payloads.to_pylist())


@pytest.mark.turns(3)
@pytest.mark.parametrize("scheme", ["lading", "iggy", "kafka"])
def test_an_ingest_goes_on_when_the_broker_is_back(
    executor: InterruptedExecutor,
    broker: RestartingBroker,
    tmp_path: Path,
    scheme: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.send(b"before")
    table = tmp_path / "t"
    following = _Following(executor, broker.url(scheme), table, transport={"retries": 1})
    following.wait_until(lambda: following.rows == 1)
    with caplog.at_level(logging.WARNING, "lading.tables"):
        broker.stop()
        following.wait_until(lambda: len(patience_lines(caplog)) == 1)
        broker.start()
        broker.send(b"after")
        following.wait_until(lambda: following.rows == 2)
        following.end()
    assert following.error is None
    assert following.report is not None and following.report.rows == 2
    assert _payloads(table) == [b"after", b"before"]
    assert patience_lines(caplog) == [
        f"a server of the table {table} is away",
        f"a server of the table {table} is back",
    ]


def _follow_until_away(
    executor: InterruptedExecutor, broker: RestartingBroker, table: Path, caplog: pytest.LogCaptureFixture
) -> _Following:
    """Begin a run whose broker stops within the first batch, and return when it is logged as away."""
    executor.happens = broker.stop
    following = _Following(executor, broker.url("lading"), table, transport={"retries": 1})
    following.wait_until(lambda: len(patience_lines(caplog)) == 1)
    return following


@pytest.mark.turns(3, part=2)
def test_the_batch_that_the_broker_left_alone_is_begun_again(
    executor: InterruptedExecutor, broker: RestartingBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(b"a", b"b")
    following = _follow_until_away(executor, broker, tmp_path / "t", caplog)
    assert list((tmp_path / "t").glob("*.parquet")) == []
    broker.start()
    following.wait_until(lambda: following.rows == 2)
    following.end()
    assert following.error is None
    assert _payloads(tmp_path / "t") == [b"a", b"b"]


@pytest.mark.turns(3, part=1)
def test_who_ends_behind_the_first_batch_is_told_that_the_broker_is_back(
    executor: InterruptedExecutor, broker: RestartingBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(b"a")
    following = _follow_until_away(executor, broker, tmp_path / "t", caplog)
    # the batch is published, and the run learns that it is to end before it learns that
    executor.happens_behind = lambda: following.ended.wait(ENDS_WITHIN_S)
    broker.start()
    following.wait_until(lambda: following.rows == 1)
    following.end()
    assert following.error is None
    assert [line.rsplit(" ", 1)[1] for line in patience_lines(caplog)] == ["away", "back"]


@pytest.mark.turns(3, part=0)
def test_who_waits_for_a_broker_ends_when_told(
    executor: InterruptedExecutor, broker: RestartingBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(b"a")
    following = _follow_until_away(executor, broker, tmp_path / "t", caplog)
    following.end()
    assert following.error is None
    assert following.report is not None and following.report.rows == 0
    broker.start()


def _raise(error: LadingError) -> None:
    raise error


@pytest.mark.turns(3, part=1)
def test_what_waiting_does_not_mend_ends_a_run_that_follows(
    executor: InterruptedExecutor, broker: RestartingBroker, tmp_path: Path
) -> None:
    broker.send(b"a")
    executor.happens = lambda: _raise(LocalError("somebody has to mend it"))
    following = _Following(executor, broker.url("lading"), tmp_path / "t")
    following._thread.join(ENDS_WITHIN_S)
    assert isinstance(following.error, LocalError)


@pytest.mark.turns(3, part=0)
def test_without_follow_a_broker_that_went_away_ends_the_run(
    executor: InterruptedExecutor, broker: RestartingBroker, tmp_path: Path
) -> None:
    broker.send(b"a")
    executor.happens = lambda: _raise(Unreachable("gone"))
    with pytest.raises(Unreachable, match="gone"):
        ingest(executor, broker.url("lading"), "t", tmp_path / "t", IngestSettings(columns="offset"))
