"""Spark with Iceberg's runtime reads a topic, as a batch and as a stream that goes on after the catalog's restart."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.transports.lading.transport import LadingTransport
from tests.interop import maven

from .conftest import catalog, send

READER = Path(__file__).parent / "spark_reader.py"
SPARK = "pyspark==4.1.*"
RUNTIME = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.apache.iceberg:iceberg-aws-bundle:1.12.0")
INSTALL_S = 900
RUN_S = 280


@pytest.fixture(scope="module")
def spark(full: bool, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a Python that has the release of Spark for which Iceberg's newest runtime is made."""
    if given := os.environ.get("LADING_TEST_ICEBERG_SPARK"):
        return given
    if not full:
        pytest.skip("installs Spark 4.1 and Iceberg's runtime, 450 MB: only with LADING_TEST_FULL=1")
    where = tmp_path_factory.mktemp("spark")
    subprocess.run([sys.executable, "-m", "venv", where], check=True, timeout=INSTALL_S)
    python = str(where / "bin" / "python")
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", SPARK], capture_output=True, text=True, timeout=INSTALL_S
    )
    if installed.returncode:
        pytest.skip(f"Spark could not be installed: {installed.stderr[-300:]}")
    return python


@pytest.mark.spark
@pytest.mark.timeout(INSTALL_S + 2 * RUN_S)
def test_spark_reads_a_topic_and_streams_each_row_once(spark: str, tmp_path: Path) -> None:
    jars = _fetch_jars()
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with testing.broker() as broker:
        send(broker.url, "flights", 0, 60)
        with closing(LadingTransport(broker.url)) as transport:
            transport.alter_topic("flights", {"columns": "carrier string, delay int"})
        with catalog(broker.url, tmp_path / "state", port=port) as address:
            first = _run(spark, jars, address, tmp_path)
        send(broker.url, "flights", 60, 30)
        with catalog(broker.url, tmp_path / "state", port=port) as address:
            second = _run(spark, jars, address, tmp_path)
    delays = {carrier: [n % 50 - 10 for n in range(90) if (n % 3 > 0) == (carrier == "UA")] for carrier in ("AA", "UA")}
    assert first["offsets"] == list(range(60))
    assert second["offsets"] == list(range(90))
    assert second["means"] == pytest.approx({carrier: sum(rows) / len(rows) for carrier, rows in delays.items()})
    assert (second["first"], second["earlier"]) == (60, 60)


def _fetch_jars() -> Path:
    try:
        return maven.fetched("iceberg-spark", RUNTIME, alone=True)
    except maven.Unavailable as reason:
        pytest.skip(str(reason))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}


def _run(python: str, jars: Path, address: str, directory: Path) -> dict[str, Any]:
    words = [python, str(READER), str(jars), address, str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, env=_environment())
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
