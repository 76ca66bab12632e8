"""What a gateway has in memory of a partition: stretches, in bounds, and ends that the cluster reports."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lading.chunk.runs import runs
from lading.kafka_log.loader import to_stretch
from lading.kafka_log.log import CachedStretch, ClusterLog, Loaded, StretchCache
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, COUNT, LAST_OFFSET
from lading.model.errors import NotLoaded, Refusal
from lading.model.run import Run

BODY_BYTES = 10
ENVELOPE_BYTES = 48


class NotedLoads:
    """A loader that notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def load(self, log: ClusterLog, offset: int, max_bytes: int) -> Callable[[Loaded], None]:
        self.asked.append(("load", offset))
        return lambda callback: None

    def find_time(self, log: ClusterLog, timestamp_us: int) -> Callable[[Loaded], None]:
        self.asked.append(("time", timestamp_us))
        return lambda callback: None


def make_run(*batches: tuple[int, int]) -> Run:
    """Batches of (first offset, messages), one after the other in memory."""
    table = np.zeros((len(batches), 8), np.int64)
    for row, (base, count) in enumerate(batches):
        table[row, BODY_START], table[row, BODY_END] = row * BODY_BYTES, (row + 1) * BODY_BYTES
        table[row, BASE_OFFSET], table[row, COUNT], table[row, LAST_OFFSET] = base, count, base + count - 1
    return Run(2, np.arange(len(batches) * BODY_BYTES, dtype=np.uint8), table)


def make_log(end_offset: int, bytes_max: int = 1 << 20) -> tuple[ClusterLog, NotedLoads]:
    log, loads = ClusterLog(("topic", 0), bytes(16), 0, end_offset), NotedLoads()
    log.attach(loads, StretchCache(bytes_max))
    return log, loads


def test_batches_of_a_fetch_become_chunks_that_cover_every_offset() -> None:
    # 3 to 5 were removed by compaction, 9 is a control record
    stretch = to_stretch(make_run((0, 3), (6, 3)), 0, 10)
    (run,) = runs(stretch.region)
    assert run.chunks[:, [BASE_OFFSET, LAST_OFFSET, COUNT]].tolist() == [[0, 2, 3], [6, 9, 3]]
    assert (stretch.base_offset, stretch.end_offset) == (0, 10)
    body = int(run.chunks[1, BODY_START])
    assert stretch.region[body : body + BODY_BYTES].tolist() == list(range(10, 20))


def test_a_read_gives_chunks_up_to_its_bytes_and_the_next_one_goes_on() -> None:
    log, loads = make_log(9)
    log.add(to_stretch(make_run((0, 3), (3, 3), (6, 3)), 0, 9))
    span = log.read(4, 1)
    assert span is not None and (span.base_offset, span.end_offset) == (3, 6)
    assert span.end - span.start == ENVELOPE_BYTES + BODY_BYTES
    span = log.read(0, 2 * (ENVELOPE_BYTES + BODY_BYTES))
    assert span is not None and (span.base_offset, span.end_offset) == (0, 6)
    assert log.read(9, 100) is None and loads.asked == []


def test_what_is_not_in_memory_is_loaded() -> None:
    log, loads = make_log(20)
    log.add(to_stretch(make_run((5, 5)), 5, 10))
    for offset in (0, 10):
        with pytest.raises(NotLoaded):
            log.read(offset, 100)
    assert loads.asked == [("load", 0), ("load", 10)]
    log.first_offset = 5
    assert log.read(0, 100) is not None


def test_memory_is_bounded_and_what_was_read_last_stays() -> None:
    one_bytes = ENVELOPE_BYTES + BODY_BYTES
    log, _ = make_log(30, bytes_max=2 * one_bytes)
    rested: list[int] = []
    log.on_rest = lambda: rested.append(1)
    for base in (0, 10):
        log.add(to_stretch(make_run((base, 10)), base, base + 10))
    assert log.read(0, 1) is not None
    log.add(to_stretch(make_run((20, 10)), 20, 30))
    assert log.read(0, 1) is not None and log.read(20, 1) is not None
    with pytest.raises(NotLoaded):
        log.read(10, 1)
    # readers let go of what is dropped
    assert rested


def test_readers_are_called_back_once_for_each_end() -> None:
    log, _ = make_log(3)
    called: list[int] = []
    log.on_synced = lambda: called.append(log.high_watermark)
    for end in (3, 5, 4, 5, 6):
        log.advance(end)
    assert called == [5, 6] and log.next_offset == log.last_stable_offset == 6


def test_offsets_without_a_message_at_the_end_are_shown_with_the_next_message() -> None:
    log, _ = make_log(5)
    # 4 is a control record
    log.withhold(0, 4)
    assert log.high_watermark == 4
    log.advance(5)
    assert log.high_watermark == 4
    log.advance(6)
    assert log.high_watermark == 6


def test_a_log_that_was_cut_back_forgets_what_was_read() -> None:
    log, _ = make_log(10)
    log.add(to_stretch(make_run((0, 10)), 0, 10))
    log.cut_back(6)
    assert log.high_watermark == 6
    with pytest.raises(NotLoaded):
        log.read(0, 1)
    log.advance(8)
    assert log.high_watermark == 8


def test_an_offset_by_time_is_asked_for_once() -> None:
    log, loads = make_log(10)
    with pytest.raises(NotLoaded):
        log.offset_at(77)
    log.add_time(77, 4)
    assert log.offset_at(77) == 4
    log.add_time(99, 10)
    assert log.offset_at(99) == 10
    # there is more now, and it may be of that time
    log.advance(11)
    with pytest.raises(NotLoaded):
        log.offset_at(99)
    assert loads.asked == [("time", 77), ("time", 99)]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda log: log.set_state(0, 1, 2, 0), "dead letters"),
        (lambda log: log.truncate_before(3), "retention.ms"),
        (lambda log: log.reserve(1, 0, 10), "cluster"),
    ],
)
def test_what_it_does_not_do_is_refused(call: Callable[[ClusterLog], None], word: str) -> None:
    log, _ = make_log(10)
    with pytest.raises(Refusal, match=word):
        call(log)


def test_a_stretch_replaces_what_it_overlaps() -> None:
    log, _ = make_log(30)
    log.add(to_stretch(make_run((10, 5)), 10, 15))
    log.add(to_stretch(make_run((0, 20)), 0, 20))
    span = log.read(12, 1)
    assert span is not None and (span.base_offset, span.end_offset) == (0, 20)
    assert isinstance(log._stretches[0], CachedStretch) and list(log._stretches) == [0]
