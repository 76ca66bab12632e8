"""The threads of a gateway: views of the cluster arrive in the order in which they were seen."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Any

from lading.kafka_log.gateway import Gateway

TURN_S = 0.3


class Taken:
    """What the event loop takes over, in order."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.views: list[int] = []

    def take_over(self, view: int, moment_us: int) -> None:
        self.views.append(view)


def test_an_older_view_is_never_taken_after_a_newer_one() -> None:
    gateway, taken = Gateway.__new__(Gateway), Taken()
    first_seen, second_seen = Event(), Event()
    views = iter([(1, first_seen), (2, second_seen)])

    class Cluster:
        def look(self, known: object) -> int:
            view, seen = next(views)
            seen.set()
            return view

    def post(take: Callable[[], None]) -> None:
        # the first look is held up between the cluster and the loop for as long as another one may take
        if not taken.views and not second_seen.is_set():
            second_seen.wait(TURN_S)
            held_up.wait(TURN_S)
        take()

    held_up = Event()
    for name, value in {"_cluster": Cluster(), "_changes": taken, "_post": post, "_looking": Lock()}.items():
        setattr(gateway, name, value)
    older = Thread(target=gateway._look_and_wait)
    older.start()
    assert first_seen.wait(5)
    newer = Thread(target=gateway._look_and_wait)
    newer.start()
    for thread in (older, newer):
        thread.join(10)
    assert taken.views == [1, 2]
