"""nsqd and nsqlookupd over HTTP, and nodes that register over TCP."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

import lading
from lading import testing
from lading.endpoints.nsq.nsqd import http
from tests.dialects.nsq import vectors
from tests.endpoints.nsq_client import NsqClient, pub

_numbers = count(1)
Ask = Callable[..., httpx.Response]


@pytest.fixture
def web(broker: testing.BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url="http://" + broker.endpoints["nsqd_http"]) as client:
        yield client


@pytest.fixture
def lookup(broker: testing.BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url="http://" + broker.endpoints["nsqlookupd_http"]) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"web-{next(_numbers)}"


def read(broker: testing.BrokerProcess, topic: str, number: int) -> list[tuple[bytes, bytes]]:
    """Ext and body of so many messages."""
    client = NsqClient(broker.endpoints["nsqd_tcp"], extend_support=True)
    assert client.ask(f"SUB {topic} read\n".encode()) == b"OK"
    client.send(b"RDY 100\n")
    found = client.messages(number)
    client.close()
    return [(each.ext, each.body) for each in found]


def test_publishing_as_the_seed_says(broker: testing.BrokerProcess, web: httpx.Client, topic: str) -> None:
    assert web.post(f"/pub?topic={topic}", content=b"plain").text == "OK"
    given: dict[str, Any] = {"topic": topic, "ext": '{"b":"1", "A":12345678901234567890,"key-test":"old"}'}
    assert web.post("/pub_ext", params=given, content=b"one", headers={"X-NSQEXT-Key-Test": "v"}).text == "OK"
    given = {"topic": topic, "ext": '{"##trace_id":"123456789"}'}
    told = web.post("/pub_ext", params=given, content=b"two").json()
    assert (told["status"], told["id"], told["trace_id"]) == ("OK", 3, "123456789")
    headers = {"X-Nsqext-##client_dispatch_tag": 'say "hi"'}
    assert web.post(f"/pub_ext?topic={topic}", content=b"three", headers=headers).text == "OK"
    assert web.post(f"/mpub?topic={topic}", content=b"four\n\nfive\n").text == "OK"
    binary = struct.pack(">II", 1, 3) + b"six"
    assert web.post(f"/mpub?topic={topic}&binary=true", content=binary).text == "OK"
    assert web.post(f"/pubtrace?topic={topic}&trace_id=5", content=b"seven").json()["trace_id"] == "5"
    assert read(broker, topic, 8) == [
        (b"", b"plain"),
        # order, digits and all that headers do not replace stay as they were given
        (b'{"b":"1","A":12345678901234567890,"key-test":"v"}', b"one"),
        (b'{"##trace_id":"123456789"}', b"two"),
        (b'{"##client_dispatch_tag":"say \\"hi\\""}', b"three"),
        (b"", b"four"),
        (b"", b"five"),
        (b"", b"six"),
        (b"", b"seven"),
    ]


def test_bytes_of_a_header_are_passed_on_as_they_came(
    broker: testing.BrokerProcess, web: httpx.Client, topic: str
) -> None:
    """UTF-8 and what is none, in a value that JSON must escape."""
    headers = [(b"X-NSQEXT-City", "Łódź".encode()), (b"x-nsqext-raw", b'\xff\xfe"\\\tx'), (b"X-Nsqext-City", b"second")]
    given = {"topic": topic, "ext": '{"CITY":"other","k":"żółć"}'}
    assert web.post("/pub_ext", params=given, content=b"x", headers=headers).text == "OK"
    ext = '{"k":"żółć","city":"Łódź","raw":"'.encode() + b'\xff\xfe\\"\\\\\\u0009x"}'
    assert read(broker, topic, 1) == [(ext, b"x")]
    seen = lading.read_arrow(broker.url, topic, columns="city string, k string, raw binary")
    assert seen.select(["city", "k", "raw"]).to_pylist() == [{"city": "Łódź", "k": "żółć", "raw": b'\xff\xfe"\\\tx'}]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_of_the_design_page_and_those_that_work(broker: testing.BrokerProcess) -> None:
    """As docs/reference/nsq.md shows them: the first is refused, by the fork's server too."""
    page = (Path(__file__).parents[2] / "docs/reference/nsq.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("curl ")]
    said = []
    for line in lines:
        command = shlex.split(line.replace("127.0.0.1:4151", broker.endpoints["nsqd_http"]).replace("=name", "=curl"))
        said.append(subprocess.run([*command, "-s"], capture_output=True, text=True, check=True, timeout=30).stdout)
    assert said == ['{"message":"E_INVALID_JSON_HEADER"}', "OK", "OK", "OK"]
    assert read(broker, "curl", 3) == [(b'{"k1":"v1"}', b"<message>")] * 3


@pytest.mark.parametrize("entry", vectors()["http"], ids=lambda entry: entry["name"])
def test_vectors(web: httpx.Client, entry: dict[str, Any]) -> None:
    if "wrapped" in entry["name"] or entry["name"] == "http_pub_empty":
        pytest.skip("the old style of answers: only with nsq.compat=youzan")
    web.post("/topic/delete?topic=t1")
    answer = web.request(entry["method"], entry["target"], headers=entry["headers"], content=entry["body"])
    assert answer.status_code == entry["status"]
    if "response_json" in entry:
        assert answer.json().keys() == entry["response_json"].keys()
        assert answer.json()["trace_id"] == entry["response_json"]["trace_id"]
    else:
        assert answer.text == entry["response"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/pub", b"x", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/pub?topic=b@d", b"x", 400, "INVALID_TOPIC"),
        ("POST", "/pub?topic=t", b"", 400, "MSG_EMPTY"),
        ("POST", "/pub?topic=t&partition=99", b"x", 404, "E_TOPIC_NOT_EXIST"),
        ("POST", "/pub?topic=t&partition=x", b"x", 400, "INVALID_ARG_TOPIC_PARTITION"),
        ("POST", "/pub?topic=t", b"x" * ((1 << 20) + 1), 413, "MSG_TOO_BIG"),
        ("POST", "/pub?topic=t&defer=soon", b"x", 400, "INVALID_DEFER"),
        ("POST", "/mpub?topic=t&binary=1", b"\0\0\0\2\0\0\0\1a", 413, "BAD_MESSAGE"),
        ("POST", "/pub_ext?topic=t&ext={'k1':'v1'}", b"x", 400, "E_INVALID_JSON_HEADER"),
        ("POST", "/pub_ext?topic=t&ext=[1]", b"x", 400, "E_INVALID_JSON_HEADER"),
        ("POST", "/pub_ext?topic=t&ext=" + "[" * 4000, b"x", 400, "E_INVALID_JSON_HEADER"),
        ("POST", '/pub_ext?topic=t&ext={"%23%23trace_id":12}', b"x", 400, "INVALID_TRACE_ID"),
        ("POST", "/pubtrace?topic=t&trace_id=x", b"x", 400, "INVALID_TRACE_ID"),
        ("POST", "/channel/pause?topic=t&channel=nobody", b"", 404, "CHANNEL_NOT_FOUND"),
        ("POST", "/channel/pause?topic=nobody&channel=c", b"", 404, "TOPIC_NOT_FOUND"),
        ("POST", "/channel/create?topic=t", b"", 400, "MISSING_ARG_CHANNEL"),
        ("GET", "/nope", b"", 404, "NOT_FOUND"),
        ("GET", "/pub", b"", 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_refusals(web: httpx.Client, method: str, path: str, body: bytes, status: int, code: str) -> None:
    web.post("/topic/create?topic=t")
    answer = web.request(method, path, content=body)
    assert (answer.status_code, answer.json()) == (status, {"message": code})


def test_the_first_of_two_parameters_counts(web: httpx.Client, lookup: httpx.Client, topic: str) -> None:
    """As in nsqd 1.3.0, as a run beside it showed: the last one was deleted, emptied and paused."""
    named, other = f"{topic}-named", f"{topic}-other"
    both = f"topic={named}&topic={other}"
    for name in (named, other):
        assert web.post(f"/pub?topic={name}", content=b"x").status_code == 200
    assert web.post(f"/channel/create?{both}&channel=a&channel=b").status_code == 200
    assert web.post(f"/pub?{both}", content=b"y").status_code == 200
    found = {each["topic_name"]: each for each in web.get("/stats?format=json&format=text").json()["topics"]}
    assert [each["channel_name"] for each in found[named]["channels"]] == ["a"]
    assert (found[named]["message_count"], found[other]["message_count"]) == (2, 1)
    assert web.post(f"/topic/delete?{both}").status_code == 200
    assert {named, other} & set(lookup.get("/topics").json()["topics"]) == {other}
    # both names are looked at before the topic is
    missing = web.post(f"/channel/create?topic={named}")
    assert (missing.status_code, "MISSING_ARG_CHANNEL" in missing.text) == (400, True)


def test_channels_topics_and_figures(broker: testing.BrokerProcess, web: httpx.Client, topic: str) -> None:
    assert web.get("/ping").text == "OK"
    assert web.get("/").text.startswith("This is the HTTP API of an nsqd: a Lading broker. `lading console` shows")
    assert web.get("/info").json()["tcp_port"] == int(broker.endpoints["nsqd_tcp"].rpartition(":")[2])
    assert web.post(f"/topic/create?topic={topic}").status_code == 200
    assert web.post(f"/channel/create?topic={topic}&channel=ch").content == b""
    web.post(f"/pub?topic={topic}", content=b"x")
    assert web.post(f"/channel/pause?topic={topic}&channel=ch").status_code == 200
    client = NsqClient(broker.endpoints["nsqd_tcp"], client_id="me", desired_tag="A", extend_support=True)
    client.ask(f"SUB {topic} ch\n".encode())
    client.send(b"RDY 5\n")
    assert client.quiet()
    (told,) = web.get(f"/stats?format=json&topic={topic}").json()["topics"]
    (channel,) = told["channels"]
    assert (told["message_count"], channel["depth"], channel["paused"]) == (1, 1, True)
    assert (channel["clients"][0]["desired_tag"], channel["clients"][0]["ready_count"]) == ("A", 5)
    assert f"[{topic}" in web.get("/stats").text and "*P [ch" in web.get("/stats").text
    assert web.post(f"/channel/empty?topic={topic}&channel=ch").status_code == 200
    assert web.post(f"/channel/unpause?topic={topic}&channel=ch").status_code == 200
    web.post(f"/pub_ext?topic={topic}&ext=%7B%22%23%23client_dispatch_tag%22%3A%22A%22%7D", content=b"y")
    assert client.message().body == b"y"
    assert web.post(f"/topic/delete?topic={topic}").status_code == 200
    assert client.closed()
    assert web.get(f"/stats?format=json&topic={topic}").json()["topics"] == []


def test_a_channel_is_sent_elsewhere_and_its_order_is_given_up(
    broker: testing.BrokerProcess, web: httpx.Client, topic: str
) -> None:
    where = f"topic={topic}&channel=ch"
    client = NsqClient(broker.endpoints["nsqd_tcp"], desired_tag="")
    assert client.ask(f"SUB_ORDERED {topic} ch\n".encode()) == b"OK"
    client.send(b"RDY 5\n")
    web.post(f"/mpub?topic={topic}", content=b"\n".join(b"%d" % number for number in range(6)))
    assert (client.message().body[12:], client.quiet()) == (b"0", True)
    # one at a time, until somebody says otherwise
    assert web.post(f"/channel/setorder?{where}&order=false").status_code == 200
    later = client.messages(4)
    assert [one.body[12:] for one in later] == [b"1", b"2", b"3", b"4"]
    client.fin(*later)
    assert client.message().body[12:] == b"5"
    # back to the beginning, also while it is read; and on to the end
    assert web.post(f"/channel/setoffset?{where}", content=b"msgcount:0").status_code == 200
    assert [one.body[12:] for one in client.messages(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert web.post(f"/channel/setoffset?{where}&partition=0", content=b"special:-1").status_code == 200
    assert client.quiet()
    web.post(f"/pub?topic={topic}", content=b"6")
    assert client.message().body[12:] == b"6"
    for path, body, code in (
        ("setoffset", b"nowhere:1", "INVALID_OFFSET"),
        ("setoffset", b"msgcount:" + b"9" * 100, "BODY_TOO_BIG"),
        ("setoffset", b"", "MSG_EMPTY"),
        ("setorder", b"", "INVALID_ARG_ORDER"),
    ):
        assert web.post(f"/channel/{path}?{where}", content=body).json() == {"message": code}


@pytest.mark.parametrize("spelling", ["create", "creat"])
def test_topics_are_made_and_upgraded_at_the_lookup(
    broker: testing.BrokerProcess, lookup: httpx.Client, topic: str, spelling: str
) -> None:
    made = lookup.post(f"/topic/{spelling}?topic={topic}&partition_num=2&replicator=2&extend=true")
    assert (made.status_code, made.content) == (200, b"")
    told = lookup.get(f"/lookup?topic={topic}").json()
    assert told["meta"] == {
        "partition_num": 2,
        "replica": 1,
        "extend_support": True,
        "ordered": False,
        "multi_part": True,
        "disable_channel_auto_create": False,
    }
    assert [one["tcp_port"] for one in told["producers"]] == [int(broker.endpoints["nsqd_tcp"].rpartition(":")[2])]
    assert sorted(told["partitions"]) == ["0", "1"]
    lookup.post(f"/topic/create?topic={topic}-p&partition_num=1&replicator=1")
    assert lookup.get(f"/lookup?topic={topic}-p").json()["meta"]["extend_support"] is False
    client, plain = NsqClient(broker.endpoints["nsqd_tcp"]), NsqClient(broker.endpoints["nsqd_tcp"])
    client.ask(pub(f"{topic}-p", b"before"))
    assert plain.ask(f"SUB {topic}-p ch\n".encode()) == b"OK"
    # what the line of a command means is remembered, and not for longer than it is true
    assert client.ask(pub(f"{topic}-p", b"early", b'{"a":"b"}')).startswith(b"E_EXT_NOT_SUPPORT")
    assert lookup.post(f"/topic/meta/update?topic={topic}-p&upgradeext=true").status_code == 200
    assert lookup.get(f"/lookup?topic={topic}-p").json()["meta"]["extend_support"] is True
    assert plain.closed()
    assert client.ask(pub(f"{topic}-p", b"after", b'{"a":"b"}')) == b"OK"
    extended = NsqClient(broker.endpoints["nsqd_tcp"], extend_support=True)
    assert extended.ask(f"SUB {topic}-p ch\n".encode()) == b"OK"
    extended.send(b"RDY 2\n")
    assert [(each.version, each.body) for each in extended.messages(2)] == [(0, b"before"), (4, b"after")]
    for each in (client, extended):
        each.close()


def told_ext(lookup: httpx.Client, web: httpx.Client, topic: str) -> tuple[bool, bool, bool]:
    """Whether a topic takes exts, by all that tell it: /stats, /lookup and /topics."""
    (stats,) = web.get(f"/stats?format=json&topic={topic}").json()["topics"]
    meta = lookup.get(f"/lookup?topic={topic}&metainfo=true").json()["meta"]
    rows = lookup.get("/topics?metaInfo=true").json()["meta_info"]
    listed = next(row for row in rows if row["topic_name"] == topic)
    return stats["is_ext"], meta["extend_support"], listed["extend_support"]


def test_a_topic_that_exists_is_not_created_again_as_another(
    broker: testing.BrokerProcess, lookup: httpx.Client, web: httpx.Client, topic: str
) -> None:
    """As the fork answers: 200 if the metadata is the same, else 400, and nothing changes."""
    same = f"/topic/create?topic={topic}&partition_num=2&replicator=1"
    assert lookup.post(same).status_code == lookup.post(same).status_code == 200
    assert told_ext(lookup, web, topic) == (False,) * 3
    for differs in (
        f"{same}&extend=true",
        f"/topic/create?topic={topic}&partition_num=1&replicator=1",
        f"/topic/create?topic={topic}&partition_num=5&replicator=1",
        f"/topic/create?topic={topic}&extend=true",
    ):
        answer = lookup.post(differs)
        assert (answer.status_code, answer.json()) == (400, {"message": "already exist"})
    assert web.post(f"/topic/create?topic={topic}&extend=true").status_code == 400
    # what upstream's tools ask for says nothing of either
    assert lookup.post(f"/topic/create?topic={topic}").status_code == 200
    assert web.post(f"/topic/create?topic={topic}").status_code == 200
    assert lookup.get(f"/lookup?topic={topic}").json()["meta"]["partition_num"] == 2
    assert told_ext(lookup, web, topic) == (False,) * 3
    assert lookup.post(f"/topic/meta/update?topic={topic}&upgradeext=true").status_code == 200
    assert lookup.post(f"{same}&extend=true").status_code == 200
    assert lookup.post(same).json() == {"message": "already exist"}
    assert told_ext(lookup, web, topic) == (True,) * 3


@pytest.mark.parametrize("way", ["/topic/create", "/topic/meta/update"])
def test_a_topic_that_pub_made_can_be_made_ext(
    broker: testing.BrokerProcess, lookup: httpx.Client, web: httpx.Client, topic: str, way: str
) -> None:
    """From then on readers must take exts; those of plain frames are disconnected."""
    web.post(f"/pub?topic={topic}", content=b"x")
    assert told_ext(lookup, web, topic) == (True,) * 3
    plain = NsqClient(broker.endpoints["nsqd_tcp"])
    assert plain.ask(f"SUB {topic} ch\n".encode()) == b"OK"
    asked = "partition_num=1&replicator=1&extend=true" if way.endswith("create") else "upgradeext=true"
    assert lookup.post(f"{way}?topic={topic}&{asked}").status_code == 200
    assert plain.closed()
    assert told_ext(lookup, web, topic) == (True,) * 3
    again = NsqClient(broker.endpoints["nsqd_tcp"])
    assert again.ask(f"SUB {topic} ch\n".encode()).startswith(b"E_SUB_EXTEND_NEED")
    again.close()


@pytest.mark.turns(2, part=0)
def test_the_fork_tells_that_a_topic_exists_in_its_words() -> None:
    with testing.broker(durability="os", nsq__compat="youzan") as broker:
        create = f"http://{broker.endpoints['nsqlookupd_http']}/topic/create?topic=t&partition_num=1&replicator=1"
        modern = {"accept": "application/vnd.nsq; version=1.0"}
        assert httpx.post(create).status_code == httpx.post(create, headers=modern).status_code == 200
        answer = httpx.post(f"{create}&extend=true")
        assert (answer.status_code, answer.json()["status_txt"]) == (500, "already exist")
        answer = httpx.post(f"{create}&extend=true", headers=modern)
        assert (answer.status_code, answer.json()) == (400, {"message": "already exist"})


def test_what_lookups_list(lookup: httpx.Client, web: httpx.Client, topic: str) -> None:
    web.post(f"/topic/create?topic={topic}")
    lookup.post(f"/channel/create?topic={topic}&channel=c1")
    assert topic in lookup.get("/topics").json()["topics"]
    assert lookup.get(f"/channels?topic={topic}").json() == {"channels": ["c1"]}
    assert any(topic in one["topics"] for one in lookup.get("/nodes").json()["producers"])
    assert lookup.get("/lookup?topic=nobody").status_code == 404
    assert lookup.get("/lookup").json() == {"message": "MISSING_ARG_TOPIC"}
    assert lookup.get("/ping").text == "OK"
    assert lookup.get("/").text.startswith("This is the HTTP API of an nsqlookupd: a Lading broker.")
    assert lookup.post(f"/topic/create?topic={topic}-x&partition_num=0").status_code == 400
    assert lookup.post(f"/topic/create?topic={topic}-x&partition_num=99999999999").status_code == 400
    assert lookup.post(f"/channel/delete?topic={topic}&channel=c1").status_code == 200
    assert lookup.post(f"/topic/delete?topic={topic}").status_code == 200
    assert topic not in lookup.get("/topics").json()["topics"]


def test_a_topic_is_paused_as_a_whole_and_stays_so_for_new_channels(
    broker: testing.BrokerProcess, web: httpx.Client, topic: str
) -> None:
    """nsqadmin offers to unpause what is told to be paused, and a channel that was paused alone stays so.

    What comes meanwhile is the topic's, and in no figure of a channel, as in nsqd.
    """
    web.post(f"/topic/create?topic={topic}")
    web.post(f"/channel/create?topic={topic}&channel=c1")
    web.post(f"/channel/pause?topic={topic}&channel=c1")
    assert web.post(f"/topic/pause?topic={topic}").status_code == 200
    client = NsqClient(broker.endpoints["nsqd_tcp"])
    client.ask(f"SUB {topic} c2\n".encode())
    client.send(b"RDY 9\n")
    web.post(f"/mpub?topic={topic}", content=b"a\nb")
    assert client.quiet()
    (told,) = web.get(f"/stats?format=json&topic={topic}&include_clients=false").json()["topics"]
    assert (told["paused"], told["depth"]) == (True, 2)
    assert [(one["paused"], one["message_count"], one["clients"]) for one in told["channels"]] == [
        (True, 0, []),
        (False, 0, []),
    ]
    assert [one["client_count"] for one in told["channels"]] == [0, 1]
    assert f"*P [{topic}" in web.get("/stats").text
    assert web.post(f"/topic/unpause?topic={topic}").status_code == 200
    first, second = client.messages(2)
    client.send(b"REQ " + first.id + b" 0\n")
    client.fin(second)
    assert client.message().attempts == 2
    (told,) = web.get(f"/stats?format=json&topic={topic}").json()["topics"]
    # as nsqd counts: what came to the channel, not what was delivered
    assert (told["paused"], [one["paused"] for one in told["channels"]]) == (False, [True, False])
    assert [(one["message_count"], one["requeue_count"]) for one in told["channels"]] == [(2, 0), (2, 1)]
    client.close()


def test_options_are_told_as_upstreams_nsqd_tells_them(broker: testing.BrokerProcess, web: httpx.Client) -> None:
    """Values of nsqd 1.3.0, but for the longest REQ delay, which is the fork's."""
    told = {"max_msg_size": 1 << 20, "max_body_size": 5 << 20, "max_rdy_count": 2500, "msg_timeout": 60 * 10**9}
    for name, value in told.items():
        assert web.get(f"/config/{name}").json() == value
    assert web.get("/config/tcp_address").text == broker.endpoints["nsqd_tcp"]
    assert web.get("/config/nsqlookupd_tcp_addresses").json() == []
    for answer in (web.get("/config/nope"), web.put("/config/max_msg_size", content=b"5")):
        assert (answer.status_code, answer.json()) == (400, {"message": "INVALID_OPTION"})


def test_what_nsqadmin_does_to_delete(
    broker: testing.BrokerProcess, lookup: httpx.Client, web: httpx.Client, topic: str
) -> None:
    """First at the lookup, then at each nsqd that had it; for one node alone with a tombstone before."""
    web.post(f"/channel/create?topic={topic}&channel=c1")
    web.post(f"/topic/create?topic={topic}")
    web.post(f"/channel/create?topic={topic}&channel=c1")
    for path in (f"/channel/delete?topic={topic}&channel=c1", f"/topic/delete?topic={topic}"):
        assert lookup.post(path).status_code == 200
        assert web.post(path).status_code == 200
        assert web.post(path).status_code == 404
        # nsqlookupd forgets a topic that it does not know, but no such channel
        assert lookup.post(path).status_code == (404 if "channel" in path else 200)
    web.post(f"/topic/create?topic={topic}")
    node = broker.endpoints["nsqd_http"]
    assert lookup.post(f"/topic/tombstone?topic={topic}").json() == {"message": "MISSING_ARG_NODE"}
    assert lookup.post(f"/topic/tombstone?topic={topic}&node={node}").status_code == 200
    assert lookup.get(f"/lookup?topic={topic}").json()["producers"] == []
    (told,) = lookup.get("/nodes").json()["producers"]
    assert dict(zip(told["topics"], told["tombstones"], strict=True))[topic] is True
    assert lookup.post(f"/topic/tombstone?topic={topic}&node={node}&restore=true").status_code == 200
    assert len(lookup.get(f"/lookup?topic={topic}").json()["producers"]) == 1
    lookup.post(f"/topic/tombstone?topic={topic}&node={node}")
    assert web.post(f"/topic/delete?topic={topic}").status_code == 200
    assert web.post(f"/topic/create?topic={topic}").status_code == 200
    assert len(lookup.get(f"/lookup?topic={topic}").json()["producers"]) == 1


def test_the_lookup_forgets_what_other_nodes_said(
    broker: testing.BrokerProcess, lookup: httpx.Client, topic: str
) -> None:
    with node(broker) as one:
        one.sendall(b"  V1IDENTIFY\n" + sized(json.dumps(FACTS).encode()) + f"REGISTER {topic} 3 ch\n".encode())
        answers(one, 2)
        assert lookup.post(f"/topic/tombstone?topic={topic}&node=10.9.8.7:8").status_code == 200
        told = lookup.get(f"/lookup?topic={topic}")
        assert (told.status_code, told.json()["producers"]) == (200, [])
        assert lookup.post(f"/channel/delete?topic={topic}&channel=ch").status_code == 200
        assert lookup.get(f"/channels?topic={topic}").json() == {"channels": []}
        assert lookup.post(f"/topic/delete?topic={topic}").status_code == 200
        assert lookup.get(f"/lookup?topic={topic}").status_code == 404


def test_the_lookup_deletes_a_channel_of_another_node_alone(
    broker: testing.BrokerProcess, lookup: httpx.Client, web: httpx.Client, topic: str
) -> None:
    """Its topic is here, without the channel: as a nsqlookupd answers for what is registered, and then is not."""
    web.post(f"/topic/create?topic={topic}")
    web.post(f"/channel/create?topic={topic}&channel=own")
    with node(broker) as one:
        one.sendall(b"  V1IDENTIFY\n" + sized(json.dumps(FACTS).encode()) + f"REGISTER {topic} 0 ch\n".encode())
        answers(one, 2)
        assert lookup.get(f"/channels?topic={topic}").json() == {"channels": ["ch", "own"]}
        assert lookup.post(f"/channel/delete?topic={topic}&channel=ch").status_code == 200
        assert lookup.get(f"/channels?topic={topic}").json() == {"channels": ["own"]}
        assert lookup.post(f"/channel/delete?topic={topic}&channel=ch").status_code == 404


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def node(broker: testing.BrokerProcess) -> socket.socket:
    host, _, port = broker.endpoints["nsqlookupd_tcp"].rpartition(":")
    return socket.create_connection((host, int(port)), 5)


def answers(connection: socket.socket, number: int) -> list[bytes]:
    found = []
    file = connection.makefile("rb")
    for _ in range(number):
        (size,) = struct.unpack(">i", file.read(4))
        found.append(file.read(size))
    return found


FACTS = {"version": "0.3.7-HA.1", "tcp_port": 9, "http_port": 8, "broadcast_address": "10.9.8.7", "hostname": "other"}


def test_other_nodes_register_and_leave(broker: testing.BrokerProcess, lookup: httpx.Client, topic: str) -> None:
    with node(broker) as one:
        lines = f"REGISTER {topic} 3\nREGISTER {topic} 3 ch\nPING\nREGISTER {topic} 4\nUNREGISTER {topic} 4\n".encode()
        one.sendall(b"  V1IDENTIFY\n" + sized(json.dumps(FACTS).encode()) + lines)
        told, *rest = answers(one, 6)
        assert json.loads(told)["tcp_port"] == int(broker.endpoints["nsqd_tcp"].rpartition(":")[2])
        assert rest == [b"OK"] * 5
        found = lookup.get(f"/lookup?topic={topic}").json()
        assert (found["channels"], list(found["partitions"])) == (["ch"], ["3"])
        assert found["partitions"]["3"]["broadcast_address"] == "10.9.8.7"
    deadline = time.monotonic() + 30
    while topic in lookup.get("/topics").json()["topics"]:
        assert time.monotonic() < deadline


@pytest.mark.turns(2, part=1)
def test_what_one_node_may_register_is_bounded() -> None:
    """And it keeps what it has: a node that is cut off says everything again."""
    with testing.broker(durability="os", endpoints__nsqlookupd_tcp__registrations_max=100) as broker:
        lookup = f"http://{broker.endpoints['nsqlookupd_http']}"
        with node(broker) as one, node(broker) as other:
            greeting = b"  V1IDENTIFY\n" + sized(json.dumps(FACTS).encode())
            said = b"".join(b"REGISTER t%d 0\nREGISTER t%d 0 ch\n" % (at, at) for at in range(500))
            one.sendall(greeting + said + b"UNREGISTER t3 0\nREGISTER last 0 ch\nREGISTER late 0\n")
            told = answers(one, 1004)[1:]
            assert told[:100] == [b"OK"] * 100
            assert all(each.startswith(b"E_INVALID REGISTER t") for each in told[100:1000])
            assert [each[:9] for each in told[1000:]] == [b"OK", b"OK", b"E_INVALID"]
            names = httpx.get(f"{lookup}/topics").json()["topics"]
            assert (len(names), "last" in names, "late" in names) == (50, True, False)
            other.sendall(greeting + b"REGISTER others 0\n")
            assert answers(other, 2)[1] == b"OK"
            assert httpx.post(f"{lookup}/topic/delete?topic=last").status_code == 200
            one.sendall(b"REGISTER late 0\nPING\n")
            assert answers(one, 2) == [b"OK", b"OK"]
        metrics = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
        assert 'lading_dropped_total{endpoint="nsqlookupd_tcp",reason="registrations_max"} 901.0' in metrics


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"  V9", b"E_BAD_PROTOCOL"),
        (b"  V1FOO\n", b"E_INVALID"),
        (b"  V1REGISTER t 0\n", b"E_INVALID client must IDENTIFY"),
        (b"  V1IDENTIFY\n\x7f\xff\xff\xff", b"E_BAD_BODY"),
        (b"  V1IDENTIFY\n" + sized(b"{}"), b"E_BAD_BODY IDENTIFY missing fields"),
        (b"  V1IDENTIFY\n" + sized(b"[" * 5000), b"E_BAD_BODY"),
    ],
)
def test_bad_nodes_are_told_and_closed(broker: testing.BrokerProcess, data: bytes, error: bytes) -> None:
    with node(broker) as one:
        one.sendall(data)
        assert answers(one, 1)[0].startswith(error)
        assert one.recv(1) == b""


def test_lines_are_framed_the_same_however_they_lie_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"a", b"", b"bcd" * 20, b"", b"", b"e" * 9, b"f"]
    for end in (b"", b"\n", b"\n\n"):
        body = b"\n".join(lines) + end
        kept = [line for line in lines if line]
        expected = struct.pack(">I", len(kept)) + b"".join(struct.pack(">I", len(line)) + line for line in kept)
        for piece_bytes in range(1, len(body) + 2):
            monkeypatch.setattr(http, "PIECE_BYTES", piece_bytes)
            assert http.frame_lines(body) == expected
