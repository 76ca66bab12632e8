"""Long work in turns: it comes to the same result, and others are served in between."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable
from typing import Any

import pytest

from lading.endpoints.http_shared.documents import encode_in_turns
from lading.runtime.turns import (
    ROWS_AT_ONCE,
    SORTED_AT_ONCE,
    TURN_S,
    Turn,
    TurnCounter,
    Turns,
    WorkerTurn,
    finish_in_turns,
    sort_in_turns,
    take_turns,
)


def count_up(rows: int) -> Turns[int]:
    turn = TurnCounter()
    for _ in range(rows):
        if turn.is_over():
            yield
    return rows


def test_short_work_is_done_at_once_and_long_work_later() -> None:
    ticks = itertools.count(0, TURN_S)
    assert take_turns(count_up(ROWS_AT_ONCE - 1), lambda: next(ticks)) == ROWS_AT_ONCE - 1
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def wait() -> int:
        other = asyncio.create_task(watch())
        work = take_turns(count_up(10 * ROWS_AT_ONCE), lambda: next(ticks))
        assert isinstance(work, Awaitable)
        found: int = await work
        other.cancel()
        return found

    assert asyncio.run(wait()) == 10 * ROWS_AT_ONCE
    assert turns >= 9


def test_a_turn_goes_on_until_its_time_is_over() -> None:
    # four looks at the clock a turn, one as it begins
    ticks = itertools.count(0, TURN_S / 4)
    work = take_turns(count_up(100 * ROWS_AT_ONCE), lambda: next(ticks))
    assert isinstance(work, Awaitable)
    work.send(None)  # type: ignore[attr-defined]  # to where it waits for its turn
    for looks in (5, 11):
        assert next(ticks) == pytest.approx(looks * TURN_S / 4)
        work.send(None)  # type: ignore[attr-defined]
    work.close()  # type: ignore[attr-defined]


def test_who_builds_a_list_gives_way_when_the_turn_is_over() -> None:
    now_s = 0.0

    async def build() -> list[int]:
        nonlocal now_s
        turn, turns, seen = Turn(clock=lambda: now_s), 0, []

        async def watch() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(watch())
        for _ in range(8):
            now_s += TURN_S / 4
            await turn.give_way()
            seen.append(turns)
        other.cancel()
        return seen

    assert asyncio.run(build()) == [0, 0, 0, 1, 1, 1, 1, 2]


def test_a_worker_rests_as_long_as_it_computes() -> None:
    now_s = 0.0
    slept: list[float] = []
    worker = WorkerTurn(lambda: now_s, slept.append)
    for computed_s in (0.5, 0.0, 0.25):
        now_s += computed_s
        worker.rest()
    assert slept == [0.5, 0.0, 0.25]


def test_what_work_ends_with_is_awaited() -> None:
    async def late() -> int:
        return 7

    def work() -> Turns[int | Awaitable[int]]:
        yield
        return late()

    assert asyncio.run(finish_in_turns(work())) == 7


@pytest.mark.parametrize("count", [0, 1, SORTED_AT_ONCE, 3 * SORTED_AT_ONCE + 5])
def test_sorting_in_turns_is_sorting(count: int) -> None:
    rows = {f"{random.Random(count).random()}{number}" for number in range(count)}
    assert asyncio.run(finish_in_turns(sort_in_turns(rows))) == sorted(rows)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize(
    "document",
    [
        {}, [], None, "ü", [[]], {"a": {}}, {"a": [1, 2.5, None, True, "ü\n"], "b": {"c": [{"d": "e"}], "f": {}}},
        {"rows": [{"name": f"ü{number}", "in": [{"x": number}]} for number in range(2 * ROWS_AT_ONCE)]},
    ],
)  # fmt: skip
def test_json_in_turns_is_json(document: Any, ascii_only: bool) -> None:
    text = asyncio.run(finish_in_turns(encode_in_turns(document, ascii_only=ascii_only)))
    assert text == json.dumps(document, separators=(",", ":"), ensure_ascii=ascii_only)


def test_a_long_document_is_encoded_in_many_turns() -> None:
    rows = 20 * ROWS_AT_ONCE
    assert sum(1 for _ in encode_in_turns([{"a": number} for number in range(rows)])) >= 20
