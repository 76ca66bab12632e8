"""Batches whose head says who numbered them (protocol 0.12): taken as they are, shown to nobody, found again."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lading.dialects import registry
from lading.dialects.codes import IGGY_CURRENT
from lading.dialects.iggy.classic.errors import NAMES
from lading.dialects.iggy.current import messages, send_fallback, stored_fallback
from lading.dialects.iggy.current.dialect import DIALECT
from lading.dialects.sequenced import SequencedBatch
from lading.kernels import engine
from lading.model.run import Run
from tests.dialects.iggy_current import batch, frame, parse_batches
from tests.dialects.test_iggy_current import TIME_US, modules, stamp

PRODUCER = (7 << 20 | 3, 2, 40)
WRITER = b"iggy" + struct.pack(">Q", PRODUCER[0])
NUMBERED = 1


def run_of(data: bytes, count: int, *, base: int = 0, flags: int = NUMBERED) -> Run:
    chunks = np.array([[0, len(data), base, count, base + count - 1, TIME_US, TIME_US, flags]], np.int64)
    return Run(IGGY_CURRENT, np.frombuffer(data, np.uint8), chunks)


def with_section(present: int, ident: int, epoch: int, sequence: int, zeros: bytes = bytes(5)) -> bytes:
    made = bytearray(batch([frame(b"a")], producer=PRODUCER))
    struct.pack_into("<B3sQH2sI", made, 52, present, zeros[:3], ident, epoch, zeros[3:], sequence)
    return bytes(made)


def test_a_numbered_batch_is_stored_as_it_is() -> None:
    sent = batch([frame(b"a"), frame(b"b", delta=1)], origin_us=9, producer=PRODUCER)
    stored = batch(
        [frame(b"a"), frame(b"b", delta=1)], base=41, time_us=TIME_US, origin_us=9, partition=2, producer=PRODUCER
    )
    source = np.frombuffer(sent, np.uint8)
    for module in modules(messages.SEND_KERNEL_MODULE, send_fallback):
        target = np.zeros(len(sent), np.uint8)
        assert module.stamp(source, 0, len(sent), target, 0, 2, 41, TIME_US) == (0, 2, len(sent))
        assert target.tobytes() == stored


@pytest.mark.parametrize(
    "data",
    [
        with_section(2, *PRODUCER),
        with_section(0, *PRODUCER),
        with_section(0, 0, 0, 1),
        with_section(1, 1 << 63, 0, 0),
        with_section(1, 1, 1 << 15, 0),
        with_section(1, 1, 0, 1 << 31),
        with_section(1, *PRODUCER, zeros=b"\0\0\1\0\0"),
        with_section(1, *PRODUCER, zeros=b"\0\0\0\0\1"),
    ],
)
def test_a_producer_that_there_cannot_be_is_refused(data: bytes) -> None:
    source, target = np.frombuffer(data, np.uint8), np.zeros(len(data), np.uint8)
    for module in modules(messages.SEND_KERNEL_MODULE, send_fallback):
        code, count, size = module.stamp(source, 0, len(data), target, 0, 0, 0, TIME_US)
        assert (NAMES[code], count, size) == ("invalid_format", 0, 0)
        assert not target.any()


@pytest.mark.parametrize("change", [(PRODUCER[0] + 1, *PRODUCER[1:]), (PRODUCER[0], 3, 40), (PRODUCER[0], 2, 41)])
def test_the_checksum_covers_the_producer(change: tuple[int, int, int]) -> None:
    assert NAMES[stamp(with_section(1, *change))[0]] == "invalid_batch_checksum"
    assert stamp(with_section(1, *PRODUCER))[0] == 0


def test_readers_get_heads_that_every_release_reads() -> None:
    """Whole or cut, alone or among others: ``parse_batches`` refuses what protocol 0.11 has no field for."""
    bodies = [
        batch([frame(b"%d" % one, delta=one - base) for one in range(base, base + 4)], base=base, producer=producer)
        for base, producer in ((0, PRODUCER), (4, None), (8, (5, 0, 0)))
    ]
    run = run_of(b"".join(bodies), 12)
    for module in modules(messages.STORED_KERNEL_MODULE, stored_fallback):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "get_loaded", lambda home, module=module: module)
            for first in range(13):
                for end in range(first, 13):
                    cut = messages.slice_batches(run, first, end)
                    polled = b"".join(map(bytes, cut.parts))
                    assert [one.payload for one in parse_batches(polled)] == [b"%d" % one for one in range(first, end)]
                    assert cut.messages_count == end - first


def test_columns_of_numbered_batches_are_those_of_others() -> None:
    frames = [frame(b"a", [(2, b"k", 1, b"v")], id_=5), frame(b"b", delta=1)]
    numbered, plain = (
        [registry.to_batch(one) for one in registry.decode(run_of(batch(frames, producer=producer), 2))]
        for producer in (PRODUCER, None)
    )
    assert numbered == plain


def test_what_a_producer_wrote_is_found_again() -> None:
    data = batch([frame(b"a"), frame(b"b", delta=1)], base=10, producer=PRODUCER)
    data += batch([frame(b"c")], base=12) + batch([frame(b"d")], base=13, producer=(1, 0, 0))
    first = SequencedBatch(WRITER, 2, 40, 2, 10, 12)
    second = SequencedBatch(b"iggy" + struct.pack(">Q", 1), 0, 0, 1, 13, 14)
    assert list(DIALECT.iter_batches(run_of(data, 4, base=10), 0)) == [first, second]
    assert list(DIALECT.iter_batches(run_of(data, 4, base=10), 11)) == [first, second]
    assert list(DIALECT.iter_batches(run_of(data, 4, base=10), 12)) == [second]
    assert list(DIALECT.iter_batches(run_of(data, 4, base=10, flags=0), 0)) == []


def test_a_whole_numbered_batch_of_a_damaged_chunk_stays_numbered() -> None:
    """Who sends it again is answered as if nothing were damaged; of one that is not whole messages are kept alone."""
    frames = [frame(b"%d" % one, delta=one) for one in range(2)]
    data = bytearray(batch(frames, base=20, producer=PRODUCER) + batch(frames, base=22, producer=(1, 0, 0)))
    data[-1] ^= 1
    found = messages.salvage(run_of(bytes(data), 4, base=20))
    rows = [registry.to_batch(part) for part in registry.decode(found)]
    assert [one for part in rows for one in part.column("offset").to_pylist()] == [20, 21, 22]
    assert list(DIALECT.iter_batches(found, 0)) == [SequencedBatch(WRITER, 2, 40, 2, 20, 22)]
