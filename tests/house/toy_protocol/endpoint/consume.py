"""Reading: stored messages of the toy as they lie, those of other protocols with carriers for what it cannot show."""

from __future__ import annotations

from typing import Any

from lading.broker.broker import Broker
from lading.broker.core.append.append import ByNumber, choose_partition
from lading.broker.core.read import read
from lading.dialects import registry
from lading.endpoints.base.carrying import Carrying
from lading.model.scan_request import ScanRequest

from ..dialect import limits
from ..dialect.commands import ReadCommand
from ..dialect.messages import encode_stored
from ..dialect.protocol import CODE, READER


def answer_read(broker: Broker, carrying: Carrying, command: ReadCommand) -> tuple[dict[str, Any], bytes]:
    """Return the facts of the answer, and the messages; Refusal if there is no such partition."""
    topic = broker.topology.resolve(command.topic)
    partition = choose_partition(topic, ByNumber(command.partition))
    facts = {
        "partitions": len(topic.partitions),
        "first_offset": partition.log.first_offset,
        "end_offset": partition.log.last_stable_offset,
        "next_offset": command.offset,
    }
    if not command.count:
        return facts, b""
    found = read(
        partition,
        command.offset,
        reader=READER,
        max_messages=command.count,
        max_bytes=limits.READ_BYTES_MAX,
        counters=broker.counters,
    )
    fit = carrying.fit(topic)
    parts = []
    for run, first, end in found.pieces:
        own = run.dialect == CODE
        for decoded in registry.decode(run, ScanRequest(first, end, carrier=not own)):
            batch = registry.to_batch(decoded)
            parts.append(encode_stored(batch if own else fit(batch).batch))
    return {**facts, "next_offset": found.end_offset}, b"".join(parts)
