"""Tables beside a Kafka or Iggy server and of a data directory: with columns that the process names."""

from __future__ import annotations

import time
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lading import testing
from lading.client.bulk import read_arrow
from lading.model.errors import LocalError
from lading.testing.held_ports import PortHolder
from lading.topic_tables.layout import RowRange
from lading.topic_tables.snapshots import TableView
from lading.topic_tables.source import RowLosses, TableSource
from lading.topic_tables.table_schema import extend_schema
from lading.transports.interface import TopicMeta
from lading.transports.lading.transport import LadingTransport
from tests.client.memory import MemoryTransport, sealed
from tests.client.test_consumer import with_checksums

from .conftest import catalog, send

COLUMNS = "carrier string, delay int"


@pytest.mark.parametrize("scheme", ["kafka", "iggy", "directory"])
def test_a_source_with_columns_of_the_process(broker: testing.BrokerProcess, tmp_path: Path, scheme: str) -> None:
    topic = f"beside_{scheme}"
    send(broker.url, topic, 0, 30)
    urls = {
        "kafka": f"kafka://{broker.endpoints['kafka']}",
        "iggy": f"iggy://{broker.endpoints['iggy_tcp']}?username=a",
    }
    url = urls.get(scheme, str(broker.data_dir))
    # a directory is at most 100 ms behind its broker
    deadline = time.monotonic() + 10
    while read_arrow(url, topic, "offset").num_rows < 30:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with catalog(url, tmp_path, {topic: COLUMNS}) as address:
        found = RestCatalog("c", uri=address).load_table(f"default.{topic}").scan().to_arrow()
    plain = read_arrow(url, topic, f"offset, headers, payload, {COLUMNS}")
    rows = [{name: row[name] for name in plain.schema.names} for row in found.to_pylist()]
    assert sorted(rows, key=lambda row: row["offset"]) == plain.to_pylist()
    assert plain["delay"].to_pylist()[:2] == [-10, -9]


@pytest.mark.parametrize("partitions", [2, 1])
def test_a_topic_that_is_made_again_is_another_table_without_ids_too(
    broker: testing.BrokerProcess, tmp_path: Path, partitions: int
) -> None:
    topic = f"remade_{partitions}"
    with catalog(f"iggy://{broker.endpoints['iggy_tcp']}?username=a", tmp_path) as address:
        client = RestCatalog("c", uri=address)
        with closing(LadingTransport(broker.url)) as transport:
            transport.create_topic(topic, 2)
            send(broker.url, topic, 0, 6)
            before = client.load_table(f"default.{topic}")
            assert before.scan().to_arrow().num_rows == 6
            transport.delete_topic(topic)
            transport.create_topic(topic, partitions)
        send(broker.url, topic, 100, 2)
        after = client.load_table(f"default.{topic}")
        assert after.scan().to_arrow()["payload"].to_pylist() == [b'{"n":100}', b'{"n":101}']
        assert after.metadata.table_uuid != before.metadata.table_uuid
        place = f"{address}/topics/{before.metadata.table_uuid}/data/0-0-0-2-0.parquet"
        assert httpx.get(place).status_code in (403, 404)
        # without a signature
        place = f"{address}/{after.metadata_location.removeprefix('s3://')}"
        assert httpx.get(place).json()["table-uuid"] == str(after.metadata.table_uuid)


def test_a_payload_with_a_wrong_checksum_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    transport = MemoryTransport(t=1)
    right = with_checksums(b"right", zlib.crc32(b"right"))
    transport.held["t"][0].chunks.append((0, 3, sealed(right, 0)))
    transport.lies += [with_checksums(b"wrong", zlib.crc32(b"right"))] * 2
    source = TableSource("lading://127.0.0.1:1", {}, lambda: transport)
    (table,) = source.list_tables()
    view = TableView(0, extend_schema(None, ""), ())
    losses = RowLosses()
    batches = list(source.read_rows(table, view, RowRange(0, 0, 3), losses))
    assert [payload for batch in batches for payload in batch["payload"].to_pylist()] == [b"good", b"after"]
    assert "left out offset 1" in caplog.text
    assert losses.damaged == [(1, 2)]


def test_a_table_that_is_made_while_others_are_listed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = MemoryTransport(made=1, old=1)
    source = TableSource("lading://127.0.0.1:1", {}, lambda: transport)
    list_all = transport.topics

    def list_while_one_is_made() -> list[TopicMeta]:
        listed = [meta for meta in list_all() if meta.topic != "made"]
        # an engine loads it, and asks for its objects when the list is there
        assert source.find_table("default", "made") is not None
        return listed

    by_name = {table.name: table.uuid for table in source.list_tables()}
    monkeypatch.setattr(transport, "topics", list_while_one_is_made)
    assert source.find_uuid(by_name["old"]) is not None
    found = source.find_uuid(by_name["made"])
    assert found is not None and found.name == "made"


class IdentifiedTransport(MemoryTransport):
    """One whose topics have ids of their own."""

    def topic(self, name: str) -> TopicMeta:
        return replace(super().topic(name), topic_id=name.encode().ljust(16))


def test_a_table_that_another_caller_has_loaded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that is asked for without a key, 80 ms after a list that had no such topic yet: 403."""
    for name in ("LISTED_S", "MISSED_S"):
        # a list never gets old
        monkeypatch.setattr(f"lading.topic_tables.source.{name}", 3_600.0)
    transport = IdentifiedTransport(old=1)
    source, other = (TableSource("lading://127.0.0.1:1", {}, lambda: transport) for _ in range(2))
    (old,) = source.list_tables()
    assert source.find_uuid(old.uuid) is not None
    transport.create_topic("made", 1)
    opened = other.find_table("default", "made")
    assert opened is not None and source.find_uuid(opened.uuid) is None
    assert source.find_uuid(opened.uuid, old) is None, "the topic of another id"
    found = source.find_uuid(opened.uuid, opened)
    assert found is not None and found.name == "made"


def test_a_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="name a broker"), catalog("nsq://127.0.0.1:4150", tmp_path):
        pass


def test_a_source_that_is_away_is_an_error_of_its_own(tmp_path: Path) -> None:
    with PortHolder() as ports:
        url = f"lading://{ports.hold()}?retries=0"
        with catalog(url, tmp_path) as address, httpx.Client(base_url=address) as client:
            answer = client.get("/v1/lading/namespaces")
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "ServiceUnavailableException")
