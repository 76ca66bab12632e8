"""Channels: where they begin, what subscribers may say, what operators ask, what a restart leaves."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from lading.broker.broker import Broker
from lading.broker.channels import Channel, ChannelStart, HeaderFilter, filters, in_flight, partition_dispatcher, store
from lading.broker.channels.fallback import finish as finish_twin
from lading.broker.channels.in_flight import GivenUp
from lading.broker.channels.pattern_cost import pattern_cost
from lading.broker.core.pending_append import Append
from lading.broker.core.states import list_states
from lading.broker.core.topology import Topic
from lading.dialects import registry
from lading.kernels import engine
from lading.model.errors import FilterError, Reason, Refusal
from lading.model.run import Run
from lading.model.scan_request import ScanRequest
from lading.runtime.turns import Turns, finish
from tests.broker.channel_room import Headers, Reader, put
from tests.broker.room import NOW, SECOND, append_block, block, fill, opened, payloads, read, topic_of


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """An empty broker."""
    made = opened(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def topic(broker: Broker) -> Topic:
    """A topic with two partitions."""
    return topic_of(broker, 2)


def pump(broker: Broker, now_us: int = NOW) -> None:
    """Deliver everything, held-back credit too."""
    while (due_us := broker.channels.pump(now_us)) is not None:
        now_us = due_us


def refused(reason: Reason) -> pytest.RaisesExc[Refusal]:
    """The Refusal with this reason."""
    return pytest.raises(Refusal, check=lambda error: error.reason is reason)


# -- where a channel begins


def test_the_first_channel_gets_what_was_kept_a_later_one_what_comes(broker: Broker, topic: Topic) -> None:
    put(broker, topic.partition(0), b"kept")
    first = Reader().subscribe(broker.channels.open(topic, "first"), 10)
    later = Reader().subscribe(broker.channels.open(topic, "later"), 10)
    at_end = Reader().subscribe(broker.channels.open(topic_of(broker, name="u"), "c", start=ChannelStart.END), 10)
    put(broker, at_end.channel.topic.partition(0), b"fresh")
    put(broker, topic.partition(1), b"fresh")
    pump(broker)
    assert sorted(first.payloads()) == [b"fresh", b"kept"]
    assert later.payloads() == at_end.payloads() == [b"fresh"]


def test_after_the_last_channel_was_deleted_the_next_one_gets_what_came_since(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    put(broker, topic.partition(0), b"before")
    channel = broker.channels.open(topic, "c")
    reader = Reader().subscribe(channel)
    broker.channels.delete(channel)
    assert reader.reason == "channel 'c' of topic 's.t' was deleted"
    put(broker, topic.partition(0), b"since")
    broker.stop()
    broker = opened(tmp_path)
    again = Reader().subscribe(broker.channels.open(broker.topology.topic("s", "t"), "c"), 10)
    pump(broker)
    assert again.payloads() == [b"since"]
    broker.stop()


def test_an_ephemeral_channel_goes_with_its_last_subscriber(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    unused: list[Topic] = []
    broker.channels.on_unused = unused.append
    brief = topic_of(broker, name="u#ephemeral")
    for one in (topic, brief):
        channel = broker.channels.open(one, "tail#ephemeral")
        reader = Reader().subscribe(channel)
        channel.leave(reader.subscriber)
        assert broker.channels.of_topic(one) == []
    assert unused == [brief]
    broker.channels.open(topic, "tail#ephemeral")
    broker.stop()
    broker = opened(tmp_path)
    assert broker.channels.of_topic(broker.topology.topic("s", "t")) == []
    broker.stop()


def test_new_partitions_are_read_from_their_beginning_deleted_ones_are_forgotten(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    reader = Reader().subscribe(channel, 10)
    broker.at_once.add_partitions(topic, 1)
    put(broker, topic.partition(2), b"new")
    pump(broker)
    assert reader.got == [(2, 0, b"new", 1)]
    broker.at_once.delete_partitions(topic, 1)
    assert reader.subscriber.in_flight == 0
    with refused(Reason.PARTITION_NOT_FOUND):
        reader.finish(0, partition=2)


# -- what subscribers say


def test_one_partition_or_all(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    one, all_ = Reader().subscribe(channel, 100, 1), Reader().subscribe(channel, 0)
    for number in (0, 1):
        put(broker, topic.partition(number), b"%d" % number)
    pump(broker)
    assert one.payloads() == [b"1"]
    all_.subscriber.set_ready(5)
    pump(broker)
    assert all_.payloads() == [b"0"]


def test_a_blocked_subscriber_gets_nothing_more_until_it_is_free(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    reader = Reader().subscribe(channel, 100)
    take = reader.subscriber.on_delivery

    def full_at_once(delivery: object) -> None:
        take(delivery)  # type: ignore[arg-type]
        reader.subscriber.blocked = True

    reader.subscriber.on_delivery = full_at_once
    fill(broker, topic.partition(0), 3)
    pump(broker)
    fill(broker, topic.partition(0), 3)
    fill(broker, topic.partition(1), 3)
    pump(broker)
    assert len(reader.got) == 3
    reader.subscriber.blocked = False
    pump(broker)
    assert len(reader.got) == 6


def test_a_finish_of_a_strangers_message_changes_nothing(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    one, other = Reader().subscribe(channel, 2), Reader().subscribe(channel, 2)
    fill(broker, topic.partition(0), 4)
    pump(broker)
    mine, theirs = [got[1] for got in one.got], [got[1] for got in other.got]
    assert one.finish(*mine[:1], *theirs, *mine[1:]) == 1
    assert one.finish(mine[0]) == one.finish(10**12) == one.finish(-1) == 0
    assert one.finish(mine[1], mine[1]) == 1
    for answer in (channel.requeue, channel.touch):
        with refused(Reason.NOT_IN_FLIGHT):
            answer(one.subscriber, 0, theirs[0], *([0] if answer == channel.requeue else []), now_us=NOW)
    assert (one.subscriber.in_flight, other.subscriber.in_flight) == (0, 2)


def test_time_outs_touches_and_their_limit(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    reader = Reader(timeout_us=10 * SECOND, timeout_max_us=25 * SECOND).subscribe(channel, 1)
    put(broker, topic.partition(0), b"m")
    pump(broker)
    for second in (8, 16, 24):
        channel.touch(reader.subscriber, 0, 0, now_us=NOW + second * SECOND)
        broker.tick(NOW + (second + 1) * SECOND - 1)
        assert reader.subscriber.in_flight == 1 if second < 24 else True
    broker.tick(NOW + 25 * SECOND)
    assert (reader.subscriber.in_flight, reader.subscriber.timed_out) == (0, 1)
    pump(broker, NOW + 25 * SECOND)
    assert reader.got[-1] == (0, 0, b"m", 2)


def test_a_requeue_with_delay_lets_others_pass_and_outlives_a_kill(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    reader = Reader().subscribe(broker.channels.open(topic, "c"), 2)
    put(broker, topic.partition(0), b"late", b"one", b"two")
    pump(broker)
    reader.channel.requeue(reader.subscriber, 0, 0, 3600 * SECOND, now_us=NOW)
    pump(broker)
    assert reader.payloads() == [b"late", b"one", b"two"]
    assert reader.finish(1, 2) == 2
    broker.tick(NOW + SECOND)
    broker.catalog.close()
    broker = opened(tmp_path)
    channel = broker.channels.open(broker.topology.topic("s", "t"), "c")
    assert (channel.statistics().depth, channel.statistics().deferred) == (0, 1)
    again = Reader().subscribe(channel, 2)
    broker.tick(NOW + 3599 * SECOND)
    pump(broker)
    assert again.got == []
    broker.tick(NOW + 3600 * SECOND)
    pump(broker, NOW + 3600 * SECOND)
    assert again.got == [(0, 0, b"late", 2)]
    broker.stop()


def test_what_comes_back_does_not_wait_for_larger_stretches_for_ever(broker: Broker, topic: Topic) -> None:
    """A subscriber that holds most of its window is served a moment later, also with what was requeued."""
    channel = broker.channels.open(topic, "c")
    reader = Reader().subscribe(channel, 5, 0)
    fill(broker, topic.partition(0), 5)
    pump(broker)
    channel.requeue(reader.subscriber, 0, 2, 0, now_us=NOW)
    due_us = broker.channels.pump(NOW)
    assert due_us is not None and NOW < due_us <= NOW + 10_000 and len(reader.got) == 5
    broker.channels.pump(due_us)
    assert reader.got[-1] == (0, 2, b"2", 2)


def test_too_many_put_off_are_refused_and_stay_in_flight(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "OUT_OF_WINDOW_MAX", 2)
    channel = broker.channels.open(topic, "c")
    reader = Reader().subscribe(channel, 3)
    fill(broker, topic.partition(0), 3)
    pump(broker)
    for offset in (0, 1):
        channel.requeue(reader.subscriber, 0, offset, SECOND, now_us=NOW)
    with refused(Reason.TOO_MANY_DEFERRED):
        channel.requeue(reader.subscriber, 0, 2, SECOND, now_us=NOW)
    assert reader.finish(2) == 1


# -- tags and filters


def test_a_holder_of_a_tag_without_credit_holds_up_only_its_own(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    stuck, free = Reader(tag="A").subscribe(channel, 0), Reader().subscribe(channel, 100)
    put(broker, topic.partition(0), *(b"%d" % at for at in range(6)), tags=["A", None, "A", "B", "", "a"])
    pump(broker)
    assert free.payloads() == [b"1", b"3", b"4", b"5"]
    stuck.subscriber.set_ready(1)
    pump(broker)
    assert stuck.payloads() == [b"0"]
    channel.leave(stuck.subscriber)
    pump(broker)
    assert [got[1:] for got in free.got] == [(0, b"0", 1), (2, b"2", 1)]


def test_tags_that_are_no_text_are_none(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    tagged, plain = Reader(tag="1").subscribe(channel, 100), Reader().subscribe(channel, 100)
    name = "##client_dispatch_tag"
    headers: list[Headers] = [
        [(name, 4, b"1")],
        [(name, 3, b"\1")],
        [(name, 2, None)],
        [(name, 1, b"1")],
        [(name, b"0"), (name, b"1")],
    ]
    put(broker, topic.partition(0), b"int8", b"bool", b"null", b"raw", b"last", headers=headers)
    pump(broker)
    assert tagged.payloads() == [b"raw", b"last"]
    assert plain.payloads() == [b"int8", b"bool", b"null"]


FILTERED: list[Headers] = [
    [("k", b"ab"), ("n", b"1")],
    [("k", b"xaby")],
    [("k", 7, (5).to_bytes(8, "little"))],
    [("other", b"ab")],
    [],
    [("k", b'{"z": "ab", "list": ["no", "yes"]}')],
    # what NSQ had as JSON: the text tells of it, and is none
    [("k", b'{"z":"ab"}'), ("lading-json", 1, zlib.crc32(b'\x01k\x02\x0b{"z":"ab"}\0').to_bytes(4, "little"))],
]
"""Headers of messages 0 to 6."""

FILTERS = [
    (HeaderFilter.exact("k", "ab"), [0]),
    (HeaderFilter.exact("k", "ab", inverse=True), [1, 2, 3, 4, 5, 6]),
    (HeaderFilter.exact("k", "5"), []),
    (HeaderFilter.regex("k", "a.$"), [0]),
    (HeaderFilter.regex("k", "^$"), [2, 3, 6]),
    (HeaderFilter.regex("k", "ab", inverse=True), [2, 3, 4, 6]),
    (HeaderFilter.glob("k", "*ab?"), [1]),
    (HeaderFilter.glob("k", "{a,xa}[!c-z]*"), [0, 1]),
    (HeaderFilter.any([("k", "ab"), ("other", "ab")]), [0, 3]),
    (HeaderFilter.all([("k", "ab"), ("n", "1")]), [0]),
    (HeaderFilter.all([("k", "ab"), ("n", "1")], inverse=True), [1, 2, 3, 4, 5, 6]),
    (HeaderFilter.exact("k.z", "ab"), [5, 6]),
    (HeaderFilter.exact("k.list.1", "yes"), [5]),
    (HeaderFilter.exact(r"k\.z", "ab"), []),
    (HeaderFilter.exact("k.?", "ab"), [5, 6]),
    (HeaderFilter.exact("k.[xz]", "ab"), [5, 6]),
]


def test_filters_let_through_what_they_say_the_rest_is_done(broker: Broker) -> None:
    topic = topic_of(broker)
    put(broker, topic.partition(0), *(b"%d" % at for at in range(len(FILTERED))), headers=FILTERED)
    for number, (wanted, expected) in enumerate(FILTERS):
        channel = broker.channels.open(topic, f"{number}#ephemeral")
        channel.seek(0, 0)
        reader = Reader(header_filter=wanted).subscribe(channel, 4)
        pump(broker)
        reader.finish(*[got[1] for got in reader.got])
        pump(broker)
        assert [int(payload) for payload in reader.payloads()] == expected, wanted
        counts = channel.statistics()
        assert (counts.depth, counts.filtered) == (0, len(FILTERED) - len(expected)), wanted


WRONG: list[Callable[[], HeaderFilter]] = [
    lambda: HeaderFilter.exact("", "x"),
    lambda: HeaderFilter.exact("k", ""),
    lambda: HeaderFilter.regex("k", "("),
    lambda: HeaderFilter.regex("k", r"(a)\1"),
    lambda: HeaderFilter.regex("k", "x" * 5000),
    # each compiles for a quarter of a second to six seconds
    lambda: HeaderFilter.regex("k", "a{0,1000}" * 400),
    lambda: HeaderFilter.regex("k", "a{0,1000}" * 40),
    lambda: HeaderFilter.regex("k", "(?:a?){0,1000}" * 100),
    lambda: HeaderFilter.regex("k", r"\pL" * 1300),
    lambda: HeaderFilter.regex("k", r"[\pL\pN]{100}"),
    lambda: HeaderFilter.glob("k", "[a]" + "*" * 4000),
    lambda: HeaderFilter.glob("k", "*" * 5000),
    lambda: HeaderFilter.glob("k", "[a"),
    lambda: HeaderFilter.glob("k", "{a"),
    lambda: HeaderFilter.any([]),
    lambda: HeaderFilter.all([("k", "x")] * 300),
]


def test_what_is_no_filter_is_refused() -> None:
    for make in WRONG:
        with pytest.raises(FilterError):
            make()


PATTERNS = [
    (r"^(?:UA|AA|DL)-[0-9]{1,4}$", 44),
    ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", 260),
    ("a{0,1000}", 4000),
    ("x" * 4096, 4096),
    ("[]{a]+?b", 9),
    (r"(?i)\pL \.\w", 412),
    ("(?P<name>a|b)*)", 17),
    ("((a{0,10}){0,10}){0,10}", 65_640),
]
"""Patterns, and what they cost."""


@pytest.mark.parametrize(("pattern", "cost"), PATTERNS)
def test_what_a_pattern_costs(pattern: str, cost: int) -> None:
    assert pattern_cost(pattern) == cost


def test_a_filter_of_many_headers_decodes_a_page_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topic_of(broker)
    tests = [(f"k{number}", "v") for number in range(filters.CLAUSES_MAX)]
    reader = Reader(header_filter=HeaderFilter.any(tests)).subscribe(broker.channels.open(topic, "c"), 4)
    put(broker, topic.partition(0), b"m", b"n", headers=[[("k255", b"v")], [("k0", b"x")]])
    decode, decoded = registry.decode, list[object]()

    def counted(run: Run, request: ScanRequest) -> object:
        decoded.append(request)
        return decode(run, request)

    monkeypatch.setattr(registry, "decode", counted)
    pump(broker)
    assert reader.payloads() == [b"m"]
    # for all keys together, and for which messages have headers at all
    assert len(decoded) <= 2


def test_a_filter_of_many_tests_reads_a_json_value_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    tests = [(f"k.k{number}.*", "v") for number in range(filters.CLAUSES_MAX)]
    reader = Reader(header_filter=HeaderFilter.any(tests)).subscribe(channel, 4)
    large = b'{"k255":{"x":"v"},"pad":[' + b",".join([b"{}"] * 20_000) + b"]}"
    put(broker, topic.partition(0), b"m", b"n", headers=[[("k", large)], [("k", b"{}")]])
    parse, parsed = filters._parse_json, list[bytes | None]()

    def counted(text: bytes | None) -> object:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(filters, "_parse_json", counted)
    pump(broker)
    assert reader.payloads() == [b"m"]
    assert len(parsed) == 2


def test_a_pattern_cannot_hold_up_the_broker(broker: Broker) -> None:
    """``(a+)+$`` takes a backtracking matcher longer than anybody lives."""
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    reader = Reader(header_filter=HeaderFilter.regex("k", "^(a+)+$")).subscribe(channel, 4)
    put(broker, topic.partition(0), b"m", headers=[[("k", b"a" * 5000 + b"!")]])
    pump(broker)
    assert reader.got == []


COSTLY_PATTERNS = [".*a.{100}c", "a.{30}c", "[ab]*a[ab]{12}c", r"\pL*a\pL{3}c", "x" * 250 + "|y", "(?:.*a){15}.{40}c"]
"""RE2 takes up to 8 ns for each byte of a text and step of these."""


@pytest.mark.parametrize("pattern", COSTLY_PATTERNS)
def test_a_pass_matches_as_many_texts_as_it_has_time_for(broker: Broker, pattern: str) -> None:
    """Two filters, 12 texts of 1,000 bytes, of which each takes up to 8 ms: no pass computes above 20 ms."""
    topic = topic_of(broker)
    random = Random(1)
    texts = ["".join(random.choice("ab") for _ in range(1000)).encode() for _ in range(11)]
    hit = b"x" * 1000 if pattern[0] == "x" else b"a" * 200 + b"c"
    headers: list[Headers] = [[("k", text)] for text in (*texts, hit)]
    put(broker, topic.partition(0), *(b"%d" % at for at in range(12)), headers=headers)
    longest_ms = []
    for attempt in range(3):
        channel = broker.channels.open(topic, f"{attempt}#ephemeral")
        channel.seek(0, 0)
        for suffix in ("", "|zz"):
            Reader(header_filter=HeaderFilter.regex("k", pattern + suffix)).subscribe(channel, 100)
        passes_ms: list[float] = []
        while len(passes_ms) < 1000 and (not passes_ms or broker.channels._awake):
            started_s = time.thread_time()
            broker.channels.pump(NOW)
            passes_ms.append((time.thread_time() - started_s) * 1e3)
        counts = channel.statistics()
        assert (counts.delivered, counts.filtered) == (1, 11)
        longest_ms.append(max(passes_ms))
    assert min(longest_ms) < 20


def test_a_glob_of_stars_and_question_marks_is_not_limited(broker: Broker) -> None:
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    reader = Reader(header_filter=HeaderFilter.glob("k", r"*\*%_" + "*a" * 1500 + "?" + "*")).subscribe(channel, 4)
    texts = [b"x*%_" + b"a" * 20_000, b"x*%_" + b"a" * 1500, b"y%_" + b"a" * 2000]
    put(broker, topic.partition(0), b"0", b"1", b"2", headers=[[("k", text)] for text in texts])
    pump(broker)
    assert reader.payloads() == [b"0"]


def test_a_text_that_takes_too_long_does_not_match(broker: Broker) -> None:
    """A text cannot be matched in parts; the limit depends on the pattern."""
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    reader = Reader(header_filter=HeaderFilter.regex("k", "a[ab]{100}$")).subscribe(channel, 9)
    texts = [b"a" * size for size in (100, 101, 1200, 1400, 60_000)]
    put(broker, topic.partition(0), *(b"%d" % len(text) for text in texts), headers=[[("k", text)] for text in texts])
    pump(broker)
    assert reader.payloads() == [b"101", b"1200"]


def test_a_producers_large_batch_is_decoded_in_parts(broker: Broker) -> None:
    """Tags and filters need what is in messages: a pass of the event loop looks into a part of 4 MB, not into all."""
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    reader = Reader(tag="A").subscribe(channel, 5000)
    tagged = [[("##client_dispatch_tag", b"A")]] * 64
    random = Random(1)
    put(broker, topic.partition(0), *(random.randbytes(1 << 16) for _ in range(64)), headers=tagged)
    broker.channels.pump(NOW)
    assert 1 <= len(reader.got) <= 4 * partition_dispatcher.DECODED_BYTES >> 16
    for _ in range(64):
        broker.channels.pump(NOW)
    pump(broker)
    assert len(reader.got) == 64
    # what comes back from a reader who leaves, too
    channel.leave(reader.subscriber)
    other = Reader(tag="A").subscribe(channel, 5000)
    broker.channels.pump(NOW)
    assert 1 <= len(other.got) <= 4 * partition_dispatcher.DECODED_BYTES >> 16
    for _ in range(64):
        broker.channels.pump(NOW)
    pump(broker)
    assert [one[1] for one in other.got] == list(range(64))


def test_sampling_takes_about_its_share(broker: Broker) -> None:
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    reader = Reader(sample_percent=30).subscribe(channel, 5000)
    fill(broker, topic.partition(0), 2000)
    pump(broker)
    assert 500 < len(reader.got) < 700
    assert channel.statistics().filtered == 2000 - len(reader.got)


# -- order, operators, exhaustion


def test_an_ordered_channel_gives_the_next_message_when_the_one_before_is_finished(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    reader, other = Reader().subscribe(channel, 100, ordered=True), Reader().subscribe(channel, 100)
    fill(broker, topic.partition(0), 3)
    pump(broker)
    assert [got[1] for got in reader.got + other.got] == [0]
    holder = reader if reader.got else other
    channel.requeue(holder.subscriber, 0, 0, 60 * SECOND, now_us=NOW)
    pump(broker)
    assert sorted(got[1:] for got in reader.got + other.got) == [(0, b"0", 1), (0, b"0", 2)]
    second = max(reader, other, key=lambda one: one.subscriber.in_flight)
    assert second.finish(0) == 1
    pump(broker)
    assert max(got[1] for got in reader.got + other.got) == 1
    broker.stop()
    broker = opened(tmp_path)
    assert broker.channels.open(broker.topology.topic("s", "t"), "c").ordered
    broker.stop()


def test_pause_skip_empty_and_move(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    reader = Reader().subscribe(channel, 2, 0)
    channel.pause()
    fill(broker, topic.partition(0), 5)
    pump(broker)
    assert reader.got == [] and channel.statistics().depth == 5
    channel.unpause()
    pump(broker)
    assert reader.payloads() == [b"0", b"1"]
    assert channel.empty() == 3
    assert (reader.subscriber.in_flight, channel.statistics().depth, reader.finish(0)) == (0, 0, 0)
    channel.seek(0, 3)
    pump(broker)
    assert reader.payloads() == [b"3", b"4"]
    channel.skip()
    fill(broker, topic.partition(0), 5)
    broker.tick(NOW)
    assert channel.statistics().skipped == 8
    channel.unskip()
    fill(broker, topic.partition(0), 1, prefix="last ")
    pump(broker)
    assert reader.payloads() == [b"last 0"]


def test_what_was_delivered_as_often_as_allowed_leaves_once_it_has_arrived_elsewhere(
    broker: Broker, topic: Topic
) -> None:
    letters: list[tuple[int, int, Append]] = []

    def exhausted(channel: Channel, given_up: GivenUp) -> Append:
        letters.append((given_up.offsets[0], given_up.attempts, Append(0, 1, 1, 1)))
        return letters[-1][2]

    broker.channels.on_exhausted = exhausted
    channel = broker.channels.open(topic, "c")
    broker.at_once.alter_topic(topic, replace(topic.settings, attempts_max=2))
    reader = Reader(timeout_us=SECOND).subscribe(channel, 1)
    put(broker, topic.partition(0), b"poison", b"fine")
    pump(broker)
    channel.requeue(reader.subscriber, 0, 0, 0, now_us=NOW)
    pump(broker)
    # what came back goes behind what waits
    reader.finish(1)
    pump(broker)
    broker.tick(NOW + 2 * SECOND)
    pump(broker)
    assert [got[2:] for got in reader.got] == [(b"poison", 1), (b"fine", 1), (b"poison", 2)]
    assert [letter[:2] for letter in letters] == [(0, 2)]
    # it did not arrive: it is tried again, then it is done
    letters[0][2].finish(Refusal(Reason.DISK_FULL, "full"))
    broker.tick(NOW + 4 * SECOND)
    assert len(letters) == 2 and channel.statistics().exhausted == 0
    letters[1][2].finish(None)
    assert channel.statistics().exhausted == 1
    assert finish(list_states(topic.partition(0), 0, 2)) == []


@pytest.mark.parametrize("poison", [False, True])
def test_what_a_channel_gives_up_goes_to_the_dead_letter_topic(broker: Broker, topic: Topic, poison: bool) -> None:
    settings = replace(topic.settings, attempts_max=1, dead_letter_topic="s.dead", poison_given_up=poison)
    broker.at_once.alter_topic(topic, settings)
    channels = [broker.channels.open(topic, name) for name in ("one", "two")]
    readers = [Reader().subscribe(channel, 1, 0) for channel in channels]
    put(broker, topic.partition(0), b"poison", b"fine")
    broker.channels.pump(NOW)
    channels[0].requeue(readers[0].subscriber, 0, 0, 0, now_us=NOW)
    copy = broker.dead_letters.next(NOW)
    assert copy is not None
    copy.encode()
    assert broker.dead_letters.send(copy, NOW) is not None
    broker.appender.flush()
    dead = broker.topology.topic("s", "dead")
    assert payloads(read(broker, dead.partition(0))) == [b"poison"]
    assert finish(list_states(topic.partition(0), 0, 2)) == ([(0, 1, 20)] if poison else [])
    pump(broker)
    assert readers[0].got[-1][2] == b"fine"
    assert readers[1].got == [(0, 0, b"poison", 1)]
    assert (channels[0].statistics().exhausted, broker.counters.exhausted_messages) == (1, 1)


# -- bounds


def test_a_message_nobody_finishes_does_not_stop_the_others(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_dispatcher, "LOOKAHEAD_MAX", 64)
    monkeypatch.setattr(partition_dispatcher, "PAGE_MESSAGES", 16)
    channel = broker.channels.open(topic, "c")
    reader = Reader(timeout_us=3600 * SECOND).subscribe(channel, 20)
    fill(broker, topic.partition(0), 500)
    pump(broker)
    for _ in range(200):
        rest = [got[1] for got in reader.got if got[1]]
        reader.got = [got for got in reader.got if not got[1]]
        if not rest:
            break
        assert reader.finish(*rest) == len(rest)
        pump(broker)
    assert channel.statistics().finished == 499
    assert channel.lanes[0].window.first > 0 and len(channel.lanes[0].out_of_window) == 1
    assert reader.finish(0) == 1 and reader.subscriber.in_flight == 0


def test_of_a_window_with_many_holes_the_rest_is_delivered_again_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "RANGES_MAX", 3)
    broker = opened(tmp_path)
    topic = topic_of(broker)
    reader = Reader().subscribe(broker.channels.open(topic, "c"), 100)
    fill(broker, topic.partition(0), 20)
    pump(broker)
    for offset in range(1, 20, 2):
        reader.finish(offset)
    broker.tick(NOW + SECOND)
    broker.catalog.close()
    broker = opened(tmp_path)
    again = Reader().subscribe(broker.channels.open(broker.topology.topic("s", "t"), "c"), 100)
    pump(broker)
    assert sorted(got[1] for got in again.got) == [0, 2, 4, *range(6, 20)]
    broker.stop()


def test_what_the_log_lost_is_not_taken_for_done(tmp_path: Path) -> None:
    """A channel that was ahead of a log whose tail was cut gets the messages that have those offsets now."""
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 3)
    channel = broker.channels.open(partition.topic, "c")
    reader = Reader().subscribe(channel, 10)
    pump(broker)
    reader.finish_all()
    row = store.row_of("c", channel.lanes[0], 0, NOW)
    broker.catalog.put_positions([row._replace(offset=9)])
    broker.catalog.close()
    broker = opened(tmp_path)
    again = Reader().subscribe(broker.channels.open(broker.topology.topic("s", "t"), "c"), 10)
    put(broker, broker.topology.topic("s", "t").partition(0), b"new")
    pump(broker)
    assert again.payloads() == [b"new"]
    broker.stop()


def test_idle_channels_take_no_part_of_a_tick_and_follow_retention(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of them would take milliseconds of every client's time, twenty times a second."""
    partition = topic.partition(0)
    idle = [broker.channels.open(topic, f"idle{number}") for number in range(100)]
    reader = Reader().subscribe(broker.channels.open(topic, "read"), 1)
    put(broker, partition, b"one", b"two", b"three")
    now_us = NOW
    for _ in range(40):
        now_us += SECOND // 20
        broker.channels.tick(now_us)
    looked_at: list[str] = []
    expire = Channel.expire_in_turns

    def counted(channel: Channel, clock: Callable[[], int]) -> Turns[None]:
        looked_at.append(channel.name)
        return expire(channel, clock)

    monkeypatch.setattr(Channel, "expire_in_turns", counted)
    for _ in range(20):
        now_us += SECOND // 20
        broker.channels.tick(now_us)
    assert looked_at.count("read") >= 20
    assert 100 <= len(looked_at) - looked_at.count("read") <= 120
    assert set(looked_at) == {one.name for one in idle} | {"read"}
    partition.log.truncate_before(2)
    # at once for who asks, within a round for what is stored
    assert {one.statistics().depth for one in idle[:50]} == {1}
    for _ in range(20):
        now_us += SECOND // 20
        broker.channels.tick(now_us)
    assert {one.lanes[0].window.end for one in idle} == {2}
    pump(broker)
    assert reader.payloads() == [b"three"]


def test_open_and_aborted_transactions_are_not_delivered(broker: Broker, topic: Topic) -> None:
    reader = Reader().subscribe(broker.channels.open(topic, "c"), 10)
    partition = topic.partition(0)
    aborted, committed = broker.native_transactions.begin(now_us=NOW), broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"never", transaction=aborted))
    append_block(broker, partition, block(b"in the end", transaction=committed))
    put(broker, partition, b"behind")
    pump(broker)
    assert reader.payloads() == []
    broker.native_transactions.abort([aborted], now_us=NOW)
    broker.native_transactions.commit("key", [committed], now_us=NOW)
    pump(broker)
    assert reader.payloads() == [b"in the end", b"behind"]


# -- kernels and their twins


def test_kernels_and_twins_agree() -> None:
    kernels = engine.load("lading.broker.channels.kernels")
    random = np.random.default_rng(7)
    for _ in range(200):
        first = int(random.integers(0, 1000))
        end = first + int(random.integers(0, 64))
        owners = random.integers(-2, 3, 64).astype(np.int32)
        offsets = random.integers(first - 2, end + 2, int(random.integers(0, 12)))
        results = []
        for implementation in (finish_twin, kernels.finish):
            mine = owners.copy()
            results.append((*implementation(offsets, 0, mine, first, end, 1), mine.tolist()))
        assert results[0] == results[1]
