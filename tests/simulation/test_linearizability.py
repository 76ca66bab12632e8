"""Histories of simulated lives are linearizable, says porcupine, a checker that nobody here wrote (Go)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from lading.broker.core.catalog_commit import CatalogCommit
from lading.broker.core.pending_result import PendingResult
from tests.interop.go_programs import Conversation, Unavailable
from tests.simulation.operations import EVER, Operation, list_operations
from tests.simulation.porcupine import check, check_life, explain, open_checker
from tests.simulation.positions_world import IGGY, KAFKA, NOTHING, POSITIONS_FROM, PositionCall, PositionsWorld
from tests.simulation.seeds import live
from tests.simulation.world import TRANSACTIONS_FROM, World

SAMPLE, FULL = 14, 5_000
POSITIONS_SAMPLE, POSITIONS_FULL = 8, 2_500


@pytest.fixture(scope="module")
def checker() -> Iterator[Conversation]:
    with ExitStack() as stack:
        try:
            conversation = stack.enter_context(open_checker())
        except Unavailable as missing:
            pytest.skip(str(missing))
        yield conversation


@pytest.mark.timeout(7200)
def test_simulated_histories_are_linearizable(checker: Conversation, full: bool) -> None:
    count = (FULL if full else SAMPLE) // 2
    operations, wrong = 0, {}
    for seed in [first + number for first in (2_000, TRANSACTIONS_FROM + 2_000) for number in range(count)]:
        world = live(seed, World)
        operations += len(list_operations(world))
        result = check_life(checker, world)
        if result != "Ok":
            wrong[seed] = result
    print(f"linearizability: {2 * count} histories, {operations:,} operations, {len(wrong)} not linearizable")
    assert operations > 20 * count
    assert not wrong, explain(wrong)


def change(kind: str, call: int, end: int, *entries: tuple[int, str]) -> Operation:
    rows = [{"offset": offset, "payload": payload} for offset, payload in entries]
    return {"kind": kind, "call": call, "return": end, "entries": rows}


def seen(step: int, first: int, end: int, *entries: tuple[int, str], whole: bool = True) -> Operation:
    return {**change("read", step, step, *entries), "first": first, "end": end, "whole": whole}


A, B, C = (0, "a"), (1, "b"), (2, "c")
LEGAL: dict[str, list[Operation]] = {
    "a read beside an append may see it or not": [
        change("append", 1, 5, A), seen(2, 0, 1, A), change("append", 3, 9, B), seen(4, 0, 1, A), seen(6, 0, 2, A, B),
    ],
    "an append that nobody was told of takes effect later": [
        change("append", 1, EVER, A), seen(2, 0, 0), change("append", 4, 6, B), seen(7, 0, 2, A, B),
    ],
    "a transaction shows when it is committed": [
        change("transaction", 1, 8, A, C), change("append", 2, 3, B), seen(4, 0, 0, whole=False),
        seen(9, 0, 4, A, B, C, whole=False),
    ],
}  # fmt: skip
ILLEGAL: dict[str, list[Operation]] = {
    "what was acknowledged is lost": [change("append", 1, 2, A), change("append", 3, 4, B), seen(5, 0, 2, B)],
    "a read goes back": [change("append", 1, 9, A), seen(3, 0, 1, A), seen(4, 0, 0), seen(10, 0, 1, A)],
    "a read misses what was acknowledged": [change("append", 1, 2, A), seen(3, 0, 0), seen(4, 0, 1, A)],
    "a later append stands before an earlier one": [
        change("append", 1, 2, B), change("append", 3, 4, A), seen(5, 0, 2, A, B),
    ],
    "one offset holds two messages": [
        change("append", 1, 2, A), change("append", 1, 2, (0, "b")), seen(3, 0, 1, A),
    ],
    "half of a transaction shows": [
        change("transaction", 1, 9, A, B), seen(5, 0, 2, A, whole=False), seen(10, 0, 2, A, B, whole=False),
    ],
    "an aborted transaction shows": [change("append", 1, 2, A), seen(3, 0, 2, A, B)],
}  # fmt: skip


@pytest.mark.parametrize("name", [*LEGAL, *ILLEGAL])
def test_the_checker_tells_legal_histories_from_others(checker: Conversation, name: str) -> None:
    assert check(checker, {**LEGAL, **ILLEGAL}[name]) == ("Ok" if name in LEGAL else "Illegal")


@pytest.mark.parametrize("plant", ["lost", "swapped", "reread"])
def test_a_fault_in_a_simulated_history_is_found(checker: Conversation, plant: str) -> None:
    history = list_operations(live(TRANSACTIONS_FROM + 2_000, World))
    assert check(checker, history) == "Ok"
    appends: list[Any] = [one for one in history if one["kind"] == "append" and one["return"] < EVER]
    first, last = appends[0], appends[-1]
    assert first["return"] < last["call"]
    if plant == "lost":
        for one in history:
            if one["kind"] == "read":
                one["entries"] = [entry for entry in one["entries"] if entry not in last["entries"]]
    elif plant == "swapped":
        first["call"], first["return"], last["call"], last["return"] = (
            last["call"], last["return"], first["call"], first["return"],
        )  # fmt: skip
    else:
        history[-1]["entries"] = history[-1]["entries"][1:]
    assert check(checker, history) == "Illegal"


@pytest.mark.timeout(7200)
def test_simulated_positions_are_linearizable_but_for_what_a_crash_may_undo(checker: Conversation, full: bool) -> None:
    count = POSITIONS_FULL if full else POSITIONS_SAMPLE
    kinds: Counter[tuple[str, bool]] = Counter()
    wrong = {}
    for seed in range(POSITIONS_FROM, POSITIONS_FROM + count):
        world = live(seed, PositionsWorld)
        kinds.update((one.kind, one.is_confirmed) for one in world.calls)
        result = check_life(checker, world)
        if result != "Ok":
            wrong[seed] = result
    print(f"positions: {count} lives, {dict(kinds)}, {len(wrong)} not linearizable")
    assert min(kinds["store", True], kinds["store", False], kinds["fetch", False], kinds["crash", False]) > count
    assert not wrong, explain(wrong)


def store(call: int, end: int, value: int, *, confirmed: bool = True, consumer: str = KAFKA[0]) -> PositionCall:
    return PositionCall("store", consumer, call, end, value, confirmed)


def fetch(at: int, value: int, consumer: str = KAFKA[0]) -> PositionCall:
    return PositionCall("fetch", consumer, at, at + 1, value)


def crash(at: int) -> PositionCall:
    return PositionCall("crash", KAFKA[0], at, at + 1)


LEGAL_POSITIONS = {
    "nothing was stored": [fetch(1, NOTHING), crash(3), fetch(5, NOTHING)],
    "a client goes back": [store(1, 2, 9), store(3, 4, 5), fetch(5, 5)],
    "a fetch beside a store may find it or not": [store(1, 9, 5), fetch(2, NOTHING), fetch(4, 5)],
    "a crash undoes what was not confirmed": [
        store(1, 2, 3), store(3, 4, 5, confirmed=False), store(5, 6, 7, confirmed=False), fetch(7, 7), crash(9),
        fetch(11, 5), crash(13), fetch(15, 3),
    ],
    "consumers do not know each other": [store(1, 2, 5), fetch(3, NOTHING, IGGY), fetch(5, 5)],
}  # fmt: skip
ILLEGAL_POSITIONS = {
    "a confirmed position is lost": [store(1, 2, 3), store(3, 4, 5), crash(5), fetch(7, 3)],
    "a position goes back": [store(1, 2, 3), store(3, 4, 5, confirmed=False), fetch(5, 5), fetch(7, 3)],
    "a fetch misses a store": [store(1, 2, 3), store(3, 4, 5), fetch(5, 3)],
    "a position that a crash undid comes back": [
        store(1, 2, 3, confirmed=False), crash(3), fetch(5, NOTHING), crash(7), fetch(9, 3),
    ],
    "nobody stored it": [store(1, 2, 3), fetch(3, 4)],
    "one consumer has the position of another": [store(1, 2, 5, consumer=IGGY), fetch(3, 5)],
}  # fmt: skip


@pytest.mark.parametrize("name", [*LEGAL_POSITIONS, *ILLEGAL_POSITIONS])
def test_the_checker_tells_legal_positions_from_others(checker: Conversation, name: str) -> None:
    calls = {**LEGAL_POSITIONS, **ILLEGAL_POSITIONS}[name]
    assert check(checker, [], calls) == ("Ok" if name in LEGAL_POSITIONS else "Illegal")


def test_a_commit_that_is_confirmed_before_it_is_written_is_found(
    checker: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm(commit: CatalogCommit) -> PendingResult[None]:
        answer: PendingResult[None] = PendingResult()
        answer.finish(None)
        return answer

    monkeypatch.setattr(CatalogCommit, "confirm", confirm)
    seeds = range(POSITIONS_FROM, POSITIONS_FROM + POSITIONS_SAMPLE)
    results = [check(checker, [], live(seed, PositionsWorld).calls) for seed in seeds]
    assert "Illegal" in results and set(results) <= {"Ok", "Illegal"}


def test_a_position_that_is_read_back_older_is_found(checker: Conversation) -> None:
    world = live(POSITIONS_FROM, PositionsWorld)
    assert check(checker, [], world.calls) == "Ok"
    stored = next(one for one in world.calls if one.is_confirmed)
    fetched = next(
        at
        for at, one in enumerate(world.calls)
        if one.kind == "fetch" and one.consumer == stored.consumer and one.call > stored.end
    )
    world.calls[fetched] = replace(world.calls[fetched], value=NOTHING)
    assert check(checker, [], world.calls) == "Illegal"
