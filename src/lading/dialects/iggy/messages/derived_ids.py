"""Ids for Iggy readers of messages that have none: the same at every poll, and no other message has it.

An id is a UUID of version 8 as a number, with 60 bits of a hash of topic and partition, and the message's offset as
the last 62 bits. So it is never 0, and what has its own offset inside is known again: a reader of Lading takes it for
no id at all (docs/reference/protocols/iggy.md#ids-of-messages-without-one). The first 48 bits of the hash are combined
with the offset too (XOR): a client that reads JSON's numbers as doubles keeps 53 bits of an id, the first ones.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_ID_BYTES: Final = 16
_OFFSET_BITS: Final = 62
_OFFSET_MASK: Final = np.uint64((1 << _OFFSET_BITS) - 1)
_VARIANT: Final = np.uint64(0b10 << _OFFSET_BITS)
_VERSION: Final = np.uint64(8 << 12)
_VERSION_MASK: Final = np.uint64(0xF << 12)
_VERSION_END: Final = np.uint64(16)
"""Bits of the high word above this are of the hash and the offset."""


def derive_ids(offsets: NDArray[np.int64], topic: bytes, partition: int) -> NDArray[np.uint64]:
    """Return the ids of messages as rows of two words, the low one first, which is how Iggy writes them.

    ``topic`` identifies the topic, as by its uuid.
    """
    digest = hashlib.blake2b(topic + partition.to_bytes(4, "little"), digest_size=8).digest()
    high = np.uint64(int.from_bytes(digest, "little")) & ~_VERSION_MASK | _VERSION
    ids = np.empty((len(offsets), 2), np.uint64)
    numbers = offsets.astype(np.uint64)
    ids[:, 0] = numbers & _OFFSET_MASK | _VARIANT
    ids[:, 1] = high ^ (numbers << _VERSION_END)
    return ids


def fill_ids(batch: pa.RecordBatch, topic: bytes, partition: int) -> pa.RecordBatch:
    """Return the Batch with a derived id for every message of a partition that has none."""
    ids: Any = batch.column("id")
    if not ids.null_count:
        return batch
    words = _to_words(ids)
    none = ids.is_null().to_numpy(zero_copy_only=False)
    offsets: NDArray[np.int64] = batch.column("offset").to_numpy(zero_copy_only=False)
    words[none] = derive_ids(offsets[none], topic, partition)
    filled: Any = pa.FixedSizeBinaryArray.from_buffers(ids.type, len(words), [None, pa.py_buffer(words.tobytes())])
    at = batch.schema.get_field_index("id")
    return batch.set_column(at, batch.schema.field(at), filled)


def find_derived(ids: Any, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of ``ids``, an Arrow array of 16 bytes, were derived for the offsets beside them."""
    words = _to_words(ids)
    found: NDArray[np.bool_] = (words[:, 0] == (offsets.astype(np.uint64) & _OFFSET_MASK | _VARIANT)) & (
        words[:, 1] & _VERSION_MASK == _VERSION
    )
    return found


def _to_words(ids: Any) -> NDArray[np.uint64]:
    """Copy the ids into rows of two words; a null becomes two zeros."""
    filled = ids.fill_null(bytes(_ID_BYTES)) if ids.null_count else ids
    data = np.frombuffer(filled.buffers()[1], np.uint64, 2 * len(filled), _ID_BYTES * filled.offset)
    return data.reshape(-1, 2).copy()
