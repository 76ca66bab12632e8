"""Sent messages: restamped as the real server does, refused at its limits with its codes; encoded as its clients do."""

from __future__ import annotations

import struct
import uuid
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.dialects.iggy.classic import limits, messages
from lading.dialects.iggy.classic.encode import encode_sent, encode_stored
from lading.dialects.iggy.messages.ids import IDS_PER_SEED
from lading.dialects.registry import dialect, to_batch
from lading.model.batch import SCHEMA
from lading.model.errors import LimitExceeded
from lading.model.scan_request import ScanRequest
from tests.dialects.iggy_classic import octets, sent, stored, vectors, written_logs

KIB = 1024


def restamp(data: bytes, base_offset: int = 0, now_us: int = 0) -> tuple[int, int, bytes]:
    target = np.zeros(messages.room(len(data)) + 7, np.uint8)
    code, count, size = messages.restamp(
        octets(data), 0, len(data), target, 7, base_offset, now_us, messages.random_state()
    )
    return code, count, target[7 : 7 + size].tobytes()


def test_the_sent_vector_becomes_the_polled_one(half: str) -> None:
    request = bytes.fromhex(vectors()["A.message.send.id1_hello_3headers"]["hex"])
    polled = bytes.fromhex(vectors()["A.message.polled.0.0.40"]["hex"])
    assert restamp(request, 0, 1_692_643_862_990_111) == (0, 1, polled)


def test_offsets_and_times_go_up_and_the_rest_stays(half: str) -> None:
    headers = [(b"carrier", 2, b"UA"), (b"raw", 1, b"\xff\0")]
    request = sent(b"one", headers, 5) + sent(b"two", (), 6) + sent(b"3" * 300, headers[:1], 1 << 127)
    code, count, out = restamp(request, 40, 1000)
    assert (code, count) == (0, 3)
    assert out == (
        stored(40, b"one", headers, id_=5, timestamp_us=1000)
        + stored(41, b"two", (), id_=6, timestamp_us=1001)
        + stored(42, b"3" * 300, headers[:1], id_=1 << 127, timestamp_us=1002)
    )


def test_a_missing_id_becomes_a_uuid_of_version_4(half: str) -> None:
    code, count, out = restamp(sent(id_=0) * 1000)
    assert (code, count) == (0, 1000)
    size = len(stored(0))
    ids = [uuid.UUID(bytes=out[at + 17 : at + 33]) for at in range(0, len(out), size)]
    assert len(set(ids)) == 1000
    assert {(id_.version, id_.variant) for id_ in ids} == {(4, uuid.RFC_4122)}
    # 128 bits less the six fixed ones: each of the others is set in about half of the ids
    for bit in set(range(128)) - {48, 49, 50, 51, 64, 65}:
        share = sum(id_.int >> (127 - bit) & 1 for id_ in ids)
        assert 400 < share < 600, bit


def test_the_real_servers_own_ids_have_the_same_form() -> None:
    batch = to_batch(next(iter(dialect("iggy_classic").decode(messages.parse_polled_run(written_logs("1")[0], 0)))))
    ids: list[bytes] = batch.column("id").to_pylist()  # type: ignore[assignment]
    made = [uuid.UUID(bytes=id_) for id_ in ids if int.from_bytes(id_, "little") > 1 << 64]
    assert made and {(id_.version, id_.variant) for id_ in made} == {(4, uuid.RFC_4122)}


def test_ids_are_seeded_anew_by_the_system(half: str) -> None:
    state = messages.random_state()
    state[4] = IDS_PER_SEED
    before = state.copy()
    target = np.zeros(messages.room(len(sent(id_=0))), np.uint8)
    messages.restamp(octets(sent(id_=0)), 0, len(sent()), target, 0, 0, 0, state)
    assert state[4] == 1 and not (state[:4] == before[:4]).any() and state[5] != before[5]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"", 4009),
        (sent(b""), 4024),
        (sent() + sent(b""), 4024),
        (sent(headers=[(b"", 2, b"v")]), 4018),
        (sent(headers=[(b"k" * 255, 2, b"v")]), 0),
        (sent(headers=[(b"k" * 256, 2, b"v")]), 4018),
        (sent(headers=[(b"k", 2, b"")]), 4019),
        (sent(headers=[(b"k", 2, b"v" * 255)]), 0),
        (sent(headers=[(b"k", 2, b"v" * 256)]), 4019),
        (sent(headers=[(b"k", 0, b"v")]), 3),
        (sent(headers=[(b"k", 15, b"v")]), 0),
        (sent(headers=[(b"k", 16, b"v")]), 3),
        (sent(headers=[(b"\xff", 2, b"v")]), 4018),
        (sent(headers=[(b"\xed\xa0\x80", 2, b"v")]), 4018),
        (sent(headers=[("Größe".encode(), 2, b"\xff")]), 0),
        (sent(headers=[(b"k", 2, b"v"), (b"K", 2, b"v")]), 0),
        (sent(headers=[(b"k", 2, b"v"), (b"k", 2, b"v")]), 4018),
        (sent(headers=[(b"longer than eight", 2, b"v"), (b"x", 1, b"1"), (b"longer than eight", 3, b"w")]), 4018),
        (sent(headers=[(b"k%d" % n, 2, b"v") for n in range(300)]), 0),
        (sent(headers=[*((b"k%d" % n, 2, b"v") for n in range(300)), (b"k17", 2, b"v")]), 4018),
        (sent()[:-1], 3),
        (sent()[:23], 3),
        (sent() + b"\0", 3),
        (sent(headers=[(b"k", 2, b"v")]).replace(b"\x0b\0\0\0", b"\x0c\0\0\0", 1), 3),
        (bytes(16) + b"\xff\xff\xff\xff" + bytes(60), 3),
        (bytes(16) + b"\0\0\0\0\xff\xff\xff\xff" + bytes(60), 3),
    ],
)
def test_every_rule_has_the_servers_code(half: str, request_: bytes, code: int) -> None:
    found, count, out = restamp(request_)
    assert found == code
    assert (count > 0 and len(out) > 0) if code == 0 else out == b""


def test_header_values_of_a_request_are_limited_in_sum(half: str) -> None:
    values = [b"v" * 255] * 401 + [b"v" * 145]
    assert sum(map(len, values)) == 100 * KIB
    headers = [(b"k%d" % n, 2, value) for n, value in enumerate(values)]
    assert restamp(sent(headers=headers[:200]) + sent(headers=headers[200:]))[0] == 0
    assert restamp(sent(headers=headers[:200]) + sent(headers=[*headers[200:], (b"one", 2, b"!")]))[0] == 4017


def test_payloads_of_a_request_are_limited_in_sum(half: str) -> None:
    half_limit = b"p" * (5 * KIB * KIB)
    assert restamp(sent(half_limit) * 2)[0] == 0
    assert restamp(sent(half_limit) * 2 + sent(b"!"))[0] == 4022
    assert 2 * len(half_limit) == limits.REQUEST_PAYLOADS_BYTES_MAX


def test_a_hundred_thousand_headers_do_not_take_quadratic_time(half: str) -> None:
    headers = [(b"%d" % n, 2, b"v") for n in range(100 * KIB)]
    assert restamp(sent(headers=headers))[0] == 0
    assert restamp(sent(headers=[*headers[:-1], headers[5]]))[0] == 4018


def test_a_target_that_is_too_small_is_not_written(half: str) -> None:
    request = octets(sent() * 3)
    for target, to in ((np.zeros(messages.room(request.size) - 1, np.uint8), 0), (np.zeros(1000, np.uint8), -1)):
        state = messages.random_state()
        code, _, _ = messages.restamp(request, 0, request.size, target, to, 0, 0, state)
        assert code == limits.NO_ROOM
        assert not target.any()


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    plain: dict[str, Any] = {
        "offset": 0,
        "state": 1,
        "timestamp": 0,
        "id": None,
        "checksum": None,
        "key": None,
        "headers": [],
    }
    return pa.RecordBatch.from_pylist([{**plain, "payload": b"p", **row} for row in rows], schema=SCHEMA)


def header(key: str, kind: int, value: bytes | None) -> dict[str, Any]:
    return {"key": key, "kind": kind, "value": value}


def test_encode_is_what_clients_send_and_servers_store(half: str) -> None:
    three = vectors()["A.message.send.id1_hello_3headers"]
    headers = [header(h["key"], h["kind_code"], bytes.fromhex(h["value_hex"])) for h in three["decoded"]["headers"]]
    one = (1).to_bytes(16, "little")
    batch = batch_of(
        [
            {"id": one, "headers": headers, "payload": b"hello", "timestamp": 1_692_643_862_990_111},
            {"payload": b"hello"},
        ]
    )
    bare = vectors()["A.message.send.id0_hello_no_headers"]["hex"]
    assert encode_sent(batch).hex() == three["hex"] + bare
    assert encode_stored(batch.slice(0, 1)).hex() == vectors()["A.message.polled.0.0.40"]["hex"]


def test_the_real_servers_files_come_out_as_they_went_in(half: str) -> None:
    for partition in ("1", "2"):
        for log in written_logs(partition):
            decoded = dialect("iggy_classic").decode(messages.parse_polled_run(log, 0), ScanRequest(max_rows=33))
            assert b"".join(encode_stored(to_batch(some)) for some in decoded) == log


def test_slices_of_a_batch_encode_alone(half: str) -> None:
    (decoded,) = dialect("iggy_classic").decode(messages.parse_polled_run(written_logs("2")[0], 0))
    batch = to_batch(decoded)
    parts = [encode_stored(batch.slice(at, 7)) for at in range(0, batch.num_rows, 7)]
    assert b"".join(parts) == written_logs("2")[0]
    assert encode_sent(batch.slice(0, 0)) == b""


def test_a_checksum_is_kept_or_computed(half: str) -> None:
    kept, made = (encode_stored(batch_of([{"checksum": given}])) for given in (7, None))
    assert struct.unpack_from("<I", kept, 33)[0] == 7
    assert struct.unpack_from("<I", made, 33)[0] == zlib.crc32(b"p")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"payload": None}, "message 1 has a null payload"),
        ({"payload": b""}, "message 1 has an empty payload"),
        ({"headers": [header("via", 2, None)]}, "'via' of message 1 is null"),
        ({"headers": [header("via", 2, b"")]}, "'via' of message 1 has 0 bytes"),
        ({"headers": [header("ok", 2, b"v"), header("via", 2, b"v" * 256)]}, "'via' of message 1 has 256 bytes"),
        ({"headers": [header("", 2, b"v")]}, "'' of message 1 has not 1 to 255"),
        ({"headers": [header("ü" * 128, 2, b"v")]}, "of message 1 has not 1 to 255"),
        ({"headers": [header("via", 16, b"v")]}, "'via' of message 1 has kind 16"),
        ({"headers": [header("via", 0, b"v")]}, "'via' of message 1 has kind 0"),
        ({"headers": [header("\\k1:61", 2, b"v")]}, "of message 1 is typed"),
        ({"headers": [header("\\q", 2, b"v")]}, "message 1: "),
    ],
)
def test_what_no_message_can_hold_is_named(half: str, row: dict[str, Any], words: str) -> None:
    batch = batch_of([{"headers": [header("first", 2, b"v")]}, row])
    for encode in (encode_sent, encode_stored):
        with pytest.raises(LimitExceeded) as raised:
            encode(batch)
        assert words in str(raised.value)
