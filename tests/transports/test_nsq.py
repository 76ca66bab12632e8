"""nsq:// against real servers: upstream's nsqd and nsqlookupd for what is plain, our own for headers and tags."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from lading import Admin, Consumer, Headers, Producer, aio, read_arrow, testing, u16
from lading.client.interceptors import Outgoing, ProducerInterceptor
from lading.model.errors import LadingError, LimitExceeded, LocalError, SettingError, Unreachable
from lading.transports.interface import TraceReceipt
from lading.transports.nsq import queue as nsq_queue
from lading.transports.nsq import transport as nsq_transport
from lading.transports.open import open_transport
from tests.endpoints.authority import Authority
from tests.interop.go_programs import RunningNsq, Unavailable, running

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNsq]:
    """Upstream's servers."""
    try:
        with running(tmp_path_factory.mktemp("nsq")) as servers:
            yield servers
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["nsqlookupd", "nsqd", "nsqd_http"])
def url(request: pytest.FixtureRequest, real: RunningNsq) -> str:
    """The ways to name a real server."""
    places = {"nsqlookupd": real.nsqlookupd_http, "nsqd": real.nsqd_tcp, "nsqd_http": real.nsqd_http}
    return f"nsq://{places[request.param]}"


@pytest.mark.turns(3)
def test_what_is_sent_arrives_once_and_is_finished(url: str, request: pytest.FixtureRequest) -> None:
    topic = f"plain-{request.node.callspec.id}"
    with Producer(url) as producer:
        for number in range(3000):
            producer.send(topic, b"%d" % number)
    got: list[bytes] = []
    with Consumer(url, topic, channel="c", in_flight=100, timeout_s=5.0) as consumer:
        for message in consumer:
            got.append(message.payload or b"")
            assert (message.topic, message.partition, message.offset) == (topic, 0, len(got) - 1)
            if len(got) == 3000:
                break
    assert sorted(got, key=int) == [b"%d" % number for number in range(3000)]
    with Consumer(url, topic, channel="c", timeout_s=0.3) as consumer:
        assert list(consumer) == []


def test_what_was_not_done_with_comes_again(real: RunningNsq) -> None:
    url = f"nsq://{real.nsqd_tcp}"
    with Producer(url) as producer:
        for number in range(10):
            producer.send("again", b"%d" % number)

    class Stop(Exception):
        pass

    with pytest.raises(Stop), Consumer(url, "again", channel="c", timeout_s=5.0) as consumer:
        for count, _ in enumerate(consumer, 1):
            if count == 4:
                raise Stop
    with Consumer(url, "again", channel="c", timeout_s=1.0) as consumer:
        left = [message.payload for message in consumer]
    # three were done when the fourth was asked for
    assert len(left) == 7


def test_readers_share_a_channel_and_batches_are_finished_too(real: RunningNsq) -> None:
    url = f"nsq://{real.nsqlookupd_http}"
    with Producer(url) as producer:
        producer.send("shared", b"first")
    found: list[list[bytes]] = [[], []]

    def read(mine: list[bytes]) -> None:
        with Consumer(url, "shared", channel="c", in_flight=10, timeout_s=2.0) as consumer:
            for batch in consumer.batches("payload"):
                mine.extend(payload or b"" for payload in batch.column("payload").to_pylist())

    threads = [threading.Thread(target=read, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    with Producer(url) as producer:
        for number in range(500):
            producer.send("shared", b"%d" % number)
    for thread in threads:
        thread.join(30)
    assert sorted(found[0] + found[1]) == sorted([b"first", *(b"%d" % number for number in range(500))])


def test_a_broken_connection_is_made_again(real: RunningNsq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsq_queue, "PAUSE_S", 0.05)
    url = f"nsq://{real.nsqd_tcp}"
    with Producer(url) as producer, Consumer(url, "broken", channel="c", timeout_s=5.0) as consumer:
        producer.send("broken", b"before")
        producer.flush()
        assert next(consumer).payload == b"before"
        consumer.commit()
        queue = consumer.transport._queues["broken"]  # type: ignore[attr-defined]
        (one,) = queue._nodes.values()
        one.connection._socket.shutdown(2)
        producer.transport._publisher._socket.shutdown(2)  # type: ignore[attr-defined]
        producer.send("broken", b"after")
        producer.flush()
        assert next(consumer).payload == b"after"


def test_what_a_plain_server_cannot_take_is_said(real: RunningNsq) -> None:
    url = f"nsq://{real.nsqd_tcp}"
    producer = Producer(url)
    producer.send("plain", b"x", headers=[("carrier", "UA")])
    with pytest.raises(LocalError, match="accepts no headers"):
        producer.flush()
    producer.close()
    with pytest.raises(LocalError, match="is a queue"):
        next(Consumer(url, "plain", timeout_s=0.1))
    with pytest.raises(LocalError, match="a channel belongs to one topic"):
        Consumer(url, ["a", "b"], channel="c")
    with pytest.raises(LocalError, match=r"cannot have a channel of this name.*; use 'c-c'"):
        Consumer(url, "plain", channel="c c")
    with pytest.raises(SettingError, match="one of the two"):
        Consumer(url, "plain", channel="c", group="c")
    with pytest.raises(LocalError, match="does not list topics"):
        open_transport(url).topics()
    with pytest.raises(SettingError, match="at most 100 bytes"):
        open_transport(url, tag="x" * 101)
    with Producer(url) as producer:
        producer.send("listed", b"x")
    assert "listed" in [meta.name for meta in open_transport(f"nsq://{real.nsqlookupd_http}").topics()]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    """Our own broker."""
    with testing.broker(data_dir=tmp_path_factory.mktemp("ours") / "data") as broker:
        yield broker


@pytest.mark.parametrize("face", ["nsqd_tcp", "nsqlookupd_http"])
def test_headers_arrive_exactly_from_our_own_nsqd(ours: testing.BrokerProcess, face: str) -> None:
    url, topic = f"nsq://{ours.endpoints[face]}", f"exact-{face}"
    headers = Headers(
        [("carrier", "UA"), ("delay", u16(12)), ("via", None), ("via", b"\xff"), ("", ""), ("big", 1 << 62)]
    )
    with Producer(url) as producer:
        producer.send(topic, b"payload", key=b"N14228", headers=headers)
        producer.send(topic, None)
    with Consumer(url, topic, channel="c", timeout_s=5.0) as consumer:
        first, second = next(consumer), next(consumer)
    assert first.headers == headers
    assert (first.key, first.payload, second.payload) == (b"N14228", b"payload", None)
    with Consumer(f"lading://{ours.endpoints['admin']}", topic, timeout_s=0.5) as native:
        assert next(native).headers == headers


def test_a_time_goes_along_since_the_server_stamps_its_own(ours: testing.BrokerProcess) -> None:
    url = f"nsq://{ours.endpoints['nsqd_tcp']}"
    with Producer(url) as producer:
        producer.send("timed", b"x", timestamp=1_700_000_000_123_456)
        producer.send("timed", b"y", headers=[("carrier", "UA")], timestamp=5)
    with Consumer(url, "timed", channel="c", timeout_s=5.0) as consumer:
        got = [(message.payload, message.timestamp_us) for message in islice(consumer, 2)]
    assert got == [(b"x", 1_700_000_000_123_456), (b"y", 5)]
    with Producer(url, strict=True) as strict, pytest.raises(LocalError, match="no form for timestamp"):
        strict.send("timed", b"x", timestamp=5)


def test_no_ext_is_sent_that_the_server_of_the_fork_does_not_survive(ours: testing.BrokerProcess) -> None:
    """It ends at 65,506 bytes of JSON; 65,535 are what a length of two bytes can say."""
    with Producer(f"nsq://{ours.endpoints['nsqd_tcp']}") as producer:
        producer.send("long", b"x", headers=[("a", "x" * 65_500)])
        with pytest.raises(LimitExceeded, match="65506"):
            producer.flush()


def test_tags_choose_the_reader(ours: testing.BrokerProcess) -> None:
    url = f"nsq://{ours.endpoints['nsqd_tcp']}"
    with (
        Producer(url) as producer,
        Consumer(url, "tagged", channel="c", tag="A", timeout_s=20.0) as tagged,
        Consumer(url, "tagged", channel="c", timeout_s=20.0) as plain,
    ):
        for number in range(40):
            tag = [("##client_dispatch_tag", "A")] if number % 2 else []
            producer.send("tagged", b"%d" % number, headers=[("n", number), *tag])
        producer.flush()
        # all forty, so that none is left for a wrong reader
        got = [[int(message.payload or b"") for message in islice(consumer, 20)] for consumer in (tagged, plain)]
    assert sorted(got[0]) == list(range(1, 40, 2))
    assert sorted(got[1]) == list(range(0, 40, 2))


def test_the_trace_id_of_a_plain_topic_is_in_the_message_id(ours: testing.BrokerProcess) -> None:
    made = {"topic": "traced", "extend": "false"}
    httpx.post(f"http://{ours.endpoints['nsqd_http']}/topic/create", params=made).raise_for_status()
    trace = {"topic": "traced", "trace_id": "123"}
    httpx.post(f"http://{ours.endpoints['nsqd_http']}/pubtrace", params=trace, content=b"x").raise_for_status()
    with Consumer(f"nsq://{ours.endpoints['nsqd_tcp']}", "traced", channel="c", timeout_s=5.0) as consumer:
        assert next(iter(consumer)).id == (1).to_bytes(8, "big") + (123).to_bytes(8, "big")


def test_a_topic_is_made_where_servers_leave_that_to_others() -> None:
    """The fork's nsqd refuses to publish to a topic that is missing."""
    with testing.broker(nsq__compat="youzan", durability="os") as fork:
        for face in ("nsqd_tcp", "nsqlookupd_http"):
            with Producer(f"nsq://{fork.endpoints[face]}") as producer:
                producer.send(f"by.{face}", b"x", headers=[("delay", 1)])
            assert read_arrow(fork.url, f"by.{face}", "delay int")["delay"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("bad:name", "bad-name"), ("ż", "topic"), ("a b#ephemeral", "a-b#ephemeral"), ("x" * 90, "x" * 64), ("", "topic")],
)
@pytest.mark.parametrize("face", ["nsqd_tcp", "nsqlookupd_http"])
def test_a_name_that_nsq_cannot_say_is_told_with_one_that_works(
    ours: testing.BrokerProcess, face: str, name: str, nearest: str
) -> None:
    url = f"nsq://{ours.endpoints[face]}"
    use = re.escape(f"use {nearest!r}")
    with pytest.raises(LocalError, match=f"cannot have a topic of this name.*; {use}"), Producer(url) as producer:
        producer.send(name, b"x")
    with pytest.raises(LocalError, match=use):
        open_transport(url).create_topic(name)
    with pytest.raises(LocalError, match=use), Consumer(url, name, channel="c", timeout_s=1.0) as consumer:
        next(iter(consumer))
    with pytest.raises(LocalError, match=f"cannot have a channel of this name.*; {use}"):
        open_transport(url).join(name, ["t"])
    with Producer(url) as producer:
        producer.send(nearest, b"x")


def test_nobody_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="neither nsqlookupd nor nsqd is reachable"):
        Consumer("nsq://127.0.0.1:1", "t", channel="c", timeout_s=1.0)


def test_a_publisher_that_was_hung_up_on_connects_again() -> None:
    with testing.broker() as broker:
        transport = open_transport(f"nsq://{broker.endpoints['nsqd_tcp']}")
        transport.create_topic("first")
        # as nsqd does with a publisher that let heartbeats go by
        transport._publisher._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
        transport.create_topic("second")
        transport.close()
        named = httpx.get(f"http://{broker.endpoints['nsqd_http']}/stats?format=json", timeout=10).json()["topics"]
        assert {row["topic_name"] for row in named} == {"first", "second"}


@pytest.mark.parametrize("is_closing", [True, False])
def test_a_server_that_does_not_tell_its_limit_is_taken_to_have_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, is_closing: bool
) -> None:
    """Upstream refuses a length by naming its limit; another one may wait for what was announced, or hang up."""
    monkeypatch.setattr(nsq_transport, "BOUND_TOLD_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        asked: list[bytes] = []

        def serve() -> None:
            while not asked:
                with listener.accept()[0] as client, client.makefile("rb") as lines:
                    client.settimeout(10)
                    # others ask whether this is nsqlookupd
                    if lines.read(4) == b"  V2" and lines.readline() == b"IDENTIFY\n":
                        lines.read(int.from_bytes(lines.read(4), "big"))
                        client.sendall((6).to_bytes(4, "big") + bytes(4) + b"OK")
                        if question := lines.readline() + lines.read(4):
                            asked.append(question)
                            if not is_closing:
                                lines.read(1)

        server = threading.Thread(target=serve)
        server.start()
        transport = open_transport(f"nsq://{host}:{port}")
        assert transport.message_bound("t") is None  # type: ignore[attr-defined]
        server.join(10)
        assert asked == [b"PUB t\n\x7f\xff\xff\xff"]
        transport.close()


@pytest.fixture(params=["real", "ours"])
def nsqd_tcp(request: pytest.FixtureRequest) -> str:
    """Upstream's nsqd, and our own."""
    if request.param == "ours":
        broker: testing.BrokerProcess = request.getfixturevalue("ours")
        return broker.endpoints["nsqd_tcp"]
    servers: RunningNsq = request.getfixturevalue("real")
    return servers.nsqd_tcp


@pytest.mark.turns(2)
def test_a_message_is_requeued_with_a_delay_and_counts_its_attempts(nsqd_tcp: str) -> None:
    url = f"nsq://{nsqd_tcp}"
    with Producer(url) as producer:
        producer.send("requeued", b"first")
        producer.send("requeued", b"second")
    with Consumer(url, "requeued", channel="c", timeout_s=5.0) as consumer:
        messages = {}
        for message in (next(consumer), next(consumer)):
            assert message.attempts == 1
            messages[message.payload] = message
        began = time.monotonic()
        consumer.requeue(messages[b"first"], delay_s=0.3)
        with pytest.raises(LocalError, match="is not with this consumer any more"):
            consumer.requeue(messages[b"first"])
        again = next(consumer)
        # no sooner than asked for; how much later is up to the machine
        assert time.monotonic() - began >= 0.3
        assert (again.payload, again.attempts, again.id) == (b"first", 2, messages[b"first"].id)
        consumer.commit()
        with pytest.raises(LocalError, match="is not with this consumer any more"):
            consumer.touch(again)
    with Consumer(url, "requeued", channel="c", timeout_s=0.3) as consumer:
        assert list(consumer) == []


def test_a_reader_that_ends_takes_no_message_with_it(nsqd_tcp: str) -> None:
    """The next one was on its way when the last FIN went before the CLS, and came back behind those that wait."""
    url = f"nsq://{nsqd_tcp}"
    with Producer(url) as producer:
        for number in range(20):
            producer.send("left", b"%d" % number)
    read = []
    for _ in range(20):
        with Consumer(url, "left", channel="c", in_flight=1, timeout_s=5.0) as consumer:
            message = next(consumer)
            read.append((message.payload, message.attempts))
    assert read == [(b"%d" % number, 1) for number in range(20)]


@pytest.mark.turns(2)
def test_a_touched_message_does_not_time_out(nsqd_tcp: str) -> None:
    url = f"nsq://{nsqd_tcp}"
    with Producer(url) as producer:
        producer.send("touched", b"long work")
    with (
        Consumer(url, "touched", channel="c", timeout_s=5.0, message_timeout_s=2.0) as consumer,
        Consumer(url, "touched", channel="c", timeout_s=0.0) as other,
    ):
        # whichever of the two nsqd gives it to
        holder, waiting = consumer, other
        message = next(holder)
        for _ in range(6):
            time.sleep(0.5)
            holder.touch(message)
            assert waiting.poll(timeout_s=0.0) == []
        holder.commit()


async def _requeue_once(url: str) -> list[int | None]:
    async with aio.Consumer(url, "requeued-aio", channel="c", timeout_s=5.0) as consumer:
        message = await anext(consumer)
        await consumer.touch(message)
        await consumer.requeue(message)
        again = await anext(consumer)
        return [message.attempts, again.attempts]


def test_the_client_for_asyncio_requeues_and_touches(nsqd_tcp: str) -> None:
    with Producer(f"nsq://{nsqd_tcp}") as producer:
        producer.send("requeued-aio", b"x")
    assert asyncio.run(_requeue_once(f"nsq://{nsqd_tcp}")) == [1, 2]


def test_messages_of_a_log_are_not_requeued(ours: testing.BrokerProcess) -> None:
    with Producer(ours.url) as producer:
        producer.send("log", b"x")
    with Consumer(ours.url, "log", timeout_s=0) as consumer:
        message = next(consumer)
        assert message.attempts is None
        with pytest.raises(LocalError, match="cannot be requeued: only those of a queue are"):
            consumer.requeue(message)
        with pytest.raises(SettingError, match="delay_s is 0 or more"):
            consumer.requeue(message, delay_s=-1)


class _Acknowledged(ProducerInterceptor):
    def __init__(self) -> None:
        self.traces: list[TraceReceipt | None] = []

    def on_acknowledgement(self, message: Outgoing, offset: int | None, error: Exception | None) -> None:
        assert error is None
        self.traces.append(message.trace)


def test_the_receipt_of_a_trace_reaches_the_sender(ours: testing.BrokerProcess) -> None:
    url = f"nsq://{ours.endpoints['nsqd_tcp']}"
    open_transport(url).create_topic("receipts")
    acknowledged = _Acknowledged()
    with Producer(url, interceptors=[acknowledged]) as producer:
        for number in range(4):
            trace = [("##trace_id", f"{100 + number}")] if number % 2 else []
            producer.send("receipts", b"%d" % number, headers=[("n", "x"), *trace])
    # the same question over HTTP, whose response is documented field by field
    response = httpx.post(
        f"http://{ours.endpoints['nsqd_http']}/pub_ext",
        params={"topic": "receipts", "ext": '{"n":"x","##trace_id":"104"}'},
        content=b"4",
    ).json()
    first, second = acknowledged.traces[1], acknowledged.traces[3]
    assert [acknowledged.traces[0], acknowledged.traces[2]] == [None, None]
    assert first is not None and second is not None
    assert (first.trace_id, second.trace_id) == (101, 103)
    assert [first.internal_id + 2, first.internal_id + 3] == [second.internal_id, response["id"]]
    assert [first.queue_offset + 2, first.queue_offset + 3] == [second.queue_offset, response["queue_offset"]]
    assert first.size_bytes == second.size_bytes == response["rawsize"]
    payloads = [message.payload for message in Consumer(ours.url, "receipts", timeout_s=0)]
    assert payloads == [b"0", b"1", b"2", b"3", b"4"]


def test_topics_are_created_extended_and_upgraded(ours: testing.BrokerProcess, real: RunningNsq) -> None:
    lookup = f"nsq://{ours.endpoints['nsqlookupd_http']}"

    def is_extended(topic: str) -> bool:
        parameters = {"topic": topic, "metainfo": "true"}
        found = httpx.get(f"http://{ours.endpoints['nsqlookupd_http']}/lookup", params=parameters).json()
        return bool(found.get("data", found)["meta"]["extend_support"])

    for url, topic in ((lookup, "ext-1"), (f"nsq://{ours.endpoints['nsqd_tcp']}", "ext-2"), (ours.url, "ext-3")):
        with Admin(url) as admin:
            assert admin.create_topic(topic, extended=True).name == topic
        assert is_extended(topic)
    for url, topic in ((lookup, "old-1"), (ours.url, "old-2")):
        httpx.post(
            f"http://{ours.endpoints['nsqlookupd_http']}/topic/create", params={"topic": topic, "partition_num": 1}
        ).raise_for_status()
        assert not is_extended(topic)
        with Admin(url) as admin:
            with pytest.raises(LadingError, match=r"exist|already"):
                admin.create_topic(topic, extended=True)
            admin.extend_topic(topic)
        assert is_extended(topic)
    with Admin(f"kafka://{ours.endpoints['kafka']}") as admin, pytest.raises(SettingError, match="are NSQ's"):
        admin.create_topic("x", extended=True)
    for place in (real.nsqlookupd_http, real.nsqd_tcp):
        with Admin(f"nsq://{place}") as admin:
            with pytest.raises(LocalError, match="extended"):
                admin.create_topic("x", extended=True)
            with pytest.raises(LadingError):
                admin.extend_topic("x")


@pytest.fixture(params=["real", "ours"])
def nsqd_places(request: pytest.FixtureRequest) -> tuple[str, str]:
    """TCP and HTTP of upstream's nsqd, and of our own."""
    if request.param == "ours":
        broker: testing.BrokerProcess = request.getfixturevalue("ours")
        return broker.endpoints["nsqd_tcp"], broker.endpoints["nsqd_http"]
    servers: RunningNsq = request.getfixturevalue("real")
    return servers.nsqd_tcp, servers.nsqd_http


@pytest.mark.parametrize("compression", ["snappy", "deflate", "deflate:1", "deflate:9"])
def test_a_connection_is_compressed_both_ways(nsqd_places: tuple[str, str], compression: str) -> None:
    tcp, http = nsqd_places
    topic = "compressed-" + compression.replace(":", "-")
    # much in little, little in much, and pieces that end inside of a block
    payloads = [b"x" * 900_000, bytes(range(256)) * 700, *(b"%d" % number for number in range(500))]
    with Producer(f"nsq://{tcp}", connection_compression=compression) as producer:
        for payload in payloads:
            producer.send(topic, payload)
    with Consumer(f"nsq://{tcp}?connection_compression={compression}", topic, channel="c", timeout_s=5.0) as consumer:
        got = [message.payload for message in islice(consumer, len(payloads))]
        stats = httpx.get(f"http://{http}/stats", params={"format": "json", "topic": topic}).json()
    assert sorted(got, key=lambda payload: payload or b"") == sorted(payloads)
    (client,) = stats["topics"][0]["channels"][0]["clients"]
    assert (client["snappy"], client["deflate"]) == (compression == "snappy", compression != "snappy")


def test_a_connection_is_encrypted_and_compressed(tmp_path: Path) -> None:
    """TLS first, then compression within it, as nsqd does it."""
    authority = Authority(tmp_path, "ca")
    certificate = authority.sign("server")
    options = [f"-tls-cert={certificate}", f"-tls-key={certificate}"]
    key = "endpoints.nsqd_tcp.tls"
    settings = {f"{key}.enabled": True, f"{key}.certificate": certificate}
    with testing.broker(settings=settings) as broker, running(tmp_path / "real", *options) as servers:
        for tcp in (broker.endpoints["nsqd_tcp"], servers.nsqd_tcp):
            for compression in ("snappy", "deflate"):
                chosen: dict[str, Any] = {"ca_file": str(authority.file), "connection_compression": compression}
                with Producer(f"nsq://{tcp}", **chosen) as producer:
                    producer.send("hidden", b"x" * 100_000)
                with Consumer(f"nsq://{tcp}", "hidden", channel="c", timeout_s=5.0, **chosen) as consumer:
                    assert next(consumer).payload == b"x" * 100_000


def test_a_node_that_offers_no_compression_is_used_without(caplog: pytest.LogCaptureFixture) -> None:
    with testing.broker(settings={"endpoints.nsqd_tcp.snappy": False}) as broker:
        url = f"nsq://{broker.endpoints['nsqd_tcp']}"
        with Producer(url, connection_compression="snappy") as producer:
            producer.send("plain", b"x")
        assert [message.payload for message in Consumer(url, "plain", channel="c", timeout_s=1.0)] == [b"x"]
    assert caplog.messages == [
        f"nsqd at {url.removeprefix('nsq://')} offers no snappy: nothing is compressed; "
        "leave out connection_compression, or start it without -snappy=false"
    ]


@pytest.mark.parametrize("text", ["lz4", "deflate:0", "deflate:10", "deflate:", "snappy:1", "Snappy"])
def test_a_compression_that_nsq_has_not_is_refused(text: str) -> None:
    with pytest.raises(
        SettingError, match=rf"^connection_compression '{text}': not supported; use 'snappy', 'deflate', or"
    ):
        open_transport("nsq://127.0.0.1:1", connection_compression=text)
