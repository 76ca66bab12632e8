"""Record batches to columns and back: the vectors of three real clients, clipping, caps, damage and lies."""

from __future__ import annotations

import random
import resource
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.dialects.kafka import layout, messages
from lading.dialects.kafka.batch_compaction import keep
from lading.dialects.kafka.encode import ProducerSequence, RecordEncoder
from lading.dialects.registry import dialect, to_batch
from lading.kernels import engine
from lading.model.batch import SCHEMA
from lading.model.chunk_table import BASE_OFFSET, LAST_OFFSET
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.names import key_text
from lading.model.run import Located, Run
from lading.model.scan_request import ScanRequest
from tests.dialects.kafka import batch, bomb, record, run_of, vectors

KAFKA = dialect("kafka")
GIVEN = [pytest.param(entry, id=f"{entry['name']}-{entry['producer'].split()[0]}") for entry in vectors()["vectors"]]
NAMES = [entry["name"] for entry in vectors()["negative"]]
WELL_FORMED = ("bad_crc", "header_key_invalid_utf8")


def rows(run: Run, **options: Any) -> list[dict[str, Any]]:
    return [
        row for decoded in KAFKA.decode(run, ScanRequest(**options)) for row in plain(to_batch(decoded)).to_pylist()
    ]


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With times as numbers: Python's own end in the year 9999."""
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, "time_us", batch.column(at).cast(pa.int64()))


def batches(run: Run, **options: Any) -> list[pa.RecordBatch]:
    found = [to_batch(decoded) for decoded in KAFKA.decode(run, ScanRequest(**options))]
    for each in found:
        each.validate(full=True)
    return found


def values(located: Located) -> list[bytes | None]:
    spans = zip(located.start.tolist(), located.length.tolist(), strict=True)
    return [located.data[start : start + length].tobytes() if length >= 0 else None for start, length in spans]


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def told(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What a vector says its records are, as rows of a Batch."""
    return [
        {
            "offset": entry["header"]["base_offset"] + each["offset_delta"],
            "time_us": each["timestamp"] * 1000,
            "key": unhex(each["key_hex"]),
            "payload": unhex(each["value_hex"]),
            "headers": [(name, unhex(held)) for name, held in each["headers"]],
        }
        for each in entry["records"]
    ]


def shown(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [
        {
            "offset": row["offset"],
            "time_us": row["time_us"],
            "key": row["key"],
            "payload": row["payload"],
            "headers": [(header["key"], header["value"]) for header in row["headers"]],
        }
        for row in plain(batch).to_pylist()
    ]


@pytest.mark.parametrize("entry", GIVEN)
def test_what_real_clients_sent_decodes_to_what_they_meant(half: str, entry: dict[str, Any]) -> None:
    run = run_of(bytes.fromhex(entry["batch_hex"]))
    assert [row for found in batches(run) for row in shown(found)] == told(entry)
    assert {header["kind"] for row in rows(run) for header in row["headers"]} <= {1}
    surveyed = messages.read_batches(run.region, 0, run.region.size)
    assert (surveyed.reason, len(surveyed.table), surveyed.end) == (0, 1, run.region.size)
    assert surveyed.table[0, layout.PRODUCER] == entry["header"]["producer_id"]


@pytest.mark.parametrize("max_rows", [1, 7, 10_000])
def test_all_clients_batches_as_one_log(half: str, max_rows: int) -> None:
    bodies, want, base = [], [], 0
    for entry in vectors()["vectors"]:
        data = bytes.fromhex(entry["batch_hex"])
        bodies.append(base.to_bytes(8, "big") + data[8:])
        want += [{**row, "offset": row["offset"] + base} for row in told(entry)]
        base += entry["header"]["last_offset_delta"] + 1
    for run in (run_of(*bodies), run_of(b"".join(bodies))):
        found = batches(run, max_rows=max_rows)
        assert max(each.num_rows for each in found) <= max_rows
        assert [row for each in found for row in shown(each)] == want
    low, high = base // 3, base // 2
    clipped = [row for each in batches(run, first=low, end=high, max_rows=max_rows) for row in shown(each)]
    assert clipped == [row for row in want if low <= row["offset"] < high]


def test_only_what_is_asked_for_is_made(half: str) -> None:
    headers: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", None), (b"a", b"2"), (b"\xff", b"odd")]
    run = run_of(batch([record(0, headers=headers), record(1), record(2, headers=headers[:2])]))
    (decoded,) = KAFKA.decode(run, ScanRequest(fields=frozenset({"offset"}), keys=("a", "b", "\\xff", "none")))
    assert list(decoded.columns) == ["offset"]
    assert values(decoded.located["a"]) == [b"2", None, b"1"]
    assert decoded.located["b"].length.tolist() == [-2, -1, -2]
    assert values(decoded.located["\\xff"]) == [b"odd", None, None]
    assert decoded.located["a"].kind.tolist() == [1, 0, 1]
    assert decoded.located["none"].length.tolist() == [-1, -1, -1]
    assert [header["key"] for header in rows(run)[0]["headers"]] == ["a", "b", "a", "\\xff"]


def test_control_records_are_no_messages(half: str) -> None:
    for entry in vectors()["control_synthesised"]:
        run = run_of(batch([record(0)]), bytes.fromhex(entry["batch_hex"]))
        assert [row["offset"] for row in rows(run)] == [0]


def test_gaps_of_compaction_are_kept(half: str) -> None:
    run = run_of(batch([record(0), record(7)], 10, delta=9), batch([], 20, delta=4), batch([record(1)], 40, delta=1))
    assert [row["offset"] for row in rows(run)] == [10, 17, 41]


def test_times_of_the_log_and_times_out_of_range(half: str) -> None:
    late = batch([record(0), record(1, time_delta=-9)], attributes=8, max_time_ms=5)
    early = batch([record(0)], 2, base_time_ms=-1)
    far = batch([record(0, time_delta=(1 << 62) - 1)], 3, base_time_ms=1 << 62)
    found = [row["time_us"] for each in batches(run_of(late, early, far)) for row in shown(each)]
    assert found == [5000, 5000, -1000, ((1 << 63) - 1) // 1000 * 1000]


NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("base_ms", "delta_ms", "read_ms"),
    [
        (1 << 62, NOW_MS - (1 << 62), NOW_MS),
        (-(1 << 63), NOW_MS - (1 << 63), NOW_MS),
        ((1 << 63) - 1, 1 + NOW_MS, NOW_MS - (1 << 63)),
    ],
)
def test_a_time_is_the_sum_of_base_and_delta_as_64_bits_hold_it(
    half: str, base_ms: int, delta_ms: int, read_ms: int
) -> None:
    """Kafka 4.3.1 adds two longs of Java (DefaultRecord.readFrom), and so does librdkafka: the sum wraps."""
    run = run_of(batch([record(0, time_delta=delta_ms)], base_time_ms=base_ms))
    (row,) = rows(run)
    assert row["time_us"] == max(read_ms, -layout.TIME_MS_MAX) * 1000


def test_the_latest_time_of_a_compacted_batch_is_a_wrapped_sum() -> None:
    base_ms = 1 << 62
    records = [record(number, time_delta=NOW_MS + number - base_ms) for number in range(3)]
    (kept,) = keep(run_of(batch(records, base_time_ms=base_ms)), [(0, 2)])
    assert layout.BATCH_HEADER.unpack_from(kept.body)[8] == NOW_MS + 1


@pytest.mark.parametrize("entry", vectors()["negative"], ids=NAMES)
def test_what_no_client_may_send_is_refused(half: str, entry: dict[str, Any]) -> None:
    run = run_of(bytes.fromhex(entry["batch_hex"]))
    surveyed = messages.read_batches(run.region, 0, run.region.size)
    assert (surveyed.reason == layout.BAD_CRC) == (entry["name"] == "bad_crc")
    if entry["name"] in WELL_FORMED:
        rows(run)
        return
    with pytest.raises(MalformedMessage):
        rows(run)


LIES = {
    "more records than bytes": batch([record(0)], count=2_000_000_000, delta=2_000_000_000),
    "fewer records than bytes": batch([record(0), record(1)], count=1, delta=1),
    "a negative count": batch([record(0)], count=-1),
    "more records than offsets": batch([record(0), record(1)], delta=0),
    "an offset twice": batch([record(0), record(0)]),
    "an offset behind the last": batch([record(0), record(5)]),
    "a key longer than the record": batch([b"\x0e\0\0\0\x7f\x02\0\0"]),
    "a varint without end": batch([b"\xff" * 40]),
    "an offset past 2^63": batch([record(0)], base=(1 << 63) - 1, delta=1 << 30, count=1),
    "format 1": batch([record(0)])[:16] + b"\1" + batch([record(0)])[17:],
    "an unknown codec": batch([record(0)], attributes=7),
    "snappy that claims 2 GB": batch([], data=b"\xff\xff\xff\xff\x07abc", attributes=2, count=1, delta=0),
    "xerial cut short": batch([], data=b"\x82SNAPPY\0" + bytes(8) + b"\0\0\xff\xff", attributes=2, count=1, delta=0),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_are_malformed(half: str, name: str) -> None:
    with pytest.raises(MalformedMessage):
        rows(run_of(LIES[name]))


@pytest.mark.turns(2)
def test_a_bomb_takes_no_memory_beyond_its_limit(half: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MalformedMessage):
        rows(run_of(bomb()))
    # the bomb itself is made of 300 MiB here
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700 << 10


def mutated(data: bytes, dice: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(out))
        match dice.randrange(4):
            case 0:
                out[at] ^= 1 << dice.randrange(8)
            case 1:
                out[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del out[at : at + dice.randint(1, 9)]
            case 3:
                out[at:at] = dice.randbytes(dice.randint(1, 9))
        if not out:
            return b"\0"
    return bytes(out)


def test_mutated_batches_decode_or_are_malformed_and_both_halves_agree(full: bool) -> None:
    dice = random.Random(5)
    pool = [bytes.fromhex(entry["batch_hex"]) for entry in vectors()["vectors"] if len(entry["batch_hex"]) < 4000]
    refused = 0
    tries = 40_000 if full else 1_500
    for _ in range(tries):
        run = run_of(mutated(dice.choice(pool), dice))
        answers: list[Any] = []
        for select in (lambda home, plain, size: engine.load(home), lambda home, plain, size: plain):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine, "select", select)
                try:
                    answers.append(rows(run, keys=("a", "trace"), max_rows=dice.choice((3,))))
                except MalformedMessage as error:
                    answers.append(str(error))
        assert answers[0] == answers[1]
        refused += isinstance(answers[0], str)
    print(f"{tries} mutated batches: {refused} refused, the rest decoded alike by both halves")
    assert refused


# encoding


def made(entries: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows of ``told`` as a Batch."""
    columns = {
        "offset": [entry["offset"] for entry in entries],
        "state": [1] * len(entries),
        "timestamp": [entry["time_us"] for entry in entries],
        "id": [None] * len(entries),
        "checksum": [None] * len(entries),
        "key": [entry["key"] for entry in entries],
        "headers": [[{"key": name, "kind": 1, "value": held} for name, held in entry["headers"]] for entry in entries],
        "payload": [entry["payload"] for entry in entries],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


PLAIN = [entry for entry in vectors()["vectors"] if not entry["header"]["attributes"]]


@pytest.mark.parametrize("entry", PLAIN, ids=[f"{entry['name']}-{entry['producer'].split()[0]}" for entry in PLAIN])
def test_encoding_gives_the_bytes_of_real_clients(half: str, entry: dict[str, Any]) -> None:
    batch = made(told(entry))
    times: Any = batch.column("timestamp").cast(pa.int64())
    head = entry["header"]
    producer = ProducerSequence(head["producer_id"], head["producer_epoch"], head["base_sequence"])
    data = bytes(RecordEncoder(batch, times.to_numpy()).encode(0, batch.num_rows, producer))
    want = bytes.fromhex(entry["batch_hex"])
    # the leader epoch is the broker's
    assert bytes(data[:12] + data[16:]) == want[:12] + want[16:]


def test_slices_and_splits_decode_to_the_same(half: str) -> None:
    entries = [row for entry in PLAIN for row in told(entry)]
    whole = made([{**row, "offset": at} for at, row in enumerate(entries)])
    part = whole.slice(5, 20)
    body = KAFKA.encode(part)
    assert [row for each in batches(run_of(body)) for row in shown(each)] == shown(part)
    times: Any = whole.column("timestamp").cast(pa.int64())
    records = RecordEncoder(whole, times.to_numpy())
    cuts = list(records.split_batches(bytes_max=2_000))
    assert cuts[0][0] == 0 and cuts[-1][1] == whole.num_rows and all(low < high for low, high in cuts)
    assert all(len(records.encode(low, high)) <= 2_000 or high == low + 1 for low, high in cuts)


def test_lz4_of_ours_is_read_and_only_used_where_it_helps(half: str) -> None:
    entries: list[dict[str, Any]] = [
        {"offset": at, "time_us": at * 1000, "key": None, "payload": b"x" * 200, "headers": []} for at in range(50)
    ]
    batch = made(entries)
    records = RecordEncoder(batch, np.arange(50) * 1000)
    packed, plain = records.encode(0, 50, compression="lz4"), records.encode(0, 50)
    assert len(packed) < len(plain) and packed[22] == 3
    assert [row for each in batches(run_of(bytes(packed))) for row in shown(each)] == shown(batch)
    assert records.encode(0, 1, compression="lz4")[22] in (0, 3)


def test_typed_header_keys_are_refused_by_name(half: str) -> None:
    batch = made([{"offset": 0, "time_us": 0, "key": None, "payload": None, "headers": [("\\k4:05", b"")]}])
    with pytest.raises(LimitExceeded, match="k4:05"):
        KAFKA.encode(batch)
    odd = made([{"offset": 0, "time_us": 0, "key": None, "payload": None, "headers": [(key_text(b"\xff\\"), b"")]}])
    assert shown(batches(run_of(KAFKA.encode(odd)))[0])[0]["headers"] == [(key_text(b"\xff\\"), b"")]


def test_salvage_finds_whole_batches_around_damage(half: str) -> None:
    whole = [batch([record(0), record(1)], base) for base in (10, 12, 14, 16)]
    body = bytearray(b"".join(whole))
    body[len(whole[0]) + 70] ^= 1
    body[2 * len(whole[0]) + len(whole[0]) - 1] ^= 1
    region = np.frombuffer(bytes(body), np.uint8)
    damaged = Run(4, region, np.array([[0, len(body), 10, 8, 17, 0, 0, 0]], np.int64))
    saved = KAFKA.salvage(damaged)
    assert saved.chunks[:, (BASE_OFFSET, LAST_OFFSET)].tolist() == [[10, 11], [16, 17]]
    assert [row["offset"] for row in rows(saved)] == [10, 11, 16, 17]
