"""The order in which the broker's parts hear of a start, of what comes and goes, of time, and of the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lading.broker.channels.channels import Channels
from lading.broker.core.append.append import Appender
from lading.broker.core.append.writer_state import WriterStateManager
from lading.broker.core.dead_letters import DeadLetters
from lading.broker.core.delayed_messages import DelayedMessages
from lading.broker.core.positions import Positions
from lading.broker.core.upkeep.damages import Damages
from lading.broker.core.upkeep.retention import RetentionEnforcer
from lading.broker.core.upkeep.upkeep import IdleLogs, LogUpkeep
from lading.broker.iggy.groups import IggyGroups
from lading.broker.kafka.group_coordinator import KafkaGroupCoordinator
from lading.broker.kafka.transaction_coordinator import TransactionCoordinator
from lading.broker.native.groups import NativeGroups
from lading.broker.native.transactions import NativeTransactions
from lading.log.catalog import Catalog
from tests.broker.room import NOW, SECOND, append_block, block, fill, opened, topic_of

LOADED = [
    (Positions, "load"),
    (IggyGroups, "load"),
    (NativeGroups, "load"),
    (KafkaGroupCoordinator, "load"),
    (WriterStateManager, "load"),
    (NativeTransactions, "load"),
    (TransactionCoordinator, "load"),
    (DeadLetters, "load"),
    (Damages, "load"),
    (DelayedMessages, "load"),
    (Channels, "load"),
]
SYNCED = [(LogUpkeep, "on_synced"), (Appender, "on_synced"), (WriterStateManager, "on_synced")]
TICKED = [
    (LogUpkeep, "tick"),
    (Positions, "flush_some"),
    (NativeGroups, "tick"),
    (KafkaGroupCoordinator, "tick"),
    (NativeTransactions, "tick"),
    (TransactionCoordinator, "tick"),
    (DelayedMessages, "tick"),
    (Channels, "tick"),
    (RetentionEnforcer, "tick"),
    (WriterStateManager, "snapshot"),
    (Catalog, "forget_transactions"),
    (TransactionCoordinator, "forget_before"),
    (Catalog, "repair_when_due"),
    (Catalog, "checkpoint_when_due"),
]
PARTITION_DELETED = [
    (DelayedMessages, "on_partition_deleted"),
    (Damages, "on_partition_deleted"),
    (DeadLetters, "on_partition_deleted"),
    (TransactionCoordinator, "on_partition_deleted"),
    (NativeTransactions, "on_partition_deleted"),
    (WriterStateManager, "on_partition_deleted"),
    (Positions, "on_partition_deleted"),
    (Appender, "on_partition_deleted"),
    (LogUpkeep, "on_partition_deleted"),
    (IdleLogs, "on_partition_deleted"),
]
TOPIC_DELETED = [
    (IggyGroups, "on_topic_deleted"),
    (NativeGroups, "on_topic_deleted"),
    (Channels, "on_topic_deleted"),
]
RESIZED = [(IggyGroups, "on_topic_resized"), (NativeGroups, "on_topic_resized"), (Channels, "on_topic_resized")]
CLOSED = [
    (Channels, "store"),
    (DelayedMessages, "store"),
    (WriterStateManager, "snapshot"),
    (Positions, "flush_some"),
    (Catalog, "close"),
]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[type, str]]:
    """What was called of all parts, in order; a part that is called for each partition in turn stands there once."""
    calls: list[tuple[type, str]] = []

    def record(part: type, method: str) -> None:
        original = getattr(part, method)

        def recording(self: Any, *arguments: Any, **named: Any) -> Any:
            if calls[-1:] != [(part, method)]:
                calls.append((part, method))
            return original(self, *arguments, **named)

        monkeypatch.setattr(part, method, recording)

    for part, method in {
        *LOADED, *SYNCED, *TICKED, *PARTITION_DELETED, *TOPIC_DELETED, *RESIZED, *CLOSED,
    }:  # fmt: skip
        record(part, method)
    return calls


def only(heard: list[tuple[type, str]], wanted: list[tuple[type, str]]) -> list[tuple[type, str]]:
    """Those of ``wanted`` that were called, in order; what parts call of each other is left out."""
    return [one for one in heard if one in wanted]


def test_parts_load_one_after_the_other(tmp_path: Path, heard: list[tuple[type, str]]) -> None:
    broker = opened(tmp_path)
    append_block(broker, topic_of(broker).partition(0), block(b"one", writer=b"w" * 16))
    broker.stop()
    heard.clear()
    again = opened(tmp_path)
    assert only(heard, LOADED) == LOADED
    again.stop()


def test_what_is_synced_is_told_before_it_is_snapshot(tmp_path: Path, heard: list[tuple[type, str]]) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    heard.clear()
    fill(broker, partition, 1)
    assert heard == SYNCED
    broker.stop()


def test_parts_do_what_is_due_one_after_the_other(tmp_path: Path, heard: list[tuple[type, str]]) -> None:
    broker = opened(tmp_path, transaction_memory_us=SECOND, retention_check_us=SECOND)
    topic = topic_of(broker)
    append_block(broker, topic.partition(0), block(b"one", writer=b"w" * 16))
    broker.native_groups.store_position("g", topic.partition(0), 1, None, None, now_us=NOW)
    heard.clear()
    broker.tick(NOW + SECOND)
    assert only(heard, TICKED) == TICKED
    broker.stop()


def test_deleted_partitions_are_let_go_before_groups_divide_the_rest(
    tmp_path: Path, heard: list[tuple[type, str]]
) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, 3)
    heard.clear()
    broker.at_once.delete_partitions(topic, 1)
    assert only(heard, PARTITION_DELETED + RESIZED) == PARTITION_DELETED + RESIZED
    heard.clear()
    broker.at_once.add_partitions(topic, 1)
    assert only(heard, PARTITION_DELETED + RESIZED) == RESIZED
    broker.stop()


def test_a_deleted_topic_loses_its_partitions_then_its_groups(tmp_path: Path, heard: list[tuple[type, str]]) -> None:
    broker = opened(tmp_path)
    topic_of(broker)
    heard.clear()
    broker.at_once.delete_topic("s", "t")
    assert only(heard, PARTITION_DELETED + TOPIC_DELETED) == PARTITION_DELETED + TOPIC_DELETED
    broker.stop()


def test_parts_write_down_what_may_wait_before_logs_and_catalog_close(
    tmp_path: Path, heard: list[tuple[type, str]]
) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    append_block(broker, topic.partition(0), block(b"one", writer=b"w" * 16))
    heard.clear()
    broker.stop()
    assert only(heard, CLOSED) == CLOSED
