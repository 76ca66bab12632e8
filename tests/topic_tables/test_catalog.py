"""A topic read as an Iceberg table by pyiceberg, unmodified: rows, freshness, time travel, columns, restarts."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from starlette.requests import Request
from starlette.responses import StreamingResponse

import lading
from lading import testing
from lading.client.bulk import read_arrow
from lading.client.producer import Producer
from lading.topic_tables.catalog import MAKING_S, PIECE_BYTES, respond_range
from lading.topic_tables.file_facts import FileFacts
from lading.topic_tables.files import RenderedFile
from lading.topic_tables.source import TableSource, TopicTable
from lading.transports.lading.http import AdminHttp
from lading.transports.lading.transport import LadingTransport

from .conftest import catalog, send


def load(address: str, name: str, **more: str) -> Table:
    table: Table = RestCatalog("lading", uri=address, **more).load_table(name)
    return table


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def test_a_table_has_the_rows_of_a_plain_read(broker: testing.BrokerProcess, served: str) -> None:
    with closing(LadingTransport(broker.url)) as transport:
        transport.create_topic("air.plain", 3)
    for partition in range(3):
        send(broker.url, "air.plain", partition * 100, 40 + partition, partition)
    table = load(served, "air.plain")
    wanted = "partition, offset, timestamp, key, state, id, checksum, headers, payload"
    assert rows_of(table.scan().to_arrow()) == rows_of(read_arrow(broker.url, "air.plain", wanted))
    assert table.scan().count() == 123
    assert RestCatalog("c", uri=served).list_namespaces() == [("air",)]
    assert ("air", "plain") in RestCatalog("c", uri=served).list_tables("air")


def test_every_kind_of_header_is_there(broker: testing.BrokerProcess, served: str) -> None:
    headers: list[tuple[str, Any]] = [
        ("raw", b"\x00\xff"), ("text", "é"), ("flag", True), ("i8", lading.i8(-1)), ("i16", lading.i16(-2)),
        ("i32", lading.i32(-3)), ("i64", lading.i64(-4)), ("i128", lading.i128(-5)), ("u8", lading.u8(255)),
        ("u16", lading.u16(65_535)), ("u32", lading.u32(7)), ("u64", lading.u64((1 << 64) - 1)),
        ("u128", lading.u128((1 << 128) - 1)), ("f32", lading.f32(1.5)), ("f64", 2.5),
        ("none", None), ("text", "again"),
    ]  # fmt: skip
    with Producer(broker.url) as producer:
        producer.send("kinds", b"x", headers=headers)
    (row,) = load(served, "default.kinds").scan().to_arrow().to_pylist()
    (plain,) = read_arrow(broker.url, "kinds").to_pylist()
    assert row["headers"] == plain["headers"]
    assert sorted({header["kind"] for header in row["headers"]}) == list(range(1, 16))


def test_a_query_sees_every_row_acknowledged_before_it(broker: testing.BrokerProcess, served: str) -> None:
    for round_ in range(5):
        send(broker.url, "fresh", round_ * 10, 10)
        table = load(served, "default.fresh")
        assert table.scan().count() == (round_ + 1) * 10
    # time travel: the id of a snapshot is the number of offsets that there were
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [10, 20, 30, 40, 50]
    assert table.scan(snapshot_id=20).to_arrow()["offset"].to_pylist() == list(range(20))
    stamps = [snapshot.timestamp_ms for snapshot in table.snapshots()]
    assert stamps == sorted(set(stamps)) and stamps[-1] <= dt.datetime.now(dt.UTC).timestamp() * 1000 - 900


def test_nothing_new_makes_no_snapshot(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "still", 0, 3)
    before = load(served, "default.still").metadata
    assert load(served, "default.still").metadata == before


def test_conditions_skip_files(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "skipped", 0, 10)
    load(served, "default.skipped")
    send(broker.url, "skipped", 10, 10)
    table = load(served, "default.skipped")
    assert len(list(table.scan().plan_files())) == 2
    assert len(list(table.scan("offset >= 15").plan_files())) == 1
    assert table.scan("offset >= 15").to_arrow()["offset"].to_pylist() == [15, 16, 17, 18, 19]
    assert len(list(table.scan("offset >= 20").plan_files())) == 0


def test_columns_come_with_values_for_old_rows(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "typed", 0, 10)
    plain = load(served, "default.typed")
    with closing(LadingTransport(broker.url)) as transport:
        transport.alter_topic("typed", {"columns": "carrier string, delay smallint"})
    typed = load(served, "default.typed")
    assert typed.scan().to_arrow()["delay"].to_pylist() == [number - 10 for number in range(10)]
    ids = {name: typed.schema().find_field(name).field_id for name in ("carrier", "delay")}
    with closing(LadingTransport(broker.url)) as transport:
        transport.alter_topic("typed", {"columns": "late string from nothing, delay smallint, carrier string"})
    wider = load(served, "default.typed")
    assert {name: wider.schema().find_field(name).field_id for name in ids} == ids
    assert wider.schema().find_field("late").field_id > max(ids.values())
    # a query that began before still reads what it planned
    assert plain.scan().to_arrow().num_rows == 10
    assert "carrier" not in plain.scan().to_arrow().schema.names


def test_values_of_another_type_are_null_and_counted(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "mistyped", 0, 6)
    with Producer(broker.url) as producer:
        for value in ("late", "7", 1.5):
            producer.send("mistyped", b"x", headers=[("delay", value)])
    with closing(LadingTransport(broker.url)) as transport:
        transport.alter_topic("mistyped", {"columns": "delay smallint, carrier int"})
    found = load(served, "default.mistyped").scan().to_arrow()
    assert found["delay"].to_pylist() == [-10, -9, -8, -7, -6, -5, None, 7, None]
    assert found["carrier"].null_count == 9
    counted = json.loads(load(served, "default.mistyped").properties["lading.bad-values"])
    assert counted == {"delay": 2, "carrier": 6}


def test_a_thousand_columns(broker: testing.BrokerProcess, served: str, full: bool) -> None:
    count = 1_000 if full else 150
    headers = [(f"h{number}", lading.i32(number)) for number in range(count)]
    with Producer(broker.url) as producer:
        for _ in range(3):
            producer.send("wide", b"x", headers=headers)
    with closing(LadingTransport(broker.url)) as transport:
        transport.alter_topic("wide", {"columns": ", ".join(f"h{number} int" for number in range(count))})
    found = load(served, "default.wide").scan().to_arrow()
    assert [found[f"h{number}"].to_pylist() for number in range(count)] == [[number] * 3 for number in range(count)]


def test_a_column_that_gets_another_type_gets_another_id(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "retyped", 0, 2)
    with closing(LadingTransport(broker.url)) as transport:
        transport.alter_topic("retyped", {"columns": "delay smallint"})
        first = load(served, "default.retyped").schema().find_field("delay").field_id
        transport.alter_topic("retyped", {"columns": "delay string"})
        second = load(served, "default.retyped").schema().find_field("delay").field_id
        transport.alter_topic("retyped", {"columns": None})
        assert "delay" not in load(served, "default.retyped").schema().column_names
        transport.alter_topic("retyped", {"columns": "delay double"})
        third = load(served, "default.retyped").schema().find_field("delay").field_id
    assert len({first, second, third}) == 3


def test_an_empty_topic_is_an_empty_table(broker: testing.BrokerProcess, served: str) -> None:
    with closing(LadingTransport(broker.url)) as transport:
        transport.create_topic("empty")
    table = load(served, "default.empty")
    assert table.scan().to_arrow().num_rows == 0
    assert table.current_snapshot() is None


def test_a_topic_that_is_made_again_is_another_table(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "again", 0, 5)
    first = load(served, "default.again")
    with closing(LadingTransport(broker.url)) as transport:
        transport.delete_topic("again")
    with pytest.raises(NoSuchTableError, match="list the tables"):
        load(served, "default.again")
    send(broker.url, "again", 100, 2)
    second = load(served, "default.again")
    assert second.metadata.table_uuid != first.metadata.table_uuid
    assert [row["payload"] for row in rows_of(second.scan().to_arrow())] == [b'{"n":100}', b'{"n":101}']


def test_files_that_are_made_hold_no_request_of_the_catalog(
    broker: testing.BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty requests for files that were not there yet took all threads, so that nobody could list tables."""
    send(broker.url, "cold", 0, 10)
    go_on = threading.Event()
    read_rows = TableSource.read_rows

    def wait(self: TableSource, *rows: Any) -> Iterator[pa.RecordBatch]:
        assert go_on.wait(30)
        return read_rows(self, *rows)

    monkeypatch.setattr(TableSource, "read_rows", wait)
    with catalog(broker.url, tmp_path) as address, ThreadPoolExecutor(60) as clients:
        place = f"{address}/v1/lading/namespaces/default/tables"
        loaded = httpx.get(f"{place}/cold").json()["metadata"]
        objects = [f"{loaded['location']}/data/0-0-0-10-0.parquet", loaded["snapshots"][-1]["manifest-list"]]
        waiting = [
            clients.submit(httpx.get, f"{address}/{objects[number % 2].removeprefix('s3://')}", timeout=30)
            for number in range(60)
        ]
        for _ in range(20):
            assert httpx.get(place, timeout=10).status_code == 200
        assert not any(request.done() for request in waiting)
        go_on.set()
        bodies = {(request.result().status_code, request.result().content) for request in waiting}
    assert len(bodies) == 2 and {status for status, _ in bodies} == {200}


def test_requests_for_objects_that_never_were_list_no_tables(
    broker: testing.BrokerProcess, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one listed all topics of the broker."""
    monkeypatch.setattr("lading.topic_tables.source.MISSED_S", 60.0)
    monkeypatch.setattr("lading.topic_tables.source.LISTED_S", 60.0)
    listed: list[int] = []
    list_tables = TableSource.list_tables

    def count(self: TableSource) -> list[TopicTable]:
        listed.append(1)
        return list_tables(self)

    monkeypatch.setattr(TableSource, "list_tables", count)
    for _ in range(20):
        place = f"{served}/topics/{uuid4()}/data/0-0-0-1-0.parquet"
        assert httpx.get(place, timeout=30).status_code == 403
    assert len(listed) <= 1
    # a topic that was made since then is found all the same
    send(broker.url, "thereafter", 0, 3)
    location = httpx.get(f"{served}/v1/lading/namespaces/default/tables/thereafter").json()["metadata-location"]
    assert httpx.get(f"{served}/{location.removeprefix('s3://')}").status_code == 200
    assert len(listed) <= 1


def test_a_table_that_a_caller_with_a_token_loaded_is_there_for_others(
    broker: testing.BrokerProcess, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers have lists of their own: one that was read a moment before the topic was made hid it."""
    monkeypatch.setattr("lading.topic_tables.source.MISSED_S", 60.0)
    assert httpx.get(f"{served}/topics/{uuid4()}/data/0-0-0-1-0.parquet").status_code == 403
    send(broker.url, "tokened", 0, 3)
    place = f"{served}/v1/lading/namespaces/default/tables/tokened"
    loaded = httpx.get(place, headers={"authorization": "Bearer any"}).json()
    assert httpx.get(f"{served}/{loaded['metadata-location'].removeprefix('s3://')}").status_code == 200


def test_engines_wait_for_files_that_are_made(broker: testing.BrokerProcess, served: str) -> None:
    """Arrow's client gave up after three seconds: the first query of a million rows failed on a busy machine."""
    send(broker.url, "awaited", 0, 1)
    properties = load(served, "default.awaited").io.properties
    assert float(properties["s3.request-timeout"]) == MAKING_S >= 300


def test_a_load_asks_the_broker_once(
    served: str, broker: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of hidden messages was asked for too, once for each partition."""
    send(broker.url, "asked", 0, 3)
    place = f"{served}/v1/lading/namespaces/default/tables/asked"
    httpx.get(place).raise_for_status()
    paths: list[tuple[str | int, ...]] = []
    request = AdminHttp.request

    def count(self: AdminHttp, method: Any, *parts: str | int, **more: Any) -> Any:
        paths.append(parts)
        return request(self, method, *parts, **more)

    monkeypatch.setattr(AdminHttp, "request", count)
    for _ in range(10):
        httpx.get(place).raise_for_status()
    # and once a second whether the caller may read it
    assert [path for path in paths if len(path) == 3] == [("topics", "default", "asked")] * 10
    assert len(paths) <= 15


def test_rows_that_compaction_removed_are_out_from_the_next_load_on(tmp_path: Path) -> None:
    """Files that were made before showed them until they were made again."""
    settings = {"compaction.check_ms": 100}
    with testing.broker(settings=settings) as broker, closing(LadingTransport(broker.url)) as transport:
        transport.create_topic("latest", 1, {"cleanup_policy": "compact", "segment_bytes": 1, "dirty_share_min": 0})
        payload = b"x" * 20_000
        with catalog(broker.url, tmp_path) as address, Producer(broker.url) as producer:
            for number in range(8):
                producer.send("latest", payload, key=b"k%d" % (number % 2), partition=0)
            producer.flush()
            before = load(address, "default.latest")
            assert before.scan().to_arrow()["offset"].to_pylist() == list(range(8))
            deadline = time.monotonic() + 20
            while 0 in read_arrow(broker.url, "latest", "offset")["offset"].to_pylist():
                assert time.monotonic() < deadline, "compaction did not run"
                producer.send("latest", payload, key=b"last", partition=0)
                producer.flush()
                time.sleep(0.05)
            _await_quiet(transport, deadline)
            kept = read_arrow(broker.url, "latest", "offset")["offset"].to_pylist()
            assert load(address, "default.latest").scan().to_arrow()["offset"].to_pylist() == kept
            # what a query planned before is there for an hour
            assert before.scan().to_arrow()["offset"].to_pylist() == list(range(8))


def _await_quiet(transport: LadingTransport, deadline: float) -> None:
    """Wait until compaction has cleaned all that it can."""
    while (transport.topic("latest").partitions[0].dirty_share or 0) > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_damaged_rows_are_counted_in_the_properties(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with testing.broker(tmp_path / "data") as broker:
        for number in range(5):
            send(broker.url, "torn", number * 4, 4)
    (segment,) = (tmp_path / "data").rglob("*.log")
    body = bytearray(segment.read_bytes())
    # the payload of a message in the third chunk
    place = body.index(b'{"n":9}')
    body[place + 5] ^= 0xFF
    segment.write_bytes(body)
    with catalog(str(tmp_path / "data"), tmp_path / "state") as address:
        table = load(address, "default.torn")
        assert "lading.rows-missing" not in table.properties
        before = _get(address, table.metadata_location).content
        rest = [*range(8), *range(12, 20)]
        assert table.scan().to_arrow()["offset"].to_pylist() == rest
        counted = load(address, "default.torn")
        properties = counted.properties
        # a name never has other bytes
        assert counted.metadata_location == table.metadata_location
        assert _get(address, table.metadata_location).content == before
    assert properties["lading.rows-missing"] == "4"
    assert json.loads(properties["lading.damaged-offsets"]) == {"0": [[8, 12]]}
    assert "left out damaged offsets" in caplog.text
    # the files that are there say so after a restart too
    with catalog(str(tmp_path / "data"), tmp_path / "state") as address:
        assert load(address, "default.torn").scan().to_arrow()["offset"].to_pylist() == rest
        assert load(address, "default.torn").properties["lading.rows-missing"] == "4"


def test_hidden_messages_are_left_out(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "hidden", 0, 6)
    with closing(LadingTransport(broker.url)) as transport:
        transport.put_states("hidden", {"first": 1, "end": 3, "state": "poisoned"}, 0)
    first = load(served, "default.hidden")
    assert first.scan().to_arrow()["offset"].to_pylist() == [0, 3, 4, 5]
    with closing(LadingTransport(broker.url)) as transport:
        transport.put_states("hidden", {"first": 2, "end": 3, "state": "available"}, 0)
        transport.put_states("hidden", {"first": 5, "end": 6, "state": "unavailable"}, 0)
    # from the next load on, although no message arrived; the one before still has what it planned
    assert load(served, "default.hidden").scan().to_arrow()["offset"].to_pylist() == [0, 2, 3, 4]
    assert first.scan().to_arrow()["offset"].to_pylist() == [0, 3, 4, 5]


def test_files_have_the_rows_of_their_view_whenever_they_are_made(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "late", 0, 6)
    before = load(served, "default.late")
    with closing(LadingTransport(broker.url)) as transport:
        transport.put_states("late", {"first": 1, "end": 3, "state": "poisoned"}, 0)
        # its files are made only now
        rows = before.scan().to_arrow()
        assert (rows["offset"].to_pylist(), set(rows["state"].to_pylist())) == ([0, 1, 2, 3, 4, 5], {1})
        assert load(served, "default.late").scan().to_arrow()["offset"].to_pylist() == [0, 3, 4, 5]
        transport.put_states("late", {"first": 1, "end": 3, "state": "available"}, 0)
    assert load(served, "default.late").scan().to_arrow()["offset"].to_pylist() == [0, 1, 2, 3, 4, 5]


def test_a_request_for_no_path_says_what_this_is(served: str) -> None:
    host, port = served.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        assert b"200" in connection.makefile("rb").readline()


@pytest.mark.parametrize("name", ["a b", "ü%2F", "a/b", "-x", "x" * 200])
def test_names_are_kept(broker: testing.BrokerProcess, served: str, name: str) -> None:
    with closing(LadingTransport(broker.url)) as transport:
        try:
            transport.create_topic(f"odd.{name}")
        except lading.LadingError:
            pytest.skip("no topic may have this name")
    with Producer(broker.url) as producer:
        producer.send(f"odd.{name}", b"x")
    assert ("odd", name) in RestCatalog("c", uri=served).list_tables("odd")
    assert load(served, ("odd", name)).scan().to_arrow()["payload"].to_pylist() == [b"x"]  # type: ignore[arg-type]


def test_a_prefix_of_another_catalog_is_refused(broker: testing.BrokerProcess, served: str) -> None:
    """Engines take the prefix from the configuration; a warehouse of any name has the same tables."""
    send(broker.url, "prefixed", 0, 1)
    for warehouse in ("", "?warehouse=lading", "?warehouse=s3://other"):
        config = httpx.get(f"{served}/v1/config{warehouse}").json()
        assert config["overrides"] == {"prefix": "lading"}
    for path in ("", "/default", "/default/tables", "/default/tables/prefixed"):
        assert httpx.get(f"{served}/v1/lading/namespaces{path}").status_code == 200
        refused = httpx.get(f"{served}/v1/other/namespaces{path}")
        assert refused.status_code == 404
        assert "use the one of /v1/config, which is 'lading'" in refused.json()["error"]["message"]


def test_writers_are_refused_in_a_sentence(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "unwritten", 0, 1)
    client = RestCatalog("c", uri=served)
    # pyiceberg sees from the list of endpoints that there is nothing to ask
    with pytest.raises(NotImplementedError, match="does not support endpoint"):
        client.create_table("default.made", Schema())
    table = client.load_table("default.unwritten")
    with pytest.raises(OSError, match="read-only"):
        table.append(table.scan().to_arrow())
    answer = httpx.post(f"{served}/v1/lading/namespaces/default/tables", json={"name": "made"})
    assert (answer.status_code, "send messages to the topic" in answer.text) == (403, True)
    assert load(served, "default.unwritten").scan().count() == 1


def test_snapshots_and_bytes_survive_a_restart(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    send(broker.url, "restarted", 0, 20)
    with catalog(broker.url, tmp_path) as address:
        table = load(address, "default.restarted")
        before = {key: _get(address, key).content for key in _list_objects(table)}
        send(broker.url, "restarted", 20, 5)
        load(address, "default.restarted")
    for path in (tmp_path / "files").rglob("*"):
        if path.is_file():
            path.unlink()
    with catalog(broker.url, tmp_path) as address:
        # a reader that goes on with what it planned before, and files that are rendered again
        assert {key: _get(address, key).content for key in before} == before
        again = load(address, "default.restarted")
        assert [snapshot.snapshot_id for snapshot in again.snapshots()] == [20, 25]
        assert again.metadata.table_uuid == table.metadata.table_uuid
        assert again.scan(snapshot_id=20).to_arrow().num_rows == 20


def _list_objects(table: Table) -> list[str]:
    """Return each object that the current snapshot of a table names."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    keys = [table.metadata_location, snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)]
    return [*keys, *(task.file.file_path for task in table.scan().plan_files())]


def _get(address: str, location: str, **headers: str) -> httpx.Response:
    answer = httpx.get(f"{address}/{location.removeprefix('s3://')}", headers=headers)
    assert answer.status_code in (200, 206), (location, answer.text)
    return answer


def test_a_line_cut_short_by_a_power_cut_is_passed_over(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    send(broker.url, "cutshort", 0, 4)
    with catalog(broker.url, tmp_path) as address:
        load(address, "default.cutshort")
    (history,) = tmp_path.glob("*.jsonl")
    whole = history.read_bytes()
    history.write_bytes(whole[:-7])
    with catalog(broker.url, tmp_path) as address:
        table = load(address, "default.cutshort")
        assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [4]
        assert table.scan().count() == 4
    assert all(json.loads(line) for line in history.read_bytes().splitlines())


def test_ranges_are_those_of_s3(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "ranges", 0, 50)
    table = load(served, "default.ranges")
    (task,) = table.scan().plan_files()
    place = task.file.file_path
    whole = _get(served, place).content
    assert len(whole) == task.file.file_size_in_bytes
    assert _get(served, place, range="bytes=4-9").content == whole[4:10]
    assert _get(served, place, range="bytes=-8").content == whole[-8:]
    assert _get(served, place, range=f"bytes={len(whole) - 3}-").content == whole[-3:]
    beyond = httpx.get(f"{served}/{place.removeprefix('s3://')}", headers={"range": f"bytes={len(whole)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(whole)}")


def test_only_files_of_snapshots_are_made(broker: testing.BrokerProcess, served: str) -> None:
    send(broker.url, "cuts", 0, 10)
    uuid = str(load(served, "default.cuts").metadata.table_uuid)
    spans = {"0-10": 200, "0-9": 404, "3-7": 404, "9-10": 404}
    found = {span: httpx.get(f"{served}/topics/{uuid}/data/0-0-{span}-0.parquet").status_code for span in spans}
    assert found == spans


def test_a_file_that_is_deleted_while_it_is_sent(tmp_path: Path) -> None:
    body = os.urandom(3 * PIECE_BYTES + 5)
    (tmp_path / "a.parquet").write_bytes(body)
    held = RenderedFile(FileFacts(1, len(body)), tmp_path / "a.parquet")
    request = Request({"type": "http", "method": "GET", "headers": [(b"range", b"bytes=7-")]})
    response = respond_range(request, "data/a.parquet", held)
    (tmp_path / "a.parquet").unlink()
    assert isinstance(response, StreamingResponse)

    async def read() -> bytes:
        return b"".join([piece async for piece in response.body_iterator if isinstance(piece, bytes)])

    assert asyncio.run(read()) == body[7:]
    assert respond_range(request, "data/a.parquet", held).status_code == 503


@pytest.mark.parametrize("name", [
    "data/0-0-0-999999999999999999999999-0.parquet", "data/0-9-0-1-0.parquet", "data/9-0-0-1-0.parquet",
    "data/0-0-1-1-0.parquet", "data/x.parquet", "data/0-0-0-1-0.parquet.json", "data/0-0-0-1.parquet",
    "metadata/list-777-0-{uuid}.avro", "metadata/list-1-9-{uuid}.avro",
    "metadata/list-0001-0-{uuid}.avro", "metadata/list-%D9%A1-0-{uuid}.avro", "metadata/%D9%A3-{uuid}.metadata.json",
    "metadata/000000000000000000037-{uuid}.metadata.json", "metadata/00000000000000000003-{uuid}.metadata.json",
    "metadata/list-1-0-0.avro", "metadata/99-{uuid}.metadata.json", "metadata/..%2F..%2Fcatalog.sqlite", "other/x",
])  # fmt: skip
def test_objects_that_never_were(broker: testing.BrokerProcess, served: str, name: str) -> None:
    send(broker.url, "never", 0, 1)
    uuid = str(load(served, "default.never").metadata.table_uuid)
    answer = httpx.get(f"{served}/topics/{uuid}/{name.format(uuid=uuid)}")
    assert answer.status_code in (403, 404), answer.text
    assert "<Error>" in answer.text
