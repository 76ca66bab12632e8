"""Native blocks: everything a Batch holds comes back; nothing is believed before it is checked."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.dialects.native import ipc, messages
from lading.dialects.native.limits import BLOCK_BYTES_MAX
from lading.dialects.native.messages import HEADER_BYTES, SCHEMA_IN_BLOCKS, BlockHeader, blocks, check, encode_block
from lading.dialects.registry import dialect, to_batch
from lading.model.batch import SCHEMA
from lading.model.errors import LimitExceeded, LocalError, MalformedMessage
from lading.model.run import Run
from lading.model.scan_request import ScanRequest

NATIVE = dialect("native")
LOOSE = pa.schema([field.with_nullable(True) for field in SCHEMA])
WRITER = bytes(range(16))


def row(number: int, **facts: Any) -> dict[str, Any]:
    return {
        "offset": number,
        "state": (1, 10, 20, 30)[number % 4],
        "timestamp": 1_000_000 + number,
        "id": bytes([number]) * 16 if number % 2 else None,
        "checksum": number if number % 3 else None,
        "key": b"key%d" % number if number % 5 else None,
        "headers": [
            {"key": "twice", "kind": 2, "value": b"first"},
            {"key": "null", "kind": 1, "value": None},
            {"key": "twice", "kind": 15, "value": b"" if number % 2 else bytes(8)},
        ][: number % 4],
        "payload": b"payload %d" % number if number % 7 else None,
        **facts,
    }


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=LOOSE)


def run_of(*bodies: bytes, first: int = 0, lead: bytes = b"") -> Run:
    region = lead + b"".join(bodies)
    chunks = []
    at = len(lead)
    for body in bodies:
        count = sum(block.rows for block in blocks(body))
        chunks.append([at, at + len(body), first, count, first + count - 1, 0, 0, 0])
        at, first = at + len(body), first + count
    return Run(1, np.frombuffer(region, np.uint8), np.array(chunks, np.int64).reshape(-1, 8))


def rows(run: Run, **options: Any) -> list[dict[str, Any]]:
    return [row for decoded in NATIVE.decode(run, ScanRequest(**options)) for row in to_batch(decoded).to_pylist()]


@pytest.mark.parametrize("compression", ["lz4", None])
@pytest.mark.parametrize("lead", [b"", b"odd"])
def test_everything_a_batch_holds_comes_back(compression: Any, lead: bytes) -> None:
    told = [row(number) for number in range(40)]
    bodies = [encode_block(batch_of(part), compression=compression) for part in (told[:1], told[1:30], told[30:])]
    run = run_of(bodies[0] + bodies[1], bodies[2], lead=lead)
    assert rows(run) == batch_of(told).to_pylist()
    assert rows(run, max_rows=7) == batch_of(told).to_pylist()
    for first, end in [(0, 1), (1, 30), (5, 35), (39, 99), (12, 12)]:
        assert [found["offset"] for found in rows(run, first=first, end=end)] == list(range(first, min(end, 40)))


def test_the_layout_is_the_specification() -> None:
    header = BlockHeader(WRITER, 3, 1 << 40, 5, 77)
    body = encode_block(batch_of([row(1)]), header)
    length = struct.pack("<I", len(body) - 4)
    assert body[:HEADER_BYTES] == length + WRITER + struct.pack("<IQQQ", 3, 1 << 40, 5, 77)
    with pa.ipc.open_stream(pa.py_buffer(body[HEADER_BYTES:])) as reader:
        (batch,) = list(reader)
    assert batch.schema.equals(SCHEMA_IN_BLOCKS)
    assert batch.column("payload").to_pylist() == [b"payload 1"]
    assert list(blocks(body * 2)) == [(header, 0, len(body), 1), (header, len(body), 2 * len(body), 1)]


def test_small_blocks_are_joined_and_large_ones_cut() -> None:
    small = b"".join(encode_block(batch_of([row(number)])) for number in range(20))
    assert [decoded.count for decoded in NATIVE.decode(run_of(small), ScanRequest(max_rows=8))] == [8, 8, 4]
    large = encode_block(batch_of([row(number, payload=b"x" * 1000) for number in range(20)]))
    portions = [decoded.count for decoded in NATIVE.decode(run_of(large), ScanRequest(max_bytes=5000))]
    assert sum(portions) == 20 and max(portions) <= 5


def test_only_what_was_asked_for_is_read() -> None:
    run = run_of(encode_block(batch_of([row(number) for number in range(8)])))
    (decoded,) = NATIVE.decode(run, ScanRequest(fields=frozenset({"payload"}), keys=("twice", "null", "never")))
    assert set(decoded.columns) == {"payload"}
    assert decoded.located["twice"].length.tolist() == [-1, 5, 5, 0, -1, 5, 5, 0]
    assert decoded.located["twice"].kind.tolist() == [0, 2, 2, 15, 0, 2, 2, 15]
    assert decoded.located["null"].length.tolist() == [-1, -1, -2, -2, -1, -1, -2, -2]
    assert decoded.located["never"].length.tolist() == [-1] * 8
    found = decoded.located["twice"]
    assert found.data[found.start[1] : found.start[1] + 5].tobytes() == b"first"
    (decoded,) = NATIVE.decode(run, ScanRequest(fields=frozenset({"offset"})))
    assert decoded.columns["offset"].to_pylist() == list(range(8))


def test_a_null_timestamp_is_the_append_time() -> None:
    one = encode_block(batch_of([row(1, timestamp=None), row(2)]), BlockHeader(WRITER))
    other = encode_block(batch_of([row(3, timestamp=5)]), BlockHeader(WRITER, sequence=1))
    target = np.zeros(3 + len(one + other), np.uint8)
    assert messages.restamp(one + other, check(one + other), target, 3, 500) == (len(one + other), 3, 5, 1_000_002)
    stamped = target[3:].tobytes()
    assert [block.header.append_time_us for block in blocks(stamped)] == [500, 500]
    assert [block.header.sequence for block in blocks(stamped)] == [0, 1]
    (decoded,) = NATIVE.decode(run_of(stamped))
    assert decoded.columns["timestamp"].cast(pa.int64()).to_pylist() == [500, 1_000_002, 5]
    with pytest.raises(LocalError):
        messages.restamp(one, check(one), np.zeros(len(one) - 1, np.uint8), 0, 500)


def test_what_no_block_holds_is_refused_by_name() -> None:
    with pytest.raises(LimitExceeded, match="not 0 messages"):
        encode_block(batch_of([]))
    with pytest.raises(LocalError, match="not the columns of a native block"):
        encode_block(pa.RecordBatch.from_pydict({"payload": [b"x"]}))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"state": 2}, "state 2"),
        ({"state": None}, "state"),
        ({"headers": None}, "headers"),
    ]
    for facts, words in wrong:
        with pytest.raises(LocalError, match=words):
            encode_block(batch_of([row(0), row(1, **facts)]))
    big = pa.RecordBatch.from_arrays(
        [column if name != "payload" else pa.array([bytes(BLOCK_BYTES_MAX)]) for name, column in
         zip(SCHEMA.names, batch_of([row(1)]).columns, strict=True)],
        schema=LOOSE,
    )  # fmt: skip
    with pytest.raises(LimitExceeded, match="split the batch"):
        encode_block(big)


def test_claims_are_judged_before_memory_is_taken() -> None:
    body = bytearray(encode_block(batch_of([row(1, payload=b"x" * 10_000)]), compression="lz4"))
    stream = memoryview(body)[HEADER_BYTES:]
    found = ipc.shape(stream)
    assert found.rows == 1 and 10_000 <= found.plain_bytes <= 12_000
    # the length in front of the compressed payload: 10,000 becomes 2^40
    at = bytes(body).rindex(struct.pack("<q", 10_000))
    body[at : at + 8] = struct.pack("<q", 1 << 40)
    with pytest.raises(MalformedMessage, match="it may hold"):
        list(blocks(bytes(body)))
    body[at : at + 8] = struct.pack("<q", -2)
    with pytest.raises(MalformedMessage, match="negative"):
        list(blocks(bytes(body)))


def test_bodies_that_are_no_blocks_say_where() -> None:
    body = encode_block(batch_of([row(1)]))
    for size in range(1, len(body)):
        with pytest.raises(MalformedMessage):
            list(blocks(body[:size]))
    with pytest.raises(MalformedMessage) as raised:
        list(blocks(body + b"\xff" * 100))
    assert raised.value.at == len(body)
    longer = struct.pack("<I", len(body) - 4 + 8) + body[4:] + bytes(8)
    with pytest.raises(MalformedMessage, match="continues after"):
        list(blocks(longer))


def test_other_columns_are_malformed() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([pa.field("a", pa.int8())])) as writer:
        writer.write_batch(pa.RecordBatch.from_pydict({"a": pa.array([1], pa.int8())}))
    stream = sink.getvalue().to_pybytes()
    body = struct.pack("<I16sIQQQ", len(stream) + HEADER_BYTES - 4, bytes(16), 0, 0, 0, 0) + stream
    assert [block.rows for block in blocks(body)] == [1]
    with pytest.raises(MalformedMessage, match="not those of a Batch"):
        check(body)
    with pytest.raises(MalformedMessage, match="not those of a Batch"):
        list(NATIVE.decode(run_of(body)))


def test_blocks_may_not_hold_more_than_their_chunk() -> None:
    run = run_of(encode_block(batch_of([row(number) for number in range(3)])))
    run.chunks[0, 4] = 1
    with pytest.raises(MalformedMessage, match="more messages than their chunk"):
        list(NATIVE.decode(run))


def test_encode_is_one_block_and_nothing_can_be_salvaged() -> None:
    body = NATIVE.encode(batch_of([row(1), row(2)]))
    assert [block.rows for block in blocks(body)] == [2]
    assert len(NATIVE.salvage(run_of(body)).chunks) == 0
