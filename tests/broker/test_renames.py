"""Other names for streams and topics: everything else of them stays, and no crash leaves two topics of one name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lading.broker.broker import Broker
from lading.broker.core.access.rights import AccessRule, PatternKind, ResourceKind, Right
from lading.broker.core.change import Change, complete, run_step
from lading.broker.core.settings import TopicSettings
from lading.log.directory import read_descriptions
from lading.model.errors import Reason, Refusal
from tests.broker.room import CONSUMER, NOW, fill, opened, payloads, read, topic_of

TO_TOPIC: Callable[[Broker], Change[None]] = lambda broker: broker.renames.rename_topic(  # noqa: E731
    broker.topology.topic(1, 1), "u"
)
TO_STREAM: Callable[[Broker], Change[None]] = lambda broker: broker.renames.rename_stream(  # noqa: E731
    broker.topology.stream(1), "r"
)
RENAMES = pytest.mark.parametrize(("rename", "name"), [(TO_TOPIC, "s.u"), (TO_STREAM, "r.t")], ids=["topic", "stream"])


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A topic ``s.t`` with two messages, a group and a position, which is the dead letter topic of ``other.x``."""
    found = opened(tmp_path / "data")
    topic = topic_of(found, 2)
    fill(found, topic.partition(0), 2)
    found.groups.create(topic, 7)
    found.poller.store_position(topic, CONSUMER, None, 0, 1, now_us=NOW)
    referring = topic_of(found, 1, "x", "other")
    found.at_once.alter_topic(referring, TopicSettings(dead_letter_topic="s.t"))
    # positions may wait a while for the disk otherwise
    found.stop()
    return opened(tmp_path / "data")


def check(broker: Broker, name: str) -> None:
    """Everything is there under ``name`` and under no other."""
    topic = broker.topology.topic(1, 1)
    former = {"s.t", "s.u", "r.t"} - {name}
    assert topic.flat_name == name and broker.topology.resolve(name) is topic
    assert broker.topology.topic(topic.stream.name, topic.name) is topic
    for one in former:
        with pytest.raises(Refusal):
            broker.topology.resolve(one)
        with pytest.raises(Refusal):
            broker.topology.topic(*one.split("."))
    assert payloads(read(broker, topic.partition(0))) == [b"0", b"1"]
    assert broker.groups.get(topic, 7).id == 7
    assert broker.poller.position(topic, CONSUMER, 0) == 1
    assert broker.topology.resolve("other.x").settings.dead_letter_topic == name


@RENAMES
def test_everything_but_the_name_stays(
    tmp_path: Path, broker: Broker, rename: Callable[[Broker], Change[None]], name: str
) -> None:
    uuid = broker.topology.topic(1, 1).uuid
    version = broker.topology.version
    complete(rename(broker))
    assert broker.topology.version > version
    assert broker.topology.topic(1, 1).uuid == uuid
    check(broker, name)
    assert {one.uuid: one.name for one in read_descriptions(tmp_path / "data")}[uuid] == name
    broker.stop()
    again = opened(tmp_path / "data")
    assert again.notes == []
    check(again, name)
    again.stop()


@RENAMES
def test_a_crash_at_each_step_leaves_one_of_both_names(
    tmp_path: Path, broker: Broker, rename: Callable[[Broker], Change[None]], name: str
) -> None:
    found: list[str] = []
    change: Change[Any] = rename(broker)
    for number, step in enumerate(change):
        for when, act in (("before", None), ("after", step)):
            if act is not None:
                act()
            # what a process that is killed now leaves
            left = tmp_path / f"{number}{when}"
            shutil.copytree(tmp_path / "data", left)
            again = opened(left)
            found.append(again.topology.topic(1, 1).flat_name)
            check(again, found[-1])
            again.stop()
    assert set(found) <= {"s.t", name} and found == sorted(found, key=[*dict.fromkeys(found)].index)
    assert found[-1] == name
    broker.stop()


@RENAMES
def test_until_the_disk_has_it_both_names_are_taken(
    broker: Broker, rename: Callable[[Broker], Change[None]], name: str
) -> None:
    change = rename(broker)
    step = next(change)
    topic = broker.topology.topic(1, 1)
    assert (
        topic.flat_name == "s.t" and broker.topology.resolve("s.t") is topic and broker.topology.resolve(name) is topic
    )
    for one in ("s.t", name):
        with pytest.raises(Refusal):
            # one-level names of other protocols
            broker.at_once.create_topic_in_stream("default", one, 1, NOW)
    meanwhile = broker.at_once.create_topic(1, None, "new", 1, now_us=NOW)
    run_step(step)
    for later in change:
        run_step(later)
    check(broker, name)
    assert broker.topology.resolve(meanwhile.flat_name) is meanwhile
    former = broker.at_once.create_topic_in_stream("default", "s.t", 1, NOW)
    assert broker.topology.resolve("s.t") is former
    broker.stop()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda broker: broker.renames.rename_topic(broker.topology.topic(1, 1), "v"), Reason.TOPIC_NAME_EXISTS),
        (lambda broker: broker.renames.rename_topic(broker.topology.topic(1, 1), ""), Reason.INVALID_TOPIC_NAME),
        (lambda broker: broker.renames.rename_topic(broker.topology.topic(1, 1), "a.b"), Reason.AMBIGUOUS_NAME),
        (lambda broker: broker.renames.rename_stream(broker.topology.stream(1), "other"), Reason.STREAM_NAME_EXISTS),
        (lambda broker: broker.renames.rename_stream(broker.topology.stream(1), "x" * 256), Reason.INVALID_STREAM_NAME),
        (lambda broker: broker.renames.rename_stream(broker.topology.stream(1), "q"), Reason.AMBIGUOUS_NAME),
        (lambda broker: broker.renames.rename_stream(broker.topology.stream(1), "default"), Reason.FEATURE_UNAVAILABLE),
    ],
)
def test_a_name_that_cannot_be_changes_nothing(
    broker: Broker, change: Callable[[Broker], Change[None]], reason: Reason
) -> None:
    topic_of(broker, 1, "v")
    topic_of(broker, 1, "b", "s.a")
    topic_of(broker, 1, "q.t", "default")
    with pytest.raises(Refusal) as refused:
        complete(change(broker))
    assert refused.value.reason is reason
    check(broker, "s.t")
    broker.stop()


def test_a_topic_does_not_get_the_name_of_its_own_dead_letter_topic(broker: Broker) -> None:
    broker.at_once.alter_topic(broker.topology.resolve("other.x"), TopicSettings(dead_letter_topic="z.x"))
    with pytest.raises(Refusal, match="is the dead_letter_topic of"):
        complete(broker.renames.rename_stream(broker.topology.stream("other"), "z"))
    broker.at_once.alter_topic(broker.topology.resolve("other.x"), TopicSettings(dead_letter_topic="other.y"))
    with pytest.raises(Refusal, match="is the dead_letter_topic of"):
        complete(broker.renames.rename_topic(broker.topology.resolve("other.x"), "y"))
    broker.stop()


def test_what_is_deleted_meanwhile_is_not_renamed(broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    change = broker.renames.rename_stream(topic.stream, "r")
    step = next(change)
    broker.at_once.delete_stream(1)
    run_step(step)
    for later in change:
        run_step(later)
    assert [one.name for one in broker.topology.streams()] == ["other"]
    again = topic_of(broker, 1, "t", "r")
    assert broker.topology.resolve("r.t") is again
    broker.stop()


@RENAMES
def test_rules_follow(broker: Broker, rename: Callable[[Broker], Change[None]], name: str, tmp_path: Path) -> None:
    complete(broker.access.add_user("root", "password", now_us=NOW, is_administrator=True))
    stream, _, plain = name.partition(".")
    before = [
        AccessRule("ada", ResourceKind.TOPIC, PatternKind.LITERAL, "s.t", Right.READ),
        AccessRule("ada", ResourceKind.TOPIC, PatternKind.LITERAL, "s.t", Right.WRITE, denies=True),
        AccessRule("ada", ResourceKind.TOPIC, PatternKind.IN_STREAM, "s", Right.CREATE),
        AccessRule("ada", ResourceKind.STREAM, PatternKind.LITERAL, "s", Right.DESCRIBE),
        AccessRule("ada", ResourceKind.TOPIC, PatternKind.PREFIX, "s.", Right.READ),
    ]
    after = [
        AccessRule("ada", ResourceKind.TOPIC, PatternKind.LITERAL, f"{stream}.{plain}", Right.READ),
        AccessRule("ada", ResourceKind.TOPIC, PatternKind.LITERAL, f"{stream}.{plain}", Right.WRITE, denies=True),
        AccessRule("ada", ResourceKind.TOPIC, PatternKind.IN_STREAM, stream, Right.CREATE),
        AccessRule("ada", ResourceKind.STREAM, PatternKind.LITERAL, stream, Right.DESCRIBE),
        before[-1],
    ]
    complete(broker.access.change_rules(before))
    version = broker.access.version
    complete(rename(broker))
    assert broker.access.table.rules["ada"] == set(after)
    assert broker.access.version > version
    broker.stop()


def test_a_refused_rename_gives_nobody_rights(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    complete(broker.access.add_user("root", "password", now_us=NOW, is_administrator=True))
    rule = AccessRule("ada", ResourceKind.TOPIC, PatternKind.LITERAL, "s.t", Right.READ)
    complete(broker.access.change_rules([rule]))

    def refuse(*_: object) -> None:
        raise Refusal(Reason.DISK_FULL, "the catalog cannot be written")

    monkeypatch.setattr(broker.catalog, "rename_topic", refuse)
    with pytest.raises(Refusal):
        complete(broker.renames.rename_topic(broker.topology.topic(1, 1), "u"))
    assert broker.access.table.rules["ada"] == {rule}
    check(broker, "s.t")
    monkeypatch.undo()
    complete(TO_TOPIC(broker))
    check(broker, "s.u")
    broker.stop()
