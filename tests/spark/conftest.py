"""One Spark session for all tests of this room, and a broker with messages of two dialects."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lading import testing
from lading.client.bulk import write_arrow
from lading.transports.interface import Transport
from lading.transports.open import open_transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NATIVE_ROWS = 30_000
IGGY_ROWS = 6_000


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session whose tasks are tried three times."""
    from lading.spark import session

    # workers import this package: some tests put failures into the table path
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"spark.sql.shuffle.partitions": 2, "spark.executorEnv.PYTHONPATH": path}
    made = session("lading tests", "local[2,3]", **settings)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    """A broker with the topic ``flights``: two partitions of native messages, one of Iggy classic messages."""
    with testing.broker(data_dir=tmp_path_factory.mktemp("log") / "data") as running:
        transport = open_transport(running.url)
        transport.create_topic("air.flights", 3)
        for partition in (0, 1):
            write_arrow(
                flights(partition, NATIVE_ROWS), running.url, "air.flights", headers=HEADERS, partition=partition
            )
        iggy = f"iggy://{running.endpoints['iggy_tcp']}"
        write_arrow(flights(2, IGGY_ROWS), iggy, "air.flights", headers=HEADERS, partition=2, nulls="absent")
        settle(transport, "air.flights", str(running.data_dir))
        transport.close()
        yield running


HEADERS = ("carrier", "delay", "tail")


def flights(partition: int, rows: int) -> pa.Table:
    """Rows whose values follow from partition and row number, so that any reader's result can be computed."""
    at = np.arange(rows)
    return pa.table(
        {
            "carrier": pa.array(["UA", "AA", "DL"]).take(pa.array(at % 3, pa.int64())),
            "delay": pa.array(at.astype(np.int32) - 100, mask=at % 10 == 9),
            "tail": pa.array([f"N{partition}{row}" for row in at.tolist()]),
            "payload": pa.array([b'{"row": %d}' % row for row in at.tolist()]),
        }
    )


def settle(transport: Transport, topic: str, data_dir: str) -> None:
    """Wait until the directory shows what the broker shows: its watermark lags by up to 100 ms."""
    deadline = time.monotonic() + 10
    wanted = [part.end_offset for part in transport.topic(topic).partitions]
    while True:
        files = open_transport(data_dir)
        found = [part.end_offset for part in files.topic(topic).partitions]
        files.close()
        if found == wanted:
            return
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.02)


@pytest.fixture(params=["directory", "network"])
def place(request: pytest.FixtureRequest, broker: testing.BrokerProcess) -> str:
    """Where to read from: the data directory, or the broker."""
    return str(broker.data_dir) if request.param == "directory" else broker.url
