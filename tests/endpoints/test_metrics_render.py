"""Rendering the figures of many partitions: others have their turn, and the figures are those of one moment each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

from lading.runtime.metrics import Gauge, Labels, Metrics
from lading.runtime.turns import TURN_S

ROWS_A_TURN = 500
ROWS = 20 * ROWS_A_TURN


def test_others_have_their_turn_while_many_rows_are_read() -> None:
    read_at: list[int] = []
    turns = 0

    def rows() -> Iterator[tuple[Labels, float]]:
        for number in range(ROWS):
            read_at.append(turns)
            yield (str(number),), float(number)

    async def scrape() -> bytes:
        nonlocal turns
        metrics = Metrics()
        metrics.add(Gauge("lading_many", "Many rows.", ("row",), rows))
        task = asyncio.get_running_loop().create_task(metrics.snapshot(lambda: len(read_at) * TURN_S / ROWS_A_TURN))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return (await task).render()[0]

    text = asyncio.run(scrape())
    assert text.count(b"lading_many{") == ROWS
    # never more than a piece between two turns of somebody else
    starts = [0, *(at for at, (one, other) in enumerate(pairwise(read_at), 1) if other != one), ROWS]
    assert max(other - one for one, other in pairwise(starts)) <= ROWS_A_TURN + 1


def test_a_snapshot_counts_no_further() -> None:
    metrics = Metrics()
    metrics.messages_in.values[("admin",)] += 1
    metrics.sync_seconds.observe(0.5)
    metrics.connections["admin"] = 1
    snapshot = asyncio.run(metrics.snapshot())
    metrics.messages_in.values[("admin",)] += 1
    metrics.sync_seconds.observe(0.5)
    metrics.connections["admin"] = 2
    text = snapshot.render()[0].decode()
    for line in (
        'messages_in_total{endpoint="admin"} 1.0',
        'connections{endpoint="admin"} 1.0',
        "sync_seconds_count 1.0",
    ):
        assert f"lading_{line}\n" in text
