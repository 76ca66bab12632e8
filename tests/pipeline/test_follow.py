"""A pipeline that follows waits for a server that went away, and finishes the batch that it was at."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from lading.pipeline.run import RunReport, run
from lading.pipeline.settings import PipelineSettings
from lading.testing.held_ports import PortHolder
from lading.transports.lading.transport import LadingTransport
from tests.tables.restarting import InterruptedExecutor, RestartingBroker, patience_lines

from .conftest import PARTITIONS, ROWS, Place
from .direct import no_session

ENDS_WITHIN_S = 120


def test_copies_are_sent_when_their_broker_is_back(
    place: Place, tmp_path: Path, ports: PortHolder, caplog: pytest.LogCaptureFixture
) -> None:
    quarantine = RestartingBroker(tmp_path / "data", ports)
    elsewhere = f'[quarantine]\nserver = "{quarantine.url("lading")}"'
    file = place.write(lambda text: text.replace("[quarantine]", elsewhere), max_rows=PARTITIONS * ROWS)
    ended = threading.Event()
    reports: list[RunReport] = []
    errors: list[BaseException] = []

    def follow() -> None:
        try:
            reports.append(
                run(no_session, PipelineSettings.load(file), follow=True, executor=executor, stopped=ended.is_set)
            )
        except BaseException as error:
            errors.append(error)

    def wait_for_lines(count: int) -> None:
        until = time.monotonic() + ENDS_WITHIN_S
        while len(patience_lines(caplog)) < count:
            assert following.is_alive(), errors
            assert time.monotonic() < until
            time.sleep(0.02)

    with closing(InterruptedExecutor()) as executor, caplog.at_level(logging.WARNING, "lading.tables"):
        executor.happens = quarantine.stop
        following = threading.Thread(target=follow, daemon=True)
        following.start()
        wait_for_lines(1)
        quarantine.start()
        wait_for_lines(2)
        ended.set()
        following.join(ENDS_WITHIN_S)
    assert errors == []
    report = reports[0]
    assert report["read"] == PARTITIONS * ROWS
    assert patience_lines(caplog) == [
        "a server of pipeline 'flights' is away",
        "a server of pipeline 'flights' is back",
    ]
    transport = LadingTransport(quarantine.url("lading"))
    copies = sum(part.end_offset - part.first_offset for part in transport.topic(place.copies).partitions)
    transport.close()
    quarantine.stop()
    # a transaction takes an offset of each partition for its end
    assert report["quarantined"] <= copies <= report["quarantined"] + PARTITIONS
