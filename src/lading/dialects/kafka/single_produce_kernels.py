"""Kernels that take single Produce requests together; ``single_produce_fallback.py`` says the same in plain Python.

In bounds: each kernel compares the sizes of its arrays, and each place that a table names with them, before it reads
or writes there. A request is read up to its end only, which lies within ``scratch``; no varint is read at or after it.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.big_endian import big16, big32, big64, put_big32, put_big64
from lading.kernels.crc32c import crc32c
from lading.kernels.lent_layout import (
    COUNT,
    END,
    FILE,
    HEARD_US,
    LINE,
    LINE_BYTES_MAX,
    OTHER_COLUMNS,
    ROW_COLUMNS,
    START,
    STATE,
    UNKNOWN,
)
from lading.kernels.memory import base, load8, memcpy
from lading.kernels.signature import (
    BYTES,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_LONGS,
    OUT_TABLE,
    TABLE,
    Data,
    int64,
    kernel,
    routine,
    several,
)

from .layout import (
    ATTRIBUTES_AT,
    BASE_TIME_AT,
    BATCH_HEADER_BYTES,
    COUNT_AT,
    CRC_AT,
    EPOCH_AT,
    FINE,
    FRAME_BYTES,
    LAST_DELTA_AT,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    MAX_TIME_AT,
    PRODUCER_AT,
    PRODUCER_EPOCH_AT,
    SEQUENCE_AT,
    TIME_MS_MAX,
)
from .single_produce_layout import (
    BATCH_AT,
    BATCH_BYTES,
    CORRELATION,
    CORRELATION_AT,
    CORRELATION_BYTES,
    FACT_COLUMNS,
    FLEXIBLE_FROM,
    HIGHEST_MS,
    KEY_BYTES,
    LOWEST_MS,
    NUMBER_BYTES,
    PARTITION,
    PRODUCER,
    PRODUCER_EPOCH,
    PRODUCER_EPOCH_MAX,
    RECORDS,
    SEQUENCE,
    SEQUENCE_MAX,
    SIZE_BYTES,
    TAGS_BYTES,
    VERSION_BYTE,
)
from .validation_kernels import judge_plain_records


@routine
def _begins_with(scratch: Bytes, at: int, end: int, lines: Bytes, line: int, size: int) -> bool:
    """Whether a request has this line, around its correlation id, and room for a partition and a size after it."""
    data, known = base(scratch), base(lines)
    if size <= KEY_BYTES or size > LINE_BYTES_MAX:
        return False
    if end - at < SIZE_BYTES + CORRELATION_BYTES + size + 2 * NUMBER_BYTES:
        return False
    if big32(data, at) != end - at - SIZE_BYTES:
        return False
    here = at + SIZE_BYTES
    for step in range(KEY_BYTES):
        if load8(data, here + step) != load8(known, line + step):
            return False
    here += CORRELATION_BYTES
    step = KEY_BYTES
    while step < size and load8(data, here + step) == load8(known, line + step):
        step += 1
    return step == size


@routine
def _find_batch(scratch: Bytes, at: int, end: int, is_flexible: bool) -> tuple[int, int]:
    """The place and size of the batch after the size at ``at``; a place of -1 if it is not all that follows."""
    data = base(scratch)
    if not is_flexible:
        return (at + NUMBER_BYTES, end - at - NUMBER_BYTES) if big32(data, at) == end - at - NUMBER_BYTES else (-1, 0)
    # at least NUMBER_BYTES follow, and a size of more than three bytes is more than is read of a socket at once
    size = int64(0)
    for step in range(3):
        byte = int64(load8(data, at + step))
        size |= (byte & 0x7F) << (7 * step)
        if byte < 0x80:
            batch = at + step + 1
            if size - 1 != end - TAGS_BYTES - batch:
                return -1, 0
            for place in range(end - TAGS_BYTES, end):
                if load8(data, place) != 0:
                    return -1, 0
            return batch, size - 1
    return -1, 0


@routine
def _has_sound_number(data: Data, at: int) -> bool:
    """Whether neither the epoch of a producer nor the number of its first record is below 0."""
    return big16(data, at + PRODUCER_EPOCH_AT) <= PRODUCER_EPOCH_MAX and big32(data, at + SEQUENCE_AT) <= SEQUENCE_MAX


@routine
def _judge_batch(scratch: Bytes, at: int, size: int) -> tuple[int, int, int]:
    """The records of a batch and their lowest and highest time, if nothing but offset and epoch is to be set; else 0.

    It is not compressed and of no transaction, and its header has the times of its records.
    """
    data, end = base(scratch), at + size
    if size < BATCH_HEADER_BYTES or load8(data, at + MAGIC_AT) != MAGIC:
        return 0, 0, 0
    count = big32(data, at + COUNT_AT)
    if (
        big32(data, at + LENGTH_AT) != size - FRAME_BYTES
        or big16(data, at + ATTRIBUTES_AT) != 0
        or count < 1
        or count > size
        or big32(data, at + LAST_DELTA_AT) != count - 1
        or (big64(data, at + PRODUCER_AT) >= 0 and not _has_sound_number(data, at))
        or int64(crc32c(data, at + ATTRIBUTES_AT, end)) != big32(data, at + CRC_AT)
    ):
        return 0, 0, 0
    reason, lowest, highest = judge_plain_records(
        data, at + BATCH_HEADER_BYTES, end, count, big64(data, at + BASE_TIME_AT)
    )
    if reason != FINE or highest >= TIME_MS_MAX or lowest <= -TIME_MS_MAX or big64(data, at + MAX_TIME_AT) != highest:
        return 0, 0, 0
    return count, lowest, highest


@kernel(
    several(4)(
        BYTES, LONG, OUT_LONGS, OUT_TABLE, LONG, OUT_TABLE, BYTES, LONGS, OUT_TABLE, OUT_TABLE, LONG
    )
)  # fmt: skip
def judge_requests(
    scratch: Bytes,
    read_count: int,
    files: Longs,
    spans: Table,
    rest: int,
    rows: Table,
    lines: Bytes,
    sizes: Longs,
    facts: Table,
    others: Table,
    now_us: int,
) -> tuple[int, int, int, int]:
    """See ``single_produce_fallback.judge_requests``."""
    if (
        read_count < 0
        or rest < 0
        or files.size < read_count
        or spans.shape[0] < read_count
        or spans.shape[1] != 2
        or rows.shape[1] != ROW_COLUMNS
        or lines.size < sizes.size * LINE_BYTES_MAX
        or facts.shape[0] < read_count
        or facts.shape[1] != FACT_COLUMNS
        or others.shape[0] < rest + read_count
        or others.shape[1] != OTHER_COLUMNS
    ):
        return 0, 0, 0, -1
    taken, size_bytes, one_kind = 0, int64(0), int64(1)
    for index in range(read_count):
        file, start, end = files[index], spans[index, 0], spans[index, 1]
        if file < 0 or file >= rows.shape[0] or start < 0 or end > scratch.size:
            continue
        line = rows[file, LINE]
        records, lowest, highest, at, batch, size = int64(0), int64(0), int64(0), int64(0), int64(-1), int64(0)
        if 0 <= line < sizes.size and _begins_with(scratch, start, end, lines, line * LINE_BYTES_MAX, sizes[line]):
            at = start + SIZE_BYTES + CORRELATION_BYTES + sizes[line]
            is_flexible = load8(base(lines), line * LINE_BYTES_MAX + VERSION_BYTE) >= FLEXIBLE_FROM
            batch, size = _find_batch(scratch, at + NUMBER_BYTES, end, is_flexible)
            if batch >= 0:
                records, lowest, highest = _judge_batch(scratch, batch, size)
        if records == 0:
            others[rest, FILE], others[rest, START], others[rest, END], others[rest, STATE] = file, start, end, UNKNOWN
            rest += 1
            continue
        partition = big32(base(scratch), at)
        if taken > 0 and (facts[0, PARTITION] != partition or rows[files[0], LINE] != line):
            one_kind = int64(0)
        rows[file, COUNT] += 1
        rows[file, HEARD_US] = now_us
        files[taken] = file
        spans[taken, 0], spans[taken, 1] = start, end
        facts[taken, PARTITION] = partition
        facts[taken, CORRELATION] = big32(base(scratch), start + SIZE_BYTES + KEY_BYTES)
        facts[taken, BATCH_AT], facts[taken, BATCH_BYTES] = batch, size
        facts[taken, RECORDS], facts[taken, LOWEST_MS], facts[taken, HIGHEST_MS] = records, lowest, highest
        producer = big64(base(scratch), batch + PRODUCER_AT)
        facts[taken, PRODUCER], facts[taken, PRODUCER_EPOCH], facts[taken, SEQUENCE] = -1, 0, 0
        if producer >= 0:
            facts[taken, PRODUCER] = producer
            facts[taken, PRODUCER_EPOCH] = big16(base(scratch), batch + PRODUCER_EPOCH_AT)
            facts[taken, SEQUENCE] = big32(base(scratch), batch + SEQUENCE_AT)
        size_bytes += end - start
        taken += 1
    return taken, rest, size_bytes, one_kind


@kernel(LONG(BYTES, TABLE, OUT_BYTES, LONG, LONG, LONG))
def store_batches(scratch: Bytes, facts: Table, target: Bytes, at: int, base_offset: int, epoch: int) -> int:
    """See ``single_produce_fallback.store_batches``."""
    if facts.shape[1] != FACT_COLUMNS or at < 0:
        return -1
    end = at
    for index in range(facts.shape[0]):
        place, size = facts[index, BATCH_AT], facts[index, BATCH_BYTES]
        if place < 0 or size < BATCH_HEADER_BYTES or size > scratch.size - place or size > target.size - end:
            return -1
        end += size
    data = base(target)
    for index in range(facts.shape[0]):
        size = facts[index, BATCH_BYTES]
        memcpy(target, at, scratch, facts[index, BATCH_AT], size)
        put_big64(data, at, base_offset)
        put_big32(data, at + EPOCH_AT, epoch)
        base_offset += facts[index, RECORDS]
        at += size
    return at


@kernel(LONG(BYTES, TABLE, LONG, LONG, OUT_BYTES))
def fill_responses(template: Bytes, facts: Table, offset_at: int, base_offset: int, responses: Bytes) -> int:
    """See ``single_produce_fallback.fill_responses``."""
    size = template.size
    if (
        facts.shape[1] != FACT_COLUMNS
        or responses.size != facts.shape[0] * size
        or size < CORRELATION_AT + CORRELATION_BYTES
        or offset_at > size - 8
    ):
        return -1
    data = base(responses)
    for index in range(facts.shape[0]):
        at = index * size
        memcpy(responses, at, template, 0, size)
        put_big32(data, at + CORRELATION_AT, facts[index, CORRELATION])
        if offset_at >= 0:
            put_big64(data, at + offset_at, base_offset)
            base_offset += facts[index, RECORDS]
    return len(facts)


@kernel(several(6)(TABLE))
def sum_up(facts: Table) -> tuple[int, int, int, int, int, int]:
    """See ``single_produce_fallback.sum_up``."""
    size, largest, records, lowest, highest = int64(0), int64(0), int64(0), TIME_MS_MAX, -TIME_MS_MAX
    producers = int64(0)
    if facts.shape[1] == FACT_COLUMNS:
        for index in range(facts.shape[0]):
            size += facts[index, BATCH_BYTES]
            largest = max(largest, facts[index, BATCH_BYTES])
            records += facts[index, RECORDS]
            lowest = min(lowest, facts[index, LOWEST_MS])
            highest = max(highest, facts[index, HIGHEST_MS])
            producers += facts[index, PRODUCER] >= 0
    return size, largest, records, lowest, highest, producers
