"""A broker that goes away and comes back on the same ports, and tasks before which something happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lading import Producer, testing
from lading.tables.commit.table_commit import StagedRange
from lading.tables.executor import Stage
from lading.tables.local import LocalExecutor
from lading.tables.plan.ranges import OffsetRange
from lading.testing.held_ports import PortHolder

ENDPOINTS = {"lading": "admin", "iggy": "iggy_tcp", "kafka": "kafka"}


class RestartingBroker:
    """A broker that can be stopped, and started again on the same ports."""

    def __init__(self, data: Path, ports: PortHolder) -> None:
        self._data = data
        self._addresses = testing.hold_endpoints(ports)
        self.start()

    def start(self, settings: Mapping[str, Any] | None = None) -> None:
        self._held = testing.broker(self._data, settings={**self._addresses, **(settings or {})})
        self.running = self._held.__enter__()

    def stop(self) -> None:
        self._held.__exit__(None, None, None)

    def send(self, *payloads: bytes) -> None:
        with Producer(self.running.url) as producer:
            for payload in payloads:
                producer.send("t", payload)

    def url(self, scheme: str) -> str:
        return f"{scheme}://{self.running.endpoints[ENDPOINTS[scheme]]}"


class InterruptedExecutor(LocalExecutor):
    """Calls ``happens``, once, before the tasks of the next batch run, and ``happens_behind`` behind every batch."""

    def __init__(self) -> None:
        super().__init__(1)
        self.happens: Callable[[], None] | None = None
        self.happens_behind: Callable[[], object] | None = None

    def run_watched(self, work: Callable[[], None], on_poll: Callable[[], None]) -> None:
        def work_on() -> None:
            work()
            if self.happens_behind is not None:
                self.happens_behind()

        super().run_watched(work_on, on_poll)

    def write(self, stage: Stage, ranges: Sequence[OffsetRange]) -> list[StagedRange]:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().write(stage, ranges)


def patience_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return how the lines begin that say that a server is away or back."""
    return [line.split(";")[0] for line in caplog.messages if " is away; " in line or " is back; " in line]
