"""Changes of what exists, by clients of the classic releases: over TCP by hand-written requests in the
layouts of docs/reference/protocols/iggy.md#releases, and over HTTP."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import count

import httpx
import pytest

import lading
from lading import testing
from lading.model.errors import LadingError
from lading.testing import BrokerProcess
from tests.endpoints.frames import Frames, message, to_partition
from tests.endpoints.test_iggy_releases import (
    CREATE_STREAM,
    CREATE_TOPIC,
    GET_OFFSET,
    GET_TOPIC,
    LOGIN,
    NEVER,
    SEND,
    STORE_OFFSET,
    login,
    named,
    short,
)

DELETE_OFFSET, UPDATE_STREAM, PURGE_STREAM, UPDATE_TOPIC, PURGE_TOPIC, DELETE_SEGMENTS = 122, 204, 205, 304, 305, 503
HOUR_US = 3_600_000_000
_names = (f"upkeep{number}" for number in count(1))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """A broker whose segments are as small as they can be."""
    with testing.broker(settings={"log.segment_bytes": 65_536}) as running:
        yield running


@pytest.fixture
def made(broker: BrokerProcess, connect: Callable[[], Frames]) -> tuple[Frames, str]:
    """A client of 0.6 and the name of its stream, with a topic of one partition that has three messages."""
    frames, name = connect(), next(_names)
    assert frames.ask(LOGIN, login("0.6.202"))[0] == 0
    assert frames.ask(CREATE_STREAM, struct.pack("<I", 0) + short(name))[0] == 0
    asked = named(name) + struct.pack("<IIBQQB", 0, 1, 1, NEVER, 0, 0) + short("topic")
    assert frames.ask(CREATE_TOPIC, asked)[0] == 0
    for payload in (b"a", b"b", b"c"):
        assert frames.ask(SEND, named(name) + named("topic") + to_partition(1) + message(payload))[0] == 0
    return frames, name


def log_in(connect: Callable[[], Frames], version: str | None) -> Frames:
    frames = connect()
    assert frames.ask(LOGIN, login(version))[0] == 0
    return frames


def payloads(broker: BrokerProcess, name: str) -> list[bytes | None]:
    return [one.payload for one in lading.Consumer(broker.url, f"{name}.topic", end="latest")]


@pytest.mark.turns(3)
@pytest.mark.parametrize("version", ["0.6.202", "0.7.0", "0.8.0", "0.10.0"])
def test_a_topic_keeps_its_messages_for_as_long_as_it_is_told_later(
    made: tuple[Frames, str], connect: Callable[[], Frames], version: str
) -> None:
    frames, name = made
    client, where = log_in(connect, version), named(name) + named("topic")
    update = where + struct.pack("<BQQB", 1, HOUR_US, 1 << 20, 0)
    assert client.ask(UPDATE_TOPIC, update + short("topic")) == (0, b"")
    body = frames.ask(GET_TOPIC, where)[1]
    # id, time and count of partitions come first, then expiry, compression and size
    assert struct.unpack_from("<QBQ", body, 16) == (HOUR_US, 1, 1 << 20)
    assert client.ask(UPDATE_TOPIC, named(name) + named("none") + update[len(where) :] + short("topic"))[0] == 2011
    assert client.ask(UPDATE_TOPIC, where + struct.pack("<BQQB", 1, NEVER, 0, 0) + short("Topic")) == (0, b"")
    assert struct.unpack_from("<Q", frames.ask(GET_TOPIC, where)[1], 16) == (NEVER,)
    assert client.ask(UPDATE_STREAM, named(name) + short(name)) == (0, b"")
    assert client.ask(UPDATE_STREAM, named(f"no-{name}") + short("other"))[0] == 1010


@pytest.mark.parametrize("version", [None, "0.6.202", "0.8.0"])
def test_a_topic_and_its_stream_get_other_names(
    made: tuple[Frames, str], connect: Callable[[], Frames], broker: BrokerProcess, version: str | None
) -> None:
    frames, name = made
    client, where = log_in(connect, version), named(name) + named("topic")
    # a client that says no version writes as the first release, with seconds
    kept = struct.pack("<I", 0) if version is None else struct.pack("<BQQB", 1, NEVER, 0, 0)
    before = frames.ask(GET_TOPIC, where)[1]
    consumer = b"\1" + named("me")
    assert frames.ask(STORE_OFFSET, consumer + where + struct.pack("<IQ", 1, 1)) == (0, b"")
    assert client.ask(UPDATE_TOPIC, where + kept + short("Other")) == (0, b"")
    assert client.ask(UPDATE_TOPIC, where + kept + short("third"))[0] == 2011
    assert client.ask(UPDATE_STREAM, named(name) + short(f"{name}-b")) == (0, b"")
    assert client.ask(UPDATE_STREAM, named(name) + short("other"))[0] == 1010
    # where messages lie is what routes remember: one of the old name is not sent anywhere
    assert frames.ask(SEND, where + to_partition(1) + message(b"lost"))[0] == 1010
    where = named(f"{name}-b") + named("other")
    assert frames.ask(SEND, where + to_partition(1) + message(b"d"))[0] == 0
    after = frames.ask(GET_TOPIC, where)[1]
    assert (after[:12], after[-12:]) == (before[:12], after[-12:])
    assert struct.unpack_from("<Q", frames.ask(GET_OFFSET, consumer + where + struct.pack("<I", 1))[1], 12) == (1,)
    sent = [one.payload for one in lading.Consumer(broker.url, f"{name}-b.other", end="latest")]
    assert sent == [b"a", b"b", b"c", b"d"]
    with pytest.raises(LadingError, match="does not exist"):
        lading.Consumer(broker.url, f"{name}.topic", end="latest")
    again = named(f"{name}-b")
    assert client.ask(UPDATE_STREAM, again + short("default"))[0] == 5
    assert frames.ask(CREATE_STREAM, struct.pack("<I", 0) + short(name))[0] == 0
    assert client.ask(UPDATE_STREAM, again + short(name))[0] == 1012


@pytest.mark.parametrize("release", ["0.1", "0.2", "0.4"])
def test_silent_clients_update_in_the_layout_in_which_they_create(connect: Callable[[], Frames], release: str) -> None:
    client, name = log_in(connect, None), next(_names)
    assert client.ask(CREATE_STREAM, struct.pack("<I", 0) + short(name))[0] == 0
    # 0.4 has compression, seconds, size and replication, 0.2 no compression, 0.1 only the seconds
    layouts = {"0.1": ("<I", (3600,)), "0.2": ("<IQB", (3600, 1 << 20, 1)), "0.4": ("<BIQB", (1, 3600, 1 << 20, 1))}
    layout, values = layouts[release]
    new = struct.pack("<II", 0, 1) + struct.pack(layout, *values)
    assert client.ask(CREATE_TOPIC, named(name) + new + short("topic"))[0] == 0
    kept = struct.pack(layout, *values)
    where = named(name) + named("topic")
    if release == "0.2":
        # what it is told has its layout too
        assert client.ask(GET_TOPIC, where)[1][16 : 16 + len(kept)] == kept
    assert client.ask(UPDATE_TOPIC, where + kept + short("topic"))[0] == 0
    later = log_in(connect, "0.6.202")
    assert struct.unpack_from("<Q", later.ask(GET_TOPIC, where)[1], 16) == (HOUR_US,)


@pytest.mark.parametrize("version", [None, "0.6.202", "0.8.0"])
@pytest.mark.parametrize("code", [PURGE_STREAM, PURGE_TOPIC])
def test_purging_deletes_messages_and_keeps_offsets(
    made: tuple[Frames, str], connect: Callable[[], Frames], broker: BrokerProcess, version: str | None, code: int
) -> None:
    frames, name = made
    where = named(name) + named("topic")
    assert log_in(connect, version).ask(code, named(name) if code == PURGE_STREAM else where) == (0, b"")
    assert payloads(broker, name) == []
    assert frames.ask(SEND, where + to_partition(1) + message(b"later"))[0] == 0
    (found,) = lading.Consumer(broker.url, f"{name}.topic", end="latest")
    assert (found.payload, found.offset) == (b"later", 3)


@pytest.mark.parametrize("version", ["0.6.202", "0.8.0"])
def test_a_stored_offset_is_forgotten_once(
    made: tuple[Frames, str], connect: Callable[[], Frames], version: str
) -> None:
    frames, name = made
    client = log_in(connect, version)
    consumer = b"\1" + named("some consumer") + named(name) + named("topic")
    assert frames.ask(STORE_OFFSET, consumer + struct.pack("<IQ", 1, 1)) == (0, b"")
    partition = struct.pack("<I", 1) if version == "0.6.202" else struct.pack("<BI", 1, 0)
    assert client.ask(DELETE_OFFSET, consumer + partition) == (0, b"")
    assert frames.ask(GET_OFFSET, consumer + struct.pack("<I", 1)) == (0, b"")
    assert client.ask(DELETE_OFFSET, consumer + partition)[0] == 3021


def fill_segments(frames: Frames, where: bytes) -> None:
    for _ in range(6):
        assert frames.ask(SEND, where + to_partition(1) + message(b"x" * 40_000))[0] == 0


@pytest.mark.parametrize("version", ["0.6.202", "0.8.0"])
def test_the_oldest_segments_go_and_the_last_one_stays(
    made: tuple[Frames, str], connect: Callable[[], Frames], broker: BrokerProcess, version: str
) -> None:
    frames, name = made
    where = named(name) + named("topic")
    fill_segments(frames, where)
    client = log_in(connect, version)
    partition = 1 if version == "0.6.202" else 0
    assert client.ask(DELETE_SEGMENTS, where + struct.pack("<II", partition, 0)) == (0, b"")
    assert len(payloads(broker, name)) == 9
    assert client.ask(DELETE_SEGMENTS, where + struct.pack("<II", partition, 1)) == (0, b"")
    some = payloads(broker, name)
    assert 0 < len(some) < 9
    assert client.ask(DELETE_SEGMENTS, where + struct.pack("<II", partition, 1000)) == (0, b"")
    assert 0 < len(payloads(broker, name)) < len(some)
    assert client.ask(DELETE_SEGMENTS, where + struct.pack("<II", 9, 1))[0] == 3007


@pytest.mark.parametrize("version", [None, "0.6.202", "0.8.0", "0.11.0"])
def test_the_same_over_http(made: tuple[Frames, str], broker: BrokerProcess, version: str | None) -> None:
    frames, name = made
    topic = f"/streams/{name}/topics/topic"
    with httpx.Client(base_url=f"http://{broker.endpoints['iggy_http']}", timeout=20) as http:
        names = {"username": "iggy", "password": "iggy", **({} if version is None else {"version": version})}
        told = http.post("/users/login", json=names).json()
        access = told["tokens"]["access_token"] if version is None else told["access_token"]
        http.headers["authorization"] = f"Bearer {access['token']}"
        hour = 3600 if version is None else HOUR_US
        first = 0 if version in ("0.8.0", "0.11.0") else 1
        update = {"name": "topic", "compression_algorithm": "none", "message_expiry": hour, "max_topic_size": None}
        assert http.put(topic, json=update).status_code == 204
        assert http.get(topic).json()["message_expiry"] == hour
        assert http.put(topic, json={**update, "name": "other"}).status_code == 204
        assert http.get(topic).status_code == 404
        assert http.put(f"/streams/{name}/topics/other", json=update).status_code == 204
        assert http.put(f"/streams/{name}", json={"name": name}).status_code == 204
        assert http.put(f"/streams/{name}", json={"name": f"{name}-b"}).status_code == 204
        assert http.get(f"/streams/{name}").status_code == 404
        assert http.put(f"/streams/{name}-b", json={"name": name}).status_code == 204
        offsets = f"{topic}/consumer-offsets"
        stored = {"consumer_id": "me", "partition_id": first, "offset": 1}
        assert http.put(offsets, json=stored).status_code == 204
        assert http.delete(f"{offsets}/me", params={"partition_id": first}).status_code == 204
        assert http.delete(f"{offsets}/me", params={"partition_id": first}).json()["id"] == 3021
        fill_segments(frames, named(name) + named("topic"))
        assert http.delete(f"{topic}/partitions/{first}", params={"segments_count": 1}).status_code == 204
        assert 0 < len(payloads(broker, name)) < 9
        assert http.delete(f"{topic}/purge").status_code == 204
        assert payloads(broker, name) == []
        assert http.delete(f"/streams/{name}/purge").status_code == 204


def test_releases_without_them_have_no_such_requests_over_http(made: tuple[Frames, str], broker: BrokerProcess) -> None:
    _, name = made
    with httpx.Client(base_url=f"http://{broker.endpoints['iggy_http']}", timeout=20) as http:
        refused = http.delete(f"/streams/{name}/purge")
        assert (refused.status_code, refused.json()["id"]) == (400, 5)
    assert payloads(broker, name) == [b"a", b"b", b"c"]
