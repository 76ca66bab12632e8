"""Publishing: sent messages become stored ones in the open chunk, with offset and time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.core.append.append import ByNumber, WriteResult, choose_partition
from lading.broker.core.pending_append import Append
from lading.model.errors import MalformedMessage
from lading.model.names import DEFAULT_STREAM

from ..dialect.commands import PublishCommand
from ..dialect.messages import STORED, pack_stored, split_sent
from ..dialect.protocol import CODE


def create(broker: Broker, command: PublishCommand, now_us: int) -> None:
    """Create the topic of a command; Refusal if there is one."""
    broker.at_once.ensure_stream(DEFAULT_STREAM, now_us=now_us)
    broker.at_once.create_topic(DEFAULT_STREAM, None, command.topic, command.create, now_us=now_us)


def publish(broker: Broker, command: PublishCommand, sent: bytes, now_us: int) -> Append:
    """Append the sent messages; Refusal or MalformedMessage appends nothing."""
    bodies = split_sent(sent)
    if not bodies:
        raise MalformedMessage("a publish without messages")
    partition = choose_partition(broker.topology.resolve(command.topic), ByNumber(command.partition))
    time_us = partition.log.append_time_us(now_us)

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        stored = b"".join(pack_stored(base_offset + row, time_us + row, body) for row, body in enumerate(bodies))
        array[at : at + len(stored)] = np.frombuffer(stored, np.uint8)
        return WriteResult(len(stored), len(bodies), time_us, time_us + len(bodies) - 1)

    room_bytes = sum(map(len, bodies)) + STORED.size * len(bodies)
    return broker.appender.append(partition, CODE, 0, room_bytes, write)
