"""Dead letters: one copy of a message for each time it is marked poisoned, whole and with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.broker.broker import Broker
from lading.broker.core import dead_letters
from lading.broker.core.access import credentials
from lading.broker.core.access.rights import AccessRule, PatternKind, ResourceKind, Right
from lading.broker.core.append.append import WriteResult
from lading.broker.core.change import complete
from lading.broker.core.settings import TopicSettings
from lading.broker.core.states import list_states
from lading.broker.core.topology import Partition, Topic
from lading.dialects import registry
from lading.dialects.native.messages import encode_block
from lading.log.disk import RealDisk
from lading.model.batch import SCHEMA
from lading.model.errors import Reason, Refusal, SettingError
from lading.model.kinds import Kind
from lading.model.scan_request import ScanRequest
from lading.model.state import State
from lading.runtime.turns import finish
from tests.broker.room import NOW, SECOND, append, append_block, block, enforce_retention, fill, opened, read

REASONS = ["lading-reason", "lading-reason-detail", "lading-origin", "lading-marked-at"]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path, segment_bytes=1 << 16)


def flights(broker: Broker, partitions: int = 1, **settings: Any) -> Topic:
    """A topic whose poisoned messages go to ``dead``."""
    own = TopicSettings(**({"dead_letter_topic": "dead"} | settings))
    if all(stream.name != "default" for stream in broker.topology.streams()):
        broker.at_once.create_stream(None, "default", now_us=NOW)
    return broker.at_once.create_topic("default", None, "flights", partitions, now_us=NOW, settings=own)


def copy_all(broker: Broker, now_us: int = NOW) -> int:
    """What serve does between requests, until nothing is left; gives how many blocks were sent."""
    sent = 0
    while (copy := broker.dead_letters.next(now_us)) is not None:
        copy.encode()
        done = broker.dead_letters.send(copy, now_us)
        broker.appender.flush()
        assert done is None or done.done
        sent += done is not None
    return sent


def messages(partition: Partition, broker: Broker) -> list[dict[str, Any]]:
    """All messages of a partition as rows of a Batch."""
    rows: list[dict[str, Any]] = []
    for run, first, end in read(broker, partition).pieces:
        for part in registry.dialect(run.dialect).decode(run, ScanRequest(first=first, end=end)):
            rows += registry.to_batch(part).to_pylist()
    return rows


def origins(broker: Broker, name: str = "dead") -> list[str]:
    return [
        header["value"].decode()
        for partition in broker.topology.resolve(name).partitions
        for row in messages(partition, broker)
        for header in row["headers"]
        if header["key"] == "lading-origin"
    ]


def crash(broker: Broker, path: Path) -> Broker:
    """As ``kill -9``: what was written stays, nothing else is done."""
    broker.catalog.close()
    return opened(path, segment_bytes=1 << 16)


HEADERS: list[dict[str, Any]] = [
    {"key": "carrier", "kind": Kind.STRING, "value": b"UA"},
    {"key": "via", "kind": Kind.RAW, "value": None},
    {"key": "carrier", "kind": Kind.STRING, "value": b""},
    {"key": "delay", "kind": Kind.UINT16, "value": b"\x0c\x00"},
]


def rich() -> bytes:
    """A block with a message that has everything."""
    row = {
        "offset": 0, "state": 1, "timestamp": 1_600_000_000_000_000, "id": bytes(range(16)), "checksum": 7,
        "key": b"N14228", "headers": HEADERS, "payload": b"body",
    }  # fmt: skip
    return encode_block(pa.RecordBatch.from_pylist([row], schema=SCHEMA))


def test_a_copy_is_the_message_with_the_reason_behind_its_headers(broker: Broker) -> None:
    source = flights(broker).partition(0)
    append_block(broker, source, rich())
    broker.states.set(source, [(0, 1)], State.POISONED, now_us=NOW, reason="cannot be parsed")
    assert copy_all(broker) == 1
    (original,) = messages(source, broker)
    (copy,) = messages(broker.topology.resolve("dead").partition(0), broker)
    assert copy["headers"][:4] == HEADERS
    assert [(one["key"], one["value"].decode()) for one in copy["headers"][4:]] == [
        ("lading-reason", "poisoned"),
        ("lading-reason-detail", "cannot be parsed"),
        ("lading-origin", "flights/0/0"),
        ("lading-marked-at", "2023-11-14T22:13:20.000Z"),
    ]
    assert copy["state"] == State.AVAILABLE
    for name in ("timestamp", "id", "checksum", "key", "payload"):
        assert copy[name] == original[name]
    assert (broker.counters.dead_letters, broker.counters.dead_letters_waiting) == (1, 0)


def test_only_what_was_not_poisoned_before_is_copied(broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 10)
    assert broker.states.set(source, [(2, 4)], State.POISONED, now_us=NOW) == 2
    assert broker.states.set(source, [(1, 5), (4, 6)], State.POISONED, now_us=NOW) == 3
    assert broker.states.set(source, [(1, 6)], State.POISONED, now_us=NOW) == 0
    copy_all(broker)
    assert sorted(origins(broker)) == [f"flights/0/{offset}" for offset in range(1, 6)]
    # made available and poisoned again is another marking
    broker.states.set(source, [(3, 4)], State.AVAILABLE, now_us=NOW)
    broker.states.set(source, [(3, 4)], State.POISONED, now_us=NOW)
    copy_all(broker)
    assert origins(broker).count("flights/0/3") == 2


@pytest.mark.parametrize("state", [State.UNAVAILABLE, State.MARKED_FOR_DELETION])
def test_other_states_make_no_copies(broker: Broker, state: State) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 4)
    broker.states.set(source, [(0, 4)], state, now_us=NOW)
    assert copy_all(broker) == 0
    with pytest.raises(Refusal):
        broker.topology.resolve("dead")


def test_headers_do_not_grow_on_the_way_round(broker: Broker) -> None:
    topic = flights(broker)
    append_block(broker, topic.partition(0), rich())
    broker.states.set(topic.partition(0), [(0, 1)], State.POISONED, now_us=NOW, reason="first")
    copy_all(broker)
    dead = broker.topology.resolve("dead")
    broker.at_once.alter_topic(dead, TopicSettings(dead_letter_topic="graves"))
    for turn in range(3):
        source, target = (dead, "graves") if turn % 2 == 0 else (broker.topology.resolve("graves"), "dead")
        broker.at_once.alter_topic(source, TopicSettings(dead_letter_topic=target))
        last = source.partition(0).log.next_offset - 1
        broker.states.set(source.partition(0), [(last, last + 1)], State.POISONED, now_us=NOW, reason="again")
        copy_all(broker)
        newest = messages(broker.topology.resolve(target).partition(0), broker)[-1]
        assert [one["key"] for one in newest["headers"]] == ["carrier", "via", "carrier", "delay", *REASONS]
        assert newest["headers"][6]["value"].decode() == f"{source.flat_name}/0/{last}"


def test_copies_go_to_the_partition_of_the_same_number(broker: Broker) -> None:
    topic = flights(broker, 3)
    for partition in topic.partitions:
        fill(broker, partition, 2)
        broker.states.set(partition, [(1, 2)], State.POISONED, now_us=NOW)
    copy_all(broker)
    dead = broker.topology.resolve("dead")
    assert [partition.log.next_offset for partition in dead.partitions] == [1, 1, 1]


def test_a_stream_is_made_for_a_dead_letter_topic_that_names_one(broker: Broker) -> None:
    source = flights(broker, dead_letter_topic="graves.flights").partition(0)
    fill(broker, source, 1)
    broker.states.set(source, [(0, 1)], State.POISONED, now_us=NOW)
    copy_all(broker)
    assert broker.topology.topic("graves", "flights").messages_count == 1


def test_a_dead_letter_topic_that_cannot_be_made_refuses_before_anything_is_marked(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = flights(broker, dead_letter_topic="s." + "x" * 253).partition(0)
    fill(broker, source, 1)
    broker.states.set(source, [(0, 1)], State.UNAVAILABLE, now_us=NOW)
    monkeypatch.setattr(broker.topology, "_partitions_max", 0)
    with pytest.raises(Refusal, match=r"dead letter topic .* of 'flights' cannot be created"):
        broker.states.set(source, [(0, 1)], State.POISONED, now_us=NOW)
    assert finish(list_states(source, 0, 1)) == [(0, 1, State.UNAVAILABLE)]
    assert broker.dead_letters.next_due_us is None


def test_a_topic_is_not_its_own_dead_letter_topic(broker: Broker) -> None:
    with pytest.raises(SettingError, match="cannot be its own"):
        flights(broker, dead_letter_topic="flights")
    topic = flights(broker)
    with pytest.raises(SettingError, match="cannot be its own"):
        broker.at_once.alter_topic(topic, TopicSettings(dead_letter_topic="flights"))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"dead_letter_topics": "x"}, "did you mean dead_letter_topic"),
        ({"dead_letter_topic": ""}, "takes a topic name"),
        ({"dead_letter_topic": 3}, "takes a topic name"),
        ({"retention_mark_us": 0}, "takes a whole number from 1"),
        ({"hide_states": 1}, "takes true or false"),
    ],
)
def test_settings_that_cannot_be(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        TopicSettings.parse(document)


def test_settings_change_member_by_member_and_last(tmp_path: Path, broker: Broker) -> None:
    topic = flights(broker, retention_age_us=5)
    broker.at_once.alter_topic(topic, topic.settings.merge({"hide_states": True, "retention_age_us": None}))
    broker.stop()
    again = opened(tmp_path)
    assert again.topology.resolve("flights").settings == TopicSettings(hide_states=True, dead_letter_topic="dead")


def test_a_reason_is_bounded(broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 1)
    with pytest.raises(Refusal, match="at most 1000 characters"):
        broker.states.set(source, [(0, 1)], State.POISONED, now_us=NOW, reason="x" * 1001)


def test_a_marking_of_many_scattered_messages_is_worked_off_in_pieces(tmp_path: Path, broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 5000)
    offsets = [*range(0, 400, 2), *range(1000, 4300)]
    broker.states.set(source, [(offset, offset + 1) for offset in offsets], State.POISONED, now_us=NOW)
    assert broker.counters.dead_letters_waiting == len(offsets)
    # a few pieces, then the end: the rest is done by the next broker
    for _ in range(3):
        copy = broker.dead_letters.next(NOW)
        assert copy is not None
        copy.encode()
        broker.dead_letters.send(copy, NOW)
        broker.appender.flush()
    again = crash(broker, tmp_path)
    copy_all(again)
    assert sorted(map(int, (one.rpartition("/")[2] for one in origins(again)))) == offsets
    assert again.counters.dead_letters_waiting == 0


def test_large_messages_are_copied_a_bounded_piece_at_a_time(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "READ_BYTES", 100_000)
    source = flights(broker).partition(0)
    for number in range(12):
        append(broker, source, bytes([number]) * 40_000)
        broker.appender.flush()
    broker.states.set(source, [(0, 12)], State.POISONED, now_us=NOW)
    for marking in broker.dead_letters._markings.values():
        marking.read_bytes = 100_000
    sizes = []
    while (copy := broker.dead_letters.next(NOW)) is not None:
        copy.encode()
        sizes.append(len(copy.offsets))
        broker.dead_letters.send(copy, NOW)
        broker.appender.flush()
        if len(sizes) == 2:
            # killed after the block was written and before that was noted: it is recognised, however it is cut now
            broker = crash(broker, tmp_path)
    assert sum(sizes) >= 12 and max(sizes) < 12
    assert [int(one.rpartition("/")[2]) for one in origins(broker)] == list(range(12))


def test_what_was_sent_but_not_noted_is_recognised_even_when_it_is_read_in_other_pieces(
    tmp_path: Path, broker: Broker
) -> None:
    source = flights(broker).partition(0)
    for number in range(10):
        append(broker, source, b"%d" % number * 30_000)
        broker.appender.flush()
    broker.states.set(source, [(0, 10)], State.POISONED, now_us=NOW)
    (marking,) = broker.dead_letters._markings.values()
    marking.read_bytes = 150_000
    copy = broker.dead_letters.next(NOW)
    assert copy is not None
    copy.encode()
    assert 1 < len(copy.offsets) < 10
    before = list(broker.catalog.rows("SELECT ranges FROM markings"))
    broker.dead_letters.send(copy, NOW)
    broker.appender.flush()
    with broker.catalog.write() as db:
        db.execute("UPDATE markings SET ranges = ?", before[0])
    for read_bytes in (40_000, 1 << 30):
        broker = crash(broker, tmp_path)
        (marking,) = broker.dead_letters._markings.values()
        marking.read_bytes = read_bytes
        one = broker.dead_letters.next(NOW)
        assert one is not None
        one.encode()
        broker.dead_letters.send(one, NOW)
        broker.appender.flush()
        if read_bytes == 40_000:
            with broker.catalog.write() as db:
                db.execute("UPDATE markings SET ranges = ?", before[0])
    copy_all(broker)
    assert [int(one.rpartition("/")[2]) for one in origins(broker)] == list(range(10))


def test_a_crash_between_intent_and_states_sets_the_states(tmp_path: Path, broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 4)

    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    source.log.set_state = kill  # type: ignore[method-assign]
    broker.dead_letters._store.remove = kill  # type: ignore[method-assign]
    with pytest.raises(Killed):
        broker.states.set(source, [(1, 3)], State.POISONED, now_us=NOW)
    again = crash(broker, tmp_path)
    found = again.topology.resolve("flights").partition(0)
    assert finish(list_states(found, 0, 4)) == [(1, 3, State.POISONED)]
    copy_all(again)
    assert origins(again) == ["flights/0/1", "flights/0/2"]
    # asked again, as a client without an answer does
    again.states.set(found, [(1, 3)], State.POISONED, now_us=NOW)
    assert copy_all(again) == 0


def test_a_state_that_was_taken_back_is_not_set_again_by_a_start(tmp_path: Path, broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 4)
    broker.states.set(source, [(1, 3)], State.POISONED, now_us=NOW)
    with broker.catalog.write() as db:
        db.execute("UPDATE markings SET confirmed = 0")
    broker.states.set(source, [(1, 2)], State.AVAILABLE, now_us=NOW)
    again = crash(broker, tmp_path)
    assert finish(list_states(again.topology.resolve("flights").partition(0), 0, 4)) == [(2, 3, State.POISONED)]
    copy_all(again)
    assert origins(again) == ["flights/0/1", "flights/0/2"]


def test_a_marking_that_failed_leaves_nothing_behind(broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 4)

    def full(*_: object) -> None:
        raise Refusal(Reason.DISK_FULL, "the disk is full")

    kept = source.log.set_state
    source.log.set_state = full  # type: ignore[method-assign, assignment]
    with pytest.raises(Refusal, match="the disk is full"):
        broker.states.set(source, [(1, 3)], State.POISONED, now_us=NOW)
    source.log.set_state = kept  # type: ignore[method-assign]
    assert list(broker.catalog.rows("SELECT * FROM markings")) == []
    assert copy_all(broker) == 0


def test_copies_wait_for_a_target_that_refuses(broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 4)
    broker.states.set(source, [(0, 2)], State.POISONED, now_us=NOW)
    target = broker.topology.resolve("dead").partition(0)
    kept = target.log.reserve

    def full(*_: object) -> None:
        raise Refusal(Reason.DISK_FULL, "the disk is full")

    target.log.reserve = full  # type: ignore[method-assign, assignment]
    assert copy_all(broker) == 0
    assert broker.dead_letters.next_due_us == NOW + SECOND
    target.log.reserve = kept  # type: ignore[method-assign]
    assert copy_all(broker) == 0
    assert copy_all(broker, NOW + SECOND) == 1
    assert len(origins(broker)) == 2


def test_a_target_that_was_deleted_is_made_again(broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 4)
    broker.states.set(source, [(0, 2)], State.POISONED, now_us=NOW)
    broker.at_once.delete_topic("default", "dead")
    copy_all(broker)
    assert len(origins(broker)) == 2


def test_the_rights_of_the_setter_are_asked_again_before_copies_are_made(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "SCRYPT_LOG2_N", 4)
    monkeypatch.setattr(credentials, "SCRAM_ITERATIONS", 4096)
    access = broker.access
    complete(access.add_user("root", "password", now_us=NOW, is_administrator=True))
    ann = complete(access.add_user("ann", "password", now_us=NOW))
    rights = {
        name: AccessRule("ann", ResourceKind.TOPIC, PatternKind.LITERAL, name, right)
        for name, right in (("flights", Right.READ), ("dead", Right.ALL), ("other", Right.ALL))
    }
    complete(access.change_rules(rights.values()))
    assert access.grantor_of(access.accept("ann")) == ann.id and access.grantor_of(access.accept("root")) is None
    topic = flights(broker, dead_letter_setter=access.grantor_of(access.accept("ann")))
    fill(broker, topic.partition(0), 3)
    broker.states.set(topic.partition(0), [(0, 1)], State.POISONED, now_us=NOW)
    # it was allowed when it was marked, and is not any more when it is to be copied
    complete(access.change_rules((), [rights["flights"]]))
    assert copy_all(broker) == 0
    with pytest.raises(Refusal) as raised:
        broker.states.set(topic.partition(0), [(1, 2)], State.POISONED, now_us=NOW)
    assert raised.value.reason is Reason.UNAUTHORIZED
    broker = crash(broker, tmp_path)
    topic = broker.topology.resolve("flights")
    assert topic.settings.dead_letter_setter == ann.id
    assert copy_all(broker, NOW + 10 * SECOND) == 0
    # another name of the user is no other user, and other settings have the same setter
    complete(broker.access.change_user("ann", new_name="anna"))
    broker.at_once.alter_topic(topic, topic.settings.merge({"attempts_max": 3}))
    complete(broker.access.change_rules([replace(rights["flights"], user="anna")]))
    assert copy_all(broker, NOW + 20 * SECOND) == 1
    assert origins(broker) == ["flights/0/0"]
    # what waits for a topic that is not to be written goes to the one that is named then
    broker.states.set(topic.partition(0), [(1, 2)], State.POISONED, now_us=NOW)
    complete(broker.access.change_rules((), [replace(rights["dead"], user="anna")]))
    assert copy_all(broker, NOW + 30 * SECOND) == 0
    other = topic.settings.merge({"dead_letter_topic": "other"})
    broker.at_once.alter_topic(topic, replace(other, dead_letter_setter=ann.id))
    assert copy_all(broker, NOW + 40 * SECOND) == 1
    assert origins(broker, "other") == ["flights/0/1"] and origins(broker) == ["flights/0/0"]
    # nor is a user of the same name the same one
    complete(broker.access.delete_user("anna"))
    complete(broker.access.add_user("anna", "password", now_us=NOW))
    complete(broker.access.change_rules(replace(right, user="anna") for right in rights.values()))
    with pytest.raises(Refusal):
        broker.states.set(topic.partition(0), [(2, 3)], State.POISONED, now_us=NOW)


def test_what_is_deleted_is_not_copied(broker: Broker) -> None:
    topic = flights(broker, 2)
    for partition in topic.partitions:
        fill(broker, partition, 4)
        broker.states.set(partition, [(0, 2)], State.POISONED, now_us=NOW)
    broker.at_once.delete_partitions(topic, 1)
    assert broker.counters.dead_letters_waiting == 2
    broker.at_once.delete_topic("default", "flights")
    assert (broker.counters.dead_letters_waiting, broker.dead_letters.next(NOW)) == (0, None)
    assert list(broker.catalog.rows("SELECT * FROM markings")) == []


def test_an_open_transaction_is_waited_for_and_what_it_takes_back_is_not_copied(broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 2)
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, source, block(b"a", transaction=one))
    broker.states.set(source, [(1, 3)], State.POISONED, now_us=NOW)
    assert copy_all(broker) == 0
    broker.native_transactions.abort([one], now_us=NOW)
    assert copy_all(broker, NOW + SECOND) == 1
    assert origins(broker) == ["flights/0/1"]


def test_retention_keeps_what_is_still_to_be_copied(tmp_path: Path, broker: Broker) -> None:
    source = flights(broker, retention_age_us=SECOND).partition(0)
    for number in range(20):
        append(broker, source, b"%02d" % number * 10_000)
        broker.appender.flush()
    broker.states.set(source, [(1, 2), (9, 10)], State.POISONED, now_us=NOW)
    broker = crash(broker, tmp_path)
    source = broker.topology.resolve("flights").partition(0)
    for _ in range(3):
        enforce_retention(broker, NOW + 100 * SECOND)
    assert source.log.first_offset <= 1
    copy_all(broker)
    enforce_retention(broker, NOW + 100 * SECOND)
    assert source.log.first_offset == 20
    assert origins(broker) == ["flights/0/1", "flights/0/9"]


@pytest.mark.parametrize("states", [[State.POISONED], [State.UNAVAILABLE, State.POISONED, State.AVAILABLE]])
def test_any_state_may_follow_any_other(broker: Broker, states: Iterable[State]) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 3)
    for state in states:
        assert broker.states.set(source, [(0, 3)], state, now_us=NOW) == 3
    copy_all(broker)
    assert len(origins(broker)) == 3


def test_states_that_wait_for_their_sync_are_answered_by_it(broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 4)
    answers: list[Refusal | None] = []
    commit = broker.states._commit
    waiting: list[Any] = []
    commit.submit = lambda log, done=None: waiting.append((log, done))  # type: ignore[method-assign]
    assert broker.states.set_soon(source, [(1, 3)], State.POISONED, now_us=NOW, done=answers.append) == 2
    assert broker.states.set_soon(source, [(1, 3)], State.POISONED, now_us=NOW, done=answers.append) == 0
    # the second changes nothing, and waits for what the first set; what is not on disk is not copied
    assert answers == [] and broker.dead_letters.next(NOW) is None
    del commit.submit
    for log, done in waiting:
        commit.submit(log, done)
    assert answers == [None, None]
    copy_all(broker)
    assert len(origins(broker)) == 2


def test_a_sync_that_fails_is_told(broker: Broker) -> None:
    source = flights(broker).partition(0)
    fill(broker, source, 4)
    answers: list[Refusal | None] = []

    def failing() -> None:
        raise OSError(5, "input/output error")

    overlay = source.log._overlay  # type: ignore[attr-defined]
    opened_file = RealDisk().open(overlay.path, write=True)

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return failing if name == "sync" else getattr(opened_file, name)

    overlay._exists, overlay._file = True, Failing()
    broker.states.set_soon(source, [(1, 3)], State.POISONED, now_us=NOW, done=answers.append)
    (refusal,) = answers
    assert refusal is not None and refusal.reason is Reason.READ_ONLY
    assert broker.dead_letters.next_due_us is None


def test_a_message_written_by_a_kafka_producer_is_copied_whole(broker: Broker) -> None:
    """From a compressed batch in Kafka's own bytes, as from any other: copies go by the Batch."""
    source = flights(broker).partition(0)
    kafka = registry.dialect("kafka")
    rows = [
        {
            "offset": offset, "state": 1, "timestamp": 1_600_000_000_000_000 + offset * 1_000, "key": b"k%d" % offset,
            "headers": [
                {"key": "a", "kind": Kind.RAW, "value": b"\xff"}, {"key": "a", "kind": Kind.RAW, "value": None},
            ],
            "payload": None if offset == 1 else b"v%d" % offset,
        }
        for offset in range(3)
    ]  # fmt: skip
    body = kafka.encode(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))

    def write(array: Any, at: int, base_offset: int) -> WriteResult:
        array[at : at + len(body)] = np.frombuffer(body, np.uint8)
        return WriteResult(len(body), 3, 1_600_000_000_000_000, 1_600_000_000_002_000)

    broker.appender.append(source, kafka.code, 0, len(body), write)
    broker.appender.flush()
    broker.states.set(source, [(1, 3)], State.POISONED, now_us=NOW)
    copy_all(broker)
    originals = messages(source, broker)[1:]
    copied = messages(broker.topology.resolve("dead").partition(0), broker)
    assert [row["payload"] for row in copied] == [None, b"v2"]
    for original, copy in zip(originals, copied, strict=True):
        assert copy["headers"][:2] == original["headers"] and len(copy["headers"]) == 5
        for name in ("timestamp", "key", "payload"):
            assert copy[name] == original[name]


def test_a_hundred_thousand_scattered_dead_letters_do_not_slow_each_other_down(broker: Broker, full: bool) -> None:
    source = flights(broker).partition(0)
    count = 100_000 if full else 2_000
    for _ in range(2 * count // 2_000):
        fill(broker, source, 2_000)
    ranges = [(offset, offset + 1) for offset in range(0, 2 * count, 2)]
    for at in range(0, count, 2_000):
        broker.states.set(source, ranges[at : at + 2_000], State.POISONED, now_us=NOW)
    assert source.first_uncopied_offset() == 0
    assert broker.counters.dead_letters_waiting == count
    copy_all(broker)
    assert broker.topology.resolve("dead").messages_count == count
    assert (broker.counters.dead_letters_waiting, source.first_uncopied_offset()) == (0, None)
