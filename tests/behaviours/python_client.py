"""Lading's own Python client as a session of the behaviour suite, over any transport."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from lading import Consumer, Header, Headers, Producer
from lading.model.message import Message
from lading.transports.open import open_transport

if TYPE_CHECKING:
    from tests.behaviours.rows import Seen, Sending


class PythonSession:
    """Producer and Consumer over one URL."""

    holds_kinds: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._transport = open_transport(url)
        self._producer = Producer(url, create_topics=False)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._transport.create_topic(topic, partitions)

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        for message in messages:
            headers = Headers([Header(*header) for header in message.headers])
            self._producer.send(topic, message.payload, key=message.key, headers=headers, partition=partition)
        self._producer.flush()

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        with Consumer(self._url, topic, start={partition: offset}, timeout_s=0) as consumer:
            return [_seen(message) for message in islice(consumer, count)]

    def end(self, topic: str, partition: int = 0) -> int:
        return self._transport.topic(topic).partitions[partition].end_offset

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        with Consumer(self._url, topic, group=group, timeout_s=5) as consumer:
            return [_seen(message) for message in islice(consumer, count)]

    def close(self) -> None:
        self._producer.close()
        self._transport.close()


def _seen(message: Message) -> Seen:
    from tests.behaviours.rows import Seen

    headers = [(header.key, header.kind, header.value) for header in message.headers]
    return Seen(message.partition, message.offset, message.payload, headers, message.key, message.state.word)
