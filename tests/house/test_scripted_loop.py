"""The event loop that tests turn by hand ends as a real one does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lading.dialects.nsq import publishing
from lading.kernels import engine
from tests.endpoints.nsq_client import mpub
from tests.endpoints.request_cost import opened_world
from tests.house.scripted import ScriptedLoop


def test_tasks_that_wait_are_cancelled_at_the_end() -> None:
    """Python reported "Task was destroyed but it is pending" minutes later, after another test."""
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append("cancelled")

    with ScriptedLoop() as loop:
        task = loop.create_task(wait())
        loop.turn()
    assert task.cancelled()
    assert ended == ["cancelled"]


def test_a_world_that_ends_leaves_no_publication_waiting_for_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "are_kernels_expected", lambda: True)
    monkeypatch.setattr(engine, "get_loaded", lambda home: None)
    with opened_world(tmp_path, has_users=False) as world:
        world.create_topic("t")
        client = world.connect("nsqd_tcp")
        client.send(b"  V2")
        client.send(mpub("t", *[b"x"] * (publishing.FALLBACK_ITEMS_MAX + 1)))
        waiting = asyncio.all_tasks(world.loop._as_loop)
        assert len(waiting) == 1
    assert all(task.cancelled() for task in waiting)
