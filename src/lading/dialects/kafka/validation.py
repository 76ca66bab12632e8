"""Whether a broker accepts a producer's batch, and the fields that it sets in it (kafka.md 2.1 and 2.3).

Refused, with the code that a real broker sends: anything but exactly one whole batch of format 2, control batches,
inconsistent counts and offsets, a wrong CRC-32C, an unknown codec, and records that do not match their lengths, also
inside compression. So every stored batch can be read.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from lading.kernels import engine
from lading.kernels.arrays import Bytes
from lading.kernels.varint_fallback import add_wrapping, varint32, varint64
from lading.model.errors import MalformedMessage, Reason, Refusal

from . import compression, layout, validation_fallback
from .compression import NAMES, NONE, ZSTD, decompressing
from .errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION,
)
from .layout import (
    ATTRIBUTES_AT,
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CODEC_BITS,
    CONTROL,
    CRC_AT,
    FRAME_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAX_TIME_AT,
    TIME_MS_MAX,
    TRANSACTIONAL,
)
from .limits import PLAIN_BYTES_MAX

KERNEL_MODULE: Final = "lading.dialects.kafka.validation_kernels"
ZSTD_VERSION: Final = 7
"""The first version of Produce that may contain zstd."""
_EPOCH_AT: Final = 12
_OFFSET, _EPOCH, _TIME = struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">q")
_ATTRIBUTES, _CRC = struct.Struct(">H"), struct.Struct(">I")

SCRATCH_BYTES: Final = 2 << 20
RECORD_ERRORS_MAX: Final = 100
"""At most this many records are named in the response for a batch with times that are not allowed."""
RECORDS_SEARCHED_MAX: Final = 2_000
"""At most this many records are searched, since this is Python: about 5 ms on the event loop."""
_threads = threading.local()


class BatchRejected(MalformedMessage):
    """A batch is refused; ``code`` is Kafka's, ``record_errors`` are the number and error of single records."""

    def __init__(self, code: int, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.record_errors = record_errors


class OldFormat(BatchRejected):
    """A client sends in a message format before 2, which has no headers."""


class BatchHeader(NamedTuple):
    """The header of a producer's batch, with the fields that a broker needs."""

    size_bytes: int
    attributes: int
    base_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    sequence: int
    records: int

    @property
    def codec(self) -> int:
        """The compression, see ``compression.NAMES``."""
        return self.attributes & CODEC_BITS

    @property
    def transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)


class Times(NamedTuple):
    """The lowest and highest time of a batch's records, in ms since 1970."""

    lowest_ms: int
    highest_ms: int


def parse_batch_header(source: Bytes, start: int, size_bytes: int, *, version: int, size_max: int) -> BatchHeader:
    """Return the header of ``source[start : start + size_bytes]``.

    Raises BatchRejected if that cannot be one whole batch.
    """
    if size_bytes <= MAGIC_AT:
        raise BatchRejected(INVALID_RECORD, "the request holds no record batch for the partition")
    magic = int(source[start + MAGIC_AT])
    if magic != MAGIC:
        raise OldFormat(
            INVALID_RECORD, f"the records are of format {magic}; only format {MAGIC}, which has headers, is accepted"
        )
    if size_bytes < BATCH_HEADER_BYTES:
        raise BatchRejected(CORRUPT_MESSAGE, f"a record batch of {size_bytes} bytes is truncated")
    (
        _, length, _, _, _, attributes, last_delta, base_ms, max_ms, producer_id, producer_epoch, sequence, count,
    ) = BATCH_HEADER.unpack_from(source.data, start)  # fmt: skip
    attributes &= 0xFFFF
    if length != size_bytes - FRAME_BYTES:
        whole = BATCH_HEADER_BYTES - FRAME_BYTES <= length < size_bytes - FRAME_BYTES
        what = "holds more than one batch" if whole else f"claims {length} bytes and has {size_bytes - FRAME_BYTES}"
        raise BatchRejected(INVALID_RECORD if whole else CORRUPT_MESSAGE, f"the record batch {what}")
    if size_bytes > size_max:
        raise BatchRejected(
            MESSAGE_TOO_LARGE, f"record batch of {size_bytes} bytes exceeds max.message.bytes ({size_max})"
        )
    if count < 1 or last_delta != count - 1:
        raise BatchRejected(
            INVALID_RECORD, f"the batch claims {count} records and {last_delta} as its last offset delta"
        )
    if attributes & CONTROL:
        raise BatchRejected(INVALID_RECORD, "a producer may not write control batches")
    if attributes & TRANSACTIONAL and producer_id < 0:
        raise BatchRejected(INVALID_RECORD, "a batch of a transaction has no producer id")
    codec = attributes & CODEC_BITS
    if codec >= len(NAMES) or (codec == ZSTD and version < ZSTD_VERSION):
        raise BatchRejected(
            UNSUPPORTED_COMPRESSION,
            f"compression codec {codec} is not accepted in version {version} of Produce; "
            f"there are {', '.join(NAMES)} (zstd from version {ZSTD_VERSION} on)",
        )
    if producer_id >= 0 and (sequence < 0 or producer_epoch < 0):
        raise BatchRejected(INVALID_RECORD, f"the batch of producer {producer_id} has the sequence number {sequence}")
    return BatchHeader(size_bytes, attributes, base_ms, max_ms, producer_id, producer_epoch, sequence, count)


def validate_batch(
    source: Bytes, start: int, facts: BatchHeader, plain_bytes_max: int = PLAIN_BYTES_MAX, *, needs_keys: bool = False
) -> Times:
    """Check a batch, with its CRC-32C and every record, and return its times. Called from any thread.

    Raises BatchRejected if the batch does not match its header. Compressed records that exceed ``plain_bytes_max``
    bytes, or the ratio allowed for their size, are rejected too, and with ``needs_keys`` records without a key. Raises
    Refusal if memory for the check is lacking.
    """
    end = start + facts.size_bytes
    kernels = kernels_for(facts.size_bytes)
    reason, lowest_ms, highest_ms = kernels.judge(source, start, end)
    keyless: BatchRejected | None = None
    if needs_keys and reason == layout.FINE and facts.codec == NONE:
        keyless = _find_keyless(source, start + BATCH_HEADER_BYTES, end, facts)
    if reason == layout.FINE and facts.attributes & CODEC_BITS != NONE:
        data = source.data[start + BATCH_HEADER_BYTES : end]
        bytes_max = min(plain_bytes_max, compression.plain_bytes_max(len(data)))
        try:
            with decompressing(facts.codec, data, bytes_max=bytes_max, scratch=_scratch_of_thread()) as (
                plain,
                plain_bytes,
            ):
                reason, lowest_ms, highest_ms = kernels_for(plain_bytes).judge_records(
                    plain, 0, plain_bytes, facts.records, facts.base_ms
                )
                if needs_keys and reason == layout.FINE:
                    keyless = _find_keyless(plain, 0, plain_bytes, facts)
            # free it before an error below is raised, which would keep it
            del plain
        except MalformedMessage as error:
            raise BatchRejected(INVALID_RECORD, str(error)) from None
        except MemoryError:
            sentence = f"out of memory to decompress a batch of {facts.size_bytes} bytes; retry later"
            raise Refusal(Reason.STOPPING, sentence) from None
    if reason != layout.FINE:
        code = CORRUPT_MESSAGE if reason == layout.BAD_CRC else INVALID_RECORD
        raise BatchRejected(code, f"the record batch {layout.REASONS[reason]}")
    if keyless is not None:
        raise keyless
    if highest_ms >= TIME_MS_MAX:
        raise BatchRejected(INVALID_TIMESTAMP, f"the time {highest_ms} of a record is later than any that can be kept")
    if lowest_ms <= -TIME_MS_MAX:
        # times in microseconds would be far in the future
        raise BatchRejected(INVALID_TIMESTAMP, f"the time {lowest_ms} of a record is earlier than any that can be kept")
    return Times(lowest_ms, highest_ms)


def _find_keyless(records: Bytes, start: int, end: int, facts: BatchHeader) -> BatchRejected | None:
    """Return the refusal for records without a key among the checked ones, with their numbers (KIP-467)."""
    first = kernels_for(end - start).find_keyless(records, start, end, facts.records)
    if first < 0:
        return None
    data = records.data[start:end]
    errors: list[tuple[int, str]] = []
    at = 0
    for number in range(min(facts.records, max(RECORDS_SEARCHED_MAX, first + 1))):
        length, here = varint32(data, at, len(data))
        at = here + length
        if number < first:
            continue
        here = varint64(data, here + 1, at)[1]
        here = varint32(data, here, at)[1]
        if varint32(data, here, at)[0] < 0:
            errors.append((number, "Compacted topic cannot accept message without key"))
            if len(errors) == RECORD_ERRORS_MAX:
                break
    message = f"One or more records have been rejected due to {len(errors)} record errors in total"
    return BatchRejected(INVALID_RECORD, f"{message}: messages without a key in a compacted topic", errors)


def require_times(source: Bytes, start: int, facts: BatchHeader, times: Times, allowed: Times) -> None:
    """Raise BatchRejected, which names the records, if a validated batch has times that are not allowed."""
    if allowed.lowest_ms <= times.lowest_ms and times.highest_ms <= allowed.highest_ms:
        return
    data: Any = source.data[start + BATCH_HEADER_BYTES : start + facts.size_bytes]
    if facts.codec == NONE:
        found = _find_times(data, facts, allowed)
    else:
        bytes_max = compression.plain_bytes_max(len(data))
        with decompressing(facts.codec, data, bytes_max=bytes_max, scratch=_scratch_of_thread()) as (
            plain,
            plain_bytes,
        ):
            found = _find_times(bytes(plain.data[:plain_bytes]), facts, allowed)
        del plain
    within = f"is out of range. The timestamp should be within [{allowed.lowest_ms}, {allowed.highest_ms}]"
    errors = [(number, f"Timestamp {ms} of message with offset {number} {within}") for number, ms in found]
    raise BatchRejected(
        INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
    )  # fmt: skip


def _find_times(data: Any, facts: BatchHeader, allowed: Times) -> list[tuple[int, int]]:
    """Return number and time of records outside of ``allowed``: at most RECORD_ERRORS_MAX, of the first records."""
    found: list[tuple[int, int]] = []
    at, end = 0, len(data)
    for number in range(min(facts.records, RECORDS_SEARCHED_MAX)):
        length, here = varint32(data, at, end)
        ms = add_wrapping(facts.base_ms, varint64(data, here + 1, end)[0])
        if not allowed.lowest_ms <= ms <= allowed.highest_ms:
            found.append((number, ms))
            if len(found) == RECORD_ERRORS_MAX:
                break
        at = here + length
    return found


def _scratch_of_thread() -> Bytes:
    """Return this thread's memory for records that are only checked: fresh pages cost more than the check."""
    if not hasattr(_threads, "scratch"):
        _threads.scratch = np.empty(SCRATCH_BYTES, np.uint8)
    scratch: Bytes = _threads.scratch
    return scratch


def kernels_for(size_bytes: int) -> Any:
    """Return the compiled kernels, or the fallback in Python if this process does not have them."""
    return engine.select(KERNEL_MODULE, validation_fallback, size_bytes)


def stamp(
    target: Bytes, at: int, facts: BatchHeader, times: Times, base_offset: int, epoch: int, append_ms: int | None
) -> None:
    """Write the broker's fields into the batch at ``target[at:]``: offset, leader epoch, and times if they differ.

    ``append_ms`` is the time of all its records if the topic uses append time, and None if producers set times.
    """
    _OFFSET.pack_into(target.data, at, base_offset)
    _EPOCH.pack_into(target.data, at + _EPOCH_AT, epoch)
    attributes = facts.attributes & ~LOG_APPEND_TIME
    max_ms = times.highest_ms
    if append_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_ms = append_ms
    if attributes == facts.attributes and max_ms == facts.max_ms:
        return
    _ATTRIBUTES.pack_into(target.data, at + ATTRIBUTES_AT, attributes)
    _TIME.pack_into(target.data, at + MAX_TIME_AT, max_ms)
    end = at + facts.size_bytes
    _CRC.pack_into(target.data, at + CRC_AT, kernels_for(facts.size_bytes).checksum(target, at + ATTRIBUTES_AT, end))
