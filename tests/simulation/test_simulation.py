"""Simulated lives of a broker: a fixed sample, 10^5 of them with LADING_TEST_FULL=1, and those that found something."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from unittest.mock import patch

import pytest

from lading.broker.channels.in_flight import DispatcherState, InFlightTracker
from tests.simulation.compacted_world import COMPACTED_FROM, CompactedWorld
from tests.simulation.history import History, SeenMessages, SentMessages, SentTransaction
from tests.simulation.nsq_model import ChannelModel, Finished
from tests.simulation.nsq_world import NSQ_FROM, NsqWorld
from tests.simulation.seeds import SimulationFault, live, prepare, run_seed
from tests.simulation.work_world import WORKS_FROM, WorkWorld
from tests.simulation.world import TRANSACTIONS_FROM, World
from tests.simulation.written_world import WRITTEN_FROM, WrittenWorld

SAMPLE = 14
FULL = 100_000
NSQ_SAMPLE, NSQ_FULL = 9, 20_000
WRITTEN_SAMPLE, WRITTEN_FULL = 6, 10_000
WORKS_SAMPLE, WORKS_FULL = 6, 10_000
COMPACTED_SAMPLE, COMPACTED_FULL = 4, 10_000
AT_A_TIME = 250
FOUND = {
    7: "a snapshot that a full disk refused kept the callbacks of a sync from being called",
    28: "a snapshot of a log that had failed left out blocks that were on the disk: they were appended twice",
    263: "a snapshot taken under load had blocks that a power cut did not spare: their repetition was acknowledged",
    1_010_558: "blocks were written where a snapshot had others that a full disk refused: they were appended twice",
    1_010_823: "the same snapshot took a block that was refused for one that is there: its repetition was acknowledged",
    1_010_912: "an index told where a segment had ended before a power cut cut it: messages behind that were damage",
    1_021_177: "a chunk that was open when a log turned read-only was written later, and what was refused was there",
    2_000_273: "a disk that refused the log of delayed messages cut off the client that had sent one",
    2_000_011: "a delayed message that a full disk had refused brought another one early, and twice",
    2_006_092: "shortening a log wrote its open chunk: what a full disk refused of it was acknowledged all the same",
    18_819: "a chunk torn at the end of a segment was lost at one start and found at the next, after it was sent again",
    22_112: "the same chunk, of which a reader between the two starts had seen nothing",
    1_026_685: "a snapshot left out a control record that a full disk had refused beside it: a commit was taken back",
    1_044_272: "the same chunk, where of the index only the last entry was whole: the next start believed that alone",
    1_044_966: "a snapshot that a start had left aside counted blocks that it found lost: the next start trusted it",
    32_316: "a torn Iggy message, of which offset and state were left before zeros, was served as an empty one",
    405: "of a Kafka batch that was whole in a damaged chunk readers got one message, and its repetition was appended",
}


@pytest.mark.parametrize("seed", FOUND)
@pytest.mark.turns(3)
def test_what_was_found_once_is_mended(seed: int) -> None:
    run_seed(seed)


@pytest.mark.timeout(36_000)
def test_nothing_is_lost_doubled_or_misread(full: bool) -> None:
    if not full:
        worlds = [live(first + seed, World) for first in (1_000, TRANSACTIONS_FROM) for seed in range(SAMPLE // 2)]
        # the sample is worth something: it crashes, fails, and still acknowledges
        assert sum(world.crashes for world in worlds) > SAMPLE
        assert sum(world.failures for world in worlds) > SAMPLE / 2
        assert sum(one.base_offset is not None for world in worlds for one in world.history.sent) > 5 * SAMPLE
        assert {one.is_committed for world in worlds for one in world.history.transactions} == {True, False, None}
        return
    assert _run_all((0, TRANSACTIONS_FROM), FULL // 2) == FULL


@pytest.mark.timeout(36_000)
def test_compaction_loses_doubles_and_misreads_nothing(full: bool) -> None:
    if full:
        assert _run_all((COMPACTED_FROM,), COMPACTED_FULL) == COMPACTED_FULL
        return
    worlds = [live(COMPACTED_FROM + seed, CompactedWorld) for seed in range(COMPACTED_SAMPLE)]
    assert sum(world.crashes for world in worlds) > COMPACTED_SAMPLE
    assert sum(world.rewritten for world in worlds) > 2 * COMPACTED_SAMPLE


@pytest.mark.timeout(36_000)
def test_channels_deliver_what_was_published_until_it_is_finished(full: bool) -> None:
    if full:
        assert _run_all((NSQ_FROM,), NSQ_FULL) == NSQ_FULL
        return
    worlds = [live(NSQ_FROM + seed, NsqWorld) for seed in range(NSQ_SAMPLE)]
    assert sum(world.crashes for world in worlds) > 2 * NSQ_SAMPLE
    assert sum(world.failures for world in worlds) > NSQ_SAMPLE
    assert sum(len(world.acknowledged) for world in worlds) > 15 * NSQ_SAMPLE
    assert sum(world.deliveries for world in worlds) > 60 * NSQ_SAMPLE
    known = {one.finished for world in worlds for model in world.models for one in model.messages.values()}
    assert {Finished.FOR_GOOD, Finished.PERHAPS} <= known


@pytest.mark.timeout(36_000)
def test_what_was_written_outlasts_the_process(full: bool) -> None:
    if full:
        assert _run_all((WRITTEN_FROM,), WRITTEN_FULL) == WRITTEN_FULL
        return
    worlds = [live(WRITTEN_FROM + seed, WrittenWorld) for seed in range(WRITTEN_SAMPLE)]
    assert sum(world.crashes for world in worlds) > 2 * WRITTEN_SAMPLE
    assert sum(world.failures for world in worlds) > WRITTEN_SAMPLE
    assert sum(world.written_at_once for world in worlds) > 4 * WRITTEN_SAMPLE
    assert sum(one.base_offset is not None for world in worlds for one in world.history.sent) > 20 * WRITTEN_SAMPLE


@pytest.mark.timeout(36_000)
def test_works_that_are_sent_again_are_there_once(full: bool) -> None:
    if full:
        assert _run_all((WORKS_FROM,), WORKS_FULL) == WORKS_FULL
        return
    worlds = [live(WORKS_FROM + seed, WorkWorld) for seed in range(WORKS_SAMPLE)]
    assert sum(world.crashes for world in worlds) > 2 * WORKS_SAMPLE
    assert sum(world.deaths for world in worlds) > WORKS_SAMPLE
    assert sum(world.attempts - world.finished for world in worlds) > WORKS_SAMPLE
    assert sum(world.finished for world in worlds) > WORKS_SAMPLE


def _run_all(firsts: Sequence[int], count: int) -> int:
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        return sum(workers.map(_run_some, [at for first in firsts for at in range(first, first + count, AT_A_TIME)]))


def _run_some(first: int) -> int:
    prepare()
    for seed in range(first, first + AT_A_TIME):
        run_seed(seed)
    return AT_A_TIME


def test_a_failure_prints_the_command_that_does_it_again() -> None:
    def lose(world: World) -> None:
        world.history.sent.append(SentMessages("iggy", [b"lost"], 1, 2, base_offset=0))

    with patch.object(World, "read", lose), pytest.raises(SimulationFault) as told:
        for seed in range(20):
            run_seed(seed)
    found = re.search(r"seed (\d+) at step \d+: .*b'lost'.*; again: python -m tests\.simulation (\d+)", str(told.value))
    assert found is not None and found[1] == found[2]


def test_a_seed_is_the_same_each_time() -> None:
    first, second = live(5, World), live(5, World)
    assert first.history == second.history
    nsq = [live(NSQ_FROM + 5, NsqWorld) for _ in range(2)]
    assert nsq[0].models == nsq[1].models and nsq[0].acknowledged == nsq[1].acknowledged


@pytest.mark.parametrize(
    ("fault", "history"),
    [
        ("'b' is there 2 times", History([SentMessages("w", [b"a"], 1, 2, 0), SentMessages("w", [b"b"], 1)])),
        ("acknowledged at 3", History([SentMessages("w", [b"a"], 1, 2, 3), SentMessages("w", [b"b"], 1)])),
        (
            "stands before",
            History([SentMessages("w", [b"b"], 1, 2, 1), SentMessages("w", [b"a"], 3, 4, 0)]),
        ),
        ("has gaps", History([SentMessages("w", [b"a", b"b"], 1)], [SeenMessages(3, 0, 3, [(0, b"a"), (2, b"b")])])),
        ("misses", History([SentMessages("w", [b"a", b"b"], 1, 2, 0)], [SeenMessages(3, 0, 3, [])])),
        ("only [b'a'] is visible", History(transactions=[SentTransaction([b"a", b"c"])])),
        ("is_committed False", History(transactions=[SentTransaction([b"a", b"b"], False)])),
        ("goes on at 2", History([SentMessages("w", [b"a", b"b"], 1)], polled=[[0], [2]])),
    ],
)
def test_the_checker_finds_each_kind_of_fault(fault: str, history: History) -> None:
    assert any(fault in one for one in history.faults({0: b"a", 1: b"b", 2: b"b"}))


def _deliver(model: ChannelModel, client: str, attempts: int = 1, body: bytes = b"m", now_us: int = 10) -> None:
    model.deliver(client, b"1", body, attempts, now_us, 100)


def _deliver_finished(model: ChannelModel) -> None:
    _deliver(model, "one")
    model.finish("one", b"1", 20)
    _deliver(model, "two", 2)


def _deliver_stored_as_finished(model: ChannelModel) -> None:
    _deliver(model, "one")
    model.finish("one", b"1", 20)
    model.tick(100_020)
    model.crash()
    _deliver(model, "two", 2)


def _deliver_twice(model: ChannelModel) -> None:
    _deliver(model, "one")
    _deliver(model, "two", 2)


def _deliver_early(model: ChannelModel) -> None:
    _deliver(model, "one")
    model.requeue("one", b"1", 500, 20)
    _deliver(model, "two", 2, now_us=519)


def _count_what_was_left(model: ChannelModel) -> None:
    _deliver(model, "one")
    model.leave("one")
    _deliver(model, "two", 2)


def _count_too_much_after_a_crash(model: ChannelModel) -> None:
    _deliver(model, "one")
    model.crash()
    _deliver(model, "two", 3)


def _change_a_body(model: ChannelModel) -> None:
    _deliver(model, "one")
    model.tick(110)
    _deliver(model, "two", 2, b"other")


@pytest.mark.parametrize(
    ("fault", "happen"),
    [
        ("is delivered again, finished in this life", _deliver_finished),
        ("is delivered again, finished, and stored", _deliver_stored_as_finished),
        ("to two clients at once", _deliver_twice),
        ("comes 1 us early", _deliver_early),
        ("has attempts 2, not 1 to 1", _count_what_was_left),
        ("has attempts 3, not 1 to 2", _count_too_much_after_a_crash),
        ("has the id of", _change_a_body),
    ],
)
def test_the_model_of_a_channel_finds_each_kind_of_fault(fault: str, happen: Callable[[ChannelModel], None]) -> None:
    with pytest.raises(AssertionError, match=fault):
        happen(ChannelModel("c"))


def _forget_what_was_under_way(tracker: InFlightTracker, state: DispatcherState) -> None:
    tracker.window.clear(state.end)


@pytest.mark.parametrize(
    ("fault", "method", "broken"),
    [
        ("was never delivered", "in_flight.InFlightTracker.restore", _forget_what_was_under_way),
        (
            "is delivered again, finished",
            "in_flight.InFlightTracker.finish",
            lambda tracker, subscriber, offsets: len(offsets),
        ),
        (
            "is delivered again, finished, and stored",
            "channels.Channels._store_rows",
            lambda channels, changed, now_us: 0,
        ),
    ],
)
def test_a_channel_that_is_broken_is_found(fault: str, method: str, broken: Callable[..., object]) -> None:
    with patch(f"lading.broker.channels.{method}", broken), pytest.raises(SimulationFault, match=fault):
        for seed in range(NSQ_FROM, NSQ_FROM + 20):
            run_seed(seed)
