"""Every parameter of every HTTP route with values that no client sends: the answer is never a 500."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from lading import testing
from lading.testing import BrokerProcess

SAMPLES = int(os.environ.get("LADING_FUZZ_HTTP", "3000" if os.environ.get("LADING_TEST_FULL") == "1" else "250"))
"""Requests of each listener: whole with LADING_TEST_FULL=1, as many as LADING_FUZZ_HTTP says."""

NUMBERS: list[Any] = [
    -1,
    0,
    1,
    2,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    10**400,
    1.5,
    1e308,
    -0.0,
]
TEXTS = [
    "",
    " ",
    "0",
    "1",
    "-1",
    "+1",
    "1_0",
    "١",
    "²",
    "0x10",
    "9" * 18,
    "9" * 19,
    "9" * 20,
    "9" * 5_000,
    "1" + "0" * 4_500,
    "nan",
    "inf",
    "true",
    "null",
    "a\0b",
    "a\nb",
    "\x1b[31m",
    "\x7f",
    "\u202e",
    "\ud800",
    "\udfff\ud800",
    "%",
    "%00",
    "%zz",
    "\U0010ffff",
    "a" * 300,
    "ä" * 200,
    ".",
    "..",
    "/",
    "\\",
    "'",
    '"',
    "a=b&c",
    "x" * 20_000,
    "#ephemeral",
    "x#ephemeral",
    "{}",
]
ODD: list[Any] = [None, True, False, [], {}, [[]], [None], {"a": 1}, [1] * 50, {"\ud800": "\ud800"}, ["\ud800"]]
RAW_BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"a":1e999999}',
    b'{"a":' + b"9" * 5_000 + b"}",
    b"[" * 5_000,
    b'"\\ud800"',
    b"{" + b'"a":1,' * 1_000 + b'"a":1}',
    b"\0" * 100,
    b'{"messages":[{"payload":"!"}]}',
    b'{"state":"\\ud800"}',
    b"NaN",
]

GOOD: dict[str, list[Any]] = {
    "stream": ["1", "fuzz"],
    "topic": ["1", "fuzz", "nsq-fuzz"],
    "partition": ["0", "1"],
    "partition_id": ["1"],
    "group": ["g"],
    "group_id": ["1"],
    "client_id": ["1"],
    "protocol": ["native", "kafka", "nsq"],
    "option": ["msg_timeout", "nsqlookupd_tcp_addresses"],
}
"""What else a part of a path is, so that what lies behind it is reached."""

TOPIC = "/topics/{stream}/{topic}"
PARTITION = TOPIC + "/{partition}"
IGGY_TOPIC = "/streams/{stream}/topics/{topic}"
Row = tuple[str, str, list[str], dict[str, Any]]
"""Method, path, names of the query, and a body whose members are changed one at a time."""
ADMIN: list[Row] = [
    ("GET", "/health", [], {}),
    ("GET", "/metrics", ["name[]"], {}),
    ("GET", "/overview", [], {}),
    ("GET", "/me", [], {}),
    ("GET", "/streams", [], {}),
    ("POST", "/streams/{stream}", [], {"id": None}),
    ("DELETE", "/streams/{stream}", [], {}),
    ("GET", "/topics", [], {}),
    ("GET", TOPIC, [], {}),
    ("POST", TOPIC, [], {"partitions": 1, "settings": {"hide_states": True, "retention.ms": 5}}),
    (
        "PUT",
        TOPIC + "/settings",
        [],
        {"hide_states": False, "retention.ms": 1, "dead_letter_topic": "x", "max.message.bytes": 1},
    ),
    ("POST", TOPIC + "/empty", [], {"a": 1}),
    ("DELETE", TOPIC, [], {}),
    ("GET", TOPIC + "/retention", ["within_ms"], {}),
    ("GET", TOPIC + "/states", [], {}),
    (
        "PUT",
        TOPIC + "/states",
        [],
        {"where": "n > 1", "state": "poisoned", "ranges": {"0": [0, 1]}, "reason": "r", "dry_run": True},
    ),
    ("GET", PARTITION + "/chunks", ["offset", "max_bytes"], {}),
    ("POST", PARTITION + "/chunks", [], {"a": 1}),
    ("GET", PARTITION + "/batches", ["offset", "end", "where", "columns", "states", "headers_only", "max_rows"], {}),
    ("GET", PARTITION + "/states", ["first", "end"], {}),
    ("PUT", PARTITION + "/states", [], {"first": 0, "end": 1, "state": "poisoned", "where": "n > 1", "reason": "r"}),
    ("PUT", PARTITION + "/states", [], {"offsets": [0], "state": "poisoned"}),
    ("GET", PARTITION + "/offset", ["timestamp_us"], {}),
    ("POST", "/transactions", [], {"scope": "s", "timeout_ms": 1000}),
    ("POST", "/transactions/commit", [], {"key": "k", "transactions": [], "scope": None}),
    ("POST", "/transactions/abort", [], {"transactions": [1]}),
    ("GET", "/groups", [], {}),
    ("GET", "/groups/{protocol}/{group}", [], {}),
    ("GET", "/groups/{protocol}/{group}/filter", [], {}),
    ("PUT", "/groups/{protocol}/{group}/filter", [], {"where": "n > 1", "client_ids": ["c"]}),
    ("DELETE", "/groups/{protocol}/{group}/filter", [], {}),
    ("POST", "/groups/{protocol}/{group}/filter/preview", [], {"where": "n > 1", "topics": ["fuzz"], "messages": 9}),
    ("POST", "/groups/{group}/join", [], {"member": "m", "topics": ["fuzz"], "generation": None}),
    ("POST", "/groups/{group}/heartbeat", [], {"member": "m", "generation": 1}),
    ("POST", "/groups/{group}/leave", [], {"member": "m"}),
    ("GET", "/groups/{group}/positions/{stream}/{topic}/{partition}", [], {}),
    ("PUT", "/groups/{group}/positions/{stream}/{topic}/{partition}", [], {"offset": 0, "epoch": 1, "generation": 1}),
]
IGGY: list[Row] = [
    ("GET", "/stats", [], {}),
    ("GET", "/clients", [], {}),
    ("GET", "/clients/{client_id}", [], {}),
    ("GET", "/streams", [], {}),
    ("POST", "/streams", [], {"stream_id": 5, "name": "n"}),
    ("GET", "/streams/{stream}", [], {}),
    ("DELETE", "/streams/{stream}", [], {}),
    ("GET", "/streams/{stream}/topics", [], {}),
    ("POST", "/streams/{stream}/topics", [], {"topic_id": 2, "name": "t", "partitions_count": 1, "message_expiry": 0}),
    ("GET", IGGY_TOPIC, [], {}),
    ("DELETE", IGGY_TOPIC, [], {}),
    ("POST", IGGY_TOPIC + "/partitions", [], {"partitions_count": 1}),
    ("DELETE", IGGY_TOPIC + "/partitions", ["partitions_count"], {}),
    ("GET", IGGY_TOPIC + "/consumer-offsets", ["consumer_id", "id", "kind", "partition_id"], {}),
    (
        "PUT",
        IGGY_TOPIC + "/consumer-offsets",
        [],
        {"consumer_id": 1, "kind": "consumer", "partition_id": 1, "offset": 0},
    ),
    ("GET", IGGY_TOPIC + "/consumer-groups", [], {}),
    ("POST", IGGY_TOPIC + "/consumer-groups", [], {"consumer_group_id": 1, "group_id": 1, "name": "g"}),
    ("GET", IGGY_TOPIC + "/consumer-groups/{group_id}", [], {}),
    ("DELETE", IGGY_TOPIC + "/consumer-groups/{group_id}", [], {}),
    (
        "GET",
        IGGY_TOPIC + "/messages",
        ["consumer_id", "kind", "partition_id", "value", "count", "auto_commit", "state"],
        {},
    ),
    (
        "POST",
        IGGY_TOPIC + "/messages",
        [],
        {
            "partitioning": {"kind": "partition_id", "value": "AQAAAA=="},
            "messages": [{"id": 1, "payload": "eA==", "headers": {"k": {"kind": "string", "value": "eA=="}}}],
        },
    ),
    ("GET", IGGY_TOPIC + "/partitions/{partition_id}/states", ["first", "end"], {}),
    (
        "PUT",
        IGGY_TOPIC + "/partitions/{partition_id}/states",
        [],
        {"first": 0, "end": 1, "state": "poisoned", "where": "n > 1"},
    ),
]
_NSQ = ["topic", "channel", "partition"]
NSQD: list[Row] = [
    ("GET", "/ping", [], {}),
    ("GET", "/info", [], {}),
    ("POST", "/pub", ["topic", "partition", "defer"], {"a": 1}),
    ("POST", "/pub_ext", ["topic", "partition", "ext"], {"a": 1}),
    ("POST", "/pubtrace", ["topic", "partition", "trace_id"], {"a": 1}),
    ("POST", "/mpub", ["topic", "partition", "binary"], {"a": 1}),
    ("GET", "/stats", ["topic", "channel", "format", "include_clients"], {}),
    *(
        ("POST", f"/channel/{verb}", _NSQ, {})
        for verb in ("create", "empty", "pause", "unpause", "skip", "unskip", "delete")
    ),
    ("POST", "/channel/setorder", [*_NSQ, "order"], {}),
    ("POST", "/channel/setoffset", _NSQ, {"timestamp:1": 1}),
    *(
        ("POST", f"/topic/{verb}", ["topic", "extend"], {})
        for verb in ("create", "empty", "pause", "unpause", "delete")
    ),
    ("GET", "/config/{option}", [], {}),
    ("PUT", "/config/{option}", [], {"a": 1}),
]
LOOKUP: list[Row] = [
    ("GET", "/lookup", ["topic", "access", "partition", "metainfo"], {}),
    ("GET", "/topics", ["metaInfo"], {}),
    ("GET", "/channels", ["topic"], {}),
    ("GET", "/nodes", [], {}),
    ("GET", "/listlookup", [], {}),
    ("POST", "/topic/create", ["topic", "partition_num", "replicator", "extend"], {}),
    ("POST", "/topic/meta/update", ["topic", "upgradeext"], {}),
    ("POST", "/topic/delete", ["topic", "partition"], {}),
    ("POST", "/topic/tombstone", ["topic", "node", "restore"], {}),
    ("POST", "/channel/create", ["topic", "channel"], {}),
    ("POST", "/channel/delete", ["topic", "channel"], {}),
]
LISTENERS = {"admin": ADMIN, "iggy_http": IGGY, "nsqd_http": NSQD, "nsqlookupd_http": LOOKUP}


@pytest.fixture(scope="module")
def target() -> Iterator[BrokerProcess]:
    with testing.broker(durability="os") as running:
        yield running


def escape(text: str) -> str:
    """Percent-encoded, lone surrogates as the three bytes that UTF-8 does not allow."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def odd_value(rng: random.Random) -> Any:
    return rng.choice(rng.choice((NUMBERS, TEXTS, ODD)))


def vary(rng: random.Random, document: Any) -> Any:
    """The document with one part of it changed, somewhere."""
    if isinstance(document, dict) and document and rng.random() < 0.85:
        name = rng.choice(list(document))
        changed = {**document, name: vary(rng, document[name])}
        return changed | {rng.choice(TEXTS): odd_value(rng)} if rng.random() < 0.1 else changed
    if isinstance(document, list) and document and rng.random() < 0.8:
        return [vary(rng, document[0]), *document[1:]]
    return odd_value(rng)


def build(rng: random.Random, row: Row) -> tuple[str, str, bytes]:
    method, pattern, names, body = row
    parts = []
    is_odd = rng.random() < 0.4
    for part in pattern.split("/"):
        if part.startswith("{"):
            known = GOOD[part[1:-1]]
            part = escape(rng.choice(TEXTS)) if is_odd and rng.random() < 0.5 else rng.choice(known)
        parts.append(part)
    fields = []
    for name in names:
        if rng.random() < 0.6:
            good = rng.choice(GOOD.get(name, ["1", "0", "read"]))
            text = good if rng.random() < 0.4 else rng.choice((*TEXTS, *map(str, NUMBERS[:-5])))
            fields.append(f"{name}={escape(text)}")
    content = b""
    if body:
        content = rng.choice(RAW_BODIES) if rng.random() < 0.25 else json.dumps(vary(rng, body)).encode()
    return method, "/".join(parts) + ("?" + "&".join(fields) if fields else ""), content


def prepare(broker: BrokerProcess) -> None:
    admin, iggy, nsq = (f"http://{broker.endpoints[name]}" for name in ("admin", "iggy_http", "nsqd_http"))
    httpx.post(f"{iggy}/streams", json={"stream_id": 1, "name": "fuzz"})
    httpx.post(f"{iggy}/streams/1/topics", json={"topic_id": 1, "name": "fuzz", "partitions_count": 2})
    httpx.post(f"{admin}/topics/default/fuzz", json={"partitions": 2})
    httpx.post(f"{nsq}/pub?topic=nsq-fuzz", content=b"x")
    httpx.post(f"{nsq}/channel/create?topic=nsq-fuzz&channel=read")


def log_of(broker: BrokerProcess) -> str:
    return broker.log_file.read_text(errors="replace")


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", LISTENERS)
def test_no_value_makes_a_500(target: BrokerProcess, name: str) -> None:
    rng = random.Random(f"http {name}")
    prepare(target)
    failed = []
    with contextlib.closing(HTTPConnection(target.endpoints[name], timeout=30)) as client:
        for number in range(SAMPLES):
            row = LISTENERS[name][number % len(LISTENERS[name])] if number < 200 else rng.choice(LISTENERS[name])
            method, url, content = build(rng, row)
            client.request(method, url, content)
            answer = client.getresponse()
            text = answer.read().decode(errors="replace")
            if answer.status == 500 or str(target.data_dir) in text:
                failed.append((method, url[:200], content[:200], text[:200]))
            if (method == "DELETE" or "delete" in url) and answer.status < 300:
                prepare(target)
    assert not failed, (len(failed), failed[:10])
    assert "Traceback" not in log_of(target)
