"""NSQ messages to columns and back: JSON in all its forms, publishing and delivery, damage and lies."""

from __future__ import annotations

import json
import random
import struct
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.dialects.nsq import (
    delivery,
    fallback,
    json_text,
    layout,
    limits,
    messages,
    publishing,
    send_fallback,
    send_layout,
)
from lading.dialects.nsq.encode import ext_of, item, records
from lading.dialects.registry import dialect, to_batch
from lading.kernels import engine
from lading.model.batch import SCHEMA
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.run import Located, Run
from lading.model.scan_request import ScanRequest
from tests.dialects.nsq import run_of, stored, vector, vectors
from tests.guard_pages import Guarded

NSQ = dialect("nsq")
I64 = 7
F64 = 15


def i64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def f64(value: float) -> bytes:
    return struct.pack("<d", value)


def json_mark(*hashed: bytes) -> tuple[str, int, bytes]:
    """The mark of texts that are JSON, by what their fingerprints are made of."""
    return "lading-json", 1, b"".join(zlib.crc32(each).to_bytes(4, "little") for each in hashed).hex().encode()


EXTS: list[tuple[bytes, list[tuple[str, int, bytes | None]]]] = [
    (b"", []),
    (b"{}", []),
    (b' {"a" : "x" , "b":12}\n', [("a", 2, b"x"), ("b", I64, i64(12))]),
    (b'{"t":true,"f":false,"n":null}', [("t", 3, b"\x01"), ("f", 3, b"\x00"), ("n", 1, None)]),
    (b'{"a":"1","a":"2"}', [("a", 2, b"1"), ("a", 2, b"2")]),
    (b'{"q":"\\u00e9\\n\\"\\\\\\/\\ud83d\\ude00"}', [("q", 2, 'é\n"\\/😀'.encode())]),
    ('{"Größe":"né"}'.encode(), [("Größe", 2, "né".encode())]),
    (b'{"a":1.5,"b":-0.0}', [("a", F64, f64(1.5)), ("b", F64, f64(-0.0))]),
    (b'{"c":1e22,"d":1E-3}', [("c", F64, f64(1e22)), ("d", F64, f64(0.001))]),
    (b'{"a":9223372036854775807,"b":-9223372036854775808}', [("a", I64, i64(2**63 - 1)), ("b", I64, i64(-(2**63)))]),
    (b'{"a":9223372036854775808}', [("a", 2, b"9223372036854775808"),
                                    json_mark(b"\x01a\x02\x149223372036854775808\0")]),
    (b'{"a":0.1234567890123456789}', [("a", F64, f64(0.1234567890123456789))]),
    (b'{"a":1e400}', [("a", 2, b"1e400"), json_mark(b"\x01a\x02\x061e400\0")]),
    (b'{"n":{"x":[1,2,{}]},"a":"z"}', [("n", 2, b'{"x":[1,2,{}]}'), ("a", 2, b"z"),
                                      json_mark(b'\x01n\x02\x0f{"x":[1,2,{}]}\0')]),
    (b'{"n":[ ],"n":"[]","n":{}}', [("n", 2, b"[ ]"), ("n", 2, b"[]"), ("n", 2, b"{}"),
                                  json_mark(b"\x01n\x02\x04[ ]\0", b"\x01n\x02\x03{}\x02")]),
    (b'{"":"","\\u0061":1}', [("", 2, b""), ("a", I64, i64(1))]),
    (b'{"\\\\k":1}', [("\\\\k", I64, i64(1))]),
    (b'{"\xff":"\xfe"}', [("\\xff", 1, b"\xfe")]),
    # what only a lenient parser takes
    (b'{"a":"\\q","b":"\\ud83dx"}', [("a", 2, b"\\q"), ("b", 2, b"\\ud83dx")]),
    (b'{"c":01.e,"d":"x\ty"}', [("c", 2, b"01.e"), ("d", 2, b"x\ty")]),
    (b"[1,2]", [("##ext", 2, b"[1,2]")]),
    (b"null", [("##ext", 2, b"null")]),
    # what no server takes; it may come out of a queue all the same
    (b"{'a':1}", [("##ext", 2, b"{'a':1}")]),
    (b'{"a":1} x', [("##ext", 2, b'{"a":1} x')]),
    (b'{"##lading-carrier":"aGVsbG8="}', [("lading-carrier", 1, b"hello")]),
    (b'{"##lading-carrier":"no base64"}', [("##lading-carrier", 2, b"no base64")]),
]  # fmt: skip


def rows(run: Run, **options: Any) -> list[dict[str, Any]]:
    found = [to_batch(decoded) for decoded in NSQ.decode(run, ScanRequest(**options))]
    for each in found:
        each.validate(full=True)
    return [row for each in found for row in each.to_pylist()]


def headers(row: dict[str, Any]) -> list[tuple[str, int, bytes | None]]:
    return [(header["key"], header["kind"], header["value"]) for header in row["headers"]]


@pytest.mark.parametrize("max_rows", [10_000, 3])
def test_exts_become_typed_headers(half: str, max_rows: int) -> None:
    told = [stored(at, b"body%d" % at, data) for at, (data, _) in enumerate(EXTS)]
    found = rows(run_of(told[:7], told[7:]), max_rows=max_rows, carrier=False)
    assert [headers(row) for row in found] == [meaning for _, meaning in EXTS]
    assert [row["payload"] for row in found] == [b"body%d" % at for at in range(len(EXTS))]
    assert [row["offset"] for row in found] == list(range(len(EXTS)))
    assert {row["timestamp"].timestamp() for row in found} == {1_700_000_000.0}
    assert [row["id"] for row in found] == [(at + 1).to_bytes(8, "big") + bytes(8) for at in range(len(EXTS))]


def test_versions_and_unknown_ones(half: str) -> None:
    told = [stored(0, ext=b"tagA", version=2), stored(1, ext=b"\xff\x00", version=9), stored(2, ext=b"", version=4)]
    assert [headers(row) for row in rows(run_of(told))] == [
        [("##client_dispatch_tag", 2, b"tagA")],
        [("##ext", 1, b"\xff\x00")],
        [("##ext", 2, b"")],
    ]


def test_located_headers_are_the_last_of_their_key(half: str) -> None:
    told = [stored(at, ext=data) for at, (data, _) in enumerate(EXTS)]
    keys = ["a", "q", "n", "Größe", "\\\\k", "lading-carrier", "nobody"]
    (decoded,) = messages.decode_columns(run_of(told), ScanRequest(fields=frozenset({"offset"}), keys=tuple(keys)))
    for key in keys:
        located = decoded.located[key]
        for at, (_, meaning) in enumerate(EXTS):
            wanted = [(kind, value) for name, kind, value in meaning if name == key][-1:]
            start, length = int(located.start[at]), int(located.length[at])
            value = located.data[start : start + length].tobytes() if length >= 0 else None
            assert ([(int(located.kind[at]), value)] if length != -1 else []) == wanted, (key, at)
    assert set(decoded.columns) == {"offset"}


def test_a_range_is_cut_out(half: str) -> None:
    run = run_of([stored(at) for at in range(10, 14)], [stored(at) for at in range(14, 20)], first=10)
    assert [row["offset"] for row in rows(run, first=12, end=16)] == [12, 13, 14, 15]
    assert [row["offset"] for row in rows(run, first=99)] == []
    found = delivery.survey(run, 12, 18, 4)
    assert found.offsets.tolist() == [12, 13, 14, 15]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.dictionaries(st.text(max_size=6), JSON, max_size=5), st.booleans()), max_size=6))
def test_what_python_says_of_any_json(documents: list[tuple[dict[str, Any], bool]]) -> None:
    texts = [json.dumps(some, ensure_ascii=plain).encode(errors="surrogatepass") for some, plain in documents]
    run = run_of([stored(at, ext=text) for at, text in enumerate(texts)])
    for row, (document, _) in zip(rows(run, carrier=False), documents, strict=True):
        beyond = any(
            isinstance(value, list | dict) or (type(value) is int and not -(1 << 63) <= value < 1 << 63)
            for value in document.values()
        )
        assert [each["key"] for each in row["headers"][len(document) :]] == ["lading-json"] * beyond
        assert json.loads(ext_of(headers(row)) or b"{}") == document
        for header, (key, value) in zip(row["headers"], document.items(), strict=False):
            if key.isprintable() and "\\" not in key:
                assert header["key"] == key
            if isinstance(value, str) and value.isprintable():
                assert header["value"] == value.encode()
            elif isinstance(value, bool):
                assert header["value"] == bytes([value])
            elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
                assert header["value"] == i64(value)
            elif isinstance(value, float):
                assert header["value"] == f64(value)


# -- publishing


def published(line: bytes, form: int, data: bytes, *, takes_ext: bool = True, partition: int = 0) -> Any:
    source = np.frombuffer(data, np.uint8)
    target = np.zeros(publishing.pubs_room(source.size, len(line)), np.uint8)
    told = publishing.store_pubs(
        source, 0, source.size, len(line), form, takes_ext, target, 0, 0, partition, 1_700_000_000_000_000_000
    )
    return told, target[: told.size_bytes].tobytes()


def frame_of(
    record: bytes,
    *,
    with_ext: bool,
    detail: bool = False,
    textual: bool = False,
    attempts: int = 1,
    offset: int = 0,
    partition: int = 0,
) -> bytes:
    run = run_of([record], first=offset)
    found = delivery.survey(run, offset, offset + 1, 1)
    picked, tried = np.zeros(1, np.int64), np.array([attempts])
    return delivery.frames(found, picked, tried, partition, ext=with_ext, detail=detail, textual=textual).tobytes()


def test_commands_that_are_alike_are_stored_as_a_run_is(half: str) -> None:
    bodies = [b"a", b"b" * 100, bytes(range(256)), b"c" * 5000]
    line = b"PUB topic\n"
    for some in (bodies[:1], bodies):
        data = b"".join(line + struct.pack(">I", len(body)) + body for body in some)
        told, run = published(line, send_layout.PLAIN_FORM, data, partition=3)
        source = np.frombuffer(data, np.uint8)
        target = np.zeros(5 + len(data) + publishing.GROWTH_BYTES * len(some), np.uint8)
        where = (0, 3, 1_700_000_000_000_000_000)
        size = publishing.store_alike(source, len(some), len(line), target, 5, *where)
        assert (told.messages_count, target[5 : 5 + size].tobytes()) == (len(some), run)
        for count, cut in ((len(some) + 1, 0), (len(some), 1), (len(some), len(data) - 3)):
            with pytest.raises(MalformedMessage):
                publishing.store_alike(source[: len(data) - cut], count, len(line), target, 5, *where)
        with pytest.raises(MalformedMessage):
            publishing.store_alike(source, len(some), len(line), target[: len(data)], 5, *where)
    with pytest.raises(LimitExceeded):
        publishing.store_alike(source, 1, len(line), target, 0, 0, layout.PARTITION_MAX + 1, 0)


def test_published_vectors_are_stored_and_delivered(half: str) -> None:
    plain, json_ext = vector("pub_partition_0"), vector("pub_ext")
    told, record = published(b"PUB t1 0\n", send_layout.PLAIN_FORM, plain["bytes"])
    assert (told.messages_count, told.answers, told.reason) == (1, vector("ok_frame")["bytes"], 0)
    assert frame_of(record, with_ext=False) == vector("msg_plain")["bytes"]
    assert frame_of(record, with_ext=True) == vector("msg_ext_none")["bytes"]
    assert frame_of(record, with_ext=False, detail=True) == vector("msg_plain_detail")["bytes"]
    _, record = published(b"PUB_EXT t1 0\n", send_layout.EXT, json_ext["bytes"])
    assert frame_of(record, with_ext=True) == vector("msg_ext_json")["bytes"]
    assert frame_of(record, with_ext=False) == vector("msg_plain")["bytes"]
    assert frame_of(record, with_ext=True, detail=True) == vector("msg_ext_json_detail")["bytes"]
    told, record = published(b"PUB_EXT t1 0\n", send_layout.EXT, vector("pub_ext_trace")["bytes"])
    assert told.answers == vector("trace_response_pub_ext")["bytes"]
    # the vector's queue numbers its messages from 2 on
    shown = frame_of(record, with_ext=True, attempts=3, offset=1, partition=1)
    assert shown == vector("msg_ext_json_cluster_p1")["bytes"]
    told, record = published(b"PUB_TRACE t1 0\n", send_layout.TRACED, vector("pub_trace")["bytes"], takes_ext=False)
    assert told.answers == vector("trace_response_pub_trace")["bytes"]
    assert frame_of(record, with_ext=False) == vector("msg_plain_trace")["bytes"]
    assert frame_of(stored(0, ext=b"test_tag", version=2), with_ext=True) == vector("msg_ext_tag")["bytes"]


@pytest.mark.parametrize("name", ["mpub", "mpub_ext", "mpub_trace"])
def test_batches_of_the_vectors(half: str, name: str) -> None:
    told = vector(name)
    data = told["bytes"]
    at = data.index(b"\n") + 1 + 4
    source = np.frombuffer(data, np.uint8)
    form = {"mpub": send_layout.PLAIN_FORM, "mpub_ext": send_layout.EXT, "mpub_trace": send_layout.TRACED}[name]
    target = np.zeros(publishing.batch_room(source.size, 2), np.uint8)
    takes_ext = name == "mpub_ext"
    made = publishing.store_batch(source, at + 4, source.size, 2, form, takes_ext, target, 0, 0, 0, 7)
    answer = vector("trace_response_mpub_trace" if name == "mpub_trace" else "ok_frame")["bytes"]
    assert (made.messages_count, made.reason, made.answers) == (2, 0, answer)
    body = target[: made.size_bytes].tobytes()
    run = Run(5, target[: made.size_bytes], np.array([[0, len(body), 0, 2, 1, 0, 0, 0]]))
    assert [row["payload"] for row in rows(run)] == [b"hello", b"world!"]
    traces = told["decoded"].get("trace_ids", [0, 0])
    assert [int.from_bytes(row["id"][8:], "big") for row in rows(run)] == traces


def test_items_are_passed_alike_by_both_halves(full: bool) -> None:
    generator = random.Random(11)
    guarded = Guarded(4096)
    seed = b"".join(struct.pack(">i", size) + bytes(size) for size in (1, 300, 2, 70, 3))
    for _ in range(20_000 if full else 1_500):
        data = bytearray(seed[: generator.choice((len(seed), generator.randrange(1, len(seed))))])
        for _ in range(generator.choice((0, 1))):
            data[generator.randrange(len(data))] = generator.choice((0, 1, 16, 17, 127, 128, 255))
        source, end_max = guarded.holding(bytes(data)), generator.choice((1 << 30, 378))
        halves = (engine.load(publishing.KERNEL_MODULE), send_fallback)
        told = [half.pass_items(source, 0, source.size, end_max, 5) for half in halves]
        assert tuple(told[0]) == tuple(told[1]), bytes(data)


def test_a_run_of_publications_stops_where_the_line_changes(half: str) -> None:
    data = (
        b"".join(b"PUB a\n" + struct.pack(">I", n) + b"x" * n for n in (1, 2, 3)) + b"PUB b\n\0\0\0\1x" + b"PUB a\n\0\0"
    )
    told, body = published(b"PUB a\n", send_layout.PLAIN_FORM, data)
    assert (told.messages_count, told.end, told.reason) == (3, 6 * 3 + 4 * 3 + 6, 0)
    assert told.answers == 3 * vector("ok_frame")["bytes"]
    run = Run(5, np.frombuffer(body, np.uint8), np.array([[0, len(body), 0, 3, 2, 0, 0, 0]]))
    assert [row["payload"] for row in rows(run)] == [b"x", b"xx", b"xxx"]


@pytest.mark.parametrize("entry", vectors()["negative"], ids=lambda entry: entry["name"])
def test_negative_vectors_are_refused(half: str, entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["hex"])
    line = data[: data.find(b"\n") + 1]
    if not line.startswith(b"PUB") or "topic" in entry["name"] or "partition" in entry["name"]:
        pytest.skip("not for the codec: commands and endpoint answer it")
    form = send_layout.EXT if line.startswith(b"PUB_EXT") else send_layout.PLAIN_FORM
    told, _ = published(line, form, data)
    wanted = {
        "neg_pub_empty": send_layout.NO_BODY,
        "neg_pub_ext_len_exceeds": send_layout.BAD_EXT_LENGTH,
        "neg_pub_ext_no_body": send_layout.BAD_EXT_LENGTH,
        "neg_pub_ext_two_bytes": send_layout.BAD_EXT_LENGTH,
        "neg_pub_ext_trace_number": send_layout.BAD_TRACE,
        "neg_pub_ext_trace_empty": send_layout.BAD_TRACE,
        "neg_pub_ext_trace_text": send_layout.BAD_TRACE,
    }.get(entry["name"], send_layout.BAD_JSON)
    assert (told.messages_count, told.reason) == (0, wanted)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (b'{"a":[{"b":[]}]}', True),
        (b'"x"', True),
        (b"[" * 62 + b"]" * 62, True),
        (b"[" * 63 + b"]" * 63, False),
        (b"[" * 30_000, False),
        (b'{"a":' * 10_000, False),
        (b'{"a":1,}', False),
        (b"[1,]", False),
        (b"[1 2]", False),
        (b'{"a" 1}', False),
        (b'{"a":"\\"}', False),
        (b"tru", False),
        (b"", False),
        (b"  ", False),
        (b'{"a":\x00}', False),
    ],
)
def test_what_counts_as_json(half: str, text: bytes, good: bool) -> None:
    assert json_text.is_json(text) is good
    data = b"PUB_EXT t\n" + struct.pack(">IH", 2 + len(text) + 1, len(text)) + text + b"x"
    told, _ = published(b"PUB_EXT t\n", send_layout.EXT, data)
    assert told.reason == (0 if good else send_layout.BAD_JSON)


def test_sizes_at_the_edge(half: str) -> None:
    text = b'{"a":"' + b"x" * (limits.EXT_BYTES_MAX - 8) + b'"}'
    data = b"PUB_EXT t\n" + struct.pack(">IH", 2 + len(text) + 1, len(text)) + text + b"x"
    told, body = published(b"PUB_EXT t\n", send_layout.EXT, data)
    assert (told.messages_count, told.reason) == (1, 0)
    run = Run(5, np.frombuffer(body, np.uint8), np.array([[0, len(body), 0, 1, 0, 0, 0, 0]]))
    assert headers(rows(run)[0]) == [("a", 2, b"x" * (limits.EXT_BYTES_MAX - 8))]
    told, _ = published(b"PUB t\n", 0, b"PUB t\n" + struct.pack(">I", limits.MESSAGE_BYTES_MAX + 1))
    assert told.reason == send_layout.TOO_LARGE
    with pytest.raises(LimitExceeded, match="partition 1024"):
        published(b"PUB t\n", 0, b"PUB t\n\0\0\0\1x", partition=1024)


def test_bursts_of_fin(half: str) -> None:
    ids = [7, 1 << 50 | 3, 0x0A0A0A0A0A0A, 0]
    data = b"".join(b"FIN " + number.to_bytes(8, "big") + bytes(8) + b"\n" for number in ids) + b"FIN \0"
    end, found = delivery.take_fins(np.frombuffer(data, np.uint8), 0, len(data))
    assert (end, found.tolist()) == (21 * 4, ids)
    partitions, offsets = delivery.decode_message_ids(found)
    assert (partitions.tolist()[:2], offsets.tolist()) == ([0, 1], [6, 2, 0x0A0A0A0A0A09, -1])


def test_textual_ids_are_sixteen_digits_both_ways(half: str) -> None:
    # offset 254 of partition 2, as in upstream's own ids: lower case, no byte that is no text
    record = stored(254, ext=b'{"a":1}', partition=2)
    frame = frame_of(record, with_ext=False, textual=True, offset=254, partition=2)
    plain = frame_of(record, with_ext=False, offset=254, partition=2)
    assert frame[18:34] == b"00080000000000ff"
    assert frame[:18] + frame[34:] == plain[:18] + plain[34:]
    told = [b"00080000000000ff", b"0000000000000001", b"f" * 16, b"0" * 16, b"no id of this one", b"00080000000000FF"]
    data = b"".join(b"FIN " + one[:16] + b"\n" for one in told)
    end, found = delivery.take_fins(np.frombuffer(data, np.uint8), 0, len(data), textual=True)
    assert end == len(data)
    assert found.tolist() == [2 << 50 | 255, 1, *[delivery.NO_ID] * 4]
    assert [delivery.internal_id(one[:16], textual=True) for one in told] == found.tolist()


def test_rebase_gives_new_ids_and_good_checksums(half: str) -> None:
    body = np.frombuffer(stored(0) + stored(1, ext=b'{"a":1}'), np.uint8).copy()
    publishing.rebase(body, 3, 90)
    assert body.tobytes() == stored(90, partition=3) + stored(91, ext=b'{"a":1}', partition=3)
    with pytest.raises(MalformedMessage):
        publishing.rebase(body[:-1].copy(), 0, 0)


# -- Batch to NSQ


def batch_of(*told: tuple[list[tuple[str, int, bytes | None]], bytes | None], first: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "offset": first + at,
                "state": 1,
                "timestamp": 1_700_000_000_000_000 + at,
                "headers": [{"key": key, "kind": kind, "value": value} for key, kind, value in some],
                "payload": payload,
            }
            for at, (some, payload) in enumerate(told)
        ],
        schema=SCHEMA,
    )


def test_encoded_batches_come_back(half: str) -> None:
    keep = [some for _, some in EXTS if all(kind != 1 or value in (None, b"hello") for _, kind, value in some)]
    batch = batch_of(*[(meaning, b"p%d" % at) for at, meaning in enumerate(keep)], first=40)
    body = NSQ.encode(batch)
    run = Run(5, np.frombuffer(body, np.uint8), np.array([[0, len(body), 40, len(keep), 39 + len(keep), 0, 0, 0]]))
    found = rows(run, carrier=False)
    assert [headers(row) for row in found] == keep
    assert [row["timestamp"] for row in found] == batch.column("timestamp").to_pylist()
    assert [int.from_bytes(row["id"][:8], "big") for row in found] == [
        offset + 1 for offset in range(40, 40 + len(keep))
    ]
    # ids of this very place are kept, trace and all
    again = to_batch(next(iter(NSQ.decode(run, ScanRequest(carrier=False)))))
    assert NSQ.encode(again) == body


@pytest.mark.parametrize(
    ("header", "payload", "sentence"),
    [
        (("a", 6, b"abcd"), b"x", "message 0: header 'a' of kind 6 has no form"),
        (("a", 15, f64(float("nan"))), b"x", "header 'a' of kind 15"),
        (("a", 2, b"\xff"), b"x", "header 'a'"),
        (("\\xff", 2, b"x"), b"x", "header"),
        (("a", 7, b"short"), b"x", "header 'a'"),
        (("a", 2, b"x" * 65_535), b"x", "bytes of JSON; NSQ takes 65535"),
        (("a", 2, b"x"), b"", "message 0 has an empty payload"),
        (("a", 2, b"x"), None, "message 0 has a null payload"),
    ],
)
def test_what_nsq_cannot_hold_is_named(header: Any, payload: bytes | None, sentence: str) -> None:
    with pytest.raises(LimitExceeded, match=sentence):
        records(batch_of(([header], payload)))


def test_items_of_a_batch_are_those_of_the_vector() -> None:
    told = vector("mpub_ext")["decoded"]["items"]
    made = b"".join(item(each["ext"].encode(), each["body"].encode()) for each in told)
    assert vector("mpub_ext")["bytes"].endswith(made)
    made = ext_of([("##client_dispatch_tag", 2, b"test_tag"), ("custom_header1", 2, b"test_header")])
    assert made == told[0]["ext"].encode()


# -- damage and lies


def test_salvage_keeps_what_is_whole(half: str) -> None:
    told = [stored(at, b"x" * 20, b'{"a":%d}' % at) for at in range(5, 11)]
    run = run_of(told, first=5)
    region = run.region.copy()
    region[len(told[0]) + 60] ^= 1
    start = sum(map(len, told[:3]))
    region[start : start + 4] = 0xFF
    found = NSQ.salvage(Run(5, region, run.chunks))
    assert [row["offset"] for row in rows(found)] == [5, 7, 9, 10]
    assert [row["payload"] for row in rows(found)] == [b"x" * 20] * 4


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (stored(0)[:-1], 1),
        (struct.pack(">I", 5) + bytes(60), 1),
        (stored(0, version=4, ext=b"x" * 9)[:35] + b"\xff\xff" + bytes(20), 1),
        (struct.pack(">II", 27, 0) + bytes(26) + b"\x04", 1),
        (stored(0), 2),
        (stored(0) + stored(1), 1),
    ],
)
def test_lies_are_refused(half: str, data: bytes, count: int) -> None:
    run = Run(5, np.frombuffer(data, np.uint8), np.array([[0, len(data), 0, count, count - 1, 0, 0, 0]]))
    with pytest.raises(MalformedMessage, match="the message"):
        rows(run)


ODD = (b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"\\u12", b"\xff", b"e", b"-", b"##trace_id", b"null", b" ")


def mutated(generator: random.Random, seed: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(generator.choice((0, 1, 1, 2, 4))):
        at = generator.randrange(len(data) + 1)
        odd = generator.choice(ODD)
        data[at : at + generator.choice((0, 1, 3))] = odd if generator.random() < 0.8 else b""
    return bytes(data)


def held(located: Located) -> list[bytes]:
    spans = zip(located.start.tolist(), located.length.tolist(), strict=True)
    return [located.data[start : start + length].tobytes() for start, length in spans if length > 0]


def test_kernels_and_twins_say_the_same_of_anything(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(5)
    seeds = [data for data, _ in EXTS] + [b'{"##trace_id":"123","a":[1,{"b":2}],"c":-1.5e3,"d":true}']
    sending = engine.load(publishing.KERNEL_MODULE)
    guarded = Guarded(4096)
    for _ in range(200_000 if full else 1_500):
        texts = [mutated(generator, generator.choice(seeds)) for _ in range(2)]
        told = run_of([stored(at, ext=text) for at, text in enumerate(texts)])
        run = Run(5, guarded.holding(told.region.tobytes()), told.chunks)
        said = []
        for half in (engine.load(messages.KERNEL_MODULE), fallback):
            monkeypatch.setattr(engine, "select", lambda home, other, size_bytes, half=half: half)
            (decoded,) = messages.decode_columns(run, ScanRequest(keys=("a", "##trace_id")))
            places = [(one.kind.tolist(), one.length.tolist(), held(one)) for one in decoded.located.values()]
            said.append((to_batch(decoded).to_pylist(), places))
        assert said[0] == said[1], texts
        data = b"".join(
            b"PUB_EXT t\n" + struct.pack(">IH", 2 + len(text) + 1, len(text)) + text + b"x" for text in texts
        )
        source = guarded.holding(data)
        answers = []
        for half in (sending, send_fallback):
            target, told_ = np.zeros(publishing.pubs_room(source.size, 10), np.uint8), np.zeros(200, np.uint8)
            made = half.store_pubs(source, 0, source.size, 10, send_layout.EXT, True, target, 0, 4, 1, 9, told_)
            answers.append((made, target.tobytes(), told_.tobytes()))
        assert answers[0] == answers[1], texts


def test_stored_bytes_give_columns_or_malformed(full: bool) -> None:
    generator = random.Random(6)
    seed = b"".join(stored(at, ext=data) for at, (data, _) in enumerate(EXTS[:6]))
    guarded = Guarded(4096)
    for _ in range(100_000 if full else 1_500):
        data = bytearray(seed)
        for _ in range(generator.choice((1, 2, 5))):
            data[generator.randrange(len(data))] = generator.choice((0, 1, 4, 34, 92, 127, 255))
        region = guarded.holding(bytes(data[: generator.choice((len(data), generator.randrange(len(data)))) or 1]))
        chunks = np.array([[0, region.size, 0, 6, 5, 0, 0, 0]])
        run = Run(5, region, chunks)
        try:
            for decoded in NSQ.decode(run, ScanRequest(keys=("a",))):
                to_batch(decoded).validate(full=True)
        except MalformedMessage:
            pass
        NSQ.salvage(run)


def test_layout_of_ids() -> None:
    assert layout.OFFSET_MAX + 1 < 1 << layout.OFFSET_BITS
    with pytest.raises(LimitExceeded, match="no NSQ message id"):
        records(batch_of(([], b"x"), first=1 << 50))
