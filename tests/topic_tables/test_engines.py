"""The blocks of the page for engines that are not among our own requirements, each in a process, unmodified.

They run in an environment that is made for them from the package index, with ``LADING_TEST_FULL=1``, or in one that is
there: ``LADING_TEST_ENGINES`` names its Python.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lading import testing
from lading.transports.lading.transport import LadingTransport

from .conftest import catalog, send

PAGE = Path(__file__).parents[2] / "docs/how-to/query-from-any-engine.md"
BLOCK = re.compile(r"^## (?P<engine>\w+)\n(?:(?!^## ).)*?^```py\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = {found["engine"]: found["text"] for found in re.finditer(BLOCK, PAGE.read_text())}
WANTED = (
    "duckdb==1.5.5", "duckdb-extensions==1.5.5", "duckdb-extension-iceberg==1.5.5", "duckdb-extension-httpfs==1.5.5",
    "duckdb-extension-avro==1.5.5", "pytz", "chdb==4.4.0", "daft==0.7.26", "polars==2.1.0", "polars_iceberg==0.1.0",
    "pyiceberg[pyarrow]==0.12.0",
)  # fmt: skip
INSTALL_S = 900
RUN_S = 120
# wheels carry the extensions, as their own download needs a network
LOAD_EXTENSIONS = """
import duckdb_extensions
duckdb.DuckDBPyConnection.install_extension = lambda self, name: duckdb_extensions.import_extension(name, con=self)
"""


@pytest.fixture(scope="module")
def engines(full: bool, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a Python that has the engines."""
    if given := os.environ.get("LADING_TEST_ENGINES"):
        return given
    if not full:
        pytest.skip("installs five engines: only with LADING_TEST_FULL=1")
    where = tmp_path_factory.mktemp("engines")
    subprocess.run([sys.executable, "-m", "venv", where], check=True, timeout=INSTALL_S)
    python = str(where / "bin" / "python")
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", *WANTED], capture_output=True, text=True, timeout=INSTALL_S
    )
    if installed.returncode:
        pytest.skip(f"the engines could not be installed: {installed.stderr[-300:]}")
    return python


@pytest.fixture(scope="module")
def flights(engines: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with testing.broker() as broker:
        send(broker.url, "legs", 0, 60)
        with closing(LadingTransport(broker.url)) as transport:
            transport.alter_topic("legs", {"columns": "carrier string, delay int"})
        with catalog(broker.url, tmp_path_factory.mktemp("tables")) as address:
            yield address


def test_the_page_has_a_block_for_each_engine() -> None:
    assert set(BLOCKS) == {"Polars", "DuckDB", "Daft", "ClickHouse"}


@pytest.mark.timeout(INSTALL_S + RUN_S)
@pytest.mark.parametrize("engine", ["Polars", "DuckDB", "Daft", "ClickHouse"])
def test_an_engine_reads_typed_columns(engines: str, flights: str, engine: str) -> None:
    text = BLOCKS[engine].replace("http://127.0.0.1:8181", flights)
    if engine == "DuckDB":
        text = text.replace("import duckdb\n", f"import duckdb\n{LOAD_EXTENSIONS}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([engines, "-c", text], capture_output=True, text=True, timeout=RUN_S, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    delays: dict[str, list[int]] = {"AA": [], "UA": []}
    for number in range(60):
        delays["UA" if number % 3 else "AA"].append(number % 50 - 10)
    for carrier, values in delays.items():
        (line,) = (line for line in done.stdout.splitlines() if carrier in line)
        (mean,) = map(float, re.findall(r"-?\d+(?:\.\d+)?", line))
        assert mean == pytest.approx(sum(values) / len(values)), done.stdout
