"""Histories of simulated lives are linearizable, says porcupine, a checker that nobody here wrote (Go)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.go_programs import Conversation, Unavailable, client
from tests.simulation.operations import Operation, list_operations
from tests.simulation.seeds import prepare, run_seed
from tests.simulation.world import TRANSACTIONS_FROM, World

SAMPLE, FULL = 40, 5_000


@pytest.fixture(scope="module")
def checker() -> Iterator[Conversation]:
    prepare()
    try:
        program = client("linearizability", Path(__file__).parent)
    except Unavailable as missing:
        pytest.skip(str(missing))
    conversation = Conversation(program)
    yield conversation
    conversation.close()


def check(checker: Conversation, operations: list[Operation]) -> str:
    """Return ``Ok``, ``Illegal``, or ``Unknown`` if it takes too long."""
    result: str = checker.ask(operations=operations)["result"]
    return result


def operations_of(seed: int) -> list[Operation]:
    world = run_seed(seed)
    assert isinstance(world, World)
    return list_operations(world)


@pytest.mark.timeout(7200)
def test_simulated_histories_are_linearizable(checker: Conversation, full: bool) -> None:
    count = (FULL if full else SAMPLE) // 2
    operations, wrong = 0, {}
    for seed in [first + number for first in (2_000, TRANSACTIONS_FROM + 2_000) for number in range(count)]:
        history = operations_of(seed)
        operations += len(history)
        result = check(checker, history)
        if result != "Ok":
            wrong[seed] = result
    print(f"linearizability: {2 * count} histories, {operations:,} operations, {len(wrong)} not linearizable")
    assert operations > 20 * count
    assert not wrong, f"again: python -m tests.simulation {min(wrong)}: {wrong}"


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
        change("append", 1, 1 << 40, A), seen(2, 0, 0), change("append", 4, 6, B), seen(7, 0, 2, A, B),
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
    history = operations_of(TRANSACTIONS_FROM + 2_000)
    assert check(checker, history) == "Ok"
    appends: list[Any] = [one for one in history if one["kind"] == "append" and one["return"] < 1 << 40]
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
