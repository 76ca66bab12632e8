"""The command line towards Iggy of every release: messages sent, polled and mirrored from one release to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading import Headers, Producer, i16, i64, read_arrow, testing
from lading.transports.open import open_transport
from tests.cli.conftest import Run, documents
from tests.transports.test_iggy_listeners import RELEASES, SENT_US, listener_of, listeners, url_of

FACTS = "partition, offset, id, timestamp, origin_timestamp, state, key, headers, payload"
SOURCE = "crates"
ID = bytes(range(16))
MESSAGES, PARTITIONS = 12, 2
NEXT = dict(zip(RELEASES, RELEASES[1:] + RELEASES[:1], strict=True))
"""Each release is a target once; the newest is followed by the oldest."""
GIVEN = ("id", "origin_timestamp")
"""A message without these is given them, as by every client of a release that has the field."""


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    """With a listener for each release, and messages with every fact that a release may not have a field for."""
    with testing.broker(settings=listeners()) as running:
        newest = open_transport(running.url)
        newest.create_topic(SOURCE, PARTITIONS)
        newest.close()
        with Producer(running.url) as producer:
            for number in range(MESSAGES):
                headers = Headers([("a", i16(number)), ("a", "again"), ("n", None), ("e", ""), ("b", b"\xff")])
                payload = {3: None, 4: b""}.get(number, b"%d" % number)
                producer.send(SOURCE, payload, headers=headers, key=b"k%d" % number, partition=number % PARTITIONS)
        with Producer(url_of(running, "0.10")) as producer:
            times: Any = pa.array([SENT_US, SENT_US + 1]).cast(pa.timestamp("us", tz="UTC"))
            ids = pa.array([ID, None], pa.binary(16))
            plain = {"payload": pa.array([b"x", b"y"], pa.binary()), "id": ids, "origin_timestamp": times}
            producer.send_batch(SOURCE, pa.RecordBatch.from_pydict(plain), partition=1)
        yield running


@pytest.fixture(autouse=True)
def state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def rows(url: str, topic: str) -> list[Any]:
    """The messages as a reader through ``url`` gets them, by place."""
    found: list[Any] = read_arrow(url, topic, FACTS).to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.turns(3)
@pytest.mark.parametrize("release", RELEASES)
def test_messages_are_sent_and_polled(lading: Run, broker: testing.BrokerProcess, release: str | None) -> None:
    url, topic = url_of(broker, release), f"spoken-{listener_of(release or 'any')}"
    headers = ("-H", "carrier=UA", "-H", "delay:int64=12", "-H", "carrier=again", "-H", "via")
    assert f"sent 1 message to {topic}" in lading("message", "send", topic, "body", *headers, "--server", url).stderr
    (here,) = documents(lading("message", "poll", topic, "--from", url, "-o", "json"))
    (there,) = documents(lading("message", "poll", topic, "-o", "json"))
    assert (here["payload"], here["offset"], here["state"]) == ("body", 0, "available")
    with Producer(broker.url) as producer:
        named = Headers([("carrier", "UA"), ("delay", i64(12)), ("carrier", "again"), ("via", None)])
        producer.send(f"{topic}-wanted", b"body", headers=named)
    (wanted,) = documents(lading("message", "poll", f"{topic}-wanted", "-o", "json"))
    assert here["headers"] == there["headers"] == wanted["headers"]


@pytest.mark.turns(3)
@pytest.mark.parametrize("old", RELEASES)
def test_a_mirror_from_one_release_to_another(
    lading: Run, broker: testing.BrokerProcess, old: str | None, full: bool
) -> None:
    source = url_of(broker, old)
    were = rows(source, SOURCE)
    assert ID in [row["id"] for row in were] and len(were) == MESSAGES + 2
    for new in (release for release in RELEASES if release != old) if full else (NEXT[old],):
        target, name = url_of(broker, new), f"from-{listener_of(old or 'any')}-to-{listener_of(new or 'any')}"
        done = lading("mirror", source, target, "--topic", SOURCE, "--rename", f"{SOURCE}={name}")
        assert f"{SOURCE}: {len(were)} messages, {PARTITIONS} partitions" in done.stderr
        for was, is_ in zip(were, rows(target, name), strict=True):
            assert is_ == was | {fact: is_[fact] for fact in GIVEN if was[fact] is None}
        # nor has the release that it was read by lost any of it
        facts = ("key", "headers", "payload", "timestamp")
        kept = [[[row[fact] for fact in facts] for row in rows(broker.url, topic)] for topic in (SOURCE, name)]
        assert kept[0] == kept[1]
