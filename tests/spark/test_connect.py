"""Spark Connect: a server process of PySpark's own and a client without a JVM, if ``pyspark[connect]`` is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lading import testing

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
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
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")}
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
