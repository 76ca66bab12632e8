"""Iceberg tables, read back by pyiceberg's scan and Polars."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import polars
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import StringType

from lading import testing
from lading.model.errors import LocalError, RemoteError, Unreachable
from lading.tables.formats import iceberg
from lading.tables.query import QuerySource, run_query

from .logged_forms import NUMBERS, loaded, send
from .logged_forms import iceberg_delays as delays
from .logged_forms import run as run_form

run = partial(run_form, "iceberg")


@pytest.fixture
def topic() -> str:
    return f"flights{next(NUMBERS)}"


def test_a_topic_becomes_an_iceberg_table_and_goes_on(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(25))
    report = run(broker, topic, table)
    assert (report.rows, report.batches) == (25, 3)
    assert not caplog.records
    assert delays(table) == list(range(25))
    send(broker, topic, range(25, 30))
    assert (run(broker, topic, table).rows, run(broker, topic, table).rows) == (5, 0)
    assert delays(table) == list(range(30))
    rows = polars.scan_iceberg(loaded(table)).collect().sort("offset")
    assert rows["offset"].to_list() == list(range(30)) and set(rows["carrier"]) == {"UA"}
    assert rows["payload"].to_list() == [b"{}"] * 30
    assert {header["key"] for headers in rows["headers"].to_list() for header in headers} == {"carrier", "delay"}
    assert StaticTable.from_metadata(str(table)).scan().to_arrow().num_rows == 30


def test_queries_do_not_show_what_others_deleted(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    table, link = tmp_path / "table", tmp_path / "link"
    send(broker, topic, range(10))
    run(broker, topic, table)
    loaded(table).delete("delay >= 7")
    # others may add a partition as well
    with loaded(table).update_spec() as spec:
        spec.add_identity("carrier")
    link.symlink_to(table)
    for place in (table, link):
        with run_query("select count(*) as n from t", QuerySource(broker.url, {"t": f"iceberg:{place}"})) as result:
            assert result.read_all().to_pylist() == [{"n": 7}]


Commit = Callable[..., Any]


def _overtake(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Any]) -> list[bool]:
    """Let something happen between what the next commit has read of the catalog and its own change of it."""
    commit, done = SqlCatalog.commit_table, list[bool]()

    def commit_and_be_overtaken(self: SqlCatalog, table: Table, *arguments: Any) -> Any:
        if not done:
            done.append(True)
            meanwhile()
        return commit(self, table, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_and_be_overtaken)
    return done


def test_two_runners_of_one_batch_show_it_once(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg appends a second time to a table that was changed meanwhile; this manifest must not be."""
    table = tmp_path / "table"
    send(broker, topic, range(10))
    run(broker, topic, table)
    send(broker, topic, range(10, 15))
    commit_log, again = iceberg.IcebergTable._commit_log, list[Any]()

    def remember(self: iceberg.IcebergTable, *arguments: Any) -> None:
        again[:] = arguments
        commit_log(self, *arguments)

    monkeypatch.setattr(iceberg.IcebergTable, "_commit_log", remember)
    done = _overtake(monkeypatch, lambda: commit_log(iceberg.IcebergTable(table), loaded(table), again[1], again[2]))
    run(broker, topic, table)
    assert done and delays(table) == list(range(15))


def test_others_may_append_and_add_columns_meanwhile(
    broker: testing.BrokerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(10))
    run(broker, topic, table)
    send(broker, topic, range(10, 15))

    def change() -> None:
        held = loaded(table)
        held.append(held.scan().to_arrow().slice(0, 1))
        with held.update_schema() as update:
            update.add_column("note", StringType())

    done = _overtake(monkeypatch, change)
    run(broker, topic, table)
    assert done and len(delays(table)) == 16
    assert "note" in loaded(table).schema().column_names
    held = loaded(table)
    held.overwrite(held.scan().to_arrow())
    assert not [record for record in caplog.records if record.name.startswith("lading")]
    send(broker, topic, range(15, 20))
    run(broker, topic, table)
    assert len(delays(table)) == 21 and set(delays(table)) == set(range(20))


def test_a_commit_whose_answer_is_lost_is_known_again(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(10))
    run(broker, topic, table)
    send(broker, topic, range(10, 15))
    commit, lost = SqlCatalog.commit_table, list[bool]()

    def commit_and_lose(self: SqlCatalog, *arguments: Any) -> Any:
        answer = commit(self, *arguments)
        if not lost:
            lost.append(True)
            raise CommitFailedException("as a catalog says to a request that was sent again")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_and_lose)
    run(broker, topic, table)
    assert lost and delays(table) == list(range(15))


def test_columns_are_added_and_keep_their_types(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(3))
    run(broker, topic, table, "offset, delay int")
    send(broker, topic, range(3, 5))
    run(broker, topic, table, "offset, delay int, carrier string, partition, headers")
    rows = loaded(table).scan().to_arrow().sort_by("offset")
    assert rows["carrier"].to_pylist() == [None] * 3 + ["UA"] * 2
    assert rows["partition"].to_pylist() == [None] * 3 + [0] * 2
    assert [held is None for held in rows["headers"].to_pylist()] == [True] * 3 + [False] * 2
    assert delays(table) == list(range(5))
    with loaded(table).update_schema() as update:
        update.add_column("tail", StringType())
    columns = "offset, delay int, carrier string, partition, headers"
    with pytest.raises(LocalError, match=r"has the column 'tail' as \w*string, and now it would be int32; a table"):
        run(broker, topic, table, f"{columns}, tail int")
    with pytest.raises(LocalError, match=r"has the column 'tail', and 'Tail' differs from it in case alone"):
        run(broker, topic, table, f"{columns}, Tail string")


def test_a_catalog_by_name(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    send(broker, topic, range(5))
    with pytest.raises(
        LocalError, match=r"the Iceberg catalog 'prod17' is not set up .*PYICEBERG_CATALOG__PROD17__URI"
    ):
        run(broker, topic, table, catalog="prod17/lake.flights:")
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/prod.db"}
    load = load_catalog

    def load_configured(name: str, **properties: str) -> Catalog:
        return load(name, **(settings if name == "prod17" else {}), **properties)

    monkeypatch.setattr("pyiceberg.catalog.load_catalog", load_configured)
    assert run(broker, topic, table, catalog="prod17/lake.flights:").rows == 5
    held = load("prod17", **settings).load_table("lake.flights")
    assert held.scan().to_arrow().sort_by("delay")["delay"].to_pylist() == list(range(5))
    assert not (table / "_lading" / "catalog.db").exists()
    with pytest.raises(LocalError, match=r"is in the catalog 'prod17/lake.flights', not in its own catalog"):
        run(broker, topic, table)
    with pytest.raises(LocalError, match=r"catalog 'prod17' has lake.flights already, at .*table and not at .*other"):
        run(broker, topic, tmp_path / "other", catalog="prod17/lake.flights:")


class _Refusing(BaseHTTPRequestHandler):
    """Answers every request as a catalog does that does not know the login."""

    def do_GET(self) -> None:
        body = b'{"error": {"message": "no such login", "type": "NotAuthorizedException", "code": 401}}'
        self.send_response(401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def test_a_catalog_that_is_not_there_is_told_and_leaves_no_trace(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, load = tmp_path / "table", load_catalog
    send(broker, topic, range(5))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "gone": {"type": "rest", "uri": "http://me:correct-horse@127.0.0.1:1"},
            "closed": {"type": "rest", "uri": f"http://127.0.0.1:{server.server_port}", "token": "correct-horse"},
            "nowhere": {"type": "sql", "uri": f"sqlite:///{tmp_path}/no/such/catalog.db"},
        }
        monkeypatch.setattr(
            "pyiceberg.catalog.load_catalog", lambda name, **more: load(name, **settings.get(name, {}), **more)
        )
        for name, kind, told in (
            ("gone", Unreachable, r"catalog 'gone' does not answer \(ConnectionError\); start it, or correct its URI"),
            ("closed", RemoteError, r"catalog 'closed' refuses this login \(UnauthorizedError\); correct credential"),
            ("nowhere", LocalError, r"catalog 'nowhere': its database cannot be used: unable to open database file"),
        ):
            with pytest.raises(kind, match=told) as error:
                run(broker, topic, table, catalog=f"{name}:")
            assert "correct-horse" not in str(error.value) and "\n" not in str(error.value)
        server.shutdown()
    # no name of these was kept
    assert run(broker, topic, table).rows == 5


def test_a_directory_that_no_url_names_is_refused(broker: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    send(broker, topic, range(1))
    with pytest.raises(LocalError, match=r"a meaning of their own; name another directory"):
        run(broker, topic, tmp_path / "a#b")


def test_all_that_a_commit_names_is_on_disk_before_it(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the catalog's own commit finds whole files: each was synced, and its directory after it."""
    table = tmp_path / "table"
    synced: dict[int, int] = {}
    sync, update = os.fsync, SqlCatalog.commit_table

    def note(fd: int) -> None:
        sync(fd)
        synced[os.fstat(fd).st_ino] = os.fstat(fd).st_size

    monkeypatch.setattr(os, "fsync", note)
    checked = 0

    def check(path: str) -> None:
        nonlocal checked
        held = Path(path.removeprefix("file://")).stat()
        assert synced.get(held.st_ino) == held.st_size, path
        checked += 1

    def commit_and_look(self: SqlCatalog, *arguments: Any) -> Any:
        answer = update(self, *arguments)
        check(answer.metadata_location)
        fresh = self.load_table(("lading", table.name))
        snapshot = fresh.current_snapshot()
        if snapshot is not None:
            check(snapshot.manifest_list)
            for manifest in snapshot.manifests(fresh.io):
                check(manifest.manifest_path)
                for entry in manifest.fetch_manifest_entry(fresh.io):
                    check(entry.data_file.file_path)
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_and_look)
    send(broker, topic, range(25))
    run(broker, topic, table)
    assert checked >= 12 and (table / "metadata").stat().st_ino in synced
