"""Users and rights of gateways: one record, of which the first of two changes counts."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from lading.broker.core.access.access import AccessControl
from lading.broker.core.access.users import AccessTable
from lading.broker.core.change import complete
from lading.kafka_log.access import GatewayAccessFile
from lading.kafka_log.catalog_records import AccessTableRecord, CatalogRecords
from lading.kafka_log.cluster import ClusterTopics
from lading.log.disk import UnsyncedDisk
from lading.model.errors import LadingError, LocalError, Refusal, Unreachable
from lading.runtime.clock import Dates


class NotedCluster(ClusterTopics):
    """A catalog topic in memory; ``others`` is what another gateway writes just before."""

    def __init__(self) -> None:
        super().__init__(cast("Any", type("Transport", (), {"cluster": None, "url": "kafka://k:9092"})()))
        self.written: list[tuple[str, bytes | None]] = []
        self.others: list[AccessTableRecord] = []
        self.failure: LadingError | None = None
        self._applied = 0

    def _write(self, key: str, value: bytes | None) -> None:
        if self.failure is not None:
            raise self.failure
        self.written += [(one.key, one.pack()) for one in self.others]
        self.others = []
        self.written.append((key, value))

    def _read_catalog(self) -> None:
        for key, value in self.written[self._applied :]:
            self._records.apply(key.encode(), value)
        self._applied = len(self.written)


def open_access(cluster: ClusterTopics, tmp_path: Path) -> AccessControl:
    return AccessControl(GatewayAccessFile(tmp_path, UnsyncedDisk(), cluster), Dates())


def add_user(access: AccessControl, name: str) -> None:
    complete(access.add_user(name, "correct horse battery", is_administrator=True, now_us=5))


def test_a_user_of_one_gateway_is_one_of_the_next(tmp_path: Path) -> None:
    cluster = NotedCluster()
    one = open_access(cluster, tmp_path)
    assert not one.is_enabled
    add_user(one, "ann")
    other = open_access(cluster, tmp_path)
    assert set(other.table.users) == {"ann"}
    add_user(other, "bob")
    # the first gateway has not heard of it: its change would take bob away
    with pytest.raises(Refusal, match="another gateway"):
        add_user(one, "cid")
    record = cluster.read_access()
    assert record is not None and record.serial == 2
    one.take_over(record.table)
    assert set(one.table.users) == {"ann", "bob"}
    # its passwords are not there in the clear
    assert all(value is not None and b"correct horse" not in value for _, value in cluster.written)


def test_of_two_changes_at_once_the_first_counts_also_after_compaction(tmp_path: Path) -> None:
    cluster = NotedCluster()
    access = open_access(cluster, tmp_path)
    document = AccessTable().document()
    cluster.others = [AccessTableRecord(1, {**document, "next_id": 77})]
    with pytest.raises(Refusal, match="another gateway"):
        add_user(access, "ann")
    compacted = CatalogRecords()
    compacted.apply(cluster.written[-1][0].encode(), cluster.written[-1][1])
    assert compacted.access is not None
    assert compacted.access.document["next_id"] == 77 and cluster.read_access() == compacted.access


def test_a_record_that_is_not_valid_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    records = CatalogRecords()
    first = AccessTableRecord(1, AccessTable().document())
    records.apply(first.key.encode(), first.pack())
    with caplog.at_level(logging.WARNING, "lading.store"):
        for value in (None, replace(first, serial=9, document={"users": 5}).pack(), b"{}"):
            records.apply(first.key.encode(), value)
    assert records.access == first and caplog.text.count("is left out") == 3


def test_a_cluster_that_does_not_respond_refuses_the_change(tmp_path: Path) -> None:
    cluster = NotedCluster()
    access = open_access(cluster, tmp_path)
    cluster.failure = Unreachable("silent")
    with pytest.raises(Refusal, match="silent"):
        add_user(access, "ann")
    assert not access.is_enabled


def test_users_that_cannot_be_read_let_nobody_in(tmp_path: Path) -> None:
    """A gateway of an older version started without users, and so with all rights for everybody."""
    later = b'{"version": 2, "serial": 9, "document": {}}'
    for value, words in ((later, "of version 2"), (None, "never deleted"), (b"{", "Expecting")):
        cluster = NotedCluster()
        cluster.written.append(("access", value))
        with pytest.raises(LocalError, match=f"users and rights cannot be used .*{words}"):
            open_access(cluster, tmp_path)


def test_users_that_another_program_deleted_are_written_again(tmp_path: Path) -> None:
    cluster = NotedCluster()
    add_user(open_access(cluster, tmp_path), "ann")
    for value in (None, b"{"):
        cluster.written.append(("access", value))
        cluster._read_catalog()
        cluster._restore_access()
        # compaction keeps the last record of a key
        assert cluster.written[-1][1] is not None and cluster.written[-1][1] != value
        del cluster.written[:-1]
        cluster._applied = 0
        assert set(open_access(cluster, tmp_path).table.users) == {"ann"}


def test_users_of_a_later_version_are_not_replaced(tmp_path: Path) -> None:
    cluster = NotedCluster()
    add_user(open_access(cluster, tmp_path), "ann")
    cluster.written.append(("access", b'{"version": 2, "serial": 9, "document": {}}'))
    cluster._read_catalog()
    cluster._restore_access()
    assert len(cluster.written) == 2
