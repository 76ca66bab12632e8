"""Today's files are opened for ever; those of a later Lading are refused by name, and not a byte of them changes."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import deltalake
import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import lading
from lading.backup.back_up import back_up
from lading.backup.restore import restore
from lading.backup.store import DirectoryStore
from lading.broker.core.access.credentials import check_password
from lading.broker.core.access.quotas import Quota
from lading.broker.core.access.rights import Right, topic_resource
from lading.chunk import layout
from lading.chunk.overlay import RECORD_BYTES
from lading.log.formats import FORMATS
from lading.model.checked_document import pack_document
from lading.model.errors import NewerFormat
from lading.model.state import State
from lading.serve.serve import open_access
from lading.spool.spool_log import Spool
from lading.tables.formats import manifest
from lading.tables.ingest import ingest
from lading.tables.storage import files
from tests.broker.kafka_batches import committed
from tests.broker.room import CONSUMER, NOW, fill, opened
from tests.formats.generate import POISONED, SEEN, SPOOLED, generate
from tests.tables.direct import DirectExecutor

KEPT = Path(__file__).parent / "v1"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shutil.copytree(KEPT, tmp_path / "v1")
    return tmp_path / "v1"


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but SQLite's shared memory, which is no part of what is kept."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


def partition_of(home: Path) -> Path:
    (path,) = home.glob("data/topics/*/0")
    return path


def payloads(where: Path, topic: str) -> list[bytes]:
    return [one.as_py() for one in lading.read_arrow(str(where), topic, columns="payload").column("payload")]


def test_the_page_shows_the_table() -> None:
    shown = re.findall(r"^\| (.+) \| (\d+) \| ([\d, ]+) \| `?(.+?)`? \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [tuple(row) for row in shown] == [
        (one.name, str(one.written), ", ".join(map(str, one.reads)), one.file, one.place) for one in FORMATS
    ]


def test_each_format_reads_what_it_writes() -> None:
    assert all(one.written in one.reads for one in FORMATS)
    versions = {one.name: one.written for one in FORMATS}
    assert versions["table document"] == files.DOCUMENT_VERSION == manifest.VERSION
    assert versions["chunk"] == layout.VERSION


def test_a_broker_opens_what_was_kept(home: Path) -> None:
    broker = opened(home / "data")
    partition = broker.topology.resolve("s.t").partition(0)
    assert committed(broker, partition) == [*SEEN, POISONED]
    assert partition.log.unavailable_ranges(0, 99) == [
        (partition.log.next_offset - 1, partition.log.next_offset, State.POISONED)
    ]
    assert partition.positions[CONSUMER.key].offset == 1
    assert broker.topology.topic("s", "t").settings.hide_states
    assert broker.postponed.count(partition) == 1
    assert broker.notes == [] and broker.recoveries() == []
    broker.tick(NOW + 2_000_000)
    broker.appender.flush()
    assert committed(broker, partition) == [*SEEN, POISONED, b"later"]
    broker.stop()


def test_a_catalog_that_was_lost_is_rebuilt_from_what_was_kept(home: Path) -> None:
    (home / "data" / "catalog.sqlite").unlink()
    broker = opened(home / "data")
    assert committed(broker, broker.topology.resolve("s.t").partition(0)) == [*SEEN, POISONED]
    broker.stop()


def test_readers_without_a_broker_open_what_was_kept(home: Path) -> None:
    before = contents(home)
    assert payloads(home / "data", "s.t") == SEEN
    assert payloads(home / "spool", "q") == SPOOLED
    assert contents(home) == before


def test_a_spool_goes_on_in_what_was_kept(home: Path) -> None:
    spool = Spool(home / "spool", "q")
    assert spool.end == 2
    spool.close()


def test_what_is_made_today_is_what_was_kept(tmp_path: Path) -> None:
    """A format that changes without another version is noticed here."""
    generate(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        path.name for path in KEPT.rglob("*") if path.is_file()
    )
    for name in ("00000000000000000000.index", "watermark", "states.log", "writers.snapshot"):
        (kept,), (made,) = (list(root.glob(f"data/topics/*/0/{name}")) for root in (KEPT, tmp_path))
        assert len(kept.read_bytes()) == len(made.read_bytes()), name


# --------------------------------------------------------------------------------- a later version


def newer_catalog(home: Path) -> Path:
    path = home / "data" / "catalog.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
    return path


def newer_users(home: Path) -> Path:
    """Its checksum holds, so that its version is not a flipped bit."""
    path = home / "data" / "access.json"
    path.write_bytes(pack_document({"version": 5, "users": []}))
    return path


def newer_description(home: Path) -> Path:
    (path,) = home.glob("data/topics/*/topic.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))
    return path


def newer_watermark(home: Path) -> Path:
    path = partition_of(home) / "watermark"
    data = bytearray(path.read_bytes())
    data[4] = 2
    path.write_bytes(data)
    return path


def newer_states(home: Path) -> Path:
    path = partition_of(home) / "states.log"
    data = bytearray(path.read_bytes())
    data[8] = 2
    data[4:8] = google_crc32c.value(bytes(data[8:RECORD_BYTES])).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def newer_later_states(home: Path) -> Path:
    """Only the last record."""
    path = partition_of(home) / "states.log"
    data = path.read_bytes()
    last = bytearray(data[-RECORD_BYTES:])
    last[8] = 2
    last[4:8] = google_crc32c.value(bytes(last[8:])).to_bytes(4, "little")
    path.write_bytes(data + last)
    return path


def newer_snapshot(home: Path) -> Path:
    path = partition_of(home) / "writers.snapshot"
    data = bytearray(path.read_bytes())
    data[8] = 2
    data[4:8] = google_crc32c.value(bytes(data[8:])).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def newer_chunk(path: Path, number: int) -> Path:
    data = bytearray(path.read_bytes())
    at = 0
    for _ in range(number):
        at += 8 + int.from_bytes(data[at : at + 4], "little")
    end = at + 8 + int.from_bytes(data[at : at + 4], "little")
    data[at + layout.VERSION_AT] = layout.VERSION + 1
    data[at + 4 : at + 8] = google_crc32c.value(bytes(data[at + 8 : end])).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def newer_first_chunk(home: Path) -> Path:
    return newer_chunk(partition_of(home) / "00000000000000000000.log", 0)


def newer_postponed(home: Path) -> Path:
    return newer_chunk(partition_of(home) / "postponed" / "00000000000000000000.log", 0)


def newer_torn_chunk(home: Path) -> Path:
    """In the middle of the tail of a log that was not closed: what recovery looks at."""
    path = newer_chunk(partition_of(home) / "00000000000000000000.log", 3)
    path.with_suffix(".index").unlink()
    return path


NEWER: list[Callable[[Path], Path]] = [
    newer_catalog, newer_users, newer_description, newer_watermark, newer_states, newer_later_states, newer_snapshot,
    newer_first_chunk, newer_postponed, newer_torn_chunk,
]  # fmt: skip
FOR_BROKERS = (newer_catalog, newer_users, newer_snapshot, newer_postponed)
"""What readers of a directory do not look at."""


@pytest.mark.parametrize("change", NEWER, ids=lambda one: one.__name__)
def test_a_later_version_is_refused_and_not_a_byte_changes(home: Path, change: Callable[[Path], Path]) -> None:
    path = change(home)
    before = contents(home)
    with pytest.raises(NewerFormat, match=f"{re.escape(str(path))} was written by a later Lading") as refused:
        opened(home / "data")
    version = 5 if change is newer_users else 2
    assert f"version {version}" in str(refused.value) and contents(home) == before
    if change not in FOR_BROKERS:
        with pytest.raises(NewerFormat, match=re.escape(str(path))):
            payloads(home / "data", "s.t")
        assert contents(home) == before
        if change is not newer_catalog:
            (home / "data" / "catalog.sqlite").unlink()
            before = contents(home)
            with pytest.raises(NewerFormat, match=re.escape(str(path))):
                opened(home / "data")


def spool_files(home: Path) -> Iterator[tuple[Path, Callable[[], object]]]:
    (log,) = home.glob("spool/topics/*/0/*.log")
    yield log, lambda: newer_chunk(log, 0)
    mark = log.with_name("watermark")
    yield mark, lambda: mark.write_bytes(mark.read_bytes()[:4] + b"\x02" + mark.read_bytes()[5:])


@pytest.mark.parametrize("number", [0, 1])
def test_a_spool_of_a_later_version_is_refused(home: Path, number: int) -> None:
    path, change = list(spool_files(home))[number]
    change()
    before = contents(home)
    with pytest.raises(NewerFormat, match=re.escape(str(path))):
        Spool(home / "spool", "q")
    assert contents(home) == before


@pytest.mark.parametrize("name", ["watermark", "states.log", "writers.snapshot", "00000000000000000000.log"])
def test_a_flipped_bit_in_a_version_is_damage_and_no_later_version(home: Path, name: str) -> None:
    path = partition_of(home) / name
    data = bytearray(path.read_bytes())
    data[{"watermark": 4, "states.log": 8, "writers.snapshot": 8, "00000000000000000000.log": 10}[name]] ^= 2
    path.write_bytes(data)
    opened(home / "data").stop()


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_users_and_rights_that_were_kept_are_read(tmp_path: Path, version: int) -> None:
    shutil.copytree(KEPT.with_name(f"access_v{version}"), tmp_path / "data")
    access = opened(tmp_path / "data").access
    assert check_password(access.credentials("ann"), "ann's password")
    assert access.table.user("root").is_administrator
    principal = access.accept_token("lading_9vZ1Jq0pT3sXnB7kWcY5mRfLhDgAeUoI2iVxQyKzE4M", NOW)
    assert access.allows(principal, Right.READ, topic_resource("default", "orders-1"))
    assert not access.allows(principal, Right.WRITE, topic_resource("default", "orders-1"))
    quotas = {"ann": Quota(1e6, None, 50), "*": Quota(None, 2e6)} if version >= 2 else {}
    assert access.table.quotas == quotas
    assert access.allows(principal, Right.DELETE, topic_resource("default", "bills-1")) == (version >= 3)


def test_a_backup_that_was_kept_is_restored(tmp_path: Path) -> None:
    store = DirectoryStore(KEPT.with_name("backup_v1"))
    assert restore(store, tmp_path / "data").damage == []
    broker = opened(tmp_path / "data")
    assert committed(broker, broker.topology.resolve("s.t").partition(0)) == [*SEEN, POISONED]
    broker.stop()


HERE = Path("/proc/self/cwd")
"""Where the Iceberg table was made: its metadata have absolute paths, and this one is right wherever a test works."""


def rows_of(form: str, table: Path) -> pa.Table:
    """Read a table with the library of its format."""
    if form == "delta":
        return deltalake.DeltaTable(table).to_pyarrow_table()
    if form == "iceberg":
        return StaticTable.from_metadata(str(table)).scan().to_arrow()
    return pq.read_table(sorted(table.glob("*.parquet")))


@pytest.mark.parametrize("form", ["parquet", "delta", "iceberg"])
def test_a_table_that_was_kept_is_continued(
    home: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state, checkpoint and manifests too: a message that was ingested then is not ingested again."""
    shutil.copytree(KEPT.with_name("tables_v1") / form, tmp_path / form)
    monkeypatch.chdir(tmp_path)
    table = (HERE if form == "iceberg" else tmp_path) / form
    assert sorted(one.as_py() for one in rows_of(form, table).column("payload")) == sorted(SEEN)
    broker = opened(home / "data")
    fill(broker, broker.topology.resolve("s.t").partition(0), 2, prefix="new-")
    broker.stop()
    assert ingest(DirectExecutor(), str(home / "data"), "s.t", f"{form}:{table}").rows == 2
    payloads = [one.as_py() for one in rows_of(form, table).column("payload")]
    assert sorted(payloads) == sorted([*SEEN, b"new-0", b"new-1"])


Opener = Callable[[Path], object]
OPENERS: dict[str, Opener] = {
    "broker": lambda data: opened(data),
    "users": lambda data: open_access(data).__enter__(),
    "backup": lambda data: back_up(data, DirectoryStore(data.parent / "backups")),
}
"""What opens a whole data directory; readers of a part of it are tested above."""


@pytest.mark.parametrize("change", NEWER, ids=lambda one: one.__name__)
@pytest.mark.parametrize("opener", OPENERS)
def test_every_opener_refuses_a_later_version(home: Path, change: Callable[[Path], Path], opener: str) -> None:
    path = change(home)
    before = {name: data for name, data in contents(home).items() if not name.endswith("/lock")}
    with pytest.raises(NewerFormat, match=f"{re.escape(str(path))} was written by a later Lading"):
        OPENERS[opener](home / "data")
    # the lock of a directory names a process, and is of no format
    assert {name: data for name, data in contents(home).items() if not name.endswith("/lock")} == before


def test_a_table_document_of_a_later_version_is_refused(tmp_path: Path) -> None:
    files.write_document(tmp_path / "p-00000001.json", {"version": 2})
    with pytest.raises(NewerFormat, match=r"p-00000001\.json was written by a later Lading"):
        files.read_document(tmp_path / "p-00000001.json")
