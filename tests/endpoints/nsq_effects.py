"""What administrators' requests do to an nsqd: steps, and the figures and messages after each, as nsqd 1.3.0 has them.

Each expected value was captured from the real nsqd; `tests/interop/test_nsqd_effects.py` runs the same table on one.
Figures are those of ``/stats``, those that are not zero.
"""

from __future__ import annotations

import re
import struct
import time
from typing import Any, NamedTuple

import httpx

from tests.endpoints.nsq_client import Message, NsqClient, message_of, pub, sized

SETTLE_S = 10.0
"""nsqd hands messages to channels beside its requests, and looks at the deadlines of young channels every 5 s."""
MESSAGE = 2


class Case(NamedTuple):
    """Steps as ``verb words`` with what is seen after each, "" where that is nothing."""

    name: str
    steps: tuple[tuple[str, str], ...]


CASES = (
    Case(
        "a topic without channels is emptied",
        (
            ("pub a b", ""),
            ("stats", "depth 2, messages 2"),
            ("post /topic/empty", "200"),
            ("stats", "messages 2"),
            ("pub c", ""),
            ("sub ch 5", ""),
            ("read ch 1", "c"),
            ("quiet ch", ""),
            ("stats", "messages 3; ch: in_flight 1, messages 1, clients 1"),
        ),
    ),
    Case(
        "a topic is emptied, and its channels keep what they have",
        (
            ("sub ch 0", ""),
            ("pub a b c", ""),
            ("stats", "messages 3; ch: depth 3, messages 3, clients 1"),
            ("post /topic/empty", "200"),
            ("stats", "messages 3; ch: depth 3, messages 3, clients 1"),
            ("ready ch 5", ""),
            ("read ch 3", "a b c"),
        ),
    ),
    Case(
        "a channel is emptied while messages wait and are in flight",
        (
            ("sub ch 2", ""),
            ("pub a b c d e", ""),
            ("read ch 2", "a b"),
            ("stats", "messages 5; ch: depth 3, in_flight 2, messages 5, clients 1"),
            ("post /channel/empty ch", "200"),
            ("stats", "messages 5; ch: messages 5, clients 1"),
            ("pub f", ""),
            ("read ch 1", "f"),
            ("stats", "messages 6; ch: in_flight 1, messages 6, clients 1"),
            ("fin ch f", ""),
            ("stats", "messages 6; ch: messages 6, clients 1"),
        ),
    ),
    Case(
        "what was in flight when its channel was emptied cannot be finished",
        (
            ("sub ch 2", ""),
            ("pub a", ""),
            ("read ch 1", "a"),
            ("post /channel/empty ch", "200"),
            ("fin ch a", "E_FIN_FAILED FIN ID failed ID not in flight"),
        ),
    ),
    Case(
        "deferred messages are counted, and go when their channel is emptied",
        (
            ("sub ch 5", ""),
            ("sub other 0", ""),
            ("dpub 1000 later", ""),
            ("stats", "messages 1; ch: deferred 1, messages 1, clients 1; other: deferred 1, messages 1, clients 1"),
            ("post /channel/empty ch", "200"),
            ("stats", "messages 1; ch: messages 1, clients 1; other: deferred 1, messages 1, clients 1"),
            ("stats", "messages 1; ch: messages 1, clients 1; other: depth 1, messages 1, clients 1"),
            ("pub next", ""),
            ("read ch 1", "next"),
            ("quiet ch", ""),
        ),
    ),
    Case(
        "a message that is put off is deferred, and goes when its channel is emptied",
        (
            ("sub ch 2", ""),
            ("pub a", ""),
            ("read ch 1", "a"),
            ("req ch a 60000", ""),
            ("stats", "messages 1; ch: deferred 1, messages 1, requeued 1, clients 1"),
            ("post /channel/empty ch", "200"),
            ("stats", "messages 1; ch: messages 1, requeued 1, clients 1"),
        ),
    ),
    Case(
        "deferred messages of a topic without channels",
        (
            ("dpub 60000 later", ""),
            ("stats", "depth 1, messages 1"),
            ("post /topic/empty", "200"),
            ("stats", "messages 1"),
            ("post /channel/create ch", "200"),
            ("stats", "messages 1; ch:"),
        ),
    ),
    Case(
        "the first channel gets deferred messages, a later one does not",
        (
            ("dpub 60000 later", ""),
            ("post /channel/create first", "200"),
            ("stats", "messages 1; first: deferred 1, messages 1"),
            ("post /channel/create second", "200"),
            ("stats", "messages 1; first: deferred 1, messages 1; second:"),
            ("post /channel/delete first", "200"),
            ("post /channel/create third", "200"),
            ("stats", "messages 1; second:; third:"),
        ),
    ),
    Case(
        "a topic is paused: its channels go on with what they have",
        (
            ("sub ch 0", ""),
            ("pub a b", ""),
            ("stats", "messages 2; ch: depth 2, messages 2, clients 1"),
            ("post /topic/pause", "200"),
            ("pub c d", ""),
            ("stats", "depth 2, messages 4, paused; ch: depth 2, messages 2, clients 1"),
            ("ready ch 9", ""),
            ("read ch 2", "a b"),
            ("quiet ch", ""),
            ("sub late 9", ""),
            ("quiet late", ""),
            ("post /topic/unpause", "200"),
            ("read ch 2", "c d"),
            ("read late 2", "c d"),
            ("stats", "messages 4; ch: in_flight 4, messages 4, clients 1; late: in_flight 2, messages 2, clients 1"),
        ),
    ),
    Case(
        "a paused topic is emptied",
        (
            ("sub ch 0", ""),
            ("pub a", ""),
            ("stats", "messages 1; ch: depth 1, messages 1, clients 1"),
            ("post /topic/pause", "200"),
            ("pub b c", ""),
            ("stats", "depth 2, messages 3, paused; ch: depth 1, messages 1, clients 1"),
            ("post /topic/empty", "200"),
            ("stats", "messages 3, paused; ch: depth 1, messages 1, clients 1"),
            ("pub d", ""),
            ("post /topic/unpause", "200"),
            ("ready ch 9", ""),
            ("read ch 2", "a d"),
            ("quiet ch", ""),
            ("stats", "messages 4; ch: in_flight 2, messages 2, clients 1"),
        ),
    ),
    Case(
        "a channel of a paused topic is emptied",
        (
            ("sub ch 0", ""),
            ("pub a", ""),
            ("stats", "messages 1; ch: depth 1, messages 1, clients 1"),
            ("post /topic/pause", "200"),
            ("pub b", ""),
            ("post /channel/empty ch", "200"),
            ("stats", "depth 1, messages 2, paused; ch: messages 1, clients 1"),
            ("post /topic/unpause", "200"),
            ("ready ch 9", ""),
            ("read ch 1", "b"),
        ),
    ),
    Case(
        "a topic is paused before it has a channel",
        (
            ("pub a", ""),
            ("post /topic/pause", "200"),
            ("post /topic/pause", "200"),
            ("sub ch 9", ""),
            ("quiet ch", ""),
            ("stats", "depth 1, messages 1, paused; ch: clients 1"),
            ("post /channel/delete ch", "200"),
            ("stats", "depth 1, messages 1, paused"),
            ("post /topic/unpause", "200"),
            ("sub again 9", ""),
            ("read again 1", "a"),
        ),
    ),
    Case(
        "a channel is paused",
        (
            ("sub ch 9", ""),
            ("sub other 9", ""),
            ("post /channel/pause ch", "200"),
            ("pub a", ""),
            ("read other 1", "a"),
            ("quiet ch", ""),
            (
                "stats",
                "messages 1; ch: depth 1, messages 1, clients 1, paused; other: in_flight 1, messages 1, clients 1",
            ),
            ("post /channel/unpause ch", "200"),
            ("read ch 1", "a"),
        ),
    ),
    Case(
        "the last channel is deleted: the next one gets what came since",
        (
            ("sub ch 0", ""),
            ("pub a", ""),
            ("stats", "messages 1; ch: depth 1, messages 1, clients 1"),
            ("post /channel/delete ch", "200"),
            ("closed ch", ""),
            ("pub b", ""),
            ("stats", "depth 1, messages 2"),
            ("sub next 9", ""),
            ("read next 1", "b"),
            ("quiet next", ""),
        ),
    ),
    Case(
        "a topic is deleted with its channels",
        (
            ("sub ch 0", ""),
            ("pub a", ""),
            ("post /topic/delete", "200"),
            ("closed ch", ""),
            ("stats", "no topic"),
            ("post /topic/empty", "404"),
            ("post /topic/pause", "404"),
            ("post /channel/empty ch", "404"),
        ),
    ),
    Case(
        "what does not exist",
        (
            ("pub a", ""),
            ("post /channel/empty nothing", "404"),
            ("post /channel/pause nothing", "404"),
            ("post /channel/delete nothing", "404"),
            ("stats nothing", "no topic"),
            ("stats", "depth 1, messages 1"),
        ),
    ),
    Case(
        "requeued, put off and given back",
        (
            ("sub ch 3", ""),
            ("pub a b c", ""),
            ("read ch 3", "a b c"),
            ("ready ch 0", ""),
            ("req ch a 0", ""),
            ("stats", "messages 3; ch: depth 1, in_flight 2, messages 3, requeued 1, clients 1"),
            ("fin ch b", ""),
            ("stats", "messages 3; ch: depth 1, in_flight 1, messages 3, requeued 1, clients 1"),
        ),
    ),
    Case(
        "a message that timed out goes behind those that wait",
        (
            ("identify ch 1000", ""),
            ("sub ch 1", ""),
            ("pub a b c", ""),
            ("read ch 1", "a"),
            ("stats", "messages 3; ch: depth 2, in_flight 1, messages 3, clients 1"),
            ("read ch 1", "b"),
            ("stats", "messages 3; ch: depth 2, in_flight 1, messages 3, timed_out 1, clients 1"),
            ("fin ch b", ""),
            ("read ch 1", "c"),
            ("fin ch c", ""),
            ("read ch 1", "a"),
        ),
    ),
    Case(
        "a message that is requeued goes behind those that wait",
        (
            ("sub ch 1", ""),
            ("pub a b c", ""),
            ("read ch 1", "a"),
            ("req ch a 0", ""),
            ("read ch 1", "b"),
            ("fin ch b", ""),
            ("read ch 1", "c"),
            ("fin ch c", ""),
            ("read ch 1", "a"),
        ),
    ),
)

ID = b"0123456789abcdef"
SUBSCRIBED = b"SUB %s ch\n"
ERRORS: tuple[tuple[bytes, str], ...] = (
    (b"XYZ\n", "E_INVALID invalid command XYZ, closed"),
    (b"XYZ a b\r\n", "E_INVALID invalid command XYZ, closed"),
    (b"\n", "E_INVALID invalid command , closed"),
    (b"FIN\n", "E_INVALID cannot FIN in current state, closed"),
    (b"FIN " + ID + b"\n", "E_INVALID cannot FIN in current state, closed"),
    (b"REQ\n", "E_INVALID cannot REQ in current state, closed"),
    (b"REQ " + ID + b"\n", "E_INVALID cannot REQ in current state, closed"),
    (b"TOUCH\n", "E_INVALID cannot TOUCH in current state, closed"),
    (b"RDY\n", "E_INVALID cannot RDY in current state, closed"),
    (b"CLS\n", "E_INVALID cannot CLS in current state, closed"),
    (b"SUB\n", "E_INVALID SUB insufficient number of parameters, closed"),
    (b"SUB t\n", "E_INVALID SUB insufficient number of parameters, closed"),
    (b"SUB b@d c\n", 'E_BAD_TOPIC SUB topic name "b@d" is not valid, closed'),
    (b"PUB\n", "E_INVALID PUB insufficient number of parameters, closed"),
    (b"MPUB\n", "E_INVALID MPUB insufficient number of parameters, closed"),
    (b"DPUB t\n", "E_INVALID DPUB insufficient number of parameters, closed"),
    (b"PUB b@d\n", 'E_BAD_TOPIC PUB topic name "b@d" is not valid, closed'),
    (b"MPUB b@d\n", 'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "b@d" is not valid, closed'),
    (b"DPUB b@d 1\n", 'E_BAD_TOPIC DPUB topic name "b@d" is not valid, closed'),
    (b"PUB t\n\0\0\0\0", "E_BAD_MESSAGE PUB invalid message body size 0, closed"),
    (b"PUB t\n\xff\xff\xff\xff", "E_BAD_MESSAGE PUB invalid message body size -1, closed"),
    (b"PUB t\n\x7f\xff\xff\xff", "E_BAD_MESSAGE PUB message too big 2147483647 > 1048576, closed"),
    (b"MPUB t\n\0\0\0\0", "E_BAD_BODY MPUB invalid body size 0, closed"),
    (b"MPUB t\n\x7f\xff\xff\xff", "E_BAD_BODY MPUB body too big 2147483647 > 5242880, closed"),
    (b"MPUB t\n\0\0\0\x08\0\0\0\0\0\0\0\0", "E_BAD_BODY MPUB invalid message count 0, closed"),
    (b"MPUB t\n\0\0\0\x08\0\0\0\1\0\0\0\0", "E_BAD_MESSAGE MPUB invalid message(0) body size 0, closed"),
    (b"DPUB t 1\n\0\0\0\0", "E_BAD_MESSAGE DPUB invalid message body size 0, closed"),
    (b"AUTH a\n", "E_INVALID AUTH invalid number of parameters, closed"),
    (b"AUTH\n\0\0\0\1x", "E_AUTH_DISABLED AUTH disabled, closed"),
    (b"IDENTIFY\n\0\0\0\4null", "OK, open"),
    (b"IDENTIFY\n\0\0\0\2[]", "E_BAD_BODY IDENTIFY failed to decode JSON body, closed"),
    (b"IDENTIFY\n\0\0\0\0", "E_BAD_BODY IDENTIFY invalid body size 0, closed"),
    (b"IDENTIFY\n\xff\xff\xff\xff", "E_BAD_BODY IDENTIFY invalid body size -1, closed"),
    (b"IDENTIFY\n\x7f\xff\xff\xff", "E_BAD_BODY IDENTIFY body too big 2147483647 > 5242880, closed"),
    (b"DPUB t -1\n\0\0\0\1x", "E_INVALID DPUB could not parse timeout -1, closed"),
    (b"DPUB t x\n\0\0\0\1x", "E_INVALID DPUB could not parse timeout x, closed"),
    (b"DPUB t 3600001\n\0\0\0\1x", "E_INVALID DPUB timeout 3600001 out of range 0-3600000, closed"),
    (b"nop\n", "E_INVALID invalid command nop, closed"),
    (b"SUB t b@d\n", 'E_BAD_CHANNEL SUB channel name "b@d" is not valid, closed'),
    (b"SUB t#ephemeral c#ephemeral\n", "OK, open"),
    (
        b"MPUB t\n\0\0\0\x09\0\0\0\1\x7f\xff\xff\xff\0",
        "E_BAD_MESSAGE MPUB message too big 2147483647 > 1048576, closed",
    ),
    (b"AUTH\n\0\0\0\0", "E_BAD_BODY AUTH invalid body size 0, closed"),
    (SUBSCRIBED + b"RDY 1 2\n", "OK, open"),
    (SUBSCRIBED + b"CLS\n", "OK, CLOSE_WAIT, open"),
    (SUBSCRIBED + b"CLS\nCLS\n", "OK, CLOSE_WAIT, E_INVALID cannot CLS in current state, closed"),
    (SUBSCRIBED + b"FIN\n", "OK, E_INVALID FIN insufficient number of params, closed"),
    (SUBSCRIBED + b"FIN x\n", "OK, E_INVALID invalid message ID, closed"),
    (SUBSCRIBED + b"FIN " + ID + b"x\n", "OK, E_INVALID invalid message ID, closed"),
    (SUBSCRIBED + b"FIN " + ID + b"\n", "OK, E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight, open"),
    (SUBSCRIBED + b"FIN " + ID + b"\r\n", "OK, E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight, open"),
    (SUBSCRIBED + b"REQ " + ID + b"\n", "OK, E_INVALID REQ insufficient number of params, closed"),
    (SUBSCRIBED + b"REQ x 1\n", "OK, E_INVALID invalid message ID, closed"),
    (SUBSCRIBED + b"REQ " + ID + b" x\n", "OK, E_INVALID REQ could not parse timeout x, closed"),
    (SUBSCRIBED + b"REQ " + ID + b" 1\n", "OK, E_REQ_FAILED REQ 0123456789abcdef failed ID not in flight, open"),
    (SUBSCRIBED + b"TOUCH\n", "OK, E_INVALID TOUCH insufficient number of params, closed"),
    (SUBSCRIBED + b"TOUCH x\n", "OK, E_INVALID invalid message ID, closed"),
    (SUBSCRIBED + b"TOUCH " + ID + b"\n", "OK, E_TOUCH_FAILED TOUCH 0123456789abcdef failed ID not in flight, open"),
    (SUBSCRIBED + b"RDY x\n", "OK, E_INVALID RDY could not parse count x, closed"),
    (SUBSCRIBED + b"RDY -1\n", "OK, E_INVALID RDY could not parse count -1, closed"),
    (SUBSCRIBED + b"RDY 2501\n", "OK, E_INVALID RDY count 2501 out of range 0-2500, closed"),
    (SUBSCRIBED + b"SUB t c\n", "OK, E_INVALID cannot SUB in current state, closed"),
)
"""What a client sends, and what it is answered."""


def read_answers(tcp: str, topic: str, sent: bytes, expected: str) -> str:
    """Send bytes; return the answers, and whether the connection is open after them.

    As many answers as ``expected`` has are waited for, and a moment for one more.
    """
    count = expected.count(", ")
    client = NsqClient(tcp)
    answers: list[str] = []
    try:
        client.send(sent.replace(b"%s", topic.encode()))
        client.send(b"")
        while True:
            answers.append(client.frame(0.25 if len(answers) >= count else SETTLE_S)[1].decode())
    except TimeoutError:
        return ", ".join([*answers, "open"])
    except (EOFError, ConnectionError):
        return ", ".join([*answers, "closed"])
    finally:
        client.close()


TOPIC_FIGURES = {"depth": "depth", "message_count": "messages"}
CHANNEL_FIGURES = {
    "depth": "depth",
    "in_flight_count": "in_flight",
    "deferred_count": "deferred",
    "message_count": "messages",
    "requeue_count": "requeued",
    "timeout_count": "timed_out",
    "client_count": "clients",
}


class CaseRun:
    """One case against one server, with a topic of its own."""

    def __init__(self, tcp: str, http: str, topic: str) -> None:
        self._tcp, self._topic = tcp, topic
        self._web = httpx.Client(base_url=f"http://{http}")
        self._publisher = NsqClient(tcp)
        self._readers: dict[str, NsqClient] = {}
        self._identities: dict[str, dict[str, Any]] = {}
        self._received: dict[tuple[str, str], Message] = {}

    def close(self) -> None:
        for client in (self._publisher, *self._readers.values()):
            client.close()
        self._web.close()

    def run(self, step: str, expected: str) -> str:
        """Carry out a step; return what is seen."""
        verb, *words = step.split()
        seen: str = getattr(self, f"_{verb}")(expected, *words)
        return seen

    def _pub(self, expected: str, *bodies: str) -> str:
        for body in bodies:
            assert self._publisher.ask(pub(self._topic, body.encode())) == b"OK"
        return ""

    def _dpub(self, expected: str, delay_ms: str, body: str) -> str:
        line = f"DPUB {self._topic} {delay_ms}\n".encode()
        assert self._publisher.ask(sized(line, body.encode())) == b"OK"
        return ""

    def _post(self, expected: str, path: str, channel: str = "") -> str:
        query = f"?topic={self._topic}" + (f"&channel={channel}" if channel else "")
        return str(self._web.post(path + query).status_code)

    def _identify(self, expected: str, channel: str, timeout_ms: str) -> str:
        self._identities[channel] = {"msg_timeout": int(timeout_ms)}
        return ""

    def _sub(self, expected: str, channel: str, ready: str) -> str:
        client = self._readers[channel] = NsqClient(self._tcp, **self._identities.get(channel, {}))
        assert client.ask(f"SUB {self._topic} {channel}\n".encode()) == b"OK"
        return self._ready("", channel, ready)

    def _ready(self, expected: str, channel: str, ready: str) -> str:
        self._readers[channel].send(f"RDY {ready}\n".encode())
        return ""

    def _read(self, expected: str, channel: str, count: str) -> str:
        bodies = []
        for _ in range(int(count)):
            kind, data = self._readers[channel].frame(SETTLE_S)
            assert kind == MESSAGE, data
            message = message_of(data, extended=False)
            bodies.append(message.body.decode())
            self._received[channel, bodies[-1]] = message
        return " ".join(bodies)

    def _fin(self, expected: str, channel: str, body: str) -> str:
        return self._settle(expected, channel, body, b"FIN %s\n")

    def _req(self, expected: str, channel: str, body: str, delay_ms: str) -> str:
        return self._settle(expected, channel, body, b"REQ %s " + delay_ms.encode() + b"\n")

    def _settle(self, expected: str, channel: str, body: str, command: bytes) -> str:
        client, message = self._readers[channel], self._received[channel, body]
        client.send(command % message.id)
        if not expected:
            return ""
        return re.sub(r"(FIN|REQ) \S+", r"\1 ID", client.frame()[1].decode())

    def _quiet(self, expected: str, channel: str) -> str:
        return "" if self._readers[channel].quiet() else "a message"

    def _closed(self, expected: str, channel: str) -> str:
        return "" if self._readers[channel].closed() else "open"

    def _stats(self, expected: str, channel: str = "") -> str:
        until = time.monotonic() + SETTLE_S
        while (seen := self._figures(channel)) != expected and time.monotonic() < until:
            time.sleep(0.02)
        return seen

    def _figures(self, channel: str) -> str:
        query = {"format": "json", "topic": self._topic, **({"channel": channel} if channel else {})}
        topics = self._web.get("/stats", params=query).json()["topics"]
        if not topics:
            return "no topic"
        told = [describe_figures(topics[0], TOPIC_FIGURES)]
        for row in topics[0]["channels"]:
            assert row["backend_depth"] <= row["depth"]
            told.append(f"{row['channel_name']}: {describe_figures(row, CHANNEL_FIGURES)}".strip())
        return "; ".join(told)


def describe_figures(row: dict[str, Any], figures: dict[str, str]) -> str:
    told = [f"{name} {row[key]}" for key, name in figures.items() if row[key]]
    return ", ".join(told + ["paused"] * row["paused"])


def find_differences(case: Case, tcp: str, http: str, topic: str) -> list[str]:
    """Run a case; return what is not as the table has it."""
    run = CaseRun(tcp, http, topic)
    differences = []
    try:
        for number, (step, expected) in enumerate(case.steps):
            try:
                seen = run.run(step, expected)
            except (TimeoutError, EOFError, struct.error) as error:
                seen = type(error).__name__
            if seen != expected:
                differences.append(f"step {number}, {step}: {seen!r} for {expected!r}")
                break
    finally:
        run.close()
    return differences
