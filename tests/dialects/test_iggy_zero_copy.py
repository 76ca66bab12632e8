"""Zero-copy messages: what the published wheels sent is stored and polled again in the form of each release."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.dialects.carrier import carry
from lading.dialects.iggy.classic.protocol import POLLED
from lading.dialects.iggy.messages.ids import random_state
from lading.dialects.iggy.zero_copy import encode, messages
from lading.dialects.iggy.zero_copy.layout import FORM_0_7, FORM_0_8, FORM_0_9, NO_CHECKSUM, WireForm
from lading.dialects.registry import dialect, to_batch
from lading.model.batch import SCHEMA
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.run import Located, Run
from lading.model.scan_request import ScanRequest
from tests.dialects.iggy_zero_copy import (
    block,
    captured_sends,
    indexed,
    message,
    octets,
    run_of,
    typed_headers,
)

ZERO_COPY = dialect("iggy_zero_copy")
FORMS = {"0.5.0": FORM_0_7, "0.6.0": FORM_0_8, "0.7.0": FORM_0_9, "0.8.0": FORM_0_9}
HEADERS: list[Any] = [(b"carrier", 2, b"UA"), (b"delay", 7, bytes(8)), ("Größe".encode(), 1, b"\xff")]


def rows(run: Run, **options: Any) -> list[dict[str, Any]]:
    return [row for decoded in ZERO_COPY.decode(run, ScanRequest(**options)) for row in to_batch(decoded).to_pylist()]


def values(located: Located) -> list[bytes | None]:
    spans = zip(located.start.tolist(), located.length.tolist(), strict=True)
    return [located.data[start : start + length].tobytes() if length >= 0 else None for start, length in spans]


def restamp(sent: bytes, start: int, form: WireForm, base_offset: int = 0, now_us: int = 0) -> tuple[int, int, bytes]:
    count, size = start // 16, len(sent) - start
    target = np.zeros(messages.room(size, count, form) + 7, np.uint8)
    # nothing behind the request: headers end with the memory
    source = octets(sent)
    code, count, written = messages.restamp(
        source, 0, start, len(sent), form, target, 7, base_offset, now_us, random_state()
    )
    return code, count, target[7 : 7 + written].tobytes()


@pytest.mark.parametrize("version", FORMS)
def test_what_a_wheel_sent_is_stored(half: str, version: str) -> None:
    body = captured_sends()[version]
    (metadata_size,) = struct.unpack_from("<I", body)
    index_at = 4 + metadata_size
    (count,) = struct.unpack_from("<I", body, index_at - 4)
    assert count == 2
    sent, start = body[index_at:], 16 * count
    code, count, stored = restamp(sent, start, FORMS[version], 40, 1000)
    assert (code, count) == (0, 2)
    first, second = rows(Run(6, octets(stored), np.array([[0, len(stored), 40, 2, 41, 0, 0, 0]])))
    assert [row["payload"] for row in (first, second)] == [b"hello", b"world"]
    assert [row["offset"] for row in (first, second)] == [40, 41]
    assert first["id"] != second["id"] and all(row["id"][6] >> 4 == 4 for row in (first, second))
    # the time of sending stays in the stored bytes
    at = start + 40
    assert stored[40:48] == sent[at : at + 8]


@pytest.mark.parametrize("form", [FORM_0_7, FORM_0_8, FORM_0_9])
def test_messages_of_each_form_are_stored_alike_and_polled_as_they_were(half: str, form: WireForm) -> None:
    sent = [
        message(0, b"one", HEADERS, form=form._replace(checksum=NO_CHECKSUM), id_=5),
        message(0, b"2" * 300, form=form._replace(checksum=NO_CHECKSUM), id_=1 << 127),
        message(0, b"3", HEADERS[:1], form=form._replace(checksum=NO_CHECKSUM), id_=6),
    ]
    kept = [(40, b"one", HEADERS, 5), (41, b"2" * 300, (), 1 << 127), (42, b"3", HEADERS[:1], 6)]

    def as_polled(how: WireForm) -> bytes:
        return b"".join(
            message(offset, payload, headers, form=how, id_=id_, timestamp_us=960 + offset)
            for offset, payload, headers, id_ in kept
        )

    code, count, stored = restamp(*indexed(sent), form, 40, 1000)
    assert (code, count) == (0, 3)
    assert stored == as_polled(FORM_0_9)
    for other in (FORM_0_7, FORM_0_8):
        short = messages.shorten(memoryview(stored), other)
        assert short is not None and bytes(short) == as_polled(other)
        run, damaged = messages.read_polled(b"head" + bytes(short), 4, other)
        assert damaged is None
        assert run.region[slice(*run.chunks[0, :2])].tobytes() == stored
    run, damaged = messages.read_polled(stored, 0, FORM_0_9)
    assert damaged is None and run.chunks[:, 2:7].tolist() == [[40, 3, 42, 1000, 1002]]


def test_typed_keys_have_no_form_before_they_were_made(half: str) -> None:
    stored = message(0, headers=[(b"k", 2, b"v"), (bytes(4), 2, b"v", 6)])
    assert messages.shorten(memoryview(stored), FORM_0_8) is None


@pytest.mark.parametrize("name", typed_headers())
def test_the_header_blocks_of_the_vectors_decode_to_what_they_say(half: str, name: str) -> None:
    entry = typed_headers()[name]
    data = bytes.fromhex(entry["hex"])
    hashed = bytes(16 + 24) + struct.pack("<II", len(data), 1) + bytes(8) + b"x" + data
    (row,) = rows(run_of(bytes(8) + hashed))
    told = entry["decoded"]["headers"]
    want = [(header["key"], header["kind_code"], header["value_hex"]) for header in told if "value_hex" in header]
    if name == "B.user_headers.non_string_key":
        assert (told[0]["key_kind_code"], told[0]["key"], told[0]["value"]) == (11, 7, -1)
        want = [("\\k11:07000000", 6, "ffffffff")]
    assert [(h["key"], h["kind"], h["value"].hex()) for h in row["headers"]] == want
    batch = to_batch(next(iter(ZERO_COPY.decode(run_of(bytes(8) + hashed)))))
    assert encode.encode_stored(batch).endswith(b"x" + data)


def test_keys_are_located_by_kind_and_bytes(half: str) -> None:
    headers: list[Any] = [(b"k", 2, b"text"), (b"k", 2, b"raw", 1), (bytes(4), 6, b"\1\0\0\0", 6), (b"k", 2, b"last")]
    run = run_of(message(0, headers=headers), message(1))
    keys = ("k", "\\k1:6b", "\\k6:00000000", "\\k7:6b", "\\x6b", "")
    (decoded,) = ZERO_COPY.decode(run, ScanRequest(fields=frozenset(), keys=keys))
    assert values(decoded.located["k"]) == [b"last", None]
    assert values(decoded.located["\\k1:6b"]) == [b"raw", None]
    assert values(decoded.located["\\k6:00000000"]) == [b"\1\0\0\0", None]
    for never in ("\\k7:6b", "\\x6b", ""):
        assert values(decoded.located[never]) == [None, None]


def test_what_a_message_does_not_have_is_null_and_its_state_is_available(half: str) -> None:
    (decoded,) = ZERO_COPY.decode(run_of(message(0, headers=HEADERS, timestamp_us=9), message(1, id_=0)))
    batch = to_batch(decoded)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert batch.column("checksum").null_count == batch.column("key").null_count == 2
    assert batch.column("state").to_pylist() == [1, 1]
    assert batch.column("id").to_pylist() == [(1).to_bytes(16, "little"), None]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [9, 0]


@pytest.mark.parametrize("form", [FORM_0_7, FORM_0_8, FORM_0_9])
def test_a_batch_is_written_in_each_form(half: str, form: WireForm) -> None:
    facts: dict[str, Any] = {"timestamp_us": 9, "origin_us": 9}
    run = run_of(message(3, b"one", HEADERS, **facts), message(4, b"two", (), **facts), first=3)
    batch = to_batch(next(iter(ZERO_COPY.decode(run))))
    want = message(3, b"one", HEADERS, form=form, **facts) + message(4, b"two", (), form=form, **facts)
    assert encode.encode_stored(batch, form) == want
    bare = form._replace(checksum=NO_CHECKSUM)
    sent, _ = indexed(
        [message(0, b"one", HEADERS, form=bare, origin_us=9), message(0, b"two", (), form=bare, origin_us=9)]
    )
    assert encode.encode_sent(batch, form, 11) == sent


def test_what_has_no_form_travels_by_carrier_and_comes_back(half: str) -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {"offset": 0, "state": 1, "timestamp": 5, "headers": [{"key": "k", "kind": 2, "value": None}]},
            {
                "offset": 1,
                "state": 1,
                "timestamp": -5,
                "key": b"key",
                "headers": [{"key": "\\k6:01000000", "kind": 6, "value": b"1234"}] * 2,
                "payload": b"",
            },
        ],
        schema=SCHEMA,
    )
    carried = carry(batch, POLLED).batch
    for form in (FORM_0_8, FORM_0_9):
        run, damaged = messages.read_polled(encode.encode_stored(carried, form), 0, form)
        assert damaged is None
        assert rows(run) == batch.to_pylist()


def test_limits_are_told_by_message_and_header(half: str) -> None:
    def batch(**facts: Any) -> pa.RecordBatch:
        row = {"offset": 0, "state": 1, "timestamp": 0, "headers": [], "payload": b"x", **facts}
        return pa.RecordBatch.from_pylist([row], schema=SCHEMA)

    typed = [{"key": "\\k6:01000000", "kind": 2, "value": b"v"}]
    assert encode.encode_stored(batch(headers=typed))
    for told, form, words in (
        (batch(payload=b""), FORM_0_9, "empty payload"),
        (batch(payload=None), FORM_0_9, "null payload"),
        (batch(headers=typed), FORM_0_8, "is typed"),
        (batch(headers=[{"key": "k" * 256, "kind": 2, "value": b"v"}]), FORM_0_9, "1 to 255 bytes"),
        (batch(headers=[{"key": "k", "kind": 16, "value": b"v"}]), FORM_0_9, "kind 16"),
        (batch(headers=[{"key": "k", "kind": 2, "value": b"v" * 256}]), FORM_0_9, "256 bytes"),
    ):
        with pytest.raises(LimitExceeded, match=words):
            encode.encode_stored(told, form)


GOOD = message(form=FORM_0_9._replace(checksum=NO_CHECKSUM))


def entry(offset: int = 0, end: int = len(GOOD), time_us: int = 0) -> bytes:
    return struct.pack("<IIQ", offset, end, time_us)


@pytest.mark.parametrize(
    ("sent", "count", "code"),
    [
        (entry() + GOOD, 1, 0),
        (b"", 0, 4009),
        (entry(offset=1) + GOOD, 1, 3),
        (entry(time_us=1) + GOOD, 1, 3),
        (entry(end=len(GOOD) - 1) + GOOD, 1, 3),
        (entry() + GOOD[:-1], 1, 3),
        (entry() + GOOD + b"\0", 1, 3),
        (entry() + GOOD[:56] + b"\1" + GOOD[57:], 1, 3),
        (entry() + GOOD[:48] + b"\xff" * 8 + GOOD[56:], 1, 4022),
        (entry() + GOOD[:48] + struct.pack("<I", 100_001) + GOOD[52:], 1, 4017),
        *(
            ((made := indexed([message(headers=[header])]))[0], 1, code)
            for header, code in (
                ((b"k", 15, b"v", 15), 0),
                ((b"\xff", 2, b"v", 1), 0),
                ((b"\xff", 2, b"v"), 4018),
                ((b"", 2, b"v"), 4018),
                ((b"k" * 255, 2, b"v" * 255), 0),
                ((b"k" * 256, 2, b"v"), 4018),
                ((b"k", 2, b""), 4019),
                ((b"k", 2, b"v" * 256), 4019),
                ((b"k", 16, b"v"), 3),
                ((b"k", 2, b"v", 16), 3),
                ((b"k", 2, b"v", 0), 3),
            )
        ),
        (indexed([message(headers=[(b"k", 2, b"v"), (b"k", 2, b"w")])])[0], 1, 0),
        (indexed([message(payload=b"")])[0], 1, 0),
    ],
)
def test_every_rule_has_its_code(half: str, sent: bytes, count: int, code: int) -> None:
    found, _, out = restamp(sent, 16 * count, FORM_0_9)
    assert found == code
    assert (len(out) > 0) == (code == 0)


def test_a_wrong_checksum_is_named_by_its_offset(half: str) -> None:
    for form in (FORM_0_7, FORM_0_8, FORM_0_9):
        polled = bytearray(b"".join(message(n, b"payload", HEADERS, form=form) for n in range(7, 10)))
        size = len(polled) // 3
        for at in (size, size + form.head_bytes, 2 * size - 1):
            wrong = bytearray(polled)
            wrong[at] ^= 1
            assert messages.read_polled(wrong, 0, form)[1] == 8


@pytest.mark.parametrize(
    "data",
    [message()[:-1], message() + b"\0", message(1) + message(1), message(1 << 63), message(timestamp_us=1 << 63)],
)
def test_bytes_that_are_no_polled_messages_are_malformed(half: str, data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        messages.read_polled(data, 0, FORM_0_9)
    for form in (FORM_0_7, FORM_0_8):
        with pytest.raises(MalformedMessage):
            messages.read_polled(message(form=form)[:-1], 0, form)


def test_damaged_chunks_give_the_messages_whose_checksum_holds(half: str) -> None:
    kept = [message(n, b"p" * 9, HEADERS) for n in range(5)]
    body = bytearray(b"".join(kept))
    body[2 * len(kept[0]) + 70] ^= 1
    run = Run(6, octets(body), np.array([[0, len(body), 0, 5, 4, 0, 0, 0]]))
    assert [row["offset"] for row in rows(messages.salvage(run))] == [0, 1, 3, 4]


def test_the_block_of_the_vectors_is_what_the_builder_of_these_tests_writes() -> None:
    headers = [(b"key 1", 2, b"value1"), (b"key-2", 3, b"\1"), (b"key_3", 12, (123456).to_bytes(8, "little"))]
    assert block(headers).hex() == typed_headers()["B.user_headers.three"]["hex"]
