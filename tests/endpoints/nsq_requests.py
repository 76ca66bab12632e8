"""Requests to nsqd and nsqlookupd over HTTP: what they are answered and what they do, as nsqd 1.3.0 has it.

Each expected value was recorded from the real servers; `tests/interop/test_nsqd_effects.py` runs the table on them.
A request is sent as bytes: clients would correct a part of them. ``T`` in it is a topic of its own, which is made as
``given`` says; an expected value is status and message, and after ``|`` the figures of the topic.
"""

from __future__ import annotations

import http.client
import json
import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import httpx

from tests.endpoints.nsq_effects import CHANNEL_FIGURES, SETTLE_S, TOPIC_FIGURES, describe_figures

MIB = 1 << 20


class RequestCase(NamedTuple):
    """A request; ``given`` is "" for no topic, "t" for one with a message, "c" for one with a channel that has it."""

    line: str
    expected: str
    body: bytes = b""
    given: str = ""
    chunked: bool = False


def frame(*messages: bytes, count: int | None = None) -> bytes:
    sized = b"".join(struct.pack(">I", len(message)) + message for message in messages)
    return struct.pack(">I", len(messages) if count is None else count) + sized


GONE = "no topic"
ONE = "depth 1, messages 1"
WITH_CHANNEL = "messages 1; c: depth 1, messages 1"
REFUSED = f"400 INVALID_REQUEST | {GONE}"
MISSING_TOPIC = f"400 MISSING_ARG_TOPIC | {GONE}"
INVALID_TOPIC = f"400 INVALID_TOPIC | {GONE}"
INVALID_DEFER = "400 INVALID_DEFER |"
MADE = "200 OK |"
DEFERRED = f"200 OK | {ONE}"
BAD_BODY = "413 BAD_BODY |"
BAD_MESSAGE = "413 BAD_MESSAGE |"

_QUERIES = (
    ("", MISSING_TOPIC),
    ("?", MISSING_TOPIC),
    ("?Topic=T", MISSING_TOPIC),
    ("?topic", INVALID_TOPIC),
    ("?topic=", INVALID_TOPIC),
    ("?topic=b@d", INVALID_TOPIC),
    ("?topic=T%20", INVALID_TOPIC),
    ("?topic=+T", INVALID_TOPIC),
    ("?topic=" + "a" * 65, INVALID_TOPIC),
    ("?topic=b@d&topic=T", INVALID_TOPIC),
    ("?topic=%zz", REFUSED),
    ("?topic=T&x=%zz", REFUSED),
    ("?topic=T&x=%", REFUSED),
    ("?topic=T;x=1", REFUSED),
    ("?x;topic=T", REFUSED),
    ("?topic=T", DEFERRED),
    ("?topic=T&&topic=b@d", DEFERRED),
    ("?top%69c=T", DEFERRED),
    ("?topic=T&defer", INVALID_DEFER),
    ("?topic=T&defer=-1", INVALID_DEFER),
    ("?topic=T&defer=3600001", INVALID_DEFER),
    ("?topic=T&defer=1e3", INVALID_DEFER),
    ("?topic=T&defer=1_000", INVALID_DEFER),
    ("?topic=T&defer=%2060000", INVALID_DEFER),
    ("?topic=T&defer=99999999999999999999", INVALID_DEFER),
    ("?topic=T&defer=x&defer=60000", INVALID_DEFER),
    ("?topic=T&defer=-0", DEFERRED),
    ("?topic=T&defer=%2B60000", DEFERRED),
    ("?topic=T&defer=0000060000", DEFERRED),
    ("?topic=T&defer=3600000", DEFERRED),
)
PUBLISHING = (
    *(RequestCase(f"POST /pub{query}", expected, b"hello") for query, expected in _QUERIES),
    RequestCase("POST /pub?topic=T", "400 MSG_EMPTY | no topic"),
    RequestCase("POST /pub?topic=%zz", "400 MSG_EMPTY | no topic"),
    RequestCase("POST /pub?topic=T", "400 MSG_EMPTY | no topic", chunked=True),
    RequestCase("POST /pub?topic=T", DEFERRED, b"x" * MIB),
    RequestCase("POST /pub", "413 MSG_TOO_BIG | no topic", b"x" * (MIB + 1)),
    RequestCase("POST /pub?topic=T", "413 MSG_TOO_BIG | no topic", b"x" * (MIB + 1), chunked=True),
    RequestCase("POST /pub?topic=T", "200 OK | messages 2; c: depth 2, messages 2", b"hello", "c"),
    RequestCase(
        "POST /pub?topic=T&defer=60000", "200 OK | messages 2; c: depth 1, deferred 1, messages 2", b"hello", "c"
    ),
    RequestCase("POST /mpub", MISSING_TOPIC, b"one"),
    RequestCase("POST /mpub?topic=", INVALID_TOPIC, b"one"),
    RequestCase("POST /mpub?topic=T&x=%zz", REFUSED, b"one"),
    *(
        RequestCase(f"POST /mpub?topic=T{query}", "200 OK | depth 3, messages 3", b"one\ntwo\n\nthree")
        for query in ("", "&binary=false", "&binary=0", "&binary=false&binary=true")
    ),
    *(
        RequestCase(f"POST /mpub?topic=T&binary{value}", "200 OK | depth 2, messages 2", frame(b"one", b"two"))
        for value in ("", "=", "=1", "=true", "=yes", "=FALSE")
    ),
    *(RequestCase(f"POST /mpub?topic=T&binary{value}", BAD_BODY, b"one\ntwo") for value in ("", "=", "=no", "=True")),
    RequestCase("POST /mpub?topic=T", MADE),
    RequestCase("POST /mpub?topic=T", MADE, b"\n\n\n"),
    RequestCase("POST /mpub?topic=T", MADE, b"\n\n\n", chunked=True),
    RequestCase("POST /mpub?topic=T", "200 OK | depth 2, messages 2", b"one\r\ntwo\r\n"),
    RequestCase("POST /mpub?topic=T", "413 MSG_TOO_BIG |", b"y\n" + b"x" * (MIB + 1)),
    RequestCase("POST /mpub?topic=T", "413 BODY_TOO_BIG | no topic", b"x\n" * (5 * MIB // 2 + 1)),
    RequestCase("POST /mpub?topic=T", "413 BODY_TOO_BIG |", b"\n" * (5 * MIB + 1), chunked=True),
    *(
        RequestCase("POST /mpub?topic=T&binary=true", BAD_BODY, body)
        for body in (b"", b"\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff\0\0\0\1a", b"\0\x10\0\0")
    ),
    *(
        RequestCase("POST /mpub?topic=T&binary=true", BAD_MESSAGE, body)
        for body in (
            b"\0\0\0\1",
            b"\0\0\0\1\0\0",
            b"\0\0\0\1\0\0\0\0",
            b"\0\0\0\1\xff\xff\xff\xff",
            frame(b"one", b""),
            frame(b"one", count=2),
            frame(b"x" * (MIB + 1)),
        )
    ),
    RequestCase("POST /mpub?topic=T&binary=true", DEFERRED, frame(b"one") + b"what follows is passed over"),
)

_NOT_FOUND = f"404 TOPIC_NOT_FOUND | {GONE}"
_PAUSED = f"messages 1, paused; c: {ONE}"
_UNCHANGED = f"| {WITH_CHANNEL}"


def _list_topic_requests() -> Iterator[RequestCase]:
    """Return requests of administrators of topics: three kinds, by what they say of a name that is no name."""
    for verb, invalid, missing, done in (
        ("create", INVALID_TOPIC, "200 |", f"200 {_UNCHANGED}"),
        ("empty", INVALID_TOPIC, _NOT_FOUND, f"200 {_UNCHANGED}"),
        ("delete", _NOT_FOUND, _NOT_FOUND, f"200 | {GONE}"),
        ("pause", _NOT_FOUND, _NOT_FOUND, f"200 | {_PAUSED}"),
        ("unpause", _NOT_FOUND, _NOT_FOUND, f"200 {_UNCHANGED}"),
    ):
        line = f"POST /topic/{verb}"
        yield RequestCase(line, MISSING_TOPIC)
        for name in ("", "=", "=b@d"):
            yield RequestCase(f"{line}?topic{name}", invalid)
        yield RequestCase(f"{line}?topic=T", missing)
        yield RequestCase(f"{line}?topic=T", done, given="c")
        yield RequestCase(f"{line}?topic=T&topic=b@d", done, b"a body that nobody reads", "c")
        for query in ("?topic=T&x=%zz", "?topic=T;"):
            yield RequestCase(line + query, f"400 INVALID_REQUEST {_UNCHANGED}", given="c")
        yield RequestCase(line, f"400 MISSING_ARG_TOPIC {_UNCHANGED}", b"topic=T", "c")
        for method in ("GET", "PUT", "DELETE"):
            yield RequestCase(
                f"{method} /topic/{verb}?topic=T", f"405 METHOD_NOT_ALLOWED OPTIONS, POST {_UNCHANGED}", given="c"
            )
        yield RequestCase(f"OPTIONS /topic/{verb}?topic=T", f"200 OPTIONS, POST {_UNCHANGED}", given="c")


def _list_channel_requests() -> Iterator[RequestCase]:
    """Return requests of administrators of channels."""
    for verb, missing, done in (
        ("create", "200 | messages 1; c: depth 1, messages 1; d:", f"200 {_UNCHANGED}"),
        ("delete", f"404 CHANNEL_NOT_FOUND {_UNCHANGED}", "200 | messages 1"),
        ("empty", f"404 CHANNEL_NOT_FOUND {_UNCHANGED}", "200 | messages 1; c: messages 1"),
        ("pause", f"404 CHANNEL_NOT_FOUND {_UNCHANGED}", "200 | messages 1; c: depth 1, messages 1, paused"),
        ("unpause", f"404 CHANNEL_NOT_FOUND {_UNCHANGED}", f"200 {_UNCHANGED}"),
    ):
        line = f"POST /channel/{verb}"
        yield RequestCase(line, MISSING_TOPIC)
        yield RequestCase(f"{line}?channel=c", MISSING_TOPIC)
        yield RequestCase(f"{line}?topic=&channel=", f"400 INVALID_ARG_TOPIC | {GONE}")
        yield RequestCase(f"{line}?topic=b@d&channel=b@d", f"400 INVALID_ARG_TOPIC | {GONE}")
        yield RequestCase(f"{line}?topic=T", f"400 MISSING_ARG_CHANNEL | {GONE}")
        for name in ("", "b@d", "c" * 65):
            yield RequestCase(f"{line}?topic=T&channel={name}", f"400 INVALID_ARG_CHANNEL | {GONE}")
        yield RequestCase(f"{line}?topic=T&channel=c", _NOT_FOUND)
        yield RequestCase(f"{line}?topic=T&channel=c", done, given="c")
        yield RequestCase(f"{line}?topic=T&channel=d", missing, given="c")
        yield RequestCase(f"{line}?topic=T&channel=c&channel=b@d", done, given="c")
        for query in ("&x=%zz", ";"):
            yield RequestCase(f"{line}?topic=T&channel=c{query}", f"400 INVALID_REQUEST {_UNCHANGED}", given="c")
        yield RequestCase(
            f"GET /channel/{verb}?topic=T&channel=c", f"405 METHOD_NOT_ALLOWED OPTIONS, POST {_UNCHANGED}", given="c"
        )


TOPICS, CHANNELS = tuple(_list_topic_requests()), tuple(_list_channel_requests())

OTHERS = (
    RequestCase("GET /ping", "200 OK"),
    RequestCase("GET /ping?x=%zz", "200 OK"),
    RequestCase("POST /ping", "405 METHOD_NOT_ALLOWED GET, OPTIONS"),
    RequestCase("OPTIONS /ping", "200 GET, OPTIONS"),
    RequestCase("GET /nope", "404 NOT_FOUND"),
    RequestCase("OPTIONS /nope", "404 NOT_FOUND"),
    RequestCase("GET /topic", "404 NOT_FOUND"),
    RequestCase("GET /config/snappy", "200 true"),
    RequestCase("GET /config/nope", "400 INVALID_OPTION"),
    RequestCase("GET /config/verbose", "400 INVALID_OPTION"),
    RequestCase("GET /config/a/b", "404 NOT_FOUND"),
    RequestCase("POST /config/snappy", "405 METHOD_NOT_ALLOWED GET, OPTIONS, PUT"),
    RequestCase("PUT /config/nope", "400 INVALID_OPTION", b"x"),
    RequestCase("GET /stats?x=%zz", "400 INVALID_REQUEST"),
    RequestCase("GET /stats?format=json;topic=T", "400 INVALID_REQUEST"),
    RequestCase("DELETE /stats", "405 METHOD_NOT_ALLOWED GET, OPTIONS"),
    RequestCase(
        "GET /stats?topic=T&include_mem=false",
        "200 Health: OK\n\nTopics:\n   [T              ] depth: 0     be-depth: N     msgs: 1        e2e%: \n"
        "      [c                        ] depth: 1     be-depth: N     inflt: 0    def: 0    re-q: 0     "
        "timeout: 0     msgs: 1        e2e%: \n\nProducers: None\n",
        given="c",
    ),
    RequestCase(
        "GET /stats?topic=none&include_mem=false", "200 Health: OK\n\nTopics: None\n\nProducers: None\n", given="c"
    ),
)
"""Requests to nsqd whose effect is nothing. Of the text of ``/stats`` from the fourth line on: times are before it."""

_NOWHERE = '| 404 {"channels":[]}'
_THERE = '| 200 {"channels":[]}'
_WITH_CHANNEL = '| 200 {"channels":["c"]}'
LOOKUP = (
    RequestCase("GET /ping?x=%zz", "200 OK"),
    RequestCase("POST /topics", "405 METHOD_NOT_ALLOWED GET, OPTIONS"),
    RequestCase("OPTIONS /lookup", "200 GET, OPTIONS"),
    RequestCase("GET /nope", "404 NOT_FOUND"),
    RequestCase("GET /lookup", "400 MISSING_ARG_TOPIC"),
    RequestCase("GET /lookup?topic=", "404 TOPIC_NOT_FOUND"),
    RequestCase("GET /lookup?topic=b@d", "404 TOPIC_NOT_FOUND"),
    RequestCase("GET /lookup?topic=T&x=%zz", f"400 INVALID_REQUEST {_WITH_CHANNEL}", given="c"),
    RequestCase("GET /lookup?topic=T;", f"400 INVALID_REQUEST {_WITH_CHANNEL}", given="c"),
    RequestCase("GET /channels", "400 MISSING_ARG_TOPIC"),
    RequestCase("GET /channels?topic=", '200 {"channels":[]}'),
    RequestCase("GET /channels?topic=b@d", '200 {"channels":[]}'),
    RequestCase("GET /channels?topic=T&topic=none", f'200 {{"channels":["c"]}} {_WITH_CHANNEL}', given="c"),
    RequestCase("GET /channels?topic=T&x=%zz", f"400 INVALID_REQUEST {_WITH_CHANNEL}", given="c"),
    RequestCase("POST /topic/create", "400 MISSING_ARG_TOPIC"),
    RequestCase("POST /topic/create?topic=", "400 INVALID_ARG_TOPIC"),
    RequestCase("POST /topic/create?topic=b@d&topic=T", f"400 INVALID_ARG_TOPIC {_NOWHERE}"),
    RequestCase("POST /topic/create?topic=T", f"200 {_THERE}"),
    RequestCase("POST /topic/create?topic=T&x=%zz", f"400 INVALID_REQUEST {_NOWHERE}"),
    RequestCase("POST /topic/delete", "400 MISSING_ARG_TOPIC"),
    RequestCase("POST /topic/delete?topic=", "200"),
    RequestCase("POST /topic/delete?topic=b@d", "200"),
    RequestCase("POST /topic/delete?topic=T", f"200 {_NOWHERE}"),
    RequestCase("POST /topic/delete?topic=T", f"200 {_NOWHERE}", given="c"),
    RequestCase("POST /topic/delete?topic=T&x=%zz", f"400 INVALID_REQUEST {_WITH_CHANNEL}", given="c"),
    RequestCase("POST /topic/delete?topic=T;", f"400 INVALID_REQUEST {_WITH_CHANNEL}", given="c"),
    RequestCase("POST /channel/create?channel=c", "400 MISSING_ARG_TOPIC"),
    RequestCase("POST /channel/create?topic=T", f"400 MISSING_ARG_CHANNEL {_NOWHERE}"),
    RequestCase("POST /channel/create?topic=T&channel=", f"400 INVALID_ARG_CHANNEL {_NOWHERE}"),
    RequestCase("POST /channel/create?topic=T&channel=b@d", f"400 INVALID_ARG_CHANNEL {_NOWHERE}"),
    RequestCase("POST /channel/create?topic=b@d&channel=c", "400 INVALID_ARG_TOPIC"),
    RequestCase("POST /channel/create?topic=T&channel=c", f"200 {_WITH_CHANNEL}"),
    RequestCase("POST /channel/delete?topic=T", f"400 MISSING_ARG_CHANNEL {_NOWHERE}"),
    RequestCase("POST /channel/delete?topic=T&channel=c", f"404 CHANNEL_NOT_FOUND {_NOWHERE}"),
    RequestCase("POST /channel/delete?topic=T&channel=d", f"404 CHANNEL_NOT_FOUND {_WITH_CHANNEL}", given="c"),
    RequestCase("POST /channel/delete?topic=T&channel=c", f"200 {_THERE}", given="c"),
    RequestCase("POST /channel/delete?topic=T&channel=c;", f"400 INVALID_REQUEST {_WITH_CHANNEL}", given="c"),
    RequestCase("POST /topic/tombstone", "400 MISSING_ARG_TOPIC"),
    RequestCase("POST /topic/tombstone?topic=T", f"400 MISSING_ARG_NODE {_NOWHERE}"),
    RequestCase("POST /topic/tombstone?topic=&node=", "200"),
    RequestCase("POST /topic/tombstone?topic=T&node=none:1", f"200 {_THERE}", given="t"),
    RequestCase("POST /topic/tombstone?topic=T&x=%zz", f"400 INVALID_REQUEST {_THERE}", given="t"),
)
"""Requests to nsqlookupd; figures are the status of ``/lookup`` and the document of ``/channels``."""

FRAGMENTS = tuple(
    RequestCase(f"POST /{path}?topic=T#ephemeral", f"400 {_UNCHANGED}", given="c")
    for path in ("topic/create", "topic/delete", "topic/empty", "topic/pause", "topic/unpause")
)
"""A ``#`` that is not encoded: nsqd takes it for a part of the name, and nothing happens to the topic before it."""


class RequestRun:
    """The table against an nsqd and an nsqlookupd."""

    def __init__(self, nsqd: str, lookupd: str, prefix: str) -> None:
        self._nsqd, self._lookupd, self._prefix = nsqd, lookupd, prefix
        self._count = 0

    def find_differences(self, cases: tuple[RequestCase, ...], *, at_lookup: bool = False) -> list[str]:
        """Run the cases; return what is not as the table has it."""
        differences = []
        with (
            httpx.Client(base_url=f"http://{self._nsqd}") as nsqd,
            httpx.Client(base_url=f"http://{self._lookupd}") as lookupd,
        ):
            for case in cases:
                seen = self._run(case, nsqd, lookupd, at_lookup)
                if seen != case.expected:
                    differences.append(f"{case.line} {case.body[:20]!r} given {case.given!r}: {seen}")
        return differences

    def _run(self, case: RequestCase, nsqd: httpx.Client, lookupd: httpx.Client, at_lookup: bool) -> str:
        self._count += 1
        # 15 characters, as wide as the column of /stats
        topic = f"{self._prefix}-{self._count}".ljust(15, "-")
        if case.given:
            nsqd.post(f"/topic/create?topic={topic}")
            if case.given == "c":
                nsqd.post(f"/channel/create?topic={topic}&channel=c")
            nsqd.post(f"/pub?topic={topic}", content=b"first")
            given = ONE if case.given == "t" else WITH_CHANNEL
            _wait(lambda: _read_figures(nsqd, topic), given)
            if at_lookup:
                _wait(lambda: _read_lookup(lookupd, topic), (_THERE if case.given == "t" else _WITH_CHANNEL)[2:])
        line = re.sub(r"(?<![A-Za-z])T(?![A-Za-z])", topic, case.line)
        status, body, allow = _exchange(self._lookupd if at_lookup else self._nsqd, line, case.body, case.chunked)
        seen = " ".join(filter(None, (str(status), _describe(body, topic), allow)))
        _, bar, figures = case.expected.partition(" |")
        if not bar:
            return seen
        read = _read_lookup if at_lookup else _read_figures
        return f"{seen} |{_wait(lambda: _space(read(lookupd if at_lookup else nsqd, topic)), figures)}"


def _exchange(address: str, line: str, body: bytes, chunked: bool) -> tuple[int, bytes, str]:
    """Send a request; return the status, the body and the methods of its response."""
    connection = http.client.HTTPConnection(address, timeout=SETTLE_S)
    method, target = line.split(" ")
    try:
        connection.putrequest(method, target)
        if chunked:
            connection.putheader("Transfer-Encoding", "chunked")
        elif body or method in ("POST", "PUT"):
            connection.putheader("Content-Length", str(len(body)))
        # a body that is too large is answered before it is read
        with suppress(ConnectionError):
            connection.endheaders(body or None, encode_chunked=chunked)
            if chunked and not body:
                connection.send(b"0\r\n\r\n")
        response = connection.getresponse()
        return response.status, response.read(), response.headers.get("allow", "")
    finally:
        connection.close()


def _space(text: str) -> str:
    return f" {text}" if text else ""


def _describe(body: bytes, topic: str) -> str:
    """Return the message of an error, else the body; of a page of figures what is the same at each time."""
    text = body.decode()
    if text.startswith('{"message"'):
        return str(json.loads(text)["message"])
    if text.startswith("nsqd v"):
        # nsqd counts in be-depth what is on disk alone
        return re.sub(r"be-depth: \d", "be-depth: N", text.split("\n", 4)[4]).replace(topic, "T".ljust(len(topic)))
    return "" if text.startswith("the URL") else text


def _read_figures(nsqd: httpx.Client, topic: str) -> str:
    topics = nsqd.get(f"/stats?format=json&topic={topic}&include_mem=false").json()["topics"]
    if not topics:
        return GONE
    channels = topics[0]["channels"]
    rows = [f"{one['channel_name']}: {describe_figures(one, CHANNEL_FIGURES)}".strip() for one in channels]
    return "; ".join([describe_figures(topics[0], TOPIC_FIGURES), *rows])


def _read_lookup(lookupd: httpx.Client, topic: str) -> str:
    status = lookupd.get(f"/lookup?topic={topic}").status_code
    return f"{status} {lookupd.get(f'/channels?topic={topic}').text}"


def _wait(read: Callable[[], str], expected: str) -> str:
    """Return what is read as soon as it is as expected: nsqd hands messages on, and registers, beside its requests."""
    until = time.monotonic() + SETTLE_S
    while (seen := read()) != expected and time.monotonic() < until:
        time.sleep(0.01)
    return seen
