"""Threads that commit offsets: what waits goes together, in order, and errors reach those that they concern."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any, cast

import pytest

from lading.dialects.kafka.errors import STALE_MEMBER_EPOCH
from lading.kafka_log import group_offsets
from lading.kafka_log.gateway import OFFSETS_COUNT
from lading.kafka_log.group_offsets import GroupOffsets
from lading.model.errors import LadingError, RemoteError, Unreachable
from lading.transports.kafka.cluster import kafka_error
from lading.transports.kafka.transport import KafkaTransport

PATIENCE_S = 10.0


class Cluster:
    """Notes requests; the first waits until the others have been submitted."""

    timeout_s = 3.0

    def __init__(self) -> None:
        self.cluster = self
        self.failures: dict[str, list[LadingError]] = {}
        """The errors of a group's next requests."""
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
        if self.failures.get(name):
            raise self.failures[name].pop(0)

    def limit_patience(self, silence_s: float, patience_s: float) -> None:
        assert (silence_s, patience_s) == (3.0, 0.0)

    def close(self) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    for name in ("reset_group", "delete_positions", "fetch_positions"):
        monkeypatch.setattr(group_offsets, name, getattr(made, name))
    return made


@pytest.fixture
def offsets(request: pytest.FixtureRequest, cluster: Cluster) -> GroupOffsets:
    """One thread, with the patience that the test's parameter says."""

    def post(callback: Callable[[], None]) -> None:
        callback()

    patience_s = getattr(request, "param", PATIENCE_S)
    return GroupOffsets(lambda: cast("KafkaTransport", cluster), post, 1, patience_s)


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


def test_a_group_without_a_coordinator_holds_up_no_other(cluster: Cluster, offsets: GroupOffsets) -> None:
    """One such group made all others of its thread wait for 20 seconds. Its own requests stay in order."""
    cluster.failures["waits"] = [Unreachable("the coordinator does not respond")] * 2
    done: list[str] = []
    for offset in (1, 2):
        offsets.store("waits", ("legs", 0), offset, lambda error: done.append("waits"))
        wait_until(lambda: bool(cluster.requests))
    offsets.fetch("waits", ("legs", 0), lambda offset, error: done.append(f"waits at {offset}"))
    offsets.store("other", ("legs", 0), 5, lambda error: done.append("other"))
    cluster.may_go_on.set()
    offsets.close(10)
    assert done == ["other", "waits", "waits", "waits at 9"]
    assert [request for request in cluster.requests if request[1] == "waits"] == [
        *[("store", "waits", [("legs", 0, 1)])] * 3,
        ("store", "waits", [("legs", 0, 2)]),
        ("fetch", "waits", [("legs", 0)]),
    ]


@pytest.mark.parametrize("offsets", [0.1], indirect=True)
def test_a_group_that_stays_without_a_coordinator_gets_the_error(cluster: Cluster, offsets: GroupOffsets) -> None:
    cluster.failures["waits"] = [Unreachable("the coordinator does not respond")] * 1000
    cluster.may_go_on.set()
    done: list[LadingError | None] = []
    offsets.store("waits", ("legs", 0), 1, done.append)
    offsets.fetch("waits", ("legs", 0), lambda offset, error: done.append(error))
    offsets.close(10)
    assert [str(one) for one in done] == ["the coordinator does not respond"] * 2


def test_a_commit_with_an_older_epoch_is_tried_again(cluster: Cluster, offsets: GroupOffsets) -> None:
    """The member may have another epoch by then."""
    cluster.failures["g"] = [kafka_error("the position", STALE_MEMBER_EPOCH)]
    cluster.may_go_on.set()
    done: list[LadingError | None] = []
    offsets.store("g", ("legs", 0), 1, done.append)
    offsets.close(10)
    assert done == [None] and len(cluster.requests) == 2


def test_commits_of_many_groups_are_made_side_by_side(cluster: Cluster) -> None:
    """Two threads made them, each waiting for the response to one group before it asked for the next."""
    offsets = GroupOffsets(
        lambda: cast("KafkaTransport", cluster), lambda callback: callback(), OFFSETS_COUNT, PATIENCE_S
    )
    done: list[LadingError | None] = []
    for number in range(32):
        offsets.store(f"iggy.air.legs.consumer/{number}", ("legs", 0), 1, done.append)
    try:
        # each of 8 threads has at least one of these names
        wait_until(lambda: len(cluster.requests) == 8)
    finally:
        cluster.may_go_on.set()
        offsets.close(10)
    assert done == [None] * 32
