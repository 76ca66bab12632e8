"""Stored messages -> message frames, and runs of FIN commands, many in one call."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.kernels import engine
from lading.kernels.arrays import Bytes, Longs
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.run import Run

from . import fallback, layout, messages, send_fallback
from .layout import OFFSET_BITS, OFFSET_MAX, PARTITION_MAX
from .limits import ATTEMPTS_MAX
from .send_layout import DETAIL_BYTES, FIN_BYTES

KERNEL_MODULE: Final = "lading.dialects.nsq.delivery_kernels"


_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
NO_ID: Final = PARTITION_MAX << OFFSET_BITS | _OFFSET_MASK
"""An internal id that no message has."""
TEXTUAL_ID: Final = re.compile(rb"[0-7][0-9a-f]{15}")


class Records(NamedTuple):
    """Messages of one Run, in order of their offsets: the position of each record in ``region``, and its size."""

    region: Bytes
    offsets: Longs
    starts: Longs
    sizes: Longs


def survey(run: Run, first: int, end: int, count_max: int) -> Records:
    """Return the positions of the messages with first <= offset < end, up to ``count_max``.

    Raises MalformedMessage for bytes that are not a message.
    """
    most = max(0, min(count_max, end - first))
    found = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    kernels: Any = engine.get_loaded(messages.SURVEY_KERNEL_MODULE) or fallback
    cursor = np.array([0, -1, 0], np.int64)
    count, reason, at = kernels.survey(run.region, run.chunks, cursor, first, end, *found)
    if reason:
        raise MalformedMessage(f"the message {layout.REASONS[reason]}", at=at)
    return Records(run.region, *(found if count == most else (column[:count] for column in found)))


def with_ext(records: Records) -> NDArray[np.bool_]:
    """Return which messages have a JSON ext, even an empty one."""
    found: NDArray[np.bool_] = records.region[records.starts + layout.EXT_VERSION] == layout.JSON_EXT
    return found


def frames(
    records: Records,
    picked: Longs,
    attempts: Longs,
    partition: int,
    *,
    ext: bool,
    detail: bool = False,
    textual: bool = False,
) -> Bytes:
    """Return the message frames for the messages at these places of ``records``, ready to be sent.

    ``attempts`` (one each, from 1) are capped at 4000. ``ext``: with ext blocks, for a client with extend support;
    ``detail``: with queue offset and raw size, as after SUB_ADVANCED; ``textual``: ids are 16 hexadecimal digits, as
    upstream's are, instead of two binary numbers. Raises LimitExceeded if an id is too large for its form.
    """
    count = len(picked)
    if count == 1:
        highest, size_bytes = int(records.offsets[picked[0]]), int(records.sizes[picked[0]])
    else:
        highest, size_bytes = int(records.offsets[picked].max(initial=0)), int(records.sizes[picked].sum())
    if not 0 <= partition <= PARTITION_MAX or highest > OFFSET_MAX:
        raise LimitExceeded(f"NSQ message ids end at partition {PARTITION_MAX} and offset {OFFSET_MAX}")
    target = np.empty(size_bytes + DETAIL_BYTES * detail * count, np.uint8)
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or send_fallback
    places = (records.starts, records.sizes, records.offsets, picked)
    if count != 1 or attempts[0] > ATTEMPTS_MAX:
        attempts = np.minimum(attempts, ATTEMPTS_MAX)
    size_bytes = kernels.frames(records.region, *places, attempts, partition, ext, detail, textual, target)
    return target[:size_bytes]


def take_fins(source: Bytes, start: int, end: int, *, textual: bool = False) -> tuple[int, Longs]:
    """Return the run of FIN commands at ``source[start:end]``: the position after it, and the internal ids, in order.

    With ``textual``, an id that is not one of ours becomes NO_ID.
    """
    ids = np.empty((end - start) // FIN_BYTES, np.int64)
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or send_fallback
    at, count = kernels.take_fins(source, start, end, textual, ids)
    taken = ids[:count]
    if textual and (count > 1 or (count and taken[0] <= 0)):
        taken[taken <= 0] = NO_ID
    return at, taken


def internal_id(message_id: bytes, *, textual: bool) -> int:
    """Return the internal id in the 16 bytes of a client's message id, as in ``take_fins``."""
    if not textual:
        return int.from_bytes(message_id[:8], "big", signed=True)
    return (int(message_id, 16) or NO_ID) if TEXTUAL_ID.fullmatch(message_id) else NO_ID


def decode_message_id(ident: int) -> tuple[int, int]:
    """Return the partition and offset of one internal id, as ``decode_message_ids`` does."""
    return ident >> OFFSET_BITS, (ident & _OFFSET_MASK) - 1 if ident > 0 else -1


def decode_message_ids(ids: Longs) -> tuple[Longs, Longs]:
    """Return partitions and offsets of internal ids; id 0, and any negative id, has offset -1."""
    offsets = np.where(ids > 0, (ids & _OFFSET_MASK) - 1, -1)
    return ids >> OFFSET_BITS, offsets
