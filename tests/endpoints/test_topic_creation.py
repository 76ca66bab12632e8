"""Topics that clients create by using them: many clients that want the same one at once share its creation."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from lading.broker.core.topics.topology_changes import TopologyChanges
from lading.endpoints.base.topic_creation import find_or_create_topic
from lading.model.errors import Refusal
from tests.endpoints.nsq_client import pub
from tests.endpoints.test_lent_sockets import OK, Nsqd, serve
from tests.faults.faulty import FaultyDisk

CLIENTS = 40


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of topics whose creation began."""
    names: list[str] = []
    real = TopologyChanges.create_topic

    def create_topic(self: Any, stream: Any, ident: Any, name: str, *arguments: Any, **fields: Any) -> Any:
        names.append(name)
        return real(self, stream, ident, name, *arguments, **fields)

    monkeypatch.setattr(TopologyChanges, "create_topic", create_topic)
    return names


def test_clients_that_publish_to_a_new_topic_at_once_create_it_once(tmp_path: Path, created: list[str]) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        clients = [await nsqd.connect() for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            client.sock.send(pub("new", b"%d" % number))
        for client in clients:
            assert await client.read(len(OK)) == OK
        assert created == ["new"]
        assert sorted(nsqd.kept("new")) == sorted(b"%d" % number for number in range(CLIENTS))

    serve(tmp_path, scenario, "os")


def test_callers_of_a_creation_that_fails_each_get_the_error(tmp_path: Path, created: list[str]) -> None:
    def fail(operation: str, path: Path, data: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    disk = FaultyDisk()

    async def scenario(nsqd: Nsqd) -> None:
        # the stream exists
        await nsqd.create_topics()
        created.clear()
        disk.fault = fail
        callers = [find_or_create_topic(nsqd.services, "new", 1) for _ in range(3)]
        results = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(result) for result in results] == [Refusal] * 3
        assert created == ["new"]
        disk.fault = lambda operation, path, data: data
        # nothing is left of it: the next caller creates it, also if the first one disconnects
        first, second = (asyncio.ensure_future(find_or_create_topic(nsqd.services, "new", 1)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).name == "new"
        assert created == ["new"] * 2
        assert not nsqd.services.creations

    serve(tmp_path, scenario, "os", disk=disk)


def test_callers_that_want_other_partitions_get_the_topic_that_is_first(tmp_path: Path) -> None:
    async def scenario(nsqd: Nsqd) -> None:
        results = await asyncio.gather(*(find_or_create_topic(nsqd.services, "new", count) for count in (1, 3)))
        assert results[0] is results[1]

    serve(tmp_path, scenario, "os")
