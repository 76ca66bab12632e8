"""Spark Connect: a server process of PySpark's own and a client without a JVM, if ``pyspark[connect]`` is installed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest

from lading import testing
from lading.spark.java import require_java
from tests.interop.kafka_broker import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
PATH = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from lading.spark import register
from lading.spark.tables import ingest

url, directory = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
found = {"session": type(spark).__module__}
register(spark)


def read(**options):
    schema = "topic string, offset bigint, n bigint"
    return spark.read.format("lading").schema(schema).options(**{"from": url, **options}).load()


def say(run):
    try:
        run()
    except Exception as error:
        return str(error)


found["rows"] = read(topic="flights").count()
found["pattern"] = read(topic_pattern="fli.*").where("n > 5").count()
frame = read(topic="flights").selectExpr("CAST(n AS string) AS payload", "map('tail', 'N1') AS headers")
frame.write.format("lading").mode("append").options(to=url, topic="copies").save()
found["written"] = spark.read.format("lading").options(**{"from": url, "topic": "copies"}).load().count()
stream = spark.readStream.format("lading").schema("offset bigint").options(**{"from": url, "topic": "flights"}).load()
writer = stream.writeStream.format("memory").queryName("q").option("checkpointLocation", directory + "/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
found["streamed"] = spark.table("q").count()
found["unknown topic"] = say(lambda: read(topic="flight").count())
found["unknown option"] = say(lambda: read(topic="flights", startingOffset="x").count())
found["unknown target"] = say(
    lambda: frame.write.format("lading").mode("append").options(to=url, topic="nowhere").save()
)
table = directory + "/table"
report = ingest(spark, url, None, table, topic_pattern="flights", max_rows_per_partition=4)
again = ingest(spark, url, None, table, topic_pattern="flights")
found["ingested"] = [report.rows, report.files, again.rows]
found["bad value"] = say(lambda: ingest(spark, url, "words", directory + "/bad", columns="n int", on_bad_value="fail"))
spark.stop()
print("FOUND", json.dumps(found))
"""


@pytest.mark.turns(5, part=3)
def test_a_client_of_a_server_reads_streams_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed")
    pytest.importorskip("grpc_status", reason="grpcio-status is not installed")
    import pyarrow as pa

    from lading.client.bulk import write_arrow
    from lading.transports.open import open_transport

    with testing.broker(data_dir=tmp_path / "log") as broker:
        write_arrow(pa.table({"payload": [b"x"] * 10, "n": list(range(10))}), broker.url, "flights", headers=["n"])
        transport = open_transport(broker.url)
        transport.create_topic("copies")
        transport.close()
        write_arrow(pa.table({"payload": [b"x"], "n": ["word"]}), broker.url, "words", headers=["n"])
        # with it PySpark's server takes a free port, and its client asks for that; else both take 15002
        environment = os.environ | {"SPARK_TESTING": "1"}
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PATH}
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, broker.url, str(tmp_path)],
            capture_output=True, text=True, timeout=280, env=environment, cwd=tmp_path, check=False,
        )  # fmt: skip
    lines = [line.partition("FOUND ")[2] for line in done.stdout.splitlines() if "FOUND " in line]
    assert lines, done.stdout[-2000:] + done.stderr[-3000:]
    found = json.loads(lines[0])
    assert found["session"].startswith("pyspark.sql.connect")
    assert (found["rows"], found["pattern"], found["written"], found["streamed"]) == (10, 4, 10, 10)
    assert found["ingested"][0] == 10 and found["ingested"][1] >= 3 and found["ingested"][2] == 0
    for name, sentence in (
        ("unknown topic", "lading.transports.topics.UnknownTopic: topic 'flight' does not exist"),
        (
            "unknown option",
            "lading.model.errors.SettingError: unknown option 'startingoffset'; did you mean startingOffsets",
        ),
        ("bad value", "topic 'words', partition 0, offset 0: header 'n' has the value b'word'"),
        ("unknown target", "lading.transports.topics.UnknownTopic: topic 'nowhere' does not exist"),
    ):
        assert sentence in found[name]
        assert "Traceback" not in found[name] and "\tat " not in found[name] and "\n" not in found[name], found[name]


PIPELINE = """
[pipeline]
id = "remote_flights"
[source]
from = "{url}"
topic = "remote_flights"
[headers]
n = "int"
[good]
to = "delta:./good"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of Spark Connect, a process of its own; its address."""
    pytest.importorskip("grpc", reason="grpcio is not installed")
    pytest.importorskip("grpc_status", reason="grpcio-status is not installed")
    pytest.importorskip("yaml", reason="pyyaml is not installed")
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PATH, "JAVA_HOME": str(require_java().home),
        "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    with serve_connect(tmp_path_factory.mktemp("connect"), environment) as address:
        yield address


@contextmanager
def serve_connect(place: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run PySpark's own server of Spark Connect with its files in ``place``; its address."""
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.master": "local[2]",
        "spark.sql.warehouse.dir": place / "warehouse", "spark.sql.session.timeZone": "UTC",
    }  # fmt: skip
    command = [str(HOME / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    log = place / "server.txt"
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, env=environment, cwd=place, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not is_open(port):
            assert child.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(30)


def is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def call(command: Sequence[str], directory: Path) -> str:
    """Run a command as a client, which has no session of its own; its output."""
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PATH, "JAVA_HOME": str(require_java().home),
        "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=environment, cwd=directory, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.turns(5, part=4)
def test_a_pipeline_runs_its_tasks_on_a_server(server: str, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable

    from lading.client.bulk import write_arrow

    with testing.broker(data_dir=tmp_path / "log") as broker:
        rows = pa.table({"payload": [b"x"] * 10, "n": list(range(10))})
        write_arrow(rows, broker.url, "remote_flights", headers=["n"])
        (tmp_path / "remote.toml").write_text(PIPELINE.format(url=broker.url))
        command = [sys.executable, "-m", "lading", "pipeline", "run", "remote.toml", "--output", "json"]
        for expected in (10, 0):
            said = call([*command, "--remote", f"sc://{server}"], tmp_path)
            assert json.loads(said.splitlines()[-1])["read"] == expected
    found: list[Any] = DeltaTable(tmp_path / "good").to_pyarrow_table()["n"].to_pylist()
    assert sorted(found) == list(range(10))
