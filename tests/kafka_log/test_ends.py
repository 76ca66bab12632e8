"""The thread that watches ends: a cluster that does not respond is a problem until it does."""

from __future__ import annotations

import time
from typing import Any, cast

from lading.kafka_log.ends import EndsWatcher
from lading.transports.kafka.transport import KafkaTransport


class FailingTransport:
    """A cluster that is away at first; what is asked afterwards is noted."""

    def __init__(self) -> None:
        self.is_away = True

    def wait_for_news(self, places: Any, wait_ms: int) -> None:
        if self.is_away:
            raise ConnectionError("nobody listens")
        raise LookupError("responds")

    def close(self) -> None:
        pass


def test_a_cluster_that_does_not_respond_is_a_problem() -> None:
    transport = FailingTransport()
    watcher = EndsWatcher(
        cast("KafkaTransport", transport), lambda: {("topic", 0): 0}, lambda *ends: None, lambda callback: None
    )
    assert watcher.problem is None
    watcher.start()
    wait_for_problem(watcher, "nobody listens")
    transport.is_away = False
    # it is asked again
    wait_for_problem(watcher, "responds")
    watcher.close()


def wait_for_problem(watcher: EndsWatcher, word: str) -> None:
    deadline = time.monotonic() + 10
    while word not in (watcher.problem or ""):
        assert time.monotonic() < deadline, watcher.problem
        time.sleep(0.01)
