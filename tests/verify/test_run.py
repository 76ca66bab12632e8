"""Topics that are compared over every protocol that reads by offset, and what is found in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lading import Headers, Producer, i16, i32, testing
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings
from lading.model.checked_document import pack_document
from lading.model.errors import LocalError, SettingError
from lading.transports.open import open_transport
from lading.verify.run import VerifyProgress, VerifyReport, run_verification
from lading.verify.settings import VerifySettings
from lading.verify.state import VerifyState

ENDPOINTS = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp"}
COUNT = 500


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker(durability="os") as running:
        for topic in ("compared", "copy-kafka", "copy-iggy"):
            create(running.url, topic, 2)
        send(running.url, "compared", range(COUNT))
        for name in ("kafka", "iggy"):
            target = f"{name}://{running.endpoints[ENDPOINTS[name]]}"
            run_mirror(MirrorSettings(
                running.url, target, ["compared"], renames={"compared": f"copy-{name}"},
                state=running.data_dir.with_name(f"{running.data_dir.name}-{name}"),
            ))  # fmt: skip
        yield running


def create(url: str, topic: str, partitions: int = 1) -> None:
    transport = open_transport(url)
    transport.create_topic(topic, partitions)
    transport.close()


def send(url: str, topic: str, numbers: Sequence[int], **changed: Any) -> None:
    with Producer(url) as producer:
        for number in numbers:
            headers = Headers([("n", i32(number)), ("a", i16(1)), ("a", None), ("e", "")])
            message: dict[str, Any] = {
                "key": b"k%d" % (number % 7),
                "headers": headers,
                "payload": b"p%d" % number,
            } | changed
            producer.send(topic, message["payload"], key=message["key"], headers=message["headers"])


def compare(a: str, b: str, **named: Any) -> VerifyReport:
    named = {"wait_ms": 0, "range_messages": 64} | named
    options = {name: named.pop(name) for name in ("is_stopped", "on_progress") if name in named}
    return run_verification(VerifySettings(a, b, **named), **options)


@pytest.mark.parametrize("target", ["kafka", "iggy"])
def test_a_mirrored_topic_is_equal(broker: testing.BrokerProcess, target: str) -> None:
    seen: list[VerifyProgress] = []
    for source in (f"{broker.url}/compared", str(broker.data_dir / "compared")):
        copy = f"{target}://{broker.endpoints[ENDPOINTS[target]]}/copy-{target}"
        report = compare(source, copy, on_progress=seen.append)
        assert report.is_equal and report.messages == COUNT and len(report.partitions) == 2
        assert seen[-1] == VerifyProgress(COUNT, 0)
    digests = {number: one.digest for number, one in report.partitions.items()}
    # in the other direction, and with other sizes of fetches: the same digests
    again = compare(copy, f"{broker.url}/compared")
    assert {number: one.digest for number, one in again.partitions.items()} == digests


@pytest.fixture
def url(broker: testing.BrokerProcess) -> str:
    return broker.url


@pytest.mark.parametrize(
    ("name", "changed", "facts"),
    [
        ("payload", {"payload": b"other"}, ["payload"]), ("key", {"key": None}, ["key"]),
        ("kind", {"headers": Headers([("n", i16(100)), ("a", i16(1)), ("a", None), ("e", "")])}, ["headers", "kinds"]),
        ("null", {"headers": Headers([("n", i32(100)), ("a", i16(1)), ("a", ""), ("e", "")])}, ["headers", "kinds"]),
        ("order", {"headers": Headers([("a", i16(1)), ("n", i32(100)), ("a", None), ("e", "")])}, ["headers", "kinds"]),
    ],
)  # fmt: skip
def test_the_first_message_that_differs_is_named(url: str, name: str, changed: Any, facts: list[str]) -> None:
    a, b = f"one-{name}", f"two-{name}"
    for topic in (a, b):
        create(url, topic)
    send(url, a, range(200))
    send(url, b, range(100))
    send(url, b, [100], **changed)
    send(url, b, range(101, 200))
    report = compare(f"{url}/{a}", f"{url}/{b}")
    [found] = report.differences
    assert not report.is_equal and report.messages == found.number == 100
    assert (found.facts, found.meaning) == (facts, "the messages differ")
    assert found.a is not None and found.b is not None and (found.a.offset, found.b.offset) == (100, 100)
    assert found.a.payload == b"p100" and found.a.headers["n"] == 100
    document = report.as_document()
    assert document["differences"][0]["a"]["payload"] == "p100" and document["equal"] is False
    rest = [fact for fact in ("headers", "kinds", "key", "payload") if fact not in facts]
    assert compare(f"{url}/{a}", f"{url}/{b}", facts=rest).is_equal


def test_a_message_that_lacks_or_is_too_many_is_told_from_a_changed_one(url: str) -> None:
    for topic in ("whole", "lacks"):
        create(url, topic)
    send(url, "whole", range(200))
    send(url, "lacks", [number for number in range(200) if number != 130])
    [found] = compare(f"{url}/whole", f"{url}/lacks").differences
    assert (found.number, found.meaning) == (130, "b lacks this message of a")
    [found] = compare(f"{url}/lacks", f"{url}/whole").differences
    assert (found.number, found.meaning) == (130, "b has a message that a has not")
    assert found.b is not None and found.b.payload == b"p130"


def test_a_topic_that_ends_early_is_named(url: str) -> None:
    for topic in ("long", "short"):
        create(url, topic)
    send(url, "long", range(70))
    send(url, "short", range(64))
    [found] = compare(f"{url}/long", f"{url}/short").differences
    assert (found.number, found.b, found.meaning) == (64, None, "b has no more messages; a goes on to offset 69")
    [found] = compare(f"{url}/short", f"{url}/long").differences
    assert (found.number, found.a, found.meaning) == (64, None, "a has no more messages; b goes on to offset 69")


def test_what_a_running_mirror_has_not_sent_yet_is_waited_for(url: str) -> None:
    for topic in ("source", "late"):
        create(url, topic)
    send(url, "source", range(150))
    send(url, "late", range(90))
    read = threading.Event()

    def go_on() -> None:
        read.wait(30)
        send(url, "late", range(90, 150))
        # and what the source got after the comparison began
        send(url, "late", range(150, 155))

    sender = threading.Thread(target=go_on)
    sender.start()
    report = compare(f"{url}/source", f"{url}/late", wait_ms=30_000, on_progress=lambda now: read.set())
    sender.join()
    assert report.is_equal and report.messages == 150


def test_a_run_goes_on_where_the_last_one_ended(url: str, tmp_path: Path) -> None:
    for topic in ("first", "second"):
        create(url, topic)
        send(url, topic, range(200))
    state = tmp_path / "state"
    report = compare(f"{url}/first", f"{url}/second", state=state)
    assert report.is_equal and report.resumed_messages == 0
    for topic in ("first", "second"):
        send(url, topic, range(200, 300))
    again = compare(f"{url}/first", f"{url}/second", state=state)
    # three ranges of 64 were complete
    assert again.is_equal and (again.resumed_messages, again.messages) == (192, 300)
    assert again.partitions[0].digest == compare(f"{url}/first", f"{url}/second").partitions[0].digest
    with pytest.raises(LocalError, match="is the state of another comparison"):
        compare(f"{url}/first", f"{url}/second", state=state, facts=["key"])
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.write_bytes(data)
    with pytest.raises(LocalError, match="is damaged"):
        compare(f"{url}/first", f"{url}/second", state=state)


def test_a_stopped_run_keeps_what_it_has(url: str, tmp_path: Path) -> None:
    for topic in ("stopped", "stopped-too"):
        create(url, topic)
        send(url, topic, range(200))
    seen: list[VerifyProgress] = []
    report = compare(
        f"{url}/stopped", f"{url}/stopped-too", state=tmp_path / "state", on_progress=seen.append,
        is_stopped=lambda: any(one.messages for one in seen),
    )  # fmt: skip
    assert report.is_stopped and not report.is_equal and report.messages == 64
    again = compare(f"{url}/stopped", f"{url}/stopped-too", state=tmp_path / "state")
    assert again.is_equal and again.resumed_messages == 64


def test_what_cannot_be_compared_is_refused_in_a_sentence(url: str, broker: testing.BrokerProcess) -> None:
    create(url, "three", 3)
    with pytest.raises(LocalError, match=r"has 2 partitions and .* has 3"):
        compare(f"{url}/compared", f"{url}/three")
    with pytest.raises(SettingError, match="a queue cannot be read twice"):
        compare(f"{url}/compared", f"nsq://{broker.endpoints['nsqd_tcp']}/compared")
    with pytest.raises(SettingError, match="both topics are the same"):
        compare(f"{url}/compared", url)
    with pytest.raises(SettingError, match="names no topic"):
        compare(url, f"{url}/compared")
    with pytest.raises(LocalError, match="nowhere"):
        compare(f"{url}/nowhere", f"{url}/compared")
    with pytest.raises(SettingError, match="nothing to compare"):
        compare(f"{url}/compared", f"{url}/three", facts=())


def test_an_empty_topic_equals_an_empty_one(url: str) -> None:
    for topic in ("void", "void-too"):
        create(url, topic)
    began = time.monotonic()
    report = compare(f"{url}/void", f"{url}/void-too", wait_ms=30_000)
    assert report.is_equal and report.messages == 0
    assert time.monotonic() - began < 20, "nothing is waited for"


def test_a_state_file_that_is_another_document_is_refused(tmp_path: Path) -> None:
    """Files of a data directory and of tables have the same checksum."""
    path = tmp_path / "topic.json"
    path.write_bytes(pack_document({"version": 1, "name": "flights"}))
    with pytest.raises(LocalError, match="is another document of Lading, no state of lading verify"):
        VerifyState(path, {"a": "a", "b": "b"})
