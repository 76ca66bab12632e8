"""A broker on a fresh directory, and messages to put in: what the tests of this room share."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.core.append.append import WriteResult
from lading.broker.core.pending_append import Append
from lading.broker.core.read import ReadResult
from lading.broker.core.read import read as read_partition
from lading.broker.core.settings import BrokerSettings
from lading.broker.core.topology import Partition, Topic
from lading.broker.iggy.consumer import ConsumerRef, IggyConsumerKind
from lading.dialects import codes, registry
from lading.dialects.iggy.classic import messages
from lading.dialects.iggy.classic import protocol as iggy_row
from lading.dialects.native.messages import BlockHeader, encode_block
from lading.log.disk import Disk
from lading.log.group_commit import SyncNow
from lading.model.batch import SCHEMA
from lading.model.protocol import VisibilityRule
from lading.model.scan_request import ScanRequest

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
CONSUMER = ConsumerRef(IggyConsumerKind.CONSUMER, 1)
GROUP = ConsumerRef(IggyConsumerKind.GROUP, 1)
RANDOM = messages.random_state()
FULL = os.environ.get("LADING_TEST_FULL") == "1"
"""For stateful tests, which take no fixture: whole suites instead of the same sample each time."""


def opened(path: Path, *, disk: Disk | None = None, **settings: Any) -> Broker:
    """A broker that syncs in place, at ``flush``."""
    return Broker.open(path, BrokerSettings(**settings), now_us=NOW, disk=disk, commit=SyncNow())


def topic_of(broker: Broker, partitions: int = 1, name: str = "t", stream: str = "s") -> Topic:
    """A topic in a stream that is made where it is missing."""
    if all(one.name != stream for one in broker.topology.streams()):
        broker.at_once.create_stream(None, stream, now_us=NOW)
    return broker.at_once.create_topic(stream, None, name, partitions, now_us=NOW)


def enforce_retention(broker: Broker, now_us: int) -> int:
    """Have retention look at all partitions, which are few enough for one turn; how many offsets went."""
    before = broker.counters.retention_deleted_offsets
    broker.retention.begin_round(now_us)
    assert not broker.retention.round.is_under_way
    return broker.counters.retention_deleted_offsets - before


def sent(payloads: Sequence[bytes]) -> NDArray[np.uint8]:
    """Iggy messages without id and headers, as a client sends them (iggy.md A4)."""
    return np.frombuffer(b"".join(bytes(20) + struct.pack("<I", len(one)) + one for one in payloads), np.uint8)


def append(broker: Broker, partition: Partition, *payloads: bytes, now_us: int = NOW, source: object = None) -> Append:
    """Append Iggy messages; nothing is flushed."""
    data = sent(payloads)

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        code, count, size = messages.restamp(data, 0, len(data), array, at, base_offset, now_us, RANDOM)
        assert code == 0
        return WriteResult(size, count, now_us, now_us + count - 1)

    return broker.appender.append(partition, codes.IGGY_CLASSIC, 0, messages.room(len(data)), write, source)


def fill(broker: Broker, partition: Partition, count: int, *, now_us: int = NOW, prefix: str = "") -> None:
    """``count`` messages in one chunk, payloads ``0``, ``1``, …, synced."""
    append(broker, partition, *(f"{prefix}{number}".encode() for number in range(count)), now_us=now_us)
    broker.appender.flush()


def batch(*payloads: bytes, timestamp_us: int | None = None) -> pa.RecordBatch:
    """A Batch without headers."""
    rows: list[dict[str, object]] = [
        {"offset": 0, "state": 1, "timestamp": timestamp_us, "headers": [], "payload": payload} for payload in payloads
    ]
    schema = pa.schema([field.with_nullable(True) if field.name == "timestamp" else field for field in SCHEMA])
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def block(
    *payloads: bytes,
    writer: bytes = bytes(16),
    epoch: int = 0,
    sequence: int = 0,
    transaction: int = 0,
    timestamp_us: int | None = None,
) -> bytes:
    """One native block."""
    return encode_block(batch(*payloads, timestamp_us=timestamp_us), BlockHeader(writer, epoch, sequence, transaction))


def append_block(broker: Broker, partition: Partition, data: bytes, now_us: int = NOW) -> Append:
    """Append blocks and sync."""
    done = broker.native_appender.append(partition, memoryview(data), now_us=now_us)
    broker.appender.flush()
    return done


def read(
    broker: Broker, partition: Partition, offset: int = 0, reader: VisibilityRule = iggy_row.SHOWING, **bounds: int
) -> ReadResult:
    """All there is to see, unless bounded."""
    asked = {"max_messages": 1 << 30, "max_bytes": 1 << 30} | bounds
    return read_partition(partition, offset, reader=reader, counters=broker.counters, **asked)


def payloads(reading: ReadResult | None) -> list[bytes]:
    """The payloads of a reading, decoded piece by piece."""
    return [row[1] for row in rows(reading)]


def rows(reading: ReadResult | None) -> list[tuple[int, bytes]]:
    """(offset, payload) of a reading."""
    found: list[tuple[int, bytes]] = []
    for run, first, end in reading.pieces if reading is not None else ():
        dialect = registry.dialect(run.dialect)
        for part in dialect.decode(run, ScanRequest(first=first, end=end, fields=frozenset({"offset", "payload"}))):
            columns: Any = [part.columns[name].to_pylist() for name in ("offset", "payload")]
            found += zip(*columns, strict=True)
    return found
