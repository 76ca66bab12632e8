"""Threads that commit offsets: what waits goes together, in order, and errors reach those that they concern."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any, cast

import pytest

from lading.kafka_log import group_offsets
from lading.kafka_log.group_offsets import GroupOffsets
from lading.model.errors import LadingError, RemoteError
from lading.transports.kafka.transport import KafkaTransport


class Cluster:
    """Notes requests; the first waits until the others have been submitted."""

    def __init__(self) -> None:
        self.cluster = self
        self.requests: list[tuple[Any, ...]] = []
        self.may_go_on = Event()
        self.refused: set[str] = set()

    def reset_group(self, _cluster: Any, name: str, positions: Any, _find_identity: Any) -> None:
        self._note("store", name, sorted(positions))

    def delete_positions(self, _cluster: Any, name: str, places: Any) -> None:
        self._note("delete", name, sorted(places))

    def fetch_positions(self, _cluster: Any, name: str, places: Any) -> dict[tuple[str, int], int]:
        self._note("fetch", name, sorted(places))
        return {("legs", 0): 9}

    def _note(self, kind: str, name: str, rows: Any) -> None:
        self.requests.append((kind, name, rows))
        assert self.may_go_on.wait(10)
        if name in self.refused:
            raise RemoteError(f"{name} is refused")

    def close(self) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    for name in ("reset_group", "delete_positions", "fetch_positions"):
        monkeypatch.setattr(group_offsets, name, getattr(made, name))
    return made


@pytest.fixture
def offsets(cluster: Cluster) -> GroupOffsets:
    def post(callback: Callable[[], None]) -> None:
        callback()

    return GroupOffsets(lambda: cast("KafkaTransport", cluster), post, 1)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_offsets_that_wait_go_together_the_last_of_each_partition(cluster: Cluster, offsets: GroupOffsets) -> None:
    done: list[LadingError | None] = []
    fetched: list[tuple[int | None, LadingError | None]] = []
    offsets.store("first", ("legs", 0), 1, done.append)
    wait_until(lambda: bool(cluster.requests))
    for offset in range(5):
        offsets.store("g", ("legs", 0), offset, done.append)
    offsets.store("g", ("legs", 1), 7, done.append)
    offsets.delete("g", ("legs", 2), done.append)
    for number in (0, 1):
        offsets.fetch("g", ("legs", number), lambda offset, error: fetched.append((offset, error)))
    cluster.may_go_on.set()
    offsets.close(10)
    assert cluster.requests == [
        ("store", "first", [("legs", 0, 1)]),
        ("store", "g", [("legs", 0, 4), ("legs", 1, 7)]),
        ("delete", "g", [("legs", 2)]),
        ("fetch", "g", [("legs", 0), ("legs", 1)]),
    ]
    assert done == [None] * 8 and fetched == [(9, None), (None, None)]


def test_the_error_of_one_group_is_not_anothers(cluster: Cluster, offsets: GroupOffsets) -> None:
    cluster.refused = {"bad"}
    errors: dict[str, LadingError | None] = {}

    def note_fetch(name: str, offset: int | None, error: LadingError | None) -> None:
        errors[f"{name} fetch"] = error

    cluster.may_go_on.set()
    for name in ("bad", "good"):
        offsets.store(name, ("legs", 0), 1, partial(errors.__setitem__, name))
        offsets.fetch(name, ("legs", 0), partial(note_fetch, name))
    offsets.close(10)
    assert {name: error is None for name, error in errors.items()} == {
        "bad": False, "bad fetch": False, "good": True, "good fetch": True,
    }  # fmt: skip
