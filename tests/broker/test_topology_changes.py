"""Changes of streams and topics in steps: what waits for the disk is in the steps, so that nobody else waits for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lading.broker.broker import Broker
from lading.broker.core.change import Change, complete, run_step
from lading.broker.core.injected_faults import InjectedFaults
from lading.broker.core.settings import TopicSettings
from lading.broker.core.topics import topology_changes
from lading.broker.core.topics.topology_changes import TopicSpec
from lading.log import disk
from lading.log.directory import read_descriptions
from lading.model.errors import Reason, Refusal
from lading.runtime.turns import ROWS_AT_ONCE
from tests.broker.room import NOW, fill, opened, payloads, read, topic_of

SETTINGS = TopicSettings()


class Watched:
    """Runs changes and counts what waits for the disk within a step and outside of it."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_steps = self.outside = 0
        self.firm_writes: list[str] = []
        self._in_step = False
        for module, name in ((os, "fsync"), (disk, "_sync_data")):
            monkeypatch.setattr(module, name, partial(self._sync, getattr(module, name)))
        # the catalog waits for the disk where SQLite does
        broker.catalog._db.set_trace_callback(self._note)

    def _note(self, statement: str) -> None:
        if statement == "PRAGMA synchronous = FULL":
            self.firm_writes.append(statement)

    def _sync(self, real: Callable[[int], None], handle: int) -> None:
        self.in_steps += self._in_step
        self.outside += not self._in_step
        real(handle)

    def run(self, change: Change[Any]) -> Any:
        try:
            while True:
                step = next(change)
                self._in_step = True
                run_step(step)
                self._in_step = False
        except StopIteration as end:
            return end.value


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    found = opened(tmp_path)
    topic_of(found, 3)
    return found


def creating(broker: Broker, name: str, partitions: int = 1, ident: int | None = None) -> Change[Any]:
    return broker.changes.create_topic(
        broker.topology.stream("s"), ident, name, partitions, now_us=NOW, settings=SETTINGS
    )  # fmt: skip


CHANGES: dict[str, Callable[[Broker], Change[Any]]] = {
    "create_stream": lambda broker: broker.changes.create_stream(None, "other", now_us=NOW),
    "delete_stream": lambda broker: broker.changes.delete_stream(broker.topology.stream("s")),
    "create_topic": lambda broker: creating(broker, "new", 3),
    "alter_topic": lambda broker: broker.changes.alter_topic(
        broker.topology.resolve("s.t"), TopicSettings(hide_states=True)
    ),
    "rename_topic": lambda broker: broker.renames.rename_topic(broker.topology.resolve("s.t"), "u"),
    "rename_stream": lambda broker: broker.renames.rename_stream(broker.topology.stream("s"), "r"),
    "delete_topic": lambda broker: broker.changes.delete_topic(broker.topology.resolve("s.t")),
    "add_partitions": lambda broker: broker.changes.add_partitions(broker.topology.resolve("s.t"), 2),
    "delete_partitions": lambda broker: broker.changes.delete_partitions(broker.topology.resolve("s.t"), 2),
    "create_group": lambda broker: broker.changes.write_catalog(
        lambda: broker.groups.create(broker.topology.resolve("s.t"), 7)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_only_steps_wait_for_the_disk(name: str, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # the partitions are in use: their logs would have to be closed in order if they were kept
    for partition in broker.topology.resolve("s.t").partitions:
        fill(broker, partition, 2)
    broker.groups.create(broker.topology.resolve("s.t"), 1)
    watched = Watched(broker, monkeypatch)
    watched.run(CHANGES[name](broker))
    assert (watched.outside, watched.firm_writes) == (0, [])
    assert watched.in_steps > 0
    broker.stop()


def test_what_was_changed_in_steps_is_there_after_a_start(tmp_path: Path, broker: Broker) -> None:
    for name in ("create_stream", "create_topic", "alter_topic", "add_partitions"):
        complete(CHANGES[name](broker))
    fill(broker, broker.topology.resolve("s.t").partition(4), 2)
    complete(broker.changes.delete_topic(broker.topology.resolve("s.new")))
    broker.stop()
    again = opened(tmp_path)
    assert again.notes == []
    topic = again.topology.resolve("s.t")
    assert (len(topic.partitions), topic.settings.hide_states) == (5, True)
    assert payloads(read(again, topic.partition(4))) == [b"0", b"1"]
    assert {one.name for one in again.topology.streams()} == {"s", "other"}
    with pytest.raises(Refusal):
        again.topology.resolve("s.new")
    again.stop()


@contextmanager
def full_catalog(broker: Broker) -> Iterator[None]:
    faults = InjectedFaults(disk.RealDisk())
    faults.install(broker.appender, broker.catalog)
    faults.disk_is_full = True
    with pytest.raises(Refusal) as refused:
        yield
    assert refused.value.reason is Reason.DISK_FULL
    faults.disk_is_full = False


def test_partitions_are_added_behind_a_delete_that_was_refused(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topology.resolve("s.t")
    for partition in topic.partitions:
        fill(broker, partition, 2, prefix="old")
    with full_catalog(broker):
        complete(CHANGES["delete_partitions"](broker))
    broker.at_once.add_partitions(topic, 1)
    fill(broker, topic.partition(1), 1, prefix="new")
    broker.stop()
    again = opened(tmp_path)
    assert again.notes == []
    assert [payloads(read(again, one)) for one in again.topology.resolve("s.t").partitions] == [
        [b"old0", b"old1"],
        [b"new0"],
    ]
    again.stop()


def test_a_removal_that_was_refused_is_finished_at_the_next_start(tmp_path: Path, broker: Broker) -> None:
    with full_catalog(broker):
        complete(CHANGES["delete_topic"](broker))
    broker.stop()
    again = opened(tmp_path)
    assert (again.topology.stream("s").list_topics(), list((tmp_path / "topics").iterdir())) == ([], [])
    assert len(topic_of(again).partitions) == 1
    again.stop()


def test_others_have_their_turn_while_many_partitions_are_let_go(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology_changes, "ROWS_A_PARTITION", ROWS_AT_ONCE // 4)
    topic = complete(creating(broker, "many", 30))
    gone: list[int] = []
    deleted = 0

    def count(_partition: object) -> None:
        nonlocal deleted
        deleted += 1

    monkeypatch.setattr(
        broker.changes, "_callbacks", broker.changes._callbacks._replace(on_partition_deleted=count)
    )  # fmt: skip
    change = broker.changes.delete_topic(topic)
    for step in change:
        gone.append(deleted)
        run_step(step)
    assert deleted == 30
    assert max(later - before for before, later in zip([0, *gone], gone, strict=False)) <= 4
    broker.stop()


def test_others_have_their_turn_while_many_partitions_are_made_known(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand at once kept the loop for 10 ms."""
    known: list[int] = []
    monkeypatch.setattr(
        broker.changes,
        "_callbacks",
        broker.changes._callbacks._replace(on_partitions_opened=lambda some: known.append(len(some))),
    )
    topic = complete(creating(broker, "many", 3 * ROWS_AT_ONCE))
    assert known == [ROWS_AT_ONCE] * 3
    for step in broker.changes.add_partitions(topic, ROWS_AT_ONCE + 1):
        assert len(topic.partitions) == 3 * ROWS_AT_ONCE, "clients see them before all are known"
        run_step(step)
    assert known[3:] == [ROWS_AT_ONCE, 1] and len(topic.partitions) == 4 * ROWS_AT_ONCE + 1
    broker.stop()


def test_a_partition_is_added_without_a_look_at_the_others(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop listed the topic's directory each time: adding partitions one by one grew with their square."""
    topic, names, listed = broker.topology.resolve("s.t"), disk.RealDisk.names, list[str]()

    def list_names(self: disk.RealDisk, directory: Path | str) -> list[str]:
        listed.append(Path(directory).name)
        return names(self, directory)

    monkeypatch.setattr(disk.RealDisk, "names", list_names)
    for _ in range(2):
        complete(broker.changes.add_partitions(topic, 1))
    assert len(topic.partitions) == 5 and listed and topic.uuid.hex() not in listed
    broker.stop()


def test_many_partitions_that_the_disk_refuses_leave_nothing(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are synced together, by one call for the file system."""

    def refuse(_paths: object) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_file_systems", refuse)
        with pytest.raises(Refusal, match="Input/output error"):
            complete(creating(broker, "many", 20))
    assert complete(creating(broker, "many", 20)).name == "many"
    broker.stop()
    again = opened(tmp_path)
    assert len(again.topology.resolve("s.many").partitions) == 20 and not again.notes
    again.stop()


def test_a_topic_that_was_created_meanwhile_is_told_and_nothing_is_left(tmp_path: Path, broker: Broker) -> None:
    first, second = creating(broker, "t2"), creating(broker, "t2")
    steps = [next(first), next(second)]
    for step in steps:
        run_step(step)
    topic = _finish(first)
    with pytest.raises(Refusal) as refused:
        _finish(second)
    assert refused.value.reason is Reason.TOPIC_NAME_EXISTS
    assert {one.uuid for one in read_descriptions(tmp_path)} == {topic.uuid, broker.topology.resolve("s.t").uuid}
    assert not broker.topology.stream("s").promised_ids
    broker.stop()


def _finish(change: Change[Any]) -> Any:
    try:
        while True:
            run_step(next(change))
    except StopIteration as end:
        return end.value


def test_a_topic_whose_id_another_one_names_meanwhile_takes_the_next(tmp_path: Path, broker: Broker) -> None:
    """As of a Kafka client that creates a topic while an Iggy client does, whose protocol has clients choose the id."""
    stream = broker.topology.stream("s")
    change = creating(broker, "kafka")
    step = next(change)
    taken = max(stream.promised_ids)
    named = complete(broker.changes.create_topic(stream, taken, "iggy", 1, now_us=NOW, settings=TopicSettings()))
    run_step(step)
    topic = _finish(change)
    assert (named.id, topic.id) == (taken, taken + 1)
    assert stream.topics[taken] is named and stream.topics[taken + 1] is topic
    assert not stream.promised_ids
    assert {one.topic: one.topic_id for one in read_descriptions(tmp_path)}["kafka"] == topic.id
    broker.stop()
    again = opened(tmp_path)
    assert again.notes == [] and again.topology.topic("s", taken + 1).name == "kafka"
    again.stop()


def test_topics_that_are_created_at_the_same_time_have_ids_of_their_own(broker: Broker) -> None:
    first, second = creating(broker, "a"), creating(broker, "b")
    steps = [next(first), next(second)]
    for step in steps:
        run_step(step)
    assert {_finish(second).id, _finish(first).id} == {2, 3}
    broker.stop()


def test_topics_of_one_request_share_a_sync_and_fail_by_themselves(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = 0
    real = broker.catalog.wal.begin_sync

    def begin_sync() -> Any:
        nonlocal syncs
        syncs += 1
        return real()

    monkeypatch.setattr(broker.catalog.wal, "begin_sync", begin_sync)
    stream = broker.topology.stream("s")
    wanted = [
        TopicSpec(stream, None, name, count, SETTINGS)
        for name, count in (("a", 2), ("t", 1), ("b", 1 << 30), ("c", 0), ("", 1))
    ]
    created = complete(broker.changes.create_topics(wanted, now_us=NOW))
    assert syncs == 1
    assert [one.reason if isinstance(one, Refusal) else one.name for one in created] == [  # type: ignore[union-attr]
        "a", Reason.TOPIC_NAME_EXISTS, Reason.TOO_MANY_PARTITIONS, "c", Reason.INVALID_TOPIC_NAME,
    ]  # fmt: skip
    assert len(broker.topology.resolve("s.a").partitions) == 2
    broker.stop()


def test_a_create_that_was_interrupted_is_whole_or_not_there(tmp_path: Path, broker: Broker) -> None:
    for steps in range(3):
        change = creating(broker, f"cut{steps}", 2)
        for _ in range(steps):
            run_step(next(change))
        # the process ends here
        del change
    broker.stop()
    again = opened(tmp_path)
    found = {topic.name for topic in again.topology.stream("s").list_topics()}
    assert found >= {"t", "cut2"} and "cut0" not in found
    for topic in again.topology.stream("s").list_topics():
        for partition in topic.partitions:
            fill(again, partition, 1)
    again.stop()
    assert opened(tmp_path).notes == []


def test_a_deletion_that_was_interrupted_is_finished(tmp_path: Path, broker: Broker) -> None:
    change = broker.changes.delete_topic(broker.topology.resolve("s.t"))
    run_step(next(change))
    del change
    broker.stop()
    again = opened(tmp_path)
    assert again.topology.stream("s").list_topics() == [] and list((tmp_path / "topics").iterdir()) == []
    again.stop()


def test_a_topic_may_be_created_again_while_its_files_are_deleted(broker: Broker) -> None:
    fill(broker, broker.topology.resolve("s.t").partition(0), 2)
    former = broker.topology.resolve("s.t")
    change = broker.changes.delete_topic(former)
    step = next(change)
    topic = complete(creating(broker, "t", 1))
    run_step(step)
    _finish(change)
    assert broker.topology.resolve("s.t") is topic and topic.uuid != former.uuid
    assert read(broker, topic.partition(0)).count == 0
    broker.stop()


def test_partitions_that_go_and_come_are_empty(broker: Broker) -> None:
    topic = broker.topology.resolve("s.t")
    fill(broker, topic.partition(2), 2)
    complete(broker.changes.delete_partitions(topic, 1))
    complete(broker.changes.add_partitions(topic, 1))
    assert read(broker, topic.partition(2)).count == 0
    broker.stop()
