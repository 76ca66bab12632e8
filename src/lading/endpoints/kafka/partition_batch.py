"""The batches of a Produce, each from its request to its outcome; checked on the event loop or in a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ...dialects.kafka import validation
from ...dialects.kafka.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from ...dialects.kafka.schema_ids import find_schema_frames
from ...dialects.kafka.validation import BatchHeader, BatchRejected, Times
from ...kernels import engine
from ...model.errors import LadingError

if TYPE_CHECKING:
    from ...broker.core.pending_append import Append
    from ...broker.core.topology import Partition

Bytes = NDArray[np.uint8]

INLINE_BYTES: Final = 4 << 20
"""Uncompressed batches of up to this size are checked on the event loop: about 0.3 ms a MiB."""
INLINE_COMPRESSED_BYTES: Final = {GZIP: 16 << 10, SNAPPY: 256 << 10, LZ4: 256 << 10, ZSTD: 256 << 10}
INLINE_PLAIN_BYTES: Final = 1 << 20
"""Compressed batches of up to this size are too, if their records are not larger: a worker would cost more."""
INLINE_FALLBACK_BYTES: Final = 8 << 10
"""Size limit of any batch on the event loop while the kernels are not loaded."""


NO_FRAMES: Final[dict[bytes, int]] = {}
"""The schema ids of batches that need no schemas."""
INLINE_FRAMES: Final = 200
"""Up to this many records have their schema ids read on the event loop: 10 microseconds each."""


class PartitionBatch:
    """The batch for one partition, ``start`` bytes after the start of its request, or the reason why it is refused."""

    __slots__ = (
        "append", "facts", "frames", "index", "needs_keys", "needs_schemas", "partition", "refused", "start", "times",
        "transaction",
    )  # fmt: skip

    def __init__(self, index: int, start: int, refused: LadingError | None = None) -> None:
        self.index = index
        self.start = start
        self.refused = refused
        self.partition: Partition | None = None
        self.facts: BatchHeader | None = None
        """The fields of its header."""
        self.needs_keys = False
        """Whether each of its records must have a key: the topic is compacted by keys."""
        self.needs_schemas = False
        """Whether each value must have a schema id that is valid for the topic."""
        self.frames: dict[bytes, int] = NO_FRAMES
        """The schema ids of its values, set when it was checked, each with the number of its first record."""
        self.times: Times | None = None
        """The times of its records, set when it was checked."""
        self.append: Append | None = None
        self.transaction: str | None = None
        """The transactional id, if the batch itself begins the transaction or adds its partition to it."""


def _takes_long(size_bytes: int, codec: int) -> bool:
    """Return whether checking a batch would hold up the event loop."""
    if engine.get_loaded(validation.KERNEL_MODULE) is None:
        return size_bytes > INLINE_FALLBACK_BYTES
    return size_bytes > INLINE_COMPRESSED_BYTES.get(codec, INLINE_BYTES)


def judge_inline(source: Bytes, start: int, batches: list[PartitionBatch]) -> bool:
    """Check the batches of the request at ``source[start:]``; return False if a worker has to do it."""
    for batch in batches:
        facts = batch.facts
        if facts is None:
            continue
        codec = facts.codec
        # a small batch takes long in no case; most are small, and each call counts there
        is_long = facts.size_bytes > INLINE_FALLBACK_BYTES and _takes_long(facts.size_bytes, codec)
        if is_long or (batch.needs_schemas and facts.records > INLINE_FRAMES):
            return False
        at = start + batch.start
        try:
            if codec == NONE:
                batch.times = validation.validate_batch(source, at, facts, needs_keys=batch.needs_keys)
            else:
                try:
                    batch.times = validation.validate_batch(
                        source, at, facts, INLINE_PLAIN_BYTES, needs_keys=batch.needs_keys
                    )
                except BatchRejected:
                    # it may be valid, but larger than what is decompressed here
                    return False
            if batch.needs_schemas:
                batch.frames = find_schema_frames(source, at, facts)
        except LadingError as error:
            batch.refused = without_traceback(error)
    return True


def judge(source: Bytes, batch: PartitionBatch) -> None:
    """Check a batch of the request ``source``, however long it takes."""
    if batch.facts is None:
        return
    batch.refused = None
    try:
        batch.times = validation.validate_batch(source, batch.start, batch.facts, needs_keys=batch.needs_keys)
        if batch.needs_schemas:
            batch.frames = find_schema_frames(source, batch.start, batch.facts)
    except LadingError as error:
        batch.refused = without_traceback(error)


def without_traceback(error: LadingError) -> LadingError:
    """Return an error without its traceback, to be kept as a value.

    The frames of the traceback refer to the error and keep each other alive, and with them all that a request used.
    """
    error.__context__ = None
    return error.with_traceback(None)
