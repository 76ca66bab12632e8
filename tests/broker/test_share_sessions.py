"""Share sessions by themselves: locks that time out, limits, and histories of one queue against a model."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from lading.broker import share_sessions
from lading.broker.broker import Broker
from lading.broker.channels import Subscriber
from lading.broker.channels.channel import HOLD_US
from lading.broker.channels.partition_dispatcher import PartitionDispatcher
from lading.broker.channels.window import Window
from lading.broker.core.topology import Topic
from lading.broker.group_changes import GroupPosition
from lading.broker.kafka.share_group import ShareGroup, ShareGroupMember
from lading.broker.share_sessions import ACCEPT, REJECT, RELEASE, RENEW, AcknowledgementBatch, ShareSession
from lading.dialects import registry
from lading.log.dead_letter_intents import DeadLetterIntentRow, DeadLetterIntentStore
from lading.model.errors import Reason, Refusal
from lading.model.scan_request import ScanRequest
from lading.runtime.turns import ROWS_AT_ONCE, finish
from tests.broker.channel_room import Reader, put
from tests.broker.room import NOW, SECOND, append_block, block, opened, payloads, read, topic_of

GROUP = "g"
LOCK_US = 30 * SECOND


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = opened(tmp_path / "data")
    yield running
    running.stop()


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return topic_of(broker)


def configure(broker: Broker, **values: str) -> None:
    broker.kafka_configs.replace(32, GROUP, {f"share.{name.replace('_', '.')}": text for name, text in values.items()})


def open_session(broker: Broker, topic: Topic, member: str = "m") -> ShareSession:
    """A session that reads partition 0 from the first message on, unless the queue exists."""
    configured = dict(broker.kafka_configs.find(32, GROUP))
    if "share.auto.offset.reset" not in configured:
        broker.kafka_configs.replace(32, GROUP, configured | {"share.auto.offset.reset": "earliest"})
    session = finish(broker.share_sessions.open(GROUP, member))
    session.add(finish(broker.share_sessions.open_channel(GROUP, topic)), 0)
    return session


def take(
    broker: Broker, session: ShareSession, count: int, now_us: int = NOW, size_bytes: int = 1 << 20
) -> list[tuple[int, int]]:
    """Acquire; the (offset, delivery count) of each message."""
    got: list[tuple[int, int]] = []
    for reader in session.take(count, size_bytes, broker.share_sessions.find_config(GROUP), now_us):
        for delivery in reader.deliveries:
            got += zip(delivery.offsets.tolist(), delivery.attempts.tolist(), strict=True)
        reader.deliveries = []
    return sorted(got)


def settle(broker: Broker, session: ShareSession, kind: int, *offsets: int, now_us: int = NOW) -> None:
    (reader,) = [*session.readers.values(), *session.forgotten.values()]
    batches = [AcknowledgementBatch(offset, offset, [kind]) for offset in offsets]
    broker.share_sessions.settle(reader, batches, now_us)
    broker.catalog_commit.confirm()
    broker.appender.flush()


def test_a_lock_that_times_out_gives_the_message_to_others(broker: Broker, topic: Topic) -> None:
    put(broker, topic.partition(0), b"a", b"b")
    one, two = open_session(broker, topic, "one"), open_session(broker, topic, "two")
    assert take(broker, one, 2) == [(0, 1), (1, 1)]
    assert take(broker, two, 2) == []
    later = NOW + 20 * SECOND
    settle(broker, one, RENEW, 1, now_us=later)
    broker.tick(NOW + LOCK_US + 1)
    assert take(broker, two, 2, NOW + LOCK_US + 1) == [(0, 2)]
    with pytest.raises(Refusal) as refused:
        settle(broker, one, ACCEPT, 0, now_us=NOW + LOCK_US + 2)
    assert refused.value.reason is Reason.NOT_IN_FLIGHT
    settle(broker, one, ACCEPT, 1, now_us=NOW + LOCK_US + 2)


def test_a_record_that_was_renewed_for_long_is_still_its_members(broker: Broker, topic: Topic) -> None:
    put(broker, topic.partition(0), b"a")
    session = open_session(broker, topic)
    now_us = NOW
    assert take(broker, session, 1) == [(0, 1)]
    # longer than a client of NSQ may touch a message
    for _ in range(60):
        now_us += 20 * SECOND
        settle(broker, session, RENEW, 0, now_us=now_us)
        broker.tick(now_us)
    settle(broker, session, ACCEPT, 0, now_us=now_us)


def test_a_member_gets_no_more_than_the_locks_of_a_partition_and_its_bytes(broker: Broker, topic: Topic) -> None:
    configure(broker, partition_max_record_locks="100")
    put(broker, topic.partition(0), *[b"x" * 1000] * 150)
    one, two = open_session(broker, topic, "one"), open_session(broker, topic, "two")
    assert len(take(broker, one, 60)) == 60
    assert len(take(broker, two, 60)) == 40
    settle(broker, one, ACCEPT, 0)
    assert [offset for offset, _ in take(broker, two, 60)] == [100]
    settle(broker, one, ACCEPT, *range(1, 60))
    assert len(take(broker, two, 60, size_bytes=1)) < 60


def test_a_session_takes_messages_of_all_its_partitions_in_turn(broker: Broker) -> None:
    topic = topic_of(broker, 3)
    for partition in topic.partitions:
        put(broker, partition, *[b"x"] * 4)
    session = open_session(broker, topic)
    for number in (1, 2):
        session.add(finish(broker.share_sessions.open_channel(GROUP, topic)), number)
    seen: set[int] = set()
    for _ in range(3):
        for reader in session.take(4, 1 << 20, broker.share_sessions.find_config(GROUP), NOW):
            seen |= {reader.number} if reader.deliveries else set()
            reader.deliveries = []
    assert seen == {0, 1, 2}


def test_a_forgotten_partition_keeps_what_its_member_has(broker: Broker, topic: Topic) -> None:
    put(broker, topic.partition(0), b"a", b"b")
    session = open_session(broker, topic)
    assert take(broker, session, 1) == [(0, 1)]
    session.forget((topic.uuid, 0))
    assert take(broker, session, 1) == []
    other = open_session(broker, topic, "other")
    assert take(broker, other, 2) == [(1, 1)]
    settle(broker, session, RELEASE, 0)
    assert take(broker, other, 2) == [(0, 2)]


def test_messages_of_an_older_session_of_a_member_are_settled_in_the_next(broker: Broker, topic: Topic) -> None:
    put(broker, topic.partition(0), b"a")
    first = open_session(broker, topic)
    assert take(broker, first, 1) == [(0, 1)]
    second = open_session(broker, topic)
    assert take(broker, second, 1) == []
    settle(broker, second, ACCEPT, 0)
    other = open_session(broker, topic, "other")
    assert take(broker, other, 1) == []


def test_the_next_session_of_a_member_is_woken_and_outlives_the_one_before(broker: Broker, topic: Topic) -> None:
    """Its connection may be found lost long after the member has opened a session on another one."""
    put(broker, topic.partition(0), b"a")
    former = open_session(broker, topic)
    assert take(broker, former, 1) == [(0, 1)]
    calls: list[str] = []
    former.on_ready = lambda: calls.append("former")
    session = finish(broker.share_sessions.open(GROUP, "m"))
    assert calls == ["former"]
    finish(broker.share_sessions.close(former))
    session.add(finish(broker.share_sessions.open_channel(GROUP, topic)), 0)
    session.on_ready = lambda: calls.append("next")
    finish(session.wait(broker.share_sessions.find_config(GROUP)))
    put(broker, topic.partition(0), b"b")
    broker.channels.pump(NOW)
    assert "next" in calls
    settle(broker, session, ACCEPT, 0, 1)


def test_a_session_that_another_one_replaced_reads_nothing_more(broker: Broker, topic: Topic) -> None:
    """A request of it may be under way on another connection: its readers were left in the queue for good."""
    former = open_session(broker, topic)
    second = open_session(broker, topic)
    (channel,) = broker.share_sessions.list_channels(GROUP)
    with pytest.raises(Refusal) as refused:
        broker.share_sessions.add(former, channel, 0)
    assert refused.value.reason is Reason.SHARE_SESSION_NOT_FOUND
    finish(broker.share_sessions.close(second))
    assert not channel.subscribers
    broker.share_sessions.delete_topic(GROUP, topic)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_sessions_of_many_partitions_follow_one_another_in_turns(broker: Broker, is_waiting: bool) -> None:
    """10,000 partitions took 108 ms in one pass of the loop, and a wait for them 17 ms."""
    topic = topic_of(broker, 5 * ROWS_AT_ONCE)
    put(broker, topic.partition(0), b"a")
    former = open_session(broker, topic)
    channel = finish(broker.share_sessions.open_channel(GROUP, topic))
    for number in range(1, len(topic.partitions)):
        former.add(channel, number)
    assert take(broker, former, 1) == [(0, 1)]
    if is_waiting:
        waiting = former.wait(broker.share_sessions.find_config(GROUP))
        assert sum(1 for _ in waiting) >= 4
    opening = broker.share_sessions.open(GROUP, "m")
    next(opening)
    assert former.is_closed
    # the member opens a third one before the second has all of the first
    third = finish(broker.share_sessions.open(GROUP, "m"))
    finish(opening)
    assert [reader.number for reader in third.forgotten.values()] == [0]
    assert len(channel.subscribers) == 1
    put(broker, topic.partition(1), b"b")
    broker.channels.pump(NOW)
    other = open_session(broker, topic, "other")
    other.add(channel, 1)
    assert take(broker, other, 5) == [(0, 1)], "what the former session waited for is not with it"
    settle(broker, third, ACCEPT, 0)


def test_a_wait_that_ends_while_it_begins_takes_no_message(broker: Broker) -> None:
    topic = topic_of(broker, 5 * ROWS_AT_ONCE)
    session = open_session(broker, topic)
    channel = finish(broker.share_sessions.open_channel(GROUP, topic))
    for number in range(1, len(topic.partitions)):
        session.add(channel, number)
    beginning = session.wait(broker.share_sessions.find_config(GROUP))
    next(beginning)
    session.stop_waiting()
    finish(beginning)
    for partition in topic.partitions:
        put(broker, partition, b"a")
    broker.channels.pump(NOW)
    assert not any(reader.deliveries for reader in session.readers.values())
    assert len(take(broker, session, 1_000)) == len(topic.partitions)


def test_a_member_that_waits_gets_no_more_than_the_locks_of_a_partition(broker: Broker, topic: Topic) -> None:
    configure(broker, partition_max_record_locks="100")
    put(broker, topic.partition(0), *[b"x"] * 150)
    session = open_session(broker, topic)
    assert len(take(broker, session, 200)) == 100
    calls: list[None] = []
    session.on_ready = lambda: calls.append(None)
    finish(session.wait(broker.share_sessions.find_config(GROUP)))
    broker.channels.pump(NOW)
    assert not calls
    settle(broker, session, ACCEPT, 0)
    for now_us in (NOW, NOW + HOLD_US):
        broker.channels.pump(now_us)
    assert len(calls) == 1


def test_messages_count_with_their_whole_batches(broker: Broker, topic: Topic) -> None:
    """A response holds the batches whole: of one message of each of many, it took memory for all of these."""
    random = Random(1)
    for _ in range(40):
        put(broker, topic.partition(0), *[random.randbytes(2_000) for _ in range(50)])
    session = open_session(broker, topic)
    assert len(take(broker, session, 2_000, size_bytes=1 << 30)) == 2_000
    settle(broker, session, RELEASE, *range(0, 2_000, 50))
    got = take(broker, session, 2_000, size_bytes=250_000)
    # no more than a page of the log beyond what was asked for
    assert 3 <= len(got) <= 14
    assert got + take(broker, session, 2_000, size_bytes=1 << 30) == [(offset, 2) for offset in range(0, 2_000, 50)]


def test_an_ephemeral_queue_goes_with_its_last_reader(broker: Broker, topic: Topic) -> None:
    """As the page of groups says: names of channels mean what they mean to NSQ."""
    session = finish(broker.share_sessions.open("g#ephemeral", "m"))
    session.add(finish(broker.share_sessions.open_channel("g#ephemeral", topic)), 0)
    finish(broker.share_sessions.close(session))
    assert broker.share_sessions.find_channel("g#ephemeral", topic) is None


def test_a_partition_that_comes_back_is_read_again(broker: Broker) -> None:
    topic = topic_of(broker, 2)
    session = open_session(broker, topic)
    session.add(finish(broker.share_sessions.open_channel(GROUP, topic)), 1)
    broker.at_once.delete_partitions(topic, 1)
    broker.at_once.add_partitions(topic, 1)
    assert [reader.number for reader in session.readers.values() if reader.is_lost] == [1]
    session.add(finish(broker.share_sessions.open_channel(GROUP, topic)), 1)
    put(broker, topic.partition(1), b"a")
    assert take(broker, session, 1) == [(0, 1)]


@pytest.mark.parametrize("is_rejected", [True, False])
def test_a_message_that_is_given_up_goes_to_the_dead_letter_topic_with_the_headers_of_kip_1191(
    broker: Broker, topic: Topic, is_rejected: bool
) -> None:
    configure(broker, delivery_count_limit="2")
    broker.at_once.alter_topic(topic, replace(topic.settings, dead_letter_topic="s.dead"))
    put(broker, topic.partition(0), b"poison", b"fine", headers=[[("own", b"1")]])
    session = open_session(broker, topic)
    assert take(broker, session, 1) == [(0, 1)]
    if is_rejected:
        settle(broker, session, REJECT, 0)
    else:
        settle(broker, session, RELEASE, 0)
        assert take(broker, session, 1) == [(0, 2)]
        settle(broker, session, RELEASE, 0)
    copy = broker.dead_letters.next(NOW)
    assert copy is not None
    copy.encode()
    assert broker.dead_letters.send(copy, NOW) is not None
    broker.appender.flush()
    dead = broker.topology.topic("s", "dead").partition(0)
    assert payloads(read(broker, dead)) == [b"poison"]
    (piece,) = read(broker, dead).pieces
    (decoded,) = registry.decode(piece.run, ScanRequest(0, 1))
    headers = {row["key"]: row["value"] for row in registry.to_batch(decoded).column("headers").to_pylist()[0] or ()}
    expected = {
        "own": b"1",
        "__dlq.errors.topic": b"s.t",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"0",
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"1" if is_rejected else b"2",
        "__dlq.errors.message": b"Offset rejected by client."
        if is_rejected
        else b"Offset delivery count exceeded the threshold.",
    }
    assert expected.items() <= headers.items()
    assert take(broker, session, 5) == [(1, 1)]


def test_intents_of_many_dead_letters_are_written_at_once(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write waits for the disk; after one that is refused, those before it would be made again."""
    broker.at_once.alter_topic(topic, replace(topic.settings, dead_letter_topic="s.dead"))
    put(broker, topic.partition(0), *[b"x"] * 400)
    session = open_session(broker, topic)
    take(broker, session, 400)
    counts: list[int] = []
    add = DeadLetterIntentStore.add

    def count(store: DeadLetterIntentStore, rows: Iterable[DeadLetterIntentRow]) -> list[int]:
        idents = add(store, rows)
        counts.append(len(idents))
        return idents

    monkeypatch.setattr(DeadLetterIntentStore, "add", count)
    settle(broker, session, REJECT, *range(0, 400, 2))
    assert counts == [4]


def test_members_of_a_topic_share_its_partitions_evenly() -> None:
    for partitions_count, members_count in ((3, 2), (2, 3), (5, 5), (1, 4), (7, 3), (4, 9)):
        group = ShareGroup("g", topics={"t": (b"t" * 16, partitions_count)})
        members = [ShareGroupMember(f"{number:03}") for number in range(members_count)]
        for member in members:
            group.subscribe(member, frozenset({"t"}))
        shares = [finish(group.assign(member)) for member in members]
        counts = [len(share) for share in shares]
        assert all(len(set(share)) == len(share) for share in shares)
        assert {number for share in shares for _, number in share} == set(range(partitions_count))
        assert max(counts) - min(counts) <= 1
        by_partition = [sum((b"t" * 16, number) in share for share in shares) for number in range(partitions_count)]
        assert max(by_partition) - min(by_partition) <= 1


class World:
    """A queue of two members and a client of NSQ, next to a model of it: owners and settled messages."""

    def __init__(self, path: Path, random: Random) -> None:
        self.path, self.random = path, random
        self.now_us = NOW
        self.broker = opened(path)
        self.topic = topic_of(self.broker)
        self.written = 0
        self.attempts: dict[int, int] = {}
        self.owner: dict[int, tuple[str, int]] = {}
        """Member and deadline of each message that is out."""
        self.done: set[int] = set()
        self.begin()

    def begin(self) -> None:
        configure(self.broker, auto_offset_reset="earliest", delivery_count_limit="4")
        self.sessions = {name: open_session(self.broker, self.topic, name) for name in ("one", "two")}
        self.reader = Reader(timeout_us=LOCK_US).subscribe(self.broker.channels.open(self.topic, GROUP), 0)

    def write(self) -> None:
        count = self.random.randrange(1, 12)
        put(self.broker, self.topic.partition(0), *[b"x"] * count, now_us=self.now_us)
        self.written += count

    def note_taken(self, member: str, offset: int, attempts: int) -> None:
        assert offset not in self.done, f"{offset} was settled, and came again"
        assert offset not in self.owner, f"{offset} is with {self.owner[offset]}"
        assert attempts == self.attempts.get(offset, 0) + 1, (offset, attempts, self.attempts.get(offset))
        self.attempts[offset] = attempts
        self.owner[offset] = member, self.now_us + LOCK_US

    def take(self) -> None:
        name = self.random.choice(["one", "two"])
        count = self.random.randrange(1, 9)
        got = take(self.broker, self.sessions[name], count, self.now_us)
        assert len(got) <= count
        for offset, attempts in got:
            self.note_taken(name, offset, attempts)

    def take_by_nsq(self) -> None:
        self.reader.subscriber.set_ready(self.reader.subscriber.in_flight + self.random.randrange(1, 5))
        for _ in range(3):
            self.broker.channels.pump(self.now_us)
        self.reader.subscriber.set_ready(0)
        got, self.reader.got = self.reader.got, []
        for _, offset, _, attempts in got:
            self.note_taken("nsq", offset, attempts)

    def settle(self) -> None:
        mine = sorted(offset for offset in self.owner if self.owner[offset][0] != "nsq")
        if not mine:
            return
        name = self.owner[self.random.choice(mine)][0]
        mine = [offset for offset in mine if self.owner[offset][0] == name]
        some = self.random.sample(mine, self.random.randrange(1, len(mine) + 1))
        kind = self.random.choice([ACCEPT, ACCEPT, RELEASE, REJECT, RENEW])
        settle(self.broker, self.sessions[name], kind, *sorted(some), now_us=self.now_us)
        for offset in some:
            if kind == RENEW:
                self.owner[offset] = name, self.now_us + LOCK_US
                continue
            del self.owner[offset]
            if kind != RELEASE or self.attempts[offset] >= 4:
                self.done.add(offset)

    def finish_by_nsq(self) -> None:
        mine = sorted(offset for offset, (name, _) in self.owner.items() if name == "nsq")
        if mine:
            offset = self.random.choice(mine)
            assert self.reader.finish(offset) == 1
            del self.owner[offset]
            self.done.add(offset)
            # a client of NSQ gets no response: a kill may bring back what was stored no more
            self.broker.channels.store(self.now_us)

    def settle_wrongly(self) -> None:
        """One member settles a message of another: refused, and nothing happens."""
        others = [offset for offset, (name, _) in self.owner.items() if name != "one"]
        if others:
            with pytest.raises(Refusal):
                settle(self.broker, self.sessions["one"], ACCEPT, self.random.choice(others), now_us=self.now_us)

    def wait(self) -> None:
        self.now_us += self.random.randrange(1, LOCK_US)
        self.broker.tick(self.now_us)
        for offset, (_, deadline_us) in list(self.owner.items()):
            if deadline_us <= self.now_us:
                del self.owner[offset]
                if self.attempts[offset] >= 4:
                    self.done.add(offset)

    def kill(self) -> None:
        """Go on with the files as they are: nothing that is in memory alone was written."""
        path = self.path.with_name(f"{self.path.name}-")
        shutil.copytree(self.path, path)
        self.broker.stop()
        self.path = path
        self.broker = opened(path)
        self.topic = self.broker.topology.topic("s", "t")
        self.owner.clear()
        self.begin()
        # how often a message was delivered is stored with what is settled, a moment later for all else
        lane = self.sessions["one"].readers[self.topic.uuid, 0].lane
        for offset in self.attempts:
            if offset not in self.done:
                entry = lane.out_of_window.get(offset)
                inside = lane.window.first <= offset < lane.window.end
                stored = entry.attempts if entry is not None else lane.window.attempts(offset) if inside else 0
                assert stored <= self.attempts[offset]
                self.attempts[offset] = stored

    def drain(self) -> None:
        """All that is left comes, once each, until it is done."""
        for _ in range(200):
            for name, session in self.sessions.items():
                for offset, attempts in take(self.broker, session, 100, self.now_us):
                    self.note_taken(name, offset, attempts)
                mine = sorted(offset for offset, owner in self.owner.items() if owner[0] == name)
                if mine:
                    settle(self.broker, session, ACCEPT, *mine, now_us=self.now_us)
                for offset in mine:
                    del self.owner[offset]
                    self.done.add(offset)
            if len(self.done) == self.written:
                break
            self.now_us += LOCK_US
            self.broker.tick(self.now_us)
            for offset in [offset for offset, owner in self.owner.items() if owner[0] == "nsq"]:
                del self.owner[offset]
                if self.attempts[offset] >= 4:
                    self.done.add(offset)
        assert self.done == set(range(self.written)), sorted(set(range(self.written)) - self.done)


@pytest.mark.parametrize("seed", range(6))
def test_histories_agree_with_a_model(tmp_path: Path, seed: int, full: bool) -> None:
    for one in range(seed, 300 if full else seed + 1, 6):
        random = Random(one)
        world = World(tmp_path / f"{one}", random)
        steps = [
            world.write, world.take, world.take, world.take_by_nsq, world.settle, world.settle, world.finish_by_nsq,
            world.settle_wrongly, world.wait, world.kill,
        ]  # fmt: skip
        for _ in range(80):
            random.choices(steps, [3, 4, 4, 3, 4, 4, 3, 1, 1, 0.5])[0]()
        world.drain()
        world.broker.stop()


def test_a_group_is_shown_reset_and_deleted_like_any_other(broker: Broker, topic: Topic) -> None:
    put(broker, topic.partition(0), *[b"x"] * 5)
    broker.coordinated_groups.share.create(GROUP)
    session = open_session(broker, topic)
    assert take(broker, session, 2) == [(0, 1), (1, 1)]
    settle(broker, session, ACCEPT, 0)
    view = next(view for view in finish(broker.group_views.list_all()) if view.protocol == "kafka")
    assert (view.name, view.state, [place.lag for place in view.progress]) == (GROUP, "Empty", [4])
    with pytest.raises(Refusal):
        broker.group_changes.reset(view, [GroupPosition(topic.partition(0), 3)], now_us=NOW)
    finish(broker.share_sessions.close(session))
    broker.group_changes.reset(view, [GroupPosition(topic.partition(0), 3)], now_us=NOW)
    assert take(broker, open_session(broker, topic), 5) == [(3, 1), (4, 1)]
    for session in list(broker.share_sessions._sessions.values()):
        finish(broker.share_sessions.close(session))
    for step in broker.group_changes.delete(view):
        step()
    assert broker.channels.find(topic, GROUP) is None
    assert [view.name for view in finish(broker.group_views.list_all())] == []


@pytest.mark.parametrize("is_uncommitted", [True, False])
def test_messages_of_transactions_are_delivered_as_the_isolation_level_says(
    tmp_path: Path, is_uncommitted: bool
) -> None:
    broker = opened(tmp_path / "data")
    topic = topic_of(broker)
    configure(broker, isolation_level="read_uncommitted" if is_uncommitted else "read_committed")
    partition = topic.partition(0)
    aborted, committed = broker.native_transactions.begin(now_us=NOW), broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"bad", transaction=aborted))
    append_block(broker, partition, block(b"good", transaction=committed))
    session = open_session(broker, topic)
    assert take(broker, session, 5) == ([(0, 1), (1, 1)] if is_uncommitted else [])
    if is_uncommitted:
        settle(broker, session, RELEASE, 0, 1)
        # what was read of open transactions is kept over a restart, and comes again
        broker.channels.store(NOW)
        broker.stop()
        broker = opened(tmp_path / "data")
        topic = broker.topology.topic("s", "t")
        reader = Reader().subscribe(broker.channels.open(topic, GROUP), 5)
        broker.channels.pump(NOW)
        assert [got[1:] for got in reader.got] == [(0, b"bad", 2), (1, b"good", 2)]
    else:
        broker.native_transactions.abort([aborted], now_us=NOW)
        broker.native_transactions.commit("key", [committed], now_us=NOW)
        broker.appender.flush()
        assert [offset for offset, _ in take(broker, session, 5)] == [1]
    broker.stop()


def test_sessions_and_their_partitions_are_bounded(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_sessions, "SESSIONS_MAX", 2)
    monkeypatch.setattr(share_sessions, "READERS_MAX", 1)
    sessions = broker.share_sessions
    channel = finish(sessions.open_channel(GROUP, topic))
    client = object()
    for _ in range(3):
        # another session of the same member replaces the one before
        first = finish(sessions.open(GROUP, "one", client))
        sessions.add(first, channel, 0)
        finish(sessions.close(first))
    first, second = finish(sessions.open(GROUP, "one", client)), finish(sessions.open(GROUP, "two"))
    sessions.add(first, channel, 0)
    with pytest.raises(Refusal) as refused:
        sessions.add(second, channel, 0)
    assert refused.value.reason is Reason.TOO_MANY_SHARE_SESSIONS
    with pytest.raises(Refusal) as refused:
        finish(sessions.open(GROUP, "three"))
    assert refused.value.reason is Reason.TOO_MANY_SHARE_SESSIONS
    finish(sessions.close_all(client))
    sessions.add(second, channel, 0)
    finish(sessions.open(GROUP, "three"))


def test_many_messages_are_rejected_at_once(broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 of them kept the loop for 113 ms, when each was dropped by itself."""
    drops: list[int] = []
    drop = Window.drop

    def count(window: Window, offsets: NDArray[np.int64]) -> None:
        drops.append(len(offsets))
        drop(window, offsets)

    put(broker, topic.partition(0), *[b"x"] * 1_000)
    session = open_session(broker, topic)
    assert len(take(broker, session, 1_000)) == 1_000
    monkeypatch.setattr(Window, "drop", count)
    (reader,) = session.readers.values()
    broker.share_sessions.settle(reader, [AcknowledgementBatch(0, 999, [REJECT])], NOW)
    assert drops == [1_000]
    assert (reader.lane.window.first, len(reader.lane.out_of_window)) == (1_000, 0)
    assert reader.channel.statistics().exhausted == 1_000


def test_a_session_of_many_partitions_is_closed_in_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them kept the loop for 327 ms, since each left each partition of its topic."""
    topic = topic_of(broker, 300, "wide")
    session = finish(broker.share_sessions.open(GROUP, "m"))
    channel = finish(broker.share_sessions.open_channel(GROUP, topic))
    for number in range(300):
        broker.share_sessions.add(session, channel, number)
    asked = 0
    has = PartitionDispatcher.has

    def count(lane: PartitionDispatcher, subscriber: Subscriber) -> bool:
        nonlocal asked
        asked += 1
        return has(lane, subscriber)

    monkeypatch.setattr(PartitionDispatcher, "has", count)
    turns = sum(1 for _ in broker.share_sessions.close(session))
    assert turns >= 300 // ROWS_AT_ONCE
    assert asked == 300
    assert not channel.subscribers


def test_configs_that_change_hold_for_sessions_that_are_open(broker: Broker, topic: Topic) -> None:
    configure(broker, auto_offset_reset="earliest")
    put(broker, topic.partition(0), b"a")
    session = open_session(broker, topic)
    (reader,) = session.readers.values()
    assert (reader.channel.attempts_max, reader.channel.is_uncommitted) == (5, True)
    configure(broker, auto_offset_reset="earliest", delivery_count_limit="2", isolation_level="read_committed")
    for attempt in (1, 2):
        assert take(broker, session, 1) == [(0, attempt)]
        settle(broker, session, RELEASE, 0)
    assert take(broker, session, 1) == []
    assert (reader.channel.attempts_max, reader.channel.is_uncommitted) == (2, False)
