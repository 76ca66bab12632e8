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
from pyiceberg.catalog.rest import RestCatalog

from lading import testing
from lading.tables.storage.storage import StorageReferences
from lading.topic_tables.file_store import FileStore, StoreAddress
from lading.transports.lading.transport import LadingTransport
from tests.tables.object_faults import run_faulty_store
from tests.tables.object_server import KEY, REGION, SECRET, ObjectServer

from .conftest import catalog, encrypted_catalog, send, write_certificate
from .test_file_store import wait_until_stored

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


def _run(python: str, text: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AWS_"))}
    return subprocess.run([python, "-c", text], capture_output=True, text=True, timeout=RUN_S, env=environment)


def test_the_page_has_a_block_for_each_engine() -> None:
    assert set(BLOCKS) == {"Polars", "DuckDB", "Daft", "ClickHouse"}


@pytest.mark.timeout(INSTALL_S + RUN_S)
@pytest.mark.parametrize("engine", ["Polars", "DuckDB", "Daft", "ClickHouse"])
def test_an_engine_reads_typed_columns(engines: str, flights: str, engine: str) -> None:
    _check_means(engines, flights, engine, 60)


@pytest.mark.timeout(INSTALL_S + RUN_S)
@pytest.mark.parametrize("engine", ["Polars", "DuckDB", "Daft", "ClickHouse"])
@pytest.mark.parametrize("has_key", [False, True], ids=["through", "direct"])
def test_an_engine_reads_sealed_files_of_a_store(
    engines: str, tmp_path: Path, bucket: str, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch,
    engine: str, has_key: bool,
) -> None:  # fmt: skip
    """With a key of the store DuckDB reads from there, the others through the catalog; without one all of them."""
    monkeypatch.setattr("lading.topic_tables.layout.SEAL_BYTES", 1)
    monkeypatch.setenv("READER", KEY)
    monkeypatch.setenv("READER_SECRET", SECRET)
    with testing.broker() as broker, run_faulty_store(object_server.url) as counted:
        given = {"endpoint": counted.url, "region": REGION, "access_key_id_env": "READER",
                 "secret_access_key_env": "READER_SECRET"}  # fmt: skip
        key = StorageReferences.parse(given, Path(), "", "--engine-storage") if has_key else None
        send(broker.url, "legs", 0, 2_500)
        with closing(LadingTransport(broker.url)) as transport:
            transport.alter_topic("legs", {"columns": "carrier string, delay int"})
        store = FileStore(StoreAddress(f"{bucket}/tables", None, key))
        with catalog(broker.url, tmp_path / "tables", store=store) as address:
            wait_until_stored(RestCatalog("c", uri=address), "default.legs", 2)
            _check_means(engines, address, engine, 2_500)
        assert bool(counted.requests) == (has_key and engine == "DuckDB")


def _check_means(engines: str, address: str, engine: str, count: int) -> None:
    text = BLOCKS[engine].replace("http://127.0.0.1:8181", address)
    if engine == "DuckDB":
        text = text.replace("import duckdb\n", f"import duckdb\n{LOAD_EXTENSIONS}")
    done = _run(engines, text)
    assert done.returncode == 0, done.stderr[-2000:]
    delays: dict[str, list[int]] = {"AA": [], "UA": []}
    for number in range(count):
        delays["UA" if number % 3 else "AA"].append(number % 50 - 10)
    for carrier, values in delays.items():
        (line,) = (line for line in done.stdout.splitlines() if carrier in line)
        (mean,) = map(float, re.findall(r"-?\d+(?:\.\d+)?", line))
        assert mean == pytest.approx(sum(values) / len(values)), done.stdout


READ_ENCRYPTED = """
import duckdb
connection = duckdb.connect()
for extension in ("avro", "httpfs", "iceberg"):
    connection.install_extension(extension)
    connection.load_extension(extension)
connection.sql("SET enable_server_cert_verification = true")
connection.sql("SET ca_cert_file = 'CERTIFICATE'")
connection.sql("CREATE SECRET s (TYPE iceberg, TOKEN 'LOGIN')")
connection.sql("ATTACH '' AS t (TYPE iceberg, ENDPOINT 'https://localhost:PORT', SECRET s)")
print(connection.sql('select sum("offset"), max(key) from t.default.sealed_legs').fetchall())
"""


@pytest.mark.timeout(INSTALL_S + RUN_S)
def test_an_engine_checks_the_certificate(engines: str, tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path)
    with testing.broker() as broker:
        send(broker.url, "sealed_legs", 0, 40)
        with closing(LadingTransport(broker.url)) as transport:
            transport.add_user("root", "correct horse battery", administrator=True)
            transport.log_in("root", "correct horse battery")
            token = transport.add_token("root", "tables")
        with encrypted_catalog(broker.url, tmp_path, certificate) as port:
            text = READ_ENCRYPTED.replace("import duckdb\n", f"import duckdb\n{LOAD_EXTENSIONS}")
            text = text.replace("LOGIN", token).replace("PORT", str(port))
            trusting = _run(engines, text.replace("CERTIFICATE", str(certificate)))
            doubting = _run(engines, text.replace("SET ca_cert_file = 'CERTIFICATE'", "SELECT 1"))
    assert trusting.stdout.strip() == "[(780, b'k6')]", trusting.stderr
    assert "SSL peer certificate" in doubting.stderr
