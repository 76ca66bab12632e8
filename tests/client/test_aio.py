"""`lading.aio`: the client for asyncio against a broker; what is cancelled loses nothing and hangs nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

import lading
from lading import aio
from lading.model.errors import LocalError, RemoteError
from lading.testing.broker_fixture import LadingBroker

QUICK_S = 10
"""Far more than what is waited for takes, and far less than for ever."""


@pytest.fixture(scope="module")
def shared() -> Iterator[LadingBroker]:
    with LadingBroker() as broker:
        yield broker


def test_what_is_sent_is_read(shared: LadingBroker) -> None:
    async def run(url: str, topic: str) -> list[lading.Message]:
        async with aio.Producer(url, batch_count=10) as producer:
            for number in range(25):
                await producer.send(topic, b"%d" % number, headers={"n": lading.u16(number)})
            await producer.flush()
            assert producer.unsent == 0
        async with aio.Consumer(url, topic, end="latest") as consumer:
            return [message async for message in consumer]

    messages = asyncio.run(run(shared.url, shared.create_topic()))
    assert [message.payload for message in messages] == [b"%d" % number for number in range(25)]
    assert [message.headers["n"] for message in messages] == list(range(25))


def test_a_sender_waits_while_a_full_batch_leaves_and_others_go_on() -> None:
    """Backpressure: what was accepted and is not acknowledged never exceeds a batch, however slow the broker is."""

    async def run(slow: LadingBroker, topic: str) -> tuple[list[int], int]:
        unsent, ticks = [], 0
        with slow.faults("kafka").delaying(0.2):
            async with aio.Producer(f"kafka://{slow.kafka}", batch_count=10, linger_ms=None) as producer:

                async def send() -> None:
                    for number in range(30):
                        await producer.send(topic, b"%d" % number)
                        unsent.append(producer.unsent)

                sending = asyncio.create_task(send())
                while not sending.done():
                    ticks += 1
                    await asyncio.sleep(0.01)
                await sending
        return unsent, ticks

    with LadingBroker(faults=True) as slow:
        topic = slow.create_topic()
        unsent, ticks = asyncio.run(run(slow, topic))
        assert max(unsent) <= 10 and len(unsent) == 30
        assert ticks > 20, "three batches take 0.6 s at least, in which others run"
        assert len(slow.messages(topic)) == 30


@pytest.mark.parametrize("scheme", ["lading", "kafka", "iggy"])
def test_topics_are_created_listed_and_deleted(shared: LadingBroker, scheme: str) -> None:
    url = f"{scheme}://{ {'lading': shared.admin, 'kafka': shared.kafka, 'iggy': shared.iggy_tcp}[scheme] }"

    async def run() -> None:
        async with aio.Admin(url) as admin:
            made = await admin.create_topic(f"made-{scheme}", partitions=3)
            assert len(made.partitions) == 3
            assert made.name in {topic.name for topic in await admin.list_topics()}
            await admin.delete_topic(made.name)
            assert made.name not in {topic.name for topic in await admin.list_topics()}

    asyncio.run(run())
    with lading.Admin(url) as admin:
        assert f"made-{scheme}" not in {topic.name for topic in admin.list_topics()}


def test_a_cancelled_wait_loses_no_message(shared: LadingBroker) -> None:
    """Waits of a thousandth of a second end in any state: before, while and after the thread has read."""
    topic, total = shared.create_topic(), 60

    async def run() -> tuple[list[bytes | None], int]:
        found: list[bytes | None] = []
        cancelled = 0
        async with (
            aio.Consumer(shared.url, topic, group="cancelling") as consumer,
            aio.Producer(shared.url) as producer,
        ):
            for number in range(total):
                await producer.send(topic, b"%d" % number)
                if number % 10 == 9:
                    await producer.flush()
                try:
                    async with asyncio.timeout(0.001 * (number % 7)):
                        found.append((await anext(consumer)).payload)
                except TimeoutError:
                    cancelled += 1
            await producer.flush()
            async with asyncio.timeout(QUICK_S):
                while len(found) < total:
                    found.append((await anext(consumer)).payload)
        return found, cancelled

    found, cancelled = asyncio.run(run())
    assert found == [b"%d" % number for number in range(total)]
    assert cancelled


def test_a_cancelled_wait_for_batches_loses_none(shared: LadingBroker) -> None:
    topic, total, columns = shared.create_topic(), 60, "offset, n int"

    async def run() -> tuple[list[int | None], int]:
        found: list[int | None] = []
        cancelled = 0
        async with (
            aio.Consumer(shared.url, topic, group="cancelling batches") as consumer,
            aio.Producer(shared.url) as producer,
        ):
            batches = consumer.batches(columns)
            for number in range(total):
                await producer.send(topic, b"", headers={"n": number})
                if number % 10 == 9:
                    await producer.flush()
                try:
                    async with asyncio.timeout(0.001 * (number % 7)):
                        found += (await anext(batches)).column("n").to_pylist()
                except TimeoutError:
                    cancelled += 1
                    batches = consumer.batches(columns)
            await producer.flush()
            async with asyncio.timeout(QUICK_S):
                while len(found) < total:
                    found += (await anext(batches)).column("n").to_pylist()
        return found, cancelled

    found, cancelled = asyncio.run(run())
    assert found == list(range(total))
    assert cancelled


def test_batches_are_those_of_the_consumer(shared: LadingBroker) -> None:
    topic = shared.create_topic()

    async def run() -> list[int | None]:
        async with aio.Producer(shared.url) as producer:
            for number in range(25):
                await producer.send(topic, b"", headers={"n": number})
        async with aio.Consumer(shared.url, topic, where="n >= 20", end="latest") as consumer:
            return [n async for batch in consumer.batches("n int") for n in batch.column("n").to_pylist()]

    assert asyncio.run(run()) == [20, 21, 22, 23, 24]


def test_a_message_whose_work_is_cancelled_is_read_again(shared: LadingBroker) -> None:
    topic = shared.create_topic()
    with lading.Producer(shared.url) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number)

    async def work(seen: list[bytes | None], stop_at: int) -> None:
        async with aio.Consumer(shared.url, topic, group="workers", timeout_s=1) as consumer:
            async for message in consumer:
                seen.append(message.payload)
                if len(seen) == stop_at:
                    await asyncio.sleep(QUICK_S * 6)

    async def run() -> list[bytes | None]:
        seen: list[bytes | None] = []
        task = asyncio.create_task(work(seen, 2))
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, QUICK_S)
        again: list[bytes | None] = []
        await work(again, 9)
        return [*seen, *again]

    assert asyncio.run(run()) == [b"0", b"1", b"1", b"2"]


def test_accepted_messages_are_sent_by_a_block_that_is_cancelled(shared: LadingBroker) -> None:
    topic = shared.create_topic()

    async def send(accepted: list[int]) -> None:
        async with aio.Producer(shared.url, linger_ms=None) as producer:
            while True:
                await producer.send(topic, b"%d" % len(accepted))
                accepted.append(len(accepted))

    async def run() -> int:
        accepted: list[int] = []
        task = asyncio.create_task(send(accepted))
        while len(accepted) < 20:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, QUICK_S)
        return len(accepted)

    count = asyncio.run(run())
    payloads = [message.payload for message in shared.messages(topic)]
    # the one that was cancelled may be there too
    assert payloads[:count] == [b"%d" % number for number in range(count)]
    assert len(payloads) <= count + 1


def test_closing_ends_a_wait(shared: LadingBroker) -> None:
    topic = shared.create_topic()

    async def run() -> None:
        consumer = aio.Consumer(shared.url, topic)
        async with asyncio.timeout(QUICK_S):
            async with consumer:
                waiting = asyncio.create_task(anext(consumer))
                await asyncio.sleep(0.1)
            with pytest.raises(LocalError, match="this consumer is closed"):
                await waiting
        with pytest.raises(LocalError, match="this consumer is closed"):
            await consumer.poll()

    asyncio.run(run())


def test_errors_are_those_of_the_blocking_client(shared: LadingBroker) -> None:
    async def run() -> None:
        with pytest.raises(LocalError, match="topic 'never' does not exist"):
            async with aio.Consumer(shared.url, "never"):
                pass
        with pytest.raises(RemoteError):
            async with aio.Producer("lading://127.0.0.1:1", retries=0) as producer:
                await producer.send("t", b"")
        with pytest.raises(LocalError, match="this producer is not open; use it within 'async with'"):
            await aio.Producer(shared.url).send("t", b"")

    asyncio.run(run())


def test_positions_and_lag_are_those_of_the_consumer(shared: LadingBroker) -> None:
    async def run(url: str, topic: str, source: str) -> None:
        batches = lading.read_arrow(url, source).to_batches()
        async with aio.Producer(url) as producer:
            assert await producer.send_batches(topic, batches) == 3
        async with aio.Consumer(url, topic, timeout_s=QUICK_S) as consumer:
            assert [message.payload for message in await consumer.poll(2)] == [b"0", b"1"]
            assert await consumer.positions() == {(topic, 0): 2}
            assert await consumer.lag() == {(topic, 0): 1}

    source = shared.create_topic()
    with lading.Producer(shared.url) as producer:
        for number in range(3):
            producer.send(source, b"%d" % number)
    asyncio.run(run(shared.url, shared.create_topic(), source))


def test_the_names_are_those_of_the_blocking_clients() -> None:
    """But for what reading is made of, and the transport: they belong to a thread."""
    of_one_thread = {"prefetch", "take", "transport", "flush_late", "describe_lost", "forget_in_child"}
    for blocking, other in (
        (lading.Producer, aio.Producer),
        (lading.Consumer, aio.Consumer),
        (lading.Admin, aio.Admin),
    ):
        names = {name for name in dir(blocking) if not name.startswith("_")}
        assert names - of_one_thread - set(dir(other)) == set(), blocking
