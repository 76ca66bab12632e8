"""Messages of Iggy classic in bulk: stored and polled bytes -> columns, sent bytes -> stored bytes, and back.

The work is done by kernels or, while they are not loaded, by their readable fallbacks; this page chooses, takes memory
and gives names to what comes out. Ids are the 16 bytes of the wire (a little-endian u128).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lading.kernels import engine
from lading.kernels.arrays import Bytes
from lading.model.chunk_table import COUNT
from lading.model.errors import MalformedMessage
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from ..messages import stored
from ..messages.ids import DRAWN, IDS_PER_SEED, random_state
from ..messages.layout import UNTYPED
from ..messages.stored import Slices, StoredForm
from . import fallback, layout, send_fallback, stored_fallback
from .encode import encode_sent, encode_stored

__all__ = [
    "Slices",
    "decode_columns",
    "encode_sent",
    "encode_stored",
    "parse_polled_run",
    "random_state",
    "restamp",
    "room",
    "salvage",
    "set_states",
    "slices",
]

KERNEL_MODULE = "lading.dialects.iggy.classic.kernels"
STORED_KERNEL_MODULE = "lading.dialects.iggy.classic.stored_kernels"
SEND_KERNEL_MODULE = "lading.dialects.iggy.classic.send_kernels"
CODE = 2

FORM = StoredForm(
    CODE,
    layout.STORED_BYTES_MIN,
    UNTYPED,
    {"offset": 8, "state": 1, "timestamp": 8, "id": 16, "checksum": 4},
    KERNEL_MODULE,
    fallback,
    STORED_KERNEL_MODULE,
    stored_fallback,
)


def decode_columns(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """Decode the messages asked for, in portions, as they are stored (a carrier is not undone).

    ``max_bytes`` counts headers and payload. Raises MalformedMessage, with the position in ``run.region``, if the bytes
    there are not a message.
    """
    return stored.decode_columns(FORM, run, request)


slices = partial(stored.slices, FORM)
"""Stored bytes of some messages for an Iggy reader, see ``stored.slices``; no call of its own, which each poll pays."""


def parse_polled_run(data: bytes | bytearray | memoryview | Bytes, start: int = layout.POLLED_HEAD_BYTES) -> Run:
    """Return a Run over polled messages that start at byte ``start`` (default: after the count in a poll's response).

    With no message the Run has no chunk. Raises MalformedMessage if the bytes are not whole messages of rising
    offsets, or not as many as the count in front of them says.
    """
    region = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if region.size < start:
        raise MalformedMessage(f"a poll's answer has {region.size} bytes, not even its count", at=0)
    run = stored.survey_messages(FORM, region, start)
    count = int(run.chunks[0, COUNT]) if len(run.chunks) else 0
    if start == layout.POLLED_HEAD_BYTES and count != int.from_bytes(region[:start].tobytes(), "little"):
        raise MalformedMessage(f"the answer holds {count} messages, not as many as it says", at=0)
    return run


def set_states(data: bytearray, hidden: Sequence[tuple[int, int, int]], start: int = 0) -> int:
    """Write states into polled messages in place, for (first, end, state) in ``hidden``; return their number.

    Messages begin at byte ``start``; ranges may not overlap. Raises MalformedMessage if the bytes are not messages.
    """
    if not hidden:
        return 0
    firsts, ends, states = (np.array(column) for column in zip(*sorted(hidden), strict=True))
    region = np.frombuffer(data, np.uint8)
    ranges = (firsts.astype(np.int64), ends.astype(np.int64), states.astype(np.uint8))
    changed = int((engine.get_loaded(STORED_KERNEL_MODULE) or stored_fallback).set_states(region, start, *ranges))
    if changed < 0:
        raise MalformedMessage("the message is cut short", at=-1 - changed)
    return changed


def salvage(run: Run) -> Run:
    """Find the intact messages of damaged chunks, in order, each in a chunk of its own; see ``stored.salvage``.

    The CRC-32 covers the payload; of the rest only offset, state and lengths can be checked.
    """
    return stored.salvage(FORM, run)


def room(size_bytes: int) -> int:
    """Return how many bytes ``restamp`` may need for a send request whose messages have ``size_bytes`` bytes."""
    return size_bytes + layout.STORED_EXTRA_BYTES * (size_bytes // layout.SENT_BYTES_MIN)


def restamp(
    source: Bytes,
    start: int,
    end: int,
    target: Bytes,
    to: int,
    base_offset: int,
    now_us: int,
    random: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Store the sent messages ``source[start:end]`` at ``target[to:]``. Returns (code or 0, messages, bytes written).

    Checks every limit of ``limits.py`` (iggy.md A6) and takes no memory; ``target`` needs ``room(end - start)`` bytes.
    Message i gets offset ``base_offset`` + i, time ``now_us`` + i, state available, its payload's CRC-32 and, if its id
    is 0, a random UUID from ``random`` (see ``random_state``). If the code is not 0, what was written is not valid.
    """
    if random[DRAWN] >= IDS_PER_SEED:
        random[:] = random_state()
    code, count, size_bytes = (engine.get_loaded(SEND_KERNEL_MODULE) or send_fallback).restamp(
        source, start, end, target, to, base_offset, now_us, random
    )
    return code, count, size_bytes
