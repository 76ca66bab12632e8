"""The page on Spark Connect: its blocks with a server that lacks Lading, spark-submit, and a declarative pipeline."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading import testing
from lading.client.bulk import read_arrow, write_arrow
from lading.model.kinds import Kind
from lading.spark.java import require_java
from lading.transports.open import open_transport

from .test_connect import HOME, ROOT, serve_connect

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
PAGE = ROOT / "docs" / "how-to" / "spark-connect.md"
BLOCK = re.compile(r"^```(py[-a-z]*|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROWS = 200
LATE = [number for number in range(ROWS) if number % 90 > 60]


def blocks(language: str) -> list[str]:
    return [text for word, text in BLOCK.findall(PAGE.read_text()) if word == language]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages that Lading needs, without Lading."""
    place = tmp_path_factory.mktemp("python")
    venv.create(place, symlinks=True)
    (found,) = place.glob("lib/python*/site-packages")
    # of a directory that is named in such a file, files of this kind are not read: so Lading in the clone is not found
    (found / "packages.pth").write_text("\n".join(name for name in sys.path if name.endswith("site-packages")))
    chosen = place / "bin" / "python"
    tried = subprocess.run([chosen, "-E", "-c", "import pyarrow, lading"], capture_output=True, text=True, check=False)
    assert "No module named 'lading'" in tried.stderr
    return chosen


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[testing.BrokerProcess]:
    for name in ("grpc", "grpc_status", "yaml"):
        pytest.importorskip(name, reason=f"{name} is not installed; the extra connect brings it")
    with testing.broker(data_dir=tmp_path / "log") as started:
        numbers = list(range(ROWS))
        sent = {"payload": [b"x"] * ROWS, "carrier": ["UA"] * ROWS, "delay": [number % 90 for number in numbers]}
        write_arrow(pa.table(sent), started.url, "flights_connect", headers=["carrier", "delay"])
        transport = open_transport(started.url)
        transport.create_topic("late_connect")
        transport.close()
        shutil.make_archive(str(tmp_path / "lading"), "zip", ROOT / "src")
        yield started


def environment_of(python: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    spark = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(require_java().home)}
    return kept | spark | {"PYSPARK_PYTHON": str(python)}


def run(command: list[str | Path], directory: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, cwd=directory, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[:3000]}"
    return done.stdout


def late_numbers(url: str) -> list[int]:
    """Return the payloads of the topic of late flights, with their kinds seen."""
    rows: list[dict[str, Any]] = read_arrow(url, "late_connect", "headers, payload").to_pylist()
    assert {header["kind"] for row in rows for header in row["headers"]} == {Kind.STRING, Kind.UINT16}
    return sorted(int(row["payload"]) for row in rows)


@pytest.mark.parametrize(
    ("names", "has_lading"),
    [
        pytest.param(("artifact", "batch"), False, id="artifact", marks=pytest.mark.turns(10, part=0)),
        pytest.param(("stream",), True, id="environment", marks=pytest.mark.turns(10, part=5)),
    ],
)
def test_a_client_of_a_server(
    broker: testing.BrokerProcess, python: Path, tmp_path: Path, names: Sequence[str], has_lading: bool
) -> None:
    client = environment_of(python) | {"PYTHONPATH": str(ROOT / "src")}
    with serve_connect(tmp_path, client if has_lading else environment_of(python)) as server:
        text = "\n".join(blocks(f"py-{name}")[0] for name in ("session", *names))
        text = text.replace("127.0.0.1:15002", server).replace("127.0.0.1:7070", broker.endpoints["admin"])
        run([sys.executable, "-c", text], tmp_path, client)
    assert late_numbers(broker.url) == LATE


@pytest.mark.turns(5, part=1)
def test_spark_submit_brings_lading_as_a_file(broker: testing.BrokerProcess, python: Path, tmp_path: Path) -> None:
    (text,) = blocks("py-submit")
    (tmp_path / "late.py").write_text(text.replace("127.0.0.1:7070", broker.endpoints["admin"]))
    command = [HOME / "bin" / "spark-submit", "--master", "local[2]", "--py-files", "lading.zip", "late.py"]
    run([str(word) for word in command], tmp_path, environment_of(python))
    assert pq.read_table(tmp_path / "late.parquet").num_rows == len(LATE)


@pytest.mark.turns(5, part=2)
def test_a_declarative_pipeline_reads_and_writes_topics(
    broker: testing.BrokerProcess, python: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "transformations").mkdir(parents=True)
    (settings,), (flows,) = blocks("yaml"), blocks("py-pipeline")
    (project / "spark-pipeline.yml").write_text(settings.replace("/tmp/flights-pipeline", str(tmp_path / "storage")))
    flows = flows.replace("127.0.0.1:7070", broker.endpoints["admin"])
    (project / "transformations" / "flights.py").write_text(flows)
    environment = environment_of(python) | {"PYTHONPATH": str(ROOT / "src")}
    said = run([str(HOME / "bin" / "spark-pipelines"), "run"], project, environment)
    assert "Run is COMPLETED" in said
    assert late_numbers(broker.url) == LATE
