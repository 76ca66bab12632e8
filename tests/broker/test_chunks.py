"""Raw chunks: as they lie, cut at the stable end, damaged ones rebuilt from what is intact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lading.broker.broker import Broker
from lading.broker.core.chunks import Chunks, read_chunks
from lading.broker.core.topology import Partition
from lading.chunk.runs import runs
from lading.dialects import registry
from lading.model.scan_request import ScanRequest
from lading.model.state import State
from tests.broker.room import NOW, append_block, block, fill, opened, topic_of
from tests.broker.test_damage import flipped, place_of, written


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


def chunks(broker: Broker, partition: Partition, offset: int = 0, max_bytes: int = 1 << 30) -> Chunks:
    return read_chunks(partition, offset, max_bytes=max_bytes, counters=broker.counters)


def offsets(found: Chunks) -> list[int | None]:
    """The offsets a reader decodes, checksums of the chunks verified."""
    region = np.frombuffer(found.data, np.uint8)
    return [
        offset
        for run in runs(region)
        for part in registry.dialect(run.dialect).decode(run, ScanRequest(fields=frozenset({"offset"})))
        for offset in part.columns["offset"].to_pylist()
    ]


def test_chunks_are_whole_and_the_position_goes_on(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    for _ in range(3):
        fill(broker, partition, 4)
    every = chunks(broker, partition)
    assert (offsets(every), every.base_offset, every.end_offset, every.count) == (list(range(12)), 0, 12, 12)
    part = chunks(broker, partition, 5, max_bytes=1)
    assert (offsets(part), part.base_offset, part.end_offset) == ([4, 5, 6, 7], 4, 8)
    assert (chunks(broker, partition, 12).data, chunks(broker, partition, 12).end_offset) == (b"", 12)


def test_they_end_before_an_open_transaction(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 2)
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"in", transaction=one))
    fill(broker, partition, 2)
    assert (offsets(chunks(broker, partition)), chunks(broker, partition).end_offset) == ([0, 1], 2)
    broker.native_transactions.abort([one], now_us=NOW)
    broker.states.set(partition, [(4, 5)], State.POISONED, now_us=NOW)
    every = chunks(broker, partition)
    # aborted and hidden messages are in the bytes and in the lists: the reader decides
    assert (offsets(every), list(every.aborted), list(every.hidden)) == ([0, 1, 2, 3, 4], [(2, 3)], [(4, 5, 20)])


def test_a_damaged_chunk_goes_out_without_what_is_damaged(tmp_path: Path) -> None:
    written(tmp_path).stop()
    broker, partition = flipped(tmp_path, place_of(tmp_path, b"2-1" * 20) + 7)
    found: list[int | None] = []
    at = 0
    while (part := chunks(broker, partition, at)).data:
        found += offsets(part)
        at = part.end_offset
    assert found == [offset for offset in range(20) if offset != 9]
    assert at == 20
    broker.stop()
