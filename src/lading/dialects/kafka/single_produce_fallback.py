"""Single Produce requests that are taken together, in plain Python: what kernels of the same names are held against."""

from __future__ import annotations

from typing import Final

import numpy as np

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.lent_layout import (
    COUNT,
    HEARD_US,
    LINE,
    LINE_BYTES_MAX,
    OTHER_COLUMNS,
    ROW_COLUMNS,
    UNKNOWN,
)

from . import layout, validation_fallback
from .layout import BATCH_HEADER, BATCH_HEADER_BYTES, EPOCH_AT, FRAME_BYTES, MAGIC, TIME_MS_MAX
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
    RECORDS,
    SIZE_BYTES,
    TAGS_BYTES,
    VERSION_BYTE,
)

_OFFSET_BYTES: Final = 8


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
    """Keep single Produce requests that begin with the line of their socket apart from all else that was read.

    ``files`` and ``spans`` have the sockets that were read and the places of their bytes in ``scratch``; ``rows``,
    ``others`` (of which ``rest`` are in use) and ``lines`` are as ``lent_layout`` has them. A request is taken if it is
    all that was read, and has one batch of format 2 for one partition, without compression and transaction, whose
    checksum, records, times and numbers are right. ``files`` and ``spans`` then have those at the front, ``facts`` a
    row for each, and their rows count them at ``now_us``. All else is added to ``others``.

    Returns how many are taken, how many others there are, the bytes of the requests, and 1 if all have the same line
    and partition, else 0; or 0, 0, 0 and -1 if an array has no room for all that may come.
    """
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
    taken, size_bytes, kinds = 0, 0, set()
    for index in range(read_count):
        file, (start, end) = int(files[index]), spans[index].tolist()
        if not 0 <= file < len(rows) or start < 0 or end > scratch.size:
            continue
        line = int(rows[file, LINE])
        known = lines[line * LINE_BYTES_MAX :][: sizes[line]].tobytes() if 0 <= line < sizes.size else b""
        found = _judge_request(scratch[start:end].tobytes(), known)
        if found is None:
            others[rest], rest = (file, start, end, UNKNOWN), rest + 1
            continue
        found[BATCH_AT] += start
        kinds.add((line, found[PARTITION]))
        rows[file, COUNT] += 1
        rows[file, HEARD_US] = now_us
        files[taken], spans[taken], facts[taken] = file, (start, end), found
        size_bytes += end - start
        taken += 1
    return taken, rest, size_bytes, int(len(kinds) <= 1)


def _judge_request(data: bytes, line: bytes) -> list[int] | None:
    """Return the facts of a request with this line, or None."""
    at = SIZE_BYTES + CORRELATION_BYTES + len(line)
    key_end = SIZE_BYTES + KEY_BYTES
    if not KEY_BYTES < len(line) <= LINE_BYTES_MAX or len(data) < at + 2 * NUMBER_BYTES:
        return None
    correlation_end = key_end + CORRELATION_BYTES
    if (
        int.from_bytes(data[:SIZE_BYTES], "big") != len(data) - SIZE_BYTES
        or data[SIZE_BYTES:key_end] + data[correlation_end:at] != line
    ):
        return None
    batch, end = at + 2 * NUMBER_BYTES, len(data)
    size = int.from_bytes(data[at + NUMBER_BYTES : batch], "big")
    if line[VERSION_BYTE] >= FLEXIBLE_FROM:
        end -= TAGS_BYTES
        batch, size = at + NUMBER_BYTES, -1
        for step in range(3):
            size += (data[batch] & 0x7F) << (7 * step)
            batch += 1
            if data[batch - 1] < 0x80:
                break
        else:
            return None
        if any(data[end:]):
            return None
    if batch + size != end:
        return None
    found = _judge_batch(data[batch:end])
    if found is None:
        return None
    partition = int.from_bytes(data[at : at + NUMBER_BYTES], "big")
    correlation = int.from_bytes(data[key_end:correlation_end], "big")
    return [partition, correlation, batch, size, *found]


def _judge_batch(batch: bytes) -> tuple[int, ...] | None:
    if len(batch) < BATCH_HEADER_BYTES:
        return None
    fields = BATCH_HEADER.unpack_from(batch)
    length, magic, attributes, last_delta, max_ms, count = (fields[n] for n in (1, 3, 5, 6, 8, 12))
    producer_id, epoch, sequence = fields[9:12]
    if (
        magic != MAGIC
        or length != len(batch) - FRAME_BYTES
        or attributes
        or not 1 <= count <= len(batch)
        or last_delta != count - 1
        or (producer_id >= 0 and (epoch < 0 or sequence < 0))
    ):
        return None
    reason, lowest, highest = validation_fallback.judge(np.frombuffer(batch, np.uint8), 0, len(batch))
    is_fine = reason == layout.FINE and lowest > -TIME_MS_MAX and highest < TIME_MS_MAX and highest == max_ms
    numbers = (producer_id, epoch, sequence) if producer_id >= 0 else (-1, 0, 0)
    return (count, lowest, highest, *numbers) if is_fine else None


def store_batches(scratch: Bytes, facts: Table, target: Bytes, at: int, base_offset: int, epoch: int) -> int:
    """Copy the batches of requests to ``target[at:]``, with offsets from ``base_offset`` on, and return their end.

    If an array has no room for one of them, nothing is written, and -1 is returned.
    """
    if facts.shape[1] != FACT_COLUMNS or at < 0:
        return -1
    end = at
    for row in facts.tolist():
        place, size = row[BATCH_AT], row[BATCH_BYTES]
        if place < 0 or size < BATCH_HEADER_BYTES or size > scratch.size - place or size > target.size - end:
            return -1
        end += size
    for row in facts.tolist():
        place, size = row[BATCH_AT], row[BATCH_BYTES]
        batch = bytearray(scratch[place : place + size].tobytes())
        batch[:_OFFSET_BYTES] = base_offset.to_bytes(_OFFSET_BYTES, "big", signed=True)
        batch[EPOCH_AT : EPOCH_AT + NUMBER_BYTES] = epoch.to_bytes(NUMBER_BYTES, "big", signed=True)
        target[at : at + size] = list(batch)
        base_offset += row[RECORDS]
        at += size
    return at


def fill_responses(template: Bytes, facts: Table, offset_at: int, base_offset: int, responses: Bytes) -> int:
    """Write a response for each request: ``template`` with its correlation id and its offset, from ``base_offset`` on.

    The offset is at ``offset_at`` of a response, or not written if that is -1. Returns how many there are, or -1,
    with nothing written, if ``responses`` has not exactly room for them.
    """
    size = template.size
    if (
        facts.shape[1] != FACT_COLUMNS
        or responses.size != facts.shape[0] * size
        or size < CORRELATION_AT + CORRELATION_BYTES
        or offset_at > size - _OFFSET_BYTES
    ):
        return -1
    for index, row in enumerate(facts.tolist()):
        response = bytearray(template.tobytes())
        response[CORRELATION_AT : CORRELATION_AT + CORRELATION_BYTES] = row[CORRELATION].to_bytes(4, "big")
        if offset_at >= 0:
            response[offset_at : offset_at + _OFFSET_BYTES] = base_offset.to_bytes(_OFFSET_BYTES, "big", signed=True)
            base_offset += row[RECORDS]
        responses[index * size : (index + 1) * size] = list(response)
    return len(facts)


def sum_up(facts: Table) -> tuple[int, int, int, int, int, int]:
    """Return the bytes of all batches, the size of the largest, their records, and the lowest and highest time.

    The last number is that of batches whose producer has an id.
    """
    size, largest, records, lowest, highest, producers = 0, 0, 0, TIME_MS_MAX, -TIME_MS_MAX, 0
    if facts.shape[1] == FACT_COLUMNS:
        for row in facts.tolist():
            size += row[BATCH_BYTES]
            largest = max(largest, row[BATCH_BYTES])
            records += row[RECORDS]
            lowest, highest = min(lowest, row[LOWEST_MS]), max(highest, row[HIGHEST_MS])
            producers += row[PRODUCER] >= 0
    return size, largest, records, lowest, highest, producers
