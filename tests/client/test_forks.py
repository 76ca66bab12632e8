"""Clients after a fork, and in another event loop: refused with a sentence, and the parent's are as they were."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import Iterator

import pytest

import lading
from lading import aio, testing
from lading.model.errors import LocalError
from tests import forked_command

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    done = forked_command.run(command, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_a_forked_child_leaves_a_member_to_its_parent(broker: testing.BrokerProcess) -> None:
    """A child that ended within the block stored positions and left the group in the name of its parent."""
    with lading.Producer(broker.url) as producer:
        for number in range(4):
            producer.send("forked", b"%d" % number, partition=0)
    said = run(
        """
        import os, sys
        from lading import Consumer
        with Consumer(sys.argv[1], "forked", group="readers", timeout_s=5) as consumer:
            first = next(consumer)
            child = os.fork()
            if not child:
                try:
                    next(consumer)
                except Exception as error:
                    print(error, flush=True)
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            print(*(next(consumer).payload for _ in range(3)))
            consumer.commit()
        """,
        broker.url,
    )
    assert said.splitlines() == [
        "this consumer belongs to the process that forked this one; create one in each process",
        "b'1' b'2' b'3'",
    ]


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
@pytest.mark.turns(3)
def test_a_forked_child_does_not_wait_for_a_thread_it_has_not(broker: testing.BrokerProcess, name: str) -> None:
    with lading.Producer(broker.url) as producer:
        producer.send("threaded", b"x")
    said = run(
        """
        import asyncio, os, sys
        from lading import aio
        calls = {"Producer": lambda one: one.flush(), "Consumer": lambda one: one.poll(1, 5),
                 "Admin": lambda one: one.list_topics()}
        name, url = sys.argv[1:]
        async def use():
            arguments = ("threaded",) if name == "Consumer" else ()
            async with getattr(aio, name)(url, *arguments) as one:
                child = os.fork()
                if not child:
                    try:
                        await calls[name](one)
                    except Exception as error:
                        print(error, flush=True)
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
                await calls[name](one)
        asyncio.run(use())
        """,
        name,
        broker.url,
    )
    assert said == f"this {name.lower()} belongs to the process that forked this one; create one in each process\n"


def test_another_loop_is_refused(broker: testing.BrokerProcess) -> None:
    admin = aio.Admin(broker.url)

    async def open_() -> None:
        await admin.__aenter__()
        await admin.list_topics()

    asyncio.run(open_())
    with pytest.raises(LocalError, match="another event loop; create one in each loop"):
        asyncio.run(admin.list_topics())
    admin._thread.submit(admin._close_client, False).result(30)
    admin._thread.shutdown()
