"""Messages of the current Iggy in bulk: stored and polled bytes -> columns, a sent batch -> a stored one, and back.

The work is done by kernels or, while they are not loaded, by their readable fallbacks; this page chooses, takes memory
and gives names to what comes out. Ids are the 16 bytes of the wire (a little-endian u128).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.kernels import engine
from lading.kernels.arrays import Bytes
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, COLUMNS, FLAGS, LAST_OFFSET
from lading.model.chunk_table import COUNT as COUNT_OF
from lading.model.errors import MalformedMessage
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ...codes import IGGY_CURRENT
from ..messages import layout as shared
from ..messages import stored
from ..messages.layout import TYPED
from ..messages.stored import StoredForm
from . import fallback, layout, send_fallback, stored_fallback
from .layout import BATCH_HEAD_BYTES, NUMBERED

KERNEL_MODULE: Final = "lading.dialects.iggy.current.kernels"
STORED_KERNEL_MODULE: Final = "lading.dialects.iggy.current.stored_kernels"
SEND_KERNEL_MODULE: Final = "lading.dialects.iggy.current.send_kernels"

_PARTS_AT_ONCE: Final = 1024


def _read_origins(region: Bytes, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return when the messages were sent: the time of their batch, and how much later each was added to it."""
    late = stored.gather(region, rows[:, 0] + layout.TIME_DELTA, np.uint32)
    return stored.gather(region, rows[:, 1] + layout.ORIGIN_TIME, np.uint64) + late


STORED: Final = StoredForm(
    IGGY_CURRENT,
    layout.STORED_BYTES_MIN,
    TYPED,
    {"offset": 8, "timestamp": 8, "id": 16},
    KERNEL_MODULE,
    fallback,
    STORED_KERNEL_MODULE,
    stored_fallback,
    row_words=2,
    read_origins=_read_origins,
)


def decode_columns(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """Decode the messages asked for, in portions, as they are stored (a carrier is not undone).

    See ``stored.decode_columns``.
    """
    return stored.decode_columns(STORED, run, request)


class BatchSlices(NamedTuple):
    """Batches to send as they are, ``count`` messages in ``parts``; heads of those that were cut are new."""

    messages_count: int
    parts: list[bytes | memoryview]


def slice_batches(run: Run, first: int, end: int) -> BatchSlices:
    """Return the stored batches with messages of first <= offset < end, without copying any frame.

    Only heads that must change are made anew: of cut batches, and of numbered ones, which releases before protocol 0.12
    cannot read. Raises MalformedMessage, with the position in ``run.region``, if the
    bytes there are not a message.
    """
    kernels = engine.get_loaded(STORED_KERNEL_MODULE) or stored_fallback
    count, data = 0, run.region.data
    parts: list[bytes | memoryview] = []
    for start, stop, base, held, last, _, _, flags in run.chunks.tolist():
        if last < first or base >= end:
            continue
        if base >= first and last < end and held and not flags & NUMBERED:
            # the whole chunk, as it is most of the time
            count += held
            parts.append(data[start:stop])
            continue
        at = start
        while at < stop:
            table = np.empty((_PARTS_AT_ONCE, 3), np.int64)
            heads = np.empty(2 * BATCH_HEAD_BYTES * _PARTS_AT_ONCE, np.uint8)
            filled, found, reason, at = kernels.cut(run.region, at, stop, first, end, table, heads)
            if reason:
                raise MalformedMessage(f"the message {shared.REASONS[reason]}", at=at)
            count += found
            made = 0
            for low, high, is_cut in table[:filled].tolist():
                if is_cut:
                    parts.append(heads[made : made + BATCH_HEAD_BYTES].tobytes())
                    made += BATCH_HEAD_BYTES
                parts.append(data[low:high])
    return BatchSlices(count, parts)


def find_batches(data: bytes | bytearray | memoryview | Bytes, start: int = 0) -> Run:
    """Return a Run over polled batches that begin at byte ``start``, with a chunk for each.

    Without batches the Run has no chunk. Raises MalformedMessage if the bytes are not whole batches of rising offsets.
    """
    region = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if region.size < start:
        raise MalformedMessage(f"{region.size} bytes have no batches from {start} on", at=0)
    kernels = engine.select(STORED_KERNEL_MODULE, stored_fallback, region.size)
    chunks = np.empty(((region.size - start) // (BATCH_HEAD_BYTES + layout.FRAME_HEAD_BYTES), COLUMNS), np.int64)
    count, reason, where = kernels.survey(region, start, region.size, chunks)
    if reason:
        raise MalformedMessage(f"the message {shared.REASONS[reason]}", at=where)
    return Run(IGGY_CURRENT, region, chunks[:count])


def salvage(run: Run) -> Run:
    """Find the intact messages of damaged chunks, in order, each in a chunk and a batch of its own or a numbered one.

    A frame's checksum vouches for all of a message but its offset and time, which the batch's covers. The work is
    bounded by sixteen times the size of a body.
    """
    bodies, kept = [], []
    at = 0
    for chunk in run.chunks:
        body = run.region[int(chunk[BODY_START]) : int(chunk[BODY_END])]
        room = min(int(chunk[COUNT_OF]), body.size // layout.STORED_BYTES_MIN)
        found = np.empty((room, 3), np.int64)
        kernels = engine.select(STORED_KERNEL_MODULE, stored_fallback, body.size)
        span = int(chunk[BASE_OFFSET]), int(chunk[LAST_OFFSET]) + 1
        count = kernels.intact(body, *span, found.reshape(-1), 16 * body.size)
        if count == chunk[COUNT_OF]:
            # every message passes: the damage is in bytes that no message's checksum covers
            continue
        for made, base_offset, messages_count in _list_salvaged(body, chunk, found[:count]):
            row = chunk.copy()
            row[BASE_OFFSET], row[LAST_OFFSET] = base_offset, base_offset + messages_count - 1
            row[BODY_START], row[BODY_END], row[COUNT_OF] = at, at + len(made), messages_count
            bodies.append(made)
            kept.append(row)
            at += len(made)
    region = np.frombuffer(b"".join(bodies), np.uint8)
    return Run(run.dialect, region, np.array(kept, np.int64).reshape(len(kept), run.chunks.shape[1]))


def _list_salvaged(body: Bytes, chunk: NDArray[np.int64], found: NDArray[np.int64]) -> Iterator[tuple[bytes, int, int]]:
    """Yield what is intact of a damaged chunk: (a batch, its base offset, its messages).

    Each message is in a batch of its own, except for numbered batches that are whole: a producer that sends one again
    must get the same response as if nothing were damaged.
    """
    for batch_at, rows in groupby(found.tolist(), itemgetter(0)):
        frames = list(rows)
        whole = stored_fallback.read_batch(body.data, batch_at, body.size)
        assert whole is not None
        if chunk[FLAGS] & layout.NUMBERED and len(frames) == whole.messages_count:
            yield bytes(body.data[batch_at : whole.end]), whole.base_offset, whole.messages_count
            continue
        head = body.data[batch_at : batch_at + BATCH_HEAD_BYTES]
        for _, start, end in frames:
            frame = bytes(body.data[start:end])
            parsed = stored_fallback.read_frame(memoryview(frame), 0, len(frame))
            assert parsed is not None
            made = stored_fallback.make_head(head, len(frame), 1, frame[:8]) + frame
            yield made, whole.base_offset + parsed.offset_delta, 1


def stamp(
    source: Bytes, start: int, end: int, target: Bytes, to: int, partition: int, base_offset: int, now_us: int
) -> tuple[int, int, int]:
    """Store the sent batch ``source[start:end]`` at ``target[to:]``. Returns (code or 0, messages, bytes written).

    Checks every limit of ``limits.py`` (iggy-current.md B6) and every checksum and takes no memory; ``target`` needs as
    many bytes. If the code is not 0, what was written is not valid.
    """
    code, count, size_bytes = (engine.get_loaded(SEND_KERNEL_MODULE) or send_fallback).stamp(
        source, start, end, target, to, partition, base_offset, now_us
    )
    return code, count, size_bytes
