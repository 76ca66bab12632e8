"""Messages that enter the log later: nobody sees them before they are due, nothing is lost by a crash."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.core.append.append import WriteResult
from lading.broker.core.pending_append import Append
from lading.broker.core.topology import Partition
from lading.dialects import registry
from lading.dialects.native.messages import BlockHeader, encode_block
from lading.model.errors import Reason, Refusal
from tests.broker.channel_room import Reader
from tests.broker.room import NOW, SECOND, append, batch, opened, payloads, read, topic_of
from tests.faults.faulty import FaultyDisk, failing


def postpone(broker: Broker, partition: Partition, due_s: int, *texts: bytes, dialect: str = "native") -> Append:
    """Messages that are due so many seconds from now, acknowledged."""
    done = ask_to_postpone(broker, partition, due_s, *texts, dialect=dialect)
    assert done.done and done.error is None
    return done


def ask_to_postpone(broker: Broker, partition: Partition, due_s: int, *texts: bytes, dialect: str = "native") -> Append:
    """The same, whether they are acknowledged or refused."""
    room = registry.dialect(dialect)
    if dialect == "native":
        body = encode_block(batch(*texts, timestamp_us=NOW), BlockHeader(bytes(16), 0, 0, 0))
    else:
        body = room.encode(batch(*texts, timestamp_us=NOW))
    source = np.frombuffer(body, np.uint8)

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        array[at : at + len(source)] = source
        return WriteResult(len(source), len(texts), NOW, NOW)

    done = broker.postponed.append(partition, NOW + due_s * SECOND, room.code, 0, len(source), write)
    broker.appender.flush()
    return done


def later(broker: Broker, seconds: int) -> list[bytes]:
    """What any reader sees after so many seconds."""
    broker.tick(NOW + seconds * SECOND)
    broker.appender.flush()
    return payloads(read(broker, broker.topology.topic("s", "t").partition(0)))


@pytest.mark.parametrize("dialect", ["native", "nsq"])
def test_they_enter_in_order_of_their_time_and_only_once(tmp_path: Path, dialect: str) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    for due_s, text in ((30, b"c"), (10, b"a"), (20, b"b")):
        postpone(broker, partition, due_s, text, dialect=dialect)
    assert later(broker, 9) == []
    assert later(broker, 10) == [b"a"]
    assert broker.postponed.count(partition) == 2
    later(broker, 11)
    broker.catalog.close()
    broker = opened(tmp_path)
    assert later(broker, 25) == [b"a", b"b"]
    broker.stop()
    broker = opened(tmp_path)
    assert later(broker, 40) == [b"a", b"b", b"c"]
    assert later(broker, 50) == [b"a", b"b", b"c"]
    assert broker.topology.topic("s", "t").partition(0).log.next_offset == 3
    broker.stop()


def test_a_kill_before_it_was_noted_repeats_but_loses_nothing(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    postpone(broker, topic_of(broker).partition(0), 10, b"m")
    assert later(broker, 10) == [b"m"]
    broker.catalog.close()
    broker = opened(tmp_path)
    assert set(later(broker, 11)) == {b"m"}
    broker.stop()


def test_the_channels_that_there_were_get_them_when_due(tmp_path: Path) -> None:
    """As in nsqd: the first channel gets what the topic kept, a later one what is published from then on."""
    broker = opened(tmp_path)
    topic = topic_of(broker)
    postpone(broker, topic.partition(0), 10, b"m")
    readers = [Reader().subscribe(broker.channels.open(topic, name), 5) for name in ("one", "two")]
    postpone(broker, topic.partition(0), 10, b"n")
    broker.channels.pump(NOW)
    assert [reader.got for reader in readers] == [[], []]
    later(broker, 10)
    broker.channels.pump(NOW + 10 * SECOND)
    assert [reader.payloads() for reader in readers] == [[b"m", b"n"], [b"n"]]
    broker.stop()


def test_a_channel_that_was_emptied_does_not_get_them_after_a_restart_either(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    channels = [broker.channels.open(topic, name) for name in ("emptied", "other")]
    for text in (b"a", b"b"):
        postpone(broker, topic.partition(0), 10, text)
    assert [channel.statistics().deferred for channel in channels] == [2, 2]
    assert channels[0].empty() == 2
    postpone(broker, topic.partition(0), 10, b"c")
    assert [channel.statistics().deferred for channel in channels] == [1, 3]
    assert [channel.statistics().arrived for channel in channels] == [3, 3]
    broker.stop()
    broker = opened(tmp_path)
    topic = broker.topology.topic("s", "t")
    channels = [broker.channels.open(topic, name) for name in ("emptied", "other")]
    assert [channel.statistics().deferred for channel in channels] == [1, 3]
    # they enter the log while nobody reads, and the channels are stored once more
    later(broker, 10)
    assert [channel.statistics().depth for channel in channels] == [1, 3]
    broker.stop()
    broker = opened(tmp_path)
    topic = broker.topology.topic("s", "t")
    channels = [broker.channels.open(topic, name) for name in ("emptied", "other")]
    readers = [Reader().subscribe(channel, 5) for channel in channels]
    broker.channels.pump(NOW + 10 * SECOND)
    assert [reader.payloads() for reader in readers] == [[b"c"], [b"a", b"b", b"c"]]
    broker.stop()


def test_a_topic_that_was_emptied_while_it_was_paused_stays_so_after_a_restart(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    append(broker, topic.partition(0), b"kept")
    broker.appender.flush()
    broker.channels.set_paused(topic, True)
    append(broker, topic.partition(0), b"dropped")
    postpone(broker, topic.partition(0), 10, b"dropped too")
    assert (broker.channels.topic_depth(topic), channel.statistics().depth) == (2, 1)
    broker.channels.empty_topic(topic)
    append(broker, topic.partition(0), b"came later")
    broker.appender.flush()
    assert (broker.channels.topic_depth(topic), channel.statistics().depth) == (1, 1)
    broker.stop()
    broker = opened(tmp_path)
    topic = broker.topology.topic("s", "t")
    assert broker.channels.topic_depth(topic) == 1
    reader = Reader().subscribe(broker.channels.open(topic, "c"), 5)
    later(broker, 10)
    broker.channels.pump(NOW + 10 * SECOND)
    assert reader.payloads() == [b"kept"]
    broker.channels.set_paused(topic, False)
    broker.channels.pump(NOW + 10 * SECOND)
    assert reader.payloads() == [b"came later"]
    broker.stop()


def test_they_go_with_their_topic(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    postpone(broker, topic_of(broker).partition(0), 10, b"m")
    broker.at_once.delete_topic("s", "t")
    topic_of(broker)
    assert later(broker, 20) == []
    broker.stop()
    assert not list(tmp_path.glob("topics/*/*/postponed"))


def test_what_a_full_disk_refused_leaves_its_place_to_another_message(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    postpone(broker, partition, 40, b"a")
    disk.fault = failing("write", 0, at=".log", error=errno.ENOSPC)
    assert ask_to_postpone(broker, partition, 10, b"refused").error is not None
    postpone(broker, partition, 30, b"b")
    assert later(broker, 20) == []
    assert later(broker, 30) == [b"b"]
    assert later(broker, 40) == later(broker, 50) == [b"b", b"a"]
    broker.stop()


def test_a_disk_that_refuses_their_log_refuses_the_request_alone(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    disk.fault = failing("write", 0, error=errno.ENOSPC)
    with pytest.raises(Refusal, match="the log of its delayed messages") as told:
        ask_to_postpone(broker, partition, 10, b"refused")
    assert told.value.reason is Reason.DISK_FULL
    postpone(broker, partition, 10, b"m")
    assert later(broker, 10) == [b"m"]
    broker.stop()


def test_what_is_under_way_when_others_are_let_go_is_acknowledged_only_if_it_is_there(tmp_path: Path) -> None:
    """Shortening the log wrote its open chunk: what a full disk refused was acknowledged as the next message."""
    disk = FaultyDisk()
    broker = opened(tmp_path, disk=disk)
    topic = topic_of(broker)
    partition = topic.partition(0)
    for text in (b"a", b"b"):
        postpone(broker, partition, 10, text)
    assert later(broker, 10) == [b"a", b"b"]
    own = broker.postponed.logs()[0]
    open_append = append(broker, own, b"under way")
    disk.fault = failing("write", 0, at=".log", error=errno.ENOSPC)
    broker.tick(NOW + 11 * SECOND)
    following = append(broker, own, b"next")
    broker.appender.flush()
    assert own.log.first_offset == 2, "what has entered was let go of"
    there = payloads(read(broker, own, 2))
    told = [one for one, text in ((open_append, b"under way"), (following, b"next")) if text not in there]
    assert all(one.error is not None for one in told) and told
    broker.stop()
