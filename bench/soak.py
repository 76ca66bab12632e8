"""Mixed load with churn for half an hour: do memory, open files and threads of the broker stay flat, and is all there?

A client of each protocol after the other makes a topic, sends, reads back what it sent in a group, leaves and deletes
topic and group; others go away in the middle. Retention deletes from a topic that all write to. The first third warms
up; what grew from the second third to the last is what a leak would be.
"""

from __future__ import annotations

import itertools
import socket
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from lading import Admin, Consumer, Producer, testing
from lading.transports.lading.transport import LadingTransport

QUESTION = (
    "soak: the broker's memory, files and threads under mixed load with churn (last row: growth since the second third)"
)
MINUTES = 30.0
MESSAGES = 400
SAMPLE_S = 2.0
SHARED = "shared"
SCHEMES = {"lading": "admin", "iggy": "iggy_tcp", "kafka": "kafka", "nsq": "nsqd_tcp"}
KEPT_GROUPS = {"lading": "native", "kafka": "kafka"}
"""The protocol of the groups that outlive their topics: they are there until somebody deletes them."""
RETENTION = {
    "retention.size_bytes": 8 << 20,
    "retention.check_ms": 1_000,
    "retention.mark_ms": 1,
    "log.segment_bytes": 1 << 20,
}


class Sample(NamedTuple):
    """What the broker's process has at a time, and what was done until then.

    Memory of its own, where a leak would be, and pages of files that it maps: code and the log, which the system takes
    back when it needs them.
    """

    at_s: float
    private_bytes: int
    mapped_bytes: int
    files: int
    threads: int
    done: Counter[str]


def run(quick: bool, minutes: float | None = None) -> list[dict[str, Any]]:
    """One row for each tenth of the time, and one with what grew."""
    seconds = 60 * (minutes if minutes is not None else 0.5 if quick else MINUTES)
    done: Counter[str] = Counter()
    failures: list[BaseException] = []
    stop = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="lading-bench-") as directory,
        testing.broker(directory, settings=RETENTION) as broker,
    ):
        urls = {scheme: f"{scheme}://{broker.endpoints[name]}" for scheme, name in SCHEMES.items()}
        work = [
            *(_Cycle(scheme, url, broker.url, done) for scheme, url in urls.items()),
            _Quitter(broker, done),
            _Shared(urls, done),
        ]
        threads = [threading.Thread(target=_repeat, args=(each, stop, failures)) for each in work]
        began_s = time.monotonic()
        samples = []
        for thread in threads:
            thread.start()
        try:
            while time.monotonic() - began_s < seconds and not failures:
                stop.wait(SAMPLE_S)
                samples.append(_sample(broker.pid, time.monotonic() - began_s, done))
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        if failures:
            raise failures[0]
        left = {topic.name for topic in _topics(broker.url)} - {SHARED}
    if left:
        raise RuntimeError(f"topics that were deleted are there: {sorted(left)[:5]}")
    return _rows(samples, seconds)


def _topics(url: str) -> list[Any]:
    with Admin(url) as admin:
        return list(admin.list_topics())


def _repeat(work: Callable[[], None], stop: threading.Event, failures: list[BaseException]) -> None:
    try:
        while not stop.is_set():
            work()
    except BaseException as error:
        failures.append(error)
        stop.set()


class _Cycle:
    """A topic of its own, from creation to deletion, over one protocol; each message has to come back once."""

    def __init__(self, scheme: str, url: str, admin_url: str, done: Counter[str]) -> None:
        self._scheme, self._url, self._admin_url, self._done = scheme, url, admin_url, done
        self._numbers = itertools.count()

    def __call__(self) -> None:
        number = next(self._numbers)
        topic = f"soak-{self._scheme}-{number}"
        sent = {f"{number}-{at}".encode() for at in range(MESSAGES)}
        with Producer(self._url) as producer:
            for at, payload in enumerate(sorted(sent)):
                producer.send(topic, payload, headers={"carrier": "UA", "number": at})
        options: dict[str, Any] = {"channel": "soak"} if self._scheme == "nsq" else {"group": f"soak-{number}"}
        got: Counter[bytes] = Counter()
        with Consumer(self._url, topic, **options) as consumer:
            deadline_s = time.monotonic() + 60
            while sum(got.values()) < MESSAGES and time.monotonic() < deadline_s:
                got.update(message.payload or b"" for message in consumer.poll(timeout_s=1))
            if self._scheme != "nsq":
                consumer.commit()
        if set(got) != sent or max(got.values()) > 1:
            raise RuntimeError(
                f"{topic}: {len(sent - set(got))} messages are missing, {got.total() - len(got)} doubled"
            )
        with Admin(self._admin_url) as admin:
            admin.delete_topic(topic)
        if self._scheme in KEPT_GROUPS:
            with closing(LadingTransport(self._admin_url)) as transport:
                transport.delete_group(KEPT_GROUPS[self._scheme], options["group"])
        self._done.update({"messages": MESSAGES, "connections": 3, "topics": 1, "groups": 1})


class _Quitter:
    """Connections that go away in the middle of a request, or send what is none."""

    def __init__(self, broker: testing.BrokerProcess, done: Counter[str]) -> None:
        addresses = [broker.endpoints[name] for name in ("iggy_tcp", "kafka", "nsqd_tcp", "nsqd_http", "admin")]
        self._addresses = itertools.cycle(addresses)
        self._beginnings = itertools.cycle((b"", b"  V2PUB soa", b"\0\0\0\x20\0\0", b"GET /stats HTT", bytes(64)))
        self._done = done

    def __call__(self) -> None:
        host, _, port = next(self._addresses).partition(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(next(self._beginnings))
        self._done.update({"connections": 1})
        time.sleep(0.02)


class _Shared:
    """A topic that stays, written to over every protocol, from which retention deletes."""

    def __init__(self, urls: dict[str, str], done: Counter[str]) -> None:
        self._urls = itertools.cycle(urls.values())
        self._done = done

    def __call__(self) -> None:
        with Producer(next(self._urls)) as producer:
            for _ in range(MESSAGES):
                producer.send(SHARED, bytes(1_000), headers={"carrier": "UA"})
        self._done.update({"messages": MESSAGES, "connections": 1})


def _sample(pid: int, at_s: float, done: Counter[str]) -> Sample:
    process = Path("/proc", str(pid))
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
    files = len(list((process / "fd").iterdir()))
    private, mapped = (int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))
    return Sample(at_s, private, mapped, files, int(fields["Threads"]), done.copy())


def _rows(samples: list[Sample], seconds: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for tenth in range(10):
        part = [one for one in samples if tenth <= one.at_s / seconds * 10 < tenth + 1] or samples[-1:]
        rows.append({"minutes": round(part[-1].at_s / 60, 1), **_medians(part), **part[-1].done})
    second, last = ([one for one in samples if int(one.at_s / seconds * 3) == third] for third in (1, 2))
    before, after = _medians(second or samples), _medians(last or samples)
    rows.append({"minutes": "growth", **{key: round(after[key] - before[key], 1) for key in after}})
    return rows


def _medians(samples: list[Sample]) -> dict[str, float]:
    return {
        "private MB": round(statistics.median(one.private_bytes for one in samples) / 1e6, 1),
        "mapped MB": round(statistics.median(one.mapped_bytes for one in samples) / 1e6, 1),
        "files": statistics.median(one.files for one in samples),
        "threads": statistics.median(one.threads for one in samples),
    }
