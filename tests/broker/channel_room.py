"""Channels on a fresh broker, messages with headers to put in, and readers that answer: what channel tests share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lading.broker.broker import Broker
from lading.broker.channels import Channel, Channels, Delivery, Subscriber
from lading.broker.core.topology import Partition
from lading.dialects import registry
from lading.dialects.native.messages import BlockHeader, encode_block
from lading.model.batch import SCHEMA
from lading.model.scan_request import ScanRequest
from tests.broker.room import NOW, append_block

STRING = 2
TAG = "##client_dispatch_tag"

Headers = Sequence[tuple[str, bytes | None] | tuple[str, int, bytes | None]]


def channels_of(broker: Broker) -> Channels:
    """The channels of a broker."""
    return broker.channels


def put(
    broker: Broker,
    partition: Partition,
    *payloads: bytes,
    tags: Sequence[str | None] = (),
    headers: Sequence[Headers] = (),
    now_us: int = NOW,
) -> int:
    """Messages in one synced block, with a tag or headers each where given; the offset of the first."""
    rows: list[dict[str, object]] = []
    for at, payload in enumerate(payloads):
        listed: list[Any] = list(headers[at]) if at < len(headers) else []
        if at < len(tags) and tags[at] is not None:
            listed.append((TAG, str(tags[at]).encode()))
        triples = [(one[0], STRING, one[1]) if len(one) == 2 else one for one in listed]
        entries = [{"key": key, "kind": kind, "value": value} for key, kind, value in triples]
        rows.append({"offset": 0, "state": 1, "timestamp": None, "headers": entries, "payload": payload})
    schema = pa.schema([field.with_nullable(True) if field.name == "timestamp" else field for field in SCHEMA])
    block = encode_block(pa.RecordBatch.from_pylist(rows, schema=schema), BlockHeader(bytes(16), 0, 0, 0))
    return append_block(broker, partition, block, now_us).base_offset


class Reader:
    """A subscriber that keeps what it gets: (partition, offset, payload, attempt)."""

    def __init__(self, **options: Any) -> None:
        self.subscriber = Subscriber(self._take, self._closed, **options)
        self.got: list[tuple[int, int, bytes, int]] = []
        self.deliveries: list[Delivery] = []
        self.reason: str | None = None

    def _take(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        run = delivery.page.run
        found: dict[int, bytes] = {}
        for part in registry.dialect(run.dialect).decode(
            run,
            ScanRequest(
                first=int(delivery.offsets[0]),
                end=int(delivery.offsets[-1]) + 1,
                fields=frozenset({"offset", "payload"}),
            ),
        ):
            columns: Any = part.columns
            found.update(zip(columns["offset"].to_pylist(), columns["payload"].to_pylist(), strict=True))
        number = delivery.partition.number
        for offset, attempt in zip(delivery.offsets.tolist(), delivery.attempts.tolist(), strict=True):
            self.got.append((number, offset, found[offset], attempt))

    def _closed(self, reason: str) -> None:
        self.reason = reason

    def subscribe(self, channel: Channel, ready: int = 1, partition: int | None = None, **options: Any) -> Reader:
        """Subscribe and be ready for some."""
        self.channel = channel
        channel.subscribe(self.subscriber, partition, **options)
        self.subscriber.set_ready(ready)
        return self

    def payloads(self) -> list[bytes]:
        """What it got since the last call."""
        got, self.got = self.got, []
        return [payload for _, _, payload, _ in got]

    def finish(self, *offsets: int, partition: int = 0) -> int:
        """Finish messages; how many were taken."""
        return self.channel.finish(self.subscriber, partition, np.array(offsets, np.int64))

    def finish_all(self) -> None:
        """Finish what it got since the last call of ``payloads`` or this."""
        got, self.got = self.got, []
        for partition, offset, _, _ in got:
            assert self.finish(offset, partition=partition) == 1
