"""The fuzz rule: any bytes give a value or MalformedMessage, the same from kernel and twin, and nobody reads past them.

Cases are mutations of valid messages, chunks and blocks. The sample takes seconds; ``make test-full`` runs a million
of each kind.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lading.chunk import envelope, overlay, runs
from lading.chunk import fallback as chunk_twin
from lading.dialects.iggy.classic import fallback, messages, send_fallback, stored_fallback
from lading.dialects.iggy.messages import layout
from lading.dialects.native.messages import blocks, check, encode_block
from lading.dialects.registry import dialect, to_batch
from lading.kernels import engine
from lading.model.errors import MalformedMessage
from lading.model.run import Run
from lading.model.scan_request import ScanRequest
from tests.chunk.test_envelope import chunk
from tests.dialects.iggy_classic import sent, stored
from tests.dialects.test_native import batch_of, row
from tests.guard_pages import Guarded

SAMPLE, FULL = 1_500, 1_000_000
ODD_BYTES = (0, 1, 2, 4, 5, 8, 9, 0x5C, 0x7F, 0x80, 0xC3, 0xFE, 0xFF)
ODD_WORDS = (0, 1, 8, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF)
HEADERS = [(b"carrier", 2, b"UA"), (b"delay", 7, bytes(8)), ("Größe".encode(), 2, b"\xff"), (b"\\k", 1, b"x" * 70)]


@pytest.fixture
def cases(full: bool, request: pytest.FixtureRequest) -> Iterator[Callable[..., Iterator[bytes]]]:
    """Mutations of some bytes, the same ones in every run; a test that comes in n variants takes a share of 1 / n."""
    started = time.perf_counter()
    made = 0

    def mutated(seed: bytes, share: int = 1) -> Iterator[bytes]:
        nonlocal made
        generator = random.Random(request.node.name)
        for _ in range(FULL // share if full else SAMPLE):
            made += 1
            yield mutate(seed, generator)

    yield mutated
    if full:
        print(f"{request.node.name}: {made} cases in {time.perf_counter() - started:.0f} s")


def mutate(seed: bytes, generator: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(generator.choice((0, 1, 1, 1, 2, 3, 8))):
        at = generator.randrange(len(data))
        match generator.randrange(5):
            case 0:
                data[at] ^= 1 << generator.randrange(8)
            case 1:
                data[at] = generator.choice(ODD_BYTES)
            case 2:
                data[at : at + 4] = generator.choice(ODD_WORDS).to_bytes(4, "little")
            case 3:
                del data[at : at + generator.randrange(1, 9)]
            case 4:
                other = generator.randrange(len(data))
                data[at:at] = data[other : other + generator.randrange(1, 40)]
        data = data or bytearray(1)
    return bytes(data[: generator.randrange(len(data))] if generator.random() < 0.2 else data)


STORED = b"".join(stored(n, payload=b"p" * (n + 1), headers=HEADERS[:n]) for n in range(5))
SENT = b"".join(sent(payload=b"p" * (n + 1), headers=HEADERS[:n], id_=n) for n in range(5))
KEYS = (b"carrier", b"delay")
FIXED = (8, 1, 8, 16, 4)
"""Bytes of the fields in front of the headers, as fill writes them."""


def scanned(
    half: Any, region: Any, wants: int, fixed: tuple[int, ...] = FIXED, sought: tuple[bytes, ...] = KEYS
) -> tuple[Any, ...]:
    """All that scan and fill say of stored messages."""
    chunks = np.array([[0, region.size // 2, 0, 9, 3, 0, 0, 0], [region.size // 2, region.size, 2, 9, 99, 0, 0, 0]])
    chunks = chunks if wants & 4 else np.array([[0, region.size, 0, 9, 99, 0, 0, 0]])
    cursor, totals = np.array([0, -1, -1]), np.zeros(layout.TOTALS, np.int64)
    rows = np.full(3, -7)
    places = np.zeros((2, 3), np.int64), np.zeros((2, 3), np.int64), np.zeros((2, 3), np.int8)
    keys = np.frombuffer(b"".join(sought) + bytes(8), np.uint8), np.cumsum([len(key) for key in sought])
    reason = half.scan(region, chunks, cursor, 0, 90, 3, 400, wants & 3, *keys, rows, *places, totals)
    said = [
        reason,
        cursor.tolist(),
        totals.tolist(),
        rows.tolist(),
        *(place[:, : totals[0]].tolist() for place in places),
    ]
    if reason == layout.FINE and totals[0]:
        count, headers = int(totals[0]), int(totals[1])
        sizes = [*(size * count for size in fixed), 4 * count + 4, 4 * headers + 4, int(totals[2]) + 8]
        sizes += [headers, 4 * headers + 4, int(totals[3]) + 8, 4 * count + 4, int(totals[4])]
        asked = [True] * len(fixed) + [bool(wants & 1)] * 6 + [bool(wants & 2)] * 2
        starts = np.cumsum([0, *sizes])
        memory = np.zeros(starts[-1], np.uint8)
        where = np.array([start if wanted else -1 for start, wanted in zip(starts, asked, strict=False)])
        half.fill(region, rows[:count], int(totals[layout.ODD_KEYS]), memory, where)
        for spare in (2, 5):
            end = starts[len(fixed) + spare + 1]
            memory[end - 8 : end] = 0
        said.append(memory.tobytes())
    return tuple(said)


@pytest.mark.parametrize("wants", range(8))
@pytest.mark.turns(3)
def test_stored_messages(cases: Any, wants: int) -> None:
    kernels = engine.load(messages.KERNEL_MODULE)
    guarded = Guarded(8192)
    for data in cases(STORED, 8):
        region = guarded.holding(data)
        assert scanned(kernels, region, wants) == scanned(fallback, region, wants), data.hex()


def test_passing_through_and_salvaging_stored_messages(cases: Any) -> None:
    kernels = engine.load(messages.STORED_KERNEL_MODULE)
    guarded = Guarded(8192)
    for number, data in enumerate(cases(STORED)):
        region = guarded.holding(data)
        chunks = np.array([[0, region.size, 0, 5 if number % 2 else 0, 4, 0, 0, 0]])
        said: list[Any] = []
        for half in (kernels, stored_fallback):
            parts, found = np.zeros((1, 2), np.int64), np.zeros(15, np.int64)
            said.append([half.cut(region, chunks, number % 3, 4, 3, 150, parts), parts.tolist()])
            said[-1] += [half.survey(region, 0, region.size)]
            said[-1] += [half.intact(region, 0, 5, found, 4 * region.size), found.tolist()]
            copy = region.copy()
            ranges = np.array([0, 3]), np.array([1, 4]), np.array([20, 30], np.uint8)
            said[-1] += [half.set_states(copy, 0, *ranges), copy.tobytes()]
        assert said[0] == said[1], data.hex()


def test_sent_messages(cases: Any) -> None:
    kernels = engine.load(messages.SEND_KERNEL_MODULE)
    guarded, written = Guarded(8192), Guarded(16384)
    for data in cases(SENT):
        region = guarded.holding(data)
        said = []
        for half in (kernels, send_fallback):
            random_ = np.arange(1, 7, dtype=np.uint64)
            target = written.holding(bytes(messages.room(region.size)))
            answer = half.restamp(region, 0, region.size, target, 0, 5, 1000, random_)
            said.append((answer, target[: answer[2]].tobytes(), random_.tolist()))
        assert said[0] == said[1], data.hex()


def test_decoding_gives_columns_or_malformed(cases: Any) -> None:
    iggy = dialect("iggy_classic")
    for data in cases(STORED):
        region = np.frombuffer(data, np.uint8)
        try:
            for decoded in iggy.decode(messages.parse_polled_run(region, 0), ScanRequest(keys=("carrier",))):
                to_batch(decoded).validate(full=True)
        except MalformedMessage:
            continue


def test_chunks(cases: Any) -> None:
    kernels = engine.load(envelope.KERNEL_MODULE)
    guarded = Guarded(8192)
    for number, data in enumerate(cases(chunk(b"x" * 5) + chunk(b"yy", dialect=1) + chunk())):
        region = guarded.holding(data)
        said = []
        for half in (kernels, chunk_twin):
            rows, dialects = np.zeros((4, 8), np.int64), np.zeros(4, np.uint8)
            said.append((half.walk(region, 0, region.size, number % 2 == 0, rows, dialects), rows.tolist()))
        assert said[0] == said[1], data.hex()
        try:
            runs.runs(region)
        except MalformedMessage:
            continue


@pytest.mark.parametrize("compression", ["lz4", None])
def test_native_blocks(cases: Any, compression: Any) -> None:
    told = batch_of([row(number) for number in range(20)])
    native = dialect("native")
    for data in cases(encode_block(told, compression=compression), 2):
        try:
            list(blocks(data))
            check(data)
            chunks = np.array([[0, len(data), 0, 20, 19, 0, 0, 0]])
            for decoded in native.decode(Run(1, np.frombuffer(data, np.uint8), chunks), ScanRequest(keys=("twice",))):
                to_batch(decoded).validate(full=True)
        except MalformedMessage:
            continue


def test_overlay_records(cases: Any) -> None:
    seed = b"".join(overlay.pack(overlay.OverlayRecord(overlay.RangeKind.STATE, 20, n, n + 5, n)) for n in range(4))
    for data in cases(seed):
        ranges, valid = overlay.unpack_all(data)
        assert b"".join(map(overlay.pack, ranges)) == data[:valid]
