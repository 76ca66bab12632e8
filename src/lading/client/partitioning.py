"""Choose the partition of a message: by its key as the protocol's own clients do, without a key round robin.

Kafka's clients choose by murmur2, which is used for every protocol that names no other hash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..model.errors import LocalError
from ..transports.interface import KeyPartitioningTransport, Transport

if TYPE_CHECKING:
    import pyarrow as pa

SEED = 0x9747B28C
FACTOR = 0x5BD1E995
SHIFT = 24
MASK = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF
KeyPartitioner = Callable[[bytes, int], int]
"""Returns the partition, counted from 0, of a key; the number is how many partitions the topic has."""


def murmur2(key: bytes) -> int:
    """Return the 32-bit MurmurHash2 with Kafka's seed, unsigned."""
    size = len(key)
    value = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * FACTOR & MASK
        word = (word ^ word >> SHIFT) * FACTOR & MASK
        value = value * FACTOR & MASK ^ word
    if size & 3:
        value = (value ^ int.from_bytes(key[whole:], "little")) * FACTOR & MASK
    value = (value ^ value >> 13) * FACTOR & MASK
    return value ^ value >> 15


@lru_cache(65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key among ``partitions``."""
    return (murmur2(key) & POSITIVE) % partitions


def choose_key_partitioner(transport: Transport) -> KeyPartitioner:
    """Return the function by which the protocol's own clients choose."""
    return transport.partition_of_key if isinstance(transport, KeyPartitioningTransport) else partition_of


def partitions_of(
    keys: pa.Array[Any], partitions: int, partitioner: KeyPartitioner = partition_of
) -> NDArray[np.int64]:
    """Return the partition of each key of a column, -1 for a null key.

    Only distinct keys are hashed; murmur2 works without a Python object per key, on four bytes of all keys at a time.
    """
    import pyarrow.compute as pc

    encoded: Any = pc.dictionary_encode(keys)
    if partitioner is partition_of:
        distinct = _murmur2_all(encoded.dictionary)
        chosen = ((distinct & np.uint32(POSITIVE)) % np.uint32(partitions)).astype(np.int64)
    else:
        chosen = np.array([partitioner(key, partitions) for key in encoded.dictionary.to_pylist()], np.int64)
    places = np.append(chosen, -1)
    return np.asarray(places[encoded.indices.fill_null(len(chosen)).to_numpy(zero_copy_only=False)])


FIRST_TURNS: Final = 1 << 16
"""Senders of a single message draw ``first_turn`` below this, more than a topic has partitions."""


class PartitionChooser:
    """Chooses partitions for the messages of one producer; callable from any thread."""

    def __init__(self, batch_count: int, partitioner: KeyPartitioner = partition_of, first_turn: int = 0) -> None:
        """``first_turn``, modulo the number of partitions, is the partition of a topic's first message
        without a key.
        """
        self._batch_count = batch_count
        self._partitioner = partitioner
        self._first_turn = first_turn
        self._turns: dict[str, int] = {}
        self._lock = threading.Lock()

    def choose(self, topic: str, partition: int | None, key: bytes | None, count: int) -> int:
        """Return ``partition`` if given, else choose by key, else round robin among ``count`` partitions.

        Raises LocalError if the topic does not have the partition.
        """
        if partition is not None:
            if not 0 <= partition < count:
                raise LocalError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
            return partition
        return self._partitioner(key, count) if key is not None else self._take_turn(topic) % count

    def split(
        self, topic: str, batch: pa.RecordBatch, partition: int | None, count: int
    ) -> list[tuple[int, pa.RecordBatch]]:
        """Split the batch by partition as ``choose`` does; without keys ``batch_count`` rows go to each in turn."""
        if partition is not None or count == 1:
            return [(self.choose(topic, partition, None, count), batch)]
        import pyarrow as pa

        chosen = partitions_of(batch.column("key"), count, self._partitioner)
        free = np.flatnonzero(chosen < 0)
        turns = -(-free.size // self._batch_count)
        order = np.array([self._take_turn(topic) for _ in range(turns)], np.int64)
        chosen[free] = order.repeat(self._batch_count)[: free.size] % count
        numbers = np.unique(chosen).tolist()
        return [(number, batch.filter(pa.array(chosen == number))) for number in numbers]

    def _take_turn(self, topic: str) -> int:
        with self._lock:
            turn = self._turns.get(topic, self._first_turn)
            self._turns[topic] = turn + 1
        return turn


def _murmur2_all(keys: Any) -> NDArray[np.uint32]:
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    held = keys.buffers()[2]
    # ten zero bytes at the end, so that every key can be read in whole words
    data = np.append(
        np.frombuffer(held, np.uint8) if held is not None else np.empty(0, np.uint8), np.zeros(8, np.uint8)
    )
    start, size = offsets[:-1], np.diff(offsets)
    value = (np.uint32(SEED) ^ size.astype(np.uint32)).astype(np.uint32)
    factor = np.uint32(FACTOR)
    for at in range(0, int(size.max(initial=0)), 4):
        rest = size - at
        word = _read_words(data, np.where(rest > 0, start + at, 0))
        mixed = word * factor
        mixed = (mixed ^ mixed >> np.uint32(SHIFT)) * factor
        tail = word & (np.uint32(1) << (8 * np.clip(rest, 0, 3)).astype(np.uint32)) - np.uint32(1)
        value = np.where(rest >= 4, value * factor ^ mixed, np.where(rest > 0, (value ^ tail) * factor, value))
    value = (value ^ value >> np.uint32(13)) * factor
    return np.asarray(value ^ value >> np.uint32(15), np.uint32)


def _read_words(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    parts = [data[at + byte].astype(np.uint32) << np.uint32(8 * byte) for byte in range(4)]
    return np.asarray(parts[0] | parts[1] | parts[2] | parts[3], np.uint32)
