"""nsqd over TCP: publishing, reading, errors and their consequences, over plain sockets."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from lading import testing
from tests.endpoints.health import Health
from tests.endpoints.nsq_client import NsqClient, mpub, mpub_ext, pub, sized

_numbers = count(1)
Connect = Callable[..., NsqClient]


@pytest.fixture
def connect(broker: testing.BrokerProcess) -> Iterator[Connect]:
    opened: list[NsqClient] = []

    def open_(**told: Any) -> NsqClient:
        opened.append(NsqClient(broker.endpoints["nsqd_tcp"], **told))
        return opened[-1]

    yield open_
    for client in opened:
        client.close()


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def reader(connect: Connect, topic: str, channel: str = "ch", ready: int = 100, **told: Any) -> NsqClient:
    client = connect(**{"heartbeat_interval": 30_000, **told})
    assert client.ask(f"SUB {topic} {channel}\n".encode()) == b"OK"
    client.send(b"RDY %d\n" % ready)
    return client


def test_what_is_published_is_read_in_both_forms(connect: Connect, topic: str) -> None:
    publisher = connect()
    ext = b'{"carrier":"UA", "delay":12}'
    assert publisher.ask(pub(topic, b"plain")) == b"OK"
    assert publisher.ask(pub(topic, b"with", ext)) == b"OK"
    assert publisher.ask(mpub(topic, b"one", b"two")) == b"OK"
    assert publisher.ask(mpub_ext(topic, (ext, b"three"), (b"", b"four"))) == b"OK"
    extended = reader(connect, topic, extend_support=True)
    found = extended.messages(6)
    assert [each.body for each in found] == [b"plain", b"with", b"one", b"two", b"three", b"four"]
    assert [(each.version, each.ext) for each in found] == [(0, b""), (4, ext), (0, b""), (0, b""), (4, ext), (0, b"")]
    assert [each.offset for each in found] == list(range(6))
    assert {each.attempts for each in found} == {1}
    assert abs(found[0].time_ns / 1e9 - time.time()) < 60
    extended.fin(*found)
    # another channel begins at the end, as with upstream's server
    plain = reader(connect, topic, "plain")
    assert publisher.ask(pub(topic, b"last", ext)) == b"OK"
    (message,) = plain.messages(1)
    assert (message.version, message.body) == (None, b"last")
    assert extended.message().body == b"last"


def test_traced_publications_are_answered_with_30_bytes(connect: Connect, topic: str) -> None:
    publisher = connect()
    answer = publisher.ask(pub(topic, b"x", b'{"##trace_id":"123"}'))
    assert answer[:18] == b"OK" + (1).to_bytes(8, "big") + (123).to_bytes(8, "big")
    assert len(answer) == 30
    assert len(publisher.ask(sized(f"PUB_TRACE {topic}\n".encode(), (7).to_bytes(8, "big") + b"y"))) == 30
    body = struct.pack(">i", 1) + struct.pack(">iQ", 9, 8) + b"z"
    assert publisher.ask(sized(f"MPUB_TRACE {topic}\n".encode(), body))[:18] == b"OK" + (3).to_bytes(8, "big") + bytes(
        8
    )
    found = reader(connect, topic, desired_tag="").messages(3)
    assert [int.from_bytes(each.id[8:], "big") for each in found] == [123, 7, 8]


def test_pipelined_publications_are_answered_in_order(connect: Connect, topic: str) -> None:
    publisher = connect()
    commands = [pub(topic, b"%d" % n) if n % 5 else pub(topic, b"%d" % n, b"no json") for n in range(1, 101)]
    publisher.send(b"".join(commands) + b"NOP\n" + mpub(topic, b"end"))
    answers = [publisher.frame() for _ in range(101)]
    assert [kind for kind, _ in answers] == [0 if n % 5 else 1 for n in range(1, 101)] + [0]
    found = reader(connect, topic).messages(81)
    assert [each.body for each in found] == [b"%d" % n for n in range(1, 101) if n % 5] + [b"end"]


def test_ready_requeue_touch_and_a_leaving_reader(connect: Connect, topic: str) -> None:
    publisher = connect()
    publisher.ask(mpub(topic, *[b"%d" % n for n in range(5)]))
    first = reader(connect, topic, ready=2)
    one, two = first.messages(2)
    assert first.quiet()
    first.send(b"TOUCH " + one.id + b"\nREQ " + one.id + b" 0\n")
    assert first.message().body == b"2"
    first.send(b"REQ " + two.id + b" 200\n")
    three = first.message()
    first.fin(three)
    four = first.message()
    first.fin(four)
    again = first.message()
    # behind all that waited
    assert [(each.body, each.attempts) for each in (three, four, again)] == [(b"3", 1), (b"4", 1), (b"0", 2)]
    first.close()
    second = reader(connect, topic)
    found = {each.body: each.attempts for each in second.messages(3)}
    # what the first had goes back with its attempt; what it gave back itself keeps it
    assert found == {b"0": 2, b"1": 2, b"2": 1}


def test_much_in_hand_is_finished_one_by_one(connect: Connect, topic: str) -> None:
    """Who sends little of much in hand is not read at once; all is taken, also the last of it, and when it goes."""
    count = 1500
    client = connect()
    assert client.ask(mpub(topic, *(b"%d" % number for number in range(count)))) == b"OK"
    first = reader(connect, topic, ready=2000)
    received = first.messages(count)
    for message in received[:-600]:
        first.fin(message)
    # 600 are in hand: what is asked now waits for no more than a moment
    assert first.ask(b"CLS\n") == b"CLOSE_WAIT"
    for message in received[-600:-100]:
        first.fin(message)
    first.close()
    again = reader(connect, topic, ready=2000)
    assert sorted(int(message.body) for message in again.messages(100)) == list(range(count - 100, count))
    assert again.quiet()


def test_a_time_out_brings_a_message_back(connect: Connect, topic: str) -> None:
    connect().ask(pub(topic, b"x"))
    client = reader(connect, topic, msg_timeout=1000)
    one = client.message()
    again = client.message()
    assert (again.body, again.attempts, again.id) == (b"x", 2, one.id)
    client.fin(again)
    assert client.ask(b"FIN " + one.id + b"\n") == b"E_FIN_FAILED FIN 0000000000000001 failed ID not in flight"


def test_ids_are_text_for_the_clients_of_upstream(connect: Connect, topic: str) -> None:
    """Some of them take an id for text, and end at a byte that is none; the fork's look for a trace id in it."""
    connect().ask(mpub(topic, *(b"%d" % number for number in range(200))))
    client = reader(connect, topic, ready=200)
    found = client.messages(200)
    assert [each.id for each in found] == [b"%016x" % number for number in range(1, 201)]
    client.send(b"REQ " + found[0].id + b" 0\nTOUCH " + found[1].id + b"\n")
    client.send(b"".join(b"FIN " + each.id + b"\n" for each in found[1:]))
    again = client.message()
    assert (again.id, again.attempts) == (found[0].id, 2)
    client.fin(again)
    for stranger in (found[0].id, b"0" * 16, b"no-id-of-anybody", b"f" * 16):
        assert client.ask(b"FIN " + stranger + b"\n").startswith(b"E_FIN_FAILED FIN " + stranger)
    assert client.ask(b"REQ no-id-of-anybody 0\n").startswith(b"E_REQ_FAILED REQ no-id-of-anybody failed")
    forked = reader(connect, topic, "forked", desired_tag="")
    connect().ask(pub(topic, b"x"))
    assert forked.message().id == (201).to_bytes(8, "big") + bytes(8)


def test_deferred_publishing(connect: Connect, topic: str) -> None:
    publisher = connect()
    client = reader(connect, topic)
    began_s = time.monotonic()
    assert publisher.ask(sized(f"DPUB {topic} 300\n".encode(), b"later")) == b"OK"
    publisher.ask(pub(topic, b"now"))
    assert [each.body for each in client.messages(2)] == [b"now", b"later"]
    assert time.monotonic() - began_s > 0.29


def test_partitions_order_and_where_to_begin(connect: Connect, topic: str) -> None:
    publisher = connect()
    assert publisher.ask(f"INTERNAL_CREATE_TOPIC {topic} 3 true\n".encode()) == b"OK"
    for number in range(4):
        assert publisher.ask(pub(f"{topic} {number}", b"p%d" % number)) == b"OK"
    one = connect(extend_support=True)
    assert one.ask(f"SUB {topic} ch 2\n".encode()) == b"OK"
    one.send(b"RDY 9\n")
    (message,) = one.messages(1)
    assert (message.body, int.from_bytes(message.id[:8], "big") >> 50) == (b"p2", 2)
    everything = reader(connect, topic, extend_support=True)
    assert sorted(each.body for each in everything.messages(3)) == [b"p0", b"p1", b"p3"]
    ordered = connect(extend_support=True)
    assert ordered.ask(f"SUB_ORDERED {topic} ordered 1\n".encode()) == b"OK"
    ordered.send(b"RDY 9\n")
    for number in range(3):
        publisher.ask(pub(f"{topic} 1", b"o%d" % number))
    first = ordered.message()
    assert (first.body[12:], ordered.quiet()) == (b"o0", True)
    ordered.fin(first)
    assert ordered.message().body[12:] == b"o1"
    for start, bodies in [("msgcount:1", [b"o0", b"o1", b"o2"]), ("timestamp:1", [b"p1", b"o0", b"o1", b"o2"])]:
        client = connect(extend_support=True)
        assert client.ask(f"SUB_ADVANCED {topic} {start[:4]} 1 {start}\n".encode()) == b"OK"
        client.send(b"RDY 9\n")
        assert [each.body[12:] for each in client.messages(len(bodies))] == bodies


def test_ephemeral_topics_and_channels_go_with_their_readers(connect: Connect, broker: testing.BrokerProcess) -> None:
    client, publisher = connect(client_id="x"), connect()
    assert client.ask(b"SUB gone#ephemeral ch#ephemeral\n") == b"OK"
    client.send(b"RDY 5\n")
    assert publisher.ask(pub("gone#ephemeral", b"1")) == b"OK"
    assert client.message().body == b"1"

    def names() -> list[str]:
        found: list[str] = httpx.get(f"http://{broker.endpoints['nsqlookupd_http']}/topics").json()["topics"]
        return found

    assert "gone#ephemeral" in names()
    client.close()
    deadline = time.monotonic() + 30
    while "gone#ephemeral" in names():
        assert time.monotonic() < deadline


def test_what_lasts_over_a_restart(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as first:
        client = NsqClient(first.endpoints["nsqd_tcp"], extend_support=True)
        for name in ("stays", "gone#ephemeral"):
            assert client.ask(mpub(name, b"one", b"two")) == b"OK"
        assert client.ask(b"SUB stays ch\n") == b"OK"
        client.send(b"RDY 2\n")
        one, _ = client.messages(2)
        client.fin(one)
        assert client.ask(pub("stays", b"three", b'{"a":1}')) == b"OK"
        client.close()
    with testing.broker(tmp_path) as second:
        client = NsqClient(second.endpoints["nsqd_tcp"], extend_support=True)
        assert client.ask(b"SUB stays ch\n") == b"OK"
        client.send(b"RDY 5\n")
        assert [(each.body, each.ext) for each in client.messages(2)] == [(b"two", b""), (b"three", b'{"a":1}')]
        client.close()
        assert httpx.get(f"http://{second.endpoints['nsqlookupd_http']}/topics").json()["topics"] == ["stays"]


def test_tags_and_filters(connect: Connect, topic: str) -> None:
    publisher = connect()
    tagged = reader(connect, topic, extend_support=True, desired_tag="A")
    untagged = reader(connect, topic, extend_support=True)
    wanted = {"type": 1, "filter_ext_key": "k", "filter_data": "v"}
    filtered = reader(connect, topic, "filtered", extend_support=True, ext_filter=wanted)
    pairs = [("A", "v"), ("B", "w"), ("A", "w"), ("", "v")]
    exts = [json.dumps({"##client_dispatch_tag": tag, "k": k}).encode() for tag, k in pairs]
    publisher.ask(mpub_ext(topic, *[(ext, "".join(pair).encode()) for ext, pair in zip(exts, pairs, strict=True)]))
    assert [each.body for each in tagged.messages(2)] == [b"Av", b"Aw"]
    assert [each.body for each in untagged.messages(2)] == [b"Bw", b"v"]
    assert [each.body for each in filtered.messages(2)] == [b"Av", b"v"]


def test_topics_fixed_to_a_form(connect: Connect, topic: str) -> None:
    client = connect()
    assert client.ask(f"INTERNAL_CREATE_TOPIC {topic}-e 1 true\n".encode()) == b"OK"
    assert client.ask(f"INTERNAL_CREATE_TOPIC {topic}-p 0\n".encode()) == b"OK"
    refused = f"E_EXT_NOT_SUPPORT ext content not supported in topic {topic}-p".encode()
    assert client.ask(pub(f"{topic}-p", b"x", b'{"a":1}')) == refused
    assert client.ask(pub(f"{topic}-e 1", b"x", b'{"a":1}')) == b"OK"
    plain, extended = connect(client_id="c"), connect(extend_support=True)
    assert plain.ask(f"SUB {topic}-e ch\n".encode()).startswith(b"E_SUB_EXTEND_NEED this topic is extended")
    assert plain.closed()
    assert extended.ask(f"SUB {topic}-p ch\n".encode()).startswith(b"E_SUB_EXTEND_FORBIDDON this topic is not extended")
    assert extended.closed()
    # a tag is passed over where there are no exts
    tagged = reader(connect, f"{topic}-p", desired_tag="A")
    client.ask(pub(f"{topic}-p", b"for all"))
    assert tagged.message().body == b"for all"
    detailed = connect(extend_support=True)
    assert detailed.ask(f"SUB_ADVANCED {topic}-e ch 1\n".encode()) == b"OK"
    detailed.send(b"RDY 1\n")
    assert detailed.message().body[12:] == b"x"


SUB_FORKED = sized(b"IDENTIFY\n", b'{"desired_tag":""}') + b"SUB t bad\n"


@pytest.mark.parametrize(
    ("data", "answer", "fatal"),
    [
        (b"FOO bar\n", b"E_INVALID invalid command FOO", True),
        (b"\n", b"E_INVALID invalid command ", True),
        (b"x" * 5000, b"E_INVALID a command line is longer", True),
        (b"PUB\n", b"E_INVALID PUB insufficient number of parameters", True),
        (b"PUB t x\n\0\0\0\1x", b"E_BAD_PARTITION topic partition is not valid", True),
        (b"PUB t\n\0\0\0\0", b"E_BAD_MESSAGE PUB invalid message body size 0", True),
        (b"PUB t\n\xff\xff\xff\xff", b"E_BAD_MESSAGE PUB invalid message body size -1", True),
        (b"PUB t\n\x7f\xff\xff\xff", b"E_BAD_MESSAGE PUB message too big 2147483647 > 1048576", True),
        (b"MPUB t\n\x7f\xff\xff\xff", b"E_BAD_BODY MPUB body too big 2147483647 > 5242880", True),
        (b"MPUB t\n\0\0\0\x08\x05\xf5\xe0\xff", b"E_BAD_BODY MPUB invalid message count 99999999", True),
        (b"MPUB t\n\0\0\0\x08\0\0\0\1\0\0\0\0", b"E_BAD_MESSAGE MPUB invalid message(0) body size 0", True),
        (pub("t", b"", b'{"a":1}'), b"E_BAD_BODY invalid body size 9 in ext json header content length", True),
        (b"PUB_EXT t\n\0\0\0\2\0\0", b"E_BAD_BODY invalid body size 2 with ext json header enabled", True),
        (pub("t", b"x", b"{x"), b"E_INVALID_JSON_HEADER fail to parse json header:", False),
        (pub("t", b"x", b""), b"E_INVALID_JSON_HEADER fail to parse json header:", False),
        (pub("t", b"x", b"[" * 50_000), b"E_INVALID_JSON_HEADER fail to parse json header:", False),
        (pub("t", b"x", b'{"##trace_id":5}'), b"INVALID_TRACE_ID passin trace id should be string", False),
        (pub("t", b"x", b'{"##trace_id":"-5"}'), b"INVALID_TRACE_ID invalid trace id", False),
        (mpub_ext("t", (b"{x", b"a"), (b"", b"b")), b"E_INVALID_JSON_HEADER", False),
        (b"PUB b@d\n\0\0\0\1x", b"E_BAD_TOPIC", True),
        (b"SUB b@d ch\n", b'E_BAD_TOPIC SUB topic name "b@d" is not valid', True),
        (b"SUB t b@d\n", b'E_BAD_CHANNEL SUB channel name "b@d" is not valid', True),
        (b"SUB t\n", b"E_INVALID SUB insufficient number of parameters", True),
        (b"RDY 1\n", b"E_INVALID cannot RDY in current state", True),
        (b"FIN " + bytes(16) + b"\n", b"E_INVALID cannot FIN in current state", True),
        (b"SUB t ch 9\n", b"E_TOPIC_NOT_EXIST ", True),
        (b"SUB t bad\nRDY 2501\n", b"OK|E_INVALID RDY count 2501 out of range 0-2500", True),
        (b"SUB t bad\nRDY -1\n", b"OK|E_INVALID RDY could not parse count -1", True),
        (SUB_FORKED + b"FIN " + bytes(16) + b"\n", b"OK|OK|E_INVALID Invalid Message ID", True),
        (SUB_FORKED + b"FIN " + bytes(7) + b"\x09" + bytes(8) + b"\n", b"OK|OK|E_FIN_FAILED FIN [0 0 0 0 0 0", False),
        (SUB_FORKED + b"REQ " + bytes(7) + b"\x09" + bytes(8) + b" x\n", b"OK|OK|E_INVALID REQ could not parse", True),
        (SUB_FORKED + b"TOUCH " + b"\x7f" * 16 + b"\n", b"OK|OK|E_TOUCH_FAILED TOUCH [127 127", False),
        (b"SUB t bad\nFIN 0123456789abcdefX\n", b"OK|E_INVALID invalid message ID", True),
        (b"SUB t bad\nFIN 0123456789abcdef\r\n", b"OK|E_FIN_FAILED FIN 0123456789abcdef failed ID", False),
        (b"SUB t bad\nTOUCH 0123456789abcdef\r\n", b"OK|E_TOUCH_FAILED TOUCH 0123456789abcdef", False),
        (b"SUB t bad\nREQ 0123456789abcdef 0\r\n", b"OK|E_REQ_FAILED REQ 0123456789abcdef", False),
        (b"SUB t bad\nSUB t bad\n", b"OK|E_INVALID cannot SUB in current state", True),
        (b"SUB t bad\nCLS\nCLS\n", b"OK|CLOSE_WAIT|E_INVALID cannot CLS in current state", True),
        (sized(b"AUTH\n", b"secret"), b"E_AUTH_DISABLED", True),
        (sized(b"IDENTIFY\n", b"{bad"), b"E_BAD_BODY IDENTIFY failed to decode JSON body", True),
        (sized(b"IDENTIFY\n", b"[" * 9_000), b"E_BAD_BODY IDENTIFY failed to decode JSON body", True),
        (b"IDENTIFY\n\0\x10\0\0", b"E_BAD_BODY IDENTIFY invalid body size 1048576", True),
        (b"DPUB t -1\n\0\0\0\1x", b"E_INVALID DPUB could not parse timeout -1", True),
    ],
    ids=lambda value: None,
)  # fmt: skip
def test_bad_input_gets_its_error(connect: Connect, data: bytes, answer: bytes, fatal: bool) -> None:
    connect().ask(pub("t", b"x"))
    client = connect()
    client.send(data)
    for expected in answer.split(b"|"):
        assert client.frame()[1].startswith(expected)
    if fatal:
        assert client.closed()
    else:
        assert client.ask(pub("t", b"still here")) == b"OK"


def resident_bytes(broker: testing.BrokerProcess) -> int:
    """Memory of the broker that is not of files."""
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


@pytest.mark.turns(3, part=1)
def test_clients_that_never_read_cost_bounded_memory(
    broker: testing.BrokerProcess, connect: Connect, topic: str, full: bool
) -> None:
    """Readers with credit for 40 MB each, in batches of 5 MB, and one who takes no answers, until sockets are full."""

    messages, size_bytes, readers = (20_000 if full else 2_000), 20_000, 16
    publisher = connect()
    for number in range(readers):
        connect().ask(f"SUB {topic} c{number}\n".encode())
    for _ in range(messages // 250):
        assert publisher.ask(mpub(topic, *[bytes(size_bytes)] * 250)) == b"OK"
    before = resident_bytes(broker)
    deaf = [reader(connect, topic, f"c{number}", ready=2500) for number in range(readers)]
    question = sized(b"IDENTIFY\n", b'{"feature_negotiation":true}') * 200
    taken = connect().send_until_full(question, 10_000)
    assert taken < 10_000
    grown = resident_bytes(broker) - before
    asked = taken * len(question) >> 20
    print(f"{readers} readers of {messages * size_bytes >> 20} MiB each, {asked} MiB asked: {grown >> 20} MiB more")
    assert grown < readers * (4 << 20)
    # and others are served as before
    other = reader(connect, f"{topic}-other")
    assert publisher.ask(pub(f"{topic}-other", b"x")) == b"OK"
    assert other.message().body == b"x"
    # who begins to read gets all of it
    assert len(deaf[0].messages(2000)) == 2000


BAD_FIN = b"FIN " + b"0" * 15 + b"9\n"


@pytest.mark.parametrize("command", ["PUB", "FIN"])
@pytest.mark.turns(2)
def test_a_subscriber_that_reads_no_answers_is_not_read_either(
    broker: testing.BrokerProcess, connect: Connect, topic: str, command: str
) -> None:
    """What it publishes is answered, and what it finishes wrongly is refused: neither may pile up."""
    # with the system's own buffers hundreds of thousands are answered before they are full
    client = reader(connect, topic, ready=0, buffer_bytes=64 << 10)
    said = {"PUB": pub(topic, b"x"), "FIN": BAD_FIN}[command] * 1000
    before = resident_bytes(broker)
    taken = client.send_until_full(said, 4_000)
    grown = resident_bytes(broker) - before
    print(f"{taken * 1000} commands taken, {grown >> 20} MiB more")
    assert taken < 4_000
    assert grown < 64 << 20
    # who begins to read is answered, all of it
    for _ in range(taken * 1000):
        assert client.frame()[1].startswith({"PUB": b"OK", "FIN": b"E_FIN_FAILED"}[command])


@pytest.mark.turns(3, part=0)
def test_a_flood_of_small_commands_lets_others_have_their_turn(
    broker: testing.BrokerProcess, connect: Connect, topic: str
) -> None:
    """A buffer that has grown to a megabyte is full of them, of which each is refused or only noted."""
    client, health = connect(), Health(broker)
    assert client.ask(pub(topic, b"x" * 900_000)) == b"OK"
    assert client.ask(f"SUB {topic} ch\n".encode()) == b"OK"
    for flood in (BAD_FIN, b"NOP\n", b"RDY 0\n"):
        client.send(flood * 40_000)
        health.check(flood)
    health.close()
    for _ in range(40_000):
        assert client.frame()[1].startswith(b"E_FIN_FAILED")
    assert client.ask(pub(topic, b"and on")) == b"OK"


LIES = [
    (b"PUB_EXT %s\n\0\0\0\7\xff\xff{}abc", b"E_BAD_BODY invalid body size 7 in ext json header content length"),
    (b"PUB_EXT %s\n\0\0\0\5\0\3{}x", b"E_BAD_BODY invalid body size 5 in ext json header content length"),
    (b"MPUB_EXT %s\n\0\0\0\x0d\0\0\0\1\0\0\0\5\0\x09{}x", b"E_BAD_BODY"),
    (b"MPUB %s\n\0\0\0\x0e\0\0\0\2\0\0\0\1a\0\0\0\0\0", b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
    (b"PUB_TRACE %s\n\0\0\0\3abc", b"E_BAD_BODY"),
]
"""Publications whose sizes lie, and how their answer begins."""


def test_of_publications_that_are_refused_nothing_is_stored(connect: Connect, topic: str) -> None:
    for data, answer in LIES:
        client = connect()
        client.send(data.replace(b"%s", topic.encode()))
        assert client.frame()[1].startswith(answer), data
        assert client.closed()
    client = connect()
    deep = b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"
    for ext in (deep, b'{"a":' * 9_000, b"[" * 60_000, b'{"a":1}}', b'{"##trace_id":1}'):
        assert client.ask(pub(topic, b"bad", ext)).startswith((b"E_INVALID_JSON_HEADER", b"INVALID_TRACE_ID"))
    good = b'{"a":' + b"[" * 62 + b"]" * 62 + b',"##lading-carrier":"AAAA","##own":"x"}'
    assert client.ask(pub(topic, b"good", good)) == b"OK"
    found = reader(connect, topic, "all", extend_support=True).message()
    assert (found.offset, found.ext, found.body) == (0, good, b"good")


def test_a_strangers_message_stays_with_its_reader(connect: Connect, topic: str) -> None:
    publisher = connect()
    assert publisher.ask(mpub(topic, b"a", b"b")) == b"OK"
    owner = reader(connect, topic, "ch", ready=2)
    mine = owner.messages(2)
    stranger = reader(connect, topic, "ch", ready=2)
    for word in (b"FIN %s\n", b"REQ %s 0\n", b"TOUCH %s\n"):
        assert stranger.ask(word.replace(b"%s", mine[0].id)).startswith(b"E_" + word.split()[0] + b"_FAILED")
    assert stranger.quiet()
    owner.fin(mine[0])
    owner.close()
    again = stranger.message()
    assert (again.id, again.body) == (mine[1].id, b"b")
    stranger.fin(again)


def test_a_wrong_magic(broker: testing.BrokerProcess) -> None:
    client = NsqClient(broker.endpoints["nsqd_tcp"], magic=b"GET / HTTP/1.1\r\n\r\n")
    assert client.frame() == (1, b"E_BAD_PROTOCOL")
    assert client.closed()
    client.close()


@pytest.mark.turns(3, part=2)
def test_heartbeats_and_silence(connect: Connect) -> None:
    client = connect(heartbeat_interval=1000)
    began_s = time.monotonic()
    client._socket.settimeout(5)
    size = 4 + 15
    data = b""
    while chunk := client._socket.recv(4096):
        data += chunk
    assert len(data) == 2 * size
    assert data.count(b"_heartbeat_") == 2
    assert 2.4 < time.monotonic() - began_s < 4.5


def test_what_follows_a_fatal_error_is_thrown_away_and_the_error_arrives(connect: Connect) -> None:
    client = connect()
    client.send(b"FOO\n" + b"x" * 300_000)
    assert client.frame()[1].startswith(b"E_INVALID invalid command")
    assert client.closed()
    client = connect()
    client.send(b"x" * 300_000)
    assert client.frame()[1].startswith(b"E_INVALID a command line is longer")


def test_a_client_that_reads_nothing_takes_no_memory_and_holds_up_nobody(connect: Connect, topic: str) -> None:
    publisher = connect()
    for _ in range(6):
        assert publisher.ask(mpub(topic, *[b"x" * 500_000] * 8)) == b"OK"
    silent = reader(connect, topic, "silent", ready=2500)
    client = reader(connect, topic, "reads", ready=2500)
    publisher.ask(pub(topic, b"last"))
    assert client.message().body == b"last"
    assert len(silent.messages(48)) == 48


def test_any_bytes_leave_the_broker_well(broker: testing.BrokerProcess, connect: Connect, full: bool) -> None:
    health = Health(broker)
    generator = random.Random(3)
    fin = b"SUB fuzz ch\nRDY 5\nFIN " + bytes(7) + b"\x01" + bytes(8) + b"\n"
    seeds = [pub("fuzz", b"x", b'{"a":1}'), mpub("fuzz", b"a", b"b"), mpub_ext("fuzz", (b'{"a":"b"}', b"x")), fin]
    for _ in range(2_000 if full else 60):
        data = bytearray(b"".join(generator.choices(seeds, k=3)))
        for _ in range(generator.choice((1, 3))):
            data[generator.randrange(len(data))] = generator.choice((0, 1, 10, 32, 127, 255))
        client = connect()
        client.send(bytes(data))
        health.check(data)
        client.close()
    health.close()
    assert connect().ask(pub("fuzz", b"fine")) == b"OK"
