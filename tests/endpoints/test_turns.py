"""A long list is built and sent in turns: nobody waits for all of it."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from lading.endpoints.base.request_budget import RequestBudget
from lading.endpoints.http_shared.documents import answer_rows

ROWS = 5_000


def test_others_have_their_turn_while_a_long_list_is_built_and_sent() -> None:
    built = 0
    seen: list[int] = []
    parts: list[bytes] = []

    def describe(number: int) -> dict[str, Any]:
        nonlocal built
        built += 1
        return {"number": number, "text": "x" * 100}

    async def watch() -> None:
        while True:
            seen.append(built)
            await asyncio.sleep(0)

    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing is asked for")

    async def send(message: Any) -> None:
        parts.append(message.get("body", b""))

    async def ask() -> None:
        other = asyncio.create_task(watch())
        response = await answer_rows(range(ROWS), describe, RequestBudget(asyncio.get_running_loop().call_soon))
        # at most a few hundred rows at a time
        assert max(later - before for before, later in itertools.pairwise(seen)) < 500
        turns = len(seen)
        await response({"type": "http"}, receive, send)
        assert len(seen) > turns
        other.cancel()

    asyncio.run(ask())
    assert [row["number"] for row in json.loads(b"".join(parts))] == list(range(ROWS))
