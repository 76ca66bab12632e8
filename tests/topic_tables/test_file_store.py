"""Sealed files in an object store: put once by one of several processes, read there by engines."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from lading import testing, write_arrow
from lading.model.errors import SettingError
from lading.tables.storage.storage import StorageReferences
from lading.topic_tables.file_facts import FileFacts
from lading.topic_tables.file_store import FileShipper, FileStore, StoreAddress
from lading.topic_tables.layout import SEAL_ROWS_MIN
from lading.topic_tables.table_schema import extend_schema
from tests.tables.object_faults import run_faulty_store
from tests.tables.object_forms import point_to
from tests.tables.object_server import KEY, REGION, SECRET, ObjectServer

from .conftest import catalog

SEALED = SEAL_ROWS_MIN
WAIT_S = 20
SERVE = "import lading.topic_tables.layout as layout; layout.SEAL_BYTES = 1; import lading.cli.main as cli; cli.main()"


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest files have 1,024 rows."""
    monkeypatch.setattr("lading.topic_tables.layout.SEAL_BYTES", 1)


def send_rows(url: str, topic: str, first: int, count: int) -> None:
    numbers = range(first, first + count)
    write_arrow(pa.table({"n": list(numbers), "payload": [b"%d" % n for n in numbers]}), url, topic, headers=["n"])


def list_stored(table: Table) -> list[str]:
    """Return the locations of the files that are in the store, in order."""
    paths = [file["file_path"] for file in table.inspect.files().to_pylist()]
    return sorted(path for path in paths if not path.startswith("s3://topics/"))


def wait_until_stored(client: RestCatalog, name: str, count: int) -> Table:
    until = time.monotonic() + WAIT_S
    while True:
        table: Table = client.load_table(name)
        if len(list_stored(table)) >= count:
            return table
        assert time.monotonic() < until, f"{list_stored(table)} after {WAIT_S} s"
        time.sleep(0.02)


def read_numbers(table: Table) -> list[int]:
    rows: list[Any] = table.scan(selected_fields=("payload",)).to_arrow()["payload"].to_pylist()
    return sorted(map(int, rows))


def find_objects(server: ObjectServer, bucket: str) -> list[Path]:
    """Return the files of the objects of one bucket; other tests of the process use the same server."""
    return sorted((server.buckets / bucket.removeprefix("s3://")).rglob("*.parquet"))


def count_objects(server: ObjectServer, bucket: str) -> list[str]:
    return sorted(path.name for path in find_objects(server, bucket))


def test_sealed_files_are_in_the_store_and_the_tail_is_not(
    broker: testing.BrokerProcess, tmp_path: Path, bucket: str, object_server: ObjectServer
) -> None:
    send_rows(broker.url, "shipped", 0, 2 * SEALED + 30)
    with catalog(broker.url, tmp_path, store=FileStore(StoreAddress(f"{bucket}/tables"))) as address:
        client = RestCatalog("c", uri=address)
        before = client.load_table("default.shipped")
        assert read_numbers(before) == list(range(2 * SEALED + 30))
        table = wait_until_stored(client, "default.shipped", 2)
        assert read_numbers(table) == list(range(2 * SEALED + 30))
        # files that an engine was given before are read on
        assert read_numbers(before) == list(range(2 * SEALED + 30))
        uuid = table.metadata.table_uuid
        assert all(path.startswith(f"{bucket}/tables/{uuid}/0-") for path in list_stored(table))
        bodies = {path.name: path.read_bytes() for path in find_objects(object_server, bucket)}
        assert sorted(bodies) == [path.rpartition("/")[2] for path in list_stored(table)]
        for path in list_stored(table):
            served = httpx.get(f"{address}/{path.removeprefix('s3://')}")
            assert served.content == bodies[path.rpartition("/")[2]]
        # a filter by offset reads one file
        rows = table.scan(f"offset >= {SEALED + 5} and offset < {SEALED + 9}").to_arrow()
        assert {*rows["offset"].to_pylist()} == {*range(SEALED + 5, SEALED + 9)}


@contextmanager
def serve_tables(url: str, state: Path, store: str, port: int = 0) -> Iterator[str]:
    """Run ``lading tables`` as a process of its own; gives its address."""
    words = ["tables", "--from", url, "--address", f"127.0.0.1:{port}", "--state", str(state), "--files", store,
             "--output", "json", "--with-parent"]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://{json.loads(process.stdout.readline())['endpoints']['tables']}"
        finally:
            process.kill()


def test_two_processes_share_a_store(
    broker: testing.BrokerProcess, tmp_path: Path, bucket: str, object_server: ObjectServer
) -> None:
    send_rows(broker.url, "both", 0, 4 * SEALED + 7)
    store = f"{bucket}/tables"
    with (
        serve_tables(broker.url, tmp_path / "one", store) as first,
        serve_tables(broker.url, tmp_path / "two", store) as second,
    ):
        clients = [RestCatalog("c", uri=address) for address in (first, second)]
        for client in clients:
            client.load_table("default.both")
        tables = [wait_until_stored(client, "default.both", 4) for client in clients]
        assert list_stored(tables[0]) == list_stored(tables[1])
        assert len(count_objects(object_server, bucket)) == 4
        times = {path: path.stat().st_mtime_ns for path in find_objects(object_server, bucket)}
        send_rows(broker.url, "both", 4 * SEALED + 7, SEALED)
        for client in clients:
            client.load_table("default.both")
        # rows that were new in one snapshot are in large files in the next one
        send_rows(broker.url, "both", 5 * SEALED + 7, 1)
        tables = [wait_until_stored(client, "default.both", 5) for client in clients]
        assert [read_numbers(table) for table in tables] == [list(range(5 * SEALED + 8))] * 2
        assert {path: path.stat().st_mtime_ns for path in times} == times, "each is put once"
    # after a kill another process lists them without a file of its own
    with serve_tables(broker.url, tmp_path / "three", store) as third:
        client = RestCatalog("c", uri=third)

        def is_listed() -> bool:
            client.load_table("default.both")
            (history,) = (tmp_path / "three").glob("*.jsonl")
            return f'"stored":[[[0,{5 * SEALED}]]]' in history.read_text()

        _wait(is_listed)
        assert read_numbers(client.load_table("default.both")) == list(range(5 * SEALED + 8))
        assert [path.name for path in (tmp_path / "three").rglob("*.parquet")] == [
            f"0-0-{5 * SEALED}-{5 * SEALED + 8}-0.parquet"
        ]


def test_a_restart_knows_what_is_in_the_store(
    broker: testing.BrokerProcess, tmp_path: Path, bucket: str, object_server: ObjectServer
) -> None:
    send_rows(broker.url, "known", 0, SEALED + 3)
    address = StoreAddress(f"{bucket}/tables")
    with catalog(broker.url, tmp_path, store=FileStore(address)) as served:
        before = wait_until_stored(RestCatalog("c", uri=served), "default.known", 1)
        stored = list_stored(before)
    with catalog(broker.url, tmp_path, store=FileStore(address)) as served:
        client = RestCatalog("c", uri=served)
        assert list_stored(client.load_table("default.known")) == stored
        assert client.load_table("default.known").metadata_location == before.metadata_location
    # without the store the same rows come from this process, under other names
    with catalog(broker.url, tmp_path) as served:
        client = RestCatalog("c", uri=served)
        table = client.load_table("default.known")
        assert not list_stored(table) and read_numbers(table) == list(range(SEALED + 3))
        listed = before.metadata.snapshots[-1].manifest_list.removeprefix("s3://")
        assert httpx.get(f"{served}/{listed}").status_code == 404


@pytest.mark.parametrize("fault", ["refused", "gone"])
def test_a_store_that_fails_delays_no_query(
    broker: testing.BrokerProcess, tmp_path: Path, bucket: str, object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str,
) -> None:  # fmt: skip
    send_rows(broker.url, f"away_{fault}", 0, SEALED + 3)
    monkeypatch.setitem(_retries(), "max_retries", 0)
    monkeypatch.setattr("lading.topic_tables.file_store.RETRY_S", 0.0)
    monkeypatch.setattr("lading.topic_tables.tables.RETRY_S", 0.0)
    with run_faulty_store(object_server.url) as proxy:
        point_to(object_server, tmp_path, monkeypatch, proxy.url)
        proxy.arm(0, "gone")
        if fault == "refused":
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
            proxy.heal()
        with catalog(broker.url, tmp_path / "state", store=FileStore(StoreAddress(f"{bucket}/t"))) as address:
            client = RestCatalog("c", uri=address)
            with caplog.at_level(logging.WARNING):
                for _ in range(3):
                    table = client.load_table(f"default.away_{fault}")
                    assert read_numbers(table) == list(range(SEALED + 3)) and not list_stored(table)
                _wait(lambda: "not in the store yet" in caplog.text)
            proxy.heal()
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
            table = wait_until_stored(client, f"default.away_{fault}", 1)
            assert read_numbers(table) == list(range(SEALED + 3))
            # then it is away again: engines that read through this process are told to try again
            proxy.arm(0, "gone")
            place = list_stored(table)[0].removeprefix("s3://")
            answer = httpx.get(f"{address}/{place}")
            assert (answer.status_code, "SlowDown" in answer.text) == (503, True)


def _retries() -> dict[str, Any]:
    from lading.tables.storage import object_path

    object_path._open_store.cache_clear()
    retries: dict[str, Any] = object_path.RETRIES
    return retries


def _wait(is_there: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_there():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_another_cluster_in_the_same_prefix_is_not_read(
    broker: testing.BrokerProcess, tmp_path: Path, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without ids of topics the id of a table is made of the address: two clusters may have the same."""
    url = f"iggy://{broker.endpoints['iggy_tcp']}?username=a"
    send_rows(broker.url, "same", 0, SEALED + 1)
    store = FileStore(StoreAddress(f"{bucket}/tables"))
    with catalog(url, tmp_path / "one", store=store) as address:
        (path,) = list_stored(wait_until_stored(RestCatalog("c", uri=address), "default.same", 1))
    uuid, name = path.removeprefix(f"{bucket}/tables/").removesuffix(".parquet").split("/")
    facts = store.find_facts(uuid, name)
    assert facts is not None
    store.delete(uuid, name)
    assert store.put(uuid, name, b"rows of another cluster", facts)
    with catalog(url, tmp_path / "two", store=FileStore(StoreAddress(f"{bucket}/tables"))) as address:
        client = RestCatalog("c", uri=address)
        client.load_table("default.same")
        _wait(lambda: "has other rows than this source" in caplog.text)
        table = client.load_table("default.same")
        assert not list_stored(table) and read_numbers(table) == list(range(SEALED + 1))


def test_an_object_that_somebody_deleted_is_put_again(
    broker: testing.BrokerProcess, tmp_path: Path, bucket: str
) -> None:
    send_rows(broker.url, "swept", 0, SEALED + 1)
    store = FileStore(StoreAddress(f"{bucket}/tables"))
    with catalog(broker.url, tmp_path, store=store) as address:
        client = RestCatalog("c", uri=address)
        (path,) = list_stored(wait_until_stored(client, "default.swept", 1))
        uuid, name = path.removeprefix(f"{bucket}/tables/").removesuffix(".parquet").split("/")
        store.delete(uuid, name)
        assert httpx.get(f"{address}/{path.removeprefix('s3://')}").status_code == 404
        table = client.load_table("default.swept")
        assert not list_stored(table) and read_numbers(table) == list(range(SEALED + 1))
        # with the next rows
        send_rows(broker.url, "swept", SEALED + 1, 1)
        assert read_numbers(wait_until_stored(client, "default.swept", 1)) == list(range(SEALED + 2))


def test_files_of_rows_that_retention_deleted_are_deleted_an_hour_later(bucket: str) -> None:
    store = FileStore(StoreAddress(f"{bucket}/tables"))
    for name in ("0-0-1024-a", "0-1024-2048-a", "1-0-1024-a"):
        store.put("uuid", name, name.encode(), FileFacts(1, len(name)))
    clock = [0.0]
    shipper = FileShipper(store, lambda: clock[0])
    schema = extend_schema(None, "")

    def offer(firsts: tuple[int, ...]) -> set[str]:
        shipper.ship("uuid", schema, [], firsts, lambda rows: pytest.fail("nothing to make"), is_identified=True)
        shipper._pool.submit(lambda: None).result(WAIT_S)
        return store.list_names("uuid")

    assert len(offer((0, 0))) == 3
    clock[0] += 3_601
    assert len(offer((1_500, 0))) == 3
    clock[0] += 60
    assert len(offer((1_500, 0))) == 3
    clock[0] += 3_600
    assert offer((1_500, 0)) == {"0-1024-2048-a", "1-0-1024-a"}
    shipper.close()


def test_engines_get_a_key_for_the_store_if_one_is_given(
    broker: testing.BrokerProcess, tmp_path: Path, bucket: str, object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("READER", KEY)
    monkeypatch.setenv("READER_SECRET", SECRET)
    given = {"endpoint": object_server.url, "region": REGION, "access_key_id_env": "READER",
             "secret_access_key_env": "READER_SECRET"}  # fmt: skip
    engines = StorageReferences.parse(given, Path(), "", "--engine-storage")
    send_rows(broker.url, "vended", 0, 1)
    with catalog(broker.url, tmp_path, store=FileStore(StoreAddress(f"{bucket}/tables", None, engines))) as address:
        place = f"{address}/v1/lading/namespaces/default/tables/vended"
        loaded = httpx.get(place).json()
        stores, own = loaded["storage-credentials"]
        assert own["config"]["s3.endpoint"] == f"{address}/" == loaded["config"]["s3.endpoint"]
        assert stores["prefix"] == f"{bucket}/tables/{loaded['metadata']['table-uuid']}/"
        assert (stores["config"]["s3.endpoint"], stores["config"]["s3.access-key-id"]) == (object_server.url, KEY)
        # Iceberg's Java client takes one key from there, no more
        assert len(httpx.get(f"{place}/credentials").json()["storage-credentials"]) == 1


@pytest.mark.parametrize("url", ["gs://lake/tables", "s3://lake", "s3://topics/tables", "s3://v1/t", "tables"])
def test_stores_that_cannot_be(url: str) -> None:
    with pytest.raises(SettingError, match=r"write s3://BUCKET/PREFIX"):
        FileStore(StoreAddress(url))


def test_a_key_for_engines_needs_an_address() -> None:
    engines = StorageReferences.parse({"region": REGION}, Path(), "", "--engine-storage")
    with pytest.raises(SettingError, match="endpoint, access_key_id, secret_access_key missing; give"):
        FileStore(StoreAddress("s3://lake/tables", None, engines))
