"""Bad input: hostile paths, many tables, a topic that is deleted under a query, clocks that are apart."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from pathlib import Path

import pytest
from obstore.exceptions import BaseError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from lading import testing
from lading.topic_tables.snapshots import TableHistory
from lading.transports.lading.transport import LadingTransport
from tests.client.memory import MemoryTransport

from .conftest import Clock, catalog, send
from .test_logins import _get

TABLES = 10_000
PLACE = "/v1/lading/namespaces"
HOSTILE = [
    f"{PLACE}/..%2F..%2Fetc/tables/passwd", f"{PLACE}/default/tables/%00", f"{PLACE}/default/tables/{'x' * 9_000}",
    f"{PLACE}/default/tables/%ff%fe", f"{PLACE}/%F0%9F%98%80/tables/a%0d%0ab:c", f"{PLACE}/default%1Fmore/tables/a",
    f"{PLACE}/default/tables/a/b/c", f"{PLACE}//tables/", "/v1", "/v1/lading", "/v1/other/tables", "/topics",
    "/topics/../../etc/passwd", "/topics/%2e%2e/data/x", "/topics/x/data/0-0-99999999999999999999999-1-0.parquet",
    "/topics/x/metadata/99999-x.metadata.json", "/topics/x/metadata/list--1-0-x.avro", "/topics?list-type=2", "/%",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_paths_are_refused(served: str, path: str) -> None:
    host, port = served.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
        line = connection.makefile("rb").readline()
    assert line.split()[1] in (b"400", b"403", b"404", b"414"), line


def test_ten_thousand_tables_are_listed(
    broker: testing.BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = MemoryTransport(**{f"t{number}": 1 for number in range(TABLES)})
    monkeypatch.setattr(LadingTransport, "topics", lambda self, wanted=None: transport.topics(wanted))
    with catalog(broker.url, tmp_path) as address:
        begun = time.process_time()
        names = RestCatalog("c", uri=address).list_tables("default")
        used_s = time.process_time() - begun
        assert len(names) == TABLES and len(set(names)) == TABLES
        assert used_s < 5, "a list takes a small part of a millisecond for each table"
        assert not list(tmp_path.glob("*.jsonl")), "nothing is kept of tables that nobody loads"


def test_a_topic_that_is_deleted_under_a_query(broker: testing.BrokerProcess, served: str) -> None:
    """What was made for the query is read to its end; what was not is refused, and never half there."""
    with closing(LadingTransport(broker.url)) as transport:
        transport.create_topic("dropped")
        send(broker.url, "dropped", 0, 6)
        client = RestCatalog("c", uri=served)
        planned = client.load_table("default.dropped")
        rows = planned.scan().to_arrow()
        send(broker.url, "dropped", 6, 4)
        unmade = client.load_table("default.dropped")
        transport.delete_topic("dropped")
        assert planned.scan().to_arrow().equals(rows)
        snapshot = unmade.current_snapshot()
        assert snapshot is not None
        with pytest.raises((BaseError, FileNotFoundError), match="topic 'dropped' does not exist"):
            _get(served, snapshot.manifest_list, unmade.config)
        with pytest.raises(NoSuchTableError):
            client.load_table("default.dropped")


@pytest.mark.parametrize("ahead_s", [-86_400, 86_400])
def test_clocks_that_are_a_day_apart(broker: testing.BrokerProcess, tmp_path: Path, ahead_s: int) -> None:
    """The end of a key is in its token, by the clock that made it; that of the engine only dates its signatures."""
    clock = Clock()
    clock.ahead_s = ahead_s
    topic = f"apart{ahead_s}"
    send(broker.url, topic, 0, 3)
    with catalog(broker.url, tmp_path, clock=clock) as address:
        table = RestCatalog("c", uri=address).load_table(f"default.{topic}")
        assert _get(address, table.metadata_location, table.config) == 200
        assert table.scan().to_arrow().num_rows == 3


def test_stamps_rise_when_the_clock_goes_back(tmp_path: Path) -> None:
    history = TableHistory.open(tmp_path / "table.jsonl", "uuid", 1 << 20)
    history.use_view("", ())
    for end, now_ms in enumerate((5_000_000, 1_000, 4_999_999, 5_000_003, 9_000_000), 1):
        history.advance([0], [end], now_ms)
    stamps = [snapshot.stamp_ms for snapshot in history.snapshots]
    assert stamps == sorted(set(stamps)) and stamps[-1] == 8_999_000
