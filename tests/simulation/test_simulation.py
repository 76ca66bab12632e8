"""Simulated lives of a broker: a fixed sample, 10^5 of them with LADING_TEST_FULL=1, and those that found something."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from unittest.mock import patch

import pytest

from tests.simulation.history import History, SeenMessages, SentMessages, SentTransaction
from tests.simulation.world import TRANSACTIONS_FROM, SimulationFault, World, prepare, run_seed

SAMPLE = 30
FULL = 100_000
AT_A_TIME = 250
FOUND = {
    7: "a snapshot that a full disk refused kept the callbacks of a sync from being called",
    28: "a snapshot of a log that had failed left out blocks that were on the disk: they were appended twice",
    263: "a snapshot taken under load had blocks that a power cut did not spare: their repetition was acknowledged",
    1_010_558: "blocks were written where a snapshot had others that a full disk refused: they were appended twice",
    1_010_823: "the same snapshot took a block that was refused for one that is there: its repetition was acknowledged",
    1_010_912: "an index told where a segment had ended before a power cut cut it: messages behind that were damage",
    1_021_177: "a chunk that was open when a log turned read-only was written later, and what was refused was there",
    405: "of a Kafka batch that was whole in a damaged chunk readers got one message, and its repetition was appended",
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    level = logging.getLogger("lading").level
    prepare()
    logging.getLogger("lading").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("lading").setLevel(level)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_is_mended(seed: int) -> None:
    run_seed(seed)


@pytest.mark.timeout(36_000)
def test_nothing_is_lost_doubled_or_misread(full: bool) -> None:
    if not full:
        worlds = [run_seed(first + seed) for first in (1_000, TRANSACTIONS_FROM) for seed in range(SAMPLE // 2)]
        # the sample is worth something: it crashes, fails, and still acknowledges
        assert sum(world.crashes for world in worlds) > SAMPLE
        assert sum(world.failures for world in worlds) > SAMPLE / 2
        assert sum(one.base_offset is not None for world in worlds for one in world.history.sent) > 5 * SAMPLE
        assert {one.is_committed for world in worlds for one in world.history.transactions} == {True, False, None}
        return
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        firsts = [*range(0, FULL // 2, AT_A_TIME), *range(TRANSACTIONS_FROM, TRANSACTIONS_FROM + FULL // 2, AT_A_TIME)]
        assert sum(workers.map(_run_some, firsts)) == FULL


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
    first, second = run_seed(5), run_seed(5)
    assert first.history == second.history


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
