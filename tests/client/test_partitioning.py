"""The choice of a partition against Kafka's own test values."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
import xxhash

from lading import Consumer, Producer, testing
from lading.client.partitioning import PartitionChooser, choose_key_partitioner, murmur2, partition_of, partitions_of
from lading.transports.iggy.transport import IggyTransport

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


# docs/reference/protocols/iggy.md, vectors A.messages_key: partitions of three, counted from 1
IGGY_VALUES = {b"k1": 2, b"user-123": 1, b"order-key": 3}


def test_a_key_goes_to_the_partition_where_iggys_clients_put_it() -> None:
    """By the hash of the release: 0.0.40 by MurmurHash3; xxHash32 counted from 1, since 0.8 from 0."""
    keys = [*IGGY_VALUES, b"", *(b"%d" % number for number in range(50))]
    expected: dict[str, Callable[[bytes], int]] = {
        "0.6": lambda key: (xxhash.xxh32_intdigest(key) % 3 or 3) - 1,
        "0.9": lambda key: xxhash.xxh32_intdigest(key) % 3,
        "0.11": lambda key: xxhash.xxh32_intdigest(key) % 3,
    }
    old = choose_key_partitioner(IggyTransport("iggy://127.0.0.1:1", release="0.0.40"))
    assert {key: old(key, 3) + 1 for key in IGGY_VALUES} == IGGY_VALUES
    for release, number_of in expected.items():
        chosen = choose_key_partitioner(IggyTransport("iggy://127.0.0.1:1", release=release))
        assert [chosen(key, 3) for key in keys] == [number_of(key) for key in keys], release
        column = pa.array([*keys, None], pa.binary())
        assert partitions_of(column, 3, chosen).tolist() == [*map(number_of, keys), -1]


def test_messages_without_a_key_begin_at_the_first_turn() -> None:
    chooser = PartitionChooser(1, first_turn=65_535)
    assert [chooser.choose("t", None, None, 4) for _ in range(5)] == [3, 0, 1, 2, 3]
    assert [PartitionChooser(1).choose("t", None, None, 4), chooser.choose("other", None, None, 4)] == [0, 3]
    batch = pa.record_batch({"key": pa.array([None] * 3, pa.binary())})
    assert [number for number, _ in PartitionChooser(1, first_turn=6).split("t", batch, None, 4)] == [0, 2, 3]


def test_both_ways_of_sending_put_keys_where_iggys_clients_do() -> None:
    with testing.broker() as running:
        url = f"iggy://{running.endpoints['iggy_tcp']}"
        with Producer(url, partitions=3) as producer:
            for key in IGGY_VALUES:
                producer.send("keyed", key, key=key)
            producer.flush()
            batch = pa.record_batch({"payload": list(IGGY_VALUES), "key": list(IGGY_VALUES)})
            producer.send_batch("keyed", batch)
        messages = list(Consumer(running.url, "keyed", timeout_s=0))
        assert sorted((each.payload, each.partition + 1) for each in messages) == sorted([*IGGY_VALUES.items()] * 2)


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
