"""Gateways for NSQ: `lading serve --store kafka://` over a real Apache Kafka, channels are share groups there."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import httpx
import pytest

from lading import testing
from lading.testing import BrokerProcess
from tests.interop import go_programs, store_gateways
from tests.interop.kafka_broker import RunningKafka
from tests.interop.shared_kafka import PROCESS

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True, scope="module"),
]

# share groups of a cluster take longer than its topics
wait_until = partial(store_gateways.wait_until, wait_s=30.0)
_names = (f"{PROCESS}queue{number}" for number in count(1))
PYNSQ = """
import json, sys
import nsq, tornado.ioloop

topic, wanted, *tcps = sys.argv[1:]
seen, answers = [], []
loop = tornado.ioloop.IOLoop.current()

def handler(message):
    seen.append([message.body.decode(), message.attempts])
    if len(seen) == 1:
        message.requeue(delay=0, backoff=False)
        return True
    if len(seen) == int(wanted) + 1:
        loop.call_later(0.5, loop.stop)
    return True

def note(conn, data):
    answers.append(data.decode() if isinstance(data, bytes) else repr(data))

def publish():
    if not writer.conns:
        loop.call_later(0.05, publish)
        return
    writer.pub(topic, b"0", callback=note)
    writer.mpub(topic, [b"%d" % n for n in range(1, int(wanted))], callback=note)

writer = nsq.Writer(tcps[:1])
reader = nsq.Reader(
    message_handler=handler, nsqd_tcp_addresses=tcps, topic=topic, channel="ch", max_in_flight=len(tcps),
    requeue_delay=0,
)
loop.call_later(0.05, publish)
loop.call_later(60, loop.stop)
loop.start()
print(json.dumps({"seen": seen, "answers": answers}))
"""


@pytest.mark.parametrize("gateways_count", [1, 2])
def test_pynsq_publishes_and_drains_a_channel(gateways: list[BrokerProcess], gateways_count: int) -> None:
    pytest.importorskip("nsq", reason="pynsq is not installed (pip install pynsq)")
    addresses = [one.endpoints["nsqd_tcp"] for one in gateways[:gateways_count]]
    program = [sys.executable, "-c", PYNSQ, next(_names), "20", *addresses]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["answers"] == ["OK", "OK"], done.stderr[-2000:]
    again = told["seen"][0][0]
    expected = sorted([[str(number), 1] for number in range(20)] + [[again, 2]])
    assert sorted(told["seen"]) == expected, done.stderr[-2000:]


def test_any_lookup_lists_all_gateways(gateways: list[BrokerProcess], kafka: RunningKafka) -> None:
    name = next(_names)
    client = NsqClient(gateways[0])
    assert client.publish(name, b"one") == b"OK"
    client.close()
    ports = {int(one.endpoints["nsqd_tcp"].rpartition(":")[2]) for one in gateways}

    wait_until(lambda: all(ports <= look_up(gateway, name) for gateway in gateways))
    with testing.broker(settings={"store": kafka.url}) as third:
        wait_until(lambda: int(third.endpoints["nsqd_tcp"].rpartition(":")[2]) in look_up(gateways[1], name))
        ended = int(third.endpoints["nsqd_tcp"].rpartition(":")[2])
    wait_until(lambda: ended not in look_up(gateways[1], name))


@pytest.mark.parametrize("asked", [0, 1])
def test_go_nsq_publishes_at_both_gateways_and_finds_them_by_a_lookup(
    gateways: list[BrokerProcess], asked: int
) -> None:
    """Upstream's client, unmodified: it asks one gateway's nsqlookupd and reads from both."""
    try:
        client = go_programs.Conversation(go_programs.client("upstream"))
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))
    name, bodies = next(_names), [b"%d" % number for number in range(20)]
    try:
        for gateway, part in zip(gateways, (bodies[:10], bodies[10:]), strict=True):
            published = client.ask(
                op="publish",
                address=gateway.endpoints["nsqd_tcp"],
                topic=name,
                bodies=part,
                multi=gateway is gateways[0],
            )
            assert published["error"] == ""
        ports = {int(one.endpoints["nsqd_tcp"].rpartition(":")[2]) for one in gateways}
        wait_until(lambda: ports <= look_up(gateways[asked], name))
        seen = client.ask(
            op="consume", lookupd=gateways[asked].endpoints["nsqlookupd_http"], topic=name, channel="ch", count=20,
            in_flight=4, refuse=1, timeout_ms=60_000,
        )  # fmt: skip
    finally:
        client.close()
    assert seen["error"] == ""
    assert sorted(one["body"] for one in seen["messages"]) == sorted(bodies)
    # one was refused once
    assert sorted(one["attempts"] for one in seen["messages"]) == [1] * 19 + [2]


@pytest.mark.turns(2)
def test_gateways_that_are_killed_lose_no_message(
    gateways: list[BrokerProcess], kafka: RunningKafka, full: bool
) -> None:
    """A publisher and a consumer at a gateway that is killed go on at the next one; another consumer stays."""
    name, published = next(_names), Numbers()
    finished: Counter[bytes] = Counter()
    done = threading.Event()
    first = NsqClient(gateways[0])
    assert first.publish(name, b"first") == b"OK"
    first.close()
    staying = threading.Thread(target=drain, args=(gateways[0], name, finished, done))
    staying.start()
    for _ in range(20 if full else 2):
        with testing.broker(settings={"store": kafka.url}) as killed:
            draining = threading.Thread(target=drain, args=(killed, name, finished, done))
            publishing = threading.Thread(target=published.publish, args=(killed, name))
            published.begin(50)
            for thread in (draining, publishing):
                thread.start()
            assert published.has_enough.wait(120)
            os.kill(killed.pid, signal.SIGKILL)
            for thread in (draining, publishing):
                thread.join(60)
    wait_until(lambda: published.acknowledged <= finished.keys(), wait_s=90.0)
    done.set()
    staying.join(60)
    print(
        f"{len(published.acknowledged)} acknowledged, lost 0, "
        f"finished more than once {sum(count > 1 for count in finished.values())}"
    )


def test_a_paused_channel_gets_nothing_at_any_gateway(gateways: list[BrokerProcess]) -> None:
    name = next(_names)
    one, other = NsqClient(gateways[0]), NsqClient(gateways[1])
    assert one.publish(name, b"first") == b"OK"
    other.send(b"SUB %s ch\nRDY 5\n" % name.encode())
    assert other.receive() == (0, b"OK")
    assert other.receive_message() == b"first"
    wait_until(lambda: is_known(gateways[0], name))
    for what, verb in ((f"channel/pause?topic={name}&channel=ch", "channel"), (f"topic/pause?topic={name}", "topic")):
        # the gateway that the reader is not at
        assert change(gateways[0], what) == 200
        wait_until(partial(is_paused, gateways[1], name, verb))
        assert one.publish(name, verb.encode()) == b"OK"
        assert not other.has_more(1.5)
        assert change(gateways[1], what.replace("pause", "unpause")) == 200
        assert other.receive_message() == verb.encode()
    for client in (one, other):
        client.close()


def test_an_emptied_channel_delivers_what_comes_afterwards(gateways: list[BrokerProcess]) -> None:
    name = next(_names)
    one, other = NsqClient(gateways[0]), NsqClient(gateways[1])
    for number in range(5):
        assert one.publish(name, b"%d" % number) == b"OK"
    # before it has a channel the topic has them, and its first channel would
    assert change(gateways[0], f"topic/empty?topic={name}") == 200
    assert change(gateways[0], f"channel/create?topic={name}&channel=ch") == 200
    assert one.publish(name, b"5") == b"OK"
    wait_until(lambda: is_known(gateways[1], name))
    assert change(gateways[1], f"channel/empty?topic={name}&channel=ch") == 200
    assert one.publish(name, b"6") == b"OK"
    other.send(b"SUB %s ch\nRDY 5\n" % name.encode())
    assert other.receive() == (0, b"OK")
    assert other.receive_message() == b"6"
    for client in (one, other):
        client.close()


def test_a_deleted_channel_is_gone_from_all_gateways(gateways: list[BrokerProcess]) -> None:
    name = next(_names)
    one, other = NsqClient(gateways[0]), NsqClient(gateways[1])
    assert one.publish(name, b"first") == b"OK"
    other.send(b"SUB %s ch\nRDY 1\n" % name.encode())
    assert other.receive() == (0, b"OK")
    assert other.receive_message() == b"first"
    wait_until(lambda: is_known(gateways[0], name))
    assert change(gateways[0], f"channel/delete?topic={name}&channel=ch") == 200
    with pytest.raises(OSError):
        while True:
            other.receive()
    wait_until(lambda: change(gateways[1], f"channel/pause?topic={name}&channel=ch") == 404)
    one.close()


def test_a_delayed_message_comes_at_its_time_and_outlives_its_gateway(
    gateways: list[BrokerProcess], kafka: RunningKafka
) -> None:
    name = next(_names)
    one, other = NsqClient(gateways[0]), NsqClient(gateways[1])
    delay_s = 5.0
    with testing.broker(settings={"store": kafka.url}) as killed:
        lost = NsqClient(killed)
        began_s = time.monotonic()
        assert one.publish(name, b"late", delay_ms=int(delay_s * 1000)) == b"OK"
        assert one.publish(name, b"now") == b"OK"
        lost.send(b"SUB %s ch\nRDY 5\n" % name.encode())
        assert lost.receive() == (0, b"OK")
        assert lost.receive_message() == b"now"
        os.kill(killed.pid, signal.SIGKILL)
        lost.close()
    other.send(b"SUB %s ch\nRDY 5\n" % name.encode())
    assert other.receive() == (0, b"OK")
    # the other message comes again if its FIN had not gone out
    received = other.receive_message()
    assert (received if received != b"now" else other.receive_message()) == b"late"
    assert time.monotonic() - began_s >= delay_s
    for client in (one, other):
        client.close()


def look_up(gateway: BrokerProcess, topic: str) -> set[int]:
    """Return the ports at which nsqd serves a topic, by a gateway's nsqlookupd."""
    url = f"http://{gateway.endpoints['nsqlookupd_http']}/lookup?topic={topic}"
    found = httpx.get(url, timeout=10)
    return {one["tcp_port"] for one in found.json()["producers"]} if found.status_code == 200 else set()


def change(gateway: BrokerProcess, what: str) -> int:
    return httpx.post(f"http://{gateway.endpoints['nsqd_http']}/{what}", timeout=60).status_code


def read_stats(gateway: BrokerProcess, topic: str) -> dict[str, Any]:
    url = f"http://{gateway.endpoints['nsqd_http']}/stats?format=json&topic={topic}"
    topics = httpx.get(url, timeout=10).json()["topics"]
    return topics[0] if topics else {"paused": False, "channels": []}


def is_paused(gateway: BrokerProcess, topic: str, verb: str) -> bool:
    found = read_stats(gateway, topic)
    return bool(found["paused"] if verb == "topic" else found["channels"][0]["paused"])


def is_known(gateway: BrokerProcess, topic: str) -> bool:
    return bool(read_stats(gateway, topic)["channels"])


class NsqClient:
    """A client of nsqd's TCP protocol, as it is written in its specification."""

    def __init__(self, gateway: BrokerProcess) -> None:
        host, _, port = gateway.endpoints["nsqd_tcp"].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self.send(b"  V2")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> tuple[int, bytes]:
        """Return type and data of the next frame that is not a heartbeat."""
        while True:
            kind, data = self._read_frame()
            if data != b"_heartbeat_":
                return kind, data
            self.send(b"NOP\n")

    def _read_frame(self) -> tuple[int, bytes]:
        head = self._socket.recv(8, socket.MSG_WAITALL)
        if len(head) < 8:
            raise ConnectionResetError("the gateway closed the connection")
        size, kind = struct.unpack(">ii", head)
        data = self._socket.recv(size - 4, socket.MSG_WAITALL) if size > 4 else b""
        return kind, data

    def receive_message(self) -> bytes:
        """Return the body of the next message, and finish it."""
        kind, data = self.receive()
        assert kind == 2, data
        self.send(b"FIN " + data[10:26] + b"\n")
        return data[26:]

    def publish(self, topic: str, body: bytes, delay_ms: int | None = None) -> bytes:
        command = b"PUB %s\n" % topic.encode() if delay_ms is None else b"DPUB %s %d\n" % (topic.encode(), delay_ms)
        self.send(command + struct.pack(">i", len(body)) + body)
        return self.receive()[1]

    def has_more(self, wait_s: float) -> bool:
        return bool(select.select([self._socket], [], [], wait_s)[0])

    def close(self) -> None:
        self._socket.close()


class Numbers:
    """Numbers that were published, by one thread after the other."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.has_enough = threading.Event()
        self._numbers = count()
        self._enough = 0

    def begin(self, more: int) -> None:
        """Have ``has_enough`` set after ``more`` acknowledgements."""
        self._enough = len(self.acknowledged) + more
        self.has_enough.clear()

    def publish(self, gateway: BrokerProcess, topic: str) -> None:
        with suppress(OSError):
            client = NsqClient(gateway)
            for number in self._numbers:
                if client.publish(topic, b"%d" % number) == b"OK":
                    self.acknowledged.add(b"%d" % number)
                if len(self.acknowledged) >= self._enough:
                    self.has_enough.set()


def drain(gateway: BrokerProcess, topic: str, finished: Counter[bytes], done: threading.Event) -> None:
    """Finish every message that comes, until the gateway ends or ``done``."""
    with suppress(OSError):
        client = NsqClient(gateway)
        client.send(b"SUB %s ch\nRDY 20\n" % topic.encode())
        while not done.is_set():
            if client.has_more(1.0):
                kind, data = client.receive()
                if kind == 2:
                    client.send(b"FIN " + data[10:26] + b"\n")
                    finished[data[26:]] += 1
        client.close()
