"""The choice of a partition against Kafka's own test values."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from lading.client.partitioning import murmur2, partition_of, partitions_of

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
KAFKA_VALUES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), KAFKA_VALUES.items())
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of(key, 10) == (expected & 0x7FFFFFFF) % 10


def test_a_column_of_keys_goes_where_each_key_goes() -> None:
    source = random.Random(5)
    keys = [source.randbytes(source.randrange(40)) if source.random() > 0.1 else None for _ in range(3000)]
    column = pa.array(keys, pa.binary())
    expected = [-1 if key is None else partition_of(key, 7) for key in keys]
    assert partitions_of(column, 7).tolist() == expected
    assert partitions_of(column.slice(100, 50), 7).tolist() == expected[100:150]


@pytest.mark.parametrize("keys", [[], [None], [b""], [None, b""]])
def test_columns_at_the_edges(keys: list[bytes | None]) -> None:
    expected = [-1 if key is None else partition_of(key, 3) for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), 3).tolist() == expected
