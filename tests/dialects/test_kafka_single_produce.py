"""Single Produce requests that are taken together, kernels and fallbacks: what is taken, stored and responded."""

from __future__ import annotations

import random
import struct
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest

from lading.dialects.kafka import single_produce, single_produce_fallback, single_produce_layout, validation
from lading.dialects.kafka.produce import (
    FLEXIBLE,
    PREFIX_AT,
    Outcome,
    encode_response,
    parse_produce_request,
    response_layout,
)
from lading.dialects.kafka.requests import parse_request_header
from lading.dialects.kafka.single_produce_layout import (
    BATCH_AT,
    BATCH_BYTES,
    CORRELATION,
    FACT_COLUMNS,
    PARTITION,
    PRODUCER,
    PRODUCER_EPOCH,
    SEQUENCE,
)
from lading.dialects.kafka.versions import PRODUCE
from lading.kernels import engine
from lading.kernels.lent_layout import COUNT, HEARD_US, LINE, LINE_BYTES_MAX, OTHER_COLUMNS, ROW_COLUMNS, UNKNOWN
from lading.model.errors import LadingError
from tests.endpoints.kafka_frames import NOW_MS, batch, produce, record, request_frame

VERSIONS: Final = (3, 7, 8, 9, 12)
NOW_US: Final = 7_000_000
ARRAYS: Final = ("files", "spans", "rows", "facts", "others")


@pytest.fixture(params=["kernel", "fallback"])
def kernels(request: pytest.FixtureRequest) -> Any:
    return load(request.param)


def load(name: str) -> ModuleType:
    return single_produce_fallback if name == "fallback" else engine.load(single_produce.KERNEL_MODULE)


def encode(version: int, data: bytes, correlation: int = 7, partition: int = 0, topic: str = "t") -> bytes:
    frame = request_frame("Produce", version, correlation, **produce(topic, data, partition=partition))
    return struct.pack(">I", len(frame)) + frame


def find_line(request: bytes) -> bytes:
    """The line of a request, by the parser that every session uses."""
    frame = memoryview(request)[4:]
    head = parse_request_header(frame)
    end = parse_produce_request(frame, head, 100).prefix_end
    return single_produce.encode_line(head.version, bytes(frame[PREFIX_AT:end]))


def plain(*values: bytes, **fields: Any) -> bytes:
    return batch(b"".join(record(delta, value) for delta, value in enumerate(values)), len(values), **fields)


class Reads:
    """What was read of several sockets, each with a line, and the arrays of a pass."""

    def __init__(self, reads: list[tuple[bytes, int]], lines: list[bytes]) -> None:
        """``reads``: bytes, and the number of the line of their socket."""
        count = len(reads)
        # in an array that ends with the last request: nothing is read after it
        self.scratch = np.frombuffer(b"".join(data for data, _ in reads), np.uint8)
        ends = np.cumsum([len(data) for data, _ in reads])
        self.files = np.arange(count, dtype=np.int64) + 3
        self.spans = np.stack((ends - [len(data) for data, _ in reads], ends), axis=1).astype(np.int64)
        self.rows = np.zeros((count + 3, ROW_COLUMNS), np.int64)
        self.rows[3:, LINE] = [line for _, line in reads]
        self.lines = np.zeros(len(lines) * LINE_BYTES_MAX, np.uint8)
        for number, line in enumerate(lines):
            self.lines[number * LINE_BYTES_MAX :][: len(line)] = np.frombuffer(line, np.uint8)
        self.sizes = np.array([len(line) for line in lines], np.int64)
        self.facts = np.zeros((count, FACT_COLUMNS), np.int64)
        self.others = np.zeros((count + 1, OTHER_COLUMNS), np.int64)

    def judge(self, kernels: Any, rest: int = 0) -> tuple[int, int, int, int]:
        result: tuple[int, int, int, int] = kernels.judge_requests(
            self.scratch, len(self.files), self.files, self.spans, rest, self.rows, self.lines, self.sizes, self.facts,
            self.others, NOW_US,
        )  # fmt: skip
        return result


def is_single(data: bytes, line: bytes) -> bool:
    """Whether the parsers and checks that sessions use find one plain batch and nothing else to say or to write.

    What the broker says of its producer's numbers comes later.
    """
    try:
        if struct.unpack_from(">I", data)[0] != len(data) - 4 or find_line(data) != line:
            return False
        frame = memoryview(data)[4:]
        head = parse_request_header(frame)
        request = parse_produce_request(frame, head, 100)
        ((_, (place,)),) = request.topics
        # the session chooses the parser by the key; whether the partition exists is asked before the append
        if head.key != PRODUCE or request.prefix_end == 0:
            return False
        source = np.frombuffer(frame, np.uint8)
        facts = validation.parse_batch_header(
            source, place.start, place.size_bytes, version=head.version, size_max=1 << 20
        )
        times = validation.validate_batch(source, place.start, facts)
    except (LadingError, struct.error, ValueError):
        return False
    tail = 3 if head.version >= FLEXIBLE else 0
    is_all = place.start + place.size_bytes + tail == len(frame) and not any(frame[len(frame) - tail :])
    return is_all and not facts.attributes and facts.max_ms == times.highest_ms


def test_the_layout_is_that_of_the_protocol() -> None:
    assert single_produce_layout.FLEXIBLE_FROM == FLEXIBLE


@pytest.mark.parametrize("version", VERSIONS)
def test_single_requests_are_taken(kernels: Any, version: int) -> None:
    requests = [
        encode(version, plain(b"one"), 1),
        encode(version, plain(b"two", b"and three"), -5),
        encode(version, plain(b"x" * 300, base_ms=NOW_MS + 5), 3),
    ]
    reads = Reads([(data, 0) for data in requests], [find_line(requests[0])])
    assert reads.judge(kernels) == (3, 0, sum(map(len, requests)), 1)
    assert reads.facts[:, PARTITION].tolist() == [0, 0, 0]
    assert reads.facts[:, CORRELATION].tolist() == [1, 2**32 - 5, 3]
    assert [reads.scratch[row[BATCH_AT] :][: row[BATCH_BYTES]].tobytes() for row in reads.facts.tolist()] == [
        plain(b"one"), plain(b"two", b"and three"), plain(b"x" * 300, base_ms=NOW_MS + 5)
    ]  # fmt: skip
    assert kernels.sum_up(reads.facts) == (
        int(reads.facts[:, BATCH_BYTES].sum()), len(plain(b"x" * 300)), 4, NOW_MS, NOW_MS + 5, 0
    )  # fmt: skip
    assert reads.rows[3:, [COUNT, HEARD_US]].tolist() == [[1, NOW_US]] * 3


def test_numbers_of_producers_are_facts(kernels: Any) -> None:
    numbers = [(1, 0, 0), ((1 << 63) - 1, (1 << 15) - 1, (1 << 31) - 1), (-1, -1, -1), (-5, 4, 3), (0, 256, 65_536)]
    requests = [encode(9, plain(b"x", b"y", producer=each)) for each in numbers]
    reads = Reads([(data, 0) for data in requests], [find_line(requests[0])])
    assert reads.judge(kernels)[0] == len(numbers)
    expected = [list(each) if each[0] >= 0 else [-1, 0, 0] for each in numbers]
    assert reads.facts[:, [PRODUCER, PRODUCER_EPOCH, SEQUENCE]].tolist() == expected
    assert kernels.sum_up(reads.facts)[5] == 3


def test_several_partitions_and_lines_are_told(kernels: Any) -> None:
    first, second = encode(9, plain(b"a"), partition=1), encode(9, plain(b"b"), partition=2)
    assert Reads([(first, 0), (second, 0)], [find_line(first)]).judge(kernels)[3] == 0
    other = encode(9, plain(b"b"), partition=1, topic="u")
    assert Reads([(first, 0), (other, 1)], [find_line(first), find_line(other)]).judge(kernels)[3] == 0
    assert Reads([(first, 0), (first, 0)], [find_line(first)]).judge(kernels)[3] == 1


REFUSED: Final = {
    "compressed": plain(b"x", attributes=1),
    "append time": plain(b"x", attributes=8),
    "a transaction": plain(b"x", attributes=16, producer=(1, 0, 0)),
    "an epoch": plain(b"x", producer=(1, -1, 0)),
    "a number": plain(b"x", producer=(1, 0, -1)),
    "checksum": plain(b"x", crc=1),
    "old format": plain(b"x", magic=1),
    "two batches": plain(b"x") * 2,
    "short": plain(b"x")[:-1],
    "length": plain(b"x", length=10),
    "delta": plain(b"x", last_delta=1),
    "times": plain(b"x", max_ms=NOW_MS + 1),
    "no records": batch(b"", 0),
    "too few records": batch(record(0, b"x"), 2),
    "offset": batch(record(1, b"x"), 1),
    "nothing": b"",
}


@pytest.mark.parametrize("name", list(REFUSED))
@pytest.mark.parametrize("version", [8, 9])
def test_all_else_is_left_to_the_session(kernels: Any, version: int, name: str) -> None:
    good, bad = encode(version, plain(b"x")), encode(version, REFUSED[name])
    reads = Reads([(good, 0), (bad, 0), (good, 0)], [find_line(good)])
    assert reads.judge(kernels, 1) == (2, 2, 2 * len(good), 1)
    assert reads.files[:2].tolist() == [3, 5]
    assert reads.others[1].tolist() == [4, len(good), len(good) + len(bad), UNKNOWN]
    assert reads.rows[4, COUNT] == 0


def test_arrays_without_room_are_refused(kernels: Any) -> None:
    request = encode(9, plain(b"x"))
    for name in (*ARRAYS, "lines"):
        reads = Reads([(request, 0)] * 2, [find_line(request)])
        array = getattr(reads, name)
        short = array[:-2] if name == "others" else array[:, :-1] if name == "rows" else array[:-1]
        setattr(reads, name, np.ascontiguousarray(short))
        files = np.array([3, 4])
        arguments = (reads.spans, 0, reads.rows, reads.lines, reads.sizes, reads.facts, reads.others, NOW_US)
        used = reads.files if name == "files" else files
        assert kernels.judge_requests(reads.scratch, 2, used, *arguments) == (0, 0, 0, -1), name
    # a place outside of the bytes, and a socket without a row, are passed over
    reads = Reads([(request, 0)] * 3, [find_line(request)])
    reads.spans[0, 1], reads.files[1] = 10_000, 99
    assert reads.judge(kernels)[:2] == (1, 0)


def _damage(chance: random.Random, data: bytes) -> bytes:
    kind = chance.randrange(8)
    changed = bytearray(data)
    if kind < 3:
        return data
    if kind == 3:
        return data[: chance.randrange(1, len(data))]
    if kind == 4:
        return data + chance.randbytes(chance.randrange(1, 4))
    if kind == 5:
        # a length and what it is the length of
        at = chance.randrange(4, len(data))
        del changed[at : at + chance.randrange(1, 5)]
        changed[:4] = struct.pack(">I", len(changed) - 4)
        return bytes(changed)
    for _ in range(chance.randrange(1, 3)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _choose_batch(chance: random.Random) -> bytes:
    count = chance.choice((1, 1, 1, 2, 5))
    records = b"".join(
        record(
            delta, chance.choice((None, b"", chance.randbytes(chance.choice((1, 70, 200))))),
            chance.choice((None, b"key")), [(b"name", chance.choice((None, b"value")))] * chance.randrange(3),
            ms=chance.choice((0, 0, 70)),
        )
        for delta in range(count)
    )  # fmt: skip
    highest = chance.choice((NOW_MS, NOW_MS + 70))
    producer = chance.choice(((-1, -1, -1),) * 3 + ((7, 0, 5), (1 << 40, 3, (1 << 31) - 1), (1, -1, 0), (1, 0, -2)))
    fields: dict[str, Any] = {"max_ms": highest, "attributes": chance.choice((0,) * 12 + (1, 8)), "producer": producer}
    data = bytearray(batch(records, count, **fields))
    if chance.random() < 0.2:
        # right but for one bit: with its checksum again, so that more than that is judged
        at = chance.randrange(21, len(data))
        data[at] ^= 1 << chance.randrange(8)
        source = np.frombuffer(bytes(data), np.uint8)
        data[17:21] = struct.pack(">I", validation.kernels_for(0).checksum(source, 21, len(data)))
    return bytes(data)


def _fuzz(seed: int, reads_count: int) -> None:
    chance = random.Random(seed)
    first = [encode(version, plain(b"x"), topic=topic) for version in VERSIONS for topic in ("t", "longer-topic")]
    lines = [find_line(request) for request in first]
    sent: list[tuple[bytes, int]] = []
    for _ in range(reads_count):
        number = chance.randrange(len(lines))
        version, topic = VERSIONS[number // 2], ("t", "longer-topic")[number % 2]
        request = encode(version, _choose_batch(chance), chance.randrange(1 << 31), chance.randrange(3), topic)
        sent.append((_damage(chance, request), number if chance.random() < 0.95 else chance.randrange(len(lines))))
    sides = {name: Reads(sent, lines) for name in ("kernel", "fallback")}
    results = {name: reads.judge(load(name)) for name, reads in sides.items()}
    expected = [number for number, (data, line) in enumerate(sent) if is_single(data, lines[line])]
    taken, rest, size_bytes, _ = results["kernel"]
    assert results["kernel"] == results["fallback"], seed
    assert (sides["kernel"].files[:taken] - 3).tolist() == expected, seed
    assert taken + rest == len(sent)
    assert size_bytes == sum(len(sent[number][0]) for number in expected)
    for name in ARRAYS:
        assert np.array_equal(*(getattr(reads, name) for reads in sides.values())), (seed, name)


@pytest.mark.timeout(3000)
def test_kernel_fallback_and_session_judge_alike(full: bool) -> None:
    for seed in range(10_000) if full else [random.randrange(1 << 30) for _ in range(4)]:
        _fuzz(seed, 100)


def test_batches_are_stored_as_one_after_the_other(kernels: Any) -> None:
    batches = [plain(b"a"), plain(b"b", b"c"), plain(b"d" * 200)]
    requests = [encode(9, data) for data in batches]
    reads = Reads([(data, 0) for data in requests], [find_line(requests[0])])
    reads.judge(kernels)
    size = sum(map(len, batches))
    expected, at, offset = np.zeros(size + 5, np.uint8), 5, 1000
    for data in batches:
        source = np.frombuffer(data, np.uint8)
        facts = validation.parse_batch_header(source, 0, len(data), version=9, size_max=1 << 20)
        expected[at : at + len(data)] = source
        validation.stamp(expected, at, facts, validation.validate_batch(source, 0, facts), offset, 3, None)
        at += len(data)
        offset += facts.records
    target = np.zeros(size + 5, np.uint8)
    assert kernels.store_batches(reads.scratch, reads.facts, target, 5, 1000, 3) == size + 5
    assert target.tobytes() == expected.tobytes()
    # without room for all, and of a place outside of what was read, nothing is written
    target[:] = 0
    assert kernels.store_batches(reads.scratch, reads.facts, target, 6, 1000, 3) == -1
    reads.facts[2, BATCH_AT] += 10
    assert kernels.store_batches(reads.scratch, reads.facts, target, 5, 1000, 3) == -1
    assert not target.any()


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_those_of_sessions(kernels: Any, version: int) -> None:
    requests = [encode(version, plain(*[b"x"] * count), 10 + count, partition=2) for count in (1, 3, 2)]
    reads = Reads([(data, 0) for data in requests], [find_line(requests[0])])
    reads.judge(kernels)
    layout = response_layout(version, [(b"t", 1)])
    template = single_produce.encode_template(layout, Outcome(2, 0, 0, -1, 17))
    responses = np.zeros(3 * template.size, np.uint8)
    offset_at = single_produce.find_offset(layout)
    assert kernels.fill_responses(template, reads.facts, offset_at, 500, responses) == 3
    places = ((11, 500), (13, 501), (12, 504))
    expected = [encode_response(layout, correlation, [Outcome(2, 0, at, -1, 17)]) for correlation, at in places]
    assert responses.tobytes() == b"".join(expected)
    # a refusal has no offset to set
    refusal = single_produce.encode_template(layout, Outcome(2, 56, message="the disk is full"))
    responses = np.zeros(3 * refusal.size, np.uint8)
    assert kernels.fill_responses(refusal, reads.facts, -1, 0, responses) == 3
    expected = [encode_response(layout, each, [Outcome(2, 56, message="the disk is full")]) for each, _ in places]
    assert responses.tobytes() == b"".join(expected)
    assert kernels.fill_responses(refusal, reads.facts, -1, 0, responses[:-1]) == -1
