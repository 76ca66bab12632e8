"""The admin endpoint as HTTP: native data in and out, long polls, states, groups, transactions, metrics, the token."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from lading import testing
from lading.chunk.runs import runs
from lading.dialects.native.messages import BlockHeader, encode_block
from lading.dialects.registry import dialect, to_batch
from lading.model.batch import SCHEMA
from lading.settings.settings import parse_address
from lading.testing import BrokerProcess
from lading.transports.lading.http import AdminHttp
from tests.endpoints.frames import Frames, header, message, payloads, poll, to_partition

_numbers = count(1)
WRITER = bytes(range(16))


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{broker.endpoints['admin']}", timeout=20) as client:
        yield client


@pytest.fixture
def topic(http: httpx.Client) -> str:
    """The path of a new topic with two partitions in stream ``default``."""
    path = f"/topics/default/admin-{next(_numbers)}"
    assert http.post(path, json={"partitions": 2}).status_code == 201
    return path


Headers = list[tuple[str, int, bytes | None]]


def batch(rows: list[tuple[bytes | None, Headers]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "offset": 0, "state": 1, "timestamp": 1_700_000_000_000_000 + at, "id": None, "checksum": None,
                "key": None, "payload": payload,
                "headers": [{"key": key, "kind": kind, "value": value} for key, kind, value in headers],
            }
            for at, (payload, headers) in enumerate(rows)
        ],
        schema=SCHEMA,
    )  # fmt: skip


def block(payload_list: list[bytes], sequence: int | None = None, transaction_id: int = 0) -> bytes:
    rows: list[tuple[bytes | None, Headers]] = [
        (payload, [("n", 6, struct.pack("<i", at)), ("carrier", 2, b"UA" if at % 2 else b"DL")])
        for at, payload in enumerate(payload_list)
    ]
    facts = BlockHeader(transaction_id=transaction_id)
    if sequence is not None:
        facts = BlockHeader(WRITER, 1, sequence, transaction_id)
    return encode_block(batch(rows), facts)


def decoded(answer: httpx.Response) -> list[dict[str, Any]]:
    region = np.frombuffer(answer.content, np.uint8)
    return [
        row
        for run in runs(region, 0, region.size)
        for part in dialect(run.dialect).decode(run)
        for row in to_batch(part).to_pylist()
    ]


def refused(answer: httpx.Response, status: int, reason: str) -> str:
    assert (answer.status_code, answer.json()["reason"]) == (status, reason), answer.text
    return str(answer.json()["message"])


def test_topics(http: httpx.Client, topic: str) -> None:
    document = http.get(topic).json()
    assert topic.endswith(document["topic"])
    assert (document["stream"], document["name"], document["settings"]) == ("default", document["topic"], {})
    assert len(bytes.fromhex(document["id"])) == 16
    assert [part["partition"] for part in document["partitions"]] == [0, 1]
    assert document["partitions"][0] | {"size_bytes": 0} == {
        "partition": 0, "first_offset": 0, "next_offset": 0, "synced_end": 0, "stable_end": 0, "epoch": 1,
        "epochs": [[1, 0]], "size_bytes": 0, "segments": 1,
        "has_unavailable": False, "refusal": None,
    }  # fmt: skip
    assert document in http.get("/topics").json()
    refused(http.post(topic, json={"partitions": 1}), 409, "topic_name_exists")
    assert http.delete(topic).status_code == 204
    refused(http.get(topic), 404, "topic_name_not_found")


@pytest.mark.parametrize("name", ["a%00b", "a%0Ab", "%1B%5B31m", "%7F", "%E2%80%AE", "n" * 256, "%C2%85"])
def test_names_that_a_terminal_or_a_client_cannot_take_are_refused(http: httpx.Client, name: str) -> None:
    refused(http.post(f"/topics/default/{name}"), 400, "invalid_topic_name")
    refused(http.post(f"/topics/{name}/topic"), 400, "invalid_stream_name")
    refused(http.post(f"/streams/{name}"), 400, "invalid_stream_name")
    refused(http.post(f"/groups/{name}/join", json={"member": "m"}), 400, "invalid_group_id")
    refused(http.get(f"/topics/default/{name}"), 404, "topic_name_not_found")


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        ("9" * 5_000, 400, "malformed"),
        (str(1 << 31), 400, "malformed"),
        ("-1", 400, "malformed"),
        ("one", 400, "malformed"),
        ("²", 400, "malformed"),
        ("2", 404, "partition_not_found"),
        (str((1 << 31) - 1), 404, "partition_not_found"),
    ],
)
def test_a_partition_that_cannot_be_is_malformed_and_one_that_is_not_there_is_not_found(
    http: httpx.Client, topic: str, number: str, status: int, reason: str
) -> None:
    """5,000 digits were answered as a partition that is not there."""
    refused(http.get(f"{topic}/{number}/chunks"), status, reason)
    refused(http.get(f"{topic}/{number}/batches"), status, reason)
    refused(http.get(f"{topic}/{number}/states"), status, reason)
    refused(http.get(f"{topic}/{number}/offset?timestamp_us=1"), status, reason)
    refused(http.get(f"/groups/g/positions/{topic.removeprefix('/topics/')}/{number}"), status, reason)
    poisoned = {"where": "n > 1", "state": "poisoned", "ranges": {number: [0, 1]}}
    refused(http.put(f"{topic}/states", json=poisoned), status, reason)


def test_numbers_and_texts_without_bounds_are_refused(http: httpx.Client, topic: str) -> None:
    for timeout_ms in (2**63 - 1, 2**63, 10**400, 0, -1):
        refused(http.post("/transactions", json={"timeout_ms": timeout_ms}), 400, "malformed")
    refused(http.post("/topics/default/%ED%A0%80"), 400, "malformed")
    refused(http.get("/topics/default/%FF"), 400, "malformed")
    body = b'{"key": "\\ud800", "transactions": []}'
    refused(http.post("/transactions/commit", content=body), 400, "malformed")


def test_streams(http: httpx.Client) -> None:
    assert http.post("/streams/made%20here", json={"id": 4711}).json() == {"id": 4711, "name": "made here"}
    refused(http.post("/streams/made%20here"), 409, "stream_name_exists")
    assert {"id": 4711, "name": "made here", "topics": 0, "size_bytes": 0, "messages": 0} in http.get("/streams").json()
    assert http.delete("/streams/made%20here").status_code == 204
    refused(http.delete("/streams/made%20here"), 404, "stream_name_not_found")


def test_a_browser_is_told_what_this_port_is(http: httpx.Client) -> None:
    root = http.get("/")
    assert root.status_code == 200 and root.headers["content-type"].startswith("text/plain")
    assert root.text.startswith("This is the admin endpoint of a Lading broker") and root.text.count("\n") == 1
    assert "lading console" in root.text and "docs/" in root.text
    for path in ("/index.html", "/metrics/x"):
        missing = http.get(path)
        assert missing.status_code == 404
        assert missing.headers["content-type"].startswith("text/plain")
        assert f"GET {path}: not here. This is the admin endpoint of a Lading broker" in missing.text
        assert "lading console" in missing.text


def test_names_with_slashes_travel_encoded(http: httpx.Client) -> None:
    assert http.post("/topics/a%2Fb/c%2Fd").status_code == 201
    assert http.get("/topics/a%2Fb/c%2Fd").json()["topic"] == "c/d"
    assert http.get("/topics/a/b/c/d").status_code == 404
    assert http.delete("/streams/a%2Fb").status_code == 204


def test_chunks_go_in_and_out(http: httpx.Client, topic: str) -> None:
    sent = http.post(f"{topic}/0/chunks", content=block([b"a", b"b"]) + block([b"c"]))
    assert sent.json() == {"base_offset": 0, "count": 3, "duplicate": False}
    answer = http.get(f"{topic}/0/chunks")
    rows = decoded(answer)
    assert [(row["offset"], row["payload"]) for row in rows] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert rows[1]["headers"][0] == {"key": "n", "kind": 6, "value": struct.pack("<i", 1)}
    facts = answer.headers
    assert facts["lading-topic-id"] == http.get(topic).json()["id"]
    assert json.loads(facts["lading-epochs"]) == [[1, 0]]
    bounds = ("first-offset", "base-offset", "end-offset", "synced-end", "stable-end", "epoch")
    assert [int(facts[f"lading-{name}"]) for name in bounds] == [0, 0, 3, 3, 3, 1]
    empty = http.get(f"{topic}/0/chunks?offset=3")
    assert (empty.content, empty.headers["lading-end-offset"]) == (b"", "3")


def test_max_bytes_bounds_an_answer_but_one_chunk_always_comes(http: httpx.Client, topic: str) -> None:
    for number in range(20):
        http.post(f"{topic}/0/chunks", content=block([b"x" * 2000 + b"%d" % number]))
    sizes, offset = [], 0
    while answer := http.get(f"{topic}/0/chunks?offset={offset}&max_bytes=1").content:
        sizes.append(len(answer))
        offset += len(decoded(httpx.Response(200, content=answer)))
        assert len(sizes) <= 20
    assert offset == 20
    assert len(http.get(f"{topic}/0/chunks?max_bytes=9223372036854775807").content) == sum(sizes)


def test_a_repeated_block_is_appended_once(http: httpx.Client, topic: str) -> None:
    first, second = block([b"a"], sequence=0), block([b"b"], sequence=1)
    assert http.post(f"{topic}/0/chunks", content=first).json()["duplicate"] is False
    assert http.post(f"{topic}/0/chunks", content=second).json() == {"base_offset": 1, "count": 1, "duplicate": False}
    assert http.post(f"{topic}/0/chunks", content=first).json() == {"base_offset": 0, "count": 1, "duplicate": True}
    refused(http.post(f"{topic}/0/chunks", content=block([b"x"], sequence=7)), 409, "out_of_sequence")
    assert [row["payload"] for row in decoded(http.get(f"{topic}/0/chunks"))] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("size", "reason"),
    [(0, "invalid_count"), (1, "malformed"), (47, "malformed"), (100, "malformed"), (-1, "malformed")],
)
def test_blocks_that_are_none_append_nothing(http: httpx.Client, topic: str, size: int, reason: str) -> None:
    refused(http.post(f"{topic}/0/chunks", content=block([b"whole"])[:size]), 400, reason)
    assert http.get(f"{topic}/0/chunks").content == b""


def test_a_body_over_the_limit_is_refused_before_it_is_read(broker: BrokerProcess, topic: str) -> None:
    host, port = broker.endpoints["admin"].split(":")
    frames = Frames(f"{host}:{port}")
    head = f"POST {topic}/0/chunks HTTP/1.1\r\nhost: localhost\r\ncontent-length: {1 << 32}\r\n\r\n"
    frames.socket.sendall(head.encode())
    assert b" 413 " in frames.socket.recv(100)
    frames.close()


def test_a_long_poll_answers_when_there_is_something(http: httpx.Client, topic: str) -> None:
    began = time.monotonic()
    timer = threading.Timer(0.3, lambda: http.post(f"{topic}/1/chunks", content=block([b"late"])))
    timer.start()
    answer = http.get(f"{topic}/1/chunks?wait_ms=15000")
    timer.join()
    assert [row["payload"] for row in decoded(answer)] == [b"late"]
    assert time.monotonic() - began < 10


def test_a_long_poll_ends_when_the_topic_is_deleted(http: httpx.Client, topic: str) -> None:
    timer = threading.Timer(0.3, lambda: http.delete(topic))
    timer.start()
    refused(http.get(f"{topic}/1/chunks?wait_ms=15000"), 404, "topic_name_not_found")
    timer.join()


def test_batches_are_filtered_and_projected(http: httpx.Client, topic: str) -> None:
    http.post(f"{topic}/0/chunks", content=block([b"%d" % at for at in range(100)]))

    def ask(**query: Any) -> tuple[list[dict[str, Any]], int]:
        answer = http.get(f"{topic}/0/batches", params=query)
        assert answer.status_code == 200, answer.text
        with pa.ipc.open_stream(answer.content) as reader:
            return reader.read_all().to_pylist(), int(answer.headers["lading-end-offset"])

    rows, end = ask(where="carrier = 'UA' AND n > 90", columns="offset, n int, carrier string")
    assert rows == [{"offset": at, "n": at, "carrier": "UA"} for at in range(91, 100, 2)]
    assert end == 100
    rows, end = ask(offset=10, end=15, headers_only="true")
    assert [(row["offset"], row["payload"]) for row in rows] == [(at, None) for at in range(10, 15)]
    assert end == 15
    rows, end = ask(where="n >= 50", max_rows=3)
    assert ([row["offset"] for row in rows], end) == ([50, 51, 52], 53)
    assert ask(where="n < 0")[0] == []
    assert ask(offset=100) == ([], 100)
    http.put(f"{topic}/0/states", json={"first": 0, "end": 98, "state": "poisoned"})
    assert [row["offset"] for row in ask(columns="offset")[0]] == [98, 99]
    states = [row["state"] for row in ask(states="all", columns="offset, state")[0]]
    assert states == [20] * 98 + [1, 1]


@pytest.mark.parametrize(
    "query",
    [
        "where=delay+%3E",
        "columns=n+number",
        "states=some",
        "headers_only=perhaps",
        "limit=3",
        "offset=-1",
        "max_rows=0",
    ],
)
def test_queries_that_cannot_be(http: httpx.Client, topic: str, query: str) -> None:
    refused(http.get(f"{topic}/0/batches?{query}"), 400, "malformed")


def test_states_hide_from_pipelines_and_travel_with_chunks(http: httpx.Client, topic: str) -> None:
    http.post(f"{topic}/0/chunks", content=block([b"a", b"b", b"c"]))
    assert http.put(f"{topic}/0/states", json={"offsets": [1], "state": "unavailable"}).json()["changed"] == 1
    assert http.get(f"{topic}/0/states").json() == [{"first": 1, "end": 2, "state": "unavailable"}]
    assert json.loads(http.get(f"{topic}/0/chunks").headers["lading-hidden"]) == [[1, 2, 10]]
    refused(http.put(f"{topic}/0/states", json={"first": 2, "end": 9, "state": "poisoned"}), 400, "invalid_offset")
    refused(http.put(f"{topic}/0/states", json={"offsets": [1], "state": "ill"}), 400, "invalid_state")


def test_offset_at_a_time(http: httpx.Client, topic: str) -> None:
    http.post(f"{topic}/0/chunks", content=block([b"a", b"b", b"c"]))
    for timestamp_us, offset in ((0, 0), (1_700_000_000_000_001, 1), (1_900_000_000_000_000, 3)):
        assert http.get(f"{topic}/0/offset?timestamp_us={timestamp_us}").json() == {"offset": offset}


def test_a_transaction_is_seen_when_it_is_committed(http: httpx.Client, topic: str) -> None:
    begun = [http.post("/transactions", json={"scope": "job/1"}).json()["transaction_id"] for _ in range(2)]
    for transaction_id in begun:
        body = block([b"from %d" % transaction_id], transaction_id=transaction_id)
        assert http.post(f"{topic}/0/chunks", content=body).status_code == 200
    open_ = http.get(f"{topic}/0/chunks")
    assert (open_.content, open_.headers["lading-stable-end"], open_.headers["lading-synced-end"]) == (b"", "0", "2")
    commit = {"key": f"key of {topic}", "transactions": begun[:1], "scope": "job/1"}
    assert http.post("/transactions/commit", json=commit).json() == {"committed": begun[:1], "repeated": False}
    assert http.post("/transactions/commit", json=commit).json()["repeated"] is True
    answer = http.get(f"{topic}/0/chunks")
    assert json.loads(answer.headers["lading-aborted"]) == [[1, 2]]
    assert decoded(answer)[0]["payload"] == b"from %d" % begun[0]
    late = block([b"late"], transaction_id=begun[1])
    refused(http.post(f"{topic}/0/chunks", content=late), 409, "transaction_not_open")


def test_native_groups(http: httpx.Client, topic: str) -> None:
    name = topic.rpartition("/")[2]
    group = f"/groups/group%2F{name}"
    one = http.post(f"{group}/join", json={"member": "one", "topics": [name]}).json()
    assert sorted(one["partitions"]) == [["default", name, 0], ["default", name, 1]]
    two = http.post(f"{group}/join", json={"member": "two", "topics": [name]}).json()
    assert two["generation"] > one["generation"]
    assert len(two["partitions"]) == 1
    assert http.post(f"{group}/heartbeat", json={"member": "one"}).json()["generation"] == two["generation"]
    position = f"{group}/positions/default/{name}/0"
    assert http.get(position).json() == {"offset": None, "epoch": None}
    stored = {"offset": 0, "epoch": 1, "generation": two["generation"]}
    assert http.put(position, json=stored).status_code == 204
    assert http.get(position).json() == {"offset": 0, "epoch": 1}
    refused(http.put(position, json=stored | {"generation": one["generation"]}), 409, "stale_generation")
    http.post(f"{topic}/0/chunks", content=block([b"not read"]))
    told = {"protocol": "native", "group": f"group/{name}", "state": "Stable", "lag": 1}
    told["generation"] = two["generation"]
    assert told | {"members": 2} in http.get("/groups").json()
    progress = {"topic": name, "partition": 0, "position": 0, "end": 1, "lag": 1}
    shown = http.get(f"/groups/native/group%2F{name}").json()
    assert shown == told | {"members": ["one", "two"], "partitions": [progress]}
    labels = f'group="group/{name}",partition="0",protocol="native",topic="{name}"'
    assert f"lading_group_lag{{{labels}}} 1.0" in http.get("/metrics").text
    refused(http.get(f"/groups/kafka/group%2F{name}"), 404, "group_not_found")
    assert http.post(f"{group}/leave", json={"member": "two"}).status_code == 200
    refused(http.post(f"{group}/heartbeat", json={"member": "two"}), 404, "group_member_not_found")


def test_what_native_clients_write_iggy_clients_read(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    """Across dialects: what Iggy cannot hold is left out or stood for, and what it can is exact (design.md Carrier)."""
    rows: list[tuple[bytes | None, Headers]] = [
        (b"plain", [("carrier", 2, b"UA"), ("delay", 6, struct.pack("<i", -3))]),
        (b"twice", [("k", 2, b"first"), ("k", 2, b"last")]),
        (None, [("null", 1, None), ("kept", 2, b"v")]),
        (b"", []),
    ]
    assert http.post(f"{topic}/0/chunks", content=encode_block(batch(rows))).status_code == 200
    assert http.put(f"{topic}/0/states", json={"offsets": [0], "state": "poisoned"}).status_code == 200
    name = topic.rpartition("/")[2].encode()
    place = b"\2\7default" + bytes([2, len(name)]) + name
    frames = Frames(broker.endpoints["iggy_tcp"])
    status, body = frames.ask(100, poll(place))
    assert status == 0
    assert payloads(body) == [b"plain", b"twice", b"\0", b"\0"]
    assert body[4 + 8] == 20
    assert header(b"carrier", 2, b"UA") + header(b"delay", 6, struct.pack("<i", -3)) in body
    assert header(b"k", 2, b"last") in body
    assert header(b"k", 2, b"first") not in body
    path = f"/streams/default/topics/{name.decode()}/messages?partition_id=1"
    over_http = httpx.get(f"http://{broker.endpoints['iggy_http']}{path}").json()
    assert [one["payload"] for one in over_http] == ["cGxhaW4=", "dHdpY2U=", "AA==", "AA=="]
    assert over_http[0]["state"] == "poisoned"
    assert over_http[0]["headers"]["delay"] == {"kind": "int32", "value": "/f///w=="}
    # and both kinds in one partition, in order
    assert frames.ask(101, place + to_partition(1) + message(b"from iggy")) == (0, b"")
    assert payloads(frames.ask(100, poll(place))[1])[-1] == b"from iggy"
    frames.close()


def test_metrics_and_health(http: httpx.Client, topic: str) -> None:
    http.post(f"{topic}/0/chunks", content=block([b"counted"]))
    assert http.get("/health").json()["status"] == "ok"
    assert http.get("/live").json() == {"status": "live"}
    assert http.get("/ready").json() == {"status": "ready", "reasons": {}}
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    name = topic.rpartition("/")[2]
    assert f'lading_partition_next_offset{{partition="0",stream="default",topic="{name}"}} 1.0' in answer.text
    for metric in (
        'lading_requests_total{command="chunks.append",endpoint="admin",status="200"}',
        'lading_messages_in_total{endpoint="admin"}',
        "lading_sync_seconds_bucket",
        "lading_loop_lag_seconds_count",
        "process_cpu_seconds_total",
    ):
        assert metric in answer.text


@pytest.mark.turns(2, part=0)
def test_the_token_is_asked_for() -> None:
    with testing.broker(endpoints__admin__token="s3cret") as broker:
        url = f"http://{broker.endpoints['admin']}"
        assert httpx.get(f"{url}/health").status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            answer = httpx.get(f"{url}/topics", headers=headers)
            assert answer.status_code == 401
            assert "endpoints.admin.token" in answer.text
        assert httpx.get(f"{url}/topics", headers={"authorization": "Bearer s3cret"}).json() == []
        assert "s3cret" not in broker.log_file.read_text()


@pytest.mark.turns(2, part=1)
def test_a_token_may_be_any_text() -> None:
    """Its bytes are compared as they were sent."""
    with testing.broker(endpoints__admin__token="żółć") as broker:
        url = f"http://{broker.endpoints['admin']}/topics"
        assert httpx.get(url, headers={b"authorization": "Bearer żółć".encode()}).json() == []
        assert httpx.get(url, headers={"authorization": "Bearer zolc"}).status_code == 401
        address = parse_address(broker.endpoints["admin"])
        admin = AdminHttp(address.host, address.port, token="żółć")
        assert admin.get("topics").status == 200
        admin.close()


@pytest.mark.parametrize("own", [None, "nsq-and-iggy"])
@pytest.mark.turns(2)
def test_what_iggy_and_nsq_can_delete_over_http_needs_a_token_too(own: str | None) -> None:
    tokens = {"endpoints.admin.token": "s3cret"}
    if own is not None:
        tokens |= {f"endpoints.{name}.token": own for name in ("iggy_http", "nsqd_http", "nsqlookupd_http")}
    with testing.broker(settings=tokens) as broker:
        url = {name: f"http://{address}" for name, address in broker.endpoints.items()}
        assert httpx.post(f"{url['nsqd_http']}/pub?topic=kept", content=b"x").text == "OK"
        assert httpx.post(f"{url['nsqd_http']}/channel/create?topic=kept&channel=read").status_code == 200
        assert httpx.post(f"{url['iggy_http']}/streams", json={"stream_id": 7, "name": "kept"}).status_code == 201
        guarded = [
            ("POST", f"{url['nsqd_http']}/channel/empty?topic=kept&channel=read"),
            ("POST", f"{url['nsqd_http']}/channel/delete?topic=kept&channel=read"),
            ("POST", f"{url['nsqd_http']}/topic/pause?topic=kept"),
            ("POST", f"{url['nsqlookupd_http']}/topic/tombstone?topic=kept&node=a:1"),
            ("POST", f"{url['nsqlookupd_http']}/topic/delete?topic=kept"),
            ("DELETE", f"{url['iggy_http']}/streams/7"),
        ]
        for method, address in guarded:
            for headers in ({}, {"authorization": "Bearer wrong"}):
                answer = httpx.request(method, address, headers=headers)
                assert (answer.status_code, answer.json()["reason"]) == (401, "unauthorized"), address
                assert "endpoints.admin.token" in answer.text
        assert httpx.get(f"{url['iggy_http']}/streams/7").status_code == 200
        for token in ("s3cret", own) if own else ("s3cret",):
            address, headers = guarded[0][1], {"authorization": f"Bearer {token}"}
            assert httpx.post(address, headers=headers).status_code == 200
        answer = httpx.delete(f"{url['iggy_http']}/streams/7", headers={"authorization": f"Bearer {own or 's3cret'}"})
        assert answer.status_code == 204
        if own:
            assert httpx.get(f"{url['admin']}/topics", headers={"authorization": f"Bearer {own}"}).status_code == 401


def test_scrapers_that_come_together_all_get_the_figures(http: httpx.Client, topic: str) -> None:
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(http.get("/metrics").text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    name = topic.rpartition("/")[2]
    assert all(f'lading_partition_next_offset{{partition="0",stream="default",topic="{name}"}} 0.0' in text
               for text in texts) and len(texts) == 8  # fmt: skip
