"""Tables beside a Kafka or Iggy server and of a data directory: with columns that the process names."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lading import testing
from lading.client.bulk import read_arrow
from lading.model.errors import LocalError
from lading.testing.held_ports import PortHolder

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
    with catalog(url, tmp_path, {topic: COLUMNS}) as address:
        found = RestCatalog("c", uri=address).load_table(f"default.{topic}").scan().to_arrow()
    plain = read_arrow(url, topic, f"offset, headers, payload, {COLUMNS}")
    rows = [{name: row[name] for name in plain.schema.names} for row in found.to_pylist()]
    assert sorted(rows, key=lambda row: row["offset"]) == plain.to_pylist()
    assert plain["delay"].to_pylist()[:2] == [-10, -9]


def test_a_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="name a broker"), catalog("nsq://127.0.0.1:4150", tmp_path):
        pass


def test_a_source_that_is_away_is_an_error_of_its_own(tmp_path: Path) -> None:
    with PortHolder() as ports:
        url = f"lading://{ports.hold()}?retries=0"
        with catalog(url, tmp_path) as address, httpx.Client(base_url=address) as client:
            answer = client.get("/v1/lading/namespaces")
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "ServiceUnavailableException")
