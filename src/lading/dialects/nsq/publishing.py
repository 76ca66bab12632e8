"""Published bytes -> stored messages, straight into the log's open chunk: runs of PUB, or a whole MPUB."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from lading.kernels import engine
from lading.kernels.arrays import Bytes
from lading.model.errors import LimitExceeded, MalformedMessage

from . import send_fallback
from .layout import OFFSET_MAX, PARTITION_MAX, RECORD_BYTES_MIN
from .send_layout import ANSWER_BYTES, EXT, TRACED_ANSWER_BYTES

KERNEL_MODULE = "lading.dialects.nsq.send_kernels"
LENT_KERNEL_MODULE = "lading.dialects.nsq.lent_kernels"


RUN_BYTES_MAX: Final = 256 << 10
"""A run of PUB commands is stored in pieces of this size, of which a chunk holds several."""
FALLBACK_RUN_BYTES_MAX: Final = 2 << 10
"""The size of a piece until the kernels are loaded: a small message then takes 20 microseconds, a hundred
times as long.
"""
FALLBACK_ITEMS_MAX: Final = 250
"""An MPUB of more messages waits for the kernels while they are loaded, as it is stored at once, either all
or nothing.
"""
COMPILING_ITEMS_MAX: Final = 20_000
"""The limit while kernels are compiled, which takes a minute: until then others may wait 0.4 s instead of the
publisher.

If kernels cannot be compiled, an MPUB of more messages is refused.
"""
FALLBACK_EXT_BYTES_MAX: Final = 32 << 10
"""An MPUB with headers waits for the kernels if it is larger: plain Python reads it byte by byte."""
GROWTH_BYTES: Final = RECORD_BYTES_MIN
"""The most bytes that a message takes in the log beyond those of its PUB command."""
_ITEM_BYTES_MIN: Final = 5
"""The smallest item of an MPUB: its size and one byte."""


_OK: Final = b"\0\0\0\x06\0\0\0\0OK"
"""The response to an untraced publication, which nearly all are."""


class Stored(NamedTuple):
    """Result of published bytes.

    ``end`` is the end of the last message taken, ``messages_count`` how many were taken, ``size_bytes`` their size in
    the log, ``answers`` the frames to send when they are durable, ``reason`` why the next is refused (see send_layout;
    0 if it is only incomplete).
    """

    end: int
    messages_count: int
    size_bytes: int
    answers: bytes
    reason: int


def run_bytes_max() -> int:
    """Return how much of a run of PUB commands is stored together: one or two milliseconds of work."""
    return FALLBACK_RUN_BYTES_MAX if engine.get_loaded(KERNEL_MODULE) is None else RUN_BYTES_MAX


def are_kernels_expected() -> bool:
    """Return whether the kernels are not loaded, but will be."""
    return engine.is_expected(KERNEL_MODULE)


def needs_kernels(count: int, size_bytes: int, form: int | None) -> bool:
    """Return whether an MPUB has to wait for kernels: a million messages would block the event loop for 20 s."""
    if count > size_bytes // _ITEM_BYTES_MIN:
        # no wait: its first bytes get it refused
        return False
    if engine.is_compiling():
        is_long = count > COMPILING_ITEMS_MAX
    else:
        is_long = count > FALLBACK_ITEMS_MAX or (form == EXT and size_bytes > FALLBACK_EXT_BYTES_MAX)
    return is_long and engine.get_loaded(KERNEL_MODULE) is None and are_kernels_expected()


def exceeds_fallback(count: int) -> bool:
    """Return whether an MPUB has more messages than can be stored without kernels, and kernels will not be loaded."""
    return count > COMPILING_ITEMS_MAX and engine.is_unavailable(KERNEL_MODULE)


def pubs_room(size_bytes: int, line_bytes: int) -> int:
    """Return the largest size in the log of messages from ``size_bytes`` of PUB commands."""
    return size_bytes + RECORD_BYTES_MIN * (size_bytes // (line_bytes + _ITEM_BYTES_MIN) + 1)


def batch_room(size_bytes: int, count: int) -> int:
    """Return the largest size in the log of the ``count`` messages of an MPUB of ``size_bytes``."""
    return size_bytes + RECORD_BYTES_MIN * (count + 1)


def store_pubs(
    source: Bytes,
    start: int,
    end: int,
    line_bytes: int,
    form: int,
    takes_ext: bool,
    target: Bytes,
    to: int,
    base_offset: int,
    partition: int,
    now_ns: int,
) -> Stored:
    """Store whole PUB commands with the same line from ``source[start:end]``.

    ``line_bytes`` counts the line with its line feed. ``target`` needs ``pubs_room`` bytes. Raises LimitExceeded if a
    message id cannot hold the partition or offset.
    """
    most = (end - start) // (line_bytes + _ITEM_BYTES_MIN) + 1
    _require_ids(partition, base_offset, most)
    answers = np.empty(TRACED_ANSWER_BYTES * most, np.uint8)
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or send_fallback
    at, count, stop, answered, reason = kernels.store_pubs(
        source, start, end, line_bytes, form, takes_ext, target, to, base_offset, partition, now_ns, answers
    )
    answer = _OK if answered == ANSWER_BYTES else answers[:answered].tobytes()
    return Stored(at, count, stop - to, answer, reason)


def store_alike(
    source: Bytes, count: int, line_bytes: int, target: Bytes, to: int, base_offset: int, partition: int, now_ns: int
) -> int:
    """Store the ``count`` whole PUB commands that fill ``source``, without headers and all with the same line.

    Returns their size at ``target[to:]``, which needs ``GROWTH_BYTES`` more than ``source`` for each command. Raises
    LimitExceeded as ``store_pubs`` does.
    """
    if not 0 <= partition <= PARTITION_MAX or base_offset + count > OFFSET_MAX:
        _require_ids(partition, base_offset, count)
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or send_fallback
    stop: int = kernels.store_alike(source, count, line_bytes, target, to, base_offset, partition, now_ns)
    if stop < 0:
        raise MalformedMessage(f"{source.size} bytes are not {count} PUB commands of one line", at=0)
    return stop - to


def store_batch(
    source: Bytes,
    start: int,
    end: int,
    count: int,
    form: int,
    takes_ext: bool,
    target: Bytes,
    to: int,
    base_offset: int,
    partition: int,
    now_ns: int,
) -> Stored:
    """Store the ``count`` items of an MPUB, which fill ``source[start:end]``: either all or, with a reason, none.

    ``target`` needs ``batch_room`` bytes. Raises LimitExceeded as ``store_pubs`` does.
    """
    _require_ids(partition, base_offset, count)
    answer = np.empty(TRACED_ANSWER_BYTES, np.uint8)
    where = (target, to, base_offset, partition, now_ns)
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or send_fallback
    taken, stop, answered, reason = kernels.store_batch(source, start, end, count, form, takes_ext, *where, answer)
    return Stored(end, taken, stop - to, answer[:answered].tobytes(), reason)


def pass_items(source: Bytes, at: int, end: int, end_max: int, count: int) -> tuple[int, int, int, int]:
    """Return how many of the ``count`` items of an MPUB, which begin at ``source[at:end]``, are complete, and their
    end.

    Then the position up to which bytes are needed for the next item, and the reason for its refusal; BAD_ITEM: it ends
    after ``end_max``.
    """
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or send_fallback
    # not a named tuple: an MPUB that arrives in pieces needs it for each of them
    passed: tuple[int, int, int, int] = kernels.pass_items(source, at, end, end_max, count)
    return passed


def _require_ids(partition: int, base_offset: int, count: int) -> None:
    if not 0 <= partition <= PARTITION_MAX or base_offset + count > OFFSET_MAX:
        raise LimitExceeded(
            f"NSQ message ids end at partition {PARTITION_MAX} and offset {OFFSET_MAX}: "
            f"partition {partition}, offset {base_offset} cannot be published by NSQ"
        )


def rebase(body: Bytes, partition: int, base_offset: int) -> None:
    """Give stored messages the ids of another place in the log, in place. Raises MalformedMessage for invalid bytes."""
    _require_ids(partition, base_offset, body.size // RECORD_BYTES_MIN)
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or send_fallback
    count = kernels.rebase(body, partition, base_offset)
    if count < 0:
        raise MalformedMessage("the message is cut short", at=-1 - count)
