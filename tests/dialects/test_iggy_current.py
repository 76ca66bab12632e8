"""Batches of the current Iggy: vectors of its SDKs and its client, into columns and back; what may not be."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.dialects import registry
from lading.dialects.codes import IGGY_CURRENT
from lading.dialects.iggy.classic.errors import NAMES
from lading.dialects.iggy.current import fallback, messages, send_fallback, stored_fallback
from lading.dialects.iggy.current.encode import encode_sent, encode_stored
from lading.dialects.iggy.current.partitioning import choose_by_key
from lading.kernels import engine
from lading.model.batch import SCHEMA
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.run import Run
from lading.model.scan_request import ScanRequest
from tests.dialects.iggy_current import VECTORS, Header, batch, frame, header_block, parse_batches, vector

FULL = os.environ.get("LADING_TEST_FULL") == "1"

TIME_US = 1_692_643_862_991_111
HEADERS: list[Header] = [(2, b"key 1", 2, b"value1"), (2, b"key-2", 3, b"\x01"), (7, b"\x05\x00", 12, bytes(8))]


def modules(home: str, twin: ModuleType) -> list[Any]:
    return [twin, engine.load(home)]


def decode(data: bytes, request: ScanRequest = ScanRequest()) -> pa.RecordBatch:
    run = messages.find_batches(data)
    parts = [registry.to_batch(part) for part in registry.decode(run, request)]
    return (
        pa.Table.from_batches(parts, SCHEMA).combine_chunks().to_batches()[0]
        if parts
        else pa.RecordBatch.from_pylist([], SCHEMA)
    )


def stamp(data: bytes, base: int = 0, now_us: int = TIME_US, partition: int = 0) -> tuple[int, int, bytes]:
    source, target = np.frombuffer(data, np.uint8), np.zeros(len(data), np.uint8)
    code, count, size = messages.stamp(source, 0, len(data), target, 0, partition, base, now_us)
    return code, count, target[:size].tobytes()


def test_a_produced_batch_becomes_the_stored_one() -> None:
    """Held by vectors: the server writes place and time and recomputes the batch's checksum; frames stay."""
    produced = vector("B.batch.produced.id1_hello_3headers")
    assert stamp(produced, 41) == (0, 1, vector("B.batch.stored.id1_hello_3headers"))


def test_what_the_client_sends_is_taken() -> None:
    sends = [one for name, one in VECTORS.items() if ".send_messages." in name and name.endswith(".request")]
    assert sends
    for one in sends:
        body = bytes.fromhex(one["hex"])[256:]
        (metadata,) = struct.unpack_from("<I", body)
        (count,) = struct.unpack_from("<I", body, metadata)
        assert stamp(body[4 + metadata :])[:2] == (0, count)


def test_a_stored_batch_becomes_columns() -> None:
    assert decode(vector("B.batch.stored.id1_hello_3headers")).to_pylist() == [
        {
            "offset": 41,
            "state": 1,
            "timestamp": pa.scalar(TIME_US, pa.timestamp("us", tz="UTC")).as_py(),
            "id": (1).to_bytes(16, "little"),
            "checksum": None,
            "key": None,
            "headers": [
                {"key": "key 1", "kind": 2, "value": b"value1"},
                {"key": "key-2", "kind": 3, "value": b"\x01"},
                {"key": "key_3", "kind": 12, "value": (123456).to_bytes(8, "little")},
            ],
            "payload": b"hello",
        }
    ]


def test_keys_of_other_kinds_than_text_are_kept() -> None:
    block = vector("B.user_headers.non_string_key")
    stored = batch([frame(b"x", block)], base=3, time_us=TIME_US)
    rows = decode(stored)
    assert [one["key"] for one in rows.to_pylist()[0]["headers"]] == ["\\k11:07000000"]
    assert [one.headers for one in parse_batches(encode_stored(rows))] == [[(11, bytes([7, 0, 0, 0]), 6, b"\xff" * 4)]]


def test_columns_become_batches_that_a_client_reads() -> None:
    """Messages of one time that follow each other share a batch; all else begins another."""
    stored = batch([frame(b"a", HEADERS, id_=7), frame(b"b", delta=1)], base=5, time_us=TIME_US)
    stored += batch([frame(b"c", HEADERS[:1])], base=7, time_us=TIME_US + 1) + batch(
        [frame(b"d")], base=9, time_us=TIME_US + 1
    )
    encoded = encode_stored(decode(stored), partition=3)
    assert parse_batches(encoded) == parse_batches(stored)
    assert [struct.unpack_from("<QQ", encoded, int(row[0])) for row in messages.find_batches(encoded).chunks] == [
        (3, 5),
        (3, 7),
        (3, 9),
    ]
    assert decode(encoded).equals(decode(stored))


def test_a_sent_batch_keeps_when_its_messages_came_from() -> None:
    stored = batch([frame(b"a")], time_us=TIME_US) + batch([frame(b"b")], base=1, time_us=TIME_US + 250)
    sent = encode_sent(decode(stored))
    assert struct.unpack_from("<4Q", sent) == (0, 0, 0, TIME_US)
    assert struct.unpack_from("<I", sent, 256 + 49 + 28) == (250,)
    assert stamp(sent)[:2] == (0, 2)


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


GOOD = batch([frame(b"hello", HEADERS), frame(b"world", delta=1)])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("invalid_format", GOOD[:-1]),
        ("invalid_format", GOOD[:255]),
        ("invalid_format", batch([frame(b"a"), frame(b"b")])),
        ("invalid_format", damaged(GOOD, 48)),
        ("invalid_format", batch([frame(b"a", b"\x02\x05")])),
        ("invalid_messages_count", batch([])),
        ("invalid_message_checksum", damaged(GOOD, 256 + 48)),
        ("invalid_message_checksum", damaged(GOOD, 256)),
        ("invalid_batch_checksum", damaged(GOOD, 24)),
        ("empty_message_payload", batch([frame(b"")])),
        ("invalid_reserved_field", batch([frame(b"a", reserved=1)])),
        ("too_big_user_headers", batch([frame(b"a", [(2, b"k%03d" % one, 1, b"v" * 255) for one in range(400)])])),
        ("invalid_header_key", batch([frame(b"a", [(2, b"", 1, b"v")])])),
        ("invalid_header_key", batch([frame(b"a", [(2, b"k" * 256, 1, b"v")])])),
        ("invalid_header_value", batch([frame(b"a", [(2, b"k", 1, b"")])])),
        ("invalid_header_value", batch([frame(b"a", [(2, b"k", 1, b"v" * 256)])])),
        ("invalid_header_kind", batch([frame(b"a", [(0, b"k", 1, b"v")])])),
        ("invalid_header_kind", batch([frame(b"a", [(2, b"k", 0, b"v")])])),
        ("invalid_header_kind", batch([frame(b"a", [(2, b"k", 128, b"v")])])),
    ],
)
def test_what_no_sender_may_give(name: str, data: bytes) -> None:
    source, target = np.frombuffer(data, np.uint8), np.zeros(len(data), np.uint8)
    for module in modules(messages.SEND_KERNEL_MODULE, send_fallback):
        code, count, size = module.stamp(source, 0, len(data), target, 0, 0, 0, TIME_US)
        assert (NAMES[code], count, size) == (name, 0, 0)
        assert not target.any()


def test_the_largest_headers_are_taken() -> None:
    keys = [(2, b"k%03d" % one, 1, b"v" * 255) for one in range(371)]
    block = header_block(keys)
    block += header_block([(2, b"rest", 1, b"v" * (100_000 - len(block) - 14))])
    assert len(block) == 100_000
    assert stamp(batch([frame(b"a", block)]))[:2] == (0, 1)
    assert NAMES[stamp(batch([frame(b"a", block + header_block([(2, b"k", 1, b"v")]))]))[0]] == "too_big_user_headers"


def test_slices_have_heads_of_their_own() -> None:
    """A poll that cuts a batch tells count, length and checksum of the slice; base offset and time stay (N4)."""
    bodies = [
        batch([frame(b"%d" % one, delta=one - base) for one in range(base, base + 5)], base=base, time_us=TIME_US)
        for base in (0, 5, 10)
    ]
    data = b"".join(bodies)
    chunks = np.array([[0, len(data), 0, 15, 14, TIME_US, TIME_US, 0]], np.int64)
    run = Run(IGGY_CURRENT, np.frombuffer(data, np.uint8), chunks)
    for first in range(16):
        for end in range(first, 16):
            cut = messages.slice_batches(run, first, end)
            polled = b"".join(map(bytes, cut.parts))
            assert [one.payload for one in parse_batches(polled)] == [b"%d" % one for one in range(first, end)]
            assert cut.messages_count == end - first
    (head, *_) = messages.slice_batches(run, 6, 8).parts
    assert struct.unpack_from("<QQ", head, 8) == (5, TIME_US)


def test_what_a_damaged_chunk_still_holds() -> None:
    frames = [frame(b"%d" % one, HEADERS, delta=one) for one in range(4)]
    data = bytearray(batch(frames, base=20, time_us=TIME_US) + batch([frame(b"z")], base=24, time_us=TIME_US))
    data[256 + len(frames[0]) + 48] ^= 1
    chunks = np.array([[0, len(data), 20, 5, 24, TIME_US, TIME_US, 0]], np.int64)
    found = messages.salvage(Run(IGGY_CURRENT, np.frombuffer(bytes(data), np.uint8), chunks))
    rows = [registry.to_batch(part) for part in registry.decode(found)]
    assert [one for part in rows for one in part.column("offset").to_pylist()] == [20, 22, 23, 24]
    assert [one for part in rows for one in part.column("payload").to_pylist()] == [b"0", b"2", b"3", b"z"]


@pytest.mark.parametrize(
    ("sentence", "change"),
    [
        ("null payload", {"payload": None}),
        ("empty payload", {"payload": b""}),
        ("is null", {"headers": [{"key": "k", "kind": 1, "value": None}]}),
        ("not 1 to 255", {"headers": [{"key": "", "kind": 1, "value": b"v"}]}),
        ("takes 1 to 255", {"headers": [{"key": "k", "kind": 1, "value": b"v" * 256}]}),
        ("has kind 0", {"headers": [{"key": "k", "kind": 0, "value": b"v"}]}),
    ],
)
def test_what_no_message_can_hold(sentence: str, change: dict[str, Any]) -> None:
    row = decode(batch([frame(b"a")])).to_pylist()[0]
    with pytest.raises(LimitExceeded, match=sentence):
        encode_stored(pa.RecordBatch.from_pylist([{**row, **change}], SCHEMA))


def test_partitions_by_key() -> None:
    """Vectors of the Java SDK."""
    for name, one in VECTORS.items():
        if name.startswith("B.messages_key.") and "partition_of_3" in one["decoded"]:
            key = bytes.fromhex(one["hex"])
            assert choose_by_key(key, 3) == one["decoded"]["partition_of_3"]
            assert choose_by_key(key, 10) == one["decoded"]["partition_of_10"]


def test_there_are_as_many_errors_as_the_server_has() -> None:
    """238 in protocol 0.11, and 29 that the crate 0.11.1-edge.9 names beside them."""
    assert len(NAMES) == 238 + 29


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """Batches as a log may hold them."""
    data, base = b"", 0
    for _ in range(draw(st.integers(1, 4))):
        frames = []
        for delta in range(draw(st.integers(1, 4))):
            headers = draw(
                st.lists(
                    st.tuples(
                        st.sampled_from((1, 2, 2, 2, 15, 200)),
                        st.binary(min_size=1, max_size=9),
                        st.integers(1, 20),
                        st.binary(min_size=1, max_size=9),
                    ),
                    max_size=3,
                )
            )
            frames.append(
                frame(draw(st.binary(min_size=1, max_size=300)), headers, delta=delta, id_=draw(st.integers(0, 3)))
            )
        producer = draw(st.none() | st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 9), st.integers(0, 2**31 - 1)))
        data += batch(frames, base=base, time_us=TIME_US + base, producer=producer)
        base += len(frames)
    return data


@given(written(), st.integers(0, 12), st.integers(0, 12), st.integers(1, 5), st.sampled_from((1, 40, 1 << 20)))
@settings(max_examples=150 if FULL else 50, deadline=None)
def test_kernels_and_fallbacks_give_the_same_columns(data: bytes, first: int, end: int, rows: int, size: int) -> None:
    run = messages.find_batches(data)
    request = ScanRequest(first, end, keys=("a", "\\k1:00"), max_rows=rows, max_bytes=size)
    found = []
    for module in modules(messages.KERNEL_MODULE, fallback):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "select", lambda home, twin, size_bytes, module=module: module)
            portions = list(messages.decode_columns(run, request))
        found.append(
            [
                (registry.to_batch(one), {key: place.length.tolist() for key, place in one.located.items()})
                for one in portions
            ]
        )
    assert found[0] == found[1]


@given(st.data())
@settings(max_examples=300 if FULL else 100, deadline=None)
def test_decoding_gives_messages_or_says_what_is_wrong(data: st.DataObject) -> None:
    """Whatever bytes lie in a chunk: a value or MalformedMessage, from kernels and fallbacks alike."""
    good = bytearray(data.draw(written()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(good)))
    region = np.frombuffer(bytes(good), np.uint8)
    chunks = np.array([[0, end, 0, 1, 20, 0, 0, 0]], np.int64)
    outcomes: list[Any] = []
    for module in modules(messages.KERNEL_MODULE, fallback):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "select", lambda home, twin, size_bytes, module=module: module)
            outcomes.append(
                outcome(lambda: [registry.to_batch(one) for one in messages.decode_columns(Run(3, region, chunks))])
            )
    assert outcomes[0] == outcomes[1]
    stored = modules(messages.STORED_KERNEL_MODULE, stored_fallback)
    tables = [(np.zeros((64, 3), np.int64), np.zeros(64 * 256, np.uint8)) for _ in stored]
    cuts = [one.cut(region, 0, end, 2, 7, *table) for one, table in zip(stored, tables, strict=True)]
    assert cuts[0] == cuts[1]
    assert all((left == right).all() for left, right in zip(*tables, strict=True))
    surveys = [np.zeros((8, 8), np.int64) for _ in stored]
    assert len({one.survey(region, 0, end, table) for one, table in zip(stored, surveys, strict=True)}) == 1
    assert (surveys[0] == surveys[1]).all()
    kept = [np.zeros(30, np.int64) for _ in stored]
    assert len({one.intact(region[:end], 0, 30, table, 1 << 16) for one, table in zip(stored, kept, strict=True)}) == 1
    assert (kept[0] == kept[1]).all()
    sends = [np.zeros(len(region), np.uint8) for _ in range(2)]
    stamps = [
        one.stamp(region, 0, end, target, 0, 2, 5, TIME_US)
        for one, target in zip(modules(messages.SEND_KERNEL_MODULE, send_fallback), sends, strict=True)
    ]
    assert stamps[0] == stamps[1]
    assert (sends[0] == sends[1]).all()


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except MalformedMessage as error:
        return str(error), error.at
