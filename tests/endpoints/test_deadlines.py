"""Deadlines and places of connections, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lading.endpoints.base.admission import Places
from lading.endpoints.base.deadlines import CONNECTIONS_AT_ONCE, DeadlineWatch, Stage


@dataclass(eq=False)
class Peer:
    """A connection that only says where it is."""

    at: Stage = Stage.FIRST
    requests_count: int = 0
    expired: list[Stage] = field(default_factory=list)
    is_idle: bool = False
    was_evicted: bool = False

    def stage(self) -> Stage:
        return self.at

    def progress(self) -> int:
        return self.requests_count

    def expire(self, stage: Stage) -> None:
        self.expired.append(stage)

    def is_evictable(self) -> bool:
        return self.is_idle

    def evict(self) -> None:
        self.was_evicted = True


class Clock:
    """Time that passes when told to, and the timers that are due meanwhile."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now_s + delay_s, callback))

    def advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while due := sorted((timer for timer in self.timers if timer[0] <= until_s), key=lambda timer: timer[0]):
            self.timers.remove(due[0])
            self.now_s = due[0][0]
            due[0][1]()
        self.now_s = until_s

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which no timer runs, then run those that were due once."""
        self.now_s += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now_s]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_s]
        for _, callback in due:
            callback()


def make_watch(**timeouts_s: float) -> tuple[DeadlineWatch, Clock]:
    clock = Clock()
    timeouts = {Stage[name.upper()]: seconds for name, seconds in timeouts_s.items()}
    return DeadlineWatch(timeouts, clock_s=clock.time, call_later=clock.call_later), clock


def test_many_connections_are_looked_at_in_turns() -> None:
    watch, clock = make_watch(first=10)
    peers = [Peer() for _ in range(4 * CONNECTIONS_AT_ONCE + 1)]
    for peer in peers:
        watch.add(peer)
    # periods of 2.5 s: the fourth look expires
    clock.advance(9.9)
    clock.now_s = 10.0
    counts: list[int] = []
    while not counts or counts[-1] < len(peers):
        (_, callback) = clock.timers.pop()
        assert not clock.timers
        callback()
        counts.append(sum(len(peer.expired) for peer in peers))
    assert counts == [CONNECTIONS_AT_ONCE * step for step in range(1, 5)] + [len(peers)]
    assert not clock.timers


def test_a_connection_that_changes_or_leaves_between_two_turns() -> None:
    watch, clock = make_watch(first=10)
    peers = [Peer() for _ in range(CONNECTIONS_AT_ONCE + 3)]
    for peer in peers:
        watch.add(peer)
    clock.advance(9.9)
    clock.now_s = 10.0
    clock.timers.pop()[1]()
    gone, heard, silent = peers[-3:]
    watch.remove(gone)
    # the loop stands still before the second turn: only what was heard by its beginning can count
    clock.now_s = 100.0
    heard.requests_count = 1
    clock.timers.pop()[1]()
    assert (gone.expired, heard.expired, silent.expired) == ([], [], [Stage.FIRST])
    clock.advance(9)
    assert not heard.expired
    clock.advance(4)
    assert heard.expired == [Stage.FIRST]
    newcomer = Peer()
    watch.add(newcomer)
    assert len(clock.timers) == 1


def test_each_stage_has_its_own_deadline() -> None:
    watch, clock = make_watch(first=10, partial=20, idle=100)
    silent, slow, busy = Peer(), Peer(Stage.PARTIAL), Peer(Stage.BUSY)
    for peer in (silent, slow, busy):
        watch.add(peer)
    clock.advance(9)
    assert not silent.expired
    clock.advance(4)
    assert silent.expired == [Stage.FIRST]
    assert not slow.expired
    clock.advance(10)
    assert slow.expired == [Stage.PARTIAL]
    clock.advance(1000)
    assert not busy.expired
    assert silent.expired == [Stage.FIRST]


def test_a_whole_request_begins_the_deadline_anew_and_part_of_one_does_not() -> None:
    watch, clock = make_watch(first=10, partial=10, idle=10)
    honest = Peer(Stage.PARTIAL)
    watch.add(honest)
    for _ in range(10):
        clock.advance(7)
        honest.requests_count += 1
    assert not honest.expired
    clock.advance(14)
    assert honest.expired == [Stage.PARTIAL]


def test_work_on_part_of_a_request_does_not_begin_its_deadline_anew() -> None:
    """600 clients with a byte a second each were kept for ever: their bytes waited for a turn at some of the looks."""
    watch, clock = make_watch(first=10, partial=10, idle=10)
    drip, honest = Peer(Stage.PARTIAL), Peer(Stage.PARTIAL)
    watch.add(drip)
    watch.add(honest)
    for _ in range(8):
        for stage in (Stage.BUSY, Stage.PARTIAL):
            clock.advance(2.5)
            drip.at = honest.at = stage
        # its requests get whole meanwhile
        honest.requests_count += 1
    assert drip.expired == [Stage.PARTIAL]
    assert not honest.expired


def test_time_in_which_the_loop_stood_still_counts_for_no_client() -> None:
    watch, clock = make_watch(first=10, partial=10)
    waiting, busy = Peer(), Peer(Stage.BUSY)
    watch.add(waiting)
    watch.add(busy)
    clock.advance(4)
    clock.stand_still(60)
    # what came meanwhile is read behind the timers
    assert not waiting.expired
    assert watch.longest_busy_s > 60
    clock.advance(4)
    assert not waiting.expired
    clock.advance(4)
    assert waiting.expired == [Stage.FIRST]


def test_the_longest_wait_for_the_broker_is_measured() -> None:
    watch, clock = make_watch(idle=400)
    stuck, served, silent = Peer(Stage.BUSY), Peer(Stage.BUSY), Peer(Stage.IDLE)
    for peer in (stuck, served, silent):
        watch.add(peer)
    for _ in range(10):
        served.requests_count += 1
        clock.advance(10)
    assert watch.longest_busy_s == 100
    stuck.at = Stage.IDLE
    served.requests_count += 1
    clock.advance(10)
    assert watch.longest_busy_s <= 10
    for peer in (stuck, served, silent):
        watch.remove(peer)
    assert watch.longest_busy_s == 0


def test_without_connections_there_is_no_timer() -> None:
    watch, clock = make_watch(first=10)
    assert not clock.timers
    peer = Peer()
    watch.add(peer)
    watch.remove(peer)
    clock.advance(100)
    assert not clock.timers
    assert not peer.expired


def test_who_has_not_asked_makes_room_the_oldest_first() -> None:
    places = Places(4, 1.0)
    asked, *half = [Peer() for _ in range(4)]
    for peer in (asked, *half):
        assert places.admit(peer, "10.0.0.1")
    places.settle(asked)
    assert places.admit(Peer(), "10.0.0.2")
    assert [peer.was_evicted for peer in (asked, *half)] == [False, True, False, False]
    assert len(places) == 4


def test_idle_ones_make_room_when_nobody_else_does_and_busy_ones_never() -> None:
    places = Places(2, 1.0)
    busy, idle = Peer(), Peer(is_idle=True)
    for peer in (busy, idle):
        assert places.admit(peer, "10.0.0.1")
        places.settle(peer)
    third = Peer()
    assert places.admit(third, "10.0.0.2")
    places.settle(third)
    assert (busy.was_evicted, idle.was_evicted) == (False, True)
    assert not places.admit(Peer(), "10.0.0.3")
    places.leave(busy)
    places.leave(busy)
    assert places.admit(Peer(), "10.0.0.3")


def test_a_lowered_limit_holds_for_those_who_come_next() -> None:
    places = Places(6, 1.0)
    busy, *half = [Peer() for _ in range(6)]
    for peer in (busy, *half):
        assert places.admit(peer, "10.0.0.1")
    places.settle(busy)
    places.set_limits(3, 1.0)
    assert len(places) == 6 and not any(peer.was_evicted for peer in (busy, *half))
    third = Peer()
    assert places.admit(third, "10.0.0.2") and len(places) == 3
    assert [peer.was_evicted for peer in (busy, *half)] == [False, *4 * [True], False]
    for peer in (half[-1], third):
        places.settle(peer)
    places.set_limits(2, 1.0)
    # all three work: nobody has to go, and nobody comes
    assert not places.admit(Peer(), "10.0.0.3") and len(places) == 3
    places.set_limits(4, 1.0)
    assert places.admit(Peer(), "10.0.0.3")


def test_a_peer_has_its_share_and_takes_nothing_from_others() -> None:
    places = Places(4, 0.5)
    other = Peer()
    assert places.admit(other, "10.0.0.2")
    greedy = [Peer() for _ in range(3)]
    assert all(places.admit(peer, "10.0.0.1") for peer in greedy)
    assert [peer.was_evicted for peer in greedy] == [True, False, False]
    for peer in greedy[1:]:
        places.settle(peer)
    assert not places.admit(Peer(), "10.0.0.1")
    assert not other.was_evicted
