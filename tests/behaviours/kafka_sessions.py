"""Kafka clients nobody here wrote, as sessions of the behaviour suite: librdkafka, kafka-python and aiokafka.

A Kafka header is a key and bytes: what these sessions see has kind raw, and the one reserved header of Lading's carrier
is left out, as an application that does not know it would.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lading.dialects.carrier import is_reserved
from lading.model.errors import RemoteError
from lading.model.kinds import Kind

if TYPE_CHECKING:
    from tests.behaviours.rows import HeaderRow, Seen, Sending

R = TypeVar("R")
TIMEOUT_S = 20.0
POLL_S = 0.1
WAIT_MS = 20
"""How long a broker holds a fetch: a client that turns to another partition waits for the one under way."""


def _plain(headers: Iterable[tuple[str, bytes | None]] | None) -> list[HeaderRow]:
    return [(key, int(Kind.RAW), value) for key, value in headers or () if not is_reserved(key)]


def _pairs(message: Sending) -> list[tuple[str, Any]]:
    return [(key, value) for key, _, value in message.headers]


def _seen(row: Any) -> Seen:
    """A record of kafka-python or aiokafka, whose names are the same."""
    from tests.behaviours.rows import Seen

    return Seen(row.partition, row.offset, row.value, _plain(row.headers), row.key)


def _until_known(topic: str, known: Callable[[], bool]) -> None:
    """Apache Kafka answers that a topic is created before it can be asked for it; clients keep its "unknown"."""
    until = time.monotonic() + TIMEOUT_S
    while not known():
        if time.monotonic() > until:
            raise RemoteError(f"{topic}: created, and still unknown after {TIMEOUT_S:.0f} s")


class LibrdkafkaSession:
    """confluent-kafka, that is librdkafka."""

    holds_kinds: ClassVar[bool] = False

    def __init__(self, address: str) -> None:
        from confluent_kafka import Consumer, Producer
        from confluent_kafka.admin import AdminClient

        # librdkafka's own complaints would come after the broker has ended
        self._facts: dict[str, str | int | float | bool] = {"bootstrap.servers": address, "log_level": 2}
        self._wait = {"fetch.wait.max.ms": WAIT_MS}
        self._admin = AdminClient(self._facts)
        # one request at a time: what a topic that was just made refuses is sent again, and would come behind the next
        self._producer = Producer({**self._facts, "acks": "all", "linger.ms": 0, "max.in.flight": 1})
        own = {"group.id": "positions of its own", "enable.auto.commit": False}
        self._consumer = Consumer({**self._facts, **self._wait, **own})

    def create_topic(self, topic: str, partitions: int) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        try:
            self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
        except KafkaException as error:
            raise RemoteError(error.args[0].str(), code=error.args[0].code()) from None
        # asked by the client whose cache the reads use
        _until_known(topic, lambda: not self._consumer.list_topics(topic, TIMEOUT_S).topics[topic].error)

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        from confluent_kafka import KafkaException

        failed: list[Any] = []
        place: dict[str, Any] = {} if partition is None else {"partition": partition}
        for message in messages:
            try:
                self._producer.produce(
                    topic,
                    message.payload,
                    message.key,
                    headers=_pairs(message),
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                    **place,
                )
            except KafkaException as error:
                # refused at once where it already knows the topic's partitions
                failed.append(error.args[0])
        self._producer.flush(TIMEOUT_S)
        if failed:
            raise RemoteError(failed[0].str(), code=failed[0].code())

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        from confluent_kafka import TopicPartition

        end = self.end(topic, partition)
        seen: list[Seen] = []
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        until = time.monotonic() + TIMEOUT_S
        while len(seen) < count and self._next(topic, partition, offset) < end and time.monotonic() < until:
            seen += self._some(self._consumer.consume(count - len(seen), POLL_S))
        self._consumer.unassign()
        return seen

    def _next(self, topic: str, partition: int, offset: int) -> int:
        from confluent_kafka import TopicPartition

        # the position passes hidden messages too
        (place,) = self._consumer.position([TopicPartition(topic, partition)])
        return max(offset, int(place.offset))

    def end(self, topic: str, partition: int = 0) -> int:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                _, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
            except KafkaException as error:
                # the one call of librdkafka that asks once, also of a broker that has not yet heard of its partition
                if error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION and time.monotonic() < until:
                    continue
                raise RemoteError(f"{topic}: {error.args[0].str()}", code=error.args[0].code()) from None
            return int(high)

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        from confluent_kafka import Consumer

        facts = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**self._facts, **facts})
        consumer.subscribe([topic])
        seen: list[Seen] = []
        until = time.monotonic() + TIMEOUT_S
        try:
            while len(seen) < count and time.monotonic() < until:
                messages = consumer.consume(count - len(seen), POLL_S)
                seen += self._some(messages)
                for message in messages:
                    consumer.commit(message=message, asynchronous=False)
        finally:
            consumer.close()
        return seen

    def _some(self, messages: Sequence[Any]) -> list[Seen]:
        from tests.behaviours.rows import Seen

        for message in messages:
            if message.error():
                raise RemoteError(message.error().str(), code=message.error().code())
        return [Seen(m.partition(), m.offset(), m.value(), _plain(m.headers()), m.key()) for m in messages]

    def close(self) -> None:
        self._producer.flush(TIMEOUT_S)
        self._consumer.close()


class KafkaPythonSession:
    """kafka-python."""

    holds_kinds: ClassVar[bool] = False

    def __init__(self, address: str) -> None:
        from kafka import KafkaConsumer, KafkaProducer
        from kafka.admin import KafkaAdminClient

        self._address = address
        self._admin = KafkaAdminClient(bootstrap_servers=address)
        self._producer = KafkaProducer(bootstrap_servers=address, acks="all", max_block_ms=5000)
        self._consumer = KafkaConsumer(
            bootstrap_servers=address, enable_auto_commit=False, group_id=None, fetch_max_wait_ms=WAIT_MS
        )

    def create_topic(self, topic: str, partitions: int) -> None:
        from kafka.admin import NewTopic
        from kafka.errors import KafkaError

        try:
            self._admin.create_topics([NewTopic(topic, partitions, 1)])
        except KafkaError as error:
            raise RemoteError(str(error)) from None
        _until_known(topic, lambda: bool(self._consumer.partitions_for_topic(topic)))

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        from kafka.errors import KafkaError

        try:
            sent = [self._producer.send(topic, m.payload, m.key, _pairs(m), partition=partition) for m in messages]
            self._producer.flush(TIMEOUT_S)
            for one in sent:
                one.get(TIMEOUT_S)
        except (KafkaError, AssertionError, ValueError) as error:
            raise RemoteError(str(error)) from None

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        from kafka import TopicPartition

        end = self.end(topic, partition)
        place = TopicPartition(topic, partition)
        self._consumer.assign([place])
        self._consumer.seek(place, offset)
        seen: list[Seen] = []
        until = time.monotonic() + TIMEOUT_S
        while len(seen) < count and self._consumer.position(place) < end and time.monotonic() < until:
            rows = self._consumer.poll(int(POLL_S * 1000), count - len(seen))
            seen += [_seen(row) for row in rows.get(place, ())]
        return seen

    def end(self, topic: str, partition: int = 0) -> int:
        from kafka import TopicPartition

        if not self._consumer.partitions_for_topic(topic):
            raise RemoteError(f"{topic}: unknown topic")
        place = TopicPartition(topic, partition)
        return int(self._consumer.end_offsets([place])[place])

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            bootstrap_servers=self._address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            # where it shares partitions out before it has heard of a new topic, it looks again after this long
            metadata_max_age_ms=1000,
        )
        seen: list[Seen] = []
        until = time.monotonic() + TIMEOUT_S
        try:
            # or never: it is asked to hear of the topic first
            _until_known(topic, lambda: bool(consumer.partitions_for_topic(topic)))
            consumer.subscribe([topic])
            while len(seen) < count and time.monotonic() < until:
                rows = consumer.poll(int(POLL_S * 1000), count - len(seen))
                seen += [_seen(row) for part in rows.values() for row in part]
                if rows:
                    consumer.commit()
        finally:
            consumer.close()
        return seen

    def close(self) -> None:
        for each in (self._producer, self._consumer, self._admin):
            each.close()


class AiokafkaSession:
    """aiokafka, in an event loop that runs in a thread of its own: between two tests it answers the broker."""

    holds_kinds: ClassVar[bool] = False

    def __init__(self, address: str) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
        from aiokafka.admin import AIOKafkaAdminClient

        self._address = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def opened() -> tuple[Any, Any, Any]:
            clients = (
                AIOKafkaAdminClient(bootstrap_servers=address),
                AIOKafkaProducer(bootstrap_servers=address, acks="all"),
                AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, fetch_max_wait_ms=WAIT_MS),
            )
            for client in clients:
                await client.start()
            return clients

        self._admin, self._producer, self._consumer = self._run(opened())

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        from aiokafka.errors import KafkaError

        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(TIMEOUT_S)
        except (KafkaError, AssertionError, ValueError) as error:
            raise RemoteError(str(error) or type(error).__name__) from None

    def create_topic(self, topic: str, partitions: int) -> None:
        from aiokafka.admin import NewTopic

        answer = self._run(self._admin.create_topics([NewTopic(topic, partitions, 1)]))
        for name, code, *words in answer.topic_errors:
            if code:
                raise RemoteError(f"{name}: {' '.join(map(str, words))}", code=code)
        _until_known(topic, lambda: topic in self._run(self._consumer.topics()))

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        async def sent() -> None:
            waiting = [
                await self._producer.send(topic, m.payload, m.key, headers=_pairs(m), partition=partition)
                for m in messages
            ]
            await asyncio.gather(*waiting)

        self._run(sent())

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        from aiokafka import TopicPartition

        end = self.end(topic, partition)
        place = TopicPartition(topic, partition)

        async def read() -> list[Seen]:
            self._consumer.assign([place])
            self._consumer.seek(place, offset)
            seen: list[Seen] = []
            while len(seen) < count and await self._consumer.position(place) < end:
                rows = await self._consumer.getmany(place, timeout_ms=int(POLL_S * 1000), max_records=count - len(seen))
                seen += [_seen(row) for row in rows.get(place, ())]
            return seen

        return self._run(read())

    def end(self, topic: str, partition: int = 0) -> int:
        from aiokafka import TopicPartition

        place = TopicPartition(topic, partition)

        async def ends() -> int:
            if topic not in await self._consumer.topics():
                raise RemoteError(f"{topic}: unknown topic")
            return int((await self._consumer.end_offsets([place]))[place])

        return self._run(ends())

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        from aiokafka import AIOKafkaConsumer

        async def read() -> list[Seen]:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=self._address,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=WAIT_MS,
            )
            await consumer.start()
            seen: list[Seen] = []
            try:
                while len(seen) < count:
                    rows = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=count - len(seen))
                    seen += [_seen(row) for part in rows.values() for row in part]
                    if rows:
                        await consumer.commit()
            finally:
                await consumer.stop()
            return seen

        return self._run(read())

    def close(self) -> None:
        async def stopped() -> None:
            for stop in (self._consumer.stop, self._producer.stop, self._admin.close):
                # while a connection is lost, the producer's sender takes its own end for that of the caller
                with suppress(asyncio.CancelledError):
                    await stop()

        self._run(stopped())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()
