"""Spark with Iceberg's runtime reads a topic, as a batch and as a stream that goes on after the catalog's restart."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.topic_tables.keys import VendedKeys
from lading.transports.lading.transport import LadingTransport
from tests.interop import maven

from .conftest import catalog, send

READER = Path(__file__).parent / "spark_reader.py"
STREAM = Path(__file__).parent / "spark_stream.py"
KEY_S = 6
"""Spark reads the keys of so short a life anew before each use."""
PASSWORD = "correct horse battery"
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


@pytest.mark.spark
@pytest.mark.timeout(INSTALL_S + 2 * RUN_S)
def test_a_stream_with_a_login_outlives_restarts_and_kills(
    spark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog is killed and started again in the middle, then Spark itself: each row is written once."""
    jars = _fetch_jars()
    with testing.broker() as broker, ExitStack() as closed:
        token = _guard(broker.url)
        monkeypatch.setenv("TABLES_TOKEN", token)
        source = f"{broker.url}?token_env=TABLES_TOKEN"
        process, port = _serve(closed, broker.url, tmp_path, 0)
        send(source, "lasting", 0, 40)
        words = [spark, str(STREAM), str(jars), f"http://127.0.0.1:{port}", token, str(tmp_path)]
        with _start(words, tmp_path / "first.log") as first:
            assert _read_offsets(first, 40) == list(range(40))
            process.kill()
            process.wait(10)
            send(source, "lasting", 40, 40)
            process, _ = _serve(closed, broker.url, tmp_path, port)
            assert _read_offsets(first, 80) == list(range(80))
            send(source, "lasting", 80, 300)
        with _start(words, tmp_path / "second.log") as second:
            assert _read_offsets(second, 380) == list(range(380))


@pytest.mark.spark
@pytest.mark.timeout(INSTALL_S + 2 * RUN_S)
def test_a_stream_goes_on_past_the_end_of_its_key(spark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = _fetch_jars()
    with testing.broker() as broker:
        token = _guard(broker.url)
        monkeypatch.setenv("TABLES_TOKEN", token)
        source = f"{broker.url}?token_env=TABLES_TOKEN"
        send(source, "lasting", 0, 40)
        with catalog(broker.url, tmp_path / "state", keys=VendedKeys(lifetime_s=KEY_S)) as address:
            words = [spark, str(STREAM), str(jars), address, token, str(tmp_path)]
            with _start(words, tmp_path / "stream.log") as stream:
                assert _read_offsets(stream, 40) == list(range(40))
                for first in (40, 80):
                    time.sleep(KEY_S + 1)
                    send(source, "lasting", first, 40)
                    assert _read_offsets(stream, first + 40) == list(range(first + 40))
    log = (tmp_path / "stream.log").read_text()
    assert "the query ended" not in log and "again:" not in log


def _serve(closed: ExitStack, url: str, directory: Path, port: int) -> tuple[subprocess.Popen[str], int]:
    """Run ``lading tables``; returns its process and its port."""
    words = ["tables", "--from", url, "--address", f"127.0.0.1:{port}", "--state", str(directory / "state"),
             "--output", "json", "--with-parent"]  # fmt: skip
    process = closed.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "lading.cli.main", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    )
    closed.callback(process.kill)
    assert process.stdout is not None
    return process, int(json.loads(process.stdout.readline())["endpoints"]["tables"].rpartition(":")[2])


def _guard(url: str) -> str:
    """Make a user who may do everything; returns a token of it."""
    with closing(LadingTransport(url)) as transport:
        transport.create_topic("lasting")
        transport.add_user("root", PASSWORD, administrator=True)
        transport.log_in("root", PASSWORD)
        token: str = transport.add_token("root", "tables")
        return token


@contextmanager
def _start(words: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the end of the block, which kills it; its messages are in the file ``log``."""
    with log.open("w") as errors, subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment(),
        process_group=0,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            # with the JVM, which is its child
            os.killpg(process.pid, signal.SIGKILL)


def _read_offsets(process: subprocess.Popen[str], count: int) -> list[int]:
    """Return the offsets that the stream has written as soon as there are ``count``."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line, "the stream failed"
    offsets: list[int] = json.loads(line)
    return offsets


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
