"""Zero-copy messages in bulk: stored and polled bytes -> columns, sent bytes -> stored ones, and other releases' forms.

One form is stored, that of crates 0.9 and 0.10, which holds what the earlier ones have: their messages gain eight
reserved bytes and the kind of text for their header keys when they arrive, in the copy that stamps them anyway, and
lose both when their own clients poll them. So a topic is read in one way, whichever client wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lading.kernels import engine
from lading.kernels.arrays import Bytes
from lading.model.errors import MalformedMessage
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ... import codes
from ..messages import layout as common
from ..messages import stored
from ..messages.ids import DRAWN, IDS_PER_SEED, random_state
from ..messages.layout import TYPED
from ..messages.stored import Slices, StoredForm
from . import fallback, layout, send_fallback, stored_fallback
from .layout import FORM_0_9, WireForm

KERNEL_MODULE = "lading.dialects.iggy.zero_copy.kernels"
STORED_KERNEL_MODULE = "lading.dialects.iggy.zero_copy.stored_kernels"
SEND_KERNEL_MODULE = "lading.dialects.iggy.zero_copy.send_kernels"

STORED = StoredForm(
    codes.IGGY_ZERO_COPY,
    layout.STORED_BYTES_MIN,
    TYPED,
    {"offset": 8, "timestamp": 8, "id": 16},
    KERNEL_MODULE,
    fallback,
    STORED_KERNEL_MODULE,
    stored_fallback,
    read_origins=lambda region, rows: stored.gather(region, rows + layout.ORIGIN_TIMESTAMP, np.uint64),
)

slices = partial(stored.slices, STORED)
"""Stored bytes of some messages, see ``stored.slices``; clients of 0.9 and 0.10 take them as they are."""


def decode_columns(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """Decode the messages asked for, in portions, as they are stored (a carrier is not undone).

    See ``stored.decode_columns``. The checksum, which is not one of the payload alone, is not among the
    columns.
    """
    return stored.decode_columns(STORED, run, request)


def salvage(run: Run) -> Run:
    """Find the messages of damaged chunks whose XXH3-64 matches, in order, each in a chunk of its own."""
    return stored.salvage(STORED, run)


def room(size_bytes: int, count: int, form: WireForm) -> int:
    """Return how many bytes ``restamp`` may need for ``count`` messages of ``size_bytes`` without their index."""
    # a header takes 11 bytes at least without the kind of its key
    return size_bytes + (layout.HEAD_BYTES - form.head_bytes) * count + (TYPED - form.typed) * (size_bytes // 11)


def restamp(
    source: Bytes,
    index_at: int,
    start: int,
    end: int,
    form: WireForm,
    target: Bytes,
    to: int,
    base_offset: int,
    now_us: int,
    random: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Store sent messages ``source[start:end]`` of a form at ``target[to:]``: (code or 0, messages, bytes written).

    Their index lies in ``source[index_at:start]``. Checks every limit of ``limits.py`` and takes no memory; ``target``
    needs ``room`` for them. Message i gets offset ``base_offset`` + i, time ``now_us`` + i, its XXH3-64 and, if its id
    is 0, a random UUID from ``random`` (see ids.random_state). If the code is not 0, what was written is not valid.
    """
    if random[DRAWN] >= IDS_PER_SEED:
        random[:] = random_state()
    kernels = engine.get_loaded(SEND_KERNEL_MODULE) or send_fallback
    code, count, size_bytes = kernels.restamp(
        source, index_at, start, end, form.head_bytes, form.typed, target, to, base_offset, now_us, random
    )
    return code, count, size_bytes


def shorten(part: memoryview, form: WireForm) -> memoryview | None:
    """Convert stored messages to what clients of an earlier form poll; None if a header key is not text.

    Such a key has no form there. ``part`` holds whole messages (see ``slices``), which other readers have found to add
    up.
    """
    source = np.frombuffer(part, np.uint8)
    target = np.empty(source.size, np.uint8)
    kernels = engine.select(SEND_KERNEL_MODULE, send_fallback, source.size)
    written = int(kernels.shorten(source, 0, source.size, form.checksum, target))
    return None if written < 0 else target[:written].data


def read_polled(data: bytes | bytearray | memoryview | Bytes, start: int, form: WireForm) -> tuple[Run, int | None]:
    """Return a Run over polled messages that begin at byte ``start``, and the offset of the first damaged one.

    The offset is None if all checksums match. Without messages the Run has no chunk. Raises MalformedMessage if the
    bytes are not whole messages of rising offsets, in the ``form`` of their release.
    """
    region = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    kernels = engine.select(SEND_KERNEL_MODULE, send_fallback, region.size)
    if form == FORM_0_9:
        run = stored.survey_messages(STORED, region, start)
        changed = int(kernels.find_changed(region, start, region.size)) if len(run.chunks) else -1
    else:
        size_bytes = region.size - start
        count_max = size_bytes // form.head_bytes
        target = np.empty(size_bytes + 8 * count_max + (TYPED - form.typed) * (size_bytes // 9), np.uint8)
        reason, where, written, changed = kernels.lengthen(region, start, region.size, *form, target)
        if reason:
            raise MalformedMessage(f"the message {common.REASONS[reason]}", at=where)
        run = stored.survey_messages(STORED, target[:written], 0)
    if changed < 0:
        return run, None
    return run, int.from_bytes(region[changed + layout.OFFSET : changed + layout.TIMESTAMP].tobytes(), "little")


__all__ = [
    "Slices",
    "decode_columns",
    "random_state",
    "read_polled",
    "restamp",
    "room",
    "salvage",
    "shorten",
    "slices",
]
