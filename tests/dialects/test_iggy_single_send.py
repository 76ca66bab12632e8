"""Sends whose beginning is known, kernel and fallback: which bytes are exactly one request of a line."""

from __future__ import annotations

import random
import struct
from typing import Any, Final

import numpy as np
import pytest

from lading.dialects.iggy.classic import single_send, single_send_fallback
from lading.kernels import engine
from lading.kernels.lent_layout import COUNT, HEARD_US, LINE, LINE_BYTES_MAX, OTHER_COLUMNS, ROW_COLUMNS, UNKNOWN
from tests.endpoints import frames

SEND: Final = 101
NOW_US: Final = 7_000_000
HEADS: Final = tuple(
    struct.pack("<BBI", 1, 4, 1) + bytes([2, len(topic)]) + topic + frames.to_partition(1)
    for topic in (b"t", b"longer-topic")
)
LINES: Final = tuple(single_send.encode_line(SEND, head) for head in HEADS)
ARRAYS: Final = ("files", "spans", "rows", "others")


@pytest.fixture(params=["kernel", "fallback"])
def kernels(request: pytest.FixtureRequest) -> Any:
    return load(request.param)


def load(name: str) -> Any:
    return single_send_fallback if name == "fallback" else engine.load(single_send.KERNEL_MODULE)


def encode(number: int, *payloads: bytes) -> bytes:
    """A request as sent, from iggy.md A1 and A4."""
    body = HEADS[number] + b"".join(map(frames.message, payloads))
    return struct.pack("<II", 4 + len(body), SEND) + body


class Reads:
    """What was read of several sockets, each with a line, and the arrays of a pass."""

    def __init__(self, reads: list[tuple[bytes, int]]) -> None:
        """``reads``: bytes, and the number of the line of their socket."""
        count = len(reads)
        # in an array that ends with the last request: nothing is read after it
        self.scratch = np.frombuffer(b"".join(data for data, _ in reads), np.uint8)
        ends = np.cumsum([len(data) for data, _ in reads])
        self.files = np.arange(count, dtype=np.int64) + 3
        self.spans = np.stack((ends - [len(data) for data, _ in reads], ends), axis=1).astype(np.int64)
        self.rows = np.zeros((count + 3, ROW_COLUMNS), np.int64)
        self.rows[3:, LINE] = [line for _, line in reads]
        self.lines = np.zeros(len(LINES) * LINE_BYTES_MAX, np.uint8)
        for number, line in enumerate(LINES):
            self.lines[number * LINE_BYTES_MAX :][: len(line)] = np.frombuffer(line, np.uint8)
        self.sizes = np.array([len(line) for line in LINES], np.int64)
        self.others = np.zeros((count + 1, OTHER_COLUMNS), np.int64)

    def judge(self, kernels: Any, rest: int = 0) -> tuple[int, int, int, int]:
        result: tuple[int, int, int, int] = kernels.judge_sends(
            self.scratch, len(self.files), self.files, self.spans, rest, self.rows, self.lines, self.sizes,
            self.others, NOW_US,
        )  # fmt: skip
        return result


def test_single_requests_are_taken(kernels: Any) -> None:
    requests = [encode(1, b"one"), encode(1, b"two", b"and three"), encode(1, b"x" * 3000)]
    reads = Reads([(data, 1) for data in requests])
    assert reads.judge(kernels) == (3, 0, sum(map(len, requests)), 1)
    assert reads.files.tolist() == [3, 4, 5]
    assert reads.rows[3:, [COUNT, HEARD_US]].tolist() == [[1, NOW_US]] * 3


def test_several_lines_and_none_are_told(kernels: Any) -> None:
    assert Reads([(encode(0, b"a"), 0), (encode(1, b"b"), 1)]).judge(kernels)[0::3] == (2, -1)
    assert Reads([(encode(0, b"a"), 1)]).judge(kernels) == (0, 1, 0, -1)


GOOD: Final = encode(0, b"hello")
REFUSED: Final = {
    "another topic": encode(1, b"hello"),
    "another command": struct.pack("<II", len(GOOD) - 4, 100) + GOOD[8:],
    "half": GOOD[:-1],
    "two": GOOD + GOOD,
    "no messages": struct.pack("<I", len(LINES[0])) + LINES[0],
    "a length alone": GOOD[:4],
    "less": GOOD[:3],
    "a line of the future": GOOD,
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_all_else_is_left_to_the_session(kernels: Any, name: str) -> None:
    line = 9 if name == "a line of the future" else 0
    reads = Reads([(GOOD, 0), (REFUSED[name], line), (GOOD, 0)])
    assert reads.judge(kernels, 1) == (2, 2, 2 * len(GOOD), 0)
    assert reads.files[:2].tolist() == [3, 5]
    assert reads.others[1].tolist() == [4, len(GOOD), len(GOOD) + len(REFUSED[name]), UNKNOWN]
    assert reads.rows[4, COUNT] == 0


def test_arrays_without_room_are_refused(kernels: Any) -> None:
    for name in (*ARRAYS, "lines"):
        reads = Reads([(GOOD, 0)] * 2)
        array = getattr(reads, name)
        short = array[:-2] if name == "others" else array[:, :-1] if name == "rows" else array[:-1]
        setattr(reads, name, np.ascontiguousarray(short))
        used = reads.files if name == "files" else np.array([3, 4])
        arguments = (reads.spans, 0, reads.rows, reads.lines, reads.sizes, reads.others, NOW_US)
        assert kernels.judge_sends(reads.scratch, 2, used, *arguments) == (0, 0, 0, -2), name
    # a place outside of the bytes, and a socket without a row, are passed over
    reads = Reads([(GOOD, 0)] * 3)
    reads.spans[0, 1], reads.files[1] = 10_000, 99
    assert reads.judge(kernels)[:2] == (1, 0)


def _damage(chance: random.Random, data: bytes) -> bytes:
    kind, changed = chance.randrange(7), bytearray(data)
    if kind == 0:
        return data[: chance.randrange(1, len(data))]
    if kind == 1:
        return data + chance.randbytes(chance.randrange(1, 4))
    if kind == 2:
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    if kind == 3:
        changed[chance.randrange(min(len(changed), 40))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _fuzz(seed: int, reads_count: int) -> None:
    chance = random.Random(seed)
    sent: list[tuple[bytes, int]] = []
    for _ in range(reads_count):
        number = chance.randrange(2)
        payloads = [chance.randbytes(chance.choice((1, 70, 200))) for _ in range(chance.choice((1, 1, 1, 2)))]
        line = number if chance.random() < 0.9 else chance.randrange(-1, 4)
        sent.append((_damage(chance, encode(number, *payloads)), line))
    sides = {name: Reads(sent) for name in ("kernel", "fallback")}
    results = {name: reads.judge(load(name)) for name, reads in sides.items()}
    assert results["kernel"] == results["fallback"], seed
    expected = [
        number
        for number, (data, line) in enumerate(sent)
        if 0 <= line < len(LINES)
        and len(data) > 4 + len(LINES[line])
        and struct.unpack_from("<I", data)[0] == len(data) - 4
        and data[4:].startswith(LINES[line])
    ]
    assert (sides["kernel"].files[: results["kernel"][0]] - 3).tolist() == expected, seed
    for name in ARRAYS:
        assert np.array_equal(*(getattr(reads, name) for reads in sides.values())), (seed, name)


@pytest.mark.timeout(3000)
def test_kernel_and_fallback_judge_alike(full: bool) -> None:
    for seed in range(10_000) if full else [random.randrange(1 << 30) for _ in range(4)]:
        _fuzz(seed, 100)
