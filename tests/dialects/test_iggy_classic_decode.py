"""Stored and polled messages to columns: the real server's files, the published vectors, clipping and caps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.dialects.carrier import carry
from lading.dialects.iggy.classic import messages
from lading.dialects.registry import dialect, to_batch
from lading.model.batch import SCHEMA
from lading.model.errors import MalformedMessage
from lading.model.names import key_text
from lading.model.run import Located, Run
from lading.model.scan_request import ScanRequest
from tests.dialects.iggy_classic import (
    block,
    messages_in,
    octets,
    run_of,
    stored,
    vectors,
    written_logs,
    written_messages,
)
from tests.dialects.targets import TARGETS

IGGY = dialect("iggy_classic")
HEADERS = [(b"carrier", 2, b"UA"), (b"delay", 7, bytes(8)), (b"carrier", 2, b"DL")]


def rows(run: Run, **options: Any) -> list[dict[str, Any]]:
    return [row for decoded in IGGY.decode(run, ScanRequest(**options)) for row in to_batch(decoded).to_pylist()]


def values(located: Located) -> list[bytes | None]:
    spans = zip(located.start.tolist(), located.length.tolist(), strict=True)
    return [located.data[start : start + length].tobytes() if length >= 0 else None for start, length in spans]


@pytest.mark.parametrize("partition", ["1", "2"])
@pytest.mark.parametrize("max_rows", [1, 37, 10_000])
def test_the_real_servers_files_are_the_messages_of_their_json(half: str, partition: str, max_rows: int) -> None:
    found = []
    for log in written_logs(partition):
        for decoded in IGGY.decode(messages.parse_polled_run(log, 0), ScanRequest(keys=("trace",), max_rows=max_rows)):
            batch = to_batch(decoded)
            batch.validate(full=True)
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            for row, time_us, trace in zip(batch.to_pylist(), times, values(decoded.located["trace"]), strict=True):
                headers = sorted(row["headers"], key=lambda header: str(header["key"]))
                assert trace == next((h["value"] for h in headers if h["key"] == "trace"), None)
                found.append(
                    {
                        "offset": row["offset"],
                        "state": row["state"],
                        "timestamp": time_us,
                        "id": str(int.from_bytes(row["id"], "little")),
                        "checksum": row["checksum"],
                        "headers": [
                            {"key": h["key"], "kind": h["kind"], "value_hex": h["value"].hex()} for h in headers
                        ],
                        "payload_hex": row["payload"].hex(),
                    }
                )
    assert found == written_messages(partition)


def test_the_polled_vectors_decode_to_what_they_say(half: str) -> None:
    polled = [entry for entry in vectors().values() if entry["kind"] == "message_polled_and_on_disk"]
    assert len(polled) >= 5
    for entry in polled:
        told = entry["decoded"]
        (row,) = rows(messages.parse_polled_run(bytes.fromhex(entry["hex"]), 0))
        assert (row["offset"], row["state"], row["checksum"]) == (told["offset"], told["state"], told["checksum"])
        assert int.from_bytes(row["id"], "little") == told["id"]
        assert row["payload"] == told["payload"].encode()
        want = [(h["key"], h["kind_code"], bytes.fromhex(h["value_hex"])) for h in told["headers"]]
        assert [tuple(header.values()) for header in row["headers"]] == want


def test_a_polls_answer_is_a_run(half: str) -> None:
    answer = bytes.fromhex(vectors()["A.poll.response.seed002_sample"]["hex"])
    run = messages.parse_polled_run(answer)
    assert run.chunks[:, 2:5].tolist() == [[0, 2, 1]]
    assert [row["payload"] for row in rows(run)] == [b"orders_data_2", b"orders_data_3"]
    assert len(messages.parse_polled_run(bytes(4)).chunks) == 0
    for wrong in (b"", bytes(3), b"\x03" + answer[1:], answer[:-1], answer + answer[4:]):
        with pytest.raises(MalformedMessage):
            messages.parse_polled_run(wrong)


def test_only_what_was_asked_for_is_built(half: str) -> None:
    run = run_of([stored(0, headers=HEADERS), stored(1)])
    (decoded,) = IGGY.decode(run, ScanRequest(fields=frozenset({"state", "payload"}), keys=("delay",)))
    assert set(decoded.columns) == {"state", "payload"}
    assert set(decoded.located) == {"delay"}
    (decoded,) = IGGY.decode(run, ScanRequest(fields=frozenset(), keys=()))
    assert (decoded.count, decoded.columns, decoded.located) == (2, {}, {})
    (whole,) = IGGY.decode(run)
    assert to_batch(whole).schema == SCHEMA
    assert to_batch(whole).column("key").null_count == 2


def test_the_last_value_of_a_key_is_located(half: str) -> None:
    run = run_of([stored(0, headers=HEADERS), stored(1), stored(2, headers=HEADERS[:2])])
    (decoded,) = IGGY.decode(
        run, ScanRequest(fields=frozenset(), keys=("carrier", "delay", "carrie", "carrier2", "", "\\x6361", "\\k1:61"))
    )
    assert values(decoded.located["carrier"]) == [b"DL", None, b"UA"]
    assert decoded.located["carrier"].kind.tolist() == [2, 0, 2]
    assert decoded.located["carrier"].length.tolist() == [2, -1, 2]
    assert values(decoded.located["delay"]) == [bytes(8), None, bytes(8)]
    for never in ("carrie", "carrier2", "", "\\x6361", "\\k1:61"):
        assert decoded.located[never].length.tolist() == [-1, -1, -1]


def test_keys_of_every_length_are_found(half: str) -> None:
    keys = ["k" * size for size in (1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255)]
    headers = [(key.encode(), 2, str(len(key)).encode()) for key in keys]
    (decoded,) = IGGY.decode(
        run_of([stored(0, headers=headers)]), ScanRequest(fields=frozenset({"headers"}), keys=tuple(keys))
    )
    for key in keys:
        assert values(decoded.located[key]) == [str(len(key)).encode()]
    assert [header["key"] for header in decoded.columns["headers"][0].as_py()] == keys


def test_keys_that_are_no_plain_text_are_escaped(half: str) -> None:
    keys = [b"plain", b"\\slash", "Größe-航班".encode(), b"\xff\xfe", b"\\\xff", b"\xc3" * 20, "é".encode() * 9]
    run = run_of([stored(0, headers=[(key, 2, b"v") for key in keys]), stored(1, headers=HEADERS)])
    texts = [key_text(key) for key in keys]
    (decoded,) = IGGY.decode(run, ScanRequest(keys=tuple(texts)))
    batch = to_batch(decoded)
    batch.validate(full=True)
    assert [header["key"] for header in batch.column("headers")[0].as_py()] == texts
    assert [header["key"] for header in batch.column("headers")[1].as_py()] == ["carrier", "delay", "carrier"]
    assert all(values(decoded.located[text]) == [b"v", None] for text in texts)
    assert IGGY.encode(batch.slice(0, 1)) == stored(0, headers=[(key, 2, b"v") for key in keys])


def test_offsets_clip_messages_and_chunks(half: str) -> None:
    run = run_of([stored(n) for n in range(10)], [stored(n) for n in range(10, 13)], [stored(n) for n in range(13, 20)])
    for first, end in [(0, 20), (3, 4), (9, 14), (10, 13), (19, 99), (20, 30), (5, 5)]:
        found = [row["offset"] for row in rows(run, first=first, end=end)]
        assert found == list(range(first, min(end, 20)))
    # the chunk's own numbers are enough to skip it: its bytes are not looked at
    run.chunks[0, 1] += 1
    assert [row["offset"] for row in rows(run, first=10, end=13)] == [10, 11, 12]


def test_caps_bound_a_portion_but_never_stop_it(half: str) -> None:
    run = run_of([stored(n, payload=b"p" * 100, headers=HEADERS) for n in range(50)])
    assert [d.count for d in IGGY.decode(run, ScanRequest(max_rows=20))] == [20, 20, 10]
    portions = [d.count for d in IGGY.decode(run, ScanRequest(max_bytes=1000))]
    assert sum(portions) == 50 and max(portions) <= 10
    assert [d.count for d in IGGY.decode(run, ScanRequest(max_bytes=1))] == [1] * 50
    assert [d.count for d in IGGY.decode(run, ScanRequest(max_bytes=1, fields=frozenset({"offset"})))] == [50]


def test_a_long_key_and_a_long_value_survive(half: str) -> None:
    for size in (1, 8, 63, 64, 65, 255, 70_000):
        headers = [(b"k" * size, 1, b"v" * size)]
        (row,) = rows(run_of([stored(0, headers=headers, payload=b"p" * size)], gap=b""))
        assert row["headers"] == [{"key": "k" * size, "kind": 1, "value": b"v" * size}]
        assert row["payload"] == b"p" * size


def test_what_the_real_server_serves_over_http_is_readable(half: str) -> None:
    odd = [(b"", 2, b""), (b"int32", 6, b"\1\2\3"), (b"unknown", 99, b"?")]
    (row,) = rows(run_of([stored(0, headers=odd, payload=b"")], gap=b""))
    assert [tuple(header.values()) for header in row["headers"]] == [
        ("", 2, b""),
        ("int32", 6, b"\1\2\3"),
        ("unknown", 99, b"?"),
    ]
    assert row["payload"] == b""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (stored(0)[:-1], "cut short"),
        (stored(0)[:44], "cut short"),
        (stored(0, state=2), "state"),
        (stored(1 << 63), "2^63"),
        (stored(0, timestamp_us=1 << 63), "2^63"),
        (stored(0, headers=[(b"k", 128, b"v")]), "kind"),
        (stored(0, headers=[(b"k", 2, b"v")]).replace(b"\1\0\0\0k", b"\2\0\0\0k", 1), "header block"),
        (stored(0, headers=[(b"k", 2, b"v")]).replace(b"\1\0\0\0v", b"\xff\xff\xff\xffv", 1), "header block"),
    ],
)
def test_bytes_that_are_no_message_are_malformed_and_say_where(half: str, body: bytes, words: str) -> None:
    run = run_of([stored(0)], [body])
    run.chunks[:, 4] = 1 << 62
    with pytest.raises(MalformedMessage, match=words.replace("^", r"\^")) as raised:
        list(IGGY.decode(run, ScanRequest(end=(1 << 63) - 1)))
    assert raised.value.at == run.chunks[1, 0]


def test_header_blocks_are_not_looked_into_unless_needed(half: str) -> None:
    broken = stored(0, headers=[(b"k", 2, b"v")]).replace(b"\1\0\0\0k", b"\2\0\0\0k", 1)
    (decoded,) = IGGY.decode(run_of([broken]), ScanRequest(fields=frozenset({"payload"}), carrier=False))
    assert decoded.columns["payload"].to_pylist() == [b"payload"]


def test_slices_are_the_stored_bytes(half: str) -> None:
    bodies = [[stored(n, payload=b"p" * n) for n in range(1, 6)], [stored(n) for n in range(6, 9)]]
    run = run_of(*bodies, first=1)
    flat = [message for body in bodies for message in body]
    for first in range(10):
        for end in range(first, 11):
            for count in (0, 1, 3, 100):
                want = [message for n, message in enumerate(flat, 1) if first <= n < end][:count]
                cut = messages.slices(run, first, end, count, 1 << 20)
                assert b"".join(cut.parts) == b"".join(want)
                assert cut.count == len(want)
                last = max(first, 1) + len(want) - 1 if want else -1
                assert cut.last_offset == last
    whole = messages.slices(run, 0, 100, 100, 1 << 20)
    assert [len(part) for part in whole.parts] == [len(b"".join(body)) for body in bodies]
    assert messages.slices(run, 0, 100, 100, 1).count == 1
    assert messages.slices(run, 0, 100, 100, len(flat[0]) + len(flat[1])).count == 2


def test_slices_of_bytes_that_are_no_message_are_malformed(half: str) -> None:
    run = run_of([stored(0), stored(1)[:-1]])
    with pytest.raises(MalformedMessage) as raised:
        messages.slices(run, 1, 2, 10, 1000)
    assert raised.value.at == run.chunks[0, 0] + len(stored(0))


def test_states_are_written_into_polled_messages(half: str) -> None:
    data = bytearray(b"".join(stored(n) for n in range(10)))
    assert messages.set_states(data, [(7, 9, 30), (2, 4, 20), (100, 200, 10)]) == 4
    want = [stored(n, state={2: 20, 3: 20, 7: 30, 8: 30}.get(n, 1)) for n in range(10)]
    assert bytes(data) == b"".join(want)
    assert messages.set_states(data, []) == 0
    with pytest.raises(MalformedMessage):
        messages.set_states(bytearray(stored(0)[:-1]), [(0, 1, 20)])


def test_intact_messages_of_a_damaged_chunk_are_found(half: str) -> None:
    log = written_logs("1")[0]
    ends = list(messages_in(log))
    damaged = bytearray(log)
    damaged[ends[3][1] - 1] ^= 1
    damaged[ends[10][0] + 37] ^= 0xFF
    damaged[ends[50][0]] ^= 1
    damaged[ends[99][0] + 8] = 7
    # a torn sector: zeros from behind the state on
    damaged[ends[20][0] + 9 : ends[20][1]] = bytes(ends[20][1] - ends[20][0] - 9)
    chunk = np.array([[0, len(damaged), 0, 100, 99, 0, 0, 0]], np.int64)
    saved = IGGY.salvage(Run(2, octets(damaged), chunk))
    assert sorted(set(range(100)) - set(saved.chunks[:, 2].tolist())) == [3, 10, 20, 50, 99]
    whole = {row["offset"]: row for row in rows(messages.parse_polled_run(log, 0))}
    assert rows(saved) == [whole[offset] for offset in saved.chunks[:, 2].tolist()]


def test_a_carrier_is_undone_while_decoding(half: str) -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "offset": offset,
                "state": 1,
                "timestamp": 1000 + offset,
                "id": bytes(range(16)),
                "checksum": None,
                "key": b"N14228",
                "headers": [{"key": "a", "kind": 2, "value": b"1"}, {"key": "a", "kind": 2, "value": None}],
                "payload": None,
            }
            for offset in range(7, 10)
        ],
        schema=SCHEMA,
    )
    plain = stored(10, headers=HEADERS[:2])
    body = IGGY.encode(carry(batch, TARGETS["iggy"]).batch)
    run = run_of([body, plain], first=7)
    run.chunks[0, 4] = 10
    found = rows(run)
    assert found[:3] == batch.to_pylist()
    assert found[3]["payload"] == b"payload"
    (decoded,) = IGGY.decode(run, ScanRequest(fields=frozenset({"payload"}), keys=("a", "carrier")))
    assert decoded.columns["payload"].to_pylist() == [None, None, None, b"payload"]
    assert decoded.located["a"].length.tolist() == [-2, -2, -2, -1]
    assert values(decoded.located["carrier"]) == [None, None, None, b"UA"]
    (left,) = IGGY.decode(run, ScanRequest(carrier=False))
    assert b"".join(IGGY.encode(to_batch(left)) for left in [left]) == body + plain


def test_header_blocks_written_by_hand_are_the_vectors() -> None:
    entry = vectors()["A.user_headers.three"]
    told = [(h["key"].encode(), h["kind_code"], bytes.fromhex(h["value_hex"])) for h in entry["decoded"]["headers"]]
    assert block(told).hex() == entry["hex"]
