"""The catalog: how firmly each kind is written, and what it refuses to open."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from lading.log.catalog import CHECKPOINT_COMMITS, Catalog
from lading.log.catalog_rows import GroupRow, PositionRow, StreamRow, TopicRow
from lading.log.catalog_schema import SYNC_LEVEL, CatalogRecordKind, Level
from lading.log.group_filter_table import GroupFilterKey, GroupFilterTable
from lading.model.errors import CorruptLog, Reason, Refusal

TOPIC = b"t" * 16
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "catalog.md"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(tmp_path / "catalog.sqlite")
    catalog.add_stream(StreamRow(1, "s", 5))
    catalog.add_topic(TopicRow(TOPIC, 1, 2, "t", 6, 3, 1, {"hide_states": True}))
    return catalog


WRITES: list[tuple[CatalogRecordKind, Callable[[Catalog], object]]] = [
    (CatalogRecordKind.STREAM, lambda c: c.add_stream(StreamRow(9, "x", 0))),
    (CatalogRecordKind.TOPIC, lambda c: c.resize_topic(TOPIC, 4, 2)),
    (CatalogRecordKind.GROUP, lambda c: c.put_group(GroupRow("iggy", TOPIC, "1", 0))),
    (
        CatalogRecordKind.COORDINATED_GROUP,
        lambda c: c.put_group(GroupRow("kafka", b"", "g", 0), CatalogRecordKind.COORDINATED_GROUP),
    ),
    (
        CatalogRecordKind.POSITION,
        lambda c: c.put_positions([PositionRow("iggy", TOPIC, 0, "consumer/1", 7, None, None, 0)]),
    ),
    (CatalogRecordKind.TRANSACTION, lambda c: c.begin("", 0)),
    (CatalogRecordKind.COMMIT_KEY, lambda c: c.settle("key", [], [], 0)),
    (CatalogRecordKind.WRITER, lambda c: c.add_writer_partition(TOPIC, 0)),
    (
        CatalogRecordKind.GROUP_FILTER,
        lambda c: GroupFilterTable(c).put(GroupFilterKey("nsq", TOPIC, "c"), {"where": "a = 1"}),
    ),
]


@pytest.mark.parametrize(("kind", "write"), WRITES, ids=[kind.value for kind, _ in WRITES])
def test_each_kind_is_written_at_its_level(
    catalog: Catalog, kind: CatalogRecordKind, write: Callable[[Catalog], object]
) -> None:
    other = Level.NORMAL if SYNC_LEVEL[kind] is Level.FULL else Level.FULL
    with catalog._open_transaction(other):
        pass
    write(catalog)
    # SQLite's own numbers: 1 NORMAL, 2 FULL
    assert catalog._db.execute("PRAGMA synchronous").fetchone() == ({Level.NORMAL: 1, Level.FULL: 2}[SYNC_LEVEL[kind]],)
    assert catalog._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_page_says_what_the_table_says() -> None:
    said = dict(re.findall(r"^\|[^|]+\| `(\w+)` \| (FULL|NORMAL) \|", DOCUMENT.read_text(), re.MULTILINE))
    assert said == {kind.value: level.value for kind, level in SYNC_LEVEL.items()}


def test_all_of_it_is_there_again(tmp_path: Path, catalog: Catalog) -> None:
    for _, write in WRITES:
        write(catalog)
    first = catalog.begin("scope", 77)
    catalog.close()
    again = Catalog(tmp_path / "catalog.sqlite")
    assert not again.created
    assert again.streams() == [StreamRow(1, "s", 5), StreamRow(9, "x", 0)]
    assert again.topics() == [TopicRow(TOPIC, 1, 2, "t", 6, 4, 2, {"hide_states": True})]
    assert again.groups() == [GroupRow("iggy", TOPIC, "1", 0), GroupRow("kafka", b"", "g", 0)]
    assert again.positions() == [PositionRow("iggy", TOPIC, 0, "consumer/1", 7, None, None, 0)]
    assert again.writer_partitions() == {(TOPIC, 0)}
    assert [(row.id, row.scope, row.state) for row in again.transactions()] == [(1, "", "open"), (2, "scope", "open")]
    assert (again.commit_key("key"), again.commit_key("other")) == ((), None)
    again.forget_transactions(1 << 62)
    assert again.begin("", 0) > first
    again.close()


def test_a_topic_takes_all_that_hangs_on_it(catalog: Catalog) -> None:
    for _, write in WRITES:
        write(catalog)
    catalog.remove_topic(TOPIC)
    assert (catalog.topics(), catalog.positions()) == ([], [])
    assert catalog.groups() == [GroupRow("kafka", b"", "g", 0)]
    assert catalog.writer_partitions() == set()


def test_what_fails_half_way_leaves_nothing(catalog: Catalog) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        catalog.add_topic(TopicRow(b"u" * 16, 99, 1, "orphan", 0, 1, 1, {}))
    catalog.settle("key", [1], [], 0)
    with pytest.raises(sqlite3.IntegrityError):
        catalog.settle("key", [2], [], 0)
    assert catalog.commit_key("key") == (1,)


def test_a_file_that_is_no_catalog_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    content = b"not a database, but long enough to be read as one" * 30
    path.write_bytes(content)
    catalog = Catalog(path)
    assert catalog.created and catalog.streams() == []
    assert "is now catalog.sqlite.damaged-1" in catalog.notes[0]
    assert (tmp_path / "catalog.sqlite.damaged-1").read_bytes() == content
    catalog.close()
    # the next one that is damaged takes no other one's name, and a start after that has nothing to say
    path.write_bytes(content[:1000])
    Catalog(path).close()
    assert (tmp_path / "catalog.sqlite.damaged-2").read_bytes() == content[:1000]
    again = Catalog(path)
    assert again.notes == []
    again.close()


def test_a_catalog_that_cannot_be_opened_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").mkdir()
    with pytest.raises(CorruptLog, match=r"catalog\.sqlite cannot be opened as a catalog"):
        Catalog(tmp_path / "catalog.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["catalog.sqlite"]


def test_a_later_version_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    catalog._db.execute("PRAGMA user_version = 99")
    catalog.close()
    with pytest.raises(CorruptLog, match=r"later Lading.*99"):
        Catalog(tmp_path / "catalog.sqlite")


def test_a_full_disk_refuses_and_changes_nothing(catalog: Catalog) -> None:
    catalog._db.execute(f"PRAGMA max_page_count = {catalog._db.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.raises(Refusal) as refused:
        for number in range(10_000):
            catalog.put_group(GroupRow("native", b"", f"group {number} " + "x" * 500, 1))
    assert refused.value.reason is Reason.DISK_FULL
    assert f"group {number} " + "x" * 500 not in {group.name for group in catalog.groups()}
    catalog._db.execute("PRAGMA max_page_count = 100000")
    catalog.put_group(GroupRow("native", b"", "later", 1))
    assert "later" in {group.name for group in catalog.groups()}


def test_its_log_is_moved_to_the_file_beside_the_loop(tmp_path: Path, catalog: Catalog) -> None:
    for number in range(CHECKPOINT_COMMITS):
        catalog.put_positions([PositionRow("iggy", TOPIC, number % 3, "consumer/1", number, None, None, 0)])
    size = (tmp_path / "catalog.sqlite").stat().st_size
    catalog.checkpoint_when_due()
    assert catalog._checkpoint is not None
    catalog._checkpoint.join(10)
    assert (tmp_path / "catalog.sqlite").stat().st_size > size
    thread = catalog._checkpoint
    catalog.checkpoint_when_due()
    assert catalog._checkpoint is thread
    catalog.close()
