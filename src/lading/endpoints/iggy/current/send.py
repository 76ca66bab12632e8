"""Sends of the current Iggy: a request's batch goes into the log's open chunk unchanged, except for its head."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ....broker.core.access.rights import Right
from ....broker.core.append.append import Balanced, ByHash, ByNumber, PartitionChoice, WriteResult, choose_partition
from ....broker.core.pending_append import Append
from ....broker.iggy.producers import ProducerBatch
from ....dialects.codes import IGGY_CURRENT
from ....dialects.iggy.classic.errors import RESOURCE_NOT_FOUND, StatusError
from ....dialects.iggy.classic.primitives import PARTITIONING, PartitioningKind
from ....dialects.iggy.current import messages
from ....dialects.iggy.current.codecs import IDENTIFIER_FROM_ZERO, to_wire
from ....dialects.iggy.current.layout import PRODUCER, PRODUCER_END
from ....dialects.iggy.current.partitioning import choose_by_key
from ....dialects.iggy.current.producers import BatchProducer, read_producer
from ....dialects.iggy.current.responses import place_block
from ....model.errors import MalformedMessage, Reason, Refusal
from ...base.route_cache import RouteCache
from ...base.services import Services
from ..send import Require, allow_all

if TYPE_CHECKING:
    from ....broker.core.topology import Partition, Topic

PRODUCER_PARTITION_REQUIRED: Final = 95
"""Response to a numbered batch that names no partition."""

_MISSING: Final = frozenset({
    Reason.STREAM_ID_NOT_FOUND, Reason.STREAM_NAME_NOT_FOUND, Reason.TOPIC_ID_NOT_FOUND, Reason.TOPIC_NAME_NOT_FOUND,
    Reason.PARTITION_NOT_FOUND, Reason.NO_PARTITIONS,
})  # fmt: skip
_U32 = struct.Struct("<I")
_COUNT_BYTES: Final = 4

Route = tuple["Topic", PartitionChoice]


class CurrentSender:
    """Handles send requests; one for all connections of an endpoint."""

    def __init__(self, services: Services, name: str, require: Require = allow_all) -> None:
        self._require = require
        self._broker = services.broker
        self._routes: RouteCache[bytes, Route] = RouteCache(services.broker.topology)
        self._labels = (name,)
        self._messages_in = services.metrics.messages_in.values

    def send(
        self, body: memoryview, source: NDArray[np.uint8], start: int, who: object, now_us: int
    ) -> tuple[Append, Partition]:
        """Append the batch of the request ``body``, at ``source[start:]``. ``who`` is as in ``Appender.append``.

        If it raises Refusal or MalformedMessage, nothing is appended.
        """
        size_bytes = len(body)
        if size_bytes < _U32.size:
            raise MalformedMessage("the request ends inside its head", at=0)
        (metadata_bytes,) = _U32.unpack_from(body)
        batch_at = _U32.size + metadata_bytes
        if metadata_bytes < _COUNT_BYTES or batch_at > size_bytes:
            raise MalformedMessage("the request ends inside its head", at=0)
        head = bytes(body[_U32.size : batch_at - _COUNT_BYTES])
        (count,) = _U32.unpack_from(body, batch_at - _COUNT_BYTES)
        try:
            topic, choice = self._routes.get(head) or self._find_route(head)
            partition = choose_partition(topic, choice)
        except Refusal as refusal:
            if refusal.reason in _MISSING:
                raise StatusError(RESOURCE_NOT_FOUND, str(refusal)) from None
            raise
        producer = None
        if size_bytes >= batch_at + PRODUCER_END and body[batch_at + PRODUCER]:
            producer = read_producer(body[batch_at:])
            if not isinstance(choice, ByNumber):
                raise StatusError(PRODUCER_PARTITION_REQUIRED, "a producer counts by partition; the send names none")
        place = source, start + batch_at, start + size_bytes
        append = self._append(partition, count, producer, place, now_us, who)
        return append, partition

    def _append(
        self,
        partition: Partition,
        wanted: int,
        producer: BatchProducer | None,
        place: tuple[NDArray[np.uint8], int, int],
        now_us: int,
        who: object,
    ) -> Append:
        time_us = partition.log.append_time_us(now_us)
        source, start, end = place

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
            code, count, size_bytes = messages.stamp(
                source, start, end, array, at, partition.number, base_offset, time_us
            )
            if code:
                raise StatusError(code, "the batch is refused")
            if count != wanted:
                raise MalformedMessage(f"the request names {wanted} messages and its batch has {count}")
            return WriteResult(size_bytes, count, time_us, time_us)

        if producer is None:
            append = self._broker.appender.append(partition, IGGY_CURRENT, 0, end - start, write, who)
        else:
            batch = ProducerBatch(producer, wanted)
            append = self._broker.iggy_producers.append(partition, batch, end - start, write, who)
        if not append.duplicate:
            self._messages_in[self._labels] += append.count
        return append

    def _find_route(self, head: bytes) -> Route:
        """Return topic and partition choice of a head that was not met before. Raises Refusal if the topic does not
        exist.
        """
        data = memoryview(head)
        stream, at = IDENTIFIER_FROM_ZERO.read(data, 0)
        topic, at = IDENTIFIER_FROM_ZERO.read(data, at)
        partitioning, at = PARTITIONING.read(data, at)
        if at != len(data):
            raise MalformedMessage(f"{len(data) - at} bytes are left after the address of the messages", at=at)
        self._require(stream, topic, Right.WRITE)
        found = self._broker.topology.topic(stream, topic)
        route = found, _CHOICES[partitioning.kind](partitioning.value)
        self._routes.add(head, route)
        return route


def encode_place(partition: Partition, base_offset: int) -> bytes:
    """Encode the body with the partition and first offset of a client's messages."""
    topic = partition.topic
    return place_block(to_wire(topic.stream.id), to_wire(topic.id), partition.number, base_offset)


_CHOICES: Final[dict[PartitioningKind, Callable[[bytes], PartitionChoice]]] = {
    PartitioningKind.BALANCED: lambda value: Balanced(),
    PartitioningKind.PARTITION_ID: lambda value: ByNumber(int.from_bytes(value, "little")),
    PartitioningKind.MESSAGES_KEY: lambda value: ByHash(partial(choose_by_key, value)),
}
